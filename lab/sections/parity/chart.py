"""How far our attention and PyTorch's lie apart: the measured rows, and the figure of them by precision."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import altair as alt

from engine.chapter.measurements import LARGEST_DIFFERENCE, MEAN_OUTPUT, PRECISIONS
from engine.probes.results.parity import Parity, Row
from lab.charts.axes import (
    COLOR,
    GRAY,
    INK,
    TEXT,
    dot,
    gutter,
    labels,
    levels,
    note,
    of,
    rows,
    x_axis,
    y_axis,
)
from lab.charts.drawing import Rows, Spec, compiled, fed
from lab.words import MINUS

HEIGHT, FLOOR, CEILING = 300, 1e-17, 1.0
LAST = len(PRECISIONS) - 0.5  # where the x axis ends; a precision stands at its place in PRECISIONS
HALF, ASIDE, SPREAD = 0.36, 0.17, 0.2  # of a place: its width, its two columns, the width of a column
_TICKS = {1e-16: "10⁻¹⁶", 1e-12: "10⁻¹²", 1e-8: "10⁻⁸", 1e-4: "10⁻⁴", 1.0: "1"}
NAMED = ("precision", "batch", "tokens", "d_model", "n_head", "mask", "scale", "seed", "ours", "theirs")
_FIGURES = ("magnitude", "difference", "relative")
VALUES = (*_FIGURES, *(f"gradient_{name}" for name in _FIGURES))


@dataclass(frozen=True)
class Comparison:
    """What was measured of one choice of seeds; empty before anything was."""

    rows: tuple[Row, ...] = ()
    rounding: Mapping[str, float] = field(default_factory=dict)
    standing: str = ""

    @classmethod
    def of(cls, found: Parity, seeds: tuple[int, ...]) -> "Comparison":
        """The comparison that was measured."""
        which = f"seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}"
        return cls(tuple(found.rows), found.rounding, f"Compared on the CPU, torch {found.torch}, {which}")

    def where(self, **fixed: object) -> list[Row]:
        """The rows that were measured and have these values."""
        done = (row for row in self.rows if row.state == "done")
        return [row for row in done if all(getattr(row, name) == value for name, value in fixed.items())]

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds that were measured."""
        return tuple(dict.fromkeys(row.seed for row in self.rows))

    def table(self, mask: str, scale: str) -> Iterator[tuple[object, ...]]:
        """The comparisons of this mask and scale, for a file; the first row names the columns."""
        yield (*NAMED, *VALUES)
        for row in self.where(mask=mask, scale=scale):
            yield tuple(getattr(row, name) for name in (*NAMED, *VALUES))


def figure(comparison: Comparison, mask: str, scale: str) -> Spec:
    """Relative differences by precision: dots over a rule at one rounding, the axis the same for all."""
    return fed(_columns(), **_datasets(comparison, mask, scale))


@cache
def _columns() -> Spec:
    words: dict[str, Any] = {"labelExpr": labels(PRECISIONS), "tickSize": 0}
    x = x_axis("at", LAST, range(len(PRECISIONS)), None, -0.5, **words)
    powers = labels(tuple(_TICKS.values()), "round(log(datum.value) / LN10 / 4) + 4")
    y = y_axis("relative", FLOOR, CEILING, tuple(_TICKS), log=10, labelExpr=powers)
    dots, tops, rounding, chapter = (
        rows(name).encode(x=x, y=y) for name in ("dots", "tops", "rounding", "chapter")
    )
    to = alt.X2(field="to")
    return compiled(
        HEIGHT,
        *levels(y, -0.5, LAST),
        rounding.mark_rule(color=GRAY, strokeDash=[4, 4]).encode(x2=to),
        dot(dots, 36, opacity=0.55).encode(color=COLOR),
        chapter.mark_rule(color=INK).encode(x2=to),
        note(chapter.encode(x=of(x, "to")), align="left", dx=4),
        note(tops, "value", color=INK, fontSize=TEXT, dy=-12),
        *gutter(y, LAST),
    )


def _datasets(comparison: Comparison, mask: str, scale: str) -> dict[str, Rows]:
    dots, tops, rounding = list[dict[str, Any]](), list[dict[str, Any]](), list[dict[str, Any]]()
    for place, precision in enumerate(PRECISIONS):
        measured = comparison.where(precision=precision, mask=mask, scale=scale)
        columns = (("relative", "green", place - ASIDE), ("gradient_relative", "violet", place + ASIDE))
        for name, slot, at in columns:
            values = sorted(getattr(row, name) for row in measured if getattr(row, name))
            for turn, value in enumerate(values):
                aside = SPREAD * (turn / max(1, len(values) - 1) - 0.5)
                dots.append({"slot": slot, "at": at + aside, "relative": value})
            if values:
                tops.append({"at": at, "relative": values[-1], "value": power(values[-1])})
        if precision in comparison.rounding:
            rounding.append({**_span(place), "relative": comparison.rounding[precision]})
    printed = LARGEST_DIFFERENCE.low / MEAN_OUTPUT.low
    chapter = {**_span(PRECISIONS.index("float32")), "text": "chapter", "relative": printed}
    names = [
        {"slot": "green", "name": "output", "at": 1e-13, "value": ""},
        {"slot": "violet", "name": "gradients", "at": 1e-15, "value": ""},
    ]
    return {
        "dots": dots,
        "tops": tops,
        "rounding": rounding,
        "chapter": [chapter] if (mask, scale) == ("causal", "sqrt") else [],
        "gutter": names if dots else [],
    }


def _span(place: int) -> dict[str, Any]:
    """All of the room that a precision has."""
    return {"at": place - HALF, "to": place + HALF}


def power(value: float) -> str:
    """A small number as a reader of charts wants it: "1.7e−6"."""
    lead, _, exponent = f"{value:.1e}".partition("e")
    return f"{lead}e{int(exponent)}".replace("-", MINUS)
