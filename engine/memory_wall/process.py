"""A worker seen from outside: loading, watched while it works, ended at any moment. Imports no torch."""

import json
import os
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from engine.memory_wall.setting import WORKSPACE_CONFIG
from engine.memory_wall.verdict import End, end_of
from engine.system import paths
from engine.system.processes import (
    MALLOC,
    MEMORY_SHARE,
    TreeMemory,
    gigabytes,
    kernel_kills,
    kill_tree,
    machine_bytes,
)

POLL_SECONDS = 0.02
ENVIRONMENT = {"CUBLAS_WORKSPACE_CONFIG": WORKSPACE_CONFIG, "TORCH_CUBLASLT_UNIFIED_WORKSPACE": "1"}

Stop = Callable[[], bool]


class Worker:
    """A process that prints lines of JSON: ``worker.py``, or ``predict.py``.

    folder: where its output goes. It has an open stdin and ends when that closes.
    """

    def __init__(self, command: Sequence[str], folder: Path, name: str) -> None:
        self._out, self._err = folder / f"{name}.out", folder / f"{name}.err"
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self._process = subprocess.Popen(
                list(command),
                cwd=paths.ROOT,
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=err,
                # Fetching fresh memory is part of what is timed: not what makes a trainer keep its pages.
                env={**{k: v for k, v in os.environ.items() if k not in MALLOC}, **ENVIRONMENT},
            )
        self._read = 0
        self._lines: list[dict[str, Any]] = []

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    @property
    def loaded(self) -> bool:
        """Whether there is no more to wait for: it is ready, or gone."""
        return not self.alive or self.said("ready") is not None

    def lines(self) -> list[dict[str, Any]]:
        """All whole lines so far."""
        with self._out.open("rb") as out:
            out.seek(self._read)
            text = out.read()
        whole = text[: text.rfind(b"\n") + 1]
        self._read += len(whole)
        for line in whole.splitlines():
            with suppress(ValueError):
                value = json.loads(line)
                if isinstance(value, dict):
                    self._lines.append(value)
        return self._lines

    def said(self, event: str) -> dict[str, Any] | None:
        """The last line of that kind."""
        return next((line for line in reversed(self.lines()) if line.get("event") == event), None)

    def last_words(self) -> str:
        """The last line that it wrote to stderr."""
        written = self._err.read_text("utf-8", "replace").strip().splitlines()
        return written[-1] if written else ""

    def work(self, limits: dict[str, Any], stop: Stop, guard: "Guard") -> End:
        """Let it measure, to its end. ``cancelled`` when ``stop()`` says so; killed when the guard does."""
        killed: str | None = None
        kills_before = guard.kernel_kills()
        with suppress(OSError):  # it is gone already; its exit code says more
            assert self._process.stdin
            self._process.stdin.write(json.dumps(limits).encode() + b"\n")
            self._process.stdin.flush()
        memory = TreeMemory(self._process.pid) if self.alive else None
        while self.alive and killed is None:
            if stop():
                self.end()
                return End("cancelled", "It was cancelled.")
            killed = guard.objection(memory.bytes() if memory else 0)
            if killed is None:
                time.sleep(POLL_SECONDS)
        self.end()
        kills = guard.kernel_kills() - kills_before
        return end_of(self.said("end"), self._process.returncode, killed, kills, self.last_words())

    def end(self) -> None:
        """Kill it and all that it started, if it still lives."""
        if self.alive:
            kill_tree(self._process.pid)
        self._process.wait()
        if self._process.stdin:
            with suppress(OSError):
                self._process.stdin.close()


class Guard:
    """Watches from outside what a worker's own counter cannot see, and keeps the machine usable.

    resident_bytes: more than this in a worker is out of memory. kernel_kills: as ``supervise.kernel_kills``.
    """

    def __init__(
        self,
        resident_bytes: int | None = None,
        free_bytes: Callable[[], int] | None = None,
        kernel_kills: Callable[[], int] = kernel_kills,
    ) -> None:
        whole = machine_bytes()
        self.kept_bytes = int(whole * (1 - MEMORY_SHARE))
        self.resident_bytes = min(resident_bytes or whole, whole - self.kept_bytes)
        self.free_bytes = free_bytes or machine_free_bytes
        self.kernel_kills = kernel_kills

    def room_bytes(self) -> int:
        """What a worker may take at this moment without touching what is kept free."""
        return max(0, self.free_bytes() - self.kept_bytes)

    def objection(self, used_bytes: int) -> str | None:
        """Why a worker with so much resident memory must go, or None."""
        if used_bytes > self.resident_bytes:
            allowed = gigabytes(self.resident_bytes)
            return f"The process took {gigabytes(used_bytes)} of memory, {allowed} allowed."
        if self.free_bytes() < self.kept_bytes:
            return f"Less than {gigabytes(self.kept_bytes)} of this machine's memory were left."
        return None


def machine_free_bytes() -> int:
    """Memory that this machine, or the container it runs in, can still give, in bytes."""
    free = int(psutil.virtual_memory().available)
    group = Path("/sys/fs/cgroup")
    with suppress(OSError, ValueError):
        limit = int((group / "memory.max").read_text())
        used = int((group / "memory.current").read_text())
        lines = (group / "memory.stat").read_text().splitlines()
        pages = next((line for line in lines if line.startswith("inactive_file ")), "inactive_file 0")
        free = min(free, limit - used + int(pages.split()[1]))  # file pages are given back when asked for
    return free


def wait_for(workers: Sequence[Worker], stop: Stop) -> None:
    """Until all are ready or gone; ends early when ``stop()`` says so."""
    while not stop() and not all(worker.loaded for worker in workers):
        time.sleep(POLL_SECONDS)
