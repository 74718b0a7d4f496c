"""One head on one sentence, stage by stage, beside another: panels, what they say in words, tables, files."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import streamlit as st

from engine.chapter.experiments import QKV
from engine.probes.registry import ATTENTION
from engine.probes.results.attention import Capture
from lab import probes, weights
from lab.bench import HALF
from lab.charts.maps import strip, view
from lab.charts.maps.panel import Panel, labels, scores_panel, weights_panel
from lab.charts.maps.sentences import LISTED, Table, matrix_table, sentence
from lab.settings import Setting
from lab.shell import frame, palette
from lab.words import plain

FULL_HEIGHT = 300  # px of the table of a whole map

# By id: the name on the page, what it holds, and one sentence on what happens there.
STAGES = {
    "raw": (
        "x·x",
        "not part of the head: scores without projections",
        "A token’s product with itself is its length squared, and x·y is y·x: the picture is its own mirror.",
    ),
    "products": (
        "QKᵀ",
        "scores, about 0",
        "W_Q and W_K make two vectors of each token, what it asks and what it offers: no mirror any more.",
    ),
    "scaled": (
        "÷ √d_k",
        "scores, about 0",
        "The same picture, every number √d_k = {root:.1f} times smaller (our d_head is the chapter’s d_k).",
    ),
    "masked": (
        "mask",
        "scores, grey is masked",
        "What lies ahead is set to −∞, which becomes a weight of exactly 0. A score of 0.00 is no mask.",
    ),
    "weights": (
        "softmax",
        "weights, each row sums to 1",
        "Each row’s scores become shares. Colour follows the square root, so that 0.067 is visible.",
    ),
    "mixed": (
        "× V",
        "what the head passes on, one number a channel",
        "Each row is the weighted sum of the values W_V x. What was matched were the keys, W_K x.",
    ),
}


@dataclass(frozen=True, eq=False)
class Side:
    """One of the heads that stand beside each other. title: Markdown; source: where its weights are from."""

    name: str
    title: str
    source: str
    caught: Capture

    def panels(self, head: int = 0) -> dict[str, Panel]:
        """Every stage as a panel, by id."""
        caught, pieces = self.caught, self.caught.pieces
        mixed = caught.mixed[head]
        channels = tuple(str(channel) for channel in range(mixed.shape[-1]))
        return {
            "raw": scores_panel(pieces, caught.raw, value_name="x·x"),
            "products": scores_panel(pieces, caught.products[head], value_name="q·k"),
            "scaled": scores_panel(pieces, caught.scaled[head]),
            "masked": scores_panel(pieces, caught.scaled[head], caught.masked),
            "weights": weights_panel(pieces, caught.weights[head], caught.scaled[head], caught.masked),
            "mixed": Panel("scores", mixed, labels(pieces), channels, value_name="value", across="channel"),
        }


def two_heads(sentence: str, key: str) -> list[Side]:
    """The heads that there are: trained, if there are such weights, and untrained. key: of the switch."""
    found = weights.chosen(key, QKV, ("head-added",)).get("head-added")
    weights.missing(found, "head")
    fresh = probes.attempt(st.empty(), ATTENTION, text=sentence)
    if fresh is None:  # a sentence that does not fit fits neither
        return []
    source = "Weights: as torch draws them, seed 0, before the first step."
    sides = [Side("untrained", ":gray[○] **One head, untrained**", source, fresh)]
    if found and (caught := probes.attempt(st.empty(), ATTENTION, text=sentence, weights=found.path)):
        title = f"{frame.dot('head-added')} **One head, trained**"
        sides.insert(0, Side("trained", title, f"Weights: {plain(found.whose)}.", caught))
    return sides


def draw(sides: Sequence[Side], large: Setting[list[str]], row: Setting[int]) -> None:
    """The pipeline small and whole, then the chosen stages large. row: that is read out."""
    names = labels(sides[0].caught.pieces)
    row.value = min(row.value, len(names) - 1)
    with st.container(horizontal=True, vertical_alignment="bottom", key="instruments_stages"):
        large.draw()
        row.draw(label="Row to read out", options=range(len(names)), format_func=names.__getitem__, width=190)
        palette.follow()
    _strips(sides, large.value)
    for stage in large.value:
        _pair(stage, sides, row.value)
    st.caption(
        "Rows are queries, top to bottom; columns are keys. Weights run from 0 to 1 in every map, scores are "
        "coloured about 0 and both heads on one scale. Grey: masked. Point at a cell for its numbers."
    )
    st.markdown(
        "**A map is no explanation by itself.** It shows where a head looks, not what that is good for: the "
        "untrained head has a map too. The ladder above measures how much this helps: the same "
        "model with equal weights, with one matrix for all sentences, with raw scores.",
        width=frame.MEASURE,
    )


def _strips(sides: Sequence[Side], chosen: Sequence[str]) -> None:
    """Every stage small, in the order of the computation, the chosen ones outlined; both sides."""
    names, colors = [STAGES[stage][0] for stage in chosen], palette.current()
    with st.container(horizontal=True):
        for side in sides:
            with st.container(width=HALF, gap="xsmall"):
                st.markdown(side.title)
                small = {STAGES[stage][0]: panel for stage, panel in side.panels().items()}
                st.html(strip.strip(small, names, colors))
                st.caption(side.source)


def _pair(stage: str, sides: Sequence[Side], row: int) -> None:
    """One stage large, each side's map with its words and tables; scores of both have one scale."""
    panels = [side.panels()[stage] for side in sides]
    limit = max(panel.limit for panel in panels)
    name, unit, told = STAGES[stage]
    root = math.sqrt(sides[0].caught.keys.shape[-1])
    with st.container(horizontal=True, vertical_alignment="bottom", horizontal_alignment="distribute"):
        st.markdown(f"**{name}** :gray[{unit}]  \n:small[{told.format(root=root)}]", width=720)
        view.key(panels[0].kind, panels[0].value_name, limit)
    with st.container(horizontal=True):
        for side, panel in zip(sides, panels, strict=True):
            with st.container(width=HALF):
                _one(stage, side, panel, row, limit)


def _one(stage: str, side: Side, panel: Panel, row: int, limit: float) -> None:
    words, table = sentence(panel, row), None
    if stage == "mixed":
        table = _arrivals(side.caught, row)
        words += f" Most of it comes from **{plain(str(table[1][0]))}**, by weight times length of the value."
    name = STAGES[stage][0]
    view.draw(
        panel, f"map.{stage}.{side.name}", side.title, f"{name}. {words}", marked=row, limit=limit,
        file=f"attention-{stage}-{side.name}", heading=f"{name}, {side.name} head",
    )  # fmt: skip
    st.markdown(words)
    label, key = "This row and the whole map in numbers", f"whole.{stage}.{side.name}"
    with st.expander(label, key=key, on_change="rerun") as whole:
        if not whole.open:  # else each change of the sentence would draw them anew
            return
        weighty = panel.kind == "weights" or stage == "mixed"
        view.draw_numbers(panel, row, 3 if weighty else 2, table)
        form: Any = st.column_config.NumberColumn(format="%.3f" if panel.kind == "weights" else "%.2f")
        formats = dict.fromkeys(panel.columns, form)
        everything = matrix_table(panel)
        st.dataframe(everything, height=FULL_HEIGHT, placeholder="masked", column_config=formats)


def _arrivals(caught: Capture, row: int, head: int = 0) -> Table:
    """What a row of the mix is made of, largest part first: weight, length of the value, their product."""
    weights, names = caught.weights[head][row], labels(caught.pieces)
    lengths = np.linalg.norm(caught.values[head], axis=-1)
    given = weights * lengths
    order = [key for key in np.argsort(-given, kind="stable") if not caught.masked[row, key]][:LISTED]
    rows = [(names[k], float(weights[k]), float(lengths[k]), float(given[k])) for k in order]
    return [("key", "weight", "length of its value", "weight × length"), *rows]
