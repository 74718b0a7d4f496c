"""How little of a mean is the token it stands at."""

import streamlit as st

from engine.chapter.experiments import AVERAGES
from lab import bench
from lab.charts import drawing, lines
from lab.charts.lines import Across, Curve, Line, Plot
from lab.settings import Setting
from lab.shell import frame
from lab.shell.styles import style
from lab.words import count

CONTEXT = AVERAGES.budgets["chapter"].context_length


def draw(position: Setting[int]) -> None:
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
    drawing.draw(_chart(t), key="dilution")


def _chart(t: int) -> drawing.Spec:
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
