"""What stands above an attention map, as HTML: thumbnails to choose from, and the key of the colours.

Nothing happens where they are pointed at, so no chart is drawn for them: a browser shows these at once.
"""

import base64
import io
import math
from collections.abc import Collection, Mapping
from html import escape

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageColor

from lab.charts.maps.panel import Kind, Panel, shades
from lab.charts.maps.sentences import number
from lab.shell.palette import MASK_OPACITY, Palette

TICKS = (0, 0.067, 0.25, 0.5, 1)  # of the key of weights
_STRIP = "display:flex; align-items:end; gap:6px; font-size:13px; line-height:22px"
_THUMB = "margin:0; flex:0 1 72px; min-width:0; white-space:nowrap"
_PICTURE = "display:block; width:100%; aspect-ratio:1; image-rendering:pixelated; outline:"
_KEY = "display:flex; gap:8px; font-size:12px; line-height:14px; padding:6px 24px 26px 0"
_RAMP = "position:relative; width:176px; height:14px; background:linear-gradient(90deg, "
_TICK = "position:absolute; top:17px; transform:translateX(-50%); font-style:normal; color:"


def strip(panels: Mapping[str, Panel], chosen: Collection[str], colors: Palette) -> str:
    """Thumbnails in a row under their names, each made of the one before; the chosen ones outlined."""
    thumbs = []
    for name, panel in panels.items():
        here = name in chosen
        edge = f"1.75px solid {colors.ink}" if here else f"1px solid {colors.border}"
        title = f"<b>{escape(name)}</b>" if here else escape(name)
        picture = f"data:image/png;base64,{_png(pixels(panel, colors))}"
        thumbs.append(
            f'<figure style="{_THUMB}">{title}<img alt="" src="{picture}" style="{_PICTURE}{edge}"></figure>'
        )
    row, said = '<span style="padding-bottom:26px">→</span>'.join(thumbs), escape(", ".join(panels))
    return f'<div role="img" aria-label="{said}" style="{_STRIP}">{row}</div>'


def pixels(panel: Panel, colors: Palette) -> NDArray[np.uint8]:
    """A pixel a cell, red, green, blue and opacity. shape: -> (T, S, 4)"""
    stops = colors.weights if panel.kind == "weights" else colors.scores
    low = 0.0 if panel.kind == "weights" else -panel.limit
    at = (np.nan_to_num(shades(panel)) - low) / (panel.limit - low)
    places, tints = zip(*((place, ImageColor.getrgb(tint)) for place, tint in stops), strict=True)
    channels = [np.interp(at, places, channel) for channel in zip(*tints, strict=True)]
    found = np.stack([*channels, np.full(at.shape, 255.0)], axis=-1)
    if panel.masked is not None:
        found[panel.masked] = (*ImageColor.getrgb(colors.gray), 255 * MASK_OPACITY)
    return found.round().astype(np.uint8)


def _png(image: NDArray[np.uint8]) -> str:
    file = io.BytesIO()
    Image.fromarray(image).save(file, "png")
    return base64.b64encode(file.getvalue()).decode()


def key(kind: Kind, limit: float, colors: Palette, name: str) -> str:
    """The key of the colours: weights have one, scores another, and they never share.

    limit: where the colours of scores end. name: of what is coloured.
    """
    if kind == "weights":
        stops, at = colors.weights, [math.sqrt(tick) for tick in TICKS]
        said = [f"{tick:g}".removeprefix("0") or "0" for tick in TICKS]
    else:
        decimals = 0 if limit >= 100 else 1 if limit >= 10 else 2
        stops, at = colors.scores, [0, 0.5, 1]
        said = [number(-limit, decimals), "0", number(limit, decimals)]
    ramp = ", ".join(f"{tint} {place:.2%}" for place, tint in stops)
    ticks = [
        f'<i style="{_TICK}{colors.gray}; left:{place:.2%}">{text}</i>'
        for place, text in zip(at, said, strict=True)
    ]
    title = escape(name.capitalize() if name.isalpha() else name)
    return f'<div style="{_KEY}">{title}<div style="{_RAMP}{ramp})">{"".join(ticks)}</div></div>'
