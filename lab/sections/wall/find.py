"""Find my wall: the longest text that fits a card, found without allocating anything, and then for real."""

from collections.abc import Mapping
from typing import Any

import streamlit as st

from engine.memory_wall.plan import Plan
from engine.memory_wall.setting import CARDS_GB, GB, MB, Setting
from engine.probes.registry import MEMORY_WALL
from lab import bench, probes, settings
from lab.bench import Table
from lab.bench.tables import number
from lab.charts import drawing
from lab.charts import lines as charts
from lab.charts.drawing import Spec
from lab.charts.lines import Across, Curve, Line, Plot
from lab.sections.wall import parts, results, rows
from lab.sections.wall.parts import Controls, whole_mb
from lab.sections.wall.rows import Measurement
from lab.sections.wall.sentences import under_way
from lab.settings import Settings
from lab.shell import frame
from lab.shell.frame import dot
from lab.shell.styles import style
from lab.words import NBSP, decimals, plain, quantity, signed

WAYS = ("explicit", "fused", "chunked")
SMALL_GB = ("0.1", "0.5", "1")  # cards that any machine can pretend to have
ASKED: tuple[dict[str, Any], ...] = (  # of explicit alone on the small ones
    {"cards_gb": CARDS_GB, "implementations": WAYS},
    {"cards_gb": tuple(map(float, SMALL_GB)), "implementations": ("explicit",)},
)
CHAPTERS_GB = 8  # on this card the chapter's formula gives 11,338

Longest = Mapping[tuple[float, str], int]  # the longest n by card in GB and implementation


def draw(chosen: Controls, small: settings.Setting[str], page: Settings) -> None:
    """Card, guess and button; what is predicted once it was asked for; and a real pair around it."""
    layer = chosen.choice.layer
    with st.container(horizontal=True, vertical_alignment="bottom", key="instruments-find"):
        chosen.card.draw()
        chosen.mine.draw(placeholder="Your guess", width=240)
        asked = probes.pressed("Predict", page.key("find"), layer, MEMORY_WALL.seconds)
        status_slot = bench.status_line()
    probes.outdated(asked, layer)
    found = _predicted(status_slot, asked) if asked else {}
    bench.figure_title(
        "Longest text that fits",
        "tokens, over the card’s memory",
        "memory-wall-longest",
        lambda: chart(found),
        lambda: csv_rows(found),
        key="figure-title-find",
    )
    with st.container(horizontal=True, gap="medium", key="figure-find"):
        with st.container(width=bench.HALF, gap=None):
            drawing.draw(chart(found), key="wall.find")
        with st.container(width=bench.HALF):
            cards_table(found).draw()
    if found:
        st.markdown(answer(found, chosen.card.value, chosen.mine.value, layer), width=frame.MEASURE)
        _for_real(found, chosen, small, page)


def _predicted(status_slot: Any, layer: Setting) -> Longest:
    """What fits each card; nothing where that cannot be said."""
    found = dict[tuple[float, str], int]()
    for arguments in ASKED:
        answer = probes.attempt(status_slot, MEMORY_WALL, "Predicting …", setting=layer, **arguments)
        if answer is None:
            return {}
        found |= {(row.card_gb, row.implementation): row.n for row in answer.longest}
    status_slot.markdown(f":small[:green[Predicted for {plain(parts.layer_words(layer))}]]")
    return found


def _for_real(found: Longest, chosen: Controls, small: settings.Setting[str], page: Settings) -> None:
    """The last n that fits a small card, and the next one, measured."""
    choice = chosen.choice
    with st.container(horizontal=True, vertical_alignment="bottom", key="instruments-pair"):
        small.draw()
        plan = pair(found, small.value, choice.layer, choice.plan.device if choice.plan else "cpu")
        measured = rows.followed(plan, page)
        results.measure(page.key("pair"), "Measure both", plan, measured, primary=False)
        said = pair_words(plan, measured) if plan else ":gray[Not a single token fits such a card]"
        st.markdown(f":small[{said}]")


def cards_table(found: Longest) -> Table:
    """The longest n, a line a card."""
    lines = [
        (f"{card}{NBSP}GB", *(number(found.get((float(card), way)), "{:,}".format) for way in WAYS))
        for card in CARDS_GB
    ]
    caption = "8.125 MB are set aside for cuBLAS, as on the chapter’s card. At most 100,000,000."
    return Table(("card", *WAYS), lines, caption)


def chart(found: Longest) -> Spec:
    """The longest n over the size of the card, a line an implementation."""
    cards, low, high = tuple(map(float, CARDS_GB)), 1000.0, 100_000_000.0
    plot = Plot(
        steps=CARDS_GB[-1], low=low, high=high, field="tokens", ticks=parts.decades(low, high), form=",d",
        height=200, gutter=0.55, shown=_short,
        across=Across(field="GB", title="memory of the card, GB", first=cards[0], log=True, ticks=cards),
    )  # fmt: skip
    lines = [
        Line(way, style(way), (Curve(tuple((card, found[card, way]) for card in cards)),))
        for way in WAYS
        if found
    ]
    return charts.line_chart(plot, lines)


def _short(value: float | None) -> str:
    """ "47,594", "2.2 M"."""
    return quantity(value, 0) if value is None or value < 1e6 else f"{value / 1e6:.1f}{NBSP}M"


def csv_rows(found: Longest) -> list[tuple[object, ...]]:
    """For a file; the first row names the columns."""
    names = ("card_gb", "implementation", "longest_n")
    return [names, *((gb, name, n) for (gb, name), n in sorted(found.items()))]


def answer(found: Longest, card: int, guess: int | None, setting: Setting) -> str:
    """The reader's guess beside what was found; what doubling the card buys; what not storing buys."""
    n = found[float(card), "explicit"]
    said = f"On {card}{NBSP}GB explicit fits **{n:,}** tokens and not one more."
    if guess:
        off = 100 * (guess / n - 1) if n else 0.0
        near = "exactly that" if guess == n else f"{signed(off, decimals(0))}{NBSP}%"
        said = f"You guessed *{guess:,}*: {near}. {said}"
    lines = [said]
    if setting == Setting() and card == CHAPTERS_GB:
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


def pair(found: Longest, small: str, setting: Setting, device: str) -> Plan | None:
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
    last, lead = plan.tokens[0], f"{dot('explicit')} "
    if found.state == "none":
        budget = whole_mb(plan.budget_bytes or 0)
        return f"{lead}Predicted: {last:,} fits {budget}{NBSP}MB, {last + 1:,} does not."
    if found.live:
        return under_way(found, f"{last:,} and {last + 1:,} tokens")
    if found.state in ("failed", "cancelled", "interrupted"):
        why = f": {plain(found.reason)}" if found.reason else ""
        return f":{'red' if found.state == 'failed' else 'gray'}[{found.state.capitalize()}{why}]"
    said = []
    measured = sorted(found.ended, key=lambda row: row.n)
    for row in measured:
        if row.state == "done" and row.peak_bytes:
            said.append(f"{row.n:,} tokens fit, with {quantity(row.peak_bytes / MB, 2)}{NBSP}MB at the peak")
        elif row.state == "out of memory":
            said.append(f"{row.n:,} are out of memory")
        else:
            said.append(f"{row.n:,} failed ({plain(row.reason or 'without a word')})")
    held = [(row.n, row.state) for row in measured] == [(last, "done"), (last + 1, "out of memory")]
    judged = ":green[As predicted.]" if held else ":red[Not as predicted.]"
    return f"{lead}Measured: {', '.join(said)}. {judged}"
