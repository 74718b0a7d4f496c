"""What is drawn of a sweep: curves of perplexity, or small multiples."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import streamlit as st

from engine.chapter.experiments import METRICS, Experiment
from lab.bench.layout import Rows
from lab.bench.sweep import Sweep
from lab.charts import drawing, lines, panels
from lab.charts.lines import Curve, Line, Plot
from lab.charts.panels import Part
from lab.shell.styles import dashed_last, style


@dataclass(frozen=True)
class Figure:
    """The figure of a sweep, whatever of it is measured.

    title, note: above it. name: of its files. draw: puts it on the page. chart, rows: for a file.
    widgets: what stands in the line above it.
    """

    title: str
    note: str
    name: str
    draw: Callable[[Sweep], None]
    chart: Callable[[Sweep], dict[str, Any]]
    rows: Callable[[Sweep], Rows] = Sweep.table
    widgets: Callable[[], None] = lambda: None


def variant_lines(experiment: Experiment, curves: Callable[[str], tuple[Curve, ...]]) -> list[Line]:
    """One line a variant; a dashed one comes last, so that it lies on top of what it modifies."""
    order = dashed_last(experiment.variants)
    return [Line(experiment.variant(name).short, style(name), curves(name)) for name in order]


def chart_lines(sweep: Sweep) -> list[Line]:
    """The lines of what the experiment compares."""
    return variant_lines(sweep.experiment, sweep.curves)


def perplexity(
    sweep: Sweep, low: float | None = None, drawn: Callable[[Sweep], Sequence[Line]] = chart_lines
) -> Figure:
    """Held-out perplexity over the steps. low: as in ``chart_frame``. drawn: the lines."""
    experiment = sweep.experiment
    plot = chart_frame(sweep, low)

    def draw(now: Sweep) -> None:
        chart = lines.line_chart(plot, drawn(now), now.progress)
        with st.container(key="figure"):
            drawing.draw(chart, key=f"{experiment.id}.chart")

    return Figure(
        METRICS[experiment.metric].capitalize(),
        "log scale, lower is better",
        f"{experiment.id}-{sweep.request.budget}",
        draw,
        lambda now: lines.line_chart(plot, drawn(now)),
    )


def chart_frame(sweep: Sweep, low: float | None = None) -> Plot:
    """Where curves will be drawn: from ``low``, or half the chapter's lowest figure, to a uniform guess."""
    experiment = sweep.experiment
    values = [experiment.chapter.get((name, experiment.metric)) for name in experiment.variants]
    rules = tuple((value.middle, not value.printed) for value in values if value)
    vocabulary = max(experiment.variant(name).config.vocab_size for name in experiment.variants)
    steps, full = experiment.budget(sweep.request.budget).steps, experiment.budget("chapter").steps
    return Plot(
        steps=steps,
        low=min((value for value, _ in rules), default=20.0) / 2 if low is None else low,
        high=1.25 * vocabulary,
        rules=rules if sweep.of_the_chapters_text else (),
        note="" if steps == full else f", after {full:,} steps",
    )


def small_multiples(
    title: str,
    note: str,
    name: str,
    parts: Callable[[Sweep], list[Part]],
    last: int,
    *,
    key: str,
    rows: Callable[[Sweep], Rows] | None = None,
    widgets: Callable[[], None] = lambda: None,
    progress: Callable[[Sweep], float] = lambda now: now.progress,
) -> Figure:
    """Several figures of the same runs in one row. parts: its panels; last: the step where the axis ends.

    key: of the row among the page's. rows: for a file; by default every point that is drawn.
    """
    return Figure(
        title,
        note,
        name,
        lambda now: panels.draw(parts(now), last, key, progress(now)),
        lambda now: panels.together(parts(now), last),
        rows or (lambda now: panels.table(parts(now))),
        widgets,
    )
