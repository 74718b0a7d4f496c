"""What the schemes do, on finished weights or fresh ones: figures, tables and words of the live probes."""

import math
from functools import lru_cache
from typing import Any

import altair as alt

from engine.chapter.experiments import POSITIONS
from engine.probes.results.positions import Diagonals, Knowledge, Order, Places, Rescaled
from engine.probes.results.positions import Table as LearnedTable
from lab import probes
from lab.bench import Cell, Table
from lab.bench.tables import number
from lab.charts import lines as charts
from lab.charts.axes import COLOR, hover, levels, rows
from lab.charts.drawing import Spec, compiled, fed
from lab.charts.lines import Across, Curve, Frame, Line, edge
from lab.sections.positions.parts import LENGTHS, LONGER, TRAINED
from lab.shell.frame import dot
from lab.shell.styles import Style, style
from lab.words import NBSP, plain, quantity, visible

variant = POSITIONS.variant

DISTANCES = ("0", "1", "2", "4", "8", "16", "32")
HEADS = tuple(str(head) for head in range(1, variant("rope").config.n_head + 1))
SENTENCE = "the dog bit the man in the garden"
# RoPE as it was trained, and its two rescalings.
WAYS = {
    "plain": ("as trained", Style("violet")),
    "linear": ("linear", Style("violet", "dashed")),
    "ntk": ("NTK-aware", Style("violet", "dotted")),
}
ANGLES = (15, 45, 90, 180)  # degrees at which the axis of turned rows may end
SCORES = (2, 5, 10, 20, 50, 100, 200, 500)  # and that of scores
EXACT = 1e-5  # a difference below is the rounding of float32


# Perplexity per position.


def places_chart(found: Places) -> Spec:
    """Perplexity over the position in a window of 512, a line a scheme."""
    wide, half = found.length, found.bin // 2
    low, high, ticks = _bounds(value for one in found.models.values() for value in one.bins)
    across = Across(field="position", title="position in the window", ticks=(TRAINED, 128, 256, 384, wide))
    frame = Frame(steps=wide, low=low, high=high, ticks=ticks, gutter=0.2, across=across, over=(edge,))
    lines = []
    for name in POSITIONS.variants:
        if one := found.models.get(name):
            points = tuple((found.bin * at + half, value) for at, value in enumerate(one.bins))
            lines.append(Line(variant(name).short, style(name), (Curve(points),)))
    return charts.line_chart(frame, lines, edge=[{"position": TRAINED, "text": "trained up to here"}])


def _bounds(values: Any) -> tuple[float, float, tuple[float, ...]]:
    """Of an axis of perplexities: the chapter's, or wider ones where something does not fit."""
    held = list(values)
    if min(held) > 30 and max(held) < 300:
        return 30.0, 300.0, (30.0, 50.0, 100.0, 200.0, 300.0)
    return 1.0, 10_000.0, (1.0, 10.0, 100.0, 1000.0, 10_000.0)


def places_words(found: Places) -> str:
    """Before and behind the edge, read off the bins."""
    inside = TRAINED // found.bin
    said = []
    for name in POSITIONS.variants:
        if one := found.models.get(name):
            near, far = one.bins[inside - 1], one.bins[-1]
            said.append((far / near, f"{plain(variant(name).short)} {quantity(near)} and {quantity(far)}"))
    listed = "; ".join(text for _, text in sorted(said, key=lambda one: -one[0]))
    return (
        f"The last positions that training saw and the last of {found.length}, the largest rise first: "
        f"{listed}. What a line does at the dashed rule is not the text’s doing: all read the same windows."
    )


# RoPE, rescaled.


def rescaled_chart(found: Rescaled) -> Spec:
    """Perplexity over the length: RoPE as it was trained and with its two rescalings."""
    low, high, ticks = _bounds(row.perplexity for row in found.rows)
    if high == 300:  # nothing near it: the three would lie on each other
        high, ticks = 150.0, (30.0, 50.0, 100.0, 150.0)
    across = Across(field="tokens", title="tokens in the window", first=TRAINED, log=True, ticks=LENGTHS)
    frame = Frame(steps=max(LENGTHS), low=low, high=high, ticks=ticks, gutter=0.42, across=across)
    lines = []
    for way, (name, look) in WAYS.items():
        points = tuple((length, _of(found, way, length)) for length in LENGTHS)
        lines.append(Line(name, look, (Curve(points),)))
    return charts.line_chart(frame, lines)


def _of(found: Rescaled, way: str, length: int) -> float:
    """That perplexity; at the length of training the three are one, and measured once."""
    rows = {(row.way, row.length): row.perplexity for row in found.rows}
    value = rows.get((way, length)) or rows["plain", TRAINED]
    return math.inf if value is None else value


def rescaled_table(found: Rescaled) -> Table:
    """The same as numbers, and how much slower the rotation is."""
    rows = []
    for length in LENGTHS:
        values = [_of(found, way, length) for way in WAYS]
        cells = (number(value, bold=value == min(values)) for value in values)
        rows.append((f"{length} tokens", *cells, number(length / TRAINED, "{:g}".format)))
    return Table(("RoPE at", *(name for name, _ in WAYS.values()), "slower by"), rows)


def rescaled_words(found: Rescaled) -> str:
    """Whether 256 is repaired: what share of the loss each takes back."""
    start, lost = _of(found, "plain", TRAINED), _of(found, "plain", LONGER)
    said = [
        f"As trained, RoPE goes from {quantity(start)} at {TRAINED} tokens to {quantity(lost)} at {LONGER}."
    ]
    for way in ("linear", "ntk"):
        now = _of(found, way, LONGER)
        name = WAYS[way][0]
        name = f"{name[:1].upper()}{name[1:]} rescaling"
        if lost <= start:
            said.append(f"{name}: {quantity(now)}. There was nothing to repair.")
        elif now < lost:
            share = (lost - now) / (lost - start)
            said.append(
                f"{name} takes back **{quantity(100 * share, 0)}{NBSP}%** of that: {quantity(now)}"
                f"{', a repair' if share > 0.8 else ', a part of the damage'}."
            )
        else:
            said.append(f"{name} makes it worse: **{quantity(now)}**.")
    said.append(
        "Neither was trained for: a linear stretch also crowds neighbours together, which the heads rely on; "
        "the larger base keeps the fast pairs, and so the neighbours, where they were. Models that are "
        "“extended” are trained on for a while after such a change."
    )
    return " ".join(said)


# One query and one key, a fixed distance apart.


def diagonal_chart(found: Diagonals, distance: str, head: str) -> Spec:
    """Their score over the query's place: flat where only the distance counts."""
    at, row = found.distances.index(int(distance)), int(head) - 1
    values = [
        abs(value) for heads in found.models.values() for one in heads for d in one for value in d.scores
    ]
    top = float(next((end for end in SCORES if end >= max(values)), 1000))
    across = Across(field="place", title="place of the query", ticks=(TRAINED, 128, 256, 384, found.length))
    frame = Frame(
        steps=found.length, low=-top, high=top, log=False, ticks=(-top, -top / 2, 0.0, top / 2, top),
        gutter=0.2, across=across, field="score", shown=lambda value: quantity(value, 2), over=(edge,),
    )  # fmt: skip
    lines = []
    for name in sorted(POSITIONS.variants, key=lambda name: name == "rope"):  # the one it is about on top
        scores = found.models[name][row][at].scores
        points = tuple((found.every * i + int(distance), score) for i, score in enumerate(scores))
        lines.append(Line(variant(name).short, style(name), (Curve(points),)))
    return charts.line_chart(frame, lines, edge=[{"place": TRAINED, "text": "trained up to here"}])


def diagonal_table(found: Diagonals, distance: str, head: str) -> Table:
    """The spread of each line: its largest score less its smallest."""
    at, row = found.distances.index(int(distance)), int(head) - 1
    rows = []
    for name in POSITIONS.variants:
        one = found.models[name][row][at]
        most = max(d.all for d in found.models[name][row])
        cells = (Cell(value, small(value)) for value in (one.inside, one.all, most))
        rows.append((f"{dot(name)}{NBSP}{plain(variant(name).title)}", *cells))
    columns = ("spread of the score", f"first {TRAINED}", f"all {found.length}", "any distance")
    return Table(columns, rows)


def diagonal_words(found: Diagonals, distance: str, head: str) -> str:
    """That RoPE's line is flat, in figures."""
    at, row = found.distances.index(int(distance)), int(head) - 1
    rope, waves = (found.models[name][row][at].all for name in ("rope", "sinusoidal"))
    tokens = f"“{plain(visible(found.query))}” looking at “{plain(visible(found.key))}”"
    return (
        f"{tokens}, {distance} back, in head {head}, in 64-bit numbers. Under RoPE the score is the same at "
        f"every place to **{small(rope)}**, the rounding; with sinusoids it moves by **{small(waves)}**. "
        f"Turning two vectors by one angle leaves their product as it was, so of t and i only t − i is left."
    )


def small(value: float) -> str:
    """A spread or a difference: "0.381", "5.96e−07"."""
    return quantity(value, 3) if value >= 0.001 else probes.tiny(value)


# Order: fresh weights, a sentence of the reader's.


def order_table(found: Order) -> Table:
    """Largest differences of the logits, a line a scheme; what is only rounding in green."""
    columns = {
        "unmasked": "mask off",
        "masked": "mask on",
        "one_block": "last, one block",
        "two_blocks": "last, two blocks",
    }
    rows = []
    for row in found.rows:
        values = (getattr(row, name) for name in columns)
        cells = (
            Cell(value, f":green[**{small(value)}**]" if value < EXACT else small(value)) for value in values
        )
        rows.append((f"{dot(row.scheme)}{NBSP}{plain(variant(row.scheme).title)}", *cells))
    return Table(("largest difference", *columns.values()), rows)


def order_words(found: Order) -> str:
    """What the first line says."""
    none = next(row for row in found.rows if row.scheme == "none")
    return (
        f"Without positions and without a mask the shuffled sentence gives the same logits, shuffled: they "
        f"differ by {small(none.unmasked)}, the rounding, where a logit has a size of "
        f"{quantity(none.magnitude, 2)}. The mask breaks that by **{small(none.masked)}**: in another "
        f"order each token has another past.\n\n"
        f"But the last token sees all of the others in any order, so one block cannot tell the orders of "
        f"what stands before it apart: {small(none.one_block)}. Two can, {small(none.two_blocks)}: "
        f"the second reads the first one’s sums, and each of these had a past of its own."
    )


def shuffled(found: Order, name: str) -> str:
    """The sentence in that other order, as Markdown."""
    pieces = [found.pieces[at] for at in getattr(found, name)]
    return plain(" ".join(visible(piece) for piece in pieces))


# What trained models know of order.


def knowledge_table(found: Knowledge) -> Table:
    """How much of the position can be read, and what a shuffled past costs."""
    rows = []
    for name in POSITIONS.variants:
        if one := found.models.get(name):
            reads = (
                Cell(share, f"{quantity(100 * max(share, 0.0), 0)}{NBSP}%")
                for share in (one.read, one.unmasked)
            )
            perplexities = (number(past) for past in (one.ordered, one.shuffled))
            rows.append((f"{dot(name)}{NBSP}{plain(variant(name).title)}", *reads, *perplexities))
    return Table(
        ("trained on 64 tokens", "position decoded", "mask taken off", "past in order", "past shuffled"),
        rows,
    )


def knowledge_words(found: Knowledge) -> str:
    """The leak in two sentences, with its figures; then what order is worth."""
    none = found.models.get("none")
    if none is None:
        return "No trained model without positions is here: train it above, and its leak stands here."
    read, unmasked = (quantity(100 * max(getattr(none, name), 0.0), 0) for name in ("read", "unmasked"))
    said = [
        f"The mask leaks order: at the first place a token averages over itself alone, at the tenth over "
        f"ten, and a mean of more vectors is shorter. From what attention adds, **{read}{NBSP}%** of the "
        f"place (of its logarithm’s variance) can be read off without any positions, and "
        f"{unmasked}{NBSP}% once the same weights lose their mask.",
        f"That is how far the past reaches, not its order: with the past shuffled the last of "
        f"{found.length} tokens is predicted at {quantity(none.shuffled)}, in order at "
        f"{quantity(none.ordered)}.",
    ]
    rest = {name: one for name, one in found.models.items() if name != "none"}
    if rest:
        name, most = max(rest.items(), key=lambda one: one[1].shuffled / one[1].ordered)
        said[1] += (
            f" A model that has positions uses the order: {plain(variant(name).short)} goes from "
            f"{quantity(most.ordered)} to {quantity(most.shuffled)}."
        )
    return "\n\n".join(said)


# The learned table.


def rows_chart(found: LearnedTable) -> Spec:
    """How far each row has turned from where it began: a stroke a row."""
    turned = [
        {"row": at, "turned": turned, "moved": moved, "slot": style("learned").slot}
        for at, (turned, moved) in enumerate(zip(found.turned, found.moved, strict=True))
    ]
    top = float(next(end for end in ANGLES if end >= max(found.turned)))
    never = {"row": found.trained, "text": "never trained from here on"}
    return fed(_strokes(found.rows, top), rows=turned, edge=[never])


@lru_cache
def _strokes(last: int, top: float) -> Spec:
    ticks = tuple(top * share / 3 for share in range(4))
    across = Across(field="row", title="row of the table", ticks=(0, TRAINED, 128, 256, 384, last))
    frame = Frame(
        steps=last, low=0, high=top, field="turned", log=False, ticks=ticks, form=".0f", across=across,
        gutter=0.02,
    )  # fmt: skip
    told = [
        *hover("row"),
        alt.Tooltip(field="turned", title="degrees", format=".1f"),
        alt.Tooltip(field="moved", title="moved, of its length", format=".3f"),
    ]
    strokes = rows("rows").mark_rule(strokeWidth=1.5).encode(frame.x, frame.y, alt.Y2Datum(0), COLOR)
    return compiled(200, *levels(frame.y, 0, last), strokes.encode(tooltip=told), *edge(frame))


def rows_words(found: LearnedTable) -> str:
    """Seen rows and unseen ones, in figures."""
    seen, unseen = found.turned[: found.trained], found.turned[found.trained :]
    shrunk = sum(found.moved[found.trained :]) / len(unseen)
    said = (
        f"The {len(seen)} rows that were trained have turned by {quantity(min(seen))}° to "
        f"{quantity(max(seen))}° from where they were drawn, **{quantity(sum(seen) / len(seen))}°** on "
        f"average. The other {len(unseen)} have turned by **{quantity(max(unseen))}°** at most: they are the "
        f"random numbers of before the first step"
    )
    if max(unseen) < 0.05 and shrunk > 0:
        said += (
            f", only shorter by {quantity(100 * shrunk, 1)}{NBSP}%, which the optimiser’s weight decay does"
        )
    return f"{said}. At position 100 the model adds noise to every token."
