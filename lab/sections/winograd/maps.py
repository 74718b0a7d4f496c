"""Two sentences that differ in one word, side by side: who looks where, what is answered, what block 1 sees.

Shapes: H heads, T query position, S key position.
"""

from collections.abc import Sequence

import numpy as np
import streamlit as st

from engine.data.languages.winograd import ADJECTIVE, ANSWER, DECISION, TEMPLATE
from engine.probes.results.winograd import Answer, Maps
from lab import probes
from lab.bench import Cell, Table
from lab.charts.maps import figure, sentences, strip
from lab.charts.maps.panel import Array, Panel, labels
from lab.charts.maps.sentences import number
from lab.charts.maps.twin import numbers, twin
from lab.shell import export
from lab.shell.frame import MEASURE
from lab.shell.palette import Palette
from lab.words import plain, quantity

MAP, HALF = 362, 544  # px
MEAN = "mean"
SLOTS = {"{x}": "x", "{y}": "y", "{adj}": "adj."}
UNIFORM = 1 / ANSWER
NAMED = 4  # keys in a sentence


def heads(found: Maps) -> tuple[str, ...]:
    """What can be looked at: the mean, then every head by its number."""
    return (MEAN, *(str(head + 1) for head in range(len(found.weights[0][0]))))


def both(found: Maps, colors: Palette) -> None:
    """What each sentence is answered with, then every block's maps."""
    with st.container(horizontal=True):
        for place, answer in enumerate(found.answers):
            with st.container(width=HALF):
                st.markdown(_said(found.tokens[place], answer))
                _likeliest(answer).draw()
    with st.container(horizontal=True, vertical_alignment="bottom", horizontal_alignment="distribute"):
        st.markdown(
            f"**Where the deciding position looks** :gray[weights, each row sums to 1; a uniform row gives "
            f"{number(UNIFORM, 3)} to each of {ANSWER} tokens]",
            width=MEASURE,
        )
        figure.draw(strip.key("weights", 1.0, colors, "weight"), "winograd.key", colors, still=True)
    for block in range(len(found.weights[0])):
        _block(found, block, colors)


def _said(tokens: Sequence[str], answer: Answer) -> str:
    words = [f"**{plain(word)}**" if at == ADJECTIVE else plain(word) for at, word in enumerate(tokens)]
    right = answer.named == answer.answer
    verdict = ":green[right]" if right else f":red[wrong, it is {plain(answer.answer)}]"
    return f"{' '.join(words)} … **{plain(answer.named)}** {verdict}"


def _likeliest(answer: Answer) -> Table:
    roles = {answer.answer: "the right noun", answer.other: "the pair’s other noun"}
    rows = [
        (plain(word), Cell(share, quantity(share, 3)), f":gray[{roles.get(word, 'neither')}]")
        for word, share in answer.likeliest
    ]
    return Table(("next word", "probability", "which is"), rows)


def _block(found: Maps, block: int, colors: Palette) -> None:
    st.markdown(f"**Block {block + 1}**")
    panels = [decision_panel(found, place, block) for place in range(2)]
    change = change_panel(found, block)
    titles = [f"… too **{plain(answer.adjective)}**" for answer in found.answers]
    words = [answer.adjective for answer in found.answers]
    titles.append(f"change, {plain(words[1])} less {plain(words[0])}")
    with st.container(horizontal=True, gap="small"):
        for place, (panel, title) in enumerate(zip([*panels, change], titles, strict=True)):
            with st.container(width=MAP, gap=None):
                _titled(panel, title, f"winograd-block-{block + 1}-{place + 1}")
                limit = 1.0 if panel is change else None
                made = figure.figure(panel, colors, marked=panel.rows.index(MEAN), limit=limit, width=MAP)
                said = row_words(panel) if panel is not change else change_words(panel)
                figure.draw(made, f"winograd.{block}.{place}", colors, said=f"{title}: {said}")
                st.markdown(f":small[{said}]")


def _titled(panel: Panel, title: str, name: str) -> None:
    with st.container(horizontal=True, horizontal_alignment="distribute", vertical_alignment="center"):
        st.markdown(title, width="content")
        with st.popover("Export", type="tertiary", key=f"export.{name}"):
            export.downloads(name, lambda: twin(panel, name, limit=1.0), lambda: numbers(panel))


def decision_panel(found: Maps, place: int, block: int) -> Panel:
    """The deciding position's row of each head, their mean, and a uniform row. shape: (H + 2, S)"""
    rows = np.array(found.weights[place][block], np.float32)[:, DECISION, :ANSWER]
    values = np.vstack([rows, rows.mean(axis=0), np.full(ANSWER, UNIFORM)]).astype(np.float32)
    return Panel(
        kind="weights",
        values=values,
        rows=(*_head_names(len(rows)), MEAN, "uniform"),
        columns=labels(found.tokens[place]),
        value_name="weight",
        down="head",
    )


def change_panel(found: Maps, block: int) -> Panel:
    """What the second sentence's rows have more than the first's. shape: (H + 1, S)"""
    first, second = (
        np.array(found.weights[place][block], np.float32)[:, DECISION, :ANSWER] for place in range(2)
    )
    change = second - first
    values = np.vstack([change, change.mean(axis=0)]).astype(np.float32)
    names = (*_head_names(len(change)), MEAN)
    return Panel("scores", values, names, labels(_without_adjective(found)), None, "change", {}, "head")


def _without_adjective(found: Maps) -> list[str]:
    """What both sentences have in common."""
    return [SLOTS["{adj}"] if at == ADJECTIVE else word for at, word in enumerate(found.tokens[0])]


def _head_names(count: int) -> tuple[str, ...]:
    return tuple(f"head {head + 1}" for head in range(count))


def row_words(panel: Panel) -> str:
    """The mean row read out: what gets more than a uniform share, most first."""
    row = panel.values[panel.rows.index(MEAN)]
    order = [at for at in np.argsort(-row, kind="stable") if row[at] > UNIFORM][:NAMED]
    return f"Mean: {', '.join(f'{number(float(row[at]))} on {plain(panel.columns[at])}' for at in order)}."


def change_words(panel: Panel) -> str:
    """The largest change of a mean weight, and of any head's."""
    mean = panel.values[panel.rows.index(MEAN)]
    at = int(np.abs(mean).argmax())
    most = float(np.abs(panel.values[:-1]).max())
    if most < 0.005:
        return "No weight of any head changes by 0.01."
    return (
        f"Most changes at {plain(panel.columns[at])}: {number(float(mean[at]))} in the mean. The largest "
        f"change of one head is {number(most)}."
    )


def grid(found: Maps, head: str, colors: Palette) -> None:
    """The deciding position's row for every adjective, mean over the held-out sentences, a map a block."""
    with st.container(horizontal=True):
        for block in range(len(found.grid[0])):
            panel = grid_panel(found, block, head)
            with st.container(width=HALF, gap=None):
                name = "mean of the heads" if head == MEAN else f"head {head}"
                _titled(panel, f"**Block {block + 1}** :gray[{name}]", f"winograd-adjectives-{block + 1}")
                made = figure.figure(panel, colors, width=HALF)
                figure.draw(made, f"winograd.grid.{block}", colors, said=grid_words(panel, block))
                st.markdown(grid_words(panel, block))


def grid_panel(found: Maps, block: int, head: str) -> Panel:
    """A row an adjective. shape: (adjectives, S)"""
    rows: Array = np.array([by_word[block] for by_word in found.grid], np.float32)  # (words, H, S)
    values = rows.mean(axis=1) if head == MEAN else rows[:, int(head) - 1]
    names = [SLOTS.get(word, word) for word in TEMPLATE[:ANSWER]]
    return Panel("weights", values, tuple(found.adjectives), labels(names), None, "weight", {}, "adjective")


def grid_words(panel: Panel, block: int) -> str:
    """How far the rows of the adjectives lie apart, and where each looks most."""
    apart = float(np.abs(panel.values[:, None] - panel.values[None]).sum(axis=-1).max() / 2)
    most: dict[str, list[str]] = {}
    for word, at in zip(panel.rows, panel.values.argmax(axis=1), strict=True):
        most.setdefault(panel.columns[int(at)], []).append(word)
    listed = "; ".join(f"{plain(key)} after {plain(', '.join(words))}" for key, words in most.items())
    return f"Block {block + 1} looks most at {listed}. Between two adjectives at most {number(apart)} moves."


def whole(found: Maps, head: str, colors: Palette) -> None:
    """Every position's row, not only the deciding one's: a map a block and sentence."""
    for block in range(len(found.weights[0])):
        with st.container(horizontal=True):
            for place, answer in enumerate(found.answers):
                panel = whole_panel(found, place, block, head)
                title = f"Block {block + 1}, … too **{plain(answer.adjective)}**"
                with st.container(width=HALF, gap=None):
                    _titled(panel, title, f"winograd-whole-{block + 1}-{place + 1}")
                    made = figure.figure(panel, colors, marked=DECISION)
                    said = sentences.sentence(panel, DECISION)
                    figure.draw(made, f"winograd.whole.{block}.{place}", colors, said=said)


def whole_panel(found: Maps, place: int, block: int, head: str) -> Panel:
    """One head's weights, or the mean of all. shape: (T, S)"""
    weights: Array = np.array(found.weights[place][block], np.float32)
    values = weights.mean(axis=0) if head == MEAN else weights[int(head) - 1]
    names = labels(found.tokens[place])
    return Panel("weights", values, names, names, ~np.tri(len(names), dtype=bool), "weight")


def unmoved_table(found: Maps, head: str) -> Table:
    """Block 1's raw scores and weights at the deciding position, key by key, before and after the change."""
    words = [answer.adjective for answer in found.answers]
    scores, weights = (_two(found, kind, words, head) for kind in ("scores", "weights"))
    rows = []
    for key, name in enumerate(labels(_without_adjective(found))):
        change, changed = float(scores[1, key] - scores[0, key]), key == ADJECTIVE
        before, after = (
            [Cell(float(value), number(float(value), 3)) for value in of[:, key]] for of in (scores, weights)
        )
        moved = Cell(change, f"**{number(change, 3)}**" if changed else probes.tiny(abs(change)))
        rows.append((f"**{plain(name)}**" if changed else plain(name), *before, moved, *after))
    a, b = map(plain, words)
    return Table(("key", f"score, {a}", f"score, {b}", "change", f"weight, {a}", f"weight, {b}"), rows)


def _two(found: Maps, kind: str, words: Sequence[str], head: str) -> Array:
    """Block 1's rows after two adjectives. shape: (2, S)"""
    rows: Array = np.array(
        [getattr(found.unmoved, kind)[found.adjectives.index(word)] for word in words], np.float64
    )
    return rows.mean(axis=1) if head == MEAN else rows[:, int(head) - 1]


def unmoved_words(found: Maps) -> str:
    """What all adjectives agree on in block 1, and why they must."""
    unmoved = found.unmoved
    own = np.array(unmoved.own_weights)
    return (
        f"Over all {len(found.adjectives)} adjectives and all heads, block 1’s scores at every key but "
        f"the adjective’s own differ by at most **{probes.tiny(unmoved.score_change)}**, and the other "
        f"weights, renormalised without it, by at most **{probes.tiny(unmoved.weight_change)}**. The "
        f"adjective’s own key takes {number(float(own.min()), 3)} to {number(float(own.max()), 3)} of a "
        f"head’s weight.\n\n"
        f"It cannot be otherwise. A score is a query times a key. Block 1 makes the query of “the” at "
        f"position {DECISION} and of nothing else, the key of a noun of that noun and its place: none of "
        f"them has seen another token yet. A changed adjective changes its own key, and its own value, "
        f"alone. So block 1 may fetch the adjective, but it cannot look elsewhere *because* of it. Block 2’s "
        f"query is made of what block 1 brought."
    )
