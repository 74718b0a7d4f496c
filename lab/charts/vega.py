"""Pieces of Vega-Lite that every chart of the lab is made of.

Colours are names of slots in the theme's categorical palette, and every other tint is taken from that same
scale, so a chart follows a change between light and dark by itself and no colour stands in the code.
"""

from collections.abc import Callable, Sequence
from typing import Any, Literal

SLOTS = ("ink", "gray", "red", "orange", "green", "sky", "blue", "violet")
DASHES = {"solid": [1, 0], "dashed": [6, 4], "dotted": [2, 3]}
GUTTER = 0.32  # of the x axis' width, right of its end: values and names
GRAY, INK = {"expr": "scale('color', 'gray')"}, {"expr": "scale('color', 'ink')"}

Spec = dict[str, Any]


COLOR: Spec = {"field": "slot", "type": "nominal", "scale": {"domain": list(SLOTS)}, "legend": None}
DASH: Spec = {
    "field": "dash",
    "type": "nominal",
    "scale": {"domain": list(DASHES), "range": list(DASHES.values())},
    "legend": None,
}
_AXIS = {"labelColor": GRAY, "titleColor": GRAY, "tickColor": GRAY, "labelFontSize": 13, "titleFontSize": 13}


def chart(height: int, layers: list[Spec], datasets: dict[str, list[Spec]]) -> Spec:
    """A chart of layers over named data: with the same layers, new data redraw nothing but the marks."""
    return {
        "height": height,
        "config": {"axis": {**_AXIS, "labelPadding": 5, "titlePadding": 6}, "view": {"stroke": None}},
        "layer": layers,
        "datasets": datasets,
    }


def draw(spec: Spec, key: str, on_select: Callable[[], None] | Literal["ignore"] = "ignore") -> None:
    """Put a chart on the page. Its data go as Arrow, five times as fast as through Streamlit's own way.

    It is as wide as what holds it. on_select: called when one of its parameters is used to select something.
    """
    import pyarrow as pa
    import streamlit as st

    datasets = {}
    for name, rows in spec["datasets"].items():
        table = pa.Table.from_pylist(rows)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as stream:
            stream.write_table(table)
        datasets[name] = sink.getvalue().to_pybytes()
    st.vega_lite_chart({**spec, "datasets": datasets}, height=spec["height"], key=key, on_select=on_select)


def x_axis(
    field: str,
    last: float,
    ticks: Sequence[float],
    title: str,
    first: float = 0,
    *,
    log: bool = False,
    gutter: float = GUTTER,
    form: str = ",d",
) -> Spec:
    """The horizontal position: from ``first`` to ``last``, then the gutter. log: for widths, not steps."""
    end = first * (last / first) ** (1 + gutter) if log else first + (last - first) * (1 + gutter)
    kind = {"type": "log"} if log else {}
    return {
        "field": field,
        "type": "quantitative",
        "scale": {**kind, "domain": [first, end], "nice": False},
        "axis": {
            "values": list(ticks),
            "format": form,
            "title": title,
            "titleAnchor": "start",
            "titleFontWeight": "normal",
            "grid": False,
            "domain": False,
            "ticks": True,
            "tickSize": 4,
            "labelBound": False,
            "labelFlush": False,
            "labelOverlap": "greedy",
        },
    }


def y_axis(field: str, scale: Spec, ticks: list[float], form: str = "~r") -> Spec:
    """The vertical position, its bounds fixed; its rules are a layer of their own (``levels``)."""
    axis = {"values": ticks, "format": form, "title": None, "grid": False, "domain": False, "ticks": False}
    return {"field": field, "type": "quantitative", "scale": {**scale, "nice": False}, "axis": axis}


def layer(data: str, mark: Spec, encoding: dict[str, Any], kind: str = "") -> Spec:
    """One layer over a named dataset. kind: keep only the rows whose ``kind`` it is."""
    only = {"transform": [{"filter": f"datum.kind == '{kind}'"}]} if kind else {}
    return {"data": {"name": data}, **only, "mark": mark, "encoding": encoding}


def levels(y: Spec, first: float, last: float) -> list[Spec]:
    """Faint rules at the axis' values, and the floor, all ending where the x axis ends."""
    span = {"x": {"datum": first}, "x2": {"datum": last}}
    rows = [{y["field"]: value} for value in y["axis"]["values"]]
    faint = {"type": "rule", "color": GRAY, "opacity": 0.2}
    floor = {"type": "rule", "color": GRAY, "opacity": 0.6}
    return [
        {"data": {"values": rows}, "mark": faint, "encoding": {**span, "y": y}},
        {"data": {"values": [{}]}, "mark": floor, "encoding": {**span, "y": {"value": "height"}}},
    ]


def gutter(y: Spec, last: float) -> list[Spec]:
    """Right of the last step, from the dataset "gutter": the value in bold, a dot, the name, at ``at``."""
    place = {"x": {"datum": last}, "y": {**y, "field": "at"}}
    text = {"type": "text", "color": INK, "fontSize": 13}
    dot = {"type": "text", "text": "●", "fontSize": 18, "align": "left", "dx": 61}
    bold = {**text, "align": "right", "fontWeight": 600, "dx": 56}
    return [
        layer("gutter", bold, {**place, "text": {"field": "value"}}),
        layer("gutter", dot, {**place, "color": COLOR}),
        layer("gutter", {**text, "align": "left", "dx": 76}, {**place, "text": {"field": "name"}}),
    ]
