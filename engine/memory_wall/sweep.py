"""Rows of the n x n wall as they come: each n of each implementation in its own process. Imports no torch.

``python -m engine.memory_wall.sweep --json PLAN`` prints each row as a line of JSON, for whoever reads
along; it ends when its stdin closes, and with ``--stop FILE`` also once that file exists.
"""

import argparse
import json
import os
import sqlite3
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from filelock import FileLock, Timeout

from engine.memory_wall.ask import Task, predict_command
from engine.memory_wall.plan import Plan, Row
from engine.memory_wall.process import POLL_SECONDS, Guard, Stop, Worker, loading
from engine.memory_wall.setting import WORKSPACE_BYTES, Setting, closed_form
from engine.runs.local import device_lock_path
from engine.runs.store import ACTIVE, open_store
from engine.system import paths
from engine.system.cores import usable_cores

MODULE = "engine.memory_wall"
LOADED_AT_ONCE = 4  # workers that load together, as far as there are cores, before any of them measures
SURE_SHARE = 0.9  # a layer predicted to need less than this of what is allowed needs no leave beforehand
GUARD_BYTES = 2**30  # above a budget: torch itself, and what kernels take while they run
CANCELLED = "It was cancelled."

Predictor = Callable[[Setting, Sequence[Task], str], list[str]]


def never() -> bool:
    """For whoever does not want to cancel."""
    return False


def measure(
    plan: Plan,
    stop: Stop = never,
    *,
    guard: Guard | None = None,
    worker: Sequence[str] = (sys.executable, "-m", f"{MODULE}.worker"),
    predictor: Predictor = predict_command,
) -> Iterator[Row]:
    """Measure, smallest n first. Each row comes as "running", then as it ended.

    A row "waiting" comes first where another has the device. An implementation that is out of memory is not
    measured at a larger n. ``stop()`` is asked 50 times a second; once it says so, all processes are ended
    and a row "cancelled" is the last. Closing the generator ends them too.

    guard, worker, predictor: a test hands in its own.
    Raises RuntimeError: when the bytes cannot be predicted, that is, torch does not work here.
    """
    tasks = [(n, name) for n in sorted(set(plan.tokens)) for name in dict.fromkeys(plan.implementations)]
    if not tasks:
        return
    first = Row(n=tasks[0][0], implementation=tasks[0][1], state="waiting")
    paths.DATA.mkdir(parents=True, exist_ok=True)
    # It waits a moment: a dispatcher that looks whether someone has the device takes it for as long.
    lock = FileLock(device_lock_path(), timeout=POLL_SECONDS, thread_local=False)
    try:
        if not _taken(lock):
            yield replace(first, reason="Another measurement has the device.")
            while not _taken(lock):
                if stop():
                    yield replace(first, state="cancelled", reason=CANCELLED)
                    return
        with TemporaryDirectory(prefix="memory-wall-") as folder:
            yield from _Sweep(plan, stop, guard or _guard(plan), worker, predictor, Path(folder)).rows(tasks)
    finally:
        lock.release()


def runs_under_way() -> int:
    """Trainings that have a place on this machine, or are about to."""
    with suppress(sqlite3.Error, OSError):
        return len(open_store().runs(states=ACTIVE))
    return 0


def _taken(lock: FileLock) -> bool:
    with suppress(Timeout):
        lock.acquire()
    return lock.is_locked


def _guard(plan: Plan) -> Guard:
    """On a CPU a budget holds from outside too, with room for what is no tensor."""
    if plan.device == "cuda" or plan.budget_bytes is None:
        return Guard()
    return Guard(plan.budget_bytes + plan.budget_bytes // 4 + GUARD_BYTES)


class _Sweep:
    def __init__(
        self, plan: Plan, stop: Stop, guard: Guard, worker: Sequence[str], predictor: Predictor, folder: Path
    ) -> None:
        self._plan, self._stop, self._guard, self._folder = plan, stop, guard, folder
        self._command, self._predictor = worker, predictor
        self._workers: dict[Task, Worker] = {}
        self._predicted: dict[Task, int] = {}

    def rows(self, tasks: Sequence[Task]) -> Iterator[Row]:
        beyond = set[str]()
        plan = self._plan
        predictor = Worker(self._predictor(plan.setting, tasks, plan.device), self._folder, "predict")
        try:
            for index, task in enumerate(tasks):
                n, name = task
                if name in beyond:
                    continue
                row = Row(n=n, implementation=name, state="running")
                if task not in self._workers:
                    self._load([one for one in tasks[index:] if one[1] not in beyond])
                for _ in loading([predictor, *self._workers.values()], self._stop):
                    pass
                if self._stop():
                    yield replace(row, state="cancelled", reason=CANCELLED)
                    return
                self._learn(predictor, len(tasks))
                row = replace(
                    row, predicted_bytes=self._predicted[task], closed_form_bytes=self._closed(task)
                )
                yield row
                row = self._measured(task, row)
                yield row
                if row.state == "cancelled":
                    return
                if row.state == "out of memory":
                    beyond.add(name)
        finally:
            for worker in [predictor, *self._workers.values()]:
                worker.end()

    def _load(self, coming: Sequence[Task]) -> None:
        """Start the next few together, so that no one loads while another is timed."""
        for n, name in coming[: min(LOADED_AT_ONCE, usable_cores())]:
            plan = self._plan
            task = {
                "n": n,
                "implementation": name,
                "setting": asdict(plan.setting),
                "device": plan.device,
                "threads": plan.threads or usable_cores(),
                "timed": plan.timed,
                "address_space_bytes": plan.address_space_bytes,
            }
            command = [*self._command, "--json", json.dumps(task)]
            self._workers[n, name] = Worker(command, self._folder, f"{n}-{name}")

    def _learn(self, predictor: Worker, count: int) -> None:
        if self._predicted:
            return
        for line in predictor.lines():
            if "predicted_bytes" in line:
                predicted = line["predicted_bytes"] + self._plan.workspace_bytes
                self._predicted[line["n"], line["implementation"]] = predicted
        if len(self._predicted) < count:
            raise RuntimeError(f"The bytes cannot be predicted: {predictor.last_words() or 'it was killed'}.")

    def _closed(self, task: Task) -> int | None:
        n, name = task
        if name != "explicit" or self._plan.setting.backward:
            return None
        return closed_form(n, self._plan.setting, self._plan.workspace_bytes)

    def _measured(self, task: Task, row: Row) -> Row:
        worker = self._workers.pop(task)
        try:
            allowed, whose = self._allowed()
            sure = allowed is not None and self._predicted[task] < SURE_SHARE * allowed
            limits = {"allowed_bytes": allowed, "beforehand": not sure}
            beside = runs_under_way()  # none starts while the device is taken, so there are no more later
            end = worker.work(limits, self._stop, self._guard)
        finally:
            worker.end()
        needed = (worker.said("end") or {}).get("needed_bytes")
        reason = end.reason
        if needed is not None and allowed is not None:
            reason = f"{needed:,} bytes of tensors at once; {allowed:,} are what {whose}."
        found: dict[str, Any] = {**(worker.said("bytes") or {}), **(worker.said("time") or {})}
        found.pop("event", None)
        return replace(row, state=end.state, reason=reason, needed_bytes=needed, runs_beside=beside, **found)

    def _allowed(self) -> tuple[int | None, str]:
        """Bytes that a worker may take, None where the device itself says; and whose limit it is."""
        budget = self._plan.budget_bytes
        if self._plan.device == "cuda":
            return budget, "the budget allows"
        room = self._guard.room_bytes()
        if budget is not None and budget - WORKSPACE_BYTES <= room:
            return budget - WORKSPACE_BYTES, "the budget allows"
        return room, "this machine can give now and stay usable"


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line. Returns the exit code: 0 all rows are there, 1 torch does not work, 2 a wrong plan.

    PLAN: an object with the fields of ``Plan``.
    """
    parser = argparse.ArgumentParser(prog=f"python -m {MODULE}.sweep")
    parser.add_argument("--json", required=True, metavar="PLAN", help="one JSON object; see the docstring")
    parser.add_argument("--stop", type=Path, metavar="FILE", help="cancel once there is such a file")
    options = parser.parse_args(arguments)
    try:
        plan = plan_of(json.loads(options.json))
    except (ValueError, TypeError) as error:
        print(error, file=sys.stderr)
        return 2
    gone = threading.Event()
    threading.Thread(target=_watch_stdin, args=(gone,), daemon=True).start()

    def stop() -> bool:
        return gone.is_set() or (options.stop is not None and options.stop.exists())

    try:
        for row in measure(plan, stop):
            print(json.dumps(asdict(row)), flush=True)
    except RuntimeError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def plan_of(written: dict[str, Any]) -> Plan:
    """A plan from JSON.

    Raises ValueError, TypeError: when a field is unknown, missing or out of range.
    """
    fields = {**written, "setting": Setting(**written.get("setting", {}))}
    for key in {"tokens", "implementations"} & fields.keys():
        fields[key] = tuple(fields[key])
    return Plan(**fields)


def _watch_stdin(gone: threading.Event) -> None:
    with suppress(OSError):
        while os.read(0, 1):
            pass
    gone.set()


if __name__ == "__main__":
    sys.exit(main())
