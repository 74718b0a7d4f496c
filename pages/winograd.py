"""Winograd: a language whose questions have right answers, a two-hop circuit, and its proof."""

from functools import partial

import streamlit as st

from engine.chapter.language_experiments import WINOGRAD_CLOSED
from engine.data.languages.winograd import DECISION, FIRST
from lab import bench, probes
from lab.bench import Request
from lab.sections.winograd import parts, probe, proof_view, sections, seeds
from lab.sections.winograd.inside import Inside
from lab.sections.winograd.sections import ALL, HEADS, HOWS
from lab.sections.winograd.setup import WinogradSetup
from lab.settings import Settings, whole
from lab.shell import frame, palette
from lab.shell.chapter import section

SECTION = section("winograd.py")


def words(_: Request) -> None:
    """The language and its words."""
    with st.expander("The language and the steps", expanded=setup.request.version == "yours"):
        setup.draw_words()


def two_sentences() -> None:
    """Which model, which sentences, and how they differ inside; the sections below follow."""
    frame.heading(
        "Two sentences, one word",
        "Choose who crosses what, and two adjectives. Both sentences go through the model; what differs "
        "between their maps is that one word’s doing. All maps share one scale.",
    )
    chosen = probe.Chosen(settings, sweep)
    chosen.draw()
    now = inside_of(chosen)
    sections.block_one(now, sections.two_sentences(now))
    if now != inside:
        st.rerun()


def inside_of(chosen: probe.Chosen) -> Inside:
    """The model and the sentences that are set now."""
    return Inside(settings, setup.request, chosen.variant, chosen.model, chosen.pair, colors)


def over_seeds() -> None:
    """Whether the circuit forms always, sometimes, or by another route."""
    frame.heading(
        "Over seeds",
        "Does training always end in the same circuit? Two blocks, on the seeds that no setting was chosen "
        "on, each scored as above.",
    )
    seeds.show(settings, setup.request, count)


settings = Settings("winograd")
settings.choice("head", "Head", HEADS, "mean")
settings.value("edge", str, "")
settings.choice("how", "Take out", HOWS, "edge")
settings.value("block", whole("block", 1, 2), 1)
settings.choice("of", "Head", (ALL, *HEADS[1:]), ALL)
settings.whole("query", "Query", 0, DECISION, DECISION)
settings.whole("key", "Key", 0, DECISION, FIRST)
count = settings.choice("count", "Seeds", seeds.COUNTS, "5")
setup = WinogradSetup(settings)

frame.header(
    SECTION,
    WINOGRAD_CLOSED.question,
    "“The dog did not cross the road because it was too tired, so the …” The answer lies in one adjective "
    "and the order of two nouns. Train four models on such sentences, then take the best one apart.",
    settings,
)
sweep = bench.train(
    setup.request.experiment,
    settings,
    setup=setup,
    under=words,
    questions=parts.QUESTIONS,
    figure=parts.figure,
    tables=(parts.results, parts.shares),
    caption=parts.caption,
    notice=parts.notice,
    waits=False,
)
colors = palette.current()
inside = inside_of(probe.Chosen(settings, sweep))
frame.sources(WINOGRAD_CLOSED.models, "The code of the four models")
probes.beside(two_sentences)
for part in (sections.cut, sections.cut_any, proof_view.show):
    probes.beside(partial(part, inside))
over_seeds()
frame.footer(SECTION, settings)
