"""Rows of the n x n wall as they come: each n of each implementation in its own process. Imports no torch."""

import json
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from engine.memory_wall.plan import Plan, Row, Task
from engine.memory_wall.process import Guard, Stop, Worker, wait_for
from engine.memory_wall.setting import WORKSPACE_BYTES, Setting, closed_form
from engine.system.cores import usable_cores
from engine.system.errors import Unavailable

LOADED_AT_ONCE = 4  # workers that load together, as far as there are cores, before any of them measures
SURE_SHARE = 0.9  # a layer predicted to need less than this of what is allowed needs no leave beforehand
GUARD_BYTES = 2**30  # above a budget: torch itself, and what kernels take while they run
CANCELLED = "It was cancelled."
WORKER = (sys.executable, "-m", "engine.memory_wall.worker")

Predictor = Callable[[Setting, Sequence[Task], str], list[str]]


def predict_command(setting: Setting, tasks: Sequence[Task], device: str) -> list[str]:
    """What to start to predict the bytes of tasks; it prints ``Predictions`` as one line of JSON."""
    arguments = {"setting": asdict(setting), "tasks": tasks, "device": device}
    return [sys.executable, "-m", "engine", "probe", "memory-wall", "--json", json.dumps(arguments)]


def measure(
    plan: Plan,
    folder: Path,
    stop: Stop = lambda: False,
    *,
    known: Collection[Row] = (),
    runs_beside: Callable[[], int] = lambda: 0,
    guard: Guard | None = None,
    worker: Sequence[str] = WORKER,
    predictor: Predictor = predict_command,
) -> Iterator[Row]:
    """Measure, smallest n first. Each row comes as "running", then as it ended.

    An implementation that is out of memory is not measured at a larger n. ``stop()`` is asked 50 times a
    second; once it says so, all processes are ended and a row "cancelled" is the last. Closing the generator
    ends them too. That nothing else is started beside is for the caller to see to.

    folder: for what the processes write; known: rows that are measured already, and do not come again.
    runs_beside: trainings under way on this machine, asked once a row.
    guard, worker, predictor: a test hands in its own.
    Raises Unavailable: when the bytes cannot be predicted, that is, torch does not work here.
    """
    over = {(row.n, row.implementation) for row in known}
    beyond = {row.implementation for row in known if row.state == "out of memory"}
    tasks = [task for task in plan.tasks if task not in over and task[1] not in beyond]
    if not tasks:
        return
    folder.mkdir(parents=True, exist_ok=True)
    sweep = _Sweep(plan, folder, stop, runs_beside, guard or _guard(plan), worker)
    yield from sweep.rows(tasks, Worker(predictor(plan.setting, tasks, plan.device), folder, "predict"))


def _guard(plan: Plan) -> Guard:
    """On a CPU a budget holds from outside too, with room for what is no tensor."""
    if plan.device == "cuda" or plan.budget_bytes is None:
        return Guard()
    return Guard(plan.budget_bytes + plan.budget_bytes // 4 + GUARD_BYTES)


@dataclass
class _Sweep:
    plan: Plan
    folder: Path
    stop: Stop
    runs_beside: Callable[[], int]
    guard: Guard
    command: Sequence[str]
    workers: dict[Task, Worker] = field(default_factory=dict)
    predicted: dict[Task, int] = field(default_factory=dict)

    def rows(self, tasks: Sequence[Task], predictor: Worker) -> Iterator[Row]:
        beyond = set[str]()
        try:
            for index, task in enumerate(tasks):
                n, name = task
                if name in beyond:
                    continue
                row = Row(n=n, implementation=name, state="running")
                if task not in self.workers:
                    self._load([one for one in tasks[index:] if one[1] not in beyond])
                wait_for([predictor, *self.workers.values()], self.stop)
                if self.stop():
                    yield replace(row, state="cancelled", reason=CANCELLED)
                    return
                self._learn(predictor, len(tasks))
                predicted, closed = self.predicted[task], self._closed(task)
                yield (row := replace(row, predicted_bytes=predicted, closed_form_bytes=closed))
                yield (row := self._measured(task, row))
                if row.state == "cancelled":
                    return
                if row.state == "out of memory":
                    beyond.add(name)
        finally:
            for worker in [predictor, *self.workers.values()]:
                worker.end()

    def _load(self, coming: Sequence[Task]) -> None:
        """Start the next few together, so that no one loads while another is timed."""
        threads = self.plan.threads or usable_cores()
        for n, name in coming[: min(LOADED_AT_ONCE, usable_cores())]:
            own = replace(self.plan, tokens=(n,), implementations=(name,), threads=threads)
            command = [*self.command, "--json", json.dumps(asdict(own))]
            self.workers[n, name] = Worker(command, self.folder, f"{n}-{name}")

    def _learn(self, predictor: Worker, count: int) -> None:
        if self.predicted:
            return
        for line in predictor.lines():
            for row in line["rows"]:
                size = row["predicted_bytes"] + self.plan.workspace_bytes
                self.predicted[row["n"], row["implementation"]] = size
        if len(self.predicted) < count:
            why = predictor.last_words() or "the process was killed"
            raise Unavailable(f"The bytes cannot be predicted: {why.rstrip('.')}.")

    def _closed(self, task: Task) -> int | None:
        n, name = task
        if name != "explicit" or self.plan.setting.backward:
            return None
        return closed_form(n, self.plan.setting, self.plan.workspace_bytes)

    def _measured(self, task: Task, row: Row) -> Row:
        worker = self.workers.pop(task)
        try:
            allowed, whose = self._allowed()
            sure = allowed is not None and self.predicted[task] < SURE_SHARE * allowed
            limits = {"allowed_bytes": allowed, "beforehand": not sure}
            beside = self.runs_beside()
            end = worker.work(limits, self.stop, self.guard)
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
        budget = self.plan.budget_bytes
        if self.plan.device == "cuda":
            return budget, "the budget allows"
        room = self.guard.room_bytes()
        if budget is not None and budget - WORKSPACE_BYTES <= room:
            return budget - WORKSPACE_BYTES, "the budget allows"
        return room, "this machine can give now and stay usable"
