"""Positions: five ways to say where a token stands, trained on 64 tokens and read far beyond."""

import streamlit as st

from engine.chapter.experiments import POSITIONS
from engine.probes.registry import (
    DIAGONALS,
    EARLY_TOKENS,
    KNOWLEDGE,
    ORDER,
    OTHER_ROWS,
    PLACES,
    RESCALED,
    TABLE,
)
from engine.probes.results.positions import Diagonals
from lab import bench
from lab.probes import look
from lab.sections.positions import alibi, longer, parts, scores, start, untrained
from lab.sections.positions import order as orders
from lab.settings import Settings
from lab.shell import frame
from lab.shell.chapter import section
from lab.weights import Opened, paths

SECTION = section("positions.py")
ALL = (POSITIONS, POSITIONS.variants)


def slopes() -> None:
    """ALiBi's penalty, for any number of heads."""
    frame.heading(
        "How far does each of ALiBi’s heads see?",
        "Every head takes a slope times the distance off its scores; a query’s own token loses nothing. "
        "The slopes are fixed before training. Choose a number of heads, powers of two or not.",
    )
    heads.draw(width=bench.HALF)
    alibi.draw(heads.value)


def distance_and_head() -> None:
    """Of the two tokens whose score is followed."""
    distance.draw(width=360)
    head.draw()


def sentence_and_order() -> None:
    """The sentence, and a button that draws another order of it."""
    sentence.draw(width=400)
    shuffle.draw()
    st.caption(f"Order {shuffle.value}")


def diagonals(found: Diagonals, opened: Opened) -> None:
    """The scores at the chosen distance."""
    scores.diagonals(found, opened, distance.value, head.value)


settings = Settings("positions")
distance = settings.choice("distance", "Distance t − i, tokens", scores.DISTANCES, "4", widget="slider")
head = settings.choice("head", "Head", scores.HEADS, "1")
heads = settings.whole("heads", "Heads", 1, alibi.MOST_HEADS, 4, slider=True)
sentence = settings.text("sentence", "Your sentence", orders.SENTENCE, max_chars=200)
shuffle = settings.random("draw", "Another order")

frame.header(
    SECTION,
    POSITIONS.question,
    "A score compares two tokens by what they are, not by where they stand. Train four ways of telling "
    "where, and none, on windows of 64 tokens, then read windows of up to 512 with the same weights.",
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
frame.sources(POSITIONS, "The code of the five schemes, and what each changes")
look(
    "Where in a long window does it go wrong?",
    "A window of 512 mixes easy positions with hard ones. Take it apart: how perplexed is each scheme at "
    "each position, with the same weights?",
    settings,
    "places",
    PLACES,
    longer.places,
    models=ALL,
    button="Measure",
)
look(
    "Why does ALiBi improve on longer windows?",
    "The first tokens of a window have little to go by, and a longer window has fewer of them. Score the "
    "same tokens at every length, none of them early in its window, and see what is left.",
    settings,
    "start",
    EARLY_TOKENS,
    start.early_tokens,
    models=(POSITIONS, ("alibi",)),
    button="Measure",
)
look(
    "What lies in the rows that nobody trained?",
    "The learned table has 512 rows so that a long window can be read at all. Training used the first "
    "64. How far has each row turned from the random vector it began as?",
    settings,
    "rows",
    TABLE,
    untrained.table,
    models=(POSITIONS, ("learned",)),
)
look(
    "How much of the cliff do the random rows make?",
    "Put something else into the rows that nobody trained: zeros, the same numbers 0.02 as large (GPT-2 "
    "draws its table so), or the last trained row. Nothing is trained.",
    settings,
    "other-rows",
    OTHER_ROWS,
    untrained.other_rows,
    models=(POSITIONS, ("learned",)),
    button="Replace rows",
    below=True,
)
look(
    "What does a score know of place?",
    "Take one query token and one key token, hold their distance fixed, and move both through the "
    "window. A scheme that knows distances only draws a flat line.",
    settings,
    "diagonals",
    DIAGONALS,
    diagonals,
    models=ALL,
    controls=distance_and_head,
    arguments=lambda opened: {"weights": paths(opened)},
)
look(
    "Can a slower rotation repair RoPE at 256?",
    "Beyond 64 tokens the slow pairs of RoPE turn by angles that training never showed. Turn more "
    "slowly, and 256 places fit into the angles of 64: all pairs alike (linear), or the slow ones only, "
    "by a larger base (NTK-aware). Nothing is trained.",
    settings,
    "rescaled",
    RESCALED,
    longer.rescaled,
    models=(POSITIONS, ("rope",)),
    button="Rescale",
)
slopes()
look(
    "What can attention tell without positions?",
    "Put a sentence of yours into another order and send both through blocks that are not trained at "
    "all: this is a matter of the architecture, not of what it learned.",
    settings,
    "order",
    ORDER,
    orders.order,
    controls=sentence_and_order,
    arguments=lambda _: {"sentence": sentence.value, "seed": shuffle.value},
)
look(
    "How much of the position does the mask tell?",
    "A causal model without positions is not lost. Read its attention: how much of the place can be told "
    "from it, trained and before, and what does it cost to shuffle the past?",
    settings,
    "knowledge",
    KNOWLEDGE,
    orders.knowledge,
    models=ALL,
    button="Read it",
    below=True,
)
frame.footer(SECTION, settings)
