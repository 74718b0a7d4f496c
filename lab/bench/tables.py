"""Every table of the lab is built here, from cells: a number, and the Markdown that is shown of it."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple

import streamlit as st

from engine.chapter import report
from engine.chapter.definitions import ChapterValue, Verdict
from lab.bench.sweep import Gap, Row, Sweep
from lab.shell.frame import dot
from lab.words import MINUS, NBSP, decimals, plain, quantity, signed

if TYPE_CHECKING:
    from pandas.io.formats.style import Styler

Write = Callable[[float | None], str]
NOTHING = ":gray[–]"
COLUMNS = ("chapter", "reference", "yours", "difference")


class Cell(NamedTuple):
    """A cell that holds a number, None as long as there is none. text: Markdown."""

    value: float | None
    text: str


NO_NUMBER = Cell(None, NOTHING)
HUNDREDTHS = decimals(2)


@dataclass(frozen=True)
class Table:
    """A table as it is shown: a column with a number in it aligns right, a column of words left.

    rows: a cell is a ``Cell``, or words as Markdown. caption: below the table. alt: what it is, for those who
    cannot see it.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[object]]
    caption: str = ""
    alt: str = ""

    def with_caption(self, more: str) -> "Table":
        """The same with more below it."""
        return replace(self, caption=f"{self.caption} {more}".strip())

    def draw(self) -> None:
        """Put it on the page."""
        st.table(self.styler, border="horizontal", hide_index=True, alt=self.alt or None)
        if self.caption:
            st.caption(self.caption)

    @property
    def styler(self) -> "Styler":
        """Real numbers in the frame, Markdown on top of them."""
        return _styler(tuple(self.columns), tuple(map(tuple, self.rows)))


@lru_cache(maxsize=64)
def _styler(columns: tuple[str, ...], rows: tuple[tuple[object, ...], ...]) -> "Styler":
    """Kept, because it changes only when a run ends."""
    import pandas as pd

    data, texts, alone = dict[str, list[Any]](), dict[str, Callable[[float], str]](), []
    for name, *cells in zip(columns, *rows, strict=True):
        if not any(isinstance(cell, Cell) for cell in cells):
            data[name] = cells
            continue
        numbers = [cell.value if isinstance(cell, Cell) else None for cell in cells]
        data[name] = values = [math.nan if n is None else float(n) for n in numbers]
        written = [cell.text if isinstance(cell, Cell) else str(cell) for cell in cells]
        known = dict(zip(map(str, values), written, strict=True))
        texts[name] = partial(_known, known)
        pairs = enumerate(zip(values, written, strict=True))
        alone += [(line, name, text) for line, (value, text) in pairs if known[str(value)] != text]
    table = pd.DataFrame(data).style.format(texts)
    for line, name, text in alone:  # equal numbers, other words: 3 ms each
        table = table.format(lambda _, text=text: text, subset=([line], [name]))
    return table


def _known(texts: dict[str, str], value: float) -> str:
    return texts[str(value)]


def number(value: float | None, shown: Write = quantity, *, bold: bool = False, color: str = "") -> Cell:
    """A number as it is written, bold or in a colour; a dash for none."""
    return with_spread(value, None, shown, bold=bold, color=color)


def with_spread(
    mean: float | None, sd: float | None, shown: Write = quantity, *, bold: bool = False, color: str = ""
) -> Cell:
    """A mean and, in grey, its standard deviation over seeds."""
    if mean is None:
        return NO_NUMBER
    text = f"**{shown(mean)}**" if bold else shown(mean)
    if color:
        text = f":{color}[{text}]"
    return Cell(mean, text if sd is None else f"{text}{NBSP}:gray[±{NBSP}{shown(sd).removeprefix('+')}]")


def yours(row: Row, shown: Write = quantity) -> Cell:
    """The reader's own figure, and how many of the runs diverged."""
    lost = f":red[{row.diverged}{NBSP}diverged]" if row.diverged else ""
    if row.mean is None:
        return Cell(None, ":red[diverged]" if row.diverged else NOTHING)
    cell = with_spread(row.mean, row.sd, shown, bold=True)
    return Cell(row.mean, f"{cell.text} {lost}".strip())


def shipped(row: Row, metric: str, shown: Write = quantity, *, color: str = "") -> Cell:
    """The reference's figure."""
    found = row.reference
    return with_spread(found.mean(metric), found.sd(metric), shown, color=color) if found else NO_NUMBER


def chapter(value: ChapterValue | None, shown: Write | None = None) -> Cell:
    """What the chapter says: its digits, or in italics what follows from its prose.

    shown: how it writes such a figure; by default as a perplexity.
    """
    if value is None:
        return NO_NUMBER
    if value.printed:
        return Cell(value.middle, shown(value.low) if shown else quantity(value.low, 2))
    low, high = (shown(end) if shown else quantity(end, 0) for end in (value.low, value.high))
    guess = f"≈{NBSP}{low}" if low == high else f"{low} to {high}"
    return Cell(value.middle, f":gray[*{guess}*]")


def points(gap: Gap | None) -> Cell:
    """A difference of the reader's, grey within seed noise."""
    if gap is None:
        return NO_NUMBER
    faint = gap.noise or gap.level
    return Cell(gap.points, f":gray[{signed(gap.points)}]" if faint else f"**{signed(gap.points)}**")


@dataclass(frozen=True)
class Line:
    """One line of a table of four columns: what it is called, its figures, and how one is written.

    difference: how a difference is written, where that is another way.
    """

    label: str
    row: Row
    metric: str
    shown: Write = quantity
    difference: Write | None = None


def model(now: Sweep, name: str) -> str:
    """A variant in the first column: its colour and title."""
    return f"{dot(name)}{NBSP}{plain(now.experiment.variant(name).title)}"


def results(now: Sweep) -> Table:
    """The chapter, the shipped reference, yours and the difference, of every variant."""
    metric = now.experiment.metric
    rows = [Line(model(now, row.variant), row, metric) for row in now.rows()]
    return four_columns(now, [*rows, *differences(now)])


def differences(now: Sweep, shown: Write = HUNDREDTHS) -> list[Line]:
    """A line each of the differences between rows that the chapter gives."""
    return [Line(row.chapter.label, row, metric, shown) for row, metric in now.differences() if row.chapter]


def four_columns(now: Sweep, lines: Sequence[Line], first: str = "model", caption: str = "") -> Table:
    """The same of lines that may each be of another kind. first: what they are, for the first column."""
    comparable, text = now.request.as_the_chapter, now.of_the_chapters_text
    return compared(lines, first, caption, comparable=comparable, text=text)


def compared(
    lines: Sequence[Line], first: str, caption: str = "", *, comparable: bool, text: bool = True
) -> Table:
    """Four columns of any figures.

    comparable: whether yours were measured as the chapter's were, so that a difference can be judged;
    text: whether they were measured on the chapter's text at all. Below: what counts as reproduced, and why
    what is shipped is not, where it is not.
    """
    rows = []
    for line in lines:
        row, written = line.row, None if line.shown is quantity else line.shown
        rows.append(
            (
                line.label,
                chapter(row.chapter, written),
                _judged_reference(line),
                yours(row, line.shown),
                _judged(line, comparable) if text else NO_NUMBER,
            )
        )
    return Table((first, *COLUMNS), rows).with_caption(caption).with_caption(_reproduced(lines))


def _reproduced(lines: Sequence[Line]) -> str:
    """What counts as reproduced: the commonest tolerance, then the lines of another; the known reasons."""
    groups, reasons = dict[str, list[str]](), dict[str, list[str]]()
    for line in lines:
        if value := line.row.chapter:
            said = report.tolerance(value, line.metric).replace("-", MINUS).replace(" ", NBSP)
            groups.setdefault(said, []).append(line.label)
            reasons.setdefault(value.gap, []).append(line.label)
    if not groups:
        return ""
    common = max(groups, key=lambda said: len(groups[said]))
    others = [f"; {', '.join(labels)}: {said}" for said, labels in groups.items() if said != common]
    why = [f" Not reproduced, {', '.join(labels)}: {reason}" for reason, labels in reasons.items() if reason]
    return (
        f"Reproduced, green: a mean within {common} of the chapter’s{''.join(others)}. *In the mean*: seeds "
        f"spread by more than that.{''.join(why)}"
    )


def _judged_reference(line: Line) -> Cell:
    """The reference's figure, with its verdict where it is not simply reproduced."""
    cell, row = shipped(line.row, line.metric, line.shown), line.row
    if row.chapter is None or row.reference is None or cell.value is None:
        return cell
    verdict = row.chapter.verdict(cell.value, row.reference.sd(line.metric))
    if verdict == "outside":
        return Cell(cell.value, f"{cell.text} :red[not{NBSP}reproduced]")
    return Cell(cell.value, f"{cell.text} {_colored('', verdict)}") if verdict == "in the mean" else cell


_COLORS: dict[Verdict, str] = {"outside": "red", "in the mean": "orange"}


def _colored(figure: str, verdict: Verdict) -> str:
    """A figure in the colour of its verdict; in words where it is not simply reproduced."""
    color = _COLORS.get(verdict)
    words = f"{figure} {verdict}".strip() if color else figure
    return f":{color or 'green'}[{words.replace(' ', NBSP)}]"


def _judged(line: Line, comparable: bool) -> Cell:
    row = line.row
    if row.chapter is None or row.mean is None:
        return NO_NUMBER
    gap = row.mean - row.chapter.middle
    text = signed(gap, line.difference or line.shown)
    if not comparable:
        return Cell(gap, f":gray[{text}]")
    return Cell(gap, _colored(text, row.chapter.verdict(row.mean, row.sd)))


def is_noise(row: Row) -> bool:
    """Whether the distance to the chapter is under two standard deviations over seeds."""
    if row.chapter is None or row.mean is None or row.sd is None:
        return False
    return abs(row.mean - row.chapter.middle) < 2 * row.sd
