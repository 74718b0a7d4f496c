"""A chart on its way to the page or to a file: compiled from Altair once a frame, fed its rows at every tick.

The specification depends on the frame alone and the rows are named data beside it, so that the browser keeps
the drawing and moves its marks. Colours are taken from the page's theme when it is drawn (``axes``).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import altair as alt

Spec = dict[str, Any]  # of Vega-Lite, with the rows of its named data
Rows = Sequence[Mapping[str, Any]]

NOTHING: Rows = ({"kind": ""},)  # a table of no columns could not be sent; no layer draws this row


_GRAY = {"expr": "scale('color', 'gray')"}
THEME: Spec = {  # what all charts have in common
    "config": {
        "axis": {
            "labelColor": _GRAY,
            "titleColor": _GRAY,
            "tickColor": _GRAY,
            "labelFontSize": 13,
            "titleFontSize": 13,
            "titleFontWeight": "normal",
            "labelPadding": 5,
            "titlePadding": 6,
        },
        "view": {"stroke": None},
    }
}


def compiled(height: int, *layers: alt.Chart) -> Spec:
    """The specification of layers over named data, the first one lowest; ``fed`` gives it rows.

    It takes some 30 ms, so a caller that draws at every tick keeps it. ``alt.layer`` copies every layer four
    times, and checking takes longer still: it is left to the tests.
    """
    with alt.data_transformers.enable(consolidate_datasets=False):
        drawn = [layer.to_dict(validate=False, context={"top_level": False}) for layer in layers]
    return {"height": height, "layer": drawn, **THEME}


def fed(spec: Spec, **rows: Rows) -> Spec:
    """The chart with the rows of its named data."""
    return {**spec, "datasets": {name: list(found or NOTHING) for name, found in rows.items()}}


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


def together(parts: Mapping[str, Spec], direction: Literal["hconcat", "vconcat"]) -> Spec:
    """Several charts as one, for a file. parts: by names that keep their data apart; each has its width."""
    drawn, datasets = list[Spec](), dict[str, Any]()
    for name, spec in parts.items():
        datasets |= {f"{name}.{data}": rows for data, rows in spec["datasets"].items()}
        own = {key: value for key, value in spec.items() if key not in ("config", "datasets")}
        drawn.append({**own, "layer": [_renamed(layer, name) for layer in spec["layer"]]})
    resolve = {"scale": {"color": "shared", "strokeDash": "shared"}}
    return {direction: drawn, "resolve": resolve, "datasets": datasets, **THEME}


def _renamed(layer: Spec, part: str) -> Spec:
    data = layer["data"]
    return {**layer, "data": {"name": f"{part}.{data['name']}"}} if "name" in data else layer
