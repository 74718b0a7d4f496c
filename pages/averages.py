"""Averages: four models that know the past only as its mean, or not at all."""

import random

import streamlit as st

from engine.chapter.experiments import AVERAGES
from engine.chapter.variants import AVERAGE, AVERAGE_ADDED, AVERAGE_POSITIONS, NO_CONTEXT
from lab import bench, probes
from lab.bench import Sweep, difference
from lab.charts import drawing, lines
from lab.charts.lines import Across, Curve, Line, Plot
from lab.sections.averages.order import order_blindness
from lab.settings import Settings, hold
from lab.shell import frame
from lab.shell.chapter import section
from lab.shell.styles import style
from lab.words import count, quantity

SECTION = section("averages.py")
CONTEXT = AVERAGES.budgets["chapter"].context_length
PARAGRAPH = (
    "Before the gates the soldiers stood and waited for the king, who had sworn to return by night; but the "
    "night came, and the king did not, and the people began to say that he was dead."
)


def notice(now: Sweep) -> str:
    """What the four figures say, read off the reader's own."""
    rows = {row.variant: row for row in now.rows()}
    models = (NO_CONTEXT, AVERAGE, AVERAGE_POSITIONS, AVERAGE_ADDED)
    alone, replaced, placed, added = (rows[made.id] for made in models)
    if alone.mean is None or replaced.mean is None:
        return "One model diverged, so there is nothing to conclude. Train it again with another seed."
    said = [
        f"Every earlier token counts equally, so the mean cannot tell which one matters. In place of the "
        f"token it multiplies the perplexity by {quantity(replaced.mean / alone.mean)}"
    ]
    if (gap := difference(added, alone)) is not None:
        much = f"{quantity(abs(gap.points))} points{', within seed noise' if gap.noise else ''}"
        said[0] += f"; added to it, it {'costs' if gap.points > 0 else 'gains'} {much}."
    if (gap := difference(replaced, placed)) is not None:
        much = f"{quantity(abs(gap.points))} points{', within seed noise' if gap.noise else ''}"
        effect = "change nothing" if gap.level else f"{'take off' if gap.points > 0 else 'add'} {much}"
        said.append(
            f"Positions {effect}. They are added before the mean is taken, and the sum of a window’s "
            f"positions is the same for every order of its words."
        )
    return "\n\n".join(said)


def order() -> None:
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
    order_blindness(settings.key("order"), blind, first.value, second.value)


def paragraph() -> None:
    """A paragraph that the reader shuffles by hand."""
    frame.heading(
        "Shuffle a paragraph",
        "Move the words about as you like, by hand or all at once. As long as none is lost, the average’s "
        "prediction does not move.",
    )
    yours, shuffled = settings.key("paragraph"), settings.key("shuffled")
    hold(yours, PARAGRAPH)
    hold(shuffled, PARAGRAPH)
    with st.container(horizontal=True):
        text = st.text_area("A paragraph", key=yours, height=120, width=bench.HALF, persist_state="session")
        other = st.text_area(
            "In your order", key=shuffled, height=120, width=bench.HALF, persist_state="session"
        )
    st.button("Shuffle", key=settings.key("shuffle"), on_click=_shuffle, args=(yours, shuffled), width=160)
    one_line = (" ".join(text.split()), " ".join(other.split()))
    order_blindness(settings.key("paragraph"), ("average",), *one_line)


def _shuffle(source: str, target: str) -> None:
    words = st.session_state[source].split()
    random.shuffle(words)
    st.session_state[target] = " ".join(words)


def dilution() -> None:
    """How little of a mean is the token it stands at."""
    frame.heading(
        "How much of the mean is the current token?",
        "At position t the mean has t terms, and the token that is there now is one of them. Added to the "
        "mean instead of lost in it, the same token never falls below half of what the model sees.",
    )
    position.draw(width=bench.HALF)
    t = position.value
    others = f"the other {count(t - 1)} share the rest" if t > 1 else "there is nothing else yet"
    st.markdown(
        f"In the mean the current token has a share of 1/{t} = **{100 / t:.1f} %**; {others}. With the token "
        f"added it has (1 + 1/{t}) / 2 = **{50 + 50 / t:.1f} %**.",
        width=frame.MEASURE,
    )
    drawing.draw(_dilution_chart(t), key="dilution")


def _dilution_chart(t: int) -> drawing.Spec:
    shape = Plot(
        steps=CONTEXT, low=-0.03, high=1.04, field="share", log=False, form=".0%",
        ticks=(0, 0.25, 0.5, 0.75, 1),
        height=240 - lines.BELOW, across=Across("t", "position t", 1, ticks=(1, 32, 64, 96, 128)),
        shown=lambda value: f"{value:.1%}",
    )  # fmt: skip
    positions = range(1, CONTEXT + 1)
    shares = {
        "average": Curve(tuple((at, 1 / at) for at in positions)),
        "average-added": Curve(tuple((at, (1 + 1 / at) / 2) for at in positions)),
    }
    drawn = [
        Line(AVERAGES.variant(name).short, style(name), (curve,), here=t) for name, curve in shares.items()
    ]
    return lines.line_chart(shape, drawn)


settings = Settings("averages")
first = settings.text("first", "One sentence", "the dog bit the man", max_chars=300)
second = settings.text("second", "The same words in another order", "the man bit the dog", max_chars=300)
position = settings.whole("t", "Position t", 1, CONTEXT, 100, slider=True)

frame.header(
    SECTION,
    AVERAGES.question,
    "The simplest way to use context is to average it. Train four small language models on Shakespeare, "
    "and see what the average is worth and what it destroys.",
    settings,
)
bench.train(AVERAGES, settings, questions=bench.best_and_worst(AVERAGES), notice=notice)
frame.sources(AVERAGES.models, "The code of the four models")
probes.beside(order)
probes.beside(paragraph)
dilution()
frame.footer(SECTION, settings)
