"""Two sentences that differ in one word, side by side: who looks where, what is answered, what block 1 sees.

Shapes: H heads, T query position, S key position.
"""

from collections.abc import Sequence

import numpy as np
import streamlit as st

from engine.data.languages.winograd import ADJECTIVE, ANSWER, DECISION, TEMPLATE
from engine.probes.results.winograd import Answer, Maps
from lab import probes
from lab.bench import HALF, Cell, Table
from lab.charts.maps import sentences, view
from lab.charts.maps.panel import Array, Panel, labels
from lab.charts.maps.sentences import number
from lab.shell.frame import MEASURE
from lab.words import plain, quantity

MAP = 362  # px
MEAN = "mean"
SLOTS = {"{x}": "x", "{y}": "y", "{adj}": "adj."}
UNIFORM = 1 / ANSWER
NAMED = 4  # keys in a sentence


def both(found: Maps) -> None:
    """What each sentence is answered with, then every block's maps."""
    with st.container(horizontal=True):
        for tokens, answer in zip(found.tokens, found.answers, strict=True):
            roles = {answer.answer: "the right noun", answer.other: "the pair’s other noun"}
            rows = [
                (plain(word), Cell(share, quantity(share, 3)), f":gray[{roles.get(word, 'neither')}]")
                for word, share in answer.likeliest
            ]
            with st.container(width=HALF):
                st.markdown(_answered(tokens, answer))
                Table(("next word", "probability", "which is"), rows).draw()
    with st.container(horizontal=True, vertical_alignment="bottom", horizontal_alignment="distribute"):
        st.markdown(
            f"**Where the deciding position looks** :gray[weights, each row sums to 1; a uniform row gives "
            f"{number(UNIFORM, 3)} to each of {ANSWER} tokens]",
            width=MEASURE,
        )
        view.key()
    for block in range(len(found.weights[0])):
        _block(found, block)


def _answered(tokens: Sequence[str], answer: Answer) -> str:
    words = [f"**{plain(word)}**" if at == ADJECTIVE else plain(word) for at, word in enumerate(tokens)]
    right = answer.named == answer.answer
    verdict = ":green[right]" if right else f":red[wrong, it is {plain(answer.answer)}]"
    return f"{' '.join(words)} … **{plain(answer.named)}** {verdict}"


def _block(found: Maps, block: int) -> None:
    st.markdown(f"**Block {block + 1}**")
    a, b = (plain(answer.adjective) for answer in found.answers)
    titles = f"… too **{a}**", f"… too **{b}**", f"change, {b} less {a}"
    panels = decision_panel(found, 0, block), decision_panel(found, 1, block), change_panel(found, block)
    with st.container(horizontal=True, gap="small"):
        for place, (title, panel) in enumerate(zip(titles, panels, strict=True)):
            change = panel.kind == "scores"
            words = change_words(panel) if change else row_words(panel)
            with st.container(width=MAP, gap=None):
                view.draw(
                    panel, f"winograd.{block}.{place}", title, f"{title}: {words}", width=MAP,
                    file=f"winograd-block-{block + 1}-{place + 1}", marked=panel.rows.index(MEAN),
                    limit=1.0 if change else None,
                )  # fmt: skip
                st.markdown(f":small[{words}]")


def _weights(found: Maps, place: int, block: int) -> Array:
    """The maps of a sentence's heads. shape: (H, T, S)"""
    weights: Array = np.array(found.weights[place][block], np.float32)
    return weights


def _of_head(rows: Array, head: str) -> Array:
    """One head's, or the mean of all. shape: (N, H, S) -> (N, S)"""
    chosen: Array = rows.mean(axis=1) if head == MEAN else rows[:, int(head) - 1]
    return chosen


def _with_mean(rows: Array, *more: Array) -> Array:
    stacked: Array = np.vstack([rows, rows.mean(axis=0), *more]).astype(np.float32)
    return stacked


def _head_names(count: int) -> list[str]:
    return [f"head {head + 1}" for head in range(count)]


def decision_panel(found: Maps, place: int, block: int) -> Panel:
    """The deciding position's row of each head, their mean, and a uniform row. shape: (H + 2, S)"""
    rows = _weights(found, place, block)[:, DECISION, :ANSWER]
    names, keys = (*_head_names(len(rows)), MEAN, "uniform"), labels(found.tokens[place])
    return Panel(
        "weights", _with_mean(rows, np.full(ANSWER, UNIFORM)), names, keys, value_name="weight", down="head"
    )


def change_panel(found: Maps, block: int) -> Panel:
    """What the second sentence's rows have more than the first's. shape: (H + 1, S)"""
    change = (_weights(found, 1, block) - _weights(found, 0, block))[:, DECISION, :ANSWER]
    names, keys = (*_head_names(len(change)), MEAN), labels(_without_adjective(found))
    return Panel("scores", _with_mean(change), names, keys, value_name="change", down="head")


def _without_adjective(found: Maps) -> list[str]:
    """What both sentences have in common."""
    return [SLOTS["{adj}"] if at == ADJECTIVE else word for at, word in enumerate(found.tokens[0])]


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


def grid(found: Maps, head: str) -> None:
    """The deciding position's row for every adjective, mean over the held-out sentences, a map a block."""
    name = "mean of the heads" if head == MEAN else f"head {head}"
    keys = labels([SLOTS.get(word, word) for word in TEMPLATE[:ANSWER]])
    with st.container(horizontal=True):
        for block in range(len(found.grid[0])):
            rows = np.array([by_word[block] for by_word in found.grid], np.float32)  # (words, H, S)
            values, words = _of_head(rows, head), tuple(found.adjectives)
            panel = Panel("weights", values, words, keys, value_name="weight", down="adjective")
            with st.container(width=HALF, gap=None):
                view.draw(
                    panel, f"winograd.grid.{block}", f"**Block {block + 1}** :gray[{name}]",
                    grid_words(panel, block), file=f"winograd-adjectives-{block + 1}",
                )  # fmt: skip
                st.markdown(grid_words(panel, block))


def grid_words(panel: Panel, block: int) -> str:
    """How far the rows of the adjectives lie apart, and where each looks most."""
    apart = float(np.abs(panel.values[:, None] - panel.values[None]).sum(axis=-1).max() / 2)
    most: dict[str, list[str]] = {}
    for word, at in zip(panel.rows, panel.values.argmax(axis=1), strict=True):
        most.setdefault(panel.columns[int(at)], []).append(word)
    listed = "; ".join(f"{plain(key)} after {plain(', '.join(words))}" for key, words in most.items())
    return f"Block {block + 1} looks most at {listed}. Between two adjectives at most {number(apart)} moves."


def whole(found: Maps, head: str) -> None:
    """Every position's row, not only the deciding one's: a map a block and sentence."""
    for block in range(len(found.weights[0])):
        with st.container(horizontal=True):
            for place, answer in enumerate(found.answers):
                names = labels(found.tokens[place])
                values = _of_head(_weights(found, place, block).swapaxes(0, 1), head)
                panel = Panel(
                    "weights", values, names, names, ~np.tri(len(names), dtype=bool), value_name="weight"
                )
                title = f"Block {block + 1}, … too **{plain(answer.adjective)}**"
                with st.container(width=HALF, gap=None):
                    view.draw(
                        panel, f"winograd.whole.{block}.{place}", title, sentences.sentence(panel, DECISION),
                        file=f"winograd-whole-{block + 1}-{place + 1}", marked=DECISION,
                    )  # fmt: skip


def unmoved_table(found: Maps, head: str) -> Table:
    """Block 1's raw scores and weights at the deciding position, key by key, before and after the change."""
    words = [answer.adjective for answer in found.answers]
    asked = [found.adjectives.index(word) for word in words]
    scores, weights = (
        _of_head(np.array([kind[at] for at in asked]), head)
        for kind in (found.unmoved.scores, found.unmoved.weights)
    )
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


def unmoved_words(found: Maps) -> str:
    """What all adjectives agree on in block 1, why they must, and what an adjective moves all the same."""
    unmoved = found.unmoved
    own = np.array(unmoved.own_weights)
    weights = np.array(unmoved.weights)
    moved = weights.max(axis=0) - weights.min(axis=0)
    moved[:, ADJECTIVE] = 0
    head, key = np.unravel_index(moved.argmax(), moved.shape)
    return (
        f"Over all {len(found.adjectives)} adjectives and all heads, block 1’s scores at every key but "
        f"the adjective’s own differ by at most **{probes.tiny(unmoved.score_change)}**. They cannot differ: "
        f"block 1 makes the query of “the” at position {DECISION} and of nothing else, the key of a noun of "
        f"that noun and its place; none of them has seen another token yet.\n\n"
        f"Its weights do differ. All keys of a row share one denominator, so an adjective with a high score "
        f"takes from all others, in one proportion: renormalised without it they differ by at most "
        f"**{probes.tiny(unmoved.weight_change)}**, as they are by up to **{number(float(moved.max()), 3)}** "
        f"(head {head + 1}, {plain(found.tokens[0][key])}). The adjective’s own key takes "
        f"{number(float(own.min()), 3)} to {number(float(own.max()), 3)} of a head’s weight.\n\n"
        f"So block 1 cannot ask for another noun, but an adjective can take weight from a head that brings "
        f"one, or send more or less of itself. What counts here is measured under “Pattern or value?”."
    )
