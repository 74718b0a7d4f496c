"""An attention map as a file: its twin in Vega-Lite, since nothing here draws Plotly to one, and CSV."""

import math
from collections.abc import Sequence

from lab.charts.maps.figure import CELL
from lab.charts.maps.panel import Panel, shades
from lab.charts.maps.sentences import matrix_table
from lab.charts.maps.strip import TICKS
from lab.charts.vega import Spec, layer
from lab.shell.palette import MASK_OPACITY, Palette, palette


def twin(panel: Panel, title: str, *, marked: int | None = None, limit: float | None = None) -> Spec:
    """The same map in Vega-Lite and the light theme's colours. Arguments as those of ``figure``."""
    colors = palette("light")
    sums = "each row sums to 1, colour by the square root, " if panel.kind == "weights" else ""
    note = f"{sums}grey: masked" if panel.masked is not None else sums.removesuffix(", ")
    across: Spec = {"title": f"{panel.across} →", "orient": "top"}
    across |= {"labelAngle": -60} if panel.of_tokens else {"labels": False}
    axis = {"domain": False, "ticks": False, "labelColor": colors.ink, "titleColor": colors.gray}
    place = {
        "x": _axis("column", panel.columns, axis | across),
        "y": _axis("row", panel.rows, {**axis, "title": f"{panel.down} ↓"}),
    }
    grey = {"type": "rect", "color": colors.gray, "opacity": MASK_OPACITY}
    layers = [
        layer("masked", grey, place),
        layer("cells", {"type": "rect"}, {**place, "color": _color(panel, colors, limit)}),
    ]
    if marked is not None:
        outline = {"type": "rect", "filled": False, "stroke": colors.ink, "strokeWidth": 1.75}
        row = {"data": {"values": [{"row": panel.rows[marked]}]}, "mark": outline}
        layers.append(row | {"encoding": {"x": {"value": 0}, "x2": {"value": "width"}, "y": place["y"]}})
    return {
        "title": {"text": title, "subtitle": note, "anchor": "start", "color": colors.ink},
        "width": CELL * (len(panel.columns) if panel.of_tokens else len(panel.rows)),
        "height": CELL * len(panel.rows),
        "autosize": "pad",
        "config": {"view": {"stroke": None}},
        "layer": layers,
        "datasets": _records(panel),
    }


def _axis(field: str, names: Sequence[str], axis: Spec) -> Spec:
    return {"field": field, "type": "ordinal", "sort": None, "scale": {"domain": list(names)}, "axis": axis}


def _color(panel: Panel, colors: Palette, limit: float | None) -> Spec:
    """The same colours at the same values as on the page, and their key."""
    if panel.kind == "weights":
        scale, stops = colors.weights, [at for at, _ in colors.weights]
        ticks = [math.sqrt(tick) for tick in TICKS]
        told = "format(datum.value * datum.value, '.2~r')"
    else:
        end = panel.limit if limit is None else limit
        scale, stops = colors.scores, [(2 * at - 1) * end for at, _ in colors.scores]
        ticks, told = [-end, 0, end], "format(datum.value, '.3~r')"
    return {
        "field": "shade",
        "type": "quantitative",
        "scale": {"domain": stops, "range": [tint for _, tint in scale], "interpolate": "rgb"},
        "legend": {"title": panel.value_name, "values": ticks, "labelExpr": told, "gradientLength": 160},
    }


def numbers(panel: Panel) -> list[Sequence[object]]:
    """The whole map for a file: the first row names the keys, an empty cell is masked."""
    table = matrix_table(panel)
    rows = [
        (name, *("" if math.isnan(value) else float(value) for value in values))
        for name, values in zip(panel.rows, table.to_numpy(), strict=True)
    ]
    return [(f"{panel.down} \\ {panel.across}", *panel.columns), *rows]


def _records(panel: Panel) -> dict[str, list[Spec]]:
    """Cells as rows of data: those to be coloured, and those that are masked."""
    cells, masked = list[Spec](), list[Spec]()
    shaded = shades(panel)
    for at, row in enumerate(panel.rows):
        for column, shade in zip(panel.columns, shaded[at], strict=True):
            if math.isnan(shade):
                masked.append({"row": row, "column": column})
            else:
                cells.append({"row": row, "column": column, "shade": float(shade)})
    return {"cells": cells, "masked": masked}
