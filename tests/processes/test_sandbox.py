"""Pasted code: whatever it does, one clear sentence within six seconds, and nothing left behind."""

import ast
import os
import time
from pathlib import Path

import psutil
import pytest
import torch

from engine.sandbox import cases, child
from engine.sandbox import watcher as sandbox
from lab.sections.parity.parts import STARTER

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
    """What the ladder makes of harmless code, in this very process."""
    return child.judge(code, lambda word: None)


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
    assert found["outcome"] == "wrong"
    assert found["part"] == part, found["sentence"]
    assert said in found["sentence"]
    assert found["sentence"].endswith((".", "?"))
    assert found["smallest"]["expected"]


def test_two_mistakes_are_both_named(one_thread):
    found = judged(written(scores="q @ k.mT", diagonal="2"))
    assert found["sentence"].startswith("Scale: the scores are not divided by √d; mask: it is off by one")


def test_the_smallest_failing_input_can_be_typed_in_again(one_thread):
    found = judged(written(scores="q @ k.mT"))
    failed = [case["name"] for case in found["cases"] if case["failed"]]
    case = next(case for case in cases.LADDER if case.name == failed[0])
    assert found["smallest"]["name"] == case.name == "T = 2, d = 2, not causal"
    for letter, given in zip("qkv", case.inputs(), strict=True):
        assert torch.equal(torch.tensor(ast.literal_eval(found["smallest"][letter])), given)
    assert found["smallest"]["expected"] != found["smallest"]["got"]


def test_no_known_mistake_passes_and_none_looks_like_another(one_thread):
    def wrong(fault):
        return lambda q, k, v, causal: cases.attend(q, k, v, causal, [fault])

    for fault in cases.FAULTS:
        results = [child._tried(wrong(fault), case) for case in cases.LADDER]
        assert any(result.complaint for result in results), fault
        plain = [result for result in results if result.case.aims_at is None]
        assert next(child._explaining(plain)) == (fault,)


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
    assert found["outcome"] == "error"
    assert sentence in found["sentence"]
    assert "\n" not in found["sentence"]
    assert len(found["sentence"]) < 500


def test_every_case_is_announced_before_it_begins(one_thread):
    heard: list[dict[str, str]] = []
    assert child.judge(written(), heard.append)["outcome"] == "right"
    assert [word["at"] for word in heard[1:]] == [f"the case {case.name}" for case in cases.LADDER]


def test_what_is_printed_is_cut():
    heard: list[dict[str, str]] = []
    cut = child.Cut(heard.append)
    for _ in range(10):
        assert cut.write("x" * 10**6) == 10**6
    assert sum(len(word["printed"]) for word in heard) == child.MAX_PRINTED


def test_the_starting_code_has_one_bug(one_thread):
    found = judged(STARTER)
    assert found["sentence"] == "Scale: the scores are divided by √T, the number of tokens, not by √d."
    mended = STARTER.replace("math.sqrt(scores.shape[-1])", "math.sqrt(d)")
    assert judged(mended)["outcome"] == "right"


# The process


@pytest.fixture(scope="module", autouse=True)
def _nothing_left():
    yield
    sandbox.release()
    until = time.monotonic() + 5
    while ours() and time.monotonic() < until:
        time.sleep(0.05)
    assert not ours()


def ours():
    """Living processes of any sandbox started here, found by what their environment or command says."""
    here, found = os.getpid(), []
    for process in psutil.process_iter():
        try:
            mark = process.environ().get("SANDBOX_TEST") == str(here)
        except psutil.Error:
            continue
        if mark and process.pid != here and process.status() != psutil.STATUS_ZOMBIE:
            found.append(process)
    return found


@pytest.fixture(autouse=True)
def _marked(monkeypatch):
    monkeypatch.setenv("SANDBOX_TEST", str(os.getpid()))


def checked(code):
    """The verdict, as a reader gets it who checks again where the machine is busy. Never over six seconds."""
    for _ in range(6):
        began = time.monotonic()
        found = sandbox.check(code)
        assert time.monotonic() - began < 6, found
        assert "\n" not in found.sentence
        if found.outcome != "busy":
            return found
    raise AssertionError("torch never loaded")


def leftovers():
    """What still lives of the checks so far, but for the one watcher and child that wait for code."""
    waiting = sandbox._spare._process.pid
    return [one for one in ours() if one.pid != waiting and one.ppid() != waiting]


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


@pytest.mark.parametrize(
    ("code", "outcome", "sentence"),
    [
        (written(), "right", "Right in all 17 cases: the largest difference in float32 is "),
        (STARTER, "wrong", "Scale: the scores are divided by √T"),
        (HEAD + "    while True: pass", "stopped", "It does not end: stopped after "),
        (HEAD + "    os._exit(3)", "stopped", "It ends the process itself, with exit code 3, in the case T"),
        (HEAD + "    return torch.empty(10**10, dtype=torch.uint8).fill_(1)", "error", MEMORY),
        (HEAD + "    return bytes(10**10)", "error", MEMORY),
        (HEAD + RECURSES, "stopped", "It crashes the interpreter (SIGSEGV) in the case T = 1"),
        (HEAD + "    os.fork()\n    return v", "error", "it tries to start or to signal another process"),
        (HEAD + "    os.kill(os.getppid(), 9)", "error", "it tries to start or to signal another process"),
        (HEAD + FORKS, "stopped", "It started another process; here a function may not."),
        (HEAD + "    print('x' * 5 * 10**6)\n    return v", "wrong", "Values: v comes back as it is"),
        (HEAD + "    input()", "error", "EOFError"),
        (HEAD + "    os.closerange(0, 200)\n    return v", "stopped", "It ends the process itself"),
    ],
    ids=lambda value: None,
)  # fmt: skip
@pytest.mark.skipif(os.name != "posix", reason="signals and limits of a POSIX system")
def test_whatever_it_does_is_answered(code, outcome, sentence):
    found = checked(code)
    assert (found.outcome, sentence in found.sentence) == (outcome, True), found
    assert len(found.printed) <= child.MAX_PRINTED
    if outcome == "stopped" and "does not end" not in found.sentence:
        assert found.seconds < 6
    assert not leftovers()


def test_memory_that_grows_is_stopped_where_there_is_no_cap_of_the_system(monkeypatch):
    monkeypatch.setattr(sandbox, "MEMORY_BYTES", 1)

    class Child:
        pid = os.getpid()
        poll = staticmethod(lambda: None)

    assert sandbox._until_it_ends(Child(), 5.0) == "memory"
    assert sandbox._why("memory", -9, {}, 0.1) == "It uses more memory than the 0.0 GB that it may have."


def test_no_code_and_too_much_code_start_nothing(monkeypatch):
    monkeypatch.setattr(sandbox, "_taken", lambda: pytest.fail("a process was started"))
    assert sandbox.check("  \n").sentence == "There is no code to check."
    assert sandbox.check("#" * 50_001).sentence == "The code has 50,001 bytes; allowed: at most 50,000."


def test_a_busy_machine_is_told_and_goes_on_loading(monkeypatch):
    sandbox.release()
    monkeypatch.setattr(sandbox, "LIMIT_SECONDS", sandbox.ENOUGH_SECONDS + 0.01)
    found = sandbox.check("x = 1")
    assert (found.outcome, found.sentence) == ("busy", sandbox.BUSY)
    loading = sandbox._spare
    assert loading.alive
    monkeypatch.undo()
    os.environ["SANDBOX_TEST"] = str(os.getpid())
    assert sandbox._taken() is loading
    loading.end()
    del os.environ["SANDBOX_TEST"]


def test_a_watcher_that_is_killed_is_told(monkeypatch):
    class Dead:
        alive = True

        def __init__(self):
            lines = iter([b"ready\n", b""])
            self.line = lambda seconds: next(lines)
            self.send = self.end = lambda *_: None

    monkeypatch.setattr(sandbox, "_taken", Dead)
    monkeypatch.setattr(sandbox, "_keep", lambda watcher: None)
    monkeypatch.setattr(sandbox, "_Watcher", Dead)
    assert sandbox.check("x = 1").sentence == "It ended the process that was watching it."


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
    monkeypatch.setenv(sandbox.SWITCH, switch)
    assert sandbox.allowed(address) is allowed


def test_the_watcher_loads_no_torch(python):
    ended = python("-c", "import engine.sandbox.watcher, sys; print('torch' in sys.modules)")
    assert ended.stdout == "False\n"


def test_nothing_of_a_check_lies_about(tmp_path, monkeypatch):
    sandbox.release()
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    found = checked(HEAD + "    open('left', 'w').write(os.getcwd())\n    print(os.getcwd())\n    return v")
    sandbox.release()
    assert str(tmp_path) in found.printed
    assert not Path(found.printed.splitlines()[0]).exists()
    until = time.monotonic() + 5
    while list(tmp_path.iterdir()) and time.monotonic() < until:
        time.sleep(0.05)
    assert not list(tmp_path.iterdir())
