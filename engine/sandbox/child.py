"""Judges a reader's ``attention(q, k, v, causal)`` on a ladder of small inputs, smallest first.

The process that runs pasted code: ``sandbox.py`` starts it, watches it and kills it. What it finds goes out
as lines of JSON; what the code prints is cut. Shapes: B batch, T position, d head width.
"""

import builtins
import faulthandler
import json
import math
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import torch
from torch import Tensor

from engine.sandbox.cases import FAULTS, LADDER, TOGETHER, Case, Fault, attend, expected

NAME = "your code"
MAX_TEXT = 300  # characters of a message of the reader's own
MAX_PRINTED = 2000
ALLOWED_BYTES = 1_500_000_000
STARTS_A_PROCESS = (
    "os.exec",
    "os.fork",
    "os.forkpty",
    "os.posix_spawn",
    "os.spawn",
    "os.startfile",
    "os.system",
    "pty.spawn",
    "subprocess.Popen",
)
TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-5, torch.float16: 5e-3, torch.bfloat16: 4e-2}

WHOLE_SENTENCES = ("error", "return")  # what is said of these needs no heading

Attention = Callable[[Tensor, Tensor, Tensor, bool], Any]
Say = Callable[[dict[str, Any]], None]


@dataclass
class Result:
    """One case's outcome. got: the output, where it is one at all; complaint: what is wrong, "" for nothing.

    part: what the complaint is about, None where only a comparison of all cases can tell.
    """

    case: Case
    complaint: str = ""
    part: str | None = None
    got: Tensor | None = None
    stop: bool = field(default=False)  # the other cases would fail in the same way


def judge(code: str, say: Say) -> dict[str, Any]:
    """Run the code on the ladder.

    say: hears the name of each case before it begins, so that whoever kills this process knows where it was.
    Returns outcome ("right", "wrong" or "error"), one sentence, and what the page shows beside it.
    """
    say({"at": "its first lines"})
    try:
        attention = _defined(code)
    except BaseException as error:
        return {"outcome": "error", "sentence": told(error)}
    results: list[Result] = []
    for case in LADDER:
        say({"at": f"the case {case.name}"})
        results.append(_tried(attention, case))
        if results[-1].stop:
            break
    failed = [result for result in results if result.complaint]
    counts = {"cases": [{"name": r.case.name, "failed": bool(r.complaint)} for r in results]}
    if not failed:
        gap = max(_gap(r.got, expected(r.case)) for r in results if r.case.dtype == torch.float32)
        said = f"Right in all {len(LADDER)} cases: the largest difference in float32 is {_short(gap)}."
        return {"outcome": "right", "sentence": said, "part": None, **counts}
    part, said = _diagnosis(results, failed)
    return {
        "outcome": "error" if part == "error" else "wrong",
        "sentence": said if part in WHOLE_SENTENCES else f"{said[0].upper()}{said[1:]}.",
        "part": part,
        **counts,
        "smallest": _printed(failed[0]),
    }


def _defined(code: str) -> Attention:
    """The function that the code defines.

    Raises TypeError: when it defines none.
    """
    space: dict[str, Any] = {"__name__": "your_code", "__builtins__": builtins}
    exec(compile(code, NAME, "exec"), space)
    attention = space.get("attention")
    if not callable(attention):
        raise NoFunction("It defines no function `attention(q, k, v, causal)`.")
    return attention  # type: ignore[no-any-return]


class NoFunction(TypeError):
    """The code has no ``attention``; the message is a whole sentence."""


def _tried(attention: Attention, case: Case) -> Result:
    originals = case.inputs()
    q, k, v = (one.clone() for one in originals)
    try:
        got = attention(q, k, v, case.causal)
        return _checked(got, case, originals, (q, k, v))
    except BaseException as error:
        once = not isinstance(error, Exception) or isinstance(error, RecursionError) or _out_of_memory(error)
        return Result(case, told(error), "error", stop=once)


def _checked(got: Any, case: Case, originals: Sequence[Tensor], given: Sequence[Tensor]) -> Result:
    shape = tuple(case.inputs()[2].shape)
    if not isinstance(got, Tensor):
        hint = "is there a return?" if got is None else "it must return one tensor, the output."
        if isinstance(got, tuple):
            hint = "it must return the output alone, without the weights."
        return Result(case, f"It returns {_kind(got)}; {hint}", "return", stop=True)
    got = got.detach().as_subclass(Tensor)
    if got.layout != torch.strided or got.device.type != "cpu":
        said = f"It returns a tensor of another kind ({got.layout}, on {got.device})."
        return Result(case, said, "return", stop=True)
    if tuple(got.shape) != shape:
        said = f"it returns {_by(got.shape)} for q, k and v of {_by(shape)}"
        return Result(case, said, "shape")
    got = got.clone()
    if got.dtype != case.dtype:
        return Result(case, f"it returns {_name(got.dtype)} for {_name(case.dtype)}", "dtype", got)
    if any(not torch.equal(a, b) for a, b in zip(originals, given, strict=True)):
        changed = [n for n, a, b in zip("qkv", originals, given, strict=True) if not torch.equal(a, b)]
        return Result(case, f"it changes {' and '.join(changed)} in place", "inputs", got)
    if not _close(got, expected(case)):
        return Result(case, "it gives other numbers", got=got)
    return Result(case, got=got)


def _diagnosis(results: Sequence[Result], failed: Sequence[Result]) -> tuple[str, str]:
    """The part that is wrong, and a sentence that names it."""
    plain = [result for result in results if result.case.aims_at is None]
    first = failed[0]
    known = next(_explaining(plain), None)
    if known and any(result in failed for result in plain):
        part = known[0].part
        return part, "; ".join(f"{fault.part}: {fault.said}" for fault in known)
    if first.case.aims_at == "dtype" and first.part == "error":
        complaint = first.complaint[0].lower() + first.complaint[1:].rstrip(".")
        return "dtype", f"dtype: with {_name(first.case.dtype)}, {complaint}"
    if first.part in WHOLE_SENTENCES:
        return first.part, first.complaint
    part, said = (first.part, first.complaint) if first.part else _by_which_fail(plain, failed)
    return part, f"{part}: {said}"


def _explaining(plain: Sequence[Result]) -> Iterator[tuple[Fault, ...]]:
    """The faults, fewest first, that give exactly these outputs in every case."""
    singles = [(fault,) for fault in FAULTS]
    pairs = [
        (a, b) for a, b in combinations(FAULTS, 2) if a.part != b.part and {a.part, b.part} <= {*TOGETHER}
    ]
    for faults in (*singles, *pairs):
        if all(_explains(faults, result) for result in plain):
            yield faults


def _explains(faults: Sequence[Fault], result: Result) -> bool:
    try:
        would = attend(*result.case.inputs(), result.case.causal, faults)
    except RuntimeError:
        return result.part == "error"
    return result.got is not None and result.part is None and _close(result.got, would)


def _by_which_fail(plain: Sequence[Result], failed: Sequence[Result]) -> tuple[str, str]:
    """No known mistake: what the failing cases have in common says where to look."""
    wrong = [result.case for result in plain if result.complaint]
    right = [result.case for result in plain if not result.complaint]
    if not wrong:
        aim = failed[0].case.aims_at or "values"
        if aim == "overflow":
            return (
                aim,
                "scores in the hundreds overflow exp; take each row’s maximum off first, or use softmax",
            )
        return aim, f"only {failed[0].case.name} goes wrong: it computes in less precision than it was given"
    if all(r.got is not None and not r.got.isfinite().all() for r in failed):
        return "values", f"it gives NaN or ∞, first at {failed[0].case.name}"
    if all(case.batch > 1 for case in wrong):
        return "shape", "only batches of two go wrong, so sequences are mixed with each other"
    if all(case.causal for case in wrong) and any(case.causal is False for case in right):
        return "mask", "only cases with causal=True go wrong"
    if not any(case.causal for case in wrong):
        return "mask", "only cases with causal=False go wrong"
    if all(case.width > 1 for case in wrong) and any(case.width == 1 and case.tokens > 1 for case in right):
        return "scale", "every case with d = 1 is right, every wrong one has a larger d"
    if all(case.tokens > 1 for case in wrong):
        return "weights", "one token alone is right, more than one go wrong; look at the softmax and its axis"
    nan = any(r.got is not None and not r.got.isfinite().all() for r in failed)
    return (
        "values",
        "it gives NaN or ∞" if nan else "one token alone already goes wrong: it must give v itself",
    )


def _close(got: Tensor, want: Tensor) -> bool:
    """Equal within the precision's rounding, NaN where NaN is wanted."""
    within = TOLERANCE[want.dtype]
    return bool(torch.allclose(got.double(), want.double(), rtol=within, atol=within, equal_nan=True))


def _gap(got: Tensor | None, want: Tensor) -> float:
    return math.inf if got is None else (got.double() - want.double()).abs().max().item()


def _printed(result: Result) -> dict[str, Any]:
    """A failing case so that it can be typed in again."""
    case = result.case
    q, k, v = case.inputs()
    got = _numbers(result.got) if result.got is not None else result.complaint
    return {
        "name": case.name,
        "q": _numbers(q),
        "k": _numbers(k),
        "v": _numbers(v),
        "causal": case.causal,
        "expected": _numbers(expected(case)),
        "got": got,
    }


def _numbers(tensor: Tensor) -> str:
    def said(value: Any) -> str:
        return f"[{', '.join(map(said, value))}]" if isinstance(value, list) else f"{value:.4g}"

    return said(tensor.double().tolist())[:MAX_TEXT]


def told(error: BaseException) -> str:
    """An exception in one sentence, whatever its class does."""
    try:
        if isinstance(error, NoFunction):
            return str(error)
        if _out_of_memory(error):
            error.__traceback__ = None  # and with it every frame that holds the memory
            return f"It asks for more memory than the {ALLOWED_BYTES / 1e9:.1f} GB that it may have."
        line = _line(error)
        where = f"Line {line}: " if line else ""
        if isinstance(error, SyntaxError):
            return f"{where}this is no Python: {_cut(error.msg)}."
        if isinstance(error, RecursionError):
            return f"{where}it calls itself without end (RecursionError)."
        if isinstance(error, SystemExit):
            return f"{where}it asks the process to end (SystemExit); it must return a tensor."
        if isinstance(error, PermissionError) and str(error).startswith("No process"):
            return f"{where}it tries to start or to signal another process; here a function may not."
        message = _cut(str(error))
        return f"{where}it stops with {type(error).__name__}{': ' if message else ''}{message.rstrip('.')}."
    except BaseException:
        return "It stops with an error that cannot even be printed."


def _line(error: BaseException) -> int | None:
    """The last line of the reader's own that the error passed through."""
    if isinstance(error, SyntaxError):
        return error.lineno
    lines = [at for frame, at in traceback.walk_tb(error.__traceback__) if frame.f_code.co_filename == NAME]
    return lines[-1] if lines else None


def _out_of_memory(error: BaseException) -> bool:
    if isinstance(error, MemoryError):
        return True
    return isinstance(error, RuntimeError) and "allocate memory" in str(error)


def _cut(text: str) -> str:
    first = " ".join(str(text).split())
    return first if len(first) <= MAX_TEXT else f"{first[:MAX_TEXT]}…"


def _kind(got: Any) -> str:
    name = type(got).__name__
    return "None" if got is None else f"{'an' if name[0] in 'aeiou' else 'a'} {_cut(name)}"


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _by(shape: Sequence[int]) -> str:
    return " × ".join(map(str, shape)) or "a single number"


def _short(value: float) -> str:
    return "0" if value == 0 else f"{value:.1e}".replace("-", "−")


class Cut:
    """Stands in for stdout and stderr: passes the first characters on and swallows the rest."""

    encoding = "utf-8"

    def __init__(self, say: Say) -> None:
        self._say, self._left = say, MAX_PRINTED

    def write(self, text: str) -> int:
        kept = str(text)[: self._left]
        self._left -= len(kept)
        if kept:
            self._say({"printed": kept})
        return len(text)

    def flush(self) -> None:
        """Nothing waits."""

    def isatty(self) -> bool:
        """It is no terminal."""
        return False


def _refuse(event: str, _arguments: object) -> None:
    """An audit hook, never to be removed again: no process but this one."""
    if event in STARTS_A_PROCESS or event in ("os.kill", "os.killpg", "signal.pthread_kill"):
        raise PermissionError(f"No process but this one: {event}.")


def _limit_memory() -> None:
    """Cap the address space above what torch took; where there is no such cap the watcher's eyes must do."""
    try:
        import resource

        with open("/proc/self/statm") as sizes:  # noqa: PTH123
            now = int(sizes.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (now + ALLOWED_BYTES, now + ALLOWED_BYTES))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    except (ImportError, OSError, ValueError):
        return


def main(seconds: float) -> None:
    """Load, wait for the code on stdin, judge it, leave. No code: leave at once."""
    channel = os.dup(1)
    void = os.open(os.devnull, os.O_RDWR)
    os.dup2(void, 1)
    os.dup2(void, 2)

    def say(what: dict[str, Any]) -> None:
        os.write(channel, json.dumps(what).encode() + b"\n")

    torch.set_num_threads(1)
    attend(*LADDER[-1].inputs(), True)  # what torch loads on first use
    say({"ready": True})
    code = sys.stdin.buffer.read()
    if not code:
        return
    os.dup2(void, 0)
    # Should the watcher be gone, this thread of C ends the process whatever Python is doing.
    faulthandler.dump_traceback_later(seconds, exit=True, file=void)
    _limit_memory()
    sys.stdout = sys.stderr = Cut(say)
    sys.addaudithook(_refuse)
    leave = os._exit
    try:
        verdict = judge(code.decode("utf-8", "replace"), say)
    except BaseException as error:
        verdict = {"outcome": "error", "sentence": told(error)}
    say({"verdict": verdict})
    leave(0)


if __name__ == "__main__":
    main(float(sys.argv[1]))
