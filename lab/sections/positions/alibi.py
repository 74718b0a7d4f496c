"""ALiBi's slopes for any number of heads, computed here: there is nothing to load for them."""

import math
from dataclasses import dataclass

from lab.charts import vega
from lab.charts.vega import COLOR, GRAY, Spec
from lab.words import count, quantity

MOST_HEADS = 16
HEIGHT = 300  # px
FARTHEST = 512  # tokens
_LOWEST, _HIGHEST = 2**-8.6, 1.15
_TICKS = tuple(2.0**-power for power in (0, 2, 4, 6, 8))


@dataclass(frozen=True)
class Slope:
    """One head's. between: taken from the next power of two, where the number of heads is none."""

    value: float
    between: bool

    @property
    def text(self) -> str:
        """ "1/4", or as a decimal where it is none of these."""
        exponent = -math.log2(self.value)
        return f"1/{2 ** round(exponent)}" if exponent.is_integer() else f"{self.value:.3f}"

    @property
    def half(self) -> float:
        """The distance at which a weight is half of what it would be without the penalty."""
        return math.log(2) / self.value


def slopes(heads: int) -> list[Slope]:
    """As the method's authors compute them, and ``engine.models.positions`` with torch."""
    lower = 1 << (heads.bit_length() - 1)
    of_lower = [Slope(2 ** (-8 * (i + 1) / lower), False) for i in range(lower)]
    of_higher = [Slope(2 ** (-4 * (i + 1) / lower), True) for i in range(0, 2 * lower, 2)]
    return of_lower + of_higher[: heads - lower]


def in_words(heads: int) -> str:
    """What the two charts show, in figures."""
    found = slopes(heads)
    own, between = ([one.text for one in found if one.between is kind] for kind in (False, True))
    if heads == 1:
        return f"One head: {own[0]}. It halves a weight every {quantity(found[0].half)} tokens."
    said = f"{count(heads).capitalize()} heads: {', '.join(own)}"
    if between:
        said += (
            f", then {', '.join(between)}. {heads} is no power of two: the first {count(len(own))} have the "
            f"slopes of {count(len(own))} heads, the others every second slope of {2 * len(own)}. The plain "
            f"formula, 2 to the power of −8h/{heads}, gives the grey ticks instead"
        )
    steep, flat = min(one.half for one in found), max(one.half for one in found)
    return (
        f"{said}. The steepest head halves a weight every {quantity(steep)} tokens, the flattest every "
        f"{quantity(flat)}."
    )


def slopes_chart(heads: int) -> Spec:
    """A dot a head: filled as its power of two has it, a ring from the next one; grey ticks: the formula."""
    found = slopes(heads)
    rows = [
        {
            "head": number,
            "slope": one.value,
            "slot": "green",
            "name": one.text,
            "kind": "between" * one.between,
        }
        for number, one in enumerate(found, start=1)
    ]
    plain = [{"head": h, "slope": 2 ** (-8 * h / heads)} for h in range(1, heads + 1)]
    x = _x("head", 0.4, MOST_HEADS + 0.6, [1, *range(4, MOST_HEADS + 1, 4)], "head")
    y = vega.y_axis("slope", {"type": "log", "base": 2, "domain": [_LOWEST, _HIGHEST]}, list(_TICKS))
    y["axis"]["labelExpr"] = "datum.value == 1 ? '1' : '1/' + round(1 / datum.value)"
    place = {"x": x, "y": y}
    hover = [{"field": "head"}, {"field": "slope", "format": ".5f"}]
    dot = {"type": "point", "size": 70, "opacity": 1, "strokeWidth": 2}
    is_own = {"transform": [{"filter": "datum.kind != 'between'"}]}
    tick = {"type": "tick", "color": GRAY, "thickness": 2, "width": 12, "orient": "horizontal"}
    layers = [
        *vega.levels(y, 0.4, MOST_HEADS + 0.6),
        vega.layer("plain", tick, place),
        {
            **vega.layer("slopes", {**dot, "filled": True}, {**place, "color": COLOR, "tooltip": hover}),
            **is_own,
        },
        vega.layer("slopes", dot, {**place, "color": COLOR, "tooltip": hover}, "between"),
    ]
    return vega.chart(HEIGHT, layers, {"slopes": rows, "plain": plain})


def reach_chart(heads: int) -> Spec:
    """What a weight is multiplied by, over the distance of its key: one curve a head."""
    at = sorted({round(2 ** (power / 8)) for power in range(0, 8 * 9 + 1)})
    found = slopes(heads)
    rows = [
        {"distance": d, "share": math.exp(-one.value * d), "head": number, "slot": "green",
         "dash": "dashed" if one.between else "solid"}
        for number, one in enumerate(found, start=1)
        for d in at
    ]  # fmt: skip
    x = vega.x_axis(
        "distance", FARTHEST, [1, 4, 16, 64, 256], "tokens between query and key", 1, log=True, gutter=0.06
    )
    y = vega.y_axis("share", {"domain": [0, 1]}, [0, 0.25, 0.5, 0.75, 1], ".0%")
    hover = [{"field": "head"}, {"field": "distance"}, {"field": "share", "format": ".1%"}]
    place = {"x": x, "y": y, "color": COLOR, "detail": {"field": "head"}}
    edge = {"x": {**x, "field": "distance"}, "y": {"value": 0}, "y2": {"value": "height"}}
    layers = [
        *vega.levels(y, 1, FARTHEST),
        vega.layer("edge", {"type": "rule", "color": GRAY, "strokeDash": [3, 3]}, edge),
        vega.layer(
            "edge",
            {"type": "text", "color": GRAY, "align": "left", "dx": 5, "dy": 8, "fontSize": 12},
            {**{"x": edge["x"], "y": {"value": 0}}, "text": {"field": "text"}},
        ),
        vega.layer("reach", {"type": "line", "strokeWidth": 2}, {**place, "strokeDash": vega.DASH}),
        vega.layer(
            "reach",
            {"type": "point", "filled": True, "size": 120, "opacity": 0},
            {**place, "tooltip": hover},
        ),
    ]
    edges = [{"distance": 64, "text": "as long as the trained window"}]
    return vega.chart(HEIGHT, layers, {"reach": rows, "edge": edges})


def _x(field: str, first: float, last: float, ticks: list[int], title: str) -> Spec:
    return vega.x_axis(field, last, ticks, title, first, gutter=0.04)
