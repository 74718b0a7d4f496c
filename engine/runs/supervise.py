"""One attempt of one run, watched from outside: ``python -m engine.runs.supervise``.

The supervisor is small (no torch), starts the trainer as its own process, and alone decides how that
process ended. Whatever the trainer does, exhausts or is killed by, nothing else falls with it.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from filelock import FileLock, Timeout

from engine.system import files
from engine.system.files import plain_os_error
from engine.system.processes import (
    MALLOC,
    MEMORY_SHARE,
    TreeMemory,
    gigabytes,
    kernel_kills,
    kill_tree,
    machine_bytes,
)

POLL_SECONDS = 0.05
HEARTBEAT_SECONDS = 1.0
GRACE_SECONDS = 1.5


class Process(Protocol):
    """A child of this process, as ``Popen`` has it."""

    pid: int

    def poll(self) -> int | None:
        """The exit code, or minus the signal's number; None while it runs."""

    def wait(self) -> int:
        """As ``poll``, when it has ended."""


Start = Callable[[Path, int], Process]


def plainly(trainer: Sequence[str]) -> Start:
    """A way to start trainers: a new process of this command, with the folder and the attempt appended."""

    def start(directory: Path, attempt: int) -> Process:
        with (directory / "log.txt").open("ab") as log:
            return subprocess.Popen(
                [*trainer, str(directory), str(attempt)],
                stdin=subprocess.PIPE,  # closes with this process: the trainer then ends itself
                stdout=log,
                stderr=log,
                env={**MALLOC, **os.environ},
            )

    return start


def supervise(directory: Path, attempt: int, start: Start, memory_bytes: int = 0) -> None:
    """Run one attempt to its end and record how it ended in ``exit.N.json``.

    start: starts its trainer. memory_bytes: what that may use; 0 is a share of the machine.
    Does nothing when another process has claimed the attempt, or still supervises this run.
    """
    directory.mkdir(parents=True, exist_ok=True)
    lock = FileLock(directory / "alive.lock", timeout=5)
    try:
        lock.acquire()
    except Timeout:
        return
    with lock:
        try:
            os.close(os.open(directory / f"claim.{attempt}", os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        except FileExistsError:
            return
        ended: dict[str, Any]
        try:
            with suppress(OSError):
                (directory / "reserve").write_bytes(b"\0" * files.RESERVE_BYTES)
            ended = _watch(directory, attempt, start, memory_bytes or int(machine_bytes() * MEMORY_SHARE))
        except OSError as error:
            ended = {"code": None, "signal": None, "reason": plain_os_error(error)}
        files.write_json(directory / f"exit.{attempt}.json", ended)


def _watch(directory: Path, attempt: int, start: Start, memory_bytes: int) -> dict[str, Any]:
    kills_before = kernel_kills()
    child = start(directory, attempt)
    try:
        pid_file = directory / f"pid.{attempt}.json"
        files.write_json(pid_file, {"supervisor": os.getpid(), "trainer": child.pid})
        stopped = _until_it_ends(child, directory, attempt, memory_bytes, pid_file)
    finally:
        kill_tree(child.pid)
        code = child.wait()
    name = signal.Signals(-code).name if code < 0 else None
    if stopped is None and name == "SIGKILL" and kernel_kills() > kills_before:
        stopped = "out of memory: the system killed it (SIGKILL)"
    return {
        "code": code if code >= 0 else None,
        "signal": name,
        "reason": stopped or _exit_reason(code, name),
    }


def _until_it_ends(
    child: Process, directory: Path, attempt: int, memory_bytes: int, pid_file: Path
) -> str | None:
    """Watch the child. Returns why it had to be killed, or None when it ended by itself."""
    asked: float | None = None
    beat = time.monotonic()
    memory = TreeMemory(child.pid)
    while child.poll() is None:
        now = time.monotonic()
        if asked is None and files.stop_requested(directory, attempt):
            asked = now
        if asked is not None and now - asked > GRACE_SECONDS:
            return "stopped: it did not answer the request to end"
        used = memory.bytes()
        if used > memory_bytes:
            return f"out of memory: {gigabytes(used)} used, {gigabytes(memory_bytes)} allowed"
        if (directory / f"claim.{attempt + 1}").exists():
            return "superseded by a newer attempt"
        if now - beat > HEARTBEAT_SECONDS:
            beat = now
            with suppress(OSError):
                os.utime(pid_file)
        time.sleep(POLL_SECONDS)
    return None


def _exit_reason(code: int, name: str | None) -> str:
    if name == "SIGSEGV":
        return "the trainer crashed: segmentation fault (SIGSEGV)"
    if name == "SIGKILL":
        return "the trainer was killed from outside (SIGKILL)"
    if name is not None:
        return f"the trainer was ended by {name}"
    if code == 4:
        return "an earlier attempt of this run still writes; wait a moment, then resume"
    return "" if code == 0 else f"the trainer exited with code {code}"


def main(arguments: list[str]) -> None:
    """The command line of a supervisor: folder, attempt, memory cap, the trainer's command as JSON."""
    directory, attempt, memory, trainer = arguments
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the lab's business: it asks through cancel.N
    supervise(Path(directory), int(attempt), plainly(json.loads(trainer)), int(memory))


if __name__ == "__main__":
    main(sys.argv[1:])
