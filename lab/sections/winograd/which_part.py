"""Pattern or value: which part of a look tells sentences apart, and where heads look for either answer."""

import streamlit as st

from engine.circuits.results import NEEDED, Head, Left
from engine.probes.registry import PARTS
from engine.probes.results.winograd import PartOfLook, Parts
from lab import bench
from lab.bench import Cell, Table, tables
from lab.charts.maps.sentences import number
from lab.sections.winograd.inside import Inside
from lab.sections.winograd.parts import share

LEFT = ("cut", "score", "value", "both", "flow", "rest", "what counts")
KEYS = {"nouns": "the nouns", "adjective": "the adjective"}


def draw(inside: Inside) -> None:
    """Of the chosen model: what is left without each part of a look, and the weights by answer."""
    if not inside.ready() or (found := inside.find(PARTS, **inside.subject)) is None:
        return
    inside.whose()
    st.markdown(words(found), width=bench.TABLE_WIDTH)
    with st.container(width=bench.TABLE_WIDTH):
        parts_table(found).draw()
    with st.container(width=bench.HALF):
        weights_table(found).draw()


def parts_table(found: Parts) -> Table:
    """A line a block's look of the deciding position, by all of its heads."""
    rows = [
        (f"block {one.block + 1} → {KEYS[one.key]}", *left_cells(one.left, found.clean))
        for one in found.looks
    ]
    caption = (
        f"Right answers of {found.count} held-out sentences once the look is cut, or that part is at its "
        f"mean; {share(found.clean)} with nothing changed. Flow: weight times value, what flows along it. "
        f"Rest: the weight that it leaves to the rest of its row. A part counts if it costs "
        f"{100 * NEEDED:.0f} points."
    )
    return Table(("look", *LEFT), rows, caption)


def left_cells(left: Left, clean: float) -> tuple[Cell | str, ...]:
    """The cells of ``LEFT``."""
    values = left.cut, left.pattern, left.values, left.both, left.flow, left.rest
    return (*(tables.number(value, share) for value in values), what_counts(left, clean))


def what_counts(left: Left, clean: float) -> str:
    """In words: "score, by its flow"."""
    if not left.needed(clean):
        return "not needed"
    counts = left.counts(clean)
    parts = [word for name, word in (("pattern", "score"), ("values", "value")) if name in counts]
    if not parts:
        return "score or value"
    if "pattern" not in counts:
        return "value"
    ways = [word for name, word in (("flow", "its flow"), ("rest", "the rest")) if name in counts]
    return f"{' and '.join(parts)}, by {' and '.join(ways) or 'either'}"


def weights_table(found: Parts) -> Table:
    """A line a head: its mean weights on both nouns and the adjective, where x is right and where y is."""
    rows = []
    for one in found.heads:
        pairs = zip(one.of_first, one.of_second, strict=True)
        cells = (Cell(b - a, f"{number(a)} → {number(b)}") for a, b in pairs)
        rows.append((f"**{Head(one.block, one.head).name}**", *cells))
    caption = "Mean weight at the deciding position where the adjective tells of x → where it tells of y."
    return Table(("weights of", "on x", "on y", "on adj."), rows, caption)


def words(found: Parts) -> str:
    """What counts of every look at the adjective."""
    said = [_said(one, found.clean) for one in found.looks if one.key == "adjective"]
    return " ".join(filter(None, said)) or "No block needs its look at the adjective by itself."


def _said(one: PartOfLook, clean: float) -> str:
    left, counts, block = one.left, one.left.counts(clean), f"Block {one.block + 1}"
    if not left.needed(clean):
        return ""
    value, score = share(left.values), share(left.pattern)
    parts = f"with its value at the mean **{value}** are right, with its score **{score}**"
    match "pattern" in counts, "values" in counts:
        case True, False:
            said = f"{block} needs the adjective’s score, not its value: {parts}."
        case False, True:
            return f"{block} needs the adjective’s value, not its score: {parts}. The word is read there."
        case True, True:
            said = f"{block} needs the adjective’s score and its value: {parts}."
        case _:
            return f"{block} is told by the adjective’s score or by its value, one is enough: {parts}."
    match "flow" in counts, "rest" in counts:
        case True, False:
            way = (
                "What tells is the amount that flows from the adjective, not what the word itself would bring"
            )
        case False, True:
            way = "The adjective is a gate: it decides how much weight is left for the other words"
        case True, True:
            way = "Both the amount that flows from the adjective and the weight left for the other words tell"
        case _:
            way = "The amount that flows from the adjective tells, or the weight left for the other words"
    return f"{said} {way} ({share(left.flow)} with the flow at its mean, {share(left.rest)} with the rest)."
