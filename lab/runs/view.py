"""What the list of runs shows: names, order, filters, curves, and when it has to be drawn again.

Metrics are read for the rows shown only, and again only when their file changed, so that a long history
costs a tick nothing. What was read is shared by all sessions.
"""

import sqlite3
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import pandas as pd
import streamlit as st

from engine.chapter.experiments import EXPERIMENTS, PERPLEXITY, VARIANTS
from engine.chapter.variant import Variant
from engine.runs import dispatcher
from engine.runs.store import ACTIVE, ENDED, Entry, Run, State, Store, open_store, trains
from engine.system import files
from lab.bench.sweep import recorded
from lab.words import about, duration, plain

# As people read them: "starting" is a running run that has not trained yet.
SHOWN_STATES: tuple[State, ...] = (
    "queued",
    "running",
    "done",
    "failed",
    "cancelled",
    "interrupted",
    "diverged",
)
COLUMNS = ("state", "run", "experiment", "model", "progress", "curve", "held-out", "took", "reason")
ENDED_AS_WANTED = ("done", "diverged")

Stamp = tuple[int, int] | None  # when a file was last written, and its length


def shown_state(run: Entry) -> State:
    """The run's state as the list names it."""
    return "running" if run.state == "starting" else run.state


def model_name(run: Entry) -> str:
    """Which model a run trains: "average replaces, seed 2"; the bare id where the variant is no more.

    Of what trains none: what it measures.
    """
    if trains(run) and (known := rung(run)):
        return f"{known.short}, seed {run.spec.seed}"
    return run.spec.title


def rung(run: Run) -> Variant | None:
    """The variant that a run trains, in the table of its experiment; None where it is no more."""
    known = EXPERIMENTS.get(run.spec.experiment)
    models = {made.id: made for made in known.models} if known else VARIANTS
    return models.get(run.spec.variant)


def metric(run: Entry) -> str:
    """The figure that its experiment compares."""
    known = EXPERIMENTS.get(run.spec.experiment)
    return known.metric if known else PERPLEXITY


def opened() -> tuple[Store, object, list[Entry]]:
    """The store, its ledger's stamp and every run, oldest first; the ledger is read only when it changed.

    Where it cannot be read the page says so and ends.
    """
    try:
        store = open_store()
        stamp = ledger_stamp(store)
        return store, stamp, _runs_at(store, stamp)
    except (sqlite3.Error, OSError) as error:
        why = plain(str(error))
        st.markdown(f":red[The list of runs cannot be read: {why}. Free some space, then reload.]")
        st.stop()


@lru_cache(maxsize=2)
def _runs_at(store: Store, stamp: object) -> list[Entry]:  # noqa: ARG001 - a changed ledger is another entry
    return store.entries()


def ledger_stamp(store: Store) -> tuple[Stamp, Stamp]:
    """Changes whenever a run was written, and only then.

    The write-ahead log is there, empty, whenever somebody reads; only one with content counts.
    """
    log = _stamp(store.root / "store.sqlite-wal")
    return _stamp(store.root / "store.sqlite"), log if log and log[1] else None


def records_stamp(store: Store, active: Iterable[int]) -> tuple[Stamp, ...]:
    """Changes whenever one of these runs recorded something."""
    return tuple(_stamp(store.directory(run_id) / "metrics.jsonl") for run_id in active)


def depends_on(store: Store, active: Iterable[int], ledger: object = None) -> tuple[object, object, bool]:
    """What a page that lists runs is drawn of, as it is now; the last: whether something starts runs.

    ledger: its stamp, where it was taken already.
    """
    served = dispatcher.running(store.root)
    return ledger or ledger_stamp(store), records_stamp(store, active), served


def _stamp(path: Path) -> Stamp:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size


def ordered(runs: Iterable[Entry]) -> list[Entry]:
    """What trains first, then what waits in its order, then the past, newest first."""
    training, waiting, past = list[Entry](), list[Entry](), list[Entry]()
    for run in runs:
        (training if run.state in ACTIVE else past if run.state in ENDED else waiting).append(run)
    return [*reversed(training), *waiting, *reversed(past)]


def matching(
    runs: Iterable[Entry], search: str, states: Sequence[str], experiment: str | None
) -> list[Entry]:
    """Runs in one of the states (all, when none is named), of the experiment, with every word in them."""
    words = search.lower().split()
    return [
        run
        for run in runs
        if (not states or shown_state(run) in states)
        and experiment in (None, run.spec.experiment)
        and (not words or all(word in _haystack(run) for word in words))
    ]


def _haystack(run: Entry) -> str:
    parts = [f"#{run.id}", run.spec.experiment, model_name(run), shown_state(run), run.reason, run.user]
    if trains(run):
        known = rung(run)
        parts += [run.spec.variant, run.spec.budget_name, run.spec.corpus, known.title if known else ""]
    return "\n".join(parts).lower()


def held_out(run: Entry, directory: Path) -> float | None:
    """The final figure; of a run that goes on, or can, the newest so far; else none."""
    if run.state in ENDED_AS_WANTED:
        return run.measured.get(metric(run))
    points = () if run.state == "failed" else recorded(directory, metric(run))
    return points[-1][1] if points else None


def step_of(run: Entry, record: dict[str, Any]) -> int:
    """How far a run came. record: its newest."""
    return run.spec.steps if run.state == "done" else int(record.get("step", 0))


def time_left(run: Entry, record: dict[str, Any]) -> str:
    """ "about 9 min left", from its own speed so far; nothing before there is any, or where steps differ."""
    step, seconds = record.get("step", 0), record.get("seconds", 0.0)
    if not step or seconds <= 0 or not trains(run):
        return ""
    return f"{about((run.spec.steps - step) * seconds / step)} left"


def waiting_text(before: int) -> str:
    """What stands before a queued run."""
    return "next" if before == 0 else f"{before:,} run{'' if before == 1 else 's'} before it"


def table(store: Store, runs: Sequence[Entry], queued: Sequence[int]) -> pd.DataFrame:
    """One row a run, in the order given. queued: ids of all that wait, oldest first."""
    rows = [_row(store, run, queued) for run in runs]
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _row(store: Store, run: Entry, queued: Sequence[int]) -> tuple[object, ...]:
    directory = store.directory(run.id)
    waits = run.state == "queued" and run.attempt == 1
    record = {} if waits or run.state == "done" else files.last_record(directory)
    reason, seconds = run.reason, run.seconds
    if run.state == "queued":
        reason = waiting_text(queued.index(run.id) if run.id in queued else 0)
    elif run.state in ACTIVE:
        stopping = files.stop_requested(directory, run.attempt)
        reason = "saves what it has, then stops" if stopping else time_left(run, record)
        seconds = record.get("seconds")
    return (
        [shown_state(run)],
        run.id,
        run.spec.experiment,
        model_name(run),
        min(1.0, round(step_of(run, record) / run.spec.steps, 2)),
        [] if waits else [nats for _, nats in recorded(directory, "validation_loss_nats")],
        held_out(run, directory),
        "" if seconds is None else duration(seconds),
        reason,
    )
