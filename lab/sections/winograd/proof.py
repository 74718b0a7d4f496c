"""The proof of a circuit: heads ablated, values patched in, the logit lens, attribution, the route taken.

Shapes: R boundaries of the residual stream, T position, L blocks, H heads.
"""

from functools import lru_cache
from typing import Any

import altair as alt
import numpy as np
import streamlit as st

from engine.circuits.results import DROPPED, Head, Verdict
from engine.probes.registry import CIRCUIT, PROOF
from engine.probes.results.winograd import Attributed, Proof
from lab import bench, probes
from lab.bench import Cell, Table, tables
from lab.charts import drawing
from lab.charts.axes import BARE, COLOR, GRAY, hover, rows
from lab.charts.bars import named
from lab.charts.drawing import Spec, compiled, fed
from lab.charts.maps import figure, view
from lab.charts.maps.panel import Panel, labels
from lab.charts.maps.sentences import number
from lab.sections.winograd import without
from lab.sections.winograd.inside import Inside
from lab.sections.winograd.parts import BLOCK_GUESSES, share
from lab.sections.winograd.which_part import what_counts
from lab.shell import frame, palette
from lab.words import plain, quantity, signed

EXACT = 1e-4
# Seen from the model: what each route means.
ROUTES = {
    "nouns, then adjective": "block 1 needs its look at the nouns, and block 2 its look at the adjective",
    "adjective, then nouns": "block 1 needs its look at the adjective, and block 2 its look at the nouns",
    "gather at the adjective": "the adjective’s position gathers the nouns, and block 2 looks there",
    "through other words": "words in between gather the nouns, and block 2 looks there",
    "block 1 alone": "block 1 sees both nouns and the adjective, and block 2 needs neither",
    "block 2 alone": "block 2 sees both nouns and the adjective, and block 1 needs neither",
    "several, each enough": "two or more routes are each enough by themselves",
    "mixed": "nouns and adjective are needed, but through no single route: the answer takes several together",
    "none found": "no set of looks that was tried is needed, so no route can be named",
}
CHAPTERS = "nouns, then adjective"
ADJECTIVE = {"first": "block 1: decision sees adjective", "second": "block 2: decision sees adjective"}


def show(inside: Inside, guess: str | None) -> None:
    """All of it, of the model and sentences that were set when the button was pressed."""
    if not inside.ready():
        return
    asked = inside.pressed("proof", "Prove it", PROOF, **inside.subject, pair=inside.pair)
    if asked is None or (found := inside.find(PROOF, **asked)) is None:
        return
    subject = {name: value for name, value in asked.items() if name != "pair"}
    if circuit := inside.find(CIRCUIT, **subject):
        without.draw(circuit.roles)
    _patching(found)
    st.subheader("If the stream ended here", anchor=False)
    with st.container(width=bench.TABLE_WIDTH):
        lens_table(found).draw()
    _attribution(found)
    _route(found, guess)


def _patching(found: Proof) -> None:
    frame.heading(
        "Patched from the other sentence",
        "Restored logit difference: 0 as in the sentence with the second adjective, 1 as with the first.",
        below=True,
    )
    view.key("scores", "restored")
    colors = palette.current()
    with st.container(horizontal=True):
        for name, panel in (
            ("residual", residual_panel(found)),
            ("heads", heads_panel(found)),
        ):
            with st.container(width=bench.HALF):
                made = figure.figure(panel, colors, limit=1.0, width=bench.HALF)
                figure.draw(made, f"winograd.patch.{name}", colors, said=f"restored, {name}")
    st.markdown(patching_words(found), width=frame.MEASURE)


def _attribution(found: Proof) -> None:
    st.subheader("Who wrote the difference", anchor=False)
    with st.container(key="figure-attribution", width=bench.TABLE_WIDTH):
        drawing.draw(attribution_chart(found), key="winograd.attribution")
        a, b = (plain(one.adjective) for one in found.attribution)
        st.caption(f"Upper bar: too {a}. Lower, grey: too {b}. Held-out sentences with that adjective.")
    st.markdown(attribution_words(found), width=frame.MEASURE)


def _route(found: Proof, guess: str | None) -> None:
    st.subheader("Which route it took", anchor=False)
    if found.route is None:
        st.markdown("One block has no second hop, so there is no route to tell.")
        return
    st.markdown(route_words(found.route, guess), width=frame.MEASURE)
    with st.container(horizontal=True, gap="medium", key="results-route"):
        for table in (route_table(found.route), alone_table(found.route)):
            with st.container(width=bench.HALF):
                table.draw()


def residual_panel(found: Proof) -> Panel:
    """The share that each position of the stream restores. shape: (R, T)"""
    words = labels([a if a == b else "adj." for a, b in zip(*found.tokens, strict=True)])
    values, names = np.array(found.patching.residual, np.float32), tuple(found.patching.boundaries)
    return Panel(
        "scores", values, names, words, value_name="restored", down="stream after", across="position"
    )


def heads_panel(found: Proof) -> Panel:
    """The share that each head's output restores. shape: (L, H)"""
    values = np.array(found.patching.heads, np.float32)
    blocks, heads = (
        tuple(f"{name} {at + 1}" for at in range(count))
        for name, count in zip(("block", "head"), values.shape, strict=True)
    )
    return Panel("scores", values, blocks, heads, value_name="restored", down="block", across="head")


def patching_words(found: Proof) -> str:
    """Where the adjective's news is, boundary by boundary, and the two identities."""
    a, b = (plain(one.adjective) for one in found.attribution)
    patching, panel = found.patching, residual_panel(found)
    where = []
    for name, row in zip(panel.rows, panel.values, strict=True):
        at = int(row.argmax())
        where.append(f"after {name} at {plain(panel.columns[at])} ({share(float(row[at]), 0)})")
    heads = heads_panel(found)
    head = Head(*divmod(int(np.abs(heads.values).argmax()), heads.values.shape[1]))
    return (
        f"{found.count} pairs of sentences, “too {b}” with values of “too {a}” put in. "
        f"The logit difference is {number(patching.clean)} in the one and "
        f"{number(patching.corrupted)} in the other. Most comes back {'; '.join(where)}. Of single heads "
        f"{head.name} does most, {share(float(heads.values[head]), 0)}. Patching nothing "
        f"restores {share(found.nothing)}, everything {share(found.everything)}."
    )


def lens_table(found: Proof) -> Table:
    """What the model would answer if its stream ended at each boundary."""
    lines = []
    for at, one in enumerate(found.lens):
        right, wrong = (tables.number(value, share) for value in (one.score.accuracy, one.score.wrong))
        difference = tables.number(one.score.logit_difference, two_decimals)
        first = (
            f"{plain(read[at].words[0])} :gray[{quantity(read[at].shares[0], 2)}]" for read in found.readings
        )
        lines.append((plain(one.boundary), right, wrong, difference, *first))
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
        listed = ", ".join(f"{plain(name)} {signed(value, two_decimals)}" for name, value in best)
        verdict = "" if gap < EXACT else " :red[which is not rounding]"
        said.append(
            f"“too {plain(one.adjective)}”: the parts sum to {number(one.total, 4)}, the logit "
            f"difference is {number(one.parts.logit_difference, 4)}, {probes.tiny(gap)} apart{verdict}. "
            f"Largest: {listed}."
        )
    return "  \n".join(said)


def two_decimals(value: float | None) -> str:
    """A figure of two decimals, or a dash."""
    return "–" if value is None else number(value)


def route_table(route: Verdict) -> Table:
    """What is left when each way to look is cut in a whole block, or a part of it is at its mean."""
    lines = []
    for channel, left in route.channels.items():
        said = share(left.cut)
        cell = Cell(left.cut, f":red[{said}]" if left.cut < DROPPED else f"**{said}**")
        pattern, values = (tables.number(one, share) for one in (left.pattern, left.values))
        lines.append((plain(channel), cell, pattern, values))
    caption = f"Right answers; {share(route.clean.accuracy)} with nothing changed."
    return Table(("channel", "cut", "score at its mean", "values at their mean"), lines, caption)


def alone_table(route: Verdict) -> Table:
    """Every route: what is left when one of its looks is cut, and what it does alone."""
    lines = []
    for one in route.routes:
        needed, alone = (tables.number(left, share) for left in (one.needed, one.alone.accuracy))
        lines.append((plain(one.name), needed, alone, "**taken**" if one.taken else ":gray[no]"))
    return Table(("route", "without one look", "by itself", ""), lines)


def route_words(route: Verdict, guess: str | None) -> str:
    """Which route this model took, by which numbers, and what was guessed."""
    name, left = route.route, {channel: one.cut for channel, one in route.channels.items()}
    lost = [f"{plain(channel)} ({share(one)} left)" for channel, one in left.items() if one < DROPPED]
    needed = [place for place, channel in ADJECTIVE.items() if left[channel] < DROPPED]
    where = "at no single block"
    if needed:
        where = BLOCK_GUESSES["both" if len(needed) == 2 else needed[0]]
    by = [what_counts(route.channels[ADJECTIVE[place]], route.clean.accuracy) for place in needed]
    sentences = [
        f"This model’s route: **{plain(name)}**, that is, {ROUTES[name]}.",
        f"Cut one at a time, these lose the answer: {'; '.join(lost)}."
        if lost
        else "No single cut loses it.",
        f"You guessed *{BLOCK_GUESSES[guess]}*." if guess else "",
        f"The look at the adjective is needed **{where}**: cut from block 1 it leaves "
        f"{share(left[ADJECTIVE['first']])}, from block 2 {share(left[ADJECTIVE['second']])}.",
        f"What counts of it: {', '.join(by)}." if by else "",
    ]
    return " ".join(filter(None, sentences))
