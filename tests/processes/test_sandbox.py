"""Pasted code: whatever it does, one clear sentence soon, and nothing left behind."""

import ast
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
import torch

from engine.sandbox import cases, child, judge, process
from engine.system.processes import marked
from lab.sections.parity.own import STARTER
from tests.serving import until

HEAD = "import math, os, sys, torch\ndef attention(q, k, v, causal):\n"
BODY = """\
    T, d = q.shape[-2:]
    scores = {scores}
    ahead = torch.ones(T, T, dtype=torch.bool).triu({diagonal})
    {mask}
    weights = {softmax}
    return {out}
"""
RIGHT = {
    "scores": "q @ k.transpose(-2, -1) / math.sqrt(d)",
    "diagonal": "1",
    "mask": "scores = scores.masked_fill(ahead, -math.inf) if causal else scores",
    "softmax": "scores.softmax(dim=-1)",
    "out": "weights @ v",
}


def written(**changed):
    """An attention that is right but for these pieces."""
    return HEAD + BODY.format(**{**RIGHT, **changed})


def judged(code):
    """What is made of harmless code that runs in this very process, its answers written and read again."""
    requests = list(judge.requests().values())
    return judge.judged(json.loads(json.dumps(list(child.answers(code, requests)))))


# The diagnosis


@pytest.mark.parametrize(
    ("changed", "part", "said"),
    [
        ({"scores": "q @ k.mT"}, "scale", "not divided by √d"),
        ({"scores": "q @ k.mT / d"}, "scale", "divided by d, not by √d"),
        ({"scores": "q @ k.mT / math.sqrt(T)"}, "scale", "divided by √T"),
        ({"scores": "q @ k.mT * math.sqrt(d)"}, "scale", "multiplied by √d"),
        ({"scores": "q @ k.mT / (d**0.5 if d < 2 else d**0.4)"}, "scale", "every case with d = 1 is right"),
        ({"diagonal": "2"}, "mask", "sees the token after it"),
        ({"diagonal": "0"}, "mask", "hides every token from itself"),
        ({"mask": "pass"}, "mask", "causal=True is ignored"),
        ({"mask": "scores = scores.masked_fill(ahead, -math.inf)"}, "mask", "even where causal is False"),
        ({"mask": "scores = scores * ~ahead if causal else scores"}, "mask", "set to 0 and not to −∞"),
        ({"softmax": "scores.softmax(-1) * (~ahead if causal else 1)", "mask": ""}, "mask", "after the soft"),
        ({"mask": "scores = scores.masked_fill(ahead.T, -math.inf) if causal else scores"}, "mask", "past"),
        ({"mask": "scores = scores.masked_fill(ahead, -0.5) if causal else scores"}, "mask", "only cases"),
        ({"softmax": "scores.softmax(dim=1)"}, "softmax axis", "over the queries"),
        ({"softmax": "scores.softmax(dim=0)"}, "softmax axis", "over the batch"),
        ({"softmax": "scores"}, "softmax axis", "there is no softmax"),
        ({"scores": "q @ k / math.sqrt(d)"}, "transpose", "k is not transposed"),
        ({"scores": "q @ k.reshape(-1, d, T) / math.sqrt(d)"}, "transpose", "k is reshaped"),
        ({"out": "weights.mT @ v"}, "transpose", "the weights meet v transposed"),
        ({"out": "weights @ k"}, "values", "the weights mix k, not v"),
        ({"out": "v"}, "values", "v comes back as it is"),
        ({"out": "weights @ v + 1"}, "values", "must give v itself"),
        ({"out": "weights @ v * float('nan')"}, "values", "NaN"),
        ({"out": "(weights @ v).float()"}, "dtype", "it returns float32 for float64"),
        ({"out": "(weights @ v).double()"}, "dtype", "it returns float64 for float32"),
        ({"scores": "((q @ k.mT).float() / math.sqrt(d)).to(q.dtype)"}, "dtype", "in less precision"),
        ({"out": "(weights.float() @ v)"}, "dtype", "with float64, line 8: it stops with RuntimeError"),
        ({"out": "(weights @ v)[0]"}, "shape", "it returns 1 × 1 for q, k and v of 1 × 1 × 1"),
        ({"out": "(weights @ v).mT"}, "shape", "1 × 1 × 2 for q, k and v of 1 × 2 × 1"),
        ({"out": "(weights @ v).mean(0, True).expand_as(v)"}, "shape", "only batches of two"),
        ({"out": "(weights @ v).sum()"}, "shape", "a single number"),
        ({"softmax": "scores.exp() / scores.exp().sum(-1, True)"}, "overflow", "overflow exp"),
        ({"out": "weights @ v + 0 * q.mul_(2)"}, "inputs", "it changes q in place"),
        ({"out": "(weights @ v, weights)"}, "return", "a tuple; it must return the output alone"),
        ({"out": "(weights @ v).tolist()"}, "return", "It returns a list"),
        ({"out": "None"}, "return", "It returns None; is there a return?"),
        ({"out": "(weights @ v).to('meta')"}, "return", "a tensor of another kind"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(one_thread, changed, part, said):
    found = judged(written(**changed))
    assert found.outcome == "wrong"
    assert found.part == part, found.sentence
    assert said in found.sentence
    assert found.sentence.endswith((".", "?"))
    assert "# expected\n[[[" in found.smallest


def test_two_mistakes_are_both_named(one_thread):
    found = judged(written(scores="q @ k.mT", diagonal="2"))
    assert found.sentence.startswith("Scale: the scores are not divided by √d; mask: it is off by one")


def test_the_smallest_failing_input_can_be_typed_in_again(one_thread):
    found = judged(written(scores="q @ k.mT"))
    assert found.failed[0] == "T = 2, d = 2, not causal"
    case = next(case for case in cases.LADDER if case.name == found.failed[0])
    values = dict(line.split(" = ") for line in found.smallest.split("\n# expected")[0].splitlines())
    assert ast.literal_eval(values["causal"]) is case.causal
    for letter, given in zip("qkv", case.inputs(), strict=True):
        assert ast.literal_eval(values[letter]) == given.tolist()
    _, expected, got = found.smallest.split("\n# ")
    assert expected.splitlines()[1] != got.splitlines()[1]


def test_what_is_expected_is_what_torch_computes(one_thread):
    for case in cases.LADDER:
        q, k, v = torch.tensor(case.inputs())
        assert torch.equal(q.to(getattr(torch, case.dtype)).double(), q), "inputs are of the case's dtype"
        right = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=case.causal)
        assert torch.allclose(right, torch.tensor(case.expected()), rtol=1e-12, atol=1e-12), case.name


def test_no_known_mistake_passes_and_none_looks_like_another():
    for fault in cases.FAULTS:
        results = [judge.compared(case, answered(case, fault)) for case in cases.LADDER]
        assert any(result.complaint for result in results), fault
        plain = [result for result in results if result.case.aims_at is None]
        assert next(judge.explaining(plain)) == (fault,)


def answered(case, fault):
    """What a process would answer that runs an attention with this fault."""
    given = case.inputs()
    try:
        output = cases.attend(given, case.causal, [fault])
    except ValueError:
        return {"error": "It stops with RuntimeError.", "unfit": False}
    shape = list(output.shape)
    return {"dtype": case.dtype, "shape": shape, "numbers": output.tolist(), "given": given.tolist()}


@pytest.mark.parametrize(
    "answers",
    [[], [None], [{}], [[1]], [{}, None], [{}, {"error": 1}], [{}, {"dtype": "float32"}],
     [{}, {"dtype": "float32", "shape": [1, 1, 1], "numbers": "x", "given": []}]],
)  # fmt: skip
def test_answers_that_the_code_wrote_itself_are_told(answers):
    assert judge.judged(answers).sentence == "Its outputs cannot be read; it wrote something in between."


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        ("def attention(q, k, v, causal:\n  return", "Line 1: this is no Python: '(' was never closed."),
        ("x = 1\n\n  y = 2", "Line 3: this is no Python: unexpected indent."),
        ("x = '\0'", "source code"),
        ("(" * 500, "this is no Python"),
        ("x = 1", "It defines no function `attention(q, k, v, causal)`."),
        ("attention = 3", "It defines no function `attention(q, k, v, causal)`."),
        ("1 / 0", "Line 1: it stops with ZeroDivisionError: division by zero."),
        ("def attention(q, k): return q", "it stops with TypeError: attention() takes 2 positional"),
        (HEAD + "    return w", "Line 3: it stops with NameError: name 'w' is not defined."),
        (HEAD + "    return attention(q, k, v, causal)", "Line 3: it calls itself without end (Recursion"),
        (HEAD + "    raise SystemExit(0)", "Line 3: it asks the process to end (SystemExit)"),
        (HEAD + "    raise KeyboardInterrupt", "Line 3: it stops with KeyboardInterrupt."),
        (HEAD + "    raise MemoryError", "more memory than the 1.5 GB"),
        ("class E(BaseException): pass\n" + HEAD + "    raise E('oops')", "Line 4: it stops with E: oops."),
        (
            "class E(BaseException):\n  def __str__(self): raise self\n" + HEAD + "    raise E",
            "It stops with an error that cannot even be printed.",
        ),
        (HEAD + "    raise ValueError('x' * 10**6)", "xxx…"),
    ],
)  # fmt: skip
def test_code_that_stops_gets_one_sentence(one_thread, code, sentence):
    found = judged(code)
    assert found.outcome == "error"
    assert sentence in found.sentence
    assert "\n" not in found.sentence
    assert len(found.sentence) < 500


def test_torch_bent_by_the_code_does_not_judge_it(one_thread, monkeypatch):
    for name in ("allclose", "equal"):
        monkeypatch.setattr(torch, name, getattr(torch, name))  # put back what the code replaces
    bent = "torch.allclose = torch.equal = lambda *a, **k: True\n"
    found = judged("import torch\n" + bent + "def attention(q, k, v, causal): return v")
    assert found.sentence == "Values: v comes back as it is, with nothing mixed into it."


def test_the_starting_code_has_one_bug(one_thread):
    found = judged(STARTER)
    assert found.sentence == "Scale: the scores are divided by √T, the number of tokens, not by √d."
    mended = STARTER.replace("math.sqrt(scores.shape[-1])", "math.sqrt(d)")
    assert judged(mended).outcome == "right"


# The process


@pytest.fixture(autouse=True)
def nothing_is_left(monkeypatch):
    """Whatever a test starts here bears its mark, and has ended when the test has."""
    monkeypatch.setenv("SANDBOX_TEST", str(os.getpid()))
    yield
    assert not ours()


def ours():
    """Living processes of any check started here."""
    return list(marked("SANDBOX_TEST", str(os.getpid())))


FORKS = """\
    import ctypes
    c = ctypes.CDLL(None)
    if c.fork() == 0:
        c.setsid()
        if c.fork() == 0:
            while True: c.sleep(1)
        c._exit(0)
    return v
"""
RECURSES = """\
    sys.setrecursionlimit(10**9)
    class A:
        def __repr__(self): return repr([self])
    return repr(A())
"""
MEMORY = "It asks for more memory than the 1.5 GB that it may have."
SLOW = "It was stopped after 5 s in"


@pytest.mark.parametrize(
    ("code", "outcome", "sentence"),
    [
        (written(), "right", "Right in all 17 cases: the largest difference in float32 is "),
        (HEAD + "    while True: pass", "stopped", f"{SLOW} the case T = 1, d = 1, not causal: it "),
        ("import time\ntime.sleep(60)\n" + HEAD + "    return v", "stopped", f"{SLOW} its first lines"),
        (HEAD + "    os._exit(3)", "stopped", "It ends the process itself, with exit code 3, in the case T"),
        (HEAD + "    return torch.empty(10**10, dtype=torch.uint8).fill_(1)", "error", MEMORY),
        (HEAD + "    return bytes(10**10)", "error", MEMORY),
        (HEAD + RECURSES, "stopped", "It crashes the interpreter (SIGSEGV) in the case T = 1"),
        (HEAD + "    os.fork()\n    return v", "error", "it tries to start or to signal another process"),
        (HEAD + "    os.kill(os.getppid(), 9)", "error", "it tries to start or to signal another process"),
        (HEAD + FORKS, "stopped", "It started another process; here a function may not."),
        (HEAD + "    print('x' * 10**6)\n    return v", "wrong", "Values: v comes back as it is"),
        (HEAD + "    open('big', 'wb').write(bytes(10**8))", "error", "File too large"),
        (HEAD + "    input()", "error", "EOFError"),
        (HEAD + "    return None", "wrong", "It returns None; is there a return?"),
        (HEAD + "    os.closerange(0, 200)\n    return v", "stopped", "It ends the process itself"),
    ],
    ids=lambda value: None,
)  # fmt: skip
@pytest.mark.skipif(os.name != "posix", reason="signals and limits of a POSIX system")
def test_whatever_it_does_is_answered(code, outcome, sentence):
    began = time.monotonic()
    found = judge.check(code)
    assert (found.outcome, sentence in found.sentence) == (outcome, True), found
    assert "\n" not in found.sentence
    assert len(found.printed) <= process.MAX_PRINTED
    assert 0 < found.seconds <= time.monotonic() - began < process.LOAD_SECONDS
    assert not ours()


def test_what_it_prints_and_what_went_wrong_are_shown_in_their_order():
    words = "print('one')\nos.write(2, b'two\\n')\nprint('three', file=sys.stderr)\n1 / 0"
    assert judge.check("import os, sys\n" + words).printed == "one\ntwo\nthree\n"


def test_a_process_that_does_not_start_shows_why(tmp_path, monkeypatch):
    (tmp_path / "torch.py").write_text("raise ImportError('no torch here')")
    monkeypatch.setattr(process, "ROOTS", f"{tmp_path}{os.pathsep}{process.ROOTS}")
    found = judge.check("x = 1")
    assert found.sentence == "The process that was to run it did not start (exit code 1)."
    assert "no torch here" in found.printed


def test_torch_that_loads_slowly_is_not_held_against_the_code(monkeypatch):
    monkeypatch.setattr(process, "LOAD_SECONDS", 0.01)
    found = judge.check("x = 1")
    assert found.outcome == "busy"
    assert found.sentence == "This machine is busy: torch did not load within 0 s. Check again."
    monkeypatch.setattr(process, "LOAD_SECONDS", 120.0)
    monkeypatch.setattr(process, "CODE_SECONDS", 1.0)  # less than torch needs
    assert judge.check(STARTER).outcome == "wrong"


def test_memory_that_grows_is_stopped_where_there_is_no_cap_of_the_system(monkeypatch):
    monkeypatch.setattr(process, "MEMORY_BYTES", 1)
    assert judge.check("x = 1").sentence == "It uses more memory than the 0.0 GB that it may have."


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the child's own clock ends it, after 30 s")
def test_the_app_takes_a_check_with_it_when_it_is_killed():
    code = (
        "import sys; from engine.sandbox import judge; judge.check('print(1, flush=True)\\nwhile True: pass')"
    )
    app = subprocess.Popen([sys.executable, "-c", code])
    until(lambda: any("engine.sandbox.child" in one.cmdline() for one in ours()), 20, "no check")
    app.send_signal(signal.SIGKILL)
    app.wait()
    until(lambda: not ours(), 20, ours)


def test_no_code_and_too_much_code_start_nothing(monkeypatch):
    monkeypatch.setattr(process, "run", lambda *_: pytest.fail("a process was started"))
    assert judge.check("  \n").sentence == "There is no code to check."
    assert judge.check("#" * 50_001).sentence == "The code has 50,001 bytes; allowed: at most 50,000."


@pytest.mark.parametrize(
    ("address", "switch", "allowed"),
    [
        ("localhost", "", True),
        ("127.0.0.1", "", True),
        ("127.8.8.8", "", True),
        ("::1", "", True),
        ("0.0.0.0", "", False),
        ("::", "", False),
        ("192.168.1.2", "", False),
        ("lab.example.org", "", False),
        ("", "", False),
        (None, "", False),
        (None, "1", True),
        ("0.0.0.0", "1", True),
        ("0.0.0.0", "0", False),
    ],
)
def test_it_is_off_beyond_this_machine(monkeypatch, address, switch, allowed):
    monkeypatch.setenv(process.SWITCH, switch)
    assert process.allowed(address) is allowed


def test_nothing_of_a_check_lies_about(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    code = "    open('left', 'w').write(os.getcwd())\n    print(os.getcwd())\n    return v"
    found = judge.check(HEAD + code)
    assert Path(found.printed.splitlines()[0]).parent == tmp_path
    assert not list(tmp_path.iterdir())
