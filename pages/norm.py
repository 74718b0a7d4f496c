"""Norm placement: twelve blocks, the norm before each sublayer or on the stream, with and without warmup."""

from functools import partial

import streamlit as st

from engine.chapter.experiments import NORM_PLACEMENT
from engine.chapter.variants import POST_NORM, POST_NORM_WARMUP, PRE_NORM, PRE_NORM_WARMUP
from engine.probes.registry import NORMS
from lab import bench, probes
from lab.bench import Request, Sweep, difference
from lab.charts import drawing
from lab.sections.norm import blocks, start
from lab.sections.norm import breaking as norm_breaking
from lab.sections.norm.breaking import OVERS, PRESETS, RATES, USUAL, WARMUPS, Cut
from lab.sections.norm.start import MEASURES
from lab.settings import Settings
from lab.shell import frame
from lab.shell.chapter import section
from lab.words import count, quantity

SECTION = section("norm.py")
NARROW, WIDE = 464, 640  # px


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
        much = f"{quantity(abs(gap.points))} points{', within seed noise' if gap.noise else ''}"
        said.append(f"A warmup {'saves' if gap.points > 0 else 'costs'} post-norm {much}.")
        if (other := difference(pre, pre_warmed)) is not None:
            much = f"{quantity(abs(other.points))}{', within seed noise' if other.noise else ''}"
            said[-1] += (
                f" In pre-norm it {'saves' if other.points > 0 else 'costs'} {much}: no remedy needed."
            )
    return "\n\n".join(said)


def budget_line(request: Request) -> None:
    """What the chosen budget trains, and what of it differs from the chapter's."""
    plain_one = NORM_PLACEMENT.budget(request.budget, "post-norm")
    warmed = NORM_PLACEMENT.budget(request.budget, "post-norm-warmup")
    full = NORM_PLACEMENT.budget("chapter")
    trained = (
        f"{request.budget.capitalize()}: 12 blocks, {plain_one.steps:,} steps of {plain_one.batch_size} × "
        f"{plain_one.context_length} tokens at learning rate {plain_one.learning_rate:g}; the warmup is "
        f"{warmed.warmup_steps} steps."
    )
    if request.budget == "chapter":
        st.caption(f"{trained} The batch is inferred.")
        return
    st.caption(
        f"{trained} The chapter’s rate is {full.learning_rate:g}: on batches as small as these it breaks "
        f"post-norm with a warmup as well, as the last figure of this page shows."
    )


def before(request: Request) -> None:
    """The gradients of two untrained models."""
    with probes.section(
        "Before the first step",
        "The usual explanation looks at the very beginning: put a norm on the stream, and the gradient that "
        "flows back through twelve of them comes out badly scaled. How badly is quickly measured.",
        "start",
    ):
        gradient_of.draw()
        now = (request.seeds, request.corpus_id)
        key, seconds = settings.key("measure"), NORMS.seconds * max(1, len(request.seeds))
        asked = None
        if not request.missing_input:
            asked = probes.pressed("Measure gradients", key, now, seconds)
        said = bench.status_line()
    if request.missing_input:
        said.markdown(f":small[:gray[{request.missing_input}]]")
    probes.outdated(asked, now)
    measured = start.measured(said, *asked) if asked else None
    which, chapters = gradient_of.value, measured is None or measured.of_the_chapters_text
    bench.figure_title(
        f"Gradient norm of {MEASURES[which]}",
        "per block, untrained",
        f"norm-gradients-{which}",
        lambda: start.chart(measured, which, chapters_text=chapters),
        lambda: start.rows(measured),
        key="figure-title-start",
    )
    with st.container(key="figure-start"):
        drawing.draw(start.chart(measured, which, chapters_text=chapters), key="norm.start")
    bench.beside("results-start", [start.results(measured, which)], start.notice(measured, which))
    if measured:
        with st.expander("All twelve blocks"):
            start.every_block(measured, which).draw()


def during(sweep: Sweep, last: int) -> None:
    """The gradients of the reader's own runs, block by block, at one step."""
    frame.heading(
        "While it trains",
        "Every tenth step of your runs above recorded how much gradient reached W_Q, W_K and W_V of each "
        "block. Move the step to where post-norm breaks.",
    )
    if step.value > last:  # of a longer budget
        st.markdown(f":orange[Step {step.value:,} is beyond this budget’s {last:,}. Used: {last:,}.]")
        step.value = last
    at = st.slider("After step", blocks.EVERY, last, step=blocks.EVERY, key=step.key, width=bench.HALF)
    with st.container(horizontal=True, gap="small", key="figure-blocks"):
        with st.container(width=NARROW, gap=None):
            st.markdown(
                ":small[**Last block over first** :gray[ratio of the two norms, log, over the steps]]"
            )
            drawing.draw(blocks.ratio_chart(sweep, last, at), key="norm.ratio")
        with st.container(width=WIDE, gap=None):
            st.markdown(f":small[**Gradient norm per block** :gray[log, after step {at:,}]]")
            drawing.draw(blocks.blocks_chart(sweep, at), key="norm.blocks")
    bench.beside("results-blocks", [blocks.results(sweep, at)], blocks.reading(sweep, at))


def breaking(request: Request) -> None:
    """Post-norm over learning rates or warmups."""
    frame.heading(
        "Where does post-norm break?",
        "Train post-norm at one warmup over five learning rates, or at one rate over five warmups. Each such "
        "row adds a line to the first figure.",
    )
    cut = Cut(over.value, warmup.value, rate.value)
    _presets(cut)
    everything, refused = norm_breaking.grid(request)
    chosen = norm_breaking.along(everything, cut)

    def draw(now: Sweep) -> None:
        grid = everything.again()
        st.caption(norm_breaking.size_line())
        with st.container(horizontal=True, gap="small", key="figure-breaking"):
            with st.container(width=WIDE, gap=None):
                over = OVERS[cut.over].lower()
                st.markdown(f":small[**Final perplexity** :gray[held out, log, over {over}; ✕ diverged]]")
                drawing.draw(norm_breaking.grid_chart(grid, cut), key=f"norm.grid.{cut.over}")
            with st.container(width=NARROW, gap=None):
                st.markdown(":small[**Training loss of this row** :gray[nats, log, over the steps]]")
                drawing.draw(norm_breaking.curves_chart(now, cut, now.progress), key="norm.curves")
        table = norm_breaking.results(grid, cut)
        bench.beside("results-breaking", [table], norm_breaking.notice(grid, cut))

    def widgets() -> None:
        over.draw()
        (warmup if cut.over == "rate" else rate).draw(width=240)

    missing = len({norm_breaking.cell_of(spec) for spec in chosen.missing}) or len(cut.cells)
    label = f"Train {count(missing)} model{'s' if missing > 1 else ''}"
    bench.train_also(chosen, settings, "breaking", label, draw, widgets=widgets, refused=refused)


def _presets(cut: Cut) -> None:
    """What is known to go wrong, as rows of the grid to begin with, and why it does."""
    key, shown = settings.key("preset"), norm_breaking.preset_of(cut)
    st.session_state[key] = shown.id if shown else None
    known = {preset.id: preset for preset in PRESETS}

    def chosen() -> None:
        if name := st.session_state[key]:
            there = known[name].cut
            over.value, warmup.value, rate.value = there.over, there.warmup, there.rate

    st.pills("Known bad", list(known), format_func=lambda name: known[name].label, key=key, on_change=chosen)
    st.markdown(
        shown.why if shown else "A row of your own. The pills lead to three that are known to go wrong.",
        width=frame.MEASURE,
    )


settings = Settings("norm")
gradient_of = settings.choice("of", "Gradient of", MEASURES, "qkv")
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
frame.sources((PRE_NORM, POST_NORM), "The code of the two, and what differs")
probes.beside(partial(before, sweep.request))
during(sweep, NORM_PLACEMENT.budget(sweep.request.budget).steps)
breaking(sweep.request)
frame.footer(SECTION, settings)
