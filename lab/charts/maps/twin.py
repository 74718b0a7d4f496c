"""An attention map as a file: its twin in Altair, since nothing here draws Plotly to one, and CSV."""

import math
from collections.abc import Sequence
from typing import Any

import altair as alt

from lab.charts.axes import rows
from lab.charts.drawing import Rows, Spec, compiled, fed
from lab.charts.maps.figure import CELL
from lab.charts.maps.panel import Panel, shades
from lab.charts.maps.sentences import matrix_table
from lab.charts.maps.strip import TICKS
from lab.shell.palette import MASK_OPACITY, Palette, palette


def twin(panel: Panel, title: str, *, marked: int | None = None, limit: float | None = None) -> Spec:
    """The same map in Altair and the light theme's colours. Arguments as those of ``figure``."""
    colors = palette("light")
    sums = "each row sums to 1, colour by the square root, " if panel.kind == "weights" else ""
    note = f"{sums}grey: masked" if panel.masked is not None else sums.removesuffix(", ")
    axis: dict[str, Any] = {
        "domain": False,
        "ticks": False,
        "labelColor": colors.ink,
        "titleColor": colors.gray,
    }
    across: dict[str, Any] = {"labelAngle": -60} if panel.of_tokens else {"labels": False}
    top = alt.Axis(title=f"{panel.across} →", orient="top", **axis, **across)
    x = alt.X(field="column", **_names(panel.columns), axis=top)
    y = alt.Y(field="row", **_names(panel.rows), axis=alt.Axis(title=f"{panel.down} ↓", **axis))
    layers = [
        rows("masked").mark_rect(color=colors.gray, opacity=MASK_OPACITY).encode(x=x, y=y),
        rows("cells").mark_rect().encode(x=x, y=y, color=_color(panel, colors, limit)),
    ]
    if marked is not None:
        outline = rows("marked").mark_rect(filled=False, stroke=colors.ink, strokeWidth=1.75)
        layers.append(outline.encode(x=alt.value(0), x2=alt.value("width"), y=y))
    height = CELL * len(panel.rows)
    data = _records(panel) | ({} if marked is None else {"marked": [{"row": panel.rows[marked]}]})
    return {
        **fed(compiled(height, *layers), **data),
        "title": {"text": title, "subtitle": note, "anchor": "start", "color": colors.ink},
        "width": CELL * (len(panel.columns) if panel.of_tokens else len(panel.rows)),
        "autosize": "pad",
        "config": {"view": {"stroke": None}},  # not the page's: it is small, and its colours are its own
    }


def _names(names: Sequence[str]) -> dict[str, Any]:
    return {"type": "ordinal", "sort": None, "scale": alt.Scale(domain=list(names))}


def _color(panel: Panel, colors: Palette, limit: float | None) -> alt.Color:
    """The same colours at the same values as on the page, and their key."""
    if panel.kind == "weights":
        scale, stops = colors.weights, [at for at, _ in colors.weights]
        ticks = [math.sqrt(tick) for tick in TICKS]
        told = "format(datum.value * datum.value, '.2~r')"
    else:
        end = panel.limit if limit is None else limit
        scale, stops = colors.scores, [(2 * at - 1) * end for at, _ in colors.scores]
        ticks, told = [-end, 0, end], "format(datum.value, '.3~r')"
    return alt.Color(
        field="shade",
        type="quantitative",
        scale=alt.Scale(domain=stops, range=[tint for _, tint in scale], interpolate="rgb"),
        legend=alt.Legend(title=panel.value_name, values=ticks, labelExpr=told, gradientLength=160),
    )


def numbers(panel: Panel) -> list[Sequence[object]]:
    """The whole map for a file: the first row names the keys, an empty cell is masked."""
    table = matrix_table(panel)
    written = [
        (name, *("" if math.isnan(value) else float(value) for value in values))
        for name, values in zip(panel.rows, table.to_numpy(), strict=True)
    ]
    return [(f"{panel.down} \\ {panel.across}", *panel.columns), *written]


def _records(panel: Panel) -> dict[str, Rows]:
    """Cells as rows of data: those to be coloured, and those that are masked."""
    cells, masked = list[dict[str, Any]](), list[dict[str, Any]]()
    shaded = shades(panel)
    for at, row in enumerate(panel.rows):
        for column, shade in zip(panel.columns, shaded[at], strict=True):
            if math.isnan(shade):
                masked.append({"row": row, "column": column})
            else:
                cells.append({"row": row, "column": column, "shade": float(shade)})
    return {"cells": cells, "masked": masked}
