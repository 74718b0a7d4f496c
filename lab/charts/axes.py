"""What every chart of the lab is made of: colours, axes, layers over named data, rules, names at the right.

Colours are names of slots in the theme's categorical palette, and every other tint is taken from that same
scale, so a chart follows a change between light and dark by itself and no colour stands in the code.
"""

import math
from collections.abc import Sequence
from typing import Any

import altair as alt

SLOTS = ("ink", "gray", "red", "orange", "green", "sky", "blue", "violet")
DASHES = {"solid": [1, 0], "dashed": [6, 4], "dotted": [2, 3]}
GUTTER = 0.32  # of the x axis' width, right of its end: values and names
GRAY, INK = (alt.ExprRef(f"scale('color', '{slot}')") for slot in ("gray", "ink"))
CROSS = "M-1,-1L1,1M-1,1L1,-1"
TEXT, NOTE = 13, 12  # px
LABEL_GAP = 18.0  # px between two names in the gutter

COLOR = alt.Color(field="slot", type="nominal", scale=alt.Scale(domain=list(SLOTS)), legend=None)
DASH = alt.StrokeDash(
    field="dash",
    type="nominal",
    scale=alt.Scale(domain=list(DASHES), range=list(DASHES.values())),
    legend=None,
)
BARE: dict[str, Any] = {"grid": False, "domain": False, "ticks": False}  # an axis that is its labels


def x_axis(
    field: str,
    last: float,
    ticks: Sequence[float],
    title: str | None,
    first: float = 0,
    *,
    log: bool = False,
    gutter: float = GUTTER,
    form: str = ",d",
    **axis: Any,
) -> alt.X:
    """The horizontal position: from ``first`` to ``last``, then the gutter. log: for widths, not steps."""
    end = first * (last / first) ** (1 + gutter) if log else first + (last - first) * (1 + gutter)
    kind: dict[str, Any] = {"type": "log"} if log else {}
    given: dict[str, Any] = {"ticks": True, "tickSize": 4, "labelOverlap": "greedy"}
    given |= {"titleAnchor": "start", "labelBound": False, "labelFlush": False, **axis}
    return alt.X(
        field=field,
        type="quantitative",
        scale=alt.Scale(domain=[first, end], nice=False, **kind),
        axis=alt.Axis(values=list(ticks), format=form, title=title, **{**BARE, **given}),
    )


def y_axis(
    field: str,
    low: float,
    high: float,
    ticks: Sequence[float],
    form: str = "~r",
    *,
    log: int = 0,
    **axis: Any,
) -> alt.Y:
    """The vertical position, its bounds fixed; its rules are a layer of their own (``levels``).

    log: the base of a logarithmic one, 0 for a linear one.
    """
    kind: dict[str, Any] = {"type": "log", "base": log} if log else {}
    return alt.Y(
        field=field,
        type="quantitative",
        scale=alt.Scale(domain=[low, high], nice=False, **kind),
        axis=alt.Axis(values=list(ticks), format=form, title=None, **{**BARE, **axis}),
    )


def of(axis: Any, field: str) -> Any:
    """The same axis for another field."""
    moved = axis.copy(deep=False)
    moved["field"] = field
    return moved


def labels(texts: Sequence[str], index: str = "datum.value") -> str:
    """Words in place of an axis' numbers. index: which of them, as Vega computes it."""
    return f"{list(texts)}[{index}]"


def rows(data: str, kind: str = "") -> alt.Chart:
    """A layer over a named dataset, to be given a mark. kind: over the rows of that ``kind`` only."""
    layer = alt.Chart(alt.NamedData(data))
    return layer.transform_filter(f"datum.kind == '{kind}'") if kind else layer


def dot(layer: alt.Chart, size: int, **mark: Any) -> alt.Chart:
    """Filled circles. size: of their area, in square px."""
    look: dict[str, Any] = {"filled": True, "opacity": 1, **mark}
    dots: alt.Chart = layer.mark_point(size=size, **look)
    return dots


def note(layer: alt.Chart, field: str = "text", **mark: Any) -> alt.Chart:
    """Small words in grey, at the place that the encoding gives them."""
    look: dict[str, Any] = {"color": GRAY, "fontSize": NOTE, **mark}
    words: alt.Chart = layer.mark_text(**look).encode(text=alt.Text(field=field))
    return words


def hover(*fields: str, **formats: str) -> list[alt.Tooltip]:
    """What is told when a mark is pointed at. formats: of the numbers among the fields."""
    return [alt.Tooltip(field=name) for name in fields] + [
        alt.Tooltip(field=name, format=form) for name, form in formats.items()
    ]


DASHED: dict[str, Any] = {"color": GRAY, "strokeDash": [3, 3], "strokeWidth": 1.25}  # a rule to compare with


def levels(y: alt.Y, first: float, last: float) -> list[alt.Chart]:
    """Faint rules at the axis' values, and the floor, all ending where the x axis ends."""
    span = {"x": alt.XDatum(first), "x2": alt.X2Datum(last)}
    at = alt.InlineData(values=[{y["field"]: value} for value in y["axis"]["values"]])
    return [
        alt.Chart(at).mark_rule(color=GRAY, opacity=0.2).encode(**span, y=y),
        alt.Chart(alt.InlineData(values=[{}]))
        .mark_rule(color=GRAY, opacity=0.6)
        .encode(**span, y=alt.value("height")),
    ]


def gutter(y: alt.Y, last: float) -> list[alt.Chart]:
    """Right of the last step, from the dataset "gutter": the value in bold, a dot, the name, at ``at``."""
    layer = rows("gutter").encode(x=alt.XDatum(last), y=of(y, "at"))
    text: dict[str, Any] = {"color": INK, "fontSize": TEXT}
    return [
        note(layer, "value", **text, align="right", fontWeight=600, dx=56),
        layer.mark_text(text="●", fontSize=18, align="left", dx=61).encode(color=COLOR),
        note(layer, "name", **text, align="left", dx=76),
    ]


def apart(positions: Sequence[float], gap: float, end: float) -> list[float]:
    """Positions moved as little as can be: any two ``gap`` apart, none beyond 0 and ``end``."""
    order = sorted(range(len(positions)), key=lambda i: positions[i])
    blocks: list[tuple[float, list[int]]] = []  # where a row of touching labels starts, and which they are

    def block(members: list[int]) -> tuple[float, list[int]]:
        ideal = sum(positions[m] - gap * rank for rank, m in enumerate(members)) / len(members)
        return max(0.0, min(ideal, end - gap * (len(members) - 1))), members

    for i in order:
        last = block([i])
        while blocks and blocks[-1][0] + gap * len(blocks[-1][1]) > last[0]:
            last = block(blocks.pop()[1] + last[1])
        blocks.append(last)
    moved = [0.0] * len(positions)
    for start, members in blocks:
        for rank, member in enumerate(members):
            moved[member] = start + gap * rank
    return moved


def step_ticks(steps: int) -> list[int]:
    """Round steps from 0 to the last, at most seven intervals."""
    rough = steps / 7
    decade = 10 ** math.floor(math.log10(max(rough, 1)))
    interval = next(int(decade * lead) for lead in (1, 2, 5, 10) if decade * lead >= rough)
    return list(range(0, steps + 1, max(1, interval)))
