"""Norm placement: twelve blocks, the norm before each sublayer or on the stream, with and without warmup."""

from functools import partial

import streamlit as st

from engine.chapter.experiments import NORM_PLACEMENT
from engine.chapter.variants import POST_NORM, POST_NORM_WARMUP, PRE_NORM, PRE_NORM_WARMUP
from lab import bench, probes
from lab.bench import Request, Sweep, difference
from lab.sections.norm import blocks, edge, start
from lab.sections.norm.breaking import OVERS, RATES, USUAL, WARMUPS
from lab.settings import Settings
from lab.shell import frame
from lab.shell.chapter import section
from lab.words import quantity

SECTION = section("norm.py")


def notice(now: Sweep) -> str:
    """What the four figures say, read off the reader's own."""
    models = (PRE_NORM, PRE_NORM_WARMUP, POST_NORM, POST_NORM_WARMUP)
    pre, pre_warmed, post, post_warmed = (now.row(made.id, NORM_PLACEMENT.metric) for made in models)
    said = []
    if post.mean is None:
        said.append("Post-norm without a warmup ended without a figure: it diverged.")
    elif pre.mean is not None:
        said.append(
            f"Without a warmup post-norm ends at **{quantity(post.mean / pre.mean, 2)} times** the "
            f"perplexity of pre-norm. The blocks are the same; only where the norm stands differs."
        )
    if (gap := difference(post, post_warmed)) is not None:
        said.append(f"A warmup {'saves' if gap.points > 0 else 'costs'} post-norm {gap.size(' points')}.")
        if (other := difference(pre, pre_warmed)) is not None:
            effect = "saves" if other.points > 0 else "costs"
            said[-1] += f" In pre-norm it {effect} {other.size()}."
    return "\n\n".join(said)


def budget_line(request: Request) -> None:
    """What the chosen budget trains, and what of it differs from the chapter's."""
    plain, warmed = (NORM_PLACEMENT.budget(request.budget, made.id) for made in (POST_NORM, POST_NORM_WARMUP))
    said = f"12 blocks, {bench.in_words(plain)}; the warmup is {warmed.warmup_steps} steps."
    rate = NORM_PLACEMENT.budget("chapter").learning_rate
    rest = f"The chapter’s rate is {rate:g}; the last figure of this page shows what it does here."
    if request.budget == "chapter":
        rest = "The batch is inferred."
    st.caption(f"{request.budget.capitalize()}: {said} {rest}")


settings = Settings("norm")
gradient_of = settings.choice("of", "Gradient of", start.MEASURES, "qkv")
over = settings.choice("over", "Sweep over", OVERS, "rate")
warmup = settings.choice("warmup", "Warmup, steps", WARMUPS, 0, widget="slider")
rate = settings.choice(
    "rate", "Learning rate", RATES, USUAL, shown="{:g}".format, written="{:g}".format, widget="slider"
)
step = settings.value("at", blocks.checked(NORM_PLACEMENT.budget("chapter").steps), 30)

frame.header(
    SECTION,
    NORM_PLACEMENT.question,
    "Twelve blocks. The norm stands before each sublayer or, as in 2017, after each sublayer, on the "
    "residual stream. Train both with a learning rate that is there at once and with one that rises slowly.",
    settings,
)
sweep = bench.train(
    NORM_PLACEMENT, settings, questions=bench.best_and_worst(NORM_PLACEMENT), under=budget_line, notice=notice
)
frame.sources(NORM_PLACEMENT, "The code of the two, and what differs", (PRE_NORM, POST_NORM))
probes.beside(partial(start.draw, sweep.request, gradient_of, settings))
blocks.draw(sweep, step)
edge.draw(sweep.request, over, warmup, rate, settings)
frame.footer(SECTION, settings)
