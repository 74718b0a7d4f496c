"""Positions: five ways to say where a token stands, trained on 64 tokens and read far beyond."""

import random
from pathlib import Path
from typing import TypeVar

import streamlit as st

from engine.chapter.experiments import POSITIONS
from engine.probes.registry import DIAGONALS, KNOWLEDGE, ORDER, PLACES, RESCALED, TABLE, Probe
from lab import probes as probing
from lab import weights
from lab.bench import tables
from lab.bench import training as bench
from lab.bench.instruments import Choice
from lab.bench.sweep import Sweep
from lab.charts import drawing
from lab.charts import lines as charts
from lab.sections.positions import alibi, parts, probes
from lab.settings import Settings, as_it_is, one_of, whole
from lab.shell import export, frame
from lab.shell.chapter import section
from lab.weights import Weights
from lab.words import plain

SECTION = section("positions.py")
CURVES, OVER_LENGTHS = 432, 672  # px
R = TypeVar("R")


def guesses() -> None:
    """The two predictions."""
    with st.container(horizontal=True):
        for name, question in (("inside", parts.INSIDE), ("falls", parts.FALLS)):
            with st.container(width=bench.HALF):
                st.pills(
                    question,
                    POSITIONS.variants,
                    format_func=lambda name: plain(POSITIONS.variant(name).short),
                    key=settings.key(name),
                )


def training(choice: Choice) -> Sweep:
    """The sweep: settings, the curves and the figure over lengths, tables."""
    sweep, refused = bench.asked((POSITIONS,), choice)
    said = bench.instrument_row(POSITIONS, sweep, settings, choice)
    st.caption(parts.budget_line(choice.budget))
    paused = False
    with st.container(horizontal=True, vertical_alignment="center", key="figure-title"):
        st.markdown("**Held-out perplexity** :gray[log scale, lower is better]", width="stretch")
        if sweep.unended:
            paused = st.toggle("Pause live", key="positions.paused")
        with st.popover("Export", type="tertiary"):
            export.downloads(
                f"{POSITIONS.id}-{choice.budget}",
                lambda: parts.chart(sweep.again()),
                lambda: parts.numbers(sweep.again()),
            )
    curves = parts.curves_frame(choice.budget, chapters_text=sweep.of_the_chapters_text)

    def draw(now: Sweep) -> None:
        progress = now.progress if now.unended else 0.0
        with st.container(horizontal=True, gap="small", key="figure-positions"):
            with st.container(width=CURVES, gap=None):
                st.markdown(f":small[**While training** :gray[at {parts.TRAINED} tokens]]")
                drawing.draw(
                    charts.line_chart(curves, bench.chart_lines(now), progress), key="positions.curves"
                )
            with st.container(width=OVER_LENGTHS, gap=None):
                st.markdown(":small[**The same weights on longer windows** :gray[once trained]]")
                drawing.draw(parts.chart(now), key="positions.lengths")
        with st.container(horizontal=True, gap="medium", key="results"):
            with st.container(width=bench.TABLE_WIDTH):
                results(now, choice)
            with st.container(width=bench.NOTICE_WIDTH):
                st.subheader("What to notice", anchor=False)
                inside, falls = (st.session_state[settings.key(name)] for name in ("inside", "falls"))
                words = parts.notice(now, inside, falls)
                st.markdown(words or "No runs yet. Make your two guesses, then train.")

    bench.follow(sweep, said, draw, refused=refused, paused=paused)
    return sweep


def results(sweep: Sweep, choice: Choice) -> None:
    """Yours at every length, what the chapter prints, what it says in words."""
    comparable, text = choice.budget == "chapter", sweep.of_the_chapters_text
    columns = ("beside the chapter", *tables.COLUMNS[1:])
    lines = parts.beside_the_chapter(sweep)
    for styler in (
        parts.lengths_table(sweep),
        tables.four_columns(lines, comparable=comparable, text=text, columns=columns),
        parts.claims_table(sweep, comparable=comparable and text),
    ):
        st.table(styler, border="horizontal", hide_index=True)
    st.caption(" ".join(parts.remarks(lines, choice, text=text)))
    if text:
        st.caption(parts.STEPS_DECIDE)


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
    settings.again("distance", "head")
    distance, head = (str(st.session_state[settings.key(name)]) for name in ("distance", "head"))
    with probing.section(
        "What does a score know of place?",
        "Take one query token and one key token, hold their distance fixed, and move both through the "
        "window. A scheme that knows distances only draws a flat line.",
        "diagonals",
    ):
        st.select_slider("Distance t − i, tokens", probes.DISTANCES, key=settings.key("distance"), width=360)
        st.segmented_control("Head", probes.HEADS, key=settings.key("head"), required=True)
        opens = weights.chosen(settings.key("diagonals"), POSITIONS.id, POSITIONS.variants)
    if found := probing.attempt(st.empty(), DIAGONALS, weights=paths_of(opens)):
        st.markdown("**Score over the query’s place** :gray[first block, before the mask]")
        with st.container(key="figure-diagonals"):
            drawing.draw(probes.diagonal_chart(found, distance, head), key="positions.diagonals")
        with st.container(horizontal=True, gap="medium", key="results-diagonals"):
            with st.container(width=bench.TABLE_WIDTH):
                styler = probes.diagonal_table(found, distance, head)
                st.table(styler, border="horizontal", hide_index=True)
            with st.container(width=bench.NOTICE_WIDTH):
                st.markdown(probes.diagonal_words(found, distance, head))
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
                st.table(probes.rescaled_table(found), border="horizontal", hide_index=True)
                st.caption(weights.whose(asked))
            with st.container(width=bench.NOTICE_WIDTH):
                st.subheader("Does it repair 256?", anchor=False)
                st.markdown(probes.rescaled_words(found))


def slopes(heads: int) -> None:
    """ALiBi's penalty, for any number of heads."""
    st.header("How far does each of ALiBi’s heads see?", anchor=False)
    st.markdown(
        "Every head takes a slope times the distance off its scores; a query’s own token loses nothing. "
        "The slopes are fixed before training. Choose a number of heads, powers of two or not.",
        width=frame.MEASURE,
    )
    st.slider("Heads", 1, alibi.MOST_HEADS, key=settings.key("heads"), width=bench.HALF)
    with st.container(horizontal=True, gap="medium", key="figure-slopes"):
        with st.container(width=bench.HALF, gap=None):
            st.markdown(":small[**Slope of each head** :gray[log scale; grey: the plain formula]]")
            drawing.draw(alibi.slopes_chart(heads), key="positions.slopes")
        with st.container(width=bench.HALF, gap=None):
            st.markdown(":small[**What the penalty leaves of a weight** :gray[a line a head]]")
            drawing.draw(alibi.reach_chart(heads), key="positions.reach")
    st.markdown(alibi.in_words(heads), width=frame.MEASURE)


def order() -> None:
    """What models without positions can tell apart."""
    settings.again("sentence", "draw")
    sentence, draw = (st.session_state[settings.key(name)] for name in ("sentence", "draw"))
    with probing.section(
        "What can attention tell without positions?",
        "Put a sentence of yours into another order and send both through blocks that are not trained at "
        "all: this is a matter of the architecture, not of what it learned.",
        "order",
    ):
        st.text_input("Your sentence", key=settings.key("sentence"), max_chars=200, width=400)
        st.button("Another order", on_click=_another_order, width=160)
        st.caption(f"Order {draw}")
    if found := probing.attempt(st.empty(), ORDER, sentence=sentence, seed=draw):
        with st.container(horizontal=True, gap="medium", key="results-order"):
            with st.container(width=bench.TABLE_WIDTH):
                st.table(probes.order_table(found), border="horizontal", hide_index=True)
                st.caption(
                    f"Largest absolute difference of the logits; green: rounding. All tokens moved: "
                    f"{probes.shuffled(found, 'order')}. All but the last: "
                    f"{probes.shuffled(found, 'prefix')}. Weights: fresh, seed 0."
                )
            with st.container(width=bench.NOTICE_WIDTH):
                st.markdown(probes.order_words(found))


def _another_order() -> None:
    st.session_state[settings.key("draw")] = random.randrange(10_000)


def knowledge() -> None:
    """How a model without positions knows something of them."""
    with probing.section(
        "And still it learns something of place",
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
                st.table(probes.knowledge_table(found), border="horizontal", hide_index=True)
                st.caption(
                    f"{found.windows} held-out windows of {found.length}. Read off by a linear map of "
                    f"what attention adds and its squares, fitted on half of the windows, taken on the "
                    f"other. Perplexity: of the last token of each window. {weights.whose(asked)}"
                )
            with st.container(width=bench.NOTICE_WIDTH):
                st.markdown(probes.knowledge_words(found))


settings = Settings(
    "positions",
    ("budget", "seeds", "text", "inside", "falls", "distance", "head", "heads", "sentence", "draw"),
)
frame.header(
    SECTION,
    POSITIONS.question,
    "Attention has no idea where a token stands; it has to be told. Train five ways of telling on windows of "
    "64 tokens, then read windows of up to 512 with the same weights.",
)
settings.seed("inside", one_of("inside", POSITIONS.variants), None)
settings.seed("falls", one_of("falls", POSITIONS.variants), None)
settings.seed("distance", one_of("distance", probes.DISTANCES), "4")
settings.seed("head", one_of("head", probes.HEADS), "1")
heads = settings.seed("heads", whole("heads", 1, alibi.MOST_HEADS), 4)
settings.seed("sentence", as_it_is, probes.SENTENCE)
settings.seed("draw", whole("draw", 0, 9_999), 0)
choice = bench.choose(POSITIONS, settings)
guesses()
sweep = training(choice)
frame.sources(POSITIONS.models, "The code of the five schemes, and what each changes")
probing.beside(places)
probing.beside(untrained_rows)
probing.beside(diagonals)
probing.beside(rescaling)
slopes(heads)
probing.beside(order)
probing.beside(knowledge)
bench.watch(sweep)
frame.footer(SECTION)
