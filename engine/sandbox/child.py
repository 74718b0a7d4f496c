"""Runs a reader's ``attention(q, k, v, causal)`` on the inputs that it is given, in a process of its own.

``process.py`` starts it and ends it. It judges nothing: outputs go back as numbers, to be compared where the
code cannot reach. It answers with lines of JSON: one when torch is loaded, one when the code's first lines
have run, one for each case, one at the end.
"""

import builtins
import ctypes
import faulthandler
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from engine.sandbox import MEMORY_BYTES

NAME = "your code"
MAX_TEXT = 300  # characters of a message of the reader's own
FILE_BYTES = 10_000_000  # of a file that it writes
LIFE_SECONDS = 30  # of the processor; of the clock from when torch is loaded. The app ends it far sooner
PR_SET_PDEATHSIG = 1  # of Linux's prctl
OTHER_PROCESSES = (
    "os.exec", "os.fork", "os.kill", "os.posix_spawn", "os.spawn", "os.startfile", "os.system", "pty.spawn",
    "signal.pthread_kill", "subprocess.Popen",
)  # fmt: skip


class Unfit(TypeError):
    """There is no function, or what it returns is no output; the message is a whole sentence."""


ENDS_THE_LADDER = (RecursionError, Unfit)  # every other case would fail in the same way


def answers(code: str, cases: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """What the first lines came to, then each case, until one fails in a way in which all would.

    cases: each with inputs (q, k and v as nested lists), dtype and causal.
    Yields dictionaries: with ``error``, a sentence, or with what is known of the output.
    """
    try:
        attention = _defined(code)
    except BaseException as error:
        yield {"error": told(error)}
        return
    yield {}
    for case in cases:
        dtype = getattr(torch, case["dtype"])
        given = [torch.tensor(values, dtype=torch.float64).to(dtype) for values in case["inputs"]]
        try:
            answer = _described(attention(*given, case["causal"]), given)
        except BaseException as error:
            yield {"error": told(error), "unfit": isinstance(error, Unfit)}
            if not isinstance(error, Exception) or isinstance(error, ENDS_THE_LADDER) or _no_memory(error):
                return
        else:
            yield answer


def _defined(code: str) -> Callable[..., Any]:
    """The function that the code defines.

    Raises Unfit: when it defines none; whatever its first lines raise.
    """
    space: dict[str, Any] = {"__name__": "your_code", "__builtins__": builtins}
    exec(compile(code, NAME, "exec"), space)
    if not callable(attention := space.get("attention")):
        raise Unfit("It defines no function `attention(q, k, v, causal)`.")
    return attention  # type: ignore[no-any-return]


def _described(output: Any, given: Sequence[Tensor]) -> dict[str, Any]:
    """An output's dtype, shape and, where that is right, its numbers; and what q, k and v have become."""
    if output is None:
        raise Unfit("It returns None; is there a return?")
    if not isinstance(output, Tensor):
        name = _cut(type(output).__name__)
        hint = "the output alone, without the weights" if isinstance(output, tuple) else "one tensor"
        raise Unfit(f"It returns {'an' if name[0] in 'aeiou' else 'a'} {name}; it must return {hint}.")
    output = output.detach().as_subclass(Tensor)
    if output.layout != torch.strided or output.device.type != "cpu":
        raise Unfit(f"It returns a tensor of another kind ({output.layout}, on {output.device}).")
    comparable = output.shape == given[2].shape
    return {
        "dtype": str(output.dtype).removeprefix("torch."),
        "shape": list(output.shape),
        "numbers": output.double().tolist() if comparable else None,
        "given": [tensor.double().tolist() for tensor in given],
    }


def told(error: BaseException) -> str:
    """An exception in one sentence, whatever its class does."""
    try:
        if isinstance(error, Unfit):
            return str(error)
        if _no_memory(error):
            error.__traceback__ = None  # and with it every frame that holds the memory
            return f"It asks for more memory than the {MEMORY_BYTES / 1e9:.1f} GB that it may have."
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


def _no_memory(error: BaseException) -> bool:
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and "allocate memory" in str(error)
    )


def _cut(text: str) -> str:
    first = " ".join(str(text).split())
    return first if len(first) <= MAX_TEXT else f"{first[:MAX_TEXT]}…"


def _refuse(event: str, _arguments: object) -> None:
    """An audit hook, never to be removed again: no process but this one."""
    if event.startswith(OTHER_PROCESSES):
        raise PermissionError(f"No process but this one: {event}.")


def _limit() -> None:
    """What the system itself can hold it to; the app's polling does the rest.

    No limit of processes: it would count all of a user's, and threads, and bind no administrator.
    """
    faulthandler.dump_traceback_later(LIFE_SECONDS, exit=True)  # by a thread in C, whatever Python is doing
    with suppress(ImportError, OSError, ValueError):  # Windows has no such limits
        import resource

        limits = {
            resource.RLIMIT_CORE: 0,
            resource.RLIMIT_CPU: LIFE_SECONDS,
            resource.RLIMIT_FSIZE: FILE_BYTES,
        }
        if sys.platform == "linux":
            pages = int(Path("/proc/self/statm").read_text("ascii").split()[0])
            limits[resource.RLIMIT_AS] = pages * resource.getpagesize() + MEMORY_BYTES
        for what, most in limits.items():
            resource.setrlimit(what, (most, most))


def main(parent: int) -> None:
    """Read the request in the working folder, answer it, leave. parent: the id of the app's process."""
    if sys.platform == "linux":  # elsewhere the clock that ``_limit`` starts ends it soon after the app
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            return
    channel = os.dup(1)
    os.dup2(2, 1)  # what it prints goes where its errors go
    write, leave, dumps = os.write, os._exit, json.dumps

    def say(answer: dict[str, Any]) -> None:
        write(channel, dumps(answer).encode() + b"\n")

    torch.set_num_threads(1)
    torch.ones(1, 2, 2).softmax(-1) @ torch.ones(1, 2, 2)  # what torch loads on first use
    request = json.loads(Path("request.json").read_text("utf-8"))
    _limit()
    say({})
    sys.addaudithook(_refuse)
    try:
        for answer in answers(request["code"], request["cases"]):
            say(answer)
        say({"end": True})
    except OSError:  # the code closed the channel
        leave(1)
    leave(0)


if __name__ == "__main__":
    main(int(sys.argv[1]))
