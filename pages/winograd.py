"""Winograd: a language whose questions have right answers, a two-hop circuit, and its proof."""

import streamlit as st

from engine.chapter.language_experiments import WINOGRAD_CLOSED
from lab import bench
from lab.bench import Request
from lab.probes import beside, part
from lab.sections.winograd import parts, proof, sections, seeds, which_part
from lab.sections.winograd.inside import Inside
from lab.sections.winograd.sections import HEADS, TakenOut
from lab.sections.winograd.setup import WinogradSetup
from lab.settings import Settings
from lab.shell import frame, palette
from lab.shell.chapter import section

SECTION = section("winograd.py")


def words(_: Request) -> None:
    """The language and its words."""
    with st.expander("The language and the steps", expanded=setup.request.version == "yours"):
        setup.draw_words()


def two_sentences() -> None:
    """Which model, which sentences, and how they differ inside; the sections below follow."""
    now = Inside(settings, sweep)
    now.draw()
    sections.block_one(sections.two_sentences(now, head), head.value)
    if now.about != inside.about:
        st.rerun()


settings = Settings("winograd")
head = settings.choice("head", "Head", HEADS, "mean")
edge = settings.value("edge", str, "", widget=st.selectbox)
part_of_it = settings.choice("part", "What of it", sections.PARTS, "cut")
taken_out = TakenOut(settings)
of_one = settings.choice("ones", "Seeds", seeds.COUNTS, "10")
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
palette.follow()
inside = Inside(settings, sweep)
frame.sources(WINOGRAD_CLOSED, "The code of the four models")
part(
    "Two sentences, one word",
    "Choose who crosses what, and two adjectives. Both sentences go through the model; what differs between "
    "their maps is that one word’s doing. All maps share one scale.",
    two_sentences,
)
part(
    "Cut one edge",
    "Below the words, above them each block’s heads; a line is a look, as wide as its weight, and in ink "
    "where the answer loses a fifth of its logit difference without it. Click one to cut it, or to change "
    "its score or its value alone.",
    lambda: sections.circuit(inside, edge, part_of_it),
)
beside(lambda: taken_out.draw(inside))
part(
    "Pattern or value?",
    "A look has two parts: its score, by which the row is shared out, and the value that flows. A cut "
    "changes both. Here one is set to its mean over the held-out sentences, and the other kept.",
    lambda: which_part.draw(inside),
)
part(
    "Proof",
    "A map is a picture. These are interventions: take a head away, put a value of the other sentence in, "
    "read the stream early, add up what each part wrote.",
    lambda: proof.show(inside, st.session_state[settings.key("read")]),
)
frame.heading(
    "How does one block do it?",
    "With no second block nothing can be looked up by what was found. Ten seeds of one block, on which no "
    "setting was chosen: how many are right, and what of the look at the adjective counts?",
)
seeds.show(settings, setup.request, of_one, seeds.ONE_BLOCK)
frame.heading(
    "Over seeds",
    "Does training always end in the same circuit? Two blocks, on the same seeds, each scored as above.",
)
seeds.show(settings, setup.request, count, seeds.TWO_BLOCKS)
frame.footer(SECTION, settings)
