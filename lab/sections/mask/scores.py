"""Scores to edit, and everything that follows from them."""

import numpy as np
import streamlit as st

from engine.probes import masks
from engine.probes.masks import TOKENS, Mixture
from lab.bench import Table
from lab.bench.tables import number
from lab.charts import drawing
from lab.sections.mask import charts, grid
from lab.settings import Setting, Settings
from lab.shell import frame
from lab.words import MINUS, decimals, quantity

MAP = 352  # px


def draw(mask: Setting[str], multiplied: Setting[str], typed: Setting[grid.Grid], settings: Settings) -> None:
    """Scores to edit, and everything that follows from them."""
    frame.heading(
        "Any scores, and what softmax makes of them",
        "Equal scores give equal weights. Type others: mask, softmax and the means of the six values follow. "
        "Then multiply them all.",
    )
    with st.container(horizontal=True, vertical_alignment="bottom", key="instruments-grid"):
        grid.choose(settings)
        mask.draw(width="content")
        multiplied.draw(width=360)
    times, causal = multiplied.value, mask.value == "causal"
    with st.container(horizontal=True, gap="medium"):
        with st.container(width=384):
            st.markdown("**Scores** :gray[yours to edit]")
            grid.editor(settings)
            scores = np.array(typed.value).reshape(masks.TOKENS, masks.TOKENS)
            st.caption(
                "Scores above the diagonal matter only when the mask is off."
                if causal
                else "No mask: all 36 count."
            )
        once, now = (masks.mix(scores, factor, causal=causal) for factor in (1.0, float(times)))
        with st.container(width=MAP):
            st.markdown(f"**Weights** :gray[softmax of the scores ×{times}]")
            drawing.draw(charts.weights_map(now.weights, scores * float(times), causal=causal), key="weights")
        with st.container(width=312):
            st.markdown("**Mixed vectors** :gray[means of the six values]")
            drawing.draw(charts.mixture_plot(now.mixed), key="mixture")
    st.markdown(_read_out(scores, once, now, times, causal), width=frame.MEASURE)
    with st.container(horizontal=True, gap="medium"):
        with st.container(width=560):
            st.markdown("**Effective tokens** :gray[exp of a row’s entropy]")
            _rows_table(once, now, times).draw()
        with st.container(width=528):
            st.markdown("**Effective tokens of query 6** :gray[log scale across]")
            drawing.draw(charts.hardening_chart(scores, float(times), causal=causal), key="hardening")


def _read_out(scores: masks.Array, once: masks.Mixture, now: masks.Mixture, times: str, causal: bool) -> str:
    if causal and np.ptp(scores[np.tril_indices(masks.TOKENS)]) == 0:
        return (
            "Every score that counts is the same, so row t gives each of its t tokens 1/t, whatever the "
            "scores are multiplied by: the average again."
        )
    if not causal and np.ptp(scores) == 0:
        return (
            "Every score is the same and nothing is masked, so each of the six tokens gets 1/6 in every row."
        )
    if np.ptp(now.weights[-1]) < 1e-9:
        return "Query 6 gives each of its six keys 1/6, as equal scores do: no choice at all."
    before, after = (_effective(float(one.effective[-1])) for one in (once, now))
    best = int(now.weights[-1].argmax())
    said = (
        f"Query 6 gives key {best + 1} a weight of **{now.weights[-1, best]:.2f}** and averages over "
        f"**{after}** in effect"
    )
    if float(times) == 1:
        return f"{said}; with equal weights it would be six."
    return (
        f"{said}; unmultiplied, over {before}. A linear layer that took the same scores for its coefficients "
        f"would only give an output ×{times} as long: its shares stay as they are."
    )


def _effective(tokens: float) -> str:
    return "one token" if round(tokens, 1) == 1 else f"{quantity(tokens)} tokens"


def _rows_table(once: Mixture, now: Mixture, times: str) -> Table:
    """Row by row: the mixed vector, and over how many tokens it is in effect a mean."""
    counts = {"softmax, ×1": once.effective, "linear, ×1": once.linear_effective}
    if float(times) != 1:
        counts = {
            "softmax, ×1": once.effective,
            f"softmax, ×{times}": now.effective,
            "linear, ×1": once.linear_effective,
            f"linear, ×{times}": now.linear_effective,
        }
    rows = []
    for t in range(TOKENS):
        x, y = (round(float(part), 2) + 0.0 for part in now.mixed[t])  # never −0
        vector = f"({x:.2f}, {y:.2f})".replace("-", MINUS)
        cells = (number(float(tokens[t]), decimals(2)) for tokens in counts.values())
        rows.append((str(t + 1), vector, *cells))
    return Table(
        ("query", "mixed vector", *counts),
        rows,
        "Linear: the scores as a layer’s coefficients, each by its share of their absolute sum; none where "
        "all are 0.",
        "Effective tokens, row by row",
    )
