"""The rows of the learned table: those that training saw, and those that it did not."""

import math
from functools import lru_cache

import altair as alt
import streamlit as st

from engine.probes.results.positions import OtherRows, Table
from lab import weights
from lab.charts import lines as charts
from lab.charts import panels
from lab.charts.axes import COLOR, hover, levels, rows
from lab.charts.drawing import Spec, compiled, fed
from lab.charts.lines import Across, Curve, Line, Plot, edge
from lab.sections.positions.longer import bounds
from lab.sections.positions.parts import LENGTHS, LONGER, TRAINED
from lab.shell import frame
from lab.shell.styles import Style, style
from lab.weights import Opened
from lab.words import NBSP, quantity

ANGLES = (15, 45, 90, 180)  # degrees at which the axis of turned rows may end

# What stands in the rows that were never trained.
WAYS = {
    "random": ("as they are", Style("blue")),
    "last": ("last trained row", Style("blue", "dashed")),
    "scaled": ("0.02 as large", Style("gray")),
    "zero": ("zero", Style("blue", "dotted")),
}


def table(found: Table, opened: Opened) -> None:
    """How far each row has turned from where it began."""
    note = "degrees, a stroke a row"
    panels.figure("positions.rows", "Turned since the first step", note, _rows_chart(found))
    st.markdown(_rows_words(found), width=frame.MEASURE)
    st.caption(weights.whose(opened))


def _rows_chart(found: Table) -> Spec:
    """How far each row has turned from where it began: a stroke a row."""
    turned = [
        {"row": at, "turned": turned, "moved": moved, "slot": style("learned").slot}
        for at, (turned, moved) in enumerate(zip(found.turned, found.moved, strict=True))
    ]
    top = float(next(end for end in ANGLES if end >= max(found.turned)))
    never = {"row": found.trained, "text": "never trained from here on"}
    return fed(_strokes(found.rows, top), rows=turned, edge=[never])


@lru_cache
def _strokes(last: int, top: float) -> Spec:
    ticks = tuple(top * share / 3 for share in range(4))
    across = Across(field="row", title="row of the table", ticks=(0, TRAINED, 128, 256, 384, last))
    plot = Plot(
        steps=last, low=0, high=top, field="turned", log=False, ticks=ticks, form=".0f", across=across,
        gutter=0.02,
    )  # fmt: skip
    told = [
        *hover("row"),
        alt.Tooltip(field="turned", title="degrees", format=".1f"),
        alt.Tooltip(field="moved", title="moved, of its length", format=".3f"),
    ]
    strokes = rows("rows").mark_rule(strokeWidth=1.5).encode(plot.x, plot.y, alt.Y2Datum(0), COLOR)
    return compiled(200, *levels(plot.y, 0, last), strokes.encode(tooltip=told), *edge(plot))


def _rows_words(found: Table) -> str:
    """Seen rows and unseen ones, in figures."""
    seen, unseen = found.turned[: found.trained], found.turned[found.trained :]
    shrunk = sum(found.moved[found.trained :]) / len(unseen)
    said = (
        f"The {len(seen)} rows that were trained have turned by {quantity(min(seen))}° to "
        f"{quantity(max(seen))}° from where they were drawn, **{quantity(sum(seen) / len(seen))}°** on "
        f"average. The other {len(unseen)} have turned by **{quantity(max(unseen))}°** at most: they are the "
        f"random numbers of before the first step"
    )
    if max(unseen) < 0.05 and shrunk > 0:
        said += (
            f", only shorter by {quantity(100 * shrunk, 1)}{NBSP}%, which the optimiser’s weight decay does"
        )
    return f"{said}. At position 100 the model adds such a row to every token."


def other_rows(found: OtherRows, opened: Opened) -> None:
    """Perplexity over the length with something else in those rows; then in words."""
    note = "held-out perplexity, log scale"
    panels.figure("positions.other-rows", "Other numbers in the untrained rows", note, _lengths_chart(found))
    st.markdown(_other_words(found), width=frame.MEASURE)
    st.caption(
        f"Every other held-out window; {found.windows} of {LENGTHS[-1]} tokens. {weights.whose(opened)}"
    )


def _of(found: OtherRows, way: str, length: int) -> float:
    values = {(row.way, row.length): row.perplexity for row in found.rows}
    value = values.get((way, length), found.inside)
    return math.inf if value is None else value


def _lengths_chart(found: OtherRows) -> Spec:
    lines = [
        Line(name, look, (Curve(tuple((length, _of(found, way, length)) for length in LENGTHS)),))
        for way, (name, look) in WAYS.items()
    ]
    low, high, ticks = bounds(value for line in lines for curve in line.curves for _, value in curve.points)
    across = Across(field="tokens", title="tokens in the window", first=TRAINED, log=True, ticks=LENGTHS)
    plot = Plot(steps=LENGTHS[-1], low=low, high=high, ticks=ticks, gutter=0.2, across=across)
    return charts.line_chart(plot, lines)


def _other_words(found: OtherRows) -> str:
    """How much of the loss at 256 is the random numbers'."""
    inside = _of(found, "zero", TRAINED)
    random, scaled, zero, last = (_of(found, way, LONGER) for way in ("random", "scaled", "zero", "last"))
    said = (
        f"At {LONGER} tokens perplexity is **{quantity(random)}** with the untrained rows as they are, "
        f"**{quantity(zero)}** with zeros in them, {quantity(scaled)} with rows {found.scale:g} as large "
        f"and **{quantity(last)}** with the last trained row repeated."
    )
    if not inside < zero < random:
        return f"{said} So here the random numbers are not the cause."
    share = quantity(100 * (random - zero) / (random - inside), 0)
    return (
        f"{said} So **{share}{NBSP}%** of the rise from {quantity(inside)} is due to the random numbers. The "
        f"rest is probably due to the missing rows: with zeros in all rows, windows of {TRAINED} tokens have "
        f"{quantity(found.none_inside)}."
    )
