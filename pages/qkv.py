"""Query, key, value: why matching takes two projections and copying a third, trained and looked into."""

import streamlit as st

from engine.chapter.experiments import QKV
from engine.data import corpus
from engine.system.errors import LabError
from lab import bench, probes
from lab.sections.qkv import stages, steps
from lab.sections.qkv.stages import STAGES
from lab.settings import Settings, whole
from lab.shell import frame
from lab.shell.chapter import section

SECTION = section("qkv.py")
SENTENCE = "the king loves the queen, and the queen loves the king"


def tokens(sentence: str) -> list[str]:
    """The sentence in tokens, read with a space before it; none where it cannot be read."""
    vocabulary = corpus.shipped_vocabulary()
    try:
        return vocabulary.pieces(vocabulary.encode(f" {sentence.strip()}") if sentence.strip() else [])
    except LabError:
        return []


def last_row() -> None:
    """A new sentence is read out at its last token."""
    row.value = max(len(tokens(sentence.value)) - 1, 0)


def inside() -> None:
    """A trained head and an untrained one on the reader's sentence."""
    with st.container(horizontal=True, vertical_alignment="bottom"):
        sentence.draw(width=bench.HALF, on_change=last_row)
    if sides := stages.two_heads(sentence.value, settings.key("look")):
        st.subheader("Three steps, in numbers", anchor=False)
        steps.draw(sides)
        st.subheader("Stage by stage", anchor=False)
        stages.draw(sides, large, row)


settings = Settings("qkv")
sentence = settings.text("sentence", "Your sentence", SENTENCE, max_chars=300)
large = settings.several(
    "stages", "Show large", {name: label for name, (label, *_) in STAGES.items()}, ["weights"]
)
last = max(len(tokens(sentence.value)) - 1, 0)
row = settings.value("row", whole("row", 0, last), last, widget=st.selectbox)

frame.header(
    SECTION,
    QKV.question,
    "A score that depends on both tokens could be their plain product. Train five models to see why that is "
    "not enough, then look inside a head on a sentence of yours.",
    settings,
)
bench.train(QKV, settings, questions=bench.best_and_worst(QKV), notice=steps.notice)
st.markdown(  # what makes the ladder a control: nothing else differs
    "Each model changes one setting of the one before. *Equal weights* are the average added to the token, "
    "with positions; the matrix, the raw scores and the head each change its `mixer` and nothing else, and "
    "W_Q, W_K change the `mixer` of the raw scores. The head adds W_V to that, again by this one field.",
    width=frame.MEASURE,
)
frame.sources(QKV, "The code of the five models")
probes.part(
    "Inside one head",
    "Type a sentence and follow it through a trained head and, beside it, the same head before its first "
    "step of training.",
    inside,
)
frame.footer(SECTION, settings)
