"""The ladder as a dot plot: what the chapter says of every variant, the shipped reference, and yours."""

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import altair as alt

from engine.chapter import reference
from engine.chapter.experiments import EXPERIMENTS, ChapterValue, Experiment
from engine.data import corpus
from engine.runs.store import Entry, Run, trains
from lab.charts.axes import BARE, COLOR, GRAY, INK, dot, labels, rows
from lab.charts.drawing import Rows, Spec, compiled, fed
from lab.shell.styles import style

METRIC = "validation_perplexity"
ROW, AXIS = 26, 38  # px
LEGEND = {
    "printed": "**|** chapter, printed",
    "range": ":gray[■] chapter, inferred range",
    "reference": "○ shipped reference",
    "chapter": "● yours",
    "quick": "● pale: yours on the quick budget",
}


@dataclass(frozen=True)
class Rung:
    """One row. yours, quick: the reader's mean at the chapter's budget, and at the quick one."""

    variant: str
    name: str
    chapter: ChapterValue
    reference: float | None
    yours: float | None
    quick: float | None


def rungs(entries: Sequence[Entry]) -> list[Rung]:
    """Every variant whose held-out perplexity the chapter gives, in the order of its tables."""
    runs = list(filter(trains, entries))
    found: dict[str, Rung] = {}
    for experiment in EXPERIMENTS.values():
        shipped = reference.load(experiment.id) if experiment.metric == METRIC else None
        for name in experiment.variants:
            value = experiment.chapter.get((name, METRIC))
            if value is None or name in found:
                continue
            row = shipped.rows.get(name) if shipped else None
            yours, quick = (_mean(runs, experiment, name, budget) for budget in ("chapter", "quick"))
            shown = row.mean(METRIC) if row else None
            found[name] = Rung(name, experiment.variant(name).short, value, shown, yours, quick)
    return list(found.values())


def _mean(runs: Iterable[Run], experiment: Experiment, name: str, budget: str) -> float | None:
    """Over seeds, of the newest run each; the model, the budget and the text are the chapter's."""
    by_seed = {
        run.spec.seed: run.measured.get(METRIC)
        for run in runs
        if run.state == "done"
        and not run.spec.start_from
        and run.spec.config == experiment.variant(name).config
        and run.spec.budget == experiment.budget(budget, name)
        and run.spec.corpus_sha256 == corpus.TINYSHAKESPEARE_SHA256
    }
    values = [value for value in by_seed.values() if value is not None]
    return statistics.fmean(values) if values else None


def legend(rungs: Sequence[Rung]) -> str:
    """What the marks that are drawn mean, as one line of Markdown."""
    drawn = {mark["kind"] for mark in _marks(rungs)}
    return "\u2003 ".join(text for kind, text in LEGEND.items() if kind in drawn)


def height(names: Sequence[object]) -> int:
    """Of the whole chart, in px."""
    return AXIS + ROW * len(names)


def spec(rungs: Sequence[Rung]) -> Spec:
    """The dot plot. A quick figure is pale: it says little about what the chapter prints."""
    shape = _plot(tuple(rung.name for rung in rungs), *_bounds(rungs))
    return fed(shape, rows=[{"row": i} for i in range(len(rungs))], marks=_marks(rungs))


@lru_cache
def _plot(names: tuple[str, ...], low: float, high: float) -> Spec:
    x = alt.X(
        field="value",
        type="quantitative",
        scale=alt.Scale(type="log", domain=[low, high], nice=False),
        axis=alt.Axis(
            orient="top",
            values=[value for value in _ROUND if low <= value <= high],
            format="~r",
            title=None,
            labelOverlap="greedy",
            **BARE,
        ),
    )
    y = alt.Y(
        field="row",
        type="quantitative",
        scale=alt.Scale(domain=[len(names) - 0.5, -0.5], nice=False, zero=False),
        axis=alt.Axis(
            values=list(range(len(names))),
            labelExpr=labels(names),
            labelColor=INK,
            labelLimit=220,
            labelPadding=10,
            title=None,
            **BARE,
        ),
    )
    told = [
        alt.Tooltip(field="name", title="model"),
        alt.Tooltip(field="whose"),
        alt.Tooltip(field="said", title="held-out perplexity"),
    ]
    ranges, printed, quick, yours, shipped = (
        rows("marks", kind).encode(x=x, y=y, tooltip=told)
        for kind in ("range", "printed", "quick", "chapter", "reference")
    )
    across = rows("rows").encode(x=alt.XDatum(low), x2=alt.X2Datum(high), y=y)
    return compiled(
        height(names),
        across.mark_rule(color=GRAY, opacity=0.25),
        ranges.mark_rule(strokeWidth=10, color=GRAY, opacity=0.4).encode(x2=alt.X2(field="to")),
        printed.mark_tick(thickness=2.5, size=16, color=GRAY, opacity=1),
        dot(quick, 60, opacity=0.4).encode(color=COLOR),
        dot(yours, 60).encode(color=COLOR),
        # On top and wider, so that it shows around a dot at the same place.
        shipped.mark_point(size=90, strokeWidth=1.5, color=GRAY, opacity=1),
    )


_ROUND = [lead * 10**decade for decade in range(-1, 7) for lead in (1, 1.5, 2, 3, 4, 5, 6, 8)]
# A range this narrow would not be seen: 248.0 ± 0.15 is drawn as wide as a row's dot.
_NARROWEST = 0.008


def _marks(rungs: Sequence[Rung]) -> Rows:
    marks: list[dict[str, Any]] = []
    for i, row in enumerate(rungs):
        base = {"row": i, "name": row.name, "slot": style(row.variant).slot}
        for kind, whose, value in (
            ("reference", "shipped reference", row.reference),
            ("chapter", "yours", row.yours),
            ("quick", "yours, quick budget", row.quick if row.yours is None else None),
            ("printed", "chapter, printed", row.chapter.low if row.chapter.printed else None),
        ):
            if value is not None:
                marks.append({**base, "kind": kind, "whose": whose, "value": value, "said": f"{value:,.2f}"})
        if not row.chapter.printed:
            low, middle, high = row.chapter.low, row.chapter.middle, row.chapter.high
            ends = {"value": min(low, middle * (1 - _NARROWEST)), "to": max(high, middle * (1 + _NARROWEST))}
            said = f"{low:,.1f} to {high:,.1f}"
            marks.append({**base, "kind": "range", "whose": "chapter, inferred", **ends, "said": said})
    return marks


def _bounds(rungs: Sequence[Rung]) -> tuple[float, float]:
    values = [value for row in rungs for value in (row.reference, row.yours, row.quick) if value is not None]
    values += [value for row in rungs for value in (row.chapter.low, row.chapter.high)]
    return (0.8 * min(values), 1.22 * max(values)) if values else (30.0, 300.0)
