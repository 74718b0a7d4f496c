"""Runs on this machine: detached supervisors, one a slot."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from filelock import FileLock, Timeout

from engine.runs.store import Entry
from engine.system import paths
from engine.system.cores import default_slots, usable_cores

ADOPTION_SECONDS = 10.0
UNLIMITED = 2**62  # bytes
TRAINER = (sys.executable, "-m", "engine.runs.trainer")


class Engine(Protocol):
    """Where runs are carried out. The folder of a run is the whole protocol; see ``files.py``."""

    def capacity(self) -> int:
        """How many runs may be active at once."""

    def launch(self, run: Entry, directory: Path, slot: int) -> None:
        """Start the run's attempt. Raises OSError: when no process can be made."""

    def alive(self, run: Entry, directory: Path) -> bool:
        """Whether the run's attempt is still being carried out."""


class LocalEngine:
    """Detached supervisors on this machine: they outlive the dispatcher, and the next one adopts them.

    slots: how many runs at once; by default ``default_slots()``.
    trainer: the trainer's command; its folder and attempt are appended.
    memory_bytes: what one run may use; by default a share of the machine.
    """

    def __init__(
        self, slots: int | None = None, trainer: Sequence[str] = TRAINER, memory_bytes: int | None = None
    ) -> None:
        self._slots = slots or default_slots()
        self._trainer = list(trainer)
        self._memory_bytes = memory_bytes or 0
        self._started: dict[tuple[int, int], subprocess.Popen[bytes]] = {}
        self._first_seen: dict[tuple[int, int], float] = {}

    def capacity(self) -> int:
        """As given."""
        return self._slots

    def launch(self, run: Entry, directory: Path, slot: int) -> None:  # noqa: ARG002 - slots are alike here
        command = [sys.executable, "-m", "engine.runs.supervise", str(directory), str(run.attempt)]
        # What is carried out alone has all cores, and watches its memory itself: more is its result.
        sharing, memory_bytes = (1, UNLIMITED) if run.spec.exclusive else (self._slots, self._memory_bytes)
        threads = str(max(1, usable_cores() // sharing))
        detached: dict[str, object] = (
            {"creationflags": 0x00000208}  # DETACHED_PROCESS | CREATE_NEW_PROCESS_GROUP
            if sys.platform == "win32"
            else {"start_new_session": True}
        )
        self._started[run.id, run.attempt] = subprocess.Popen(
            [*command, str(memory_bytes), json.dumps(self._trainer)],
            cwd=paths.ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "OMP_NUM_THREADS": threads, "ATTENTION_LAB_HOME": str(paths.HOME)},
            **detached,  # type: ignore[call-overload]
        )

    def alive(self, run: Entry, directory: Path) -> bool:
        key = (run.id, run.attempt)
        supervisor = self._started.get(key)
        if supervisor is not None:
            if supervisor.poll() is None:
                return True
            del self._started[key]  # reaped; what it left in the folder tells the rest
            return False
        if (directory / f"exit.{run.attempt}.json").exists():
            return False
        if not (directory / f"claim.{run.attempt}").exists():
            # Another dispatcher launched it a moment ago, or died before it could.
            first = self._first_seen.setdefault(key, time.monotonic())
            return time.monotonic() - first < ADOPTION_SECONDS
        return _locked(directory / "alive.lock")


def _locked(path: Path) -> bool:
    if not path.exists():
        return False
    try:
        with FileLock(path, timeout=0):
            return False
    except Timeout:
        return True
    except OSError:
        return False
