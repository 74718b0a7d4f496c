"""ALiBi's slopes for any number of heads, computed here: there is nothing to load for them."""

import math
from dataclasses import dataclass
from functools import cache

import streamlit as st

from lab.bench import HALF
from lab.charts import lines, panels
from lab.charts.axes import COLOR, GRAY, dot, hover, levels, rows, x_axis, y_axis
from lab.charts.drawing import Spec, compiled, fed
from lab.charts.lines import BELOW, Across, Curve, Line, Plot, edge
from lab.shell import frame
from lab.shell.styles import Style
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


def draw(heads: int) -> None:
    """The slopes of that many heads and what they leave, side by side; then in words."""
    with st.container(horizontal=True, gap="medium", key="figure-slopes"):
        note = "log scale; grey: the plain formula"
        panels.titled("positions.slopes", "Slope of each head", note, slopes_chart(heads), HALF)
        title = "What the penalty leaves of a weight"
        panels.titled(
            "positions.reach", title, "a line a head, before normalisation", reach_chart(heads), HALF
        )
    st.markdown(in_words(heads), width=frame.MEASURE)


def slopes_chart(heads: int) -> Spec:
    """A dot a head: filled as its power of two has it, a ring from the next one; grey ticks: the formula."""
    found = slopes(heads)
    dots = [
        {
            "head": head,
            "slope": one.value,
            "name": one.text,
            "slot": "green",
            "kind": "between" if one.between else "own",
        }
        for head, one in enumerate(found, start=1)
    ]
    plain = [{"head": head, "slope": 2 ** (-8 * head / heads)} for head in range(1, heads + 1)]
    return fed(_dots(), slopes=dots, plain=plain)


@cache
def _dots() -> Spec:
    first, last = 0.4, MOST_HEADS + 0.6
    x = x_axis("head", last, [1, *range(4, MOST_HEADS + 1, 4)], "head", first, gutter=0.04)
    fraction = "datum.value == 1 ? '1' : '1/' + round(1 / datum.value)"
    y = y_axis("slope", _LOWEST, _HIGHEST, _TICKS, log=2, labelExpr=fraction)
    own, between = (rows("slopes", kind).encode(x=x, y=y, color=COLOR) for kind in ("own", "between"))
    told = hover("head", "name", slope=".5f")
    return compiled(
        HEIGHT,
        *levels(y, first, last),
        rows("plain").mark_tick(color=GRAY, thickness=2, width=12, orient="horizontal").encode(x=x, y=y),
        dot(own, 70, strokeWidth=2).encode(tooltip=told),
        dot(between, 70, strokeWidth=2, filled=False).encode(tooltip=told),
    )


def reach_chart(heads: int) -> Spec:
    """What a weight is multiplied by, over the distance of its key: one curve a head."""
    at = sorted({round(2 ** (power / 8)) for power in range(0, 8 * 9 + 1)})
    across = Across("distance", "tokens between query and key", 1, log=True, ticks=(1, 4, 16, 64, 256))
    plot = Plot(
        steps=FARTHEST, low=-0.03, high=1.03, field="share", log=False, form=".0%",
        ticks=(0, 0.25, 0.5, 0.75, 1),
        height=HEIGHT - BELOW, gutter=0.06, names=False, across=across, over=(edge,),
    )  # fmt: skip
    curves = [
        Line(
            f"head {head}",
            Style("green", "dashed" if one.between else "solid"),
            (Curve(tuple((d, math.exp(-one.value * d)) for d in at)),),
        )
        for head, one in enumerate(slopes(heads), start=1)
    ]
    return lines.line_chart(plot, curves, edge=[{"distance": 64, "text": "as long as the trained window"}])
