"""Tables of the page of the n x n wall: the rows, the chapter's beside them, exponents, and captions."""

from typing import TYPE_CHECKING

from engine.benchmarks import memory
from engine.memory_wall.plan import Row, doubling, slope, slopes
from engine.memory_wall.setting import CHAPTER, CHAPTER_EXPONENTS, GB, IMPLEMENTATIONS, MB, ChapterRow
from engine.system import device
from lab.bench import tables
from lab.sections.wall.parts import (
    TOKENS,
    Choice,
    layer_words,
    matrix_bytes,
    milliseconds,
    ratio,
    with_workspace,
)
from lab.sections.wall.rows import Measurement
from lab.shell.frame import dot
from lab.words import NBSP, plain, quantity

if TYPE_CHECKING:
    from pandas.io.formats.style import Styler

ROW_COLUMNS = ("tokens", "ms", "ms ×", "projections", "matrix MB", "peak MB", "MB ×", "predicted")
CHAPTER_COLUMNS = ("chapter", "ms ×", "peak MB", "MB ×", "yours")
NOTHING = ":gray[–]"


def rows_table(choice: Choice, found: Measurement, name: str) -> "Styler":
    """One implementation, a line an n, with the chapter's columns and what was predicted."""
    rows = {row.n: row for row in found.rows if row.implementation == name}
    control = {row.n: row for row in found.rows if row.implementation == "projections"}
    tokens = choice.plan.tokens if choice.plan else doubling(TOKENS[1])
    numbers, shown = [], []
    before: Row | None = None
    for n in tokens:
        row = rows.get(n)
        aside = control[n].step_ms if n in control else None
        matrix = matrix_bytes(n, choice.layer) / MB
        time, size = _to_before(row, before)
        ms = row.step_ms if row else None
        peak = row.peak_bytes / MB if row and row.peak_bytes else None
        predicted = row.predicted_bytes / MB if row and row.predicted_bytes else None
        numbers.append((ms, time, aside, matrix, peak, size, predicted))
        shown.append(
            (
                f"{n:,}",
                _ms(row),
                ratio(time),
                NOTHING if aside is None else milliseconds(aside),
                f":gray[{quantity(matrix)}]" if name != "explicit" else quantity(matrix),
                _peak(row),
                ratio(size),
                NOTHING if predicted is None else quantity(predicted, 1),
            )
        )
        if row and row.ended:
            before = row
    return tables.cells(ROW_COLUMNS, numbers, shown)


def _to_before(row: Row | None, before: Row | None) -> tuple[float | None, float | None]:
    if row is None or before is None:
        return None, None
    time = row.step_ms / before.step_ms if row.step_ms and before.step_ms else None
    size = row.peak_bytes / before.peak_bytes if row.peak_bytes and before.peak_bytes else None
    return time, size


def _ms(row: Row | None) -> str:
    if row is None:
        return NOTHING
    if row.state == "out of memory":
        return f":red[out{NBSP}of{NBSP}memory]"
    if row.state == "failed":
        return ":red[failed]"
    if row.state == "cancelled":
        return ":gray[cancelled]"
    if row.state == "running":
        return ":primary[running]"
    return NOTHING if row.step_ms is None else f"**{milliseconds(row.step_ms)}**"


def _peak(row: Row | None) -> str:
    if row is None or row.peak_bytes is None:
        return NOTHING
    return f"**{quantity(row.peak_bytes / MB, 1)}**"


def chapter_table(choice: Choice, found: Measurement) -> "Styler":
    """What the chapter prints, and beside it the reader's peak of the same layer, with the workspace."""
    yours = {row.n: row for row in found.rows if row.implementation == "explicit"}
    numbers, shown = [], []
    before: ChapterRow | None = None
    for printed in CHAPTER:
        time = size = None
        if before and printed.step_ms and before.step_ms and printed.peak_mb and before.peak_mb:
            time, size = printed.step_ms / before.step_ms, printed.peak_mb / before.peak_mb
        mine, cell = _beside(choice, yours.get(printed.n), printed)
        numbers.append((time, printed.peak_mb, size, mine))
        out = printed.peak_mb is None
        shown.append(
            (
                f"{printed.n:,}",
                ratio(time),
                f"out{NBSP}of{NBSP}memory" if out else quantity(printed.peak_mb, 1),
                ratio(size),
                cell,
            )
        )
        before = printed
    return tables.cells(CHAPTER_COLUMNS, numbers, shown)


def _beside(choice: Choice, row: Row | None, printed: ChapterRow) -> tuple[float | None, str]:
    """The reader's peak in MB as the chapter's card would show it, and how it is written."""
    if row is None or choice.plan is None or not choice.is_the_chapters:
        return None, NOTHING
    if row.state == "out of memory":
        if printed.peak_mb is None and choice.plan.budget_bytes == 8 * GB:
            return None, f":green[same{NBSP}n]"
        return None, f":gray[out{NBSP}of{NBSP}memory]"
    if row.peak_bytes is None:
        return None, NOTHING
    mine = with_workspace(row.peak_bytes, choice.plan) / MB
    if printed.peak_mb is None:
        return mine, f":gray[{quantity(mine, 1)}]"
    same = abs(mine - printed.peak_mb) < 0.051
    text = quantity(mine, 1)
    return mine, f":green[{text}]" if same else f":red[{text}{NBSP}outside]"


def chapter_remark(choice: Choice) -> str:
    """Below the chapter's table: what can be compared."""
    said = "An 8 GB laptop GPU. Compare ratios and bytes; its milliseconds are another machine’s."
    if not choice.is_the_chapters:
        return f"{said} Its layer: width 512, 8 heads, float32, causal, forward. Yours is another."
    return (
        f"{said} Yours: explicit’s peak with the workspace of that card’s cuBLAS, 8.125{NBSP}MB; green where "
        f"it is the chapter’s to the digit."
    )


def rows_remark(choice: Choice, found: Measurement) -> str:
    """Below the reader's rows: where, how, and what is not said by a number alone."""
    said = [
        f"One layer, {layer_words(choice.layer)}. ms: median of repeats after a warm-up. Predicted: the same "
        f"code on tensors without data. MB are 2²⁰ bytes.",
    ]
    if kernel := next((row.backend for row in found.rows if row.backend), None):
        said.append(f"Fused ran the kernel {plain(kernel)}.")
    if choice.plan and choice.plan.device == "cpu":
        said.append(
            f"Measured on {plain(device.cpu_title())}, where time also goes into fetching fresh memory."
        )
        if choice.plan.budget_bytes:
            said.append(f"Of the budget 8.125{NBSP}MB are set aside for cuBLAS, as on a card.")
    return " ".join(said)


def exponents_table(choice: Choice, found: Measurement) -> "Styler":
    """Fitted slopes of the last four rows; below them explicit's, as shipped and as the chapter has them."""
    fitted = slopes(found.ended)
    names = choice.plan.implementations if choice.plan else IMPLEMENTATIONS
    numbers, shown = [], []
    for name in names:
        mine = fitted.get(name, {})
        time, size = mine.get("time"), mine.get("bytes")
        loaded = _loaded_slope(choice, found, name)
        numbers.append((time, size, loaded))
        shown.append((f"{dot(name)}{NBSP}{name}", *(ratio(value) for value in (time, size, loaded))))
    if shipped := memory.shipped():
        fit = memory.explicit_exponents(shipped)
        numbers.append(fit)
        shown.append(("shipped, explicit", *map(ratio, fit)))
    numbers.append((CHAPTER_EXPONENTS["time"], None, CHAPTER_EXPONENTS["bytes"]))
    chapter = (ratio(CHAPTER_EXPONENTS["time"]), NOTHING, ratio(CHAPTER_EXPONENTS["bytes"]))
    shown.append(("chapter, explicit", *chapter))
    return tables.cells(("exponent of n", "time", "memory", "with workspace"), numbers, shown)


def _loaded_slope(choice: Choice, found: Measurement, name: str) -> float | None:
    plan = choice.plan
    if plan is None or not choice.is_the_chapters or name != "explicit":
        return None
    done = [row for row in found.ended if row.implementation == name and row.peak_bytes]
    points = [(row.n, with_workspace(row.peak_bytes or 0, plan)) for row in sorted(done, key=lambda r: r.n)]
    return slope(points[-4:])


def exponents_remark() -> str:
    """Below the exponents: of what they are, and why memory has two."""
    said = (
        "The slope of the last four rows, log against log; the chapter’s are of 1,024 to 8,192. The "
        "workspace of cuBLAS does not grow, so it flattens the slope."
    )
    if shipped := memory.shipped():
        said += f" Shipped: {shipped['device']}, {shipped['date']}, 1,024 to 8,192."
    return said
