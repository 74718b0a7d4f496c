"""Two texts through trained averages: how far their averages differ, and what each says comes next."""

import random
from collections import Counter
from collections.abc import Sequence

import streamlit as st

from engine.chapter.experiments import AVERAGES
from engine.chapter.variants import AVERAGE, AVERAGE_POSITIONS
from engine.probes.registry import AVERAGES as COMPARE
from engine.probes.results.averages import Comparison
from lab import bench, probes, weights
from lab.probes import tiny
from lab.settings import Setting, Settings, hold
from lab.shell import frame
from lab.shell.frame import dot
from lab.words import plain, visible

PARAGRAPH = (
    "Before the gates the soldiers stood and waited for the king, who had sworn to return by night; but the "
    "night came, and the king did not, and the people began to say that he was dead."
)


def sentences(first: Setting[str], second: Setting[str], settings: Settings) -> None:
    """Two sentences of the same words, through the average with and without positions."""
    frame.heading(
        "Who bit whom?",
        "A mean does not ask in which order its terms came. Type two sentences of the same words: the "
        "trained average gives both the same summary, and so the same guess at the next token.",
    )
    with st.container(horizontal=True, vertical_alignment="bottom"):
        first.draw(width=400)
        second.draw(width=400)
    blind = (AVERAGE.id, AVERAGE_POSITIONS.id)
    _order_blindness(settings.key("order"), blind, first.value, second.value)


def paragraph(settings: Settings) -> None:
    """A paragraph that the reader shuffles by hand."""
    frame.heading(
        "Shuffle a paragraph",
        "Move the words about as you like, by hand or all at once. As long as none is lost, the average’s "
        "prediction does not move.",
    )
    state, keys = st.session_state, {"A paragraph": "paragraph", "In your order": "shuffled"}
    yours, shuffled = (settings.key(name) for name in keys.values())

    def shuffle() -> None:
        words = state[yours].split()
        random.shuffle(words)
        state[shuffled] = " ".join(words)

    texts = []
    with st.container(horizontal=True):
        for label, name in keys.items():
            key = settings.key(name)
            hold(key, PARAGRAPH)
            text = st.text_area(label, key=key, height=120, width=bench.HALF, persist_state="session")
            texts.append(" ".join(text.split()))
    st.button("Shuffle", key=settings.key("shuffle"), on_click=shuffle, width=160)
    _order_blindness(yours, (AVERAGE.id,), *texts)


def _order_blindness(key: str, variants: Sequence[str], first: str, second: str) -> None:
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
