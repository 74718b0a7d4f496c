"""Two heads' attention on one repeated sequence, at one kept step, side by side."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import streamlit as st

from engine.circuits.results import Head
from engine.probes.registry import INDUCTION_MAPS
from engine.probes.results.induction import Formation, Maps
from lab import bench, probes
from lab.charts.maps import figure, view
from lab.charts.maps.panel import Array, Panel, labels, weights_panel
from lab.charts.maps.sentences import number, sentence
from lab.sections.induction.formation import mark
from lab.sections.induction.probe import FOUND, head_or_found
from lab.settings import Setting, Settings, whole
from lab.shell import palette
from lab.words import plain

PERIODS = (11, 12, 14)  # tokens before the repeat, of the sequence that is shown
# By side: what it shows if nothing else is chosen, as the score that the head is best at, and its words.
SIDES = {
    "left": ("previous_token", "Previous token"),
    "right": ("prefix_matching", "Prefix matching"),
}


def panel(found: Maps, at: int, head: Sequence[int]) -> Panel:
    """One head's weights on the sequence at a kept step."""
    step, (layer, number_) = found.steps.index(at), head
    weights, scores = (_square(kind[step][layer][number_]) for kind in (found.weights, found.scores))
    return weights_panel(found.pieces, weights, scores, np.triu(np.ones(weights.shape, bool), 1))


def _square(rows: list[list[float]]) -> Array:
    """Rows that end where the mask begins, as a square. shape: -> (T, S)"""
    square = np.zeros((len(rows), len(rows)), np.float32)
    for t, row in enumerate(rows):
        square[t, : len(row)] = row
    return square


def best(measured: Formation, kind: str) -> Head:
    """The head that a side shows: of the pair at the end, else the one whose score is highest there."""
    if pair := measured.pair:
        return pair[[score for score, _ in SIDES.values()].index(kind)]
    return measured.scores[-1].best(kind)


class SideBySide:
    """The settings of the maps: the sequence, the row that is read out, and the head of each side."""

    def __init__(self, settings: Settings) -> None:
        self._period = settings.choice("period", "Repeats after, tokens", PERIODS, 12)
        self._row = settings.value("row", whole("row", 0, 2 * PERIODS[-1] - 1), None, widget=st.selectbox)
        self._sides: dict[str, Setting[str]] = {
            side: settings.value(side, head_or_found(side), FOUND, widget=st.selectbox) for side in SIDES
        }

    def draw(self, measured: Formation, run: Path, at: int) -> None:
        """Both maps after the step ``at``. run: the folder with the kept weights."""
        st.subheader("The two heads on one sequence", anchor=False)
        with st.container(horizontal=True, vertical_alignment="bottom", key="instruments-maps"):
            self._period.draw()
            row_slot = st.empty()
            status_slot = bench.status_line()
        period = self._period.value
        maps = probes.attempt(status_slot, INDUCTION_MAPS, run=run, period=period)
        if not maps:
            return
        row, names = self._chosen_row(period), labels(maps.pieces)
        with row_slot:
            self._row.draw(
                label="Row to read out", options=range(len(names)), format_func=names.__getitem__, width=160
            )
        options = [FOUND, *(head.name for head in measured.scores[-1].heads)]
        for side, chosen in self._sides.items():
            if chosen.value not in options:
                st.markdown(f":orange[{side} is {chosen.value}, which this model has not. Used: found.]")
                chosen.value = FOUND
        palette.follow()
        view.key()
        with st.container(horizontal=True):
            for side in SIDES:
                with st.container(width=figure.WIDTH):
                    self._side(side, options, measured, maps, at, row)
        st.caption(
            "Rows are queries, top to bottom; columns are keys; each row sums to 1. Colour follows the "
            "square root of the weight, fixed from 0 to 1. Grey: masked. The maps follow the step above."
        )

    def _chosen_row(self, period: int) -> int:
        """One of the maps', at first one of the second half."""
        usual, row = period + 3, self._row.value
        if row is not None and row >= 2 * period:
            st.markdown(f":orange[Row {row} is beyond this sequence’s {2 * period} tokens. Used: {usual}.]")
        if row is None or row >= 2 * period:
            self._row.value = row = usual
        return row

    def _side(
        self, side: str, options: list[str], measured: Formation, maps: Maps, at: int, row: int
    ) -> None:
        """One head's map, the row in words, the numbers."""
        kind, title = SIDES[side]
        found = best(measured, kind)
        names: dict[str, Any] = {FOUND: f"{found.name}, as found"}
        setting = self._sides[side]
        setting.draw(label=title, options=options, format_func=lambda name: names.get(name, name), width=180)
        head = next((one for one in measured.scores[-1].heads if one.name == setting.value), found)
        shown = panel(maps, at, head)
        words = f"{sentence(shown, row)} {expected(maps, shown, row)}"
        view.draw(
            shown, f"induction.{side}", f"{mark(measured, head)} :gray[step {at:,}]", words, marked=row,
            file=f"induction-{side}-head-{head.name}-step-{at}",  # both sides may show one head
            heading=f"Head {head.name}, step {at:,}",
        )  # fmt: skip
        st.markdown(words)
        view.draw_numbers(shown, row)


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
