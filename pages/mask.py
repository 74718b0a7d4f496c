"""Mask and softmax: one average three ways, scores to edit, a mask's value, and what leaks without one."""

import random
from collections.abc import Sequence
from functools import partial

import numpy as np
import streamlit as st

from engine.chapter.experiments import MASK
from engine.chapter.variants import HEAD_ADDED, UNMASKED
from engine.probes import masks
from engine.probes.registry import CONSTANTS, EMPTY_ROWS, LEAK_SAMPLE
from engine.probes.results.leaks import EmptyRow
from lab import bench, probes
from lab.bench import Sweep
from lab.charts import drawing
from lab.sections.mask import charts, parts
from lab.sections.mask import grid as score_grid
from lab.settings import Settings, whole
from lab.shell import frame
from lab.shell.chapter import section
from lab.words import quantity

SECTION = section("mask.py")
LENGTHS = ("6", "16", "64", "128")
SIZES = tuple(f"{size:.0f}" for size in parts.SIZES)
WIDE, NARROW, MAP = 640, 448, 352  # px


def three_ways() -> None:
    """A loop, a matrix product and a softmax of equal scores."""
    frame.heading(
        "Three ways to one average",
        "The mean of everything up to t looks like a loop. It is one product with a triangle whose rows sum "
        "to 1, and that triangle is the softmax of equal scores with −∞ above the diagonal.",
    )
    with st.container(horizontal=True, vertical_alignment="bottom", key="instruments-ways"):
        tokens.draw(width="content")
        st.button("Draw other vectors", on_click=_draw_again, width=160)
        st.caption(f"Standard normal, {masks.WIDTH} wide, float32, seed {vectors.value}")
    found = masks.three_ways(int(tokens.value), vectors.value)
    with st.container(horizontal=True, gap="medium"):
        with st.container(width=WIDE):
            ways = (masks.loop, masks.matrix_product, masks.softmax_of_zeros)
            st.code("\n\n".join(parts.body(way) for way in ways), language="python")
            parts.differences(found)
            st.caption(_about(found))
        with st.container(width=NARROW):
            st.markdown("**The averaging matrix** :gray[each row sums to 1, grey: masked]")
            zeros = np.zeros((masks.TOKENS, masks.TOKENS))
            drawing.draw(charts.weights_map(masks.mix(zeros).weights, zeros, causal=True), key="averaging")


def _draw_again() -> None:
    vectors.value = random.randrange(10_000)


def _about(found: masks.ThreeWays) -> str:
    magnitude = f"Mean absolute value of the averages: {found.magnitude:.2f}"
    if not any(found.differences.values()):
        return f"{magnitude}; here the three agree to the last bit."
    return f"{magnitude}; what differs is the rounding of sums taken in another order."


def grid() -> None:
    """Scores to edit, and everything that follows from them."""
    frame.heading(
        "Any scores, and what softmax makes of them",
        "Equal scores give equal weights. Type others: mask, softmax and the means of the six values follow. "
        "Then multiply them all.",
    )
    with st.container(horizontal=True, vertical_alignment="bottom", key="instruments-grid"):
        score_grid.choose(settings)
        mask.draw(width="content")
        multiplied.draw(width=360)
    times, causal = multiplied.value, mask.value == "causal"
    with st.container(horizontal=True, gap="medium"):
        with st.container(width=384):
            st.markdown("**Scores** :gray[yours to edit]")
            score_grid.editor(settings)
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
            parts.rows_of(once, now, times)
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
    before, after = (parts.effective(float(one.effective[-1])) for one in (once, now))
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


def mask_value() -> None:
    """Which number stands for "never", and in which type."""
    frame.heading(
        "Which value should a mask use?",
        "A mask needs a score that the softmax turns into 0. −∞ does so by definition; a large negative "
        "number does as long as no score comes near it and the type can hold it.",
    )
    with st.container(horizontal=True, vertical_alignment="bottom", key="instruments-values"):
        number_type.draw(width="content")
        score_size.draw(width=360)
    measured = probes.attempt(st.empty(), CONSTANTS, sizes=list(parts.SIZES))
    if measured is None:
        return
    found = {(one.kind, one.value): one for one in measured}
    kind, size = number_type.value, float(score_size.value)
    with st.container(horizontal=True, gap="medium"):
        with st.container(width=528):
            st.markdown(f"**Weight on what is masked** :gray[{kind}, mean over rows]")
            leaks = {value: found[kind, value].leaks for value in charts.CONSTANTS}
            drawing.draw(charts.leak_chart(leaks, size), key="leaks")
            st.caption(
                "500 grids of 6 × 6 normal scores. A cross ends a curve where scores no longer fit the type."
            )
        with st.container(width=560):
            st.markdown(
                f"**What becomes of the mask value** :gray[scores of size {parts.size_label(str(size))}]"
            )
            parts.constant_table(found, size)
    nothing_left()


def nothing_left() -> None:
    """A row in which every key is masked."""
    st.subheader("A row with nothing to see", anchor=False)
    found = probes.attempt(st.empty(), EMPTY_ROWS)
    st.markdown(
        "When padding stands before a text, a causal mask and a padding mask together can leave a row no key "
        "at all. Its largest score is −∞, softmax takes −∞ from −∞, and that is NaN. Here the third of six "
        "rows is such a row, and the loss leaves it out.",
        width=frame.MEASURE,
    )
    if found is None:
        return
    bench.beside("results-empty", [parts.empty_row_table(found)], _remedies(found), "")


def _remedies(found: Sequence[EmptyRow]) -> str:
    poisoned = [one for one in found if one.nan_gradients]
    quiet = [one for one in found if one.like == "mean"]
    said = [
        f"{parts.of_six(len(poisoned)).capitalize()} leave NaN in a gradient: 0 times NaN is NaN, so "
        f"leaving the row out of the loss does not help."
    ]
    if quiet:
        said.append(
            "A finite constant gives no NaN and no warning: all scores are equal then, and the row is a "
            "mean of what it must not see."
        )
    said.append("Libraries set such a row to 0 after the softmax, or let every row see itself.")
    return "\n\n".join(said)


def leak_test() -> None:
    """A model trained without the mask, and what it writes."""
    frame.heading(
        "How good is a model that sees the answer?",
        "One head with its mask and the same head without. Both predict the next token at every position; "
        "one of them can look it up.",
    )
    bench.train(
        MASK,
        settings,
        questions=bench.best_and_worst(MASK),
        figure=partial(bench.perplexity, low=1.0),  # under what the chapter prints
        notice=notice,
    )
    frame.sources(MASK.models, "The code of the two models")
    probes.beside(cheat)


def cheat() -> None:
    """What a model without a mask writes."""
    frame.heading(
        "What does the model without a mask write?",
        "Writing, no model has the answer before it: the next token does not exist yet.",
        below=True,
    )
    with st.container(horizontal=True, vertical_alignment="bottom", key="instruments-write"):
        prompt.draw(width=400)
        asked = probes.pressed("Write", settings.key("write"), prompt.value, 2 * LEAK_SAMPLE.seconds)
    probes.outdated(asked, prompt.value)
    if asked is not None:
        parts.samples(MASK.variants, asked, 0)


def notice(now: Sweep) -> str:
    """What the two figures say, read off the reader's own."""
    honest, unmasked = (now.row(made.id, MASK.metric).mean for made in (HEAD_ADDED, UNMASKED))
    if honest is None or unmasked is None:
        return "One model diverged, so there is nothing to conclude. Train it again with another seed."
    if unmasked >= honest:
        return "In these steps the unmasked head has not found the answer yet. Give it more."
    return (
        f"Without its mask the head is {quantity(honest / unmasked)} times less perplexed, on text that it "
        f"has never seen: evaluation hands it the answer as training did. Held-out text does not uncover "
        f"such a leak; a figure too good to be true does.\n\n"
        f"A perplexity of {quantity(unmasked, 2)} says that it copies the next token nearly every time."
    )


settings = Settings("mask")
tokens = settings.choice("tokens", "Tokens", LENGTHS, "6")
vectors = settings.value("draw", whole("draw", 0, 9_999), 0)
typed = settings.value("scores", score_grid.parse, score_grid.PRESETS["example"], score_grid.write)
mask = settings.choice("causal", "Mask", ("causal", "none"), "causal", shown=str.capitalize)
multiplied = settings.choice(
    "times", "Scores multiplied by", charts.TIMES, "1", shown="×{}".format, widget="slider"
)
number_type = settings.choice("type", "Type", parts.TYPES, "float32")
score_size = settings.choice(
    "size", "Size of the scores (standard deviation)", SIZES, "10000", shown=parts.size_label, widget="slider"
)
prompt = settings.text("prompt", "Begins with", "ROMEO: I will", max_chars=200)

frame.header(
    SECTION,
    MASK.question,
    "It hides the future: every score above the diagonal becomes −∞, so the softmax gives it 0. Turn the "
    "average into attention step by step, then train one model that may look ahead.",
    settings,
)
three_ways()
grid()
probes.beside(mask_value)
leak_test()
frame.footer(SECTION, settings)
