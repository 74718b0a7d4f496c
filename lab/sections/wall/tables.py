"""Tables of the page of the n x n wall: the rows, the chapter's beside them, exponents, and captions."""

from typing import TYPE_CHECKING

from engine.benchmarks import memory
from engine.memory_wall.plan import Row, doubling, slope, slopes
from engine.memory_wall.setting import CHAPTER, CHAPTER_EXPONENTS, GB, IMPLEMENTATIONS, MB, ChapterRow
from engine.system import device
from lab.bench import Cell, Table
from lab.bench.tables import NOTHING, number
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
    pass

ROW_COLUMNS = ("tokens", "ms", "ms ×", "projections", "matrix MB", "peak MB", "MB ×", "predicted")
CHAPTER_COLUMNS = ("chapter", "ms ×", "peak MB", "MB ×", "yours")


def rows_table(choice: Choice, found: Measurement, name: str) -> Table:
    """One implementation, a line an n, with the chapter's columns and what was predicted."""
    rows = {row.n: row for row in found.rows if row.implementation == name}
    control = {row.n: row for row in found.rows if row.implementation == "projections"}
    lines = []
    before: Row | None = None
    for n in choice.plan.tokens if choice.plan else doubling(TOKENS[1]):
        row, matrix = rows.get(n), matrix_bytes(n, choice.layer) / MB
        times, sizes = _to_before(row, before)
        lines.append(
            (
                f"{n:,}",
                Cell(row.step_ms if row else None, _ms(row)),
                number(times, ratio),
                number(control[n].step_ms if n in control else None, _milliseconds),
                number(matrix, color="" if name == "explicit" else "gray"),
                number(_mb(row.peak_bytes if row else None), _tenths, bold=True),
                number(sizes, ratio),
                number(_mb(row.predicted_bytes if row else None), _tenths),
            )
        )
        if row and row.ended:
            before = row
    return Table(ROW_COLUMNS, lines)


def _mb(size: int | None) -> float | None:
    return size / MB if size else None


def _tenths(value: float | None) -> str:
    return quantity(value, 1)


def _milliseconds(value: float | None) -> str:
    return NOTHING if value is None else milliseconds(value)


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


def chapter_table(choice: Choice, found: Measurement) -> Table:
    """What the chapter prints, and beside it the reader's peak of the same layer, with the workspace."""
    yours = {row.n: row for row in found.rows if row.implementation == "explicit"}
    lines = []
    before: ChapterRow | None = None
    for printed in CHAPTER:
        times = sizes = None
        if before and printed.step_ms and before.step_ms and printed.peak_mb and before.peak_mb:
            times, sizes = printed.step_ms / before.step_ms, printed.peak_mb / before.peak_mb
        out = printed.peak_mb is None
        peak = Cell(None, f"out{NBSP}of{NBSP}memory") if out else number(printed.peak_mb, _tenths)
        mine = Cell(*_beside(choice, yours.get(printed.n), printed))
        lines.append((f"{printed.n:,}", number(times, ratio), peak, number(sizes, ratio), mine))
        before = printed
    return Table(CHAPTER_COLUMNS, lines, chapter_remark(choice))


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
        f"code on tensors without data. MB are 2²⁰ bytes."
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


def exponents_table(choice: Choice, found: Measurement) -> Table:
    """Fitted slopes of the last four rows; below them explicit's, as shipped and as the chapter has them."""
    fitted = slopes(found.ended)
    lines: list[tuple[str, tuple[float | None, ...]]] = []
    for name in choice.plan.implementations if choice.plan else IMPLEMENTATIONS:
        mine = fitted.get(name, {})
        loaded = _loaded_slope(choice, found, name)
        lines.append((f"{dot(name)}{NBSP}{name}", (mine.get("time"), mine.get("bytes"), loaded)))
    if shipped := memory.shipped():
        lines.append(("shipped, explicit", tuple(memory.explicit_exponents(shipped))))
    lines.append(("chapter, explicit", (CHAPTER_EXPONENTS["time"], None, CHAPTER_EXPONENTS["bytes"])))
    rows = [(label, *(number(value, ratio) for value in values)) for label, values in lines]
    return Table(("exponent of n", "time", "memory", "with workspace"), rows, exponents_remark())


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
