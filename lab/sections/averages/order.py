"""Two texts through trained averages: how far their averages differ, and what each says comes next."""

from collections import Counter
from collections.abc import Sequence

import streamlit as st

from engine.chapter.experiments import AVERAGES
from engine.probes.registry import AVERAGES as COMPARE
from engine.probes.results.averages import Comparison
from lab import probes, weights
from lab.probes import tiny
from lab.shell.frame import dot
from lab.words import plain, visible


def order_blindness(key: str, variants: Sequence[str], first: str, second: str) -> None:
    """Both texts through each variant. key: of the switch that says whose weights."""
    found = weights.chosen(key, AVERAGES, variants)
    with st.container(horizontal=True):
        for name in variants:
            with st.container(width=probes.WIDTH):
                st.markdown(f"{dot(name)} **{plain(AVERAGES.variant(name).title)}**")
                one = found.get(name)
                weights.missing(one)
                if one is None:
                    continue
                place, arguments = st.empty(), {"text_a": first, "text_b": second}
                if comparison := probes.attempt(place, COMPARE, weights=one.path, **arguments):
                    st.markdown(_said(comparison))
                    _next_tokens(comparison)
                st.caption(f"Weights: {plain(one.whose)}.")


def _said(comparison: Comparison) -> str:
    gap, moved = tiny(comparison.average_difference), tiny(comparison.probability_difference)
    if not comparison.same_pieces:
        return (
            f"These are not the same tokens in another order: {_unshared(comparison)}. So the averages "
            f"differ, by up to {gap}, and the next-token probabilities by up to {moved}."
        )
    noise = "" if comparison.average_difference == 0 else ", the rounding of sums taken in another order"
    return (
        f"The two averages differ by at most **{gap}**{noise}; the next-token probabilities by at most "
        f"**{moved}**."
    )


def _unshared(comparison: Comparison) -> str:
    """Which pieces only one of the two texts has."""
    a, b = Counter(comparison.pieces_a), Counter(comparison.pieces_b)
    said = []
    for which, extra in (("first", a - b), ("second", b - a)):
        pieces = ", ".join(f"“{plain(visible(piece))}”" for piece in list(extra.elements())[:8])
        said.append(f"only the {which} has {pieces}" if pieces else f"the {which} has none of its own")
    return "; ".join(said)


def _next_tokens(comparison: Comparison) -> None:
    """The likeliest next tokens after each text, side by side."""
    import pandas as pd

    rows = [
        (plain(visible(piece_a)), share_a, plain(visible(piece_b)), share_b)
        for (piece_a, share_a), (piece_b, share_b) in zip(comparison.top_a, comparison.top_b, strict=True)
    ]
    table = pd.DataFrame(rows, columns=["after the first", "probability", "after the second", "probability "])
    shown = table.style.format("{:.4f}", subset=["probability", "probability "])
    st.table(shown, border="horizontal", hide_index=True)
