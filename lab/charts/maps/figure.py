"""Attention maps: rows are queries from top to bottom, columns are keys. Plain arrays in, figures out.

Weights have one hue, fixed from 0 to 1 everywhere, coloured by their square root so that a uniform 0.067 is
visible; scores and differences have two hues about 0. What is masked is flat grey: a real 0.00 is not.
Shapes: T query position, S key position.
"""

import math
from collections.abc import Sequence
from html import escape
from typing import Any

import numpy as np

from lab.charts.maps.panel import Array, Kind, Panel, shades
from lab.shell.palette import MASK_OPACITY, Palette

WIDTH, CELL = 544, 20  # px
FONT = '"Source Sans", sans-serif'
SMALL = 12
PAPER = {"xref": "paper", "yref": "paper", "showarrow": False}  # of what is written beside the cells
_CHAR, _TILT = 6.4, math.radians(60)  # px of a label's character, and how steep the keys' labels stand


def figure(
    panel: Panel,
    colors: Palette,
    *,
    marked: int | None = None,
    limit: float | None = None,
    width: int = WIDTH,
) -> Any:
    """The map as a Plotly figure. marked: a row to outline; limit: a common end of the colours of scores."""
    import plotly.graph_objects as go

    left = _CHAR * max(len(_corner(panel)), *map(len, panel.rows)) + 10
    slanted = _CHAR * max(map(len, panel.columns)) + 10
    tall, wide, square = len(panel.rows), len(panel.columns), panel.of_tokens
    top = slanted * math.sin(_TILT) + 6 if square else 24
    right = max(8.0, slanted * math.cos(_TILT) - CELL / 2)
    own = panel.rows == panel.columns  # the marked query is a key as well
    cell = min(CELL, (width - left - right) / (wide if square else tall))
    plot_width = cell * wide if square else width - left - right
    layout = {
        **bare(colors, width, round(top + cell * tall + 8)),
        "margin": {"l": left, "t": top, "b": 8, "r": max(0, width - left - plot_width), "pad": 0},
        "xaxis": _axis(panel.columns, cell if square else plot_width / wide / 2, marked if own else None)
        | {"side": "top", "tickangle": -60 if square else 0},
        "yaxis": _axis(panel.rows, cell, marked) | {"range": [tall - 0.5, -0.5]},
        "annotations": [_corner_note(panel, colors)],
        "shapes": [] if marked is None else [_outline(panel, marked, colors)],
    }
    gap = 1 if cell >= 10 and square else 0
    return go.Figure(data=traces(panel, colors, limit, gap), layout=layout)


def draw(made: Any, element: str, colors: Palette, *, said: str = "") -> None:
    """Put a figure on the page. Its key carries the theme, or a switch would leave the old colours.

    said: what it shows, for those who do not see it.
    """
    import streamlit as st

    config = {"displayModeBar": False, "scrollZoom": False, "doubleClick": False}
    width, height = int(made.layout.width), int(made.layout.height)
    key, alt = f"{element}.{colors.name}", said or None
    st.plotly_chart(made, width=width, height=height, theme=None, key=key, config=config, alt=alt)


def scale(kind: Kind, limit: float, colors: Palette) -> dict[str, Any]:
    """Colours, fixed from 0 to 1 or symmetric about 0: never between the data’s own ends."""
    stops = colors.weights if kind == "weights" else colors.scores
    low = 0.0 if kind == "weights" else -limit
    return {"zmin": low, "zmax": limit, "colorscale": [list(stop) for stop in stops], "showscale": False}


def traces(
    panel: Panel, colors: Palette, limit: float | None = None, gap: int = 0, *, names: bool = True
) -> list[dict[str, Any]]:
    """The cells, and what is masked, each blind to the other's."""
    places = {"x": _texts(panel.columns), "y": _texts(panel.rows)} if names else {}
    common = {"type": "heatmap", **places, "hoverongaps": False, "zsmooth": False}
    end = panel.limit if limit is None or panel.kind == "weights" else limit
    told, template = _hover(panel)
    cells = {**common, "z": shades(panel), **scale(panel.kind, end, colors), "xgap": gap, "ygap": gap}
    if names:
        cells |= {"customdata": told, "hovertemplate": template}
    if panel.masked is None or not panel.masked.any():
        return [cells]
    flat = np.where(panel.masked, np.float32(1), np.float32("nan"))
    grey = {"zmin": 0, "zmax": 1, "colorscale": [[0, colors.gray], [1, colors.gray]], "showscale": False}
    said = f"{_pointed(panel)}masked<extra></extra>"
    mask = {**common, "z": flat, **grey, "opacity": MASK_OPACITY}
    return [cells, {**mask, "hovertemplate": said} if names else mask]


def _pointed(panel: Panel) -> str:
    return f"{panel.down} <b>%{{y}}</b><br>{panel.across} <b>%{{x}}</b><br>"


def _hover(panel: Panel) -> tuple[Array, str]:
    """The numbers behind each cell, and the template that words them. shape: -> (T, S, numbers)"""
    form = ".3f" if panel.kind == "weights" else ".2f"
    told = {panel.value_name: (panel.values, form), **panel.more}
    stacked = np.stack([np.broadcast_to(v, panel.values.shape) for v, _ in told.values()], axis=-1)
    lines = [f"{name} %{{customdata[{at}]:{form}}}" for at, (name, (_, form)) in enumerate(told.items())]
    return stacked.astype(np.float32), f"{_pointed(panel)}{'<br>'.join(lines)}<extra></extra>"


def _texts(names: Sequence[str]) -> list[str]:
    """Labels that Plotly takes for no markup of its own."""
    return [escape(name, quote=False) for name in names]


def _axis(names: Sequence[str], cell: float, marked: int | None) -> dict[str, Any]:
    """Labels at every cell that has room for one; the marked one bold."""
    texts = _texts(names)
    every = max(1, math.ceil(13 / cell))
    shown = sorted({*range(0, len(texts), every), *([] if marked is None else [marked])})
    if marked is not None and every > 1:
        shown = [at for at in shown if at == marked or abs(at - marked) >= every]
    return {
        "type": "category",
        "tickvals": [texts[at] for at in shown],
        "ticktext": [f"<b>{texts[at]}</b>" if at == marked else texts[at] for at in shown],
        "range": [-0.5, len(texts) - 0.5],
        "ticks": "",
        "showgrid": False,
        "zeroline": False,
        "fixedrange": True,
    }


def _corner(panel: Panel) -> str:
    """What the axes are."""
    return f"{panel.down} ↓  {panel.across} →"


def _corner_note(panel: Panel, colors: Palette) -> dict[str, Any]:
    place = {"x": 0, "y": 1, "xanchor": "right", "yanchor": "bottom", "xshift": -4, "yshift": 6}
    return {**PAPER, **place, "text": _corner(panel), "font": {"size": SMALL, "color": colors.gray}}


def _outline(panel: Panel, row: int, colors: Palette) -> dict[str, Any]:
    """Around the part of a row that is not masked."""
    last = int(np.flatnonzero(panel.seen(row)).max(initial=0))
    corners = {"x0": -0.5, "x1": last + 0.5, "y0": row - 0.5, "y1": row + 0.5}
    return {"type": "rect", **corners, "line": {"color": colors.ink, "width": 1.75}}


def bare(colors: Palette, width: int, height: int) -> dict[str, Any]:
    clear = "rgba(0,0,0,0)"
    hover = {"bgcolor": colors.paper, "bordercolor": colors.border, "align": "left"}
    font = {"family": FONT, "size": SMALL, "color": colors.ink}
    return {
        "width": width,
        "height": height,
        "paper_bgcolor": clear,
        "plot_bgcolor": clear,
        "font": font,
        "hoverlabel": {**hover, "font": {**font, "size": SMALL + 1}},
        "dragmode": False,
        "showlegend": False,
    }
