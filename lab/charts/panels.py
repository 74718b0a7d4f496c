"""Small multiples: several figures of the same runs in one row, over one axis, names in the last panel.

Each panel is a chart of its own and of fixed width, so that a narrow window wraps the row.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import streamlit as st

from lab.charts import drawing
from lab.charts import lines as charts
from lab.charts.lines import STEPS, Across, Line, Plot
from lab.words import quantity

ROW, GAP = 1120, 16  # px
NAMES = 166  # px right of the last panel's curves: values and names
AXIS = 46  # px for the numbers left of the curves
EDGE = 6  # px right of any panel's curves: the dots at their heads
HEIGHT = 150  # px for the curves

Rules = tuple[tuple[float, bool], ...]


@dataclass(frozen=True)
class Panel:
    """One figure of the row. metric: its name in the records; title, note: above it, the second in grey.

    low, high, log, ticks, form, shown: as in ``charts.Plot``.
    """

    metric: str
    title: str
    note: str
    low: float
    high: float
    ticks: tuple[float, ...]
    log: bool = True
    form: str = "~g"
    shown: Callable[[float | None], str] = quantity


@dataclass(frozen=True)
class Part:
    """A panel with the lines that are drawn in it. rules: the chapter's figures."""

    panel: Panel
    lines: Sequence[Line]
    rules: Rules = ()


def draw(parts: Sequence[Part], last: int, key: str, progress: float = 0.0, across: Across = STEPS) -> None:
    """The row. last: where the shared axis ends; progress: the share of the work done, 0 when none runs."""
    with st.container(horizontal=True, gap="small", key=f"figure-{key}"):
        for part, plot, width in _framed(parts, last, across):
            panel = part.panel
            spec = charts.line_chart(plot, part.lines, progress)
            titled(f"{key}.{panel.metric}", panel.title, panel.note, spec, width)


def titled(key: str, title: str, note: str, spec: drawing.Spec, width: int) -> None:
    """A chart of some width in px, in a row of several. title, note: above it, the second in grey."""
    with st.container(width=width, gap=None):
        st.markdown(f":small[**{title}** :gray[{note}]]")
        drawing.draw(spec, key=key)


def figure(key: str, title: str, note: str, spec: drawing.Spec) -> None:
    """One chart below its title, as wide as the page. key: "positions.places"."""
    st.markdown(f"**{title}** :gray[{note}]")
    with st.container(key=f"figure-{key.partition('.')[2]}"):
        drawing.draw(spec, key=key)


def together(parts: Sequence[Part], last: int, across: Across = STEPS) -> drawing.Spec:
    """The row as one chart, for a file."""
    drawn = {}
    for part, plot, width in _framed(parts, last, across):
        title = {"text": part.panel.title, "subtitle": part.panel.note, "anchor": "start"}
        size = {"height": plot.height, "width": width - AXIS}
        drawn[part.panel.metric] = {**charts.line_chart(plot, part.lines), **size, "title": title}
    return drawing.together(drawn, "hconcat")


def table(parts: Sequence[Part]) -> Iterator[tuple[object, ...]]:
    """Every point that is drawn, for a file; the first row names the columns."""
    yield "figure", "line", "curve", "step", "value"
    for part in parts:
        for line in part.lines:
            for number, curve in enumerate(line.curves):
                for step, value in curve.points:
                    yield part.panel.metric, line.name, number, step, value


def _framed(parts: Sequence[Part], last: int, across: Across) -> list[tuple[Part, Plot, int]]:
    """Every part with its frame and its width in px; all curves get the same room."""
    count = len(parts)
    narrow = (ROW - NAMES - (count - 1) * GAP) // count
    framed = []
    for number, part in enumerate(parts, start=1):
        panel, named = part.panel, number == count
        plot = Plot(
            steps=last, low=panel.low, high=panel.high, rules=part.rules, field=panel.metric, log=panel.log,
            ticks=panel.ticks, form=panel.form, shown=panel.shown,
            printed=lambda value, _, shown=panel.shown: shown(value),  # type: ignore[misc]
            height=HEIGHT, names=named, gutter=(NAMES * named + EDGE) / (narrow - AXIS - EDGE),
            across=across if across.ticks else replace(across, ticks=(0, last // 2, last)),
        )  # fmt: skip
        framed.append((part, plot, narrow + NAMES if named else narrow))
    return framed
