"""Find my wall: the longest text that fits a card, found without allocating anything, and then for real."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from engine.memory_wall.plan import Plan
from engine.memory_wall.predictions import Longest
from engine.memory_wall.setting import CARDS_GB, GB, MB, Setting
from lab.bench import Table
from lab.bench.tables import number
from lab.charts import lines as charts
from lab.charts.drawing import Spec
from lab.charts.lines import Across, Curve, Frame, Line
from lab.sections.wall.parts import decades, whole_mb
from lab.sections.wall.rows import Measurement
from lab.sections.wall.sentences import under_way
from lab.shell.frame import dot
from lab.shell.styles import style
from lab.words import NBSP, plain, quantity, signed

if TYPE_CHECKING:
    pass

WAYS = ("explicit", "fused", "chunked")
SMALL_GB = ("0.1", "0.5", "1")  # cards that any machine can pretend to have
ASKED: tuple[dict[str, Any], ...] = (  # of explicit alone on the small ones
    {"cards_gb": CARDS_GB, "implementations": WAYS},
    {"cards_gb": tuple(map(float, SMALL_GB)), "implementations": ("explicit",)},
)
CHAPTERS = (8, "explicit")  # what the chapter's formula gives for it: 11,338

Found = Mapping[tuple[float, str], int]


def longest(rows: Iterable[Longest]) -> Found:
    """The longest n by card and implementation, of what was predicted."""
    return {(row.card_gb, row.implementation): row.n for row in rows}


def cards_table(found: Found | None) -> Table:
    """The longest n, a line a card."""
    rows = [
        (f"{card}{NBSP}GB", *(number(found[float(card), way] if found else None, _whole) for way in WAYS))
        for card in CARDS_GB
    ]
    caption = "8.125 MB are set aside for cuBLAS, as on the chapter’s card. At most 100,000,000."
    return Table(("card", *WAYS), rows, caption)


def _whole(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}"


def chart(found: Found | None) -> Spec:
    """The longest n over the size of the card, a line an implementation."""
    first, last = float(CARDS_GB[0]), CARDS_GB[-1]
    low, high = 1000.0, 100_000_000.0
    across = Across(
        field="GB", title="memory of the card, GB", first=first, log=True, ticks=tuple(map(float, CARDS_GB))
    )
    frame = Frame(
        steps=last, low=low, high=high, field="tokens", ticks=decades(low, high), form=",d", height=200,
        gutter=0.55, across=across, shown=_short,
    )  # fmt: skip
    lines = [
        Line(way, style(way), (Curve(tuple((card, found[float(card), way]) for card in CARDS_GB)),))
        for way in WAYS
        if found
    ]
    return charts.line_chart(frame, lines)


def _short(value: float | None) -> str:
    """ "47,594", "2.2 M"."""
    if value is None or value < 1e6:
        return quantity(value, 0)
    return f"{value / 1e6:.1f}{NBSP}M"


def csv_rows(found: Found | None) -> list[tuple[object, ...]]:
    """For a file; the first row names the columns."""
    rows = sorted(found.items()) if found else []
    return [("card_gb", "implementation", "longest_n"), *((gb, name, n) for (gb, name), n in rows)]


def answer(found: Found, card: int, guess: int | None, setting: Setting) -> str:
    """The reader's guess beside what was found; what doubling the card buys; what not storing buys."""
    n = found[float(card), "explicit"]
    said = f"On {card}{NBSP}GB explicit fits **{n:,}** tokens and not one more."
    if guess:
        off = 100 * (guess / n - 1) if n else 0.0
        near = "exactly that" if guess == n else f"{signed(off, lambda v: quantity(v, 0))}{NBSP}%"
        said = f"You guessed *{guess:,}*: {near}. {said}"
    lines = [said]
    if setting == Setting() and card == CHAPTERS[0]:
        lines[0] += " The chapter’s formula, its workspace included, says the same."
    large, small = found[16.0, "explicit"], found[8.0, "explicit"]
    if small:
        lines.append(
            f"Twice the memory is not twice the text: from 8 to 16{NBSP}GB it is **{large / small:.2f}** "
            f"times as long, about √2, since the matrix grows with n²."
        )
    if n:
        gains = " and ".join(f"{way} **{found[float(card), way] / n:,.0f}**" for way in ("fused", "chunked"))
        lines.append(f"Without the matrix: {gains} times as long a text on the same card.")
    return "\n\n".join(lines)


def pair(found: Found, small: str, setting: Setting, device: str) -> Plan | None:
    """The last n that fits a small card and the first that does not, to be measured; None: nothing fits."""
    n = found[float(small), "explicit"]
    if n < 1:
        return None
    return Plan(
        tokens=(n, n + 1),
        implementations=("explicit",),
        setting=setting,
        budget_bytes=int(float(small) * GB),
        device=device,
        timed=False,
    )


def pair_words(plan: Plan, found: Measurement) -> str:
    """What the two real measurements say of the prediction."""
    last = plan.tokens[0]
    states = {row.n: row for row in found.ended}
    a, b = states.get(last), states.get(last + 1)
    lead = f"{dot('explicit')} "
    if found.state == "none":
        budget = whole_mb(plan.budget_bytes or 0)
        return f"{lead}Predicted: {last:,} fits {budget}{NBSP}MB, {last + 1:,} does not."
    if found.live:
        return under_way(found, f"{last:,} and {last + 1:,} tokens")
    if found.state in ("failed", "cancelled", "interrupted"):
        why = f": {plain(found.reason)}" if found.reason else ""
        return f":{'red' if found.state == 'failed' else 'gray'}[{found.state.capitalize()}{why}]"
    said = []
    for row in (a, b):
        if row is None:
            continue
        if row.state == "done" and row.peak_bytes:
            said.append(f"{row.n:,} tokens fit, with {quantity(row.peak_bytes / MB, 2)}{NBSP}MB at the peak")
        elif row.state == "out of memory":
            said.append(f"{row.n:,} are out of memory")
        else:
            said.append(f"{row.n:,} failed ({plain(row.reason or 'without a word')})")
    held = bool(a and b and (a.state, b.state) == ("done", "out of memory"))
    judged = ":green[As predicted.]" if held else ":red[Not as predicted.]"
    return f"{lead}Measured: {', '.join(said)}. {judged}"
