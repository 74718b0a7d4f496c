"""Against PyTorch: our attention and theirs, five wrong ones, and the reader's own."""

import streamlit as st

from lab import bench, probes
from lab.sections.parity import own, parts
from lab.sections.parity.compare import Bets, Compare
from lab.settings import Settings
from lab.shell import frame
from lab.shell.chapter import section

SECTION = section("parity.py")


settings = Settings("parity")
compare, bets = Compare(settings), Bets(settings)

frame.header(
    SECTION,
    SECTION.question,
    "The same weights go into our attention and into PyTorch’s. Compare outputs and gradients; then see "
    "which tests would have caught a mistake, and bring your own attention.",
    settings,
)
guesses = bench.ask(parts.QUESTIONS, settings)
probes.beside(lambda: compare.draw(*(guess.value for guess in guesses.values())))
with st.expander("The code of our attention"):
    for source in ("mixers.QueriesAndKeys", "mixers.CausalSelfAttention"):
        st.code(frame.class_source(source), language="python")
probes.part(
    "Which test catches which mistake?",
    "Parity needs a right answer to compare with, and catches everything. The other tests need none. "
    "Below are five attentions that run and are wrong: bet on one test for each.",
    bets.draw,
)
st.header("Check your own", anchor=False)
own.draw(settings)
frame.footer(SECTION, settings)
