"""Runs as if they had been carried out: any experiment, budget and state, from made-up figures."""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from engine.chapter import reference
from engine.chapter.definitions import ACCURACY, PERPLEXITY, Experiment
from engine.chapter.reference import Reference, ReferenceRow
from engine.runs import launch, trainer
from engine.runs.spec import RunSpec
from engine.runs.store import ACTIVE, Run, State, Store
from engine.system import files

Figures = dict[str, Any]
SECONDS = 270.0  # that each of them took
LIKELY = {PERPLEXITY: 50.0, ACCURACY: 0.9}


def made_up(experiment: Experiment) -> Callable[[str, int], Figures]:
    """Figures of a variant and a seed: as the chapter has them, or likely ones, higher with each seed."""
    metrics = {experiment.metric, *experiment.also, *(name for _, name in experiment.chapter)}

    def of(variant: str, seed: int) -> Figures:
        values = {metric: experiment.chapter.get((variant, metric)) for metric in metrics}
        return {
            metric: (value.middle if value else LIKELY.get(metric, 0.5)) * (1 + seed / 1000)
            for metric, value in values.items()
        }

    return of


def falling(_spec: RunSpec, step: int, ends: Figures) -> Figures:
    """Its figures on the way: perplexity comes down to its end, the others stand there all along."""
    if ends.get(PERPLEXITY) is None:
        return ends
    return {**ends, PERPLEXITY: ends[PERPLEXITY] + 900 / (1 + step)}


def write(
    run: Run,
    state: State = "done",
    ends: Figures | None = None,
    *,
    last: int | None = None,
    every: int | None = None,
    curve: Callable[[RunSpec, int, Figures], Figures] = falling,
    records: Iterable[Figures] | None = None,
    reason: str = "",
) -> None:
    """Put a queued run into a state, as a trainer would have left it.

    ends: the figures that it ended with. last: the step of its newest record. every: steps between two.
    curve: the figures of a record. records: what is written instead of a curve.
    """
    store, steps, ends = Store(), run.spec.budget.steps, ends or {}
    if state == "queued":
        return
    if records is None:
        at = range(0, (steps if last is None else last) + 1, every or max(1, steps // 20))
        records = ({"step": step, "seconds": step / 10, **curve(run.spec, step, ends)} for step in at)
    folder = store.directory(run.id)
    folder.mkdir(parents=True)
    (folder / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    measured = {"done": ends, "diverged": dict.fromkeys(ends)}.get(state, {})
    store.advance(
        run.id, "queued", state, reason=reason, measured=measured, started=run.created + 10, seconds=SECONDS,
        ended=None if state in ACTIVE else run.created + 1110,
    )  # fmt: skip


def runs(
    experiment: Experiment,
    corpus_id: str | None = None,
    budget: str = "quick",
    seeds: Sequence[int] = (0,),
    state: State = "done",
    *,
    variants: Sequence[str] | None = None,
    only: Sequence[str] = (),
    specs: Iterable[RunSpec] | None = None,
    figures: Callable[[str, int], Figures] | None = None,
    user: str = "local",
    **more: Any,
) -> list[Run]:
    """A whole sweep in some state, oldest first.

    corpus_id: of a text; an experiment on a language has its own. variants: those that it is of. only:
    those in that state, where the others are done. specs: what it is of instead. more: as to ``write``.
    """
    store, of = Store(), figures or made_up(experiment)
    if specs is None:
        specs = launch.specs(experiment.id, budget, seeds, corpus_id or experiment.language, variants)
    sweep = store.submit(list(specs), user)
    for run in store.runs(sweep=sweep):
        ends = of(run.spec.variant, run.spec.seed)
        if only and run.spec.variant not in only:
            write(run, "done", ends, **{**more, "last": None, "reason": ""})
        else:
            write(run, state, ends, **more)
    return store.runs(sweep=sweep)


def carry_out() -> None:
    """Train every queued run for real, as its process would."""
    store = Store()
    for run in store.runs(states=["queued"]):
        folder = store.directory(run.id)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "spec.json").write_text(run.spec.to_json())
        outcome = trainer.run(folder, 1)
        store.advance(
            run.id, "queued", outcome["state"], measured=outcome["measured"], seconds=outcome["seconds"],
            started=run.created + 1, ended=run.created + 2,
        )  # fmt: skip


def ship(
    folder: Path,
    experiment: Experiment,
    figures: Callable[[str, int], Figures | None] | None = None,
    variants: Sequence[str] | None = None,
    seeds: Sequence[int] = (0, 1),
) -> Reference:
    """Write a reference into the folder of those that are shipped.

    figures: of a variant and a seed; None of a seed that it was not trained with.
    """
    of = figures or made_up(experiment)
    rows = {
        name: ReferenceRow({str(seed): ends for seed in seeds if (ends := of(name, seed))}, {}, [])
        for name in variants or experiment.variants
    }
    made = Reference(experiment.id, "CPU, 2 cores", 1, {}, "2026-01-02", "", "", rows)
    files.write_json(folder / f"{experiment.id}.json", asdict(made))
    reference.load.cache_clear()
    return made
