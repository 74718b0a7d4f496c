"""Runs on this machine: detached supervisors, one a slot."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from engine.runs.nursery import TRAINER, Nursery, Supervisor
from engine.runs.store import Entry
from engine.system import files, paths
from engine.system.cores import default_slots, usable_cores
from engine.system.processes import DETACHED

ADOPTION_SECONDS = 10.0
UNLIMITED = 2**62  # bytes


class Engine(Protocol):
    """Where runs are carried out. The folder of a run is the whole protocol; see ``files.py``."""

    def capacity(self) -> int:
        """How many runs may be active at once."""

    def launch(self, run: Entry, directory: Path, slot: int) -> None:
        """Start the run's attempt. Raises OSError: when no process can be made."""

    def alive(self, run: Entry, directory: Path) -> bool:
        """Whether the run's attempt is still being carried out."""

    def close(self) -> None:
        """Let go of what was kept ready; the runs go on."""


class LocalEngine:
    """Detached supervisors on this machine: they outlive the dispatcher, and the next one adopts them.

    slots: how many runs at once; by default ``default_slots()``.
    trainer: the trainer's command; its folder and attempt are appended.
    memory_bytes: what one run may use; by default a share of the machine.
    nursery: where trainers are warm; by default one for the trainer that ships.
    """

    def __init__(
        self,
        slots: int | None = None,
        trainer: Sequence[str] = TRAINER,
        memory_bytes: int | None = None,
        nursery: Nursery | None = None,
    ) -> None:
        self._slots = slots or default_slots()
        self._trainer = list(trainer)
        self._memory_bytes = memory_bytes or 0
        self._nursery = nursery or (Nursery() if self._trainer == list(TRAINER) else None)
        self._started: dict[tuple[int, int], subprocess.Popen[bytes] | Supervisor] = {}
        self._first_seen: dict[tuple[int, int], float] = {}

    def capacity(self) -> int:
        """As given; none while the first nursery warms up."""
        return 0 if self._nursery and self._nursery.warms_up(self._environment()) else self._slots

    def launch(self, run: Entry, directory: Path, slot: int) -> None:  # noqa: ARG002 - slots are alike here
        environment, memory_bytes, supervisor = self._environment(), self._memory_bytes, None
        if run.spec.exclusive:  # it has all cores, and watches its memory itself: more is its result
            environment, memory_bytes = self._environment(sharing=1), UNLIMITED
        elif self._nursery:
            supervisor = self._nursery.launch(environment, directory, run.attempt, memory_bytes)
        command = [sys.executable, "-m", "engine.runs.supervise", str(directory), str(run.attempt)]
        self._started[run.id, run.attempt] = supervisor or subprocess.Popen(
            [*command, str(memory_bytes), json.dumps(self._trainer)],
            cwd=paths.ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=environment,
            **DETACHED,
        )

    def alive(self, run: Entry, directory: Path) -> bool:
        key = (run.id, run.attempt)
        supervisor = self._started.get(key)
        if supervisor is not None and supervisor.poll() is None:
            return True
        self._started.pop(key, None)  # reaped; what it left in the folder tells the rest
        if (directory / f"exit.{run.attempt}.json").exists():
            return False
        if not (directory / f"claim.{run.attempt}").exists():
            if supervisor is not None:
                return False
            # Another dispatcher launched it a moment ago, or died before it could.
            first = self._first_seen.setdefault(key, time.monotonic())
            return time.monotonic() - first < ADOPTION_SECONDS
        return files.is_locked(directory / "alive.lock")

    def close(self) -> None:
        if self._nursery:
            self._nursery.close()

    def _environment(self, sharing: int = 0) -> dict[str, str]:
        """Of a run's processes. sharing: how many runs share the cores; by default one a slot."""
        threads = str(max(1, usable_cores() // (sharing or self._slots)))
        return {**os.environ, "OMP_NUM_THREADS": threads, "ATTENTION_LAB_HOME": str(paths.HOME)}
