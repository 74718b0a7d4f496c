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
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
from filelock import FileLock, Timeout

from engine.runs import files

POLL_SECONDS = 0.05
HEARTBEAT_SECONDS = 1.0
TREE_SECONDS = 1.0
GRACE_SECONDS = 1.5
MEMORY_SHARE = 0.85  # of the machine: beyond it a run is stopped, so that the machine stays usable

# A training step frees and asks for the same few large blocks. glibc would hand them back to the system
# and fault every page in anew; keeping them makes a step about 1.5 times as fast (NOTES.md).
MALLOC = {
    "MALLOC_MMAP_THRESHOLD_": str(2**31 - 1),
    "MALLOC_TRIM_THRESHOLD_": str(2**40),
    "MALLOC_TOP_PAD_": str(64 * 2**20),
}


def supervise(directory: Path, attempt: int, trainer: list[str], memory_bytes: int | None = None) -> None:
    """Run one attempt to its end and record how it ended in ``exit.N.json``.

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
            ended = _watch(directory, attempt, trainer, memory_bytes or int(machine_bytes() * MEMORY_SHARE))
        except OSError as error:
            ended = {"code": None, "signal": None, "reason": plain_os_error(error)}
        files.write_json(directory / f"exit.{attempt}.json", ended)


def _watch(directory: Path, attempt: int, trainer: list[str], memory_bytes: int) -> dict[str, Any]:
    kills_before = kernel_kills()
    with (directory / "log.txt").open("ab") as log:
        child = subprocess.Popen(
            [*trainer, str(directory), str(attempt)],
            stdin=subprocess.PIPE,  # closes with this process: the trainer then ends itself
            stdout=log,
            stderr=log,
            env={**MALLOC, **os.environ},
        )
    try:
        pid_file = directory / f"pid.{attempt}.json"
        files.write_json(pid_file, {"supervisor": os.getpid(), "trainer": child.pid})
        stopped = _until_it_ends(child, directory, attempt, memory_bytes, pid_file)
    finally:
        kill_tree(child.pid)
        child.wait()
    code = child.returncode
    name = signal.Signals(-code).name if code < 0 else None
    if stopped is None and name == "SIGKILL" and kernel_kills() > kills_before:
        stopped = "out of memory: the system killed it (SIGKILL)"
    return {
        "code": code if code >= 0 else None,
        "signal": name,
        "reason": stopped or _exit_reason(code, name),
    }


def _until_it_ends(
    child: subprocess.Popen[bytes], directory: Path, attempt: int, memory_bytes: int, pid_file: Path
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


def kill_tree(pid: int) -> None:
    """Kill a process and all its descendants; one that is gone already is no error."""
    with suppress(psutil.NoSuchProcess):
        parent = psutil.Process(pid)
        for process in [*parent.children(recursive=True), parent]:
            with suppress(psutil.NoSuchProcess):
                process.kill()


class TreeMemory:
    """Resident memory of a process and its descendants, cheap enough to be asked 20 times a second.

    Finding descendants means looking at every process of the machine, so that is done once a second.
    """

    def __init__(self, pid: int) -> None:
        self._root = psutil.Process(pid)
        self._tree = [self._root]
        self._looked = time.monotonic()

    def bytes(self) -> int:
        """Now, in bytes; 0 when all are gone."""
        if time.monotonic() - self._looked > TREE_SECONDS:
            self._looked = time.monotonic()
            with suppress(psutil.Error):
                self._tree = [self._root, *self._root.children(recursive=True)]
        total = 0
        for process in self._tree:
            with suppress(psutil.Error):
                total += process.memory_info().rss
        return total


def machine_bytes() -> int:
    """Memory of this machine, or of the container it runs in, in bytes."""
    total = int(psutil.virtual_memory().total)
    for limit in (
        Path("/sys/fs/cgroup/memory.max"),
        Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
    ):
        with suppress(OSError, ValueError):
            total = min(total, int(limit.read_text()))
    return total


def kernel_kills() -> int:
    """Processes that the kernel killed for want of memory so far; 0 where it does not say.

    On the machine since it booted, and in this container: a kill raises at least one of the two.
    """
    total = 0
    for path in (Path("/proc/vmstat"), Path("/sys/fs/cgroup/memory.events")):
        with suppress(OSError, ValueError):
            words = [line.split() for line in path.read_text().splitlines()]
            total += sum(int(word[1]) for word in words if word[0] == "oom_kill")
    return total


def gigabytes(count: int) -> str:
    """A number of bytes as text, in units of 10^9."""
    return f"{count / 1e9:.1f} GB"


def plain_os_error(error: OSError) -> str:
    """One clear line for an error of the file system."""
    what = "disk full" if error.errno in (28, 122) else "file error"
    where = f" ({Path(os.fsdecode(error.filename)).name})" if error.filename else ""
    return f"{what}: {error.strerror or error}{where}"


def main(arguments: list[str]) -> None:
    """The command line of a supervisor: folder, attempt, memory cap, the trainer's command as JSON."""
    directory, attempt, memory, trainer = arguments
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the lab's business: it asks through cancel.N
    supervise(Path(directory), int(attempt), json.loads(trainer), int(memory) or None)


if __name__ == "__main__":
    main(sys.argv[1:])
