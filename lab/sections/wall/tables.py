"""Tables of the page of the n x n wall: the rows, the chapter's beside them, exponents, and captions."""

from dataclasses import replace

from engine.benchmarks import memory
from engine.memory_wall.plan import Row, ratios, slopes
from engine.memory_wall.setting import CHAPTER, CHAPTER_EXPONENTS, DTYPE_BYTES, GB, MB, ChapterRow
from engine.system import device
from lab.bench import Cell, Table
from lab.bench.tables import NO_NUMBER, number
from lab.sections.wall.parts import LayerPlan, layer_words, milliseconds, with_workspace
from lab.sections.wall.rows import Measurement
from lab.shell.frame import dot
from lab.words import NBSP, decimals, plain

ROW_COLUMNS = ("tokens", "ms", "ms ×", "projections", "matrix MB", "peak MB", "MB ×", "predicted")
CHAPTER_COLUMNS = ("chapter", "ms ×", "peak MB", "MB ×", "yours")
OUT = f"out{NBSP}of{NBSP}memory"
STATES = {
    "out of memory": f":red[{OUT}]",
    "failed": ":red[failed]",
    "cancelled": ":gray[cancelled]",
    "running": ":primary[running]",
}
NO_ROW = Row(n=0, implementation="", state="done")


def rows_table(choice: LayerPlan, found: Measurement, name: str) -> Table:
    """One implementation, a line an n, with the chapter's columns and what was predicted."""
    grown = zip(found.rows, ratios(found.rows), strict=True)
    rows = {row.n: (row, times) for row, times in grown if row.implementation == name}
    control = {row.n: row.step_ms for row in found.rows if row.implementation == "projections"}
    layer = choice.layer
    lines = []
    for n in choice.tokens:
        row, (times, sizes) = rows.get(n, (NO_ROW, (None, None)))
        matrix = DTYPE_BYTES[layer.dtype] * layer.batch * layer.n_head * n * n  # one (B, H, n, n) tensor
        cells = (
            Cell(row.step_ms, STATES.get(row.state) or number(row.step_ms, milliseconds, bold=True).text),
            number(times, decimals(2)),
            number(control.get(n), milliseconds),
            number(matrix / MB, color="" if name == "explicit" else "gray"),
            number(_mb(row.peak_bytes), decimals(1), bold=True),
            number(sizes, decimals(2)),
            number(_mb(row.predicted_bytes), decimals(1)),
        )
        lines.append((f"{n:,}", *cells))
    return Table(ROW_COLUMNS, lines)


def _mb(size: int | None) -> float | None:
    return size / MB if size else None


def chapter_table(choice: LayerPlan, found: Measurement) -> Table:
    """What the chapter prints, and beside it the reader's peak of the same layer, with the workspace."""
    yours = {row.n: row for row in found.rows if row.implementation == "explicit"}
    lines = []
    for before, printed in zip((None, *CHAPTER), CHAPTER, strict=False):
        times = sizes = None
        if before and printed.step_ms and before.step_ms and printed.peak_mb and before.peak_mb:
            times, sizes = printed.step_ms / before.step_ms, printed.peak_mb / before.peak_mb
        peak = number(printed.peak_mb, decimals(1)) if printed.peak_mb else Cell(None, OUT)
        mine = _beside(choice, yours.get(printed.n, NO_ROW), printed)
        ratio = decimals(2)
        lines.append((f"{printed.n:,}", number(times, ratio), peak, number(sizes, ratio), mine))
    said = "An 8 GB laptop GPU. Compare ratios and bytes; its milliseconds are another machine’s."
    if choice.is_the_chapters:
        said += (
            f" Yours: explicit’s peak with the workspace of that card’s cuBLAS, 8.125{NBSP}MB; green where "
            f"it is the chapter’s to the digit."
        )
    else:
        said += " Its layer: width 512, 8 heads, float32, causal, forward. Yours is another."
    return Table(CHAPTER_COLUMNS, lines, said)


def _beside(choice: LayerPlan, row: Row, printed: ChapterRow) -> Cell:
    """The reader's peak in MB as the chapter's card would show it."""
    plan = choice.plan
    if plan is None or not choice.is_the_chapters:
        return NO_NUMBER
    if row.state == "out of memory":
        same = printed.peak_mb is None and plan.budget_bytes == 8 * GB
        return Cell(None, f":green[same{NBSP}n]" if same else f":gray[{OUT}]")
    if row.peak_bytes is None:
        return NO_NUMBER
    mine = with_workspace(row.peak_bytes, plan) / MB
    if printed.peak_mb is None:
        return number(mine, decimals(1), color="gray")
    if abs(mine - printed.peak_mb) < 0.051:
        return number(mine, decimals(1), color="green")
    return Cell(mine, f":red[{decimals(1)(mine)}{NBSP}outside]")


def rows_remark(choice: LayerPlan, found: Measurement) -> str:
    """Below the reader's rows: where, how, and what is not said by a number alone."""
    said = [
        f"One layer, {layer_words(choice.layer)}. ms: median of repeats after a warm-up. Predicted: the same "
        f"code on tensors without data. MB are 2²⁰ bytes.",
    ]
    if kernel := next((row.backend for row in found.rows if row.backend), None):
        said.append(f"Fused ran the kernel {plain(kernel)}.")
    if choice.plan and choice.plan.device == "cpu":
        here = plain(device.cpu_title())
        said.append(f"Measured on {here}.")
        if choice.plan.budget_bytes:
            said.append(f"Of the budget 8.125{NBSP}MB are set aside for cuBLAS, as on a card.")
    return " ".join(said)


def exponents_table(choice: LayerPlan, found: Measurement) -> Table:
    """Fitted slopes of the last four rows; below them explicit's, as shipped and as the chapter has them."""
    fitted, loaded, plan = slopes(found.ended), dict[str, float | None](), choice.plan
    if plan and choice.is_the_chapters:
        explicit = [row for row in found.ended if row.implementation == "explicit" and row.peak_bytes]
        with_it = [replace(row, peak_bytes=with_workspace(row.peak_bytes or 0, plan)) for row in explicit]
        loaded = {name: by["bytes"] for name, by in slopes(with_it).items()}
    lines: list[tuple[str, tuple[float | None, ...]]] = []
    for name in choice.implementations:
        mine = fitted.get(name, {})
        lines.append((f"{dot(name)}{NBSP}{name}", (mine.get("time"), mine.get("bytes"), loaded.get(name))))
    said = (
        "The slope of the last four rows, log against log; the chapter’s are of 1,024 to 8,192. The "
        "workspace of cuBLAS does not grow, so it flattens the slope."
    )
    if shipped := memory.shipped():
        lines.append(("shipped, explicit", tuple(memory.explicit_exponents(shipped))))
        said += f" Shipped: {shipped['device']}, {shipped['date']}, 1,024 to 8,192."
    lines.append(("chapter, explicit", (CHAPTER_EXPONENTS["time"], None, CHAPTER_EXPONENTS["bytes"])))
    rows = [(label, *(number(value, decimals(2)) for value in values)) for label, values in lines]
    return Table(("exponent of n", "time", "memory", "with workspace"), rows, said)
