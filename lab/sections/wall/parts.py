"""Settings and sentences of the page of the n x n wall."""

import ast
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

from engine.memory_wall.plan import Plan, Row, doubling, shared_words
from engine.memory_wall.setting import (
    CARDS_GB,
    DTYPE_BYTES,
    FIRST_TOKENS,
    GB,
    IMPLEMENTATIONS,
    MB,
    WORKSPACE_BYTES,
    Setting,
    check_implementation,
    closed_form,
)
from engine.system import device, paths
from lab.sections.wall.rows import Measurement
from lab.settings import Settings, one_of, whole
from lab.shell.frame import dot
from lab.words import NBSP, about, count, duration, plain, quantity

if TYPE_CHECKING:
    pass

LONGEST = 131_072
TOKENS = (1024, 4096, 16_384)
BUDGETS = ("none", "1", "4", "8", "16")  # GB
HEADS = (1, 8, 16)
WIDTHS = (256, 512, 1024)
DTYPES = tuple(DTYPE_BYTES)
MASKS = {"causal": "causal", "none": "none"}
PASSES = {"forward": "forward", "backward": "and back"}
FIRST_GUESSES = {
    **{str(n): f"{n:,}" for n in (2048, 4096, 8192, 16_384, 32_768)},
    "later": "a longer one",
}
TIME_GUESSES = {"2": "twice as much", "4": "four times", "8": "eight times"}
NAMES = (
    "first", "time", "budget", "heads", "width", "dtype", "mask", "pass", "ways", "to", "of"
)  # fmt: skip
NOTHING = ":gray[–]"


@dataclass(frozen=True)
class Choice:
    """What the reader chose. plan: None where it cannot be measured, and ``refusal`` says why.

    layer: the sizes; the chapter's where the reader's cannot be.
    """

    layer: Setting
    plan: Plan | None
    refusal: str = ""

    @property
    def is_the_chapters(self) -> bool:
        """Whether the layer is the one whose bytes the chapter prints."""
        return self.layer == Setting()


def choose(settings: Settings) -> Choice:
    """The settings' values, from the URL or the widgets."""
    settings.seed("first", one_of("first", tuple(FIRST_GUESSES)), None)
    settings.seed("time", one_of("time", tuple(TIME_GUESSES)), None)
    budget = settings.seed("budget", parse_budget, "8")
    heads = settings.seed("heads", whole("heads", 1, 1024), 8)
    width = settings.seed("width", whole("width", 1, 16_384), 512)
    dtype = settings.seed("dtype", one_of("dtype", DTYPES), "float32")
    mask = settings.seed("mask", one_of("mask", tuple(MASKS)), "causal")
    way = settings.seed("pass", one_of("pass", tuple(PASSES)), "forward")
    ways = settings.seed("ways", parse_ways, list(IMPLEMENTATIONS), ",".join)
    to = settings.seed("to", whole("to", FIRST_TOKENS, LONGEST), 4096)
    settings.seed("of", one_of("of", IMPLEMENTATIONS), "explicit")
    layer = Setting()
    try:
        layer = Setting(
            d_model=width, n_head=heads, dtype=dtype, causal=mask == "causal", backward=way == "backward"
        )
        if not ways:
            raise ValueError("No implementation is chosen; allowed: one or more.")
        plan = Plan(
            tokens=doubling(to),
            implementations=tuple(name for name in IMPLEMENTATIONS if name in ways),
            setting=layer,
            budget_bytes=None if budget == "none" else int(budget) * GB,
            device=device.describe().kind,
        )
    except ValueError as error:
        return Choice(layer, None, _sentence(str(error)))
    except RuntimeError as error:
        return Choice(layer, None, f"torch does not start: {error}")
    return Choice(layer, plan)


def _sentence(text: str) -> str:
    """An engine's complaint in the page's own words."""
    return text.replace("n_head is", "Heads are").replace("d_model,", "the width,")


def parse_budget(text: str) -> str:
    """ "none", or whole GB."""
    if text == "none":
        return text
    if not (text.isascii() and text.isdigit() and len(text) < 6 and 1 <= int(text) <= 1024):
        raise ValueError(f"budget is {text!r}; allowed: none, or whole GB from 1 to 1,024.")
    return str(int(text))


def listed_card(text: str) -> int:
    """One of the cards, in GB."""
    if text not in map(str, CARDS_GB):
        raise ValueError(f"card is {text!r}; allowed: {', '.join(map(str, CARDS_GB))}.")
    return int(text)


def parse_ways(text: str) -> list[str]:
    """Implementations with commas between them, each once; none is allowed, and refused later."""
    return list(dict.fromkeys(check_implementation(name) for name in text.split(",") if name))


# The line beside the button.


def standing(choice: Choice, found: Measurement) -> str:
    """Where the measurement stands, in one line of Markdown."""
    if choice.plan is None:
        return f":red[{plain(choice.refusal)}]"
    rows = f"{len(found.ended)} row{'' if len(found.ended) == 1 else 's'}"
    if found.state == "none":
        return f":gray[{_takes(choice.plan)}]"
    if found.state == "waiting":
        return ":gray[Waiting: another measurement has the device]"
    if found.state == "running":
        now = found.current
        return f":primary[Running: {f'{now.implementation}, {now.n:,} tokens' if now else 'loading torch'}]"
    if found.state == "failed":
        return f":red[Failed: {plain(found.reason or 'without a word')}]"
    if found.state == "cancelled":
        return f":gray[Cancelled after {rows}]"
    if found.state == "interrupted":
        return f":orange[Interrupted after {rows}. Measure again]"
    failed = sum(row.state == "failed" for row in found.ended)
    done = f":green[{rows} in {duration(found.seconds)}]"
    if failed:
        done = f":red[{count(failed).capitalize()} of {rows} failed]"
    if found.newer:
        done += f" :gray[The one after it was {found.newer}]"
    return done


def _takes(plan: Plan) -> str:
    """A rough word beforehand: most of it is the time that torch takes to load, row by row."""
    last, rows = max(plan.tokens), len(plan.tokens) * len(plan.implementations)
    seconds = 1.5 * rows + 4 * (last / 4096) ** 2 * len(plan.implementations)
    return f"Takes {about(seconds)} on two cores; more with a wider layer"


def row_notes(found: Measurement, plan: Plan) -> list[str]:
    """A sentence for each row that is no figure: what it would have needed, or what went wrong."""
    said = []
    for row in found.rows:
        lead = f"{dot(row.implementation)} {row.implementation}, {row.n:,} tokens: "
        if row.state == "out of memory":
            why = plain(row.reason or "")
            if row.predicted_bytes:
                needed = needed_bytes(row.predicted_bytes, plan)
                if plan.budget_bytes and needed > plan.budget_bytes:
                    why = f"{whole_mb(plan.budget_bytes)} allowed."
                why = f"{whole_mb(needed)}{NBSP}MB needed, {why}"
            said.append(f"{lead}:red[out of memory:] {why}")
        elif row.state == "failed":
            said.append(f"{lead}:red[failed:] {plain(row.reason or 'without a word')}")
        elif row.state == "cancelled":
            said.append(f":gray[{lead}cancelled.]")
    if beside := max((row.runs_beside for row in found.rows), default=0):
        said.append(f":orange[{shared_words(beside)}]")
    return said


def needed_bytes(predicted: int, plan: Plan | None) -> int:
    """What a row would have needed; of a budget the workspace of cuBLAS is a part, whatever the device."""
    return with_workspace(predicted, plan) if plan and plan.budget_bytes else predicted


def whole_mb(size: float) -> str:
    """Bytes as whole MB of 2^20: "17,036"."""
    return f"{size / MB:,.0f}"


def ratio(value: float | None) -> str:
    """ "3.72", or a dash."""
    return NOTHING if value is None else quantity(value, 2)


def milliseconds(value: float) -> str:
    """A time in ms, with three digits or so."""
    return quantity(value, 2 if value < 10 else 1 if value < 1000 else 0)


def matrix_bytes(n: int, setting: Setting) -> int:
    """Of one (B, H, n, n) tensor."""
    return DTYPE_BYTES[setting.dtype] * setting.batch * setting.n_head * n * n


def with_workspace(size: int, plan: Plan) -> int:
    """Peak bytes as cuBLAS's workspace on the chapter's card would make them."""
    return size + WORKSPACE_BYTES - plan.workspace_bytes


def layer_words(setting: Setting) -> str:
    """A layer's sizes in words."""
    way = "forward and back" if setting.backward else "forward"
    mask = "causal" if setting.causal else "without a mask"
    heads = f"{setting.n_head} head{'' if setting.n_head == 1 else 's'}"
    return f"width {setting.d_model:,}, {heads}, {setting.dtype}, {mask}, {way}"


# What to notice.


def notice(choice: Choice, found: Measurement, first: str | None, time: str | None) -> str:
    """The guesses, answered by the reader's rows; then what the rows say."""
    done = [row for row in found.ended if row.state == "done"]
    explicit = _of(done, "explicit")
    if choice.plan is None or not found.ended:
        return "Nothing is measured yet. Make your two guesses, then measure."
    if found.live:
        return "Your guesses are answered here when the last row has ended."
    said = [_wall_answer(choice.plan, found, first), _time_answer(explicit, done, time)]
    if len(explicit) > 1:
        said.append(_memory_words(done))
    return "\n\n".join(line for line in said if line)


def _of(rows: Sequence[Row], name: str) -> list[Row]:
    return sorted((row for row in rows if row.implementation == name), key=lambda row: row.n)


def _wall_answer(plan: Plan, found: Measurement, first: str | None) -> str:
    if "explicit" not in plan.implementations:
        return ""
    guess = f"You guessed *{FIRST_GUESSES[first]}*. " if first else ""
    wall = next(
        (r for r in found.ended if r.implementation == "explicit" and r.state == "out of memory"), None
    )
    if wall is None:
        last = max(plan.tokens)
        if plan.budget_bytes is None:
            return f"{guess}Explicit had room for all rows up to {last:,}."
        n = first_over(plan)
        return f"{guess}All rows up to {last:,} fit. By the formula **{n:,}** is the first that does not."
    others = [
        name
        for name in ("fused", "chunked")
        if any(row.implementation == name and row.n == wall.n and row.state == "done" for row in found.ended)
    ]
    passed = f" {' and '.join(others).capitalize()} pass it." if len(others) > 1 else ""
    if len(others) == 1:
        passed = f" {others[0].capitalize()} passes it."
    return f"{guess}Explicit ends at **{wall.n:,}** tokens.{passed}"


def first_over(plan: Plan) -> int:
    """The first power of two that explicit does not fit into the budget, by the closed form."""
    setting, n = replace(plan.setting, backward=False), FIRST_TOKENS
    while closed_form(n, setting, WORKSPACE_BYTES) <= (plan.budget_bytes or 0):
        n *= 2
    return n


def _time_answer(explicit: Sequence[Row], done: Sequence[Row], time: str | None) -> str:
    timed = [row for row in explicit if row.step_ms]
    if len(timed) < 2:
        return ""
    a, b = timed[-2:]
    guess = f"You guessed *{TIME_GUESSES[time]}*. " if time else ""
    grown = (b.step_ms or 0) / (a.step_ms or 1)
    said = f"{guess}From {a.n:,} to {b.n:,} tokens explicit takes **{quantity(grown, 2)} times** as long"
    control = {row.n: row.step_ms for row in done if row.implementation == "projections"}
    if control.get(a.n) and control.get(b.n):
        linear = (control[b.n] or 0) / (control[a.n] or 1)
        said += f", its four projections alone {quantity(linear, 2)}"
    return f"{said}. Twice the tokens are four times the pairs."


def _memory_words(done: Sequence[Row]) -> str:
    grown = []
    for name in ("explicit", "fused", "chunked"):
        rows = [row for row in _of(done, name) if row.peak_bytes]
        if len(rows) > 1:
            grown.append((name, (rows[-1].peak_bytes or 0) / (rows[-2].peak_bytes or 1)))
    listed = ", ".join(f"{name} **{quantity(value, 2)}**" for name, value in grown)
    if not listed:
        return ""
    tail = "" if len(grown) < 2 else " Only explicit stores the matrix; the others compute the same numbers."
    return f"Memory at the last doubling: {listed} times.{tail}"


# The code.


@lru_cache(maxsize=8)
def source(name: str) -> str:
    """A function of ``engine/memory_wall/attention.py``, read without importing torch."""
    path = paths.ROOT / "engine" / "memory_wall" / "attention.py"
    text = path.read_text(encoding="utf-8")
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef) and node.name == name:
            return ast.get_source_segment(text, node) or ""
    raise ValueError(f"no function {name!r} in {path.name}")


# For a file.


def csv_rows(found: Measurement) -> list[tuple[object, ...]]:
    """Every row with all that was measured; the first one names the columns."""
    names = (
        "implementation", "n", "state", "step_ms", "spread_ms", "repeats", "peak_bytes", "predicted_bytes",
        "closed_form_bytes", "needed_bytes", "resident_bytes", "backend", "reason",
    )  # fmt: skip
    return [names, *(tuple(getattr(row, name) for name in names) for row in found.rows)]


def decades(low: float, high: float) -> tuple[float, ...]:
    """The powers of ten in a range."""
    first, last = math.ceil(math.log10(low)), math.floor(math.log10(high))
    return tuple(float(10**exponent) for exponent in range(first, last + 1))
