"""The results table: the chapter, the shipped reference, yours, the difference, side by side."""

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from engine.experiments import ChapterValue
from engine.variants import variant
from lab.controls import NBSP, plain, quantity, signed
from lab.frame import dot
from lab.measured import Row

if TYPE_CHECKING:
    from pandas.io.formats.style import Styler

Numbers = tuple[float | None, float | None, float | None, float | None]
COLUMNS = ("model", "chapter", "reference", "yours", "difference")


def styled(rows: Sequence[Row], metric: str, *, comparable: bool, text: bool) -> "Styler":
    """The table for ``st.table``: real numbers in the frame, Markdown on top of them.

    comparable: whether yours were measured as the chapter's were, so that a difference can be judged;
    text: whether they were measured on the chapter's text at all.
    """
    numbers, shown = [], []
    for row in rows:
        shipped = row.reference
        mean = shipped.mean(metric) if shipped else None
        gap = row.mean - row.chapter.middle if text and row.chapter and row.mean is not None else None
        numbers.append((row.chapter.middle if row.chapter else None, mean, row.mean, gap))
        shown.append(
            (
                f"{dot(row.variant)}{NBSP}{plain(variant(row.variant).title)}",
                printed(row.chapter),
                with_spread(mean, shipped.sd(metric) if shipped else None),
                _yours(row),
                _judged(row, gap, comparable),
            )
        )
    return _styler(tuple(numbers), tuple(shown))


@lru_cache(maxsize=8)
def _styler(numbers: tuple[Numbers, ...], shown: tuple[tuple[str, ...], ...]) -> "Styler":
    """Kept, because it takes 40 ms to make and changes only when a run ends."""
    import pandas as pd

    frame = pd.DataFrame(list(numbers), columns=list(COLUMNS[1:]), dtype="float64")
    frame.insert(0, COLUMNS[0], [cells[0] for cells in shown])
    table = frame.style
    for line, cells in enumerate(shown):
        for column, cell in zip(COLUMNS, cells, strict=True):
            table = table.format(lambda _, cell=cell: cell, subset=([line], [column]))
    return table


def printed(value: ChapterValue | None) -> str:
    """What the chapter says: its digits, or in italics what follows from its prose."""
    if value is None:
        return ":gray[–]"
    if value.printed:
        return quantity(value.low, 2)
    low, high = quantity(value.low, 0), quantity(value.high, 0)
    guess = f"≈{NBSP}{low}" if low == high else f"{low} to {high}"
    return f":gray[*{guess}*]"


def with_spread(mean: float | None, sd: float | None, *, bold: bool = False) -> str:
    """A mean and, in grey, its standard deviation over seeds."""
    if mean is None:
        return ":gray[–]"
    shown = f"**{quantity(mean)}**" if bold else quantity(mean)
    return shown if sd is None else f"{shown}{NBSP}:gray[±{NBSP}{quantity(sd)}]"


def within(row: Row) -> bool:
    """Whether the mean lies inside the chapter's value or range, widened by its tolerance."""
    value = row.chapter
    if value is None or row.mean is None:
        return False
    return value.low * (1 - value.tolerance) <= row.mean <= value.high * (1 + value.tolerance)


def is_noise(row: Row) -> bool:
    """Whether the distance to the chapter is under two standard deviations over seeds."""
    if row.chapter is None or row.mean is None or row.sd is None:
        return False
    return abs(row.mean - row.chapter.middle) < 2 * row.sd


def _yours(row: Row) -> str:
    lost = f":red[{row.diverged}{NBSP}diverged]" if row.diverged else ""
    if row.mean is None:
        return ":red[diverged]" if row.diverged else ":gray[–]"
    return f"{with_spread(row.mean, row.sd, bold=True)} {lost}".strip()


def _judged(row: Row, gap: float | None, comparable: bool) -> str:
    if gap is None:
        return ":gray[–]"
    if not comparable:
        return f":gray[{signed(gap)}]"
    return f":green[{signed(gap)}]" if within(row) else f":red[{signed(gap)}{NBSP}outside]"
