"""One process a data folder that turns queued runs into running ones: ``python -m engine.runs.dispatcher``.

It owns no run: supervisors outlive it, and the next dispatcher adopts them from the ledger. It is the
only writer of states that follow from what a run's folder says.
"""

import signal
import sqlite3
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from engine.runs.local import Engine, LocalEngine
from engine.runs.store import ACTIVE, Entry, State, Store
from engine.system import files, paths
from engine.system.files import plain_os_error

TICK_SECONDS = 0.1
# What only keeps trainers ready waits so long: two cores have the lab's first page to draw.
SETTLE_SECONDS = 6.0
LOCK_NAME = "dispatcher.lock"


class AlreadyRunning(RuntimeError):
    """Another dispatcher serves this data folder."""


class Dispatcher:
    """Holds the folder's lock while it is open (use it in a ``with``) and does its work in ``tick``.

    Raises AlreadyRunning: on entering, when another process holds the lock.
    """

    def __init__(self, store: Store, engine: Engine, settle_seconds: float = 0.0) -> None:
        """settle_seconds: how long the engine keeps nothing ready while no run waits."""
        self.store, self.engine = store, engine
        self._complaint = ""  # said already
        self._settled = time.monotonic() + settle_seconds
        self._lock = FileLock(store.root / LOCK_NAME, timeout=0.1)  # ``running`` holds it for a moment

    def __enter__(self) -> "Dispatcher":
        try:
            self._lock.acquire()
        except Timeout:
            raise AlreadyRunning(
                f"another dispatcher already serves {self.store.root}; one is enough, and this one ends."
            ) from None
        return self

    def __exit__(self, *_: object) -> None:
        self.engine.close()
        self._lock.release()

    def tick(self) -> None:
        """Record what happened, then start what may start.

        A full disk or a busy ledger passes: what could not be done now is tried at the next tick, and
        the runs go on meanwhile.
        """
        try:
            self._record_and_start()
        except (sqlite3.OperationalError, OSError) as error:
            if str(error) != self._complaint:
                self._complaint = str(error)
                print(f"dispatcher: {error}", file=sys.stderr, flush=True)

    def _record_and_start(self) -> None:
        active = []
        for run in self.store.entries(states=ACTIVE):
            if self._still_active(run):
                active.append(run)
        queued = self.store.entries(states=("queued",))
        if not queued and time.monotonic() < self._settled:
            return
        capacity = self.engine.capacity()  # asked at every tick: a nursery warms up before there is a run
        queued = queued if capacity else []
        served = self.store.last_started() if queued else {}
        # Nothing starts beside an exclusive run, which itself waits for no slot: those under way may last
        # for hours.
        while queued and not any(run.spec.exclusive for run in active):
            busy = Counter(run.user for run in active)
            # Of two with as many runs, who waited longer goes first.
            run = min(queued, key=lambda run: (busy[run.user], served.get(run.user, 0.0), run.id))
            if len(active) >= capacity and not run.spec.exclusive:
                return
            queued.remove(run)
            slot = min(set(range(len(active) + 1)) - {run.slot for run in active})
            if self._start(run, slot):
                active.append(replace(run, slot=slot))
                served[run.user] = time.time()

    def stop_runs(self, timeout: float = 4.0) -> None:
        """Ask every active run to save and end, and record that they did."""
        for run in self.store.entries(states=ACTIVE):
            files.request_stop(self.store.directory(run.id), run.attempt, "stop")
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            if not [run for run in self.store.entries(states=ACTIVE) if self._still_active(run)]:
                return
            time.sleep(0.05)

    def _still_active(self, run: Entry) -> bool:
        directory = self.store.directory(run.id)
        if self.engine.alive(run, directory):
            if run.state == "starting" and (directory / f"pid.{run.attempt}.json").exists():
                self.store.advance(run.id, "starting", "running")
            return True
        state, changes = verdict(directory, run.attempt)
        self.store.advance(run.id, run.state, state, ended=time.time(), **changes)
        return False

    def _start(self, run: Entry, slot: int) -> bool:
        started = {"slot": slot, "started": time.time()}
        if not self.store.advance(run.id, "queued", "starting", **started):
            return False  # cancelled between reading and writing
        directory = self.store.directory(run.id)
        try:
            directory.mkdir(parents=True, exist_ok=True)
            files.write_bytes(directory / "spec.json", run.spec.to_json().encode())
            self.engine.launch(run, directory, slot)
        except OSError as error:
            reason = plain_os_error(error)
            self.store.advance(run.id, "starting", "failed", reason=reason, ended=time.time())
            return False
        return True


def verdict(directory: Path, attempt: int) -> tuple[State, dict[str, Any]]:
    """How an attempt whose processes are gone ended: the state, and the columns that go with it."""
    outcome = files.read_json(directory / "outcome.json") or {}
    if outcome.get("attempt") != attempt:
        outcome = {}
    ended = files.read_json(directory / f"exit.{attempt}.json")
    last = files.last_record(directory)
    changes: dict[str, Any] = {"seconds": outcome.get("seconds", last.get("seconds"))}
    if environment := files.read_json(directory / "environment.json"):
        changes["environment"] = environment
    if outcome.get("state"):  # the trainer's last word; that its process was slow to leave is no matter
        changes |= {"reason": outcome.get("reason", ""), "measured": outcome.get("measured", {})}
        return outcome["state"], changes
    if files.stop_requested(directory, attempt) == "cancel":
        at = f", at step {last['step']:,}" if last else ""
        return "cancelled", {**changes, "reason": f"by you{at}"}
    if ended is None:
        return "interrupted", {**changes, "reason": "its supervisor was killed"}
    if files.stop_requested(directory, attempt) == "stop":
        return "interrupted", {**changes, "reason": "the lab was closed"}
    return "failed", {**changes, "reason": ended["reason"] or "the trainer ended without a word"}


def running(root: Path | None = None) -> bool:
    """Whether a dispatcher serves this data folder, now.

    Its lock tells: a pid is given again, and the time a process was made moves with the machine's clock.
    """
    return files.is_locked((root or paths.RUNS) / LOCK_NAME)


def main() -> int:
    """Serve until asked to end (Ctrl-C, SIGTERM); then runs are asked to save and end first."""
    asked = False

    def ask(*_: object) -> None:
        nonlocal asked
        asked = True

    signal.signal(signal.SIGINT, ask)
    signal.signal(signal.SIGTERM, ask)
    try:
        with Dispatcher(Store(), LocalEngine(), SETTLE_SECONDS) as dispatcher:
            while not asked:
                dispatcher.tick()
                time.sleep(TICK_SECONDS)
            dispatcher.stop_runs()
    except AlreadyRunning as error:
        print(error, file=sys.stderr)
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
