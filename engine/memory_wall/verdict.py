"""How a worker ended, and whether that is the wall. Imports no torch.

The wall is memory that was asked for and not to be had: the budget, Python's and torch's own errors, a limit
on the address space (which arrives as one of these), the guard, the kernel's kill. All else is "failed".
"""

import signal
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

State = Literal["running", "done", "out of memory", "failed", "cancelled"]
ENDED: tuple[State, ...] = ("done", "out of memory", "failed", "cancelled")

# Of torch's RuntimeErrors: on a CPU under Linux and Windows, on Apple, in CUDA and its libraries.
OUT_OF_MEMORY = (
    "can't allocate memory",
    "not enough memory",
    "out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_ALLOC_FAILED",
)


@dataclass(frozen=True)
class End:
    """state: one of ``ENDED``; reason: a sentence, None where all went well."""

    state: State
    reason: str | None = None


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an exception means that memory was not to be had; a bug that only talks of memory is none."""
    if isinstance(error, MemoryError):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error) for words in OUT_OF_MEMORY)


def end_of(told: dict[str, Any] | None, code: int, killed: str | None, kernel_kills: int, last: str) -> End:
    """Judge one that is gone.

    told: its last word, an object with a "state" and perhaps a "reason", if it had one.
    code: of its exit, the signal's number below 0. killed: why its guard killed it, if it did.
    kernel_kills: processes that the kernel killed for want of memory in the meantime, anywhere.
    last: the last line that it wrote to stderr.
    """
    if killed is not None:
        return End("out of memory", killed)
    if told is not None:
        return End(told["state"], told.get("reason"))
    if code == -signal.SIGTERM:
        return End("failed", "The worker was asked to end from outside (SIGTERM).")
    if code < 0:
        name = _signal_name(code)
        if name == "SIGKILL" and kernel_kills > 0:
            return End("out of memory", "The system killed the worker for want of memory (SIGKILL).")
        if name == "SIGKILL":
            return End("failed", "The worker was killed from outside (SIGKILL).")
        return End("failed", f"The worker crashed ({name}).")
    said = f": {last}" if last else ", without a word"
    return End("failed", f"The worker ended with exit code {code}{said.rstrip('.')}.")


def _signal_name(code: int) -> str:
    with suppress(ValueError):
        return signal.Signals(-code).name
    return f"signal {-code}"
