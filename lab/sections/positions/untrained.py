"""The rows of the learned table: those that training saw, and those that it did not."""

from functools import lru_cache

import altair as alt
import streamlit as st

from engine.probes.results.positions import Table
from lab import weights
from lab.charts import panels
from lab.charts.axes import COLOR, hover, levels, rows
from lab.charts.drawing import Spec, compiled, fed
from lab.charts.lines import Across, Plot, edge
from lab.sections.positions.parts import TRAINED
from lab.shell import frame
from lab.shell.styles import style
from lab.weights import Opened
from lab.words import NBSP, quantity

ANGLES = (15, 45, 90, 180)  # degrees at which the axis of turned rows may end


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
    return f"{said}. At position 100 the model adds noise to every token."
