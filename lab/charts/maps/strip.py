"""What stands above an attention map: thumbnails to choose from, and the key of the colours."""

import math
from collections.abc import Collection, Mapping
from html import escape
from typing import Any

import numpy as np

from lab.charts.maps.figure import PAPER, SMALL, WIDTH, bare, scale, traces
from lab.charts.maps.panel import Kind, Panel
from lab.charts.maps.sentences import number
from lab.shell.palette import Palette

THUMB, GAP, NAME = 72, 34, 22  # px: a thumbnail's side, most between two, the line above it
TICKS = (0, 0.067, 0.25, 0.5, 1)  # of the key of weights
KEY_WIDTH, KEY_HEIGHT = 260, 46  # px


def strip(panels: Mapping[str, Panel], chosen: Collection[str], colors: Palette) -> Any:
    """Thumbnails in a row under their names, each made of the one before; the chosen ones outlined."""
    import plotly.graph_objects as go

    step = min(THUMB + GAP, (WIDTH - THUMB - 2) / max(len(panels) - 1, 1))
    side = min(THUMB, step - 8)
    layout = {**bare(colors, WIDTH, round(NAME + side + 3)), "margin": {"l": 1, "r": 1, "t": NAME, "b": 2}}
    font = {"font": {"size": SMALL + 1, "color": colors.ink}}
    cells, notes, shapes = [], [], []
    for place, (name, panel) in enumerate(panels.items(), start=1):
        axes = {"xaxis": f"x{place}", "yaxis": f"y{place}"}
        start, end = (place - 1) * step / (WIDTH - 2), ((place - 1) * step + side) / (WIDTH - 2)
        tall, wide = panel.values.shape
        hidden = {"visible": False, "fixedrange": True}
        layout[f"xaxis{place}"] = {**hidden, "domain": [start, min(end, 1)], "range": [-0.5, wide - 0.5]}
        layout[f"yaxis{place}"] = {**hidden, "range": [tall - 0.5, -0.5]}
        cells += [{**trace, **axes, "hoverinfo": "skip"} for trace in traces(panel, colors, names=False)]
        here = name in chosen
        text = {"text": f"<b>{escape(name)}</b>" if here else escape(name), "x": start, "y": 1}
        notes.append({**PAPER, **font, **text, "xanchor": "left", "yanchor": "bottom"})
        if place > 1:
            between = start - (step - side) / 2 / (WIDTH - 2)
            notes.append({**PAPER, **font, "text": "→", "x": between, "y": 0.5, "xanchor": "center"})
        line = {"color": colors.ink if here else colors.border, "width": 1.75 if here else 1}
        edges = {"x0": -0.5, "x1": wide - 0.5, "y0": -0.5, "y1": tall - 0.5}
        shapes.append({"type": "rect", "xref": axes["xaxis"], "yref": axes["yaxis"], **edges, "line": line})
    return go.Figure(data=cells, layout={**layout, "annotations": notes, "shapes": shapes})


def key(kind: Kind, limit: float, colors: Palette, name: str) -> Any:
    """The key of the colours: weights have one, scores another, and they never share.

    limit: where the colours of scores end. name: of what is coloured.
    """
    import plotly.graph_objects as go

    if kind == "weights":
        low, at = 0, [math.sqrt(tick) for tick in TICKS]
        said = [f"{tick:g}".removeprefix("0") or "0" for tick in TICKS]
    else:
        decimals = 0 if limit >= 100 else 1 if limit >= 10 else 2
        low, at = -1, [-1, 0, 1]
        said = [number(-limit, decimals), "0", number(limit, decimals)]
    along = np.linspace(low, 1, 121, dtype=np.float32)
    ramp = {"type": "heatmap", "z": along[None, :], "x": along, "y": [0], "hoverinfo": "skip"}
    title = escape(name.capitalize() if name.isalpha() else name)
    text = {"text": title, "x": 0, "xanchor": "right", "xshift": -8}
    bar = {"tickvals": at, "ticktext": said, "ticks": "", "showgrid": False, "zeroline": False}
    layout = {
        **bare(colors, KEY_WIDTH, KEY_HEIGHT),
        "margin": {"l": 60, "r": 24, "t": 6, "b": 26, "pad": 0},
        "xaxis": {**bar, "fixedrange": True, "tickfont": {"size": SMALL, "color": colors.gray}},
        "yaxis": {"visible": False, "fixedrange": True},
        "annotations": [{**PAPER, **text, "y": 1, "yanchor": "top"}],
    }
    return go.Figure(data=[{**ramp, **scale(kind, 1.0, colors)}], layout=layout)
