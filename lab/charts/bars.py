"""Charts of rows that have names: dots, rings and bars beside each, rules down through all of them."""

from collections.abc import Sequence
from typing import Any

import altair as alt

from lab.charts.axes import BARE, COLOR, DASHED, dot, of, rows


def named(field: str, names: Sequence[str], *, limit: int = 260, **axis: Any) -> alt.Y:
    """The vertical position of rows that have names, in this order. limit: px for a name."""
    return alt.Y(
        field=field,
        type="nominal",
        sort=list(names),
        axis=alt.Axis(title=None, labelLimit=limit, **{**BARE, **axis}),
    )


def dots(x: alt.X, y: alt.Y, filled: str, ring: str, told: Sequence[alt.Tooltip]) -> list[alt.Chart]:
    """Two figures a row, from the dataset "dots": a disc for one kind of them, a ring for the other.

    Dashed rules stand at the values ``at`` of the dataset "levels". told: when a mark is pointed at.
    """
    return [
        rows("levels").mark_rule(**DASHED).encode(x=of(x, "at")),
        dot(rows("dots", ring), 70, filled=False).encode(x, y, COLOR, tooltip=list(told)),
        dot(rows("dots", filled), 70).encode(x, y, COLOR, tooltip=list(told)),
    ]
