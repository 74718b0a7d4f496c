"""Winograd: a language whose questions have right answers, a two-hop circuit, and its proof."""

from functools import partial

import streamlit as st

from engine.chapter.language_experiments import WINOGRAD_CLOSED
from engine.data.languages.winograd import DECISION, FIRST
from lab import probes
from lab.bench import instruments
from lab.bench import training as bench
from lab.bench.sweep import Sweep
from lab.charts import drawing
from lab.sections.winograd import parts, probe, proof_view, sections, seeds, setup
from lab.sections.winograd.inside import Inside
from lab.sections.winograd.parts import BAG_GUESSES, BLOCK_GUESSES
from lab.sections.winograd.sections import ALL, HEADS, HOWS
from lab.settings import Settings, one_of, whole
from lab.shell import export, frame, palette
from lab.shell.chapter import section

SECTION = section("winograd.py")


def guesses() -> None:
    """The two predictions."""
    with st.container(horizontal=True):
        for name, question, options in (
            ("bag", "Before you train: one pool of nouns, how good is a bag of words?", BAG_GUESSES),
            ("read", "And where do two blocks read the adjective?", BLOCK_GUESSES),
        ):
            with st.container(width=bench.HALF):
                st.pills(question, list(options), format_func=options.__getitem__, key=settings.key(name))


def training(sweep: Sweep, refused: str | None) -> None:
    """Settings, words, live curves, tables."""
    with st.container(horizontal=True, vertical_alignment="bottom", key="instruments"):
        setup.row(settings)
        instruments.action(sweep, settings)
        said = bench.status_line()
    instruments.wanting(settings, instruments.Choice(choice.budget, choice.seeds, ""))
    with st.expander("The language and the steps", expanded=choice.version == "yours"):
        setup.words(settings, choice)
    shape, paused = parts.frame(choice), False
    with st.container(horizontal=True, vertical_alignment="center", key="figure-title"):
        st.markdown("**Right answers** :gray[held-out sentences, higher is better]", width="stretch")
        if sweep.unended:
            paused = st.toggle("Pause live", key="winograd.paused")
        with st.popover("Export", type="tertiary"):
            export.downloads(
                f"winograd-{choice.version}-{choice.budget}",
                lambda: parts.chart(choice, shape, sweep.again()),
                lambda: parts.numbers(sweep.again()),
            )

    def draw(now: Sweep) -> None:
        with st.container(key="figure"):
            drawing.draw(parts.chart(choice, shape, now), key="winograd.chart")
        with st.container(horizontal=True, gap="medium", key="results"):
            with st.container(width=bench.TABLE_WIDTH):
                for styler in (parts.results(now, choice), parts.shares(now)):
                    st.table(styler, border="horizontal", hide_index=True)
                st.caption(parts.remarks(now, choice))
            with st.container(width=bench.NOTICE_WIDTH):
                st.subheader("What to notice", anchor=False)
                words = parts.notice(now, st.session_state[settings.key("bag")])
                st.markdown(words or _waiting(now))

    bench.follow(sweep, said, draw, refused=refused, paused=paused)


def _waiting(now: Sweep) -> str:
    if now.unended:
        return "Your guesses are answered here when every model has ended."
    return "No runs yet. Make your two guesses, then train."


def two_sentences() -> None:
    """Which model, which sentences, and how they differ inside; the sections below follow."""
    st.header("Two sentences, one word", anchor=False)
    st.markdown(
        "Choose who crosses what, and two adjectives. Both sentences go through the model; what differs "
        "between their maps is that one word’s doing. All maps share one scale.",
        width=frame.MEASURE,
    )
    now = chosen()
    probe.row(settings, sweep, choice, now.variant)
    sections.block_one(now, sections.two_sentences(now))
    if now != inside:
        st.rerun()


def chosen() -> Inside:
    """The model and the sentences that are set now."""
    return Inside(settings, choice, *probe.choose(settings, sweep, choice), colors)


def over_seeds() -> Sweep:
    """Whether the circuit forms always, sometimes, or by another route."""
    st.header("Over seeds", anchor=False)
    st.markdown(
        "Does training always end in the same circuit? Two blocks, on the seeds that no setting was chosen "
        "on, each scored as above.",
        width=frame.MEASURE,
    )
    count = int(st.session_state[settings.key("count")])
    many = seeds.sweep_of(choice, count)
    seeds.show(settings, choice, many, count)
    return many


settings = Settings(
    "winograd",
    (
        *setup.NAMES,
        *("bag", "read"),
        *probe.NAMES,
        *("head", "edge", "how", "block", "of", "query", "key", "count"),
    ),
)
frame.header(
    SECTION,
    WINOGRAD_CLOSED.question,
    "“The dog did not cross the road because it was too tired, so the …” The answer lies in one adjective "
    "and the order of two nouns. Train four models on such sentences, then take the best one apart.",
)
settings.seed("bag", one_of("bag", tuple(BAG_GUESSES)), None)
settings.seed("read", one_of("read", tuple(BLOCK_GUESSES)), None)
settings.seed("head", one_of("head", HEADS), "mean")
settings.seed("edge", str, "")
settings.seed("how", one_of("how", tuple(HOWS)), "edge")
settings.seed("block", whole("block", 1, 2), 1)
settings.seed("of", one_of("of", (ALL, *HEADS[1:])), ALL)
settings.seed("query", whole("query", 0, DECISION), DECISION)
settings.seed("key", whole("key", 0, DECISION), FIRST)
settings.seed("count", one_of("count", seeds.COUNTS), "5")
choice = setup.choose(settings)
sweep, refused = setup.asked(choice)
colors = palette.current()
inside = chosen()
settings.show_notices()
guesses()
training(sweep, refused)
frame.sources(WINOGRAD_CLOSED.models, "The code of the four models")
probes.beside(two_sentences)
for part in (sections.cut, sections.cut_any, proof_view.show):
    probes.beside(partial(part, inside))
bench.watch(sweep, over_seeds())
frame.footer(SECTION)
