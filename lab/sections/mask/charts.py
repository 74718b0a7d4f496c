"""The charts of the page on masks: a map of weights, a plot of mixtures, and two families of curves."""

import math
from collections.abc import Mapping
from functools import cache
from typing import Any

import altair as alt
import numpy as np
from numpy.typing import NDArray

from engine.probes.masks import TOKENS, VALUES, mix
from lab.charts import lines
from lab.charts.axes import BARE, COLOR, GRAY, INK, TEXT, dot, hover, note, rows
from lab.charts.drawing import Spec, compiled, fed
from lab.charts.lines import Across, Curve, Line, Plot
from lab.shell.styles import Style
from lab.words import MINUS, decimals

MAP, CURVES = 330, 239  # px; the second for the curves alone

# The fill's own scale, taken from the theme's one-hue ramp: by the square root, so that 1/6 is seen.
_FILL = alt.Fill(
    field="weight",
    type="quantitative",
    scale=alt.Scale(type="sqrt", domain=[0, 1], range="heatmap"),
    legend=None,
)
_NUMBER = alt.ExprRef("datum.weight > 0.3 ? scale('fill', 0) : scale('color', 'ink')")


def weights_map(weights: NDArray[np.floating], scores: NDArray[np.floating], *, causal: bool) -> Spec:
    """A 6 x 6 map with its numbers; a masked cell is flat grey, a weight of 0 is not."""
    seen, hidden = list[Spec](), list[Spec]()
    for t in range(TOKENS):
        for s in range(TOKENS):
            place: dict[str, Any] = {"query": t + 1, "key": s + 1}
            if causal and s > t:
                hidden.append({**place, "said": "masked"})
            else:
                weight = float(weights[t, s])
                said = f"{weight:.3f}"
                seen.append({**place, "weight": weight, "score": f"{scores[t, s]:g}", "said": said})
    return fed(_map(), ink=[{"slot": "ink"}], seen=seen, hidden=hidden)


@cache
def _map() -> Spec:
    def axis(field: str, **more: Any) -> dict[str, Any]:
        across = alt.Axis(labelAngle=0, titleAnchor="start", **BARE, **more)
        scale = alt.Scale(domain=list(range(1, TOKENS + 1)), paddingInner=0)
        return {"field": field, "type": "ordinal", "scale": scale, "axis": across}

    x = alt.X(**axis("key", orient="top", title="key →"))
    y = alt.Y(**axis("query", title="query"))
    seen, hidden = rows("seen").encode(x, y), rows("hidden").encode(x, y)
    weight = alt.Tooltip(field="said", title="weight")
    told = [*hover("query", "key"), weight, *hover("score")]
    return compiled(
        MAP,
        # Invisible, and there so that the scale of slots exists, which every other tint is taken from.
        rows("ink").mark_point(opacity=0).encode(color=COLOR),
        hidden.mark_rect(fill=GRAY, opacity=0.18).encode(tooltip=[*hover("query", "key"), weight]),
        seen.mark_rect().encode(fill=_FILL, tooltip=told),
        note(seen, "said", color=_NUMBER, fontSize=TEXT).encode(tooltip=told),
    )


def mixture_plot(mixed: NDArray[np.floating]) -> Spec:
    """The six values at the corners of a hexagon, and the mean that each query makes of them."""
    corners, means = (
        [
            {"x": float(x), "y": float(y), "name": str(at), "slot": "green"}
            for at, (x, y) in enumerate(points, 1)
        ]
        for points in (VALUES, mixed)
    )
    return fed(_hexagon(), values=corners, means=means)


@cache
def _hexagon() -> Spec:
    scale = alt.Scale(domain=[-1.3, 1.3], nice=False)
    x = alt.X(field="x", type="quantitative", scale=scale, axis=None)
    y = alt.Y(field="y", type="quantitative", scale=scale, axis=None)
    values, means = rows("values").encode(x, y), rows("means").encode(x, y)
    told = hover("name", x=".3f", y=".3f")
    return compiled(
        MAP,
        values.mark_point(size=260, color=GRAY, strokeWidth=1.25, opacity=1).encode(tooltip=told),
        note(values, "name", fontSize=TEXT),
        dot(means, 70).encode(color=COLOR, tooltip=told),
        note(means, "name", fontSize=TEXT, color=INK, dx=10, dy=-6),
    )


TIMES = ("0.1", "0.2", "0.5", "1", "2", "5", "10", "20", "50", "100")


def hardening_chart(scores: NDArray[np.floating], times: float, *, causal: bool) -> Spec:
    """Effective tokens of the last row over what its scores are multiplied by."""
    at = np.unique(np.append(np.geomspace(0.1, 100, 61), times))
    mixtures = [mix(scores, float(factor), causal=causal) for factor in at]
    curves: dict[tuple[str, str], list[float]] = {
        ("softmax", "green"): [float(one.effective[-1]) for one in mixtures],
        ("linear layer", "gray"): [float(one.linear_effective[-1]) for one in mixtures],
    }
    plot = Plot(
        steps=100, low=0.9, high=TOKENS + 0.15, field="tokens", log=False, height=CURVES,
        ticks=tuple(range(1, TOKENS + 1)),
        across=_log("times", 0.1, "scores multiplied by", (0.1, 1, 10, 100)),
        shown=decimals(2),
    )  # fmt: skip
    drawn = [
        Line(name, Style(slot), (Curve(tuple(zip(map(float, at), counts, strict=True))),), here=times)
        for (name, slot), counts in curves.items()
        if not math.isnan(counts[0])
    ]
    return lines.line_chart(plot, drawn)


CONSTANTS = {
    "-inf": ("−inf", Style("green")),
    "-1e9": ("−1e9", Style("orange", "dashed")),
    "-1e4": ("−1e4", Style("violet", "dashed")),
}
TOP_LEAK = 0.26


def leak_chart(leaks: Mapping[str, Mapping[float, float | None]], size: float) -> Spec:
    """Mean weight on what is ahead over the size of the scores, a curve a mask value, for one type.

    A curve ends in a cross where the next size has no figure.
    """
    sizes = [one for by_size in leaks.values() for one in by_size]
    plot = Plot(
        steps=int(max(sizes)), low=-0.007, high=TOP_LEAK, field="leak", log=False, height=CURVES,
        ticks=(0, 0.05, 0.1, 0.15, 0.2, 0.25), form=".2f",
        across=_log("size", min(sizes), "size of the scores", (1, 1e2, 1e4, 1e6, 1e8, 1e10)),
        shown=decimals(3),
    )  # fmt: skip
    drawn = []
    for value, by_size in leaks.items():
        known = tuple((one, leak) for one, leak in by_size.items() if leak is not None)
        drawn.append(Line(*CONSTANTS[value], (Curve(known, len(known) < len(by_size)),), here=size))
    return lines.line_chart(plot, drawn)


def _log(field: str, first: float, title: str, ticks: tuple[float, ...]) -> Across:
    return Across(field, title, first, log=True, ticks=ticks, form=",~r", texts=tuple(map(_short, ticks)))


def _short(value: float) -> str:
    return f"{value:,g}" if value < 1e5 else f"1e{round(math.log10(value))}".replace("-", MINUS)
