"""Processes seen from outside: their memory, their end, and the machine's. Imports no torch."""

import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

TREE_SECONDS = 1.0


MEMORY_SHARE = 0.85  # of the machine: beyond it a run is stopped, so that the machine stays usable


# A training step frees and asks for the same few large blocks. glibc would hand them back to the system
# and fault every page in anew; keeping them makes a step about 1.5 times as fast (NOTES.md).
MALLOC = {
    "MALLOC_MMAP_THRESHOLD_": str(2**31 - 1),
    "MALLOC_TRIM_THRESHOLD_": str(2**40),
    "MALLOC_TOP_PAD_": str(64 * 2**20),
}

# For Popen: a process that outlives the one that starts it, and hears no Ctrl-C of its terminal.
DETACHED: dict[str, Any] = (
    {"creationflags": 0x00000208}  # DETACHED_PROCESS | CREATE_NEW_PROCESS_GROUP
    if sys.platform == "win32"
    else {"start_new_session": True}
)


def kill_tree(pid: int) -> None:
    """Kill a process and all its descendants; one that is gone already is no error."""
    with suppress(psutil.NoSuchProcess):
        parent = psutil.Process(pid)
        for process in [*parent.children(recursive=True), parent]:
            with suppress(psutil.NoSuchProcess):
                process.kill()


def end_marked(name: str, value: str, seconds: float = 1.0) -> bool:
    """Kill every process with this in its environment: an orphan in a session of its own has it too.

    seconds: after which it gives up on processes that start others as fast. Returns whether there was one.
    """
    found, until = False, time.monotonic() + seconds
    while left := list(marked(name, value)):
        found = True
        for process in left:
            with suppress(psutil.Error):
                process.kill()
        if time.monotonic() > until:
            break
        time.sleep(0.01)
    return found


def marked(name: str, value: str) -> Iterator[psutil.Process]:
    """Every living process that was started with this in its environment."""
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            if process.environ().get(name) == value and process.status() != psutil.STATUS_ZOMBIE:
                yield process


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
    for limit in (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes")):
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
