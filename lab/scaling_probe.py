"""Random vectors, nothing trained: how wide scores get, and what a softmax makes of them.

Measured in a process of its own, so that this one never loads torch.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import streamlit as st

from engine import paths
from engine.experiments import DIVIDED_TRACE, FROZEN_AT_1024, SCORE_VARIANCE, ChapterValue
from lab import table
from lab.charts import Across, Curve, Line
from lab.controls import MINUS, NBSP, one_of, quantity, signed
from lab.scaling_parts import figure, share
from lab.small_multiples import Panel, Part
from lab.styles import Style

if TYPE_CHECKING:
    from pandas.io.formats.style import Styler

TIMEOUT_S = 180
PAIRS = (100, 1_000, 5_000, 20_000, 50_000)
WIDTHS = (4, 16, 64, 256, 1024, 4096)
SIDES = (("undivided", Style("red")), ("divided", Style("green")))

Measured = dict[str, Any]


def tiny(value: float | None) -> str:
    """A share that may be next to nothing: "0.021", "1.8e−5"."""
    if value is None or abs(value) >= 0.0005 or value == 0:
        return quantity(value, 3)
    lead, _, power = f"{value:.1e}".partition("e")
    return f"{lead.replace('-', MINUS)}e{MINUS}{abs(int(power))}"


PANELS = (
    Panel("effective_tokens", "Effective tokens", "of 64, log", 1, 64, (1, 4, 16, 64), shown=figure),
    Panel("frozen_share", "Rows over 0.99", "share", -0.03, 1.04, (0, 0.5, 1), False, ".0%", shown=share),
    Panel("trace", "Trace of the Jacobian", "Σ w (1 − w)", -0.03, 1.04, (0, 0.5, 1), False, shown=figure),
    Panel(
        "gradient_share_median",
        "Gradient let through",
        "median row, of 1, log",
        1e-6,
        0.1,
        (1e-6, 1e-4, 1e-2),
        shown=tiny,
    ),
)


@st.cache_data(max_entries=16, show_spinner=False)
def measure(pairs: int, widths: tuple[int, ...]) -> Measured:
    """The document that ``python -m engine.probes.scaling --json`` prints.

    Raises RuntimeError: when it cannot be measured; the message says why.
    """
    command = [sys.executable, "-m", "engine.probes.scaling", "--json", "--pairs", str(pairs)]
    try:
        ended = subprocess.run(
            [*command, "--widths", ",".join(map(str, widths))],
            cwd=paths.ROOT,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            capture_output=True,
            check=False,
            timeout=TIMEOUT_S,
        )
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"It took longer than {TIMEOUT_S} s; allow fewer pairs or widths.") from None
    if ended.returncode:
        last = (ended.stderr.decode(errors="replace").strip().splitlines() or ["no reason given"])[-1]
        raise RuntimeError(f"It could not be measured: {last}")
    document: Measured = json.loads(ended.stdout)
    return document


def up_to(widest: int) -> tuple[int, ...]:
    """The widths from the narrowest to this one."""
    return tuple(width for width in WIDTHS if width <= widest)


def listed(name: str, options: Sequence[int]) -> Callable[[str], int]:
    """A parser of a setting that accepts these numbers only."""
    allowed = {str(number): number for number in options}
    known = one_of(name, tuple(allowed))
    return lambda text: allowed[known(text)]


def variance_table(widths: Sequence[int], measured: Measured | None) -> "Styler":
    """Variance and standard deviation of the scores: the chapter's digits and yours."""
    yours = {row["d"]: row for row in measured["variance"]} if measured else {}
    numbers, shown = [], []
    for width in widths if measured is None else yours:
        printed, mine = SCORE_VARIANCE.get(width, (None, None)), yours.get(width, {})
        found = (mine.get("variance"), mine.get("std"))
        numbers.append((printed[0], found[0], printed[1], found[1]))
        shown.append(
            (
                f"{width:,} :gray[√d = {width**0.5:.0f}]",
                _digits(printed[0]),
                _digits(found[0], bold=True),
                _digits(printed[1]),
                _digits(found[1], bold=True),
            )
        )
    columns = ("width d", "σ², chapter", "σ², yours", "σ, chapter", "σ, yours")
    return table.cells(columns, numbers, shown)


def _digits(value: float | None, *, bold: bool = False) -> str:
    if value is None:
        return ":gray[–]"
    return f"**{quantity(value, 3)}**" if bold else quantity(value, 3)


def saturation_parts(measured: Measured | None) -> list[Part]:
    """Four panels over the width, undivided and divided."""
    rows = measured["saturation"] if measured else []
    found = []
    for panel in PANELS:
        lines = []
        for side, look in SIDES:
            points = tuple((row["d"], row[side][panel.metric]) for row in rows)
            lines.append(Line(side, look, (Curve(points),) if points else ()))
        found.append(Part(panel, lines))
    return found


def across(widths: Sequence[int]) -> Across:
    """The axis of widths."""
    return Across(field="d", title="width d", first=widths[0], log=True, ticks=tuple(widths))


def saturation_table(widths: Sequence[int], measured: Measured | None) -> "Styler":
    """Undivided, then divided, at every width."""
    rows = {row["d"]: row for row in measured["saturation"]} if measured else {}
    numbers, shown = [], []
    for width in widths if measured is None else rows:
        row = rows.get(width)
        numbers.append([row["undivided"][panel.metric] if row else None for panel in PANELS])
        shown.append((f"{width:,}", *(_both(row, panel) for panel in PANELS)))
    columns = ("width d, undivided : divided", "effective tokens", "over 0.99", "trace", "gradient")
    return table.cells(columns, numbers, shown)


def _both(row: Measured | None, panel: Panel) -> str:
    if row is None:
        return ":gray[–]"
    undivided, divided = (panel.shown(row[side][panel.metric]) for side in ("undivided", "divided"))
    return f"**{undivided}**{NBSP}: {divided}"


def chapter_table(measured: Measured | None) -> "Styler":
    """The chapter's three figures on frozen rows, and yours where such a width was measured."""
    rows = {row["d"]: row for row in measured["saturation"]} if measured else {}
    frozen = rows[1024]["undivided"]["frozen_share"] if 1024 in rows else None
    traces = [row["divided"]["trace"] for row in rows.values()]
    trace = max(traces, key=lambda value: abs(value - DIVIDED_TRACE.middle)) if traces else None
    tokens = rows[256]["undivided"]["effective_tokens"] if 256 in rows else None
    shown = []
    for label, chapter, mine, write, finer in (
        ("rows over 0.99, undivided, 1024", FROZEN_AT_1024, frozen, share, share),
        ("trace, divided, the farthest width", DIVIDED_TRACE, trace, figure, tiny),
    ):
        gap = None if mine is None else mine - chapter.middle
        shown.append(
            (label, table.printed(chapter, write), *_mine(mine, finer), _judged(gap, chapter, finer))
        )
    shown.append(("effective tokens, undivided, 256", "1 :gray[one row]", *_mine(tokens, figure), ":gray[–]"))
    numbers = [(FROZEN_AT_1024.low, frozen, None), (DIVIDED_TRACE.low, trace, None), (1.0, tokens, None)]
    return table.cells(("beside the chapter", "chapter", "yours", "difference"), numbers, shown)


def _judged(gap: float | None, chapter: ChapterValue, write: Callable[[float | None], str]) -> str:
    if gap is None:
        return ":gray[–]"
    if abs(gap) <= chapter.tolerance * chapter.middle:
        return f":green[{signed(gap, write)}]"
    return f":red[{signed(gap, write)}{NBSP}outside]"


def _mine(value: float | None, write: Callable[[float | None], str]) -> tuple[str]:
    return (":gray[–]" if value is None else f"**{write(value)}**",)


def notice(measured: Measured | None) -> str:
    """What the random rows say, in figures."""
    if not measured:
        return "Nothing is trained here: vectors are drawn, multiplied and sent through a softmax."
    rows = measured["saturation"]
    last = rows[-1]
    undivided, divided = last["undivided"], last["divided"]
    through = [tiny(side["gradient_share_median"]) for side in (undivided, divided)]
    said = [
        f"Each of the d products adds its own variance of 1, so a score’s standard deviation is √d: "
        f"{figure(measured['variance'][-1]['std'])} at d = {last['d']:,}. Softmax sees the differences "
        f"between scores, and e to the power of a difference of {figure(measured['variance'][-1]['std'])} is "
        f"as good as all or nothing.",
        f"At d = {last['d']:,} an undivided row attends to {figure(undivided['effective_tokens'])} of 64 "
        f"tokens, and {share(undivided['frozen_share'])} of the rows are frozen; divided, to "
        f"{figure(divided['effective_tokens'])}.",
        f"A frozen row cannot learn where to look: the median row lets "
        f"{through[0]} of a gradient through, divided {through[1]}.",
    ]
    peak = max(rows, key=lambda row: row["undivided"]["gradient_share"])
    if peak["undivided"]["gradient_share"] > 1.1 * peak["divided"]["gradient_share"]:
        said.append(
            f"On the mean of the rows a little sharpness even helps: at d = {peak['d']:,} undivided rows let "
            f"{tiny(peak['undivided']['gradient_share'])} through, divided ones "
            f"{tiny(peak['divided']['gradient_share'])}."
        )
    return "\n\n".join(said)
