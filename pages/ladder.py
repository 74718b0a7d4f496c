"""The ladder: every part of a block on a rung of its own, what it buys and what it costs."""

from functools import partial

import streamlit as st

from engine.chapter.experiments import LADDER
from engine.probes.registry import BLOCK, SAMPLES
from lab import bench, weights
from lab.bench import Sweep
from lab.charts import panels
from lab.probes import look
from lab.sections.ladder import dropout, notice, parts, probe, samples
from lab.sections.ladder.own import Rung
from lab.settings import Settings
from lab.shell import frame
from lab.shell.chapter import section
from lab.weights import Opened
from lab.words import count

SECTION = section("ladder.py")


def worth(now: Sweep) -> None:
    """What every part buys beside its parent, and what the chapter says of it."""
    frame.heading(
        "What does each part buy?",
        "Every rung is one field away from its parent, so the difference of the two is what that field is "
        "worth: points of held-out perplexity taken off, and points per thousand parameters added.",
    )
    tables = [parts.bought_table(now), parts.beside_the_chapter(now)]
    bench.beside("results-worth", tables, notice.apart(now), "One thing at a time")


def by_heart(now: Sweep) -> None:
    """Two blocks: ahead while they are stopped in time, then better on their own text alone."""
    frame.heading(
        "When are two blocks worse than one?",
        "The second block has seen the same text as often as the first. Follow both, and one block with "
        "dropout, on text that was held out and on the batches that they train on.",
    )
    steps = LADDER.budget(now.request.budget).steps
    panels.draw(parts.by_heart_parts(now), steps, "heart", now.progress)
    bench.beside("results-heart", [parts.by_heart_table(now)], notice.by_heart(now), "By heart")


def begin() -> None:
    """How every rung begins."""
    prompt.draw(width=400)
    temperature.draw(width="content")


def written(opened: Opened) -> dict[str, object] | None:
    """What each is asked to go on with."""
    weights.missing(opened)
    paths, warmth = list(weights.paths(opened).values()), float(temperature.value)
    return {"weights": paths, "prompt": prompt.value, "temperature": warmth} if opened else None


settings = Settings("ladder")
width = settings.choice("width", "Width of a block, d_model", parts.WIDTHS, "128", widget="slider")
rung = Rung(settings)
prompt = settings.text("prompt", "Begins with", "ROMEO: I will", max_chars=200)
temperature = settings.choice("temperature", "Temperature", samples.TEMPERATURES, "0.8")

frame.header(
    SECTION,
    LADDER.question,
    "A transformer block is a pile of parts. Add them one by one to the average that started it all, train "
    "every rung, and read off what each is worth.",
    settings,
)
ladder = bench.train(
    LADDER,
    settings,
    questions=notice.QUESTIONS,
    figure=partial(bench.perplexity, drawn=parts.lines),
    tables=(parts.results_table,),
    extra=rung.specs,
    notice=notice.notice,
    below=(worth, by_heart),
)
frame.sources(LADDER, f"The code of the {count(len(LADDER.variants))} rungs")
frame.heading(
    "Is dropout worth it after half a pass, and after many?",
    "A block without dropout and one with, at both budgets: the quick one goes over half of Shakespeare, "
    "the chapter’s about sixty times over all of it. Steps and learning rate differ between the two, and "
    "nothing but the dropout within each.",
)
dropout.train(ladder.request, settings)
frame.heading(
    "Where are the parameters?",
    "Attention has four square matrices and the feed-forward as much as eight, so two thirds of a block "
    "are in the part that looks at one position only. Choose a width: the share stays.",
)
with st.container(horizontal=True, gap="medium", key="results-sizes"):
    with st.container(width=bench.TABLE_WIDTH):
        parts.sizes_table(rung.new).draw()
    with st.container(width=bench.NOTICE_WIDTH):
        width.draw()
        parts.block_table(int(width.value)).draw()
look(
    "What can attention not compute?",
    "Freeze the attention weights, those of some other text, and send in two inputs and a sum of both. A "
    "linear map of 2x − 3y is twice the one of x less three times the one of y.",
    settings,
    "linear",
    BLOCK,
    probe.linearity,
    models=(LADDER, ("block",)),
    arguments=probe.block,
)
look(
    "Why LayerNorm and not BatchNorm?",
    "LayerNorm promises four things: what it makes of a token does not depend on the batch, keeps no "
    "running statistics, is the same in training and inference, and does not care how long the text is.",
    settings,
    "norms",
    BLOCK,
    probe.norms,
    models=(LADDER, ("block",)),
    arguments=probe.block,
)
frame.heading(
    "Build a rung of your own",
    "It begins as the chapter’s block. Change any part: trained on the budget, seeds and text chosen "
    "above, it joins the curves and the table at the top.",
)
rung.draw()
rung.train(ladder, settings)
look(
    "What does each rung write?",
    "The same beginning for all, and the same random numbers. Perplexity is a figure; this is what it "
    "reads like.",
    settings,
    "write",
    SAMPLES,
    partial(samples.draw, own=rung.new),
    models=lambda: samples.models(settings.key("write"), rung.new),
    controls=begin,
    arguments=written,
    button="Write",
    busy="Writing 60 tokens with each model",
)
frame.footer(SECTION, settings)
