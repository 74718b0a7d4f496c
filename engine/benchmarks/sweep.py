"""How long a sweep takes, its runs at once or one after another: ``python -m engine bench sweep``.

The runs are real: queued in a ledger, dispatched, supervised and trained as a page's are, in a temporary
folder. So the time includes what a run costs beside its steps: processes, imports, evaluations, checkpoints.
Trainers get their allocator's settings from their supervisor, here as anywhere. Imports no torch.
"""

import time
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from engine.benchmarks import count, say, table
from engine.chapter.budget import Budget
from engine.chapter.variants import BLOCK
from engine.data import corpus
from engine.runs.dispatcher import TICK_SECONDS, Dispatcher
from engine.runs.local import Engine, LocalEngine
from engine.runs.spec import RunSpec
from engine.runs.store import ENDED, Run, Store
from engine.system import device
from engine.system.cores import default_slots, usable_cores
from engine.system.errors import Unavailable
from engine.system.numbers import check_whole

TEXT = corpus.PYTHON_REFERENCE  # on every machine, without a network
RUNS = (1, 1_000)  # allowed


class RunFailed(Unavailable):
    """A run of the sweep did not end as it should, so its time says nothing."""


class OneAtATime(LocalEngine):
    """As many threads a run as where a run has a core of its own, but never two runs."""

    def capacity(self) -> int:
        return min(1, super().capacity())


def bench(*, runs: int, steps: int) -> dict[str, Any]:
    """Measure. Returns what ``bench sweep --json`` prints.

    A ratio is the seconds of one run after another, each with all cores, over the row's.
    Raises ValueError: when a number is out of range; RunFailed: when a run fails.
    """
    check_whole("runs", runs, *RUNS)
    wanted = specs(runs, steps)
    here = device.describe()
    say("one run first, so that what all read lies in memory")
    wall_seconds(wanted[:1], LocalEngine(1))
    walls = {}
    for (at_once, threads), engine in ways().items():
        say(f"{count(runs, 'run')}, {at_once} at once, {count(threads, 'thread')} each")
        walls[at_once, threads] = wall_seconds(wanted, engine)
    return {
        "bench": "sweep",
        "device": here.title,
        "torch": here.torch,
        "date": date.today().isoformat(),
        "steps": steps,
        "rows": rows(walls, runs),
    }


def rows(walls: Mapping[tuple[int, int], float], runs: int) -> list[dict[str, Any]]:
    """walls: seconds by (runs at once, threads each)."""
    usual = walls[1, usable_cores()]
    return [
        {
            "at_once": at_once,
            "threads_each": threads,
            "runs": runs,
            "wall_s": round(seconds, 2),
            "ratio_to_one_after_another": round(usual / seconds, 4),
        }
        for (at_once, threads), seconds in walls.items()
    ]


def text(document: dict[str, Any]) -> str:
    """``bench`` for people."""
    columns = {
        "at_once": "at once",
        "threads_each": "threads each",
        "runs": "runs",
        "wall_s": "wall s",
        "ratio_to_one_after_another": "ratio to one after another",
    }
    where = f"{document['device']}, torch {document['torch']}, {document['date']}"
    title = f"sweep of {count(document['steps'], 'step')} a run, {where}"
    return "\n".join([title, *table(columns, document["rows"])])


def specs(runs: int, steps: int) -> list[RunSpec]:
    """The chapter's block on one text, one seed a run; evaluated at its start and end only.

    Runs of under 20 steps also leave the lab's estimates of durations alone (``trainer.SPEED_STEPS``).
    Raises ValueError: when there may not be so many steps.
    """
    budget = Budget(steps=steps, evaluate_every=steps, checkpoint_every=steps, evaluate_early=False)
    corpus.load(TEXT, BLOCK.config.vocab_size, budget.context_length)  # tokenized here, not while timed
    sha256 = corpus.sha256_of(TEXT)
    return [
        RunSpec(
            experiment="bench",
            variant=BLOCK.id,
            budget_name="bench",
            config=BLOCK.config,
            budget=budget,
            corpus=TEXT,
            corpus_sha256=sha256,
            seed=seed,
        )
        for seed in range(runs)
    ]


def ways() -> dict[tuple[int, int], Engine]:
    """Engines by (runs at once, threads each); on one core they are all the same one."""
    slots, cores = default_slots(), usable_cores()
    return {
        (slots, max(1, cores // slots)): LocalEngine(slots),
        (1, cores): LocalEngine(1),
        (1, 1): OneAtATime(cores),
    }


def wall_seconds(wanted: Sequence[RunSpec], engine: Engine) -> float:
    """From queueing the runs to the end of the last, in a folder that is gone afterwards.

    Raises RunFailed: when one does not end with its last step.
    """
    # A trainer that is being ended may still write for a moment: that must not hide why it is ended.
    with TemporaryDirectory(prefix="attention-lab-bench-", ignore_cleanup_errors=True) as folder:
        store = Store(Path(folder))
        try:
            began = time.perf_counter()
            store.submit(wanted)
            ended = _dispatch(store, engine)
            seconds = time.perf_counter() - began
        finally:
            store.close()
    for run in ended:
        if run.state != "done":
            raise RunFailed(f"the run with seed {run.spec.seed} of the sweep: {run.state}: {run.reason}")
    return seconds


def _dispatch(store: Store, engine: Engine) -> list[Run]:
    with Dispatcher(store, engine) as dispatcher:
        try:
            while True:
                dispatcher.tick()
                runs = store.runs()
                if all(run.state in ENDED for run in runs):
                    return runs
                time.sleep(TICK_SECONDS)
        except BaseException:  # Ctrl-C above all: no run may outlive its folder
            dispatcher.stop_runs()
            raise
