"""Positions: five ways to say where a token stands, trained on 64 tokens and read far beyond."""

import random
from pathlib import Path
from typing import TypeVar

import streamlit as st

from engine.chapter.experiments import POSITIONS
from engine.probes.registry import DIAGONALS, KNOWLEDGE, ORDER, PLACES, RESCALED, TABLE, Probe
from lab import bench, weights
from lab import probes as probing
from lab.charts import drawing
from lab.sections.positions import alibi, parts, probes
from lab.settings import Settings, whole
from lab.shell import frame
from lab.shell.chapter import section
from lab.weights import Weights

SECTION = section("positions.py")
R = TypeVar("R")


def opened(name: str, *schemes: str) -> dict[str, Weights]:
    """The trained models of these schemes that a probe opens, and a word to it where there are none.

    name: of the probe, for its switch.
    """
    found = weights.chosen(settings.key(name), POSITIONS.id, schemes or POSITIONS.variants)
    weights.missing(found)
    return found


def paths_of(found: dict[str, Weights]) -> dict[str, Path]:
    """Their checkpoints."""
    return {name: one.path for name, one in found.items()}


def pressed(name: str, label: str, probe: Probe[R], *schemes: str) -> tuple[R, dict[str, Weights]] | None:
    """What a probe that takes its time found when its button was last pressed, and of which weights."""
    now = opened(name, *schemes)
    asked = probing.pressed(label, settings.key(name), now, probe.seconds * max(1, len(now)) / 5)
    probing.outdated(asked, now)
    found = probing.attempt(st.empty(), probe, weights=paths_of(asked)) if asked else None
    return None if found is None else (found, asked)


def places() -> None:
    """Perplexity per position of a long window."""
    with probing.section(
        "Where in a long window does it go wrong?",
        "A window of 512 mixes easy positions with hard ones. Take it apart: how perplexed is each scheme at "
        "each position, with the same weights?",
        "places",
    ):
        answer = pressed("places", "Measure", PLACES)
    if answer:
        found, asked = answer
        st.markdown("**Perplexity by position** :gray[log scale, held out, 16 positions a point]")
        with st.container(key="figure-places"):
            drawing.draw(probes.places_chart(found), key="positions.places")
        st.markdown(probes.places_words(found), width=frame.MEASURE)
        st.caption(f"{found.windows} windows. {weights.whose(asked)}")


def untrained_rows() -> None:
    """The learned table's rows, seen and unseen."""
    with probing.section(
        "What lies in the rows that nobody trained?",
        "The learned table has 512 rows so that a long window can be read at all. Training used the first "
        "64. How far has each row turned from the random vector it began as?",
        "rows",
    ):
        opens = opened("rows", "learned")
    if opens and (found := probing.attempt(st.empty(), TABLE, weights=paths_of(opens))):
        st.markdown("**Turned since the first step** :gray[degrees, a stroke a row]")
        with st.container(key="figure-rows"):
            drawing.draw(probes.rows_chart(found), key="positions.rows")
        st.markdown(probes.rows_words(found), width=frame.MEASURE)
        st.caption(weights.whose(opens))


def diagonals() -> None:
    """Two tokens a fixed distance apart, moved through the window."""
    with probing.section(
        "What does a score know of place?",
        "Take one query token and one key token, hold their distance fixed, and move both through the "
        "window. A scheme that knows distances only draws a flat line.",
        "diagonals",
    ):
        distance.draw(width=360)
        head.draw()
        opens = weights.chosen(settings.key("diagonals"), POSITIONS.id, POSITIONS.variants)
    if found := probing.attempt(st.empty(), DIAGONALS, weights=paths_of(opens)):
        st.markdown("**Score over the query’s place** :gray[first block, before the mask]")
        with st.container(key="figure-diagonals"):
            drawing.draw(probes.diagonal_chart(found, distance.value, head.value), key="positions.diagonals")
        with st.container(horizontal=True, gap="medium", key="results-diagonals"):
            with st.container(width=bench.TABLE_WIDTH):
                probes.diagonal_table(found, distance.value, head.value).draw()
            with st.container(width=bench.NOTICE_WIDTH):
                st.markdown(probes.diagonal_words(found, distance.value, head.value))
        fresh = len(opens) < len(POSITIONS.variants)
        rest = "Fresh ones, seed 0, where none are trained." if fresh else ""
        st.caption(f"{weights.whose(opens) if opens else 'Weights:'} {rest}".strip())


def rescaling() -> None:
    """RoPE's weights, read with a slower rotation."""
    with probing.section(
        "Can a slower rotation repair RoPE at 256?",
        "Beyond 64 tokens the slow pairs of RoPE turn by angles that training never showed. Turn more "
        "slowly, and 256 places fit into the angles of 64: all pairs alike (linear), or the slow ones only, "
        "by a larger base (NTK-aware). Nothing is trained.",
        "rescaled",
    ):
        answer = pressed("rescaled", "Rescale", RESCALED, "rope")
    if answer:
        found, asked = answer
        st.markdown("**RoPE, three ways to turn** :gray[held-out perplexity, log scale]")
        with st.container(horizontal=True, gap="medium", key="results-rescaled"):
            with st.container(width=bench.TABLE_WIDTH):
                with st.container(key="figure-rescaled"):
                    drawing.draw(probes.rescaled_chart(found), key="positions.rescaled")
                probes.rescaled_table(found).draw()
                st.caption(weights.whose(asked))
            with st.container(width=bench.NOTICE_WIDTH):
                st.subheader("Does it repair 256?", anchor=False)
                st.markdown(probes.rescaled_words(found))


def slopes() -> None:
    """ALiBi's penalty, for any number of heads."""
    st.header("How far does each of ALiBi’s heads see?", anchor=False)
    st.markdown(
        "Every head takes a slope times the distance off its scores; a query’s own token loses nothing. "
        "The slopes are fixed before training. Choose a number of heads, powers of two or not.",
        width=frame.MEASURE,
    )
    heads.draw(width=bench.HALF)
    with st.container(horizontal=True, gap="medium", key="figure-slopes"):
        with st.container(width=bench.HALF, gap=None):
            st.markdown(":small[**Slope of each head** :gray[log scale; grey: the plain formula]]")
            drawing.draw(alibi.slopes_chart(heads.value), key="positions.slopes")
        with st.container(width=bench.HALF, gap=None):
            st.markdown(":small[**What the penalty leaves of a weight** :gray[a line a head]]")
            drawing.draw(alibi.reach_chart(heads.value), key="positions.reach")
    st.markdown(alibi.in_words(heads.value), width=frame.MEASURE)


def order() -> None:
    """What models without positions can tell apart."""
    settings.again("draw")
    with probing.section(
        "What can attention tell without positions?",
        "Put a sentence of yours into another order and send both through blocks that are not trained at "
        "all: this is a matter of the architecture, not of what it learned.",
        "order",
    ):
        sentence.draw(width=400)
        st.button("Another order", on_click=_another_order, width=160)
        st.caption(f"Order {shuffle.value}")
    if found := probing.attempt(st.empty(), ORDER, sentence=sentence.value, seed=shuffle.value):
        with st.container(horizontal=True, gap="medium", key="results-order"):
            with st.container(width=bench.TABLE_WIDTH):
                probes.order_table(found).draw()
                st.caption(
                    f"Largest absolute difference of the logits; green: rounding. All tokens moved: "
                    f"{probes.shuffled(found, 'order')}. All but the last: "
                    f"{probes.shuffled(found, 'prefix')}. Weights: fresh, seed 0."
                )
            with st.container(width=bench.NOTICE_WIDTH):
                st.markdown(probes.order_words(found))


def _another_order() -> None:
    shuffle.value = random.randrange(10_000)


def knowledge() -> None:
    """How a model without positions knows something of them."""
    with probing.section(
        "It still learns some positional information",
        "A causal model without positions is not lost. Read its trained attention: how much of the place can "
        "be told from it, and what is a shuffled past worth to it?",
        "knowledge",
        below=True,
    ):
        answer = pressed("knowledge", "Read it", KNOWLEDGE)
    if answer:
        found, asked = answer
        with st.container(horizontal=True, gap="medium", key="results-knowledge"):
            with st.container(width=bench.TABLE_WIDTH):
                probes.knowledge_table(found).draw()
                st.caption(
                    f"{found.windows} held-out windows of {found.length}. Read off by a linear map of "
                    f"what attention adds and its squares, fitted on half of the windows, taken on the "
                    f"other. Perplexity: of the last token of each window. {weights.whose(asked)}"
                )
            with st.container(width=bench.NOTICE_WIDTH):
                st.markdown(probes.knowledge_words(found))


settings = Settings("positions")
distance = settings.choice("distance", "Distance t − i, tokens", probes.DISTANCES, "4", widget="slider")
head = settings.choice("head", "Head", probes.HEADS, "1")
heads = settings.whole("heads", "Heads", 1, alibi.MOST_HEADS, 4, slider=True)
sentence = settings.text("sentence", "Your sentence", probes.SENTENCE, max_chars=200)
shuffle = settings.value("draw", whole("draw", 0, 9_999), 0)

frame.header(
    SECTION,
    POSITIONS.question,
    "Attention has no idea where a token stands; it has to be told. Train five ways of telling on windows of "
    "64 tokens, then read windows of up to 512 with the same weights.",
    settings,
)
bench.train(
    POSITIONS,
    settings,
    questions=parts.QUESTIONS,
    figure=parts.figure,
    tables=(parts.lengths_table, parts.beside_the_chapter, parts.claims_table),
    caption=parts.caption,
    under=parts.budget_line,
    notice=parts.notice,
    waits=False,
)
frame.sources(POSITIONS.models, "The code of the five schemes, and what each changes")
probing.beside(places)
probing.beside(untrained_rows)
probing.beside(diagonals)
probing.beside(rescaling)
slopes()
probing.beside(order)
probing.beside(knowledge)
frame.footer(SECTION, settings)
