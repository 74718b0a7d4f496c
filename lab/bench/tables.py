"""The results table: the chapter, the shipped reference, yours, the difference, side by side."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import streamlit as st

from engine.chapter.experiments import ChapterValue, Experiment
from lab.bench.sweep import Row
from lab.shell.frame import dot
from lab.words import NBSP, plain, quantity, signed

if TYPE_CHECKING:
    from pandas.io.formats.style import Styler

Number = float | None
Cell = tuple[float | None, str]  # a number, which aligns right, and how it is shown; None and text only
COLUMNS = ("model", "chapter", "reference", "yours", "difference")


@dataclass(frozen=True)
class Line:
    """One line of a table of four columns: what it is called, its figures, and how one is written."""

    label: str
    row: Row
    metric: str
    shown: Callable[[float | None], str] = quantity


def styled(experiment: Experiment, rows: Sequence[Row], *, comparable: bool, text: bool) -> "Styler":
    """The table for ``st.table``: real numbers in the frame, Markdown on top of them.

    comparable: whether yours were measured as the chapter's were, so that a difference can be judged;
    text: whether they were measured on the chapter's text at all.
    """
    titles = {made.id: f"{dot(made.id)}{NBSP}{plain(made.title)}" for made in experiment.models}
    lines = [Line(titles[row.variant], row, experiment.metric) for row in rows]
    return four_columns(lines, comparable=comparable, text=text)


def four_columns(
    lines: Sequence[Line], *, comparable: bool, text: bool, columns: Sequence[str] = COLUMNS
) -> "Styler":
    """The same of lines that may each be of another kind. columns: their five names."""
    numbers, shown = [], []
    for line in lines:
        row, shipped = line.row, line.row.reference
        mean = shipped.mean(line.metric) if shipped else None
        gap = row.mean - row.chapter.middle if text and row.chapter and row.mean is not None else None
        numbers.append((row.chapter.middle if row.chapter else None, mean, row.mean, gap))
        shown.append(
            (
                line.label,
                printed(row.chapter, None if line.shown is quantity else line.shown),
                with_spread(mean, shipped.sd(line.metric) if shipped else None, shown=line.shown),
                yours(row, line.shown),
                _judged(row, gap, comparable, line.shown),
            )
        )
    return cells(columns, numbers, shown)


def cells(
    columns: Sequence[str], numbers: Sequence[Sequence[Number]], shown: Sequence[Sequence[str]]
) -> "Styler":
    """Any table: numbers in all columns but the first, and in every cell the Markdown that is shown."""
    return _styler(tuple(columns), tuple(map(tuple, numbers)), tuple(map(tuple, shown)))


@lru_cache(maxsize=32)
def _styler(
    columns: tuple[str, ...], numbers: tuple[tuple[Number, ...], ...], shown: tuple[tuple[str, ...], ...]
) -> "Styler":
    """Kept, because it takes 40 ms to make and changes only when a run ends."""
    import pandas as pd

    frame = pd.DataFrame(list(numbers), columns=list(columns[1:]), dtype="float64")
    frame.insert(0, columns[0], [texts[0] for texts in shown])
    table = frame.style
    for line, texts in enumerate(shown):
        for column, cell in zip(columns, texts, strict=True):
            table = table.format(lambda _, cell=cell: cell, subset=([line], [column]))
    return table


def printed(value: ChapterValue | None, shown: Callable[[float | None], str] | None = None) -> str:
    """What the chapter says: its digits, or in italics what follows from its prose.

    shown: how it writes such a figure; by default as a perplexity.
    """
    if value is None:
        return ":gray[–]"
    if value.printed:
        return shown(value.low) if shown else quantity(value.low, 2)
    low, high = (shown(end) if shown else quantity(end, 0) for end in (value.low, value.high))
    guess = f"≈{NBSP}{low}" if low == high else f"{low} to {high}"
    return f":gray[*{guess}*]"


def with_spread(
    mean: float | None,
    sd: float | None,
    *,
    bold: bool = False,
    shown: Callable[[float | None], str] = quantity,
) -> str:
    """A mean and, in grey, its standard deviation over seeds."""
    if mean is None:
        return ":gray[–]"
    text = f"**{shown(mean)}**" if bold else shown(mean)
    return text if sd is None else f"{text}{NBSP}:gray[±{NBSP}{shown(sd)}]"


def within(row: Row) -> bool:
    """Whether the mean counts as the chapter's figure."""
    return row.chapter is not None and row.mean is not None and row.chapter.allows(row.mean)


def is_noise(row: Row) -> bool:
    """Whether the distance to the chapter is under two standard deviations over seeds."""
    if row.chapter is None or row.mean is None or row.sd is None:
        return False
    return abs(row.mean - row.chapter.middle) < 2 * row.sd


def yours(row: Row, shown: Callable[[float | None], str] = quantity) -> str:
    """The reader's own figure, and how many of the runs diverged."""
    lost = f":red[{row.diverged}{NBSP}diverged]" if row.diverged else ""
    if row.mean is None:
        return ":red[diverged]" if row.diverged else ":gray[–]"
    return f"{with_spread(row.mean, row.sd, bold=True, shown=shown)} {lost}".strip()


def _judged(row: Row, gap: float | None, comparable: bool, shown: Callable[[float | None], str]) -> str:
    if gap is None:
        return ":gray[–]"
    text = signed(gap, shown)
    if not comparable:
        return f":gray[{text}]"
    return f":green[{text}]" if within(row) else f":red[{text}{NBSP}outside]"


def draw_table(columns: Sequence[str], rows: Sequence[Sequence[Cell]], alt: str) -> None:
    """A table of numbers with their own words; a column that holds a number aligns right."""
    st.table(
        _cells_styler(tuple(columns), tuple(map(tuple, rows))), border="horizontal", hide_index=True, alt=alt
    )


@lru_cache(maxsize=64)
def _cells_styler(columns: tuple[str, ...], rows: tuple[tuple[Cell, ...], ...]) -> "Styler":
    import pandas as pd

    frame = pd.DataFrame()
    for place, name in enumerate(columns):
        numbers = [row[place][0] for row in rows]
        if all(number is None for number in numbers):
            frame[name] = [row[place][1] for row in rows]
        else:
            frame[name] = pd.Series(numbers, dtype="float64")
    shown = frame.style
    for line, row in enumerate(rows):
        for name, (_, text) in zip(columns, row, strict=True):
            shown = shown.format(lambda _, text=text: text, subset=([line], [name]))
    return shown


def words(text: str) -> Cell:
    """A cell of text."""
    return None, text
