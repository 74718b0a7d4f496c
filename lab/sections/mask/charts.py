"""The charts of the page on masks: a map of weights, a plot of mixtures, and two families of curves."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.probes.masks import TOKENS, VALUES, mix
from lab.charts import vega
from lab.charts.lines import LABEL_GAP, apart
from lab.charts.vega import COLOR, GRAY, INK, Spec
from lab.words import MINUS

MAP, CURVES = 330, 300  # px
_BELOW = 61  # px that an axis with its title takes of a chart's height

# The fill's own scale, taken from the theme's one-hue ramp: by the square root, so that 1/6 is seen.
_FILL: Spec = {
    "field": "weight",
    "type": "quantitative",
    "scale": {"type": "sqrt", "domain": [0, 1], "range": "heatmap"},
    "legend": None,
}
_NUMBER = {"expr": "datum.weight > 0.3 ? scale('fill', 0) : scale('color', 'ink')"}


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
    order = list(range(1, TOKENS + 1))
    axis = {"grid": False, "domain": False, "ticks": False, "labelAngle": 0, "titleFontWeight": "normal"}
    x = {"field": "key", "type": "ordinal", "scale": {"domain": order, "paddingInner": 0}}
    y = {"field": "query", "type": "ordinal", "scale": {"domain": order, "paddingInner": 0}}
    axes: Spec = {
        "x": {**x, "axis": {**axis, "orient": "top", "title": "key →", "titleAnchor": "start"}},
        "y": {**y, "axis": {**axis, "title": "query", "titleAnchor": "start"}},
    }
    hover = [{"field": name} for name in ("query", "key")]
    told = [*hover, {"field": "said", "title": "weight"}, {"field": "score", "title": "score"}]
    number = {"type": "text", "color": _NUMBER, "fontSize": 13}
    gray = {"type": "rect", "fill": GRAY, "opacity": 0.18}
    layers = [
        # Invisible, and there so that the scale of slots exists, which every other tint is taken from.
        vega.layer("ink", {"type": "point", "opacity": 0}, {"color": COLOR}),
        vega.layer("hidden", gray, {**axes, "tooltip": [*hover, {"field": "said", "title": "weight"}]}),
        vega.layer("seen", {"type": "rect"}, {**axes, "fill": _FILL, "tooltip": told}),
        vega.layer("seen", number, {**axes, "text": {"field": "said"}, "tooltip": told}),
    ]
    datasets = {"ink": [{"slot": "ink"}], "seen": seen, "hidden": hidden or [{"said": ""}]}
    return vega.chart(MAP, layers, datasets)


def mixture_plot(mixed: NDArray[np.floating]) -> Spec:
    """The six values at the corners of a hexagon, and the mean that each query makes of them."""
    corners = [{"x": float(x), "y": float(y), "name": str(s + 1)} for s, (x, y) in enumerate(VALUES)]
    means = [
        {"x": float(x), "y": float(y), "name": str(t + 1), "slot": "green"} for t, (x, y) in enumerate(mixed)
    ]
    plain: Spec = {"type": "quantitative", "scale": {"domain": [-1.3, 1.3], "nice": False}, "axis": None}
    place = {"x": {"field": "x", **plain}, "y": {"field": "y", **plain}}
    hover = [{"field": "name"}, {"field": "x", "format": ".3f"}, {"field": "y", "format": ".3f"}]
    ring = {"type": "point", "size": 260, "color": GRAY, "strokeWidth": 1.25, "opacity": 1}
    label = {"type": "text", "fontSize": 13}
    layers = [
        vega.layer("values", ring, {**place, "tooltip": hover}),
        vega.layer("values", {**label, "color": GRAY}, {**place, "text": {"field": "name"}}),
        vega.layer(
            "means",
            {"type": "point", "filled": True, "size": 70, "opacity": 1},
            {**place, "color": COLOR, "tooltip": hover},
        ),
        vega.layer(
            "means", {**label, "color": INK, "dx": 10, "dy": -6}, {**place, "text": {"field": "name"}}
        ),
    ]
    return vega.chart(MAP, layers, {"values": corners, "means": means})


TIMES = ("0.1", "0.2", "0.5", "1", "2", "5", "10", "20", "50", "100")


def hardening_chart(scores: NDArray[np.floating], times: float, *, causal: bool) -> Spec:
    """Effective tokens of the last row over what its scores are multiplied by."""
    at = np.unique(np.append(np.geomspace(0.1, 100, 61), times))
    mixtures = [mix(scores, float(factor), causal=causal) for factor in at]
    curves: dict[tuple[str, str], list[float]] = {
        ("softmax", "green"): [float(one.effective[-1]) for one in mixtures],
        ("linear layer", "gray"): [float(one.linear_effective[-1]) for one in mixtures],
    }
    rows, ends = list[dict[str, Any]](), list[dict[str, Any]]()
    here = int(np.argmin(np.abs(at - times)))
    for (name, slot), counts in curves.items():
        if math.isnan(counts[0]):
            continue
        look = {"slot": slot, "name": name}
        rows += [
            {**look, "times": float(factor), "tokens": value, "kind": "here" * (i == here)}
            for i, (factor, value) in enumerate(zip(at, counts, strict=True))
        ]
        ends.append({**look, "at": counts[-1], "value": f"{counts[here]:.2f}"})
    y = vega.y_axis("tokens", {"domain": [1, TOKENS]}, list(map(float, range(1, TOKENS + 1))))
    _part(ends, lambda value: (TOKENS - value) / (TOKENS - 1), lambda share: TOKENS - share * (TOKENS - 1))
    x = _log_x("times", 0.1, 100, [0.1, 1, 10, 100], "scores multiplied by")
    return vega.chart(CURVES, _curves(x, y, 0.1, 100), {"curves": rows, "gutter": ends})


CONSTANTS = {"-inf": ("−inf", "green", "solid"), "-1e9": ("−1e9", "orange", "dashed"),
             "-1e4": ("−1e4", "violet", "dashed")}  # fmt: skip
TOP_LEAK = 0.25


def leak_chart(leaks: Mapping[str, Mapping[float, float | None]], size: float) -> Spec:
    """Mean weight on what is ahead over the size of the scores, a curve a mask value, for one type."""
    rows, ends = list[dict[str, Any]](), list[dict[str, Any]]()
    sizes = [one for by_size in leaks.values() for one in by_size]
    first, last = min(sizes), max(sizes)
    for value, by_size in leaks.items():
        name, slot, dash = CONSTANTS[value]
        known = [(one, leak) for one, leak in by_size.items() if leak is not None]
        look = {"slot": slot, "name": name, "dash": dash}
        for i, (one, leak) in enumerate(known):
            ended = i == len(known) - 1 and len(known) < len(by_size)
            kind = "here" if one == size else "cross" if ended else ""
            rows.append({**look, "size": one, "leak": leak, "kind": kind})
        now = by_size.get(size)
        ends.append(
            {**look, "at": known[-1][1] if known else 0.0, "value": "–" if now is None else f"{now:.3f}"}
        )
    y = vega.y_axis("leak", {"domain": [0, TOP_LEAK]}, [0, 0.05, 0.1, 0.15, 0.2, 0.25], ".2f")
    _part(ends, lambda leak: 1 - leak / TOP_LEAK, lambda share: (1 - share) * TOP_LEAK)
    x = _log_x("size", first, last, [10.0**power for power in range(0, 11, 2)], "size of the scores")
    return vega.chart(CURVES, _curves(x, y, first, last), {"curves": rows or [{"kind": ""}], "gutter": ends})


def _curves(x: Spec, y: Spec, first: float, last: float) -> list[Spec]:
    place = {"x": x, "y": y, "color": COLOR}
    hover = [
        {"field": "name"},
        {"field": x["field"], "format": ",~r"},
        {"field": y["field"], "format": ".3f"},
    ]
    line = {"type": "line", "strokeWidth": 2.25}
    dot = {"type": "point", "filled": True, "size": 70, "opacity": 1}
    unseen = {"type": "point", "filled": True, "size": 160, "opacity": 0}  # to be pointed at
    cross = {"type": "point", "shape": "M-1,-1L1,1M-1,1L1,-1", "size": 60, "strokeWidth": 2, "opacity": 1}
    return [
        *vega.levels(y, first, last),
        vega.layer("curves", line, {**place, "strokeDash": vega.DASH}),
        vega.layer("curves", unseen, {**place, "tooltip": hover}),
        vega.layer("curves", dot, place, "here"),
        vega.layer("curves", cross, place, "cross"),
        *vega.gutter(y, last),
    ]


def _log_x(field: str, first: float, last: float, ticks: Sequence[float], title: str) -> Spec:
    x = vega.x_axis(field, last, [], title, first)
    labels = "[" + ", ".join(f"'{_short(tick)}'" for tick in ticks) + "]"
    x["scale"] = {
        "type": "log",
        "domain": [first, first * (last / first) ** (1 + vega.GUTTER)],
        "nice": False,
    }
    found = f"{labels}[indexof({[float(tick) for tick in ticks]}, datum.value)]"
    x["axis"] = {**x["axis"], "values": list(ticks), "labelExpr": found}
    return x


def _short(value: float) -> str:
    return f"{value:,g}" if value < 1e5 else f"1e{round(math.log10(value))}".replace("-", MINUS)


def _part(ends: list[dict[str, Any]], down: Any, up: Any) -> None:
    """Move the names in the gutter 18 px apart. down: a value's share of the plot from its top; up: back."""
    height = CURVES - _BELOW
    moved = apart([down(row["at"]) * height for row in ends], LABEL_GAP, height)
    for row, pixel in zip(ends, moved, strict=True):
        row["at"] = up(pixel / height)
