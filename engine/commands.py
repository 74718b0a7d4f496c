"""What the command line does, apart from how it is called. Imports no torch."""

import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import psutil

from engine.chapter.budget import BudgetName, Precision
from engine.chapter.experiments import EXPERIMENTS, experiment
from engine.chapter.measurements import MEASUREMENTS, Measurement, known
from engine.chapter.report import number
from engine.data import corpus
from engine.runs import estimates, reference_writer
from engine.runs.launch import check_names, check_variants, specs
from engine.runs.spec import RunSpec
from engine.runs.store import Entry, Run, Store, trains
from engine.runs.wait import shell_user, wait
from engine.system import device, files
from engine.system.errors import InvalidInput


def run(
    experiment_id: str,
    budget: str,
    seeds: Sequence[int],
    variants: Sequence[str] | None,
    corpus_id: str | None,
    precision: Precision = "float32",
) -> tuple[dict[str, Any], list[str]]:
    """Train a sweep and wait for it. Returns the document of ``run --json`` and the reasons of failures.

    precision: of the products in training, see ``Budget``. What needs no training is measured at once.
    Raises InvalidInput: when an argument names nothing there is.
    """
    named = known(experiment_id)
    if isinstance(named, Measurement):
        if precision != "float32":
            raise InvalidInput(f"{named.id} trains nothing, so it has no --precision.")
        return _measure(named, budget, seeds, variants, corpus_id), []
    trained = check_names(experiment_id, budget, variants)  # before a text is fetched for it
    chosen = corpus_id or trained.language or _default_corpus()
    wanted = [
        replace(spec, budget=replace(spec.budget, precision=precision))
        for spec in specs(experiment_id, budget, seeds, chosen, variants)
    ]
    store = Store()
    began = time.monotonic()
    sweep = store.submit(wanted, user=shell_user())
    runs = _wait(store, [sweep])
    rows = [
        {"variant": run.spec.variant, "seed": run.spec.seed, "state": run.state, "measured": run.measured}
        | ({"reason": run.reason} if run.reason else {})
        for run in runs
    ]
    document = {
        "id": experiment_id,
        "budget": budget,
        "precision": precision,
        "device": device.describe().title,
        "seconds": round(time.monotonic() - began, 1),
        "rows": rows,
    }
    return document, _failures(runs)


def _measure(
    chosen: Measurement,
    budget: str,
    seeds: Sequence[int],
    variants: Sequence[str] | None,
    corpus_id: str | None,
) -> dict[str, Any]:
    """The document of ``run --json`` of what needs no training; both budgets are its one size."""
    if budget not in get_args(BudgetName):
        raise InvalidInput(f"no budget {budget!r}; there are: {', '.join(get_args(BudgetName))}.")
    if corpus_id is not None:
        reads = f"always reads {corpus.TITLES[chosen.corpus_id]}" if chosen.corpus_id else "reads no text"
        raise InvalidInput(f"{chosen.id} {reads}, so it has no --corpus.")
    check_variants(chosen, variants or ())
    began, rows = time.monotonic(), []
    for seed in seeds:
        figures = chosen.measure(seed)
        for name in variants or chosen.variants:
            state = "done" if name in figures else "unsupported"
            rows.append({"variant": name, "seed": seed, "state": state, "measured": figures.get(name, {})})
        print(f"{chosen.id}, seed {seed}: done", file=sys.stderr, flush=True)
    return {
        "id": chosen.id,
        "budget": budget,
        "device": device.cpu_title(),
        "seconds": round(time.monotonic() - began, 1),
        "rows": rows,
    }


def run_text(document: dict[str, Any]) -> str:
    """``run`` for people."""
    measured = document["id"] in MEASUREMENTS
    metric = None if measured else experiment(document["id"]).metric
    budget = "" if measured else f" {document['budget']} budget,"
    lines = [f"{document['id']},{budget} {document['device']}"]
    for row in document["rows"]:
        if metric is None:
            figures = ", ".join(f"{name} {number(value, 3)}" for name, value in row["measured"].items())
        else:
            value = row["measured"].get(metric)
            figures = row.get("reason", "") if value is None else number(value, 2)
        lines.append(f"{row['variant']:24} seed {row['seed']:<6} {figures or row['state']}")
    return "\n".join([*lines, f"{document['seconds']} s"])


def reproduce(*, write_reference: bool) -> list[str]:
    """Train every experiment at the chapter's budget on the chapter's text or its own language.

    Returns reasons of failures.

    What is measured already is not measured again; what was interrupted goes on from its checkpoint.
    What needs no training is kept nowhere else, so it is measured for the reference only.
    Raises CorpusError: when the chapter's text cannot be had.
    """
    store, failures = Store(), []
    for chosen in EXPERIMENTS.values():
        asked = specs(chosen.id, "chapter", chosen.seeds, chosen.language or corpus.TINYSHAKESPEARE)
        wanted = [spec for spec in asked if spec.seed in chosen.seeds_of(spec.variant)]
        ended = _wait(store, _missing(store, wanted))
        if "interrupted" in {run.state for run in ended}:  # what an earlier process left has ended only now
            _wait(store, _missing(store, wanted))
        runs = [run for spec in wanted if (run := newest(store, spec))]
        failures += _failures(runs)
        if write_reference and not _failures(runs):
            path = reference_writer.write(chosen.id, store, runs)
            print(f"{chosen.id}: wrote {path.name}", file=sys.stderr)
    for measurement in MEASUREMENTS.values() if write_reference else ():  # some look into those weights
        print(f"{measurement.id}: wrote {write_measurement(measurement).name}", file=sys.stderr)
    return failures


def write_measurement(measurement: Measurement) -> Path:
    """Measure what needs no training, all its seeds, and make the shipped reference of it."""
    from engine.runs.trainer import environment

    by_seed = {seed: measurement.measure(seed) for seed in measurement.seeds}
    return reference_writer.write_measurement(measurement, by_seed, environment(device.cpu_title()))


def prepare() -> None:
    """Do once what pages would have to wait for: fetch the text, make tokens of it, time a few steps.

    Two models are timed, a light one and a heavy one: enough to say about how long any takes, and soon over.
    It steps back before everything else on the machine.
    """
    with suppress(OSError, psutil.Error):
        psutil.Process().nice(psutil.BELOW_NORMAL_PRIORITY_CLASS if sys.platform == "win32" else 10)
    text = _default_corpus()
    corpus.load(text)
    estimates.calibrate(
        specs(experiment_id, "quick", (0,), text, (name,))[0]
        for experiment_id, name in (("averages", "average"), ("scaling-training", "divided-1024"))
    )


def newest(store: Store, spec: RunSpec) -> Run | None:
    """The newest run of the same digest, a finished one before any other."""
    runs = store.runs(digests=[spec.digest])
    finished = [run for run in runs if run.state in ("done", "diverged")]
    return next(reversed(finished or runs), None)


def _missing(store: Store, wanted: Sequence[RunSpec]) -> list[str]:
    """Queue what is not measured; resume what can go on. Returns the sweeps to wait for."""
    new, sweeps = [], list[str]()
    for spec in wanted:
        run = newest(store, spec)
        if run is None:
            new.append(spec)
        elif run.state not in ("done", "diverged"):
            store.resume(run.id)
            sweeps.append(run.sweep)
    return [*sweeps, store.submit(new, user=shell_user())] if new else sweeps


def _wait(store: Store, sweeps: Sequence[str]) -> list[Run]:
    """Wait until all runs of the sweeps ended, with their progress on stderr."""
    said: dict[int, str] = {}
    return list(filter(trains, wait(store, sweeps, lambda runs: _say(store, runs, said))))


def _say(store: Store, runs: Sequence[Entry], said: dict[int, str]) -> None:
    """Progress on stderr: a line when a run changes state or has come a tenth further."""
    for run in runs:
        step = files.last_record(store.directory(run.id)).get("step", 0) if run.state == "running" else 0
        tenth = 10 * step // run.spec.steps
        text = run.state + (f", {10 * tenth} %" if tenth else "") + (f": {run.reason}" if run.reason else "")
        if said.get(run.id) != text:
            said[run.id] = text
            print(f"#{run.id} {run.spec.title}: {text}", file=sys.stderr, flush=True)


def _failures(runs: Sequence[Run]) -> list[str]:
    return [
        f"#{run.id} {run.spec.title}: {run.state}: {run.reason}"
        for run in runs
        if run.state in ("failed", "interrupted", "cancelled")
    ]


def _default_corpus() -> str:
    chosen, notice = corpus.default_corpus_id()
    if notice:
        print(notice, file=sys.stderr)
    return chosen
