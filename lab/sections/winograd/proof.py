"""The proof of a circuit: heads ablated, values patched in, the logit lens, attribution, the route taken.

Shapes: R boundaries of the residual stream, T position, L blocks, H heads.
"""

from functools import lru_cache
from typing import Any

import altair as alt
import numpy as np

from engine.circuits.results import Roles, Verdict
from engine.probes.results.winograd import Attributed, Proof
from lab import probes
from lab.bench import Cell, Table, tables
from lab.charts.axes import BARE, COLOR, GRAY, INK, hover, note, rows, x_axis
from lab.charts.bars import dots, named
from lab.charts.drawing import Spec, compiled, fed
from lab.charts.maps.panel import Panel, labels
from lab.charts.maps.sentences import number
from lab.sections.winograd.graph import SETS, SHORT, roles_of
from lab.sections.winograd.parts import BLOCK_GUESSES, share
from lab.words import plain, quantity, signed

GONE, WHOLE = 0.75, 0.95  # accuracy: below the first an ability is lost, from the second on it is whole
EXACT = 1e-4
# Seen from the model: what each route means.
ROUTES = {
    "carry, then read": "block 1 carries the nouns to the deciding position, and block 2 reads the adjective",
    "read, then fetch": "block 1 reads the adjective, and block 2 fetches the noun",
    "gather at the adjective": "the adjective’s position gathers the nouns, and block 2 reads them there",
    "through other words": "words in between gather the nouns, and block 2 reads them there",
    "block 1 alone": "block 1 sees both nouns and the adjective, and block 2 needs neither",
    "block 2 alone": "block 2 sees both nouns and the adjective, and block 1 needs neither",
    "several, each enough": "two or more routes are each enough by themselves",
    "mixed": "nouns and adjective are needed, but through no single route: the answer takes several together",
    "none found": "no set of looks that was tried is needed, so no route can be named",
}
TWO_HOPS = "carry, then read"
READS = {"first": "block 1: decision sees adjective", "second": "block 2: decision sees adjective"}


def ablation_chart(found: Roles) -> Spec:
    """Accuracy that is left without each head: a ring for zero, a dot for its mean."""
    roles = roles_of(found, SHORT)
    marks = [
        {"head": f"{role.block + 1}.{role.head + 1}", "slot": slot, "accuracy": getattr(role, how).accuracy,
         "kind": how, "role": roles.get((role.block, role.head), "")}
        for role in found.heads
        for how, slot in (("zero", "gray"), ("mean", "ink"))
    ]  # fmt: skip
    names = tuple(row["head"] for row in marks if row["kind"] == "mean")
    return fed(_heads(names), dots=marks, levels=[{"at": GONE}, {"at": WHOLE}])


@lru_cache
def _heads(names: tuple[str, ...]) -> Spec:
    title = "right answers left without the head"
    x = x_axis("accuracy", 1, [0, 0.25, 0.5, 0.75, 1], title, form=".0%", gutter=0.35)
    y = named("head", names)
    roles = rows("dots", "mean").encode(x=alt.XDatum(1.02), y=y)
    return compiled(
        28 * len(names) + 60,
        *dots(x, y, "mean", "zero", hover("head", "kind", "accuracy", "role")),
        note(roles, "role", color=INK, align="left", dx=8),
    )


def ablation_table(found: Roles) -> Table:
    """Every head: where it looks on average, what it adds by itself, what is left without it."""
    lines, roles = [], roles_of(found)
    for one in found.heads:
        weights = (one.weights.get(name, 0.0) for name in ("first noun", "second noun", "adjective"))
        role = roles.get((one.block, one.head), "")
        lines.append(
            (
                f"**{one.block + 1}.{one.head + 1}** :gray[{role}]",
                *(Cell(weight, number(weight)) for weight in weights),
                tables.number(one.zero.accuracy, share),
                tables.number(one.mean.accuracy, share, bold=True),
            )
        )
    caption = "Weights: mean of the deciding position over the held-out sentences."
    return Table(("head", "on x", "on y", "on adj.", "to zero", "to mean"), lines, caption)


def sets_table(found: Roles) -> Table:
    """The sets of heads that the graph names, each ablated as a whole."""
    lines = []
    for name, words in SETS.items():
        taken = getattr(found, name)
        heads = ", ".join(f"{block + 1}.{head + 1}" for block, head in taken.heads)
        left = (taken.zero.accuracy, taken.mean.accuracy, taken.mean.wrong) if heads else (None, None, None)
        cells = (tables.number(value, share, bold=at == 1) for at, value in enumerate(left))
        lines.append((f"{words}: {heads or 'no head'}", *cells))
    return Table(("heads", "right, to zero", "right, to mean", "wrong noun"), lines)


def sets_words(found: Roles) -> str:
    """Whether the sets are what their names say, by the numbers."""
    left = {name: getattr(found, name).mean.accuracy for name in SETS}
    carriers, readers, rest = (
        len(getattr(found, name).heads) for name in ("noun_carriers", "adjective_readers", "rest")
    )
    if found.holds:
        return (
            f"The sets hold: without the {carriers} that carry a noun {share(left['noun_carriers'])} are "
            f"right, without the {readers} that read the adjective {share(left['adjective_readers'])}, and "
            f"without the {rest} others {share(left['rest'])}. Ablated to means."
        )
    why = []
    if found.clean.accuracy < WHOLE:
        why.append(f"the whole model is right in {share(found.clean.accuracy)} only")
    if left["noun_carriers"] >= GONE:
        why.append(f"without the noun carriers {share(left['noun_carriers'])} are still right")
    if left["adjective_readers"] >= GONE:
        why.append(f"without the adjective readers {share(left['adjective_readers'])} are still right")
    if found.helpers.heads:
        why.append("heads without a look that counts are needed all the same")
    if left["rest"] < WHOLE:
        why.append(f"without the others only {share(left['rest'])} are right")
    return f"The sets do not hold in this model: {'; '.join(why) or 'a condition fails'}."


def residual_panel(found: Proof) -> Panel:
    """The share that each position of the stream restores. shape: (R, T)"""
    patching = found.patching
    words = [a if a == b else "adj." for a, b in zip(*found.tokens, strict=True)]
    values = np.array(patching.residual, np.float32)
    return Panel(
        "scores",
        values,
        tuple(patching.boundaries),
        labels(words),
        value_name="restored",
        down="stream after",
        across="position",
    )


def heads_panel(found: Proof) -> Panel:
    """The share that each head's output restores. shape: (L, H)"""
    values = np.array(found.patching.heads, np.float32)
    blocks = tuple(f"block {block + 1}" for block in range(len(values)))
    names = tuple(f"head {head + 1}" for head in range(values.shape[1]))
    return Panel("scores", values, blocks, names, None, "restored", {}, "block", "head")


def patching_words(found: Proof, a: str, b: str) -> str:
    """Where the adjective's news is, boundary by boundary, and the two identities."""
    patching = found.patching
    panel = residual_panel(found)
    where = []
    for name, row in zip(panel.rows, panel.values, strict=True):
        at = int(row.argmax())
        where.append(f"after {name} at {plain(panel.columns[at])} ({share(float(row[at]), 0)})")
    heads = heads_panel(found)
    block, head = divmod(int(np.abs(heads.values).argmax()), heads.values.shape[1])
    return (
        f"{found.count} pairs of sentences, “too {plain(b)}” with values of “too {plain(a)}” put in. "
        f"The logit difference is {number(patching.clean)} in the one and "
        f"{number(patching.corrupted)} in the other. Most comes back {'; '.join(where)}. Of single heads "
        f"{block + 1}.{head + 1} does most, {share(float(heads.values[block, head]), 0)}. Patching nothing "
        f"restores {share(found.nothing)}, everything {share(found.everything)}."
    )


def lens_table(found: Proof) -> Table:
    """What the model would answer if its stream ended at each boundary."""
    lines = []
    for at, one in enumerate(found.lens):
        score = one.score
        words = (
            f"{plain(read[at].words[0])} :gray[{quantity(read[at].shares[0], 2)}]" for read in found.readings
        )
        shares = (tables.number(value, share) for value in (score.accuracy, score.wrong))
        difference = Cell(score.logit_difference, number(score.logit_difference))
        lines.append((plain(one.boundary), *shares, difference, *words))
    return Table(
        ("stream ends after", "right", "wrong noun", "logit diff.", "first says", "second says"),
        lines,
        "Final norm and unembedding at every boundary of the deciding position: the logit lens.",
    )


def attribution_chart(found: Proof) -> Spec:
    """What every part writes of the logit difference, a bar a sentence's adjective."""
    bars: list[dict[str, Any]] = [
        {"part": name, "logits": value, "adjective": one.adjective, "slot": slot}
        for one, slot in zip(found.attribution, ("ink", "gray"), strict=False)
        for name, value in _parts(one)
    ]
    names = tuple(name for name, _ in _parts(found.attribution[0]))
    return fed(_bars(names, max(1.0, *(abs(bar["logits"]) for bar in bars))), parts=bars)


@lru_cache
def _bars(names: tuple[str, ...], most: float) -> Spec:
    x = alt.X(
        field="logits",
        type="quantitative",
        scale=alt.Scale(domain=[-most, most], nice=True),
        axis=alt.Axis(title="logits", tickCount=7, **BARE),
    )
    aside = alt.YOffset(field="adjective", sort=None)
    bars = rows("parts").mark_bar(opacity=0.9)
    return compiled(
        26 * len(names) + 50,
        bars.encode(
            x=x, y=named("part", names, limit=220), yOffset=aside, color=COLOR,
            tooltip=hover("part", "adjective", logits="+.3f"),
        ),
        alt.Chart(alt.InlineData(values=[{}])).mark_rule(color=GRAY).encode(x=alt.XDatum(0)),
    )  # fmt: skip


def _parts(attributed: Attributed) -> list[tuple[str, float]]:
    one = attributed.parts
    found = [("token and position", one.embedding)]
    for block, heads in enumerate(one.heads):
        found += [(f"head {block + 1}.{head + 1}", value) for head, value in enumerate(heads)]
        found.append((f"bias of W_O, block {block + 1}", one.output_biases[block]))
        found.append((f"feed-forward, block {block + 1}", one.feed_forwards[block]))
    return [*found, ("biases of norms and unembedding", one.rest)]


def attribution_words(found: Proof) -> str:
    """The sums, and the largest parts."""
    said = []
    for one in found.attribution:
        gap = abs(one.total - one.parts.logit_difference)
        best = sorted(_parts(one), key=lambda part: -part[1])[:3]
        listed = ", ".join(f"{plain(name)} {signed(value, number_or_dash)}" for name, value in best)
        verdict = "" if gap < EXACT else " :red[which is not rounding]"
        said.append(
            f"“too {plain(one.adjective)}”: the parts sum to {number(one.total, 4)}, the logit "
            f"difference is {number(one.parts.logit_difference, 4)}, {probes.tiny(gap)} apart{verdict}. "
            f"Largest: {listed}."
        )
    return "  \n".join(said)


def number_or_dash(value: float | None) -> str:
    """A figure of two decimals."""
    return "–" if value is None else number(value)


def route_table(route: Verdict) -> Table:
    """What is left when each way to look is cut in a whole block, by which noun is the answer."""
    lines = []
    for cut in [route.clean, *route.cuts]:
        kinds = (tables.number(cut.by_answer.get(name), share) for name in ("first noun", "second noun"))
        lost, left = bool(cut.channels) and cut.accuracy < GONE, share(cut.accuracy)
        cell = Cell(cut.accuracy, f":red[{left}]" if lost else f"**{left}**")
        lines.append((plain(", ".join(cut.channels) or "nothing cut"), cell, *kinds))
    return Table(("cut", "right", "x is right", "y is right"), lines)


def alone_table(route: Verdict) -> Table:
    """Every route: what is left when one of its looks is cut, and what it does alone."""
    lines = [
        (
            plain(one.name),
            tables.number(one.needed, share),
            tables.number(one.alone.accuracy, share),
            "**taken**" if one.taken else ":gray[no]",
        )
        for one in route.routes
    ]
    return Table(("route", "without one look", "by itself", ""), lines)


def route_words(route: Verdict, guess: str | None) -> str:
    """Which route this model took, by which numbers, and what was guessed."""
    name, cuts = route.route, {cut.channels[0]: cut.accuracy for cut in route.cuts}
    lost = [f"{plain(channel)} ({share(left)} left)" for channel, left in cuts.items() if left < GONE]
    read = {block: cuts[channel] for block, channel in READS.items()}
    found = [block for block, left in read.items() if left < GONE]
    where = {"first": "in block 1", "second": "in block 2"}
    said = (
        "at no single block" if not found else BLOCK_GUESSES["both"] if len(found) == 2 else where[found[0]]
    )
    sentences = [
        f"This model’s route: **{plain(name)}**, that is, {ROUTES[name]}.",
        f"Cut one at a time, these lose the answer: {'; '.join(lost)}."
        if lost
        else "No single cut loses it.",
        f"You guessed *{BLOCK_GUESSES[guess]}*." if guess else "",
        f"The adjective is read **{said}**: cut from block 1 it leaves {share(read['first'])}, from "
        f"block 2 {share(read['second'])}.",
    ]
    return " ".join(filter(None, sentences))


def csv_rows(found: Roles) -> list[tuple[Any, ...]]:
    """Ablated heads, for a file."""
    rows: list[tuple[Any, ...]] = [("block", "head", "role", "zero_accuracy", "mean_accuracy")]
    roles = roles_of(found)
    for one in found.heads:
        at = one.block, one.head
        rows.append((*at, roles.get(at, ""), one.zero.accuracy, one.mean.accuracy))
    return rows
