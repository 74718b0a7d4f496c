"""The ladder: every part of a block on a rung of its own, what it buys and what it costs."""

from collections.abc import Callable
from functools import partial

import streamlit as st

from engine.chapter.experiments import LADDER
from engine.probes.registry import BLOCK, SAMPLES
from engine.probes.results.block import Block
from lab import bench, probes, weights
from lab.bench import Sweep
from lab.sections.ladder import notice, parts, view
from lab.sections.ladder import own as ladder_own
from lab.sections.ladder import samples as ladder_samples
from lab.settings import Settings
from lab.shell import frame
from lab.shell.chapter import section
from lab.words import count, plain

SECTION = section("ladder.py")
WRITING = "Writing 60 tokens with each model"


def worth(now: Sweep) -> None:
    """What every part buys beside its parent, and what the chapter says of it."""
    frame.heading(
        "What does each part buy?",
        "Every rung is one field away from its parent, so the difference of the two is what that field is "
        "worth: points of held-out perplexity taken off, and points per thousand parameters added.",
    )
    view.worth(now)


def by_heart(now: Sweep) -> None:
    """Two blocks: better on their own text, worse on any other."""
    frame.heading(
        "Why are two blocks worse than one?",
        "The second block has seen the same text as often as the first. Follow both, and one block with "
        "dropout, on text that was held out and on the batches that they train on.",
    )
    view.by_heart(now)


def dropout(ladder: Sweep) -> None:
    """The same two models after one pass over the text and after many. ladder: at the chosen budget."""
    frame.heading(
        "Is dropout worth it after one pass, and after many?",
        "A block without dropout and one with, at both budgets: the quick one goes over Shakespeare about "
        "once, the chapter’s about sixty times. Steps and learning rate differ between the two, and nothing "
        "but the dropout within each.",
    )
    sweeps = [bench.requested(ladder.request.with_budget(name), LADDER) for name in LADDER.budgets]
    specs = [spec for sweep, _ in sweeps for spec in sweep.wanted.values() if spec.variant in parts.DROPOUT]
    bench.train_also(
        Sweep.of(LADDER, specs, ladder.request),
        settings,
        "passes",
        "Train at both budgets",
        view.dropout,
        refused=sweeps[0][1],
        width=190,
    )


def sizes() -> None:
    """Where the parameters are, rung by rung and at any width."""
    frame.heading(
        "Where are the parameters?",
        "Attention has four square matrices and the feed-forward as much as eight, so two thirds of a block "
        "are in the part that looks at one position only. Choose a width: the share stays.",
    )
    with st.container(horizontal=True, gap="medium", key="results-sizes"):
        with st.container(width=bench.TABLE_WIDTH):
            parts.sizes_table(new).draw()
        with st.container(width=bench.NOTICE_WIDTH):
            width.draw()
            parts.block_table(int(width.value)).draw()


def linearity() -> None:
    """With its weights frozen, attention is linear along the features."""
    probe(
        "linear",
        "What can attention not compute?",
        "Freeze the attention weights, those of some other text, and send in two inputs and a sum of both. A "
        "linear map of 2x − 3y is twice the one of x less three times the one of y.",
        view.linearity,
    )


def norms() -> None:
    """LayerNorm's four promises, and BatchNorm's way with them."""
    probe(
        "norms",
        "Why LayerNorm and not BatchNorm?",
        "LayerNorm promises four things: what it makes of a token does not depend on the batch, keeps no "
        "running statistics, is the same in training and inference, and does not care how long the text is.",
        view.norms,
    )


def probe(name: str, title: str, lead: str, draw: Callable[[Block], None]) -> None:
    """A section on one block, and what is drawn of it. name: of its row."""
    with probes.section(title, lead, name):
        opens = weights.chosen(settings.key(name), LADDER, ("block",)).get("block")
    if found := probes.attempt(st.empty(), BLOCK, weights=opens.path if opens else None):
        draw(found)
        whose = opens.whose if opens else "as torch draws them, seed 0; no trained block is here yet"
        st.caption(f"Weights: {plain(whose)}.")


def build(ladder: Sweep) -> None:
    """The reader's own rung: parts to toggle, one button, its figure beside the nearest rung."""
    frame.heading(
        "Build a rung of your own",
        "It begins as the chapter’s block. Change any part: trained on the budget, seeds and text chosen "
        "above, it joins the curves and the table at the top.",
    )
    rung.draw()
    refused = f":red[{plain(refusal[:1].upper() + refusal[1:])}]" if refusal else None
    if own and not new:
        refused = ":gray[Train it above, with the ladder.]"
    elif missing := ladder.request.missing_input:
        refused = refused or f":gray[{missing}]"

    def draw(_: Sweep) -> None:
        if own:
            st.markdown(ladder_own.introduced(own), width=frame.MEASURE)
            with st.container(key="results-own", width=bench.TABLE_WIDTH):
                ladder_own.results(own, ladder.again()).draw()

    mine = ladder_own.of_the_reader(ladder)
    bench.train_also(mine, settings, "own", "Train my rung", draw, refused=refused)


def samples() -> None:
    """What every rung writes after the same words."""
    with probes.section(
        "What does each rung write?",
        "The same beginning for all, and the same random numbers. Perplexity is a figure; this is what it "
        "reads like.",
        "write",
    ):
        prompt.draw(width=400)
        temperature.draw(width="content")
        models = ladder_samples.models(settings.key("write"), new)
        now = (ladder_samples.present(models), prompt.value, float(temperature.value))
        asked = probes.pressed("Write", settings.key("write"), now, SAMPLES.seconds)
    probes.outdated(asked, now)
    if asked and asked[0]:
        paths, begins, warmth = asked
        arguments = {"weights": list(paths.values()), "prompt": begins, "temperature": warmth}
        if texts := probes.attempt(st.empty(), SAMPLES, WRITING, **arguments):
            ladder_samples.draw(models, dict(zip(paths, texts, strict=True)))
    elif asked:
        weights.missing(None)


settings = Settings("ladder")
width = settings.choice(
    "width",
    "Width of a block, d_model",
    parts.WIDTHS,
    "128",
    shown=lambda digits: f"{int(digits):,}",
    widget="slider",
)
rung = ladder_own.Parts(settings)
prompt = settings.text("prompt", "Begins with", "ROMEO: I will", max_chars=200)
temperature = settings.choice("temperature", "Temperature", ladder_samples.TEMPERATURES, "0.8")
own, refusal = rung.built()
new = own if own and ladder_own.nearest(own)[1] else None  # on no rung of the ladder yet

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
    extra=partial(ladder_own.specs, new),
    notice=notice.notice,
    below=(worth, by_heart),
)
frame.sources(LADDER.models, f"The code of the {count(len(LADDER.variants))} rungs")
dropout(ladder)
sizes()
probes.beside(linearity)
probes.beside(norms)
build(ladder)
probes.beside(samples)
frame.footer(SECTION, settings)
