"""Compares a reader's ``attention(q, k, v, causal)`` with what is right: ``check(code)``.

The code runs in a process of its own (``process.py``) and only its outputs come back. Here they are compared,
in numpy, with outputs that the code never saw. Where they differ, the mistake is named: by trying known ones,
or by what the failing cases have in common.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np

from engine.sandbox import process
from engine.sandbox.cases import FAULTS, LADDER, TOGETHER, Array, Case, Fault, attend

MAX_BYTES = 50_000  # of code
MAX_TEXT = 300  # characters of a tensor that is shown
TOLERANCE = {"float64": 1e-10, "float32": 1e-5, "float16": 5e-3, "bfloat16": 4e-2}
WHOLE_SENTENCES = ("error", "return")  # what is said of these needs no heading


@dataclass(frozen=True)
class Verdict:
    """What became of the code.

    outcome: "right", "wrong" (other numbers than the reference), "error" (it raised, or is no Python),
    "stopped" (it had to be, or ended the process), or "busy" when it never ran. sentence: that in words.
    part: what of attention is wrong.
    tried, failed: names of cases. smallest: the smallest failing input with both outputs, as Python.
    printed: the beginning of its standard output and error.
    """

    outcome: str
    sentence: str
    part: str | None = None
    tried: Sequence[str] = ()
    failed: Sequence[str] = ()
    smallest: str = ""
    printed: str = ""
    seconds: float = 0.0


@dataclass(frozen=True)
class Result:
    """One case's outcome. got: the output, where it is one at all; complaint: what is wrong, "" for nothing.

    part: what the complaint is about, None where only a comparison of all cases can tell.
    """

    case: Case
    complaint: str = ""
    part: str | None = None
    got: Array | None = None


def check(code: str) -> Verdict:
    """Judge a reader's ``attention(q, k, v, causal)``, soon, whatever it does."""
    if not code.strip():
        return Verdict("error", "There is no code to check.")
    if (size := len(code.encode("utf-8", "replace"))) > MAX_BYTES:
        return Verdict("error", f"The code has {size:,} bytes; allowed: at most {MAX_BYTES:,}.")
    ended = process.run(code, requests())
    if ended.stopped:
        found = Verdict("busy" if ended.busy else "stopped", ended.stopped)
    else:
        found = judged(ended.answers)
    return replace(found, printed=ended.printed, seconds=ended.seconds)


def requests() -> dict[str, dict[str, Any]]:
    """The inputs of every case, by its name, as the process that runs the code takes them."""
    return {
        case.name: {"inputs": case.inputs().tolist(), "dtype": case.dtype, "causal": case.causal}
        for case in LADDER
    }


def judged(answers: Sequence[Any]) -> Verdict:
    """The verdict on what the code's first lines came to and on its outputs.

    answers: as ``child.answers`` yields them, or anything, since the code shares a process with those lines.
    """
    try:
        first, *others = answers
        if "error" in first:
            return Verdict("error", str(first["error"]))
        results = [compared(*pair) for pair in zip(LADDER, others, strict=False)]
        failed = [result for result in results if result.complaint]
        if not failed and len(results) < len(LADDER):
            raise ValueError(f"{len(results)} outputs")
    except (ArithmeticError, AttributeError, KeyError, TypeError, ValueError):
        return Verdict("error", "Its outputs cannot be read; it wrote something in between.")
    found = _wrong(results, failed) if failed else _right(results)
    return replace(found, tried=[r.case.name for r in results], failed=[r.case.name for r in failed])


def _right(results: Sequence[Result]) -> Verdict:
    close = [(r.got, r.case.expected()) for r in results if r.got is not None and r.case.dtype == "float32"]
    gap = max(float(np.abs(got - want).max()) for got, want in close)
    said = "0" if gap == 0 else f"{gap:.1e}".replace("-", "−")
    return Verdict("right", f"Right in all {len(LADDER)} cases: the largest difference in float32 is {said}.")


def _wrong(results: Sequence[Result], failed: Sequence[Result]) -> Verdict:
    part, said = _diagnosis(results, failed)
    said = said if part in WHOLE_SENTENCES else f"{said[0].upper()}{said[1:]}."
    return Verdict("error" if part == "error" else "wrong", said, part, smallest=_python(failed[0]))


def compared(case: Case, answer: dict[str, Any]) -> Result:
    """One case's output with what is right.

    Raises AttributeError, KeyError, TypeError, ValueError: when the answer is none of ``child.answers``.
    """
    inputs = case.inputs()
    shape = inputs.shape[1:]
    if "error" in answer:
        return Result(case, str(answer["error"]), "return" if answer["unfit"] else "error")
    if tuple(answer["shape"]) != shape:
        return Result(case, f"it returns {_by(answer['shape'])} for q, k and v of {_by(shape)}", "shape")
    got = np.array(answer["numbers"], np.float64).reshape(shape)
    if answer["dtype"] != case.dtype:
        return Result(case, f"it returns {answer['dtype']} for {case.dtype}", "dtype", got)
    pairs = zip("qkv", inputs, answer["given"], strict=True)
    if changed := [name for name, before, after in pairs if not np.array_equal(before, after)]:
        return Result(case, f"it changes {' and '.join(changed)} in place", "inputs", got)
    return Result(case, "" if _close(got, case.expected(), case) else "it gives other numbers", got=got)


def _diagnosis(results: Sequence[Result], failed: Sequence[Result]) -> tuple[str, str]:
    """The part that is wrong, and a sentence that names it."""
    plain = [result for result in results if result.case.aims_at is None]
    first = failed[0]
    known = next(explaining(plain), None)
    if known and any(result.complaint for result in plain):
        return known[0].part, "; ".join(f"{fault.part}: {fault.said}" for fault in known)
    if first.case.aims_at == "dtype" and first.part == "error":
        complaint = first.complaint[0].lower() + first.complaint[1:].rstrip(".")
        return "dtype", f"dtype: with {first.case.dtype}, {complaint}"
    if first.part in WHOLE_SENTENCES:
        return first.part, first.complaint
    part, said = (first.part, first.complaint) if first.part else _by_which_fail(plain, failed)
    return part, f"{part}: {said}"


def explaining(plain: Sequence[Result]) -> Iterator[tuple[Fault, ...]]:
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
        would = attend(result.case.inputs(), result.case.causal, faults)
    except ValueError:
        return result.part == "error"
    return result.got is not None and result.part is None and _close(result.got, would, result.case)


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
    if not any(map(_finite, failed)):
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
    nan = not all(map(_finite, failed))
    return (
        "values",
        "it gives NaN or ∞" if nan else "one token alone already goes wrong: it must give v itself",
    )


def _close(got: Array, want: Array, case: Case) -> bool:
    """Equal within the rounding of the case's dtype, NaN where NaN is wanted."""
    within = TOLERANCE[case.dtype]
    return np.allclose(got, want, rtol=within, atol=within, equal_nan=True)


def _finite(result: Result) -> bool:
    return result.got is None or bool(np.isfinite(result.got).all())


def _python(result: Result) -> str:
    """A failing case so that it can be typed in again."""
    case = result.case
    got = result.complaint if result.got is None else _numbers(result.got)
    return "\n".join(
        [
            *(f"{name} = {_numbers(values)}" for name, values in zip("qkv", case.inputs(), strict=True)),
            f"causal = {case.causal}",
            f"# expected\n{_numbers(case.expected())}",
            f"# yours\n{got}",
        ]
    )


def _numbers(values: Array) -> str:
    def said(value: Any) -> str:
        return f"[{', '.join(map(said, value))}]" if isinstance(value, list) else f"{value:.4g}"

    return said(values.tolist())[:MAX_TEXT]


def _by(shape: Sequence[int]) -> str:
    return " × ".join(map(str, shape)) or "a single number"
