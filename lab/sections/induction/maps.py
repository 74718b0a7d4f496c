"""Two heads' attention on one repeated sequence, at one kept step, side by side."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import streamlit as st

from engine.probes.results.induction import Formation, Maps
from lab.charts.maps import figure, strip
from lab.charts.maps.panel import Array, Panel, weights_panel
from lab.charts.maps.sentences import number, row_table, sentence
from lab.charts.maps.twin import numbers, twin
from lab.sections.induction.formation import mark
from lab.sections.induction.probe import FOUND, head_name, head_names
from lab.shell import export
from lab.shell.palette import Palette
from lab.words import plain

WIDTH = figure.WIDTH
# By side: what it shows if nothing else is chosen, as the score that the head is best at, and its words.
SIDES = {
    "left": ("previous_token", "Looks one token back"),
    "right": ("prefix_matching", "Finds what came after"),
}


def panel(found: Maps, at: int, head: Sequence[int]) -> Panel:
    """One head's weights on the sequence at a kept step."""
    step, (layer, number_) = found.steps.index(at), head
    weights, scores = (_square(getattr(found, name)[step][layer][number_]) for name in ("weights", "scores"))
    masked = np.triu(np.ones(weights.shape, bool), 1)
    return weights_panel(found.pieces, weights, scores, masked)


def _square(rows: list[list[float]]) -> Array:
    """Rows that end where the mask begins, as a square. shape: -> (T, S)"""
    square = np.zeros((len(rows), len(rows)), np.float32)
    for t, row in enumerate(rows):
        square[t, : len(row)] = row
    return square


def best(measured: Formation, kind: str) -> list[int]:
    """The head that a side shows: of the pair at the end, else the one whose score is highest there."""
    if pair := measured.pair:
        return list(pair[[score for score, _ in SIDES.values()].index(kind)])
    scores = measured.scores[-1].of(kind)
    ranked = ((value, layer, head) for layer, row in enumerate(scores) for head, value in enumerate(row))
    _, layer, head = max(ranked)
    return [layer, head]


def chosen(measured: Formation, side: str, choice: str) -> list[int]:
    """The head of a side. choice: "found", or its name."""
    if choice == FOUND:
        return best(measured, SIDES[side][0])
    layer, _, head = choice.partition(".")
    return [int(layer) - 1, int(head) - 1]


def options(measured: Formation) -> list[str]:
    """What a side may show."""
    return [FOUND, *head_names(measured.scores[-1].previous_token)]


@dataclass(frozen=True, eq=False)
class Look:
    """What both sides show: the maps and the scores over the steps, a step, a row of the map, the colours."""

    maps: Maps
    scores: Formation
    at: int
    row: int
    colors: Palette

    def draw(self, side: str, key: str) -> None:
        """One side: its head, the map, the row in words, the numbers. key: of the setting with its head."""
        kind, title = SIDES[side]
        as_found = f"{head_name(best(self.scores, kind))}, as found"
        st.selectbox(
            title,
            options(self.scores),
            format_func=lambda name: as_found if name == FOUND else name,
            key=key,
            width=180,
        )
        head = chosen(self.scores, side, st.session_state[key])
        shown = panel(self.maps, self.at, head)
        with st.container(horizontal=True, horizontal_alignment="distribute", vertical_alignment="center"):
            st.markdown(f"{mark(self.scores, head)} :gray[step {self.at:,}]", width="content")
            with st.popover("Export", type="tertiary", key=f"export.{side}"):
                self._exports(side, shown, head_name(head))
        words = f"{sentence(shown, self.row)} {expected(self.maps, shown, self.row)}"
        made = figure.figure(shown, self.colors, marked=self.row)
        figure.draw(made, f"induction.{side}", self.colors, said=words)
        st.markdown(words)
        _table(shown, self.row)

    def _exports(self, side: str, shown: Panel, name: str) -> None:
        export.downloads(
            f"induction-{side}-head-{name}-step-{self.at}",  # both sides may show one head
            lambda: twin(shown, f"Head {name}, step {self.at:,}", marked=self.row),
            lambda: numbers(shown),
        )

    def key(self) -> None:
        """The key of the colours, for both sides."""
        made = strip.key("weights", 1.0, self.colors, "weight")
        figure.draw(made, "induction.key", self.colors, still=True)


def expected(found: Maps, shown: Panel, row: int) -> str:
    """What the row gives to the token before it, and to what came after the same token the last time."""
    pieces, weights = found.pieces, shown.values[row]
    said = []
    if row:
        said.append(f"The token before it gets **{number(float(weights[row - 1]))}**")
    if pieces[row] in pieces[:row]:
        after = pieces.index(pieces[row]) + 1
        came = f"what came after *{plain(pieces[row])}* the first time, {plain(shown.columns[after])}, gets"
        said.append(f"{came} **{number(float(weights[after]))}**")
    text = "; ".join(said)
    return f"{text[:1].upper()}{text[1:]}." if text else ""


def _table(shown: Panel, row: int) -> None:
    import pandas as pd

    head, *rows = row_table(shown, row)
    frame: Any = pd.DataFrame([(plain(str(label)), *values) for label, *values in rows], columns=list(head))
    form = frame.style.format(lambda value: number(value, 3), subset=list(head[1:]))
    st.table(form, border="horizontal", hide_index=True)
