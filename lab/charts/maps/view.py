"""One head on one sentence, stage by stage, beside another: panels, what they say in words, tables, files."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import streamlit as st

from engine.probes.results.attention import Capture
from lab.charts.maps import figure, strip
from lab.charts.maps.panel import Panel, labels, scores_panel, weights_panel
from lab.charts.maps.sentences import LISTED, Table, matrix_table, number, row_table, sentence
from lab.charts.maps.twin import numbers, twin
from lab.shell import export
from lab.shell.palette import Palette
from lab.words import plain

HALF = figure.WIDTH
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


def strips(sides: Sequence[Side], chosen: Sequence[str], colors: Palette) -> None:
    """Every stage small, in the order of the computation, the chosen ones outlined; both sides."""
    names = [STAGES[stage][0] for stage in chosen]
    with st.container(horizontal=True):
        for side in sides:
            with st.container(width=HALF, gap="xsmall"):
                st.markdown(side.title)
                small = {STAGES[stage][0]: panel for stage, panel in side.panels().items()}
                made = strip.strip(small, names, colors, arrows=True)
                figure.draw(made, f"strip.{side.name}", colors, still=True, said=", ".join(small))
                st.caption(side.source)


def pair(stage: str, sides: Sequence[Side], row: int, colors: Palette) -> None:
    """One stage large, each side's map with its words and tables; scores of both have one scale."""
    panels = [side.panels()[stage] for side in sides]
    limit = max(panel.limit for panel in panels)
    name, unit, told = STAGES[stage]
    heads = sides[0].caught.keys.shape[-1]
    with st.container(horizontal=True, vertical_alignment="bottom", horizontal_alignment="distribute"):
        st.markdown(f"**{name}** :gray[{unit}]  \n:small[{told.format(root=math.sqrt(heads))}]", width=720)
        key = strip.key(panels[0].kind, limit, colors, panels[0].value_name)
        figure.draw(key, f"key.{stage}", colors, still=True)
    with st.container(horizontal=True):
        for side, panel in zip(sides, panels, strict=True):
            with st.container(width=HALF):
                _one(stage, side, panel, row, limit, colors)


def _one(stage: str, side: Side, panel: Panel, row: int, limit: float, colors: Palette) -> None:
    said, table = sentence(panel, row), row_table(panel, row)
    if stage == "mixed":
        table = arrivals(side.caught, row)
        said += f" Most of it comes from **{plain(str(table[1][0]))}**, by weight times length of the value."
    made = figure.figure(panel, colors, marked=row, limit=limit)
    with st.container(horizontal=True, horizontal_alignment="distribute", vertical_alignment="center"):
        st.markdown(side.title, width="content")
        with st.popover("Export", type="tertiary", key=f"export.{stage}.{side.name}"):
            export.downloads(
                f"attention-{stage}-{side.name}",
                lambda: twin(panel, f"{STAGES[stage][0]}, {side.name} head", marked=row, limit=limit),
                lambda: numbers(panel),
            )
    figure.draw(made, f"map.{stage}.{side.name}", colors, said=f"{STAGES[stage][0]}. {said}")
    st.markdown(said)
    _table(table, 3 if panel.kind == "weights" or stage == "mixed" else 2)
    with st.expander("The whole map as a table"):
        whole = matrix_table(panel)
        st.dataframe(whole, height=FULL_HEIGHT, placeholder="masked", column_config=_formats(panel))


def arrivals(caught: Capture, row: int, head: int = 0) -> Table:
    """What a row of the mix is made of, largest part first: weight, length of the value, their product."""
    weights, names = caught.weights[head][row], labels(caught.pieces)
    lengths = np.linalg.norm(caught.values[head], axis=-1)
    given = weights * lengths
    order = [key for key in np.argsort(-given, kind="stable") if not caught.masked[row, key]][:LISTED]
    rows = [(names[k], float(weights[k]), float(lengths[k]), float(given[k])) for k in order]
    return [("key", "weight", "length of its value", "weight × length"), *rows]


def _table(table: Table, decimals: int) -> None:
    """Labels as they are, numbers as numbers, so that they stand right."""
    import pandas as pd

    head, *rows = table
    frame = pd.DataFrame([(plain(str(label)), *numbers) for label, *numbers in rows], columns=list(head))
    shown = frame.style.format(lambda value: number(value, decimals), subset=list(head[1:]))
    st.table(shown, border="horizontal", hide_index=True)


def _formats(panel: Panel) -> Any:
    form = "%.3f" if panel.kind == "weights" else "%.2f"
    return {name: st.column_config.NumberColumn(format=form) for name in panel.columns}
