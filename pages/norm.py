"""Norm placement: twelve blocks, the norm before each sublayer or on the stream, with and without warmup."""

from functools import partial

import streamlit as st

from engine.chapter.experiments import NORM_PLACEMENT
from engine.chapter.variants import POST_NORM, POST_NORM_WARMUP, PRE_NORM, PRE_NORM_WARMUP
from engine.probes.registry import NORMS
from engine.runs.store import open_store
from lab import probes
from lab.bench import instruments, training
from lab.bench.instruments import Choice
from lab.bench.sweep import Sweep, difference
from lab.bench.training import Rows
from lab.charts import drawing
from lab.sections.norm import blocks, start
from lab.sections.norm import breaking as norm_breaking
from lab.sections.norm.breaking import OVERS, PRESETS, RATES, USUAL, WARMUPS, Cut
from lab.sections.norm.start import MEASURES
from lab.settings import Settings, one_of
from lab.shell import export, frame
from lab.shell.chapter import section
from lab.words import count, quantity

SECTION = section("norm.py")
NARROW, WIDE = 464, 640  # px


def notice(rows: Rows) -> str:
    """What the four figures say, read off the reader's own."""
    models = (PRE_NORM, PRE_NORM_WARMUP, POST_NORM, POST_NORM_WARMUP)
    pre, pre_warmed, post, post_warmed = (rows[made.id] for made in models)
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


def budget_line(choice: Choice) -> str:
    """What the chosen budget trains, and what of it differs from the chapter's."""
    plain_one = NORM_PLACEMENT.budget(choice.budget, "post-norm")
    warmed = NORM_PLACEMENT.budget(choice.budget, "post-norm-warmup")
    full = NORM_PLACEMENT.budget("chapter")
    trained = (
        f"{choice.budget.capitalize()}: 12 blocks, {plain_one.steps:,} steps of {plain_one.batch_size} × "
        f"{plain_one.context_length} tokens at learning rate {plain_one.learning_rate:g}; the warmup is "
        f"{warmed.warmup_steps} steps."
    )
    if choice.budget == "chapter":
        return f"{trained} The batch is inferred."
    return (
        f"{trained} The chapter’s rate is {full.learning_rate:g}: on batches as small as these it breaks "
        f"post-norm with a warmup as well, as the last figure of this page shows."
    )


def before(choice: Choice) -> None:
    """The gradients of two untrained models."""
    settings.again("of")
    which = str(st.session_state[settings.key("of")])
    with probes.section(
        "Before the first step",
        "The usual explanation looks at the very beginning: put a norm on the stream, and the gradient that "
        "flows back through twelve of them comes out badly scaled. How badly is quickly measured.",
        "start",
    ):
        st.segmented_control(
            "Gradient of",
            list(MEASURES),
            format_func=MEASURES.__getitem__,
            key=settings.key("of"),
            required=True,
        )
        now = (choice.seeds, choice.corpus_id)
        key, seconds = settings.key("measure"), NORMS.seconds * max(1, len(choice.seeds))
        asked = None
        if not choice.lacks:
            asked = probes.pressed("Measure gradients", key, now, seconds)
        said = training.status_line()
    if choice.lacks:
        said.markdown(f":small[:gray[{choice.lacks}]]")
    probes.outdated(asked, now)
    measured = start.measured(said, *asked) if asked else None
    chapters = measured is None or measured.of_the_chapters_text
    with st.container(horizontal=True, vertical_alignment="center", key="figure-title-start"):
        st.markdown(f"**Gradient norm of {MEASURES[which]}** :gray[per block, untrained]", width="stretch")
        with st.popover("Export", type="tertiary"):
            export.downloads(
                f"norm-gradients-{which}",
                lambda: start.chart(measured, which, chapters_text=chapters),
                lambda: start.rows(measured),
            )
    with st.container(key="figure-start"):
        drawing.draw(start.chart(measured, which, chapters_text=chapters), key="norm.start")
    with st.container(horizontal=True, gap="medium", key="results-start"):
        with st.container(width=training.TABLE_WIDTH):
            st.table(start.results(measured, which), border="horizontal", hide_index=True)
            st.caption(start.remarks(measured))
        with st.container(width=training.NOTICE_WIDTH):
            st.subheader("What to notice", anchor=False)
            st.markdown(start.notice(measured, which))
    if measured:
        with st.expander("All twelve blocks"):
            st.table(start.every_block(measured, which), border="horizontal", hide_index=True)


def during(sweep: Sweep, last: int) -> None:
    """The gradients of the reader's own runs, block by block, at one step."""
    key = settings.key("at")
    st.header("While it trains", anchor=False)
    st.markdown(
        "Every tenth step of your runs above recorded how much gradient reached W_Q, W_K and W_V of each "
        "block. Move the step to where post-norm breaks.",
        width=frame.MEASURE,
    )
    if st.session_state[key] > last:  # of a longer budget
        st.markdown(
            f":orange[Step {st.session_state[key]:,} is beyond this budget’s {last:,}. Used: {last:,}.]"
        )
        st.session_state[key] = last
    at = st.slider("After step", blocks.EVERY, last, step=blocks.EVERY, key=key, width=training.HALF)
    with st.container(horizontal=True, gap="small", key="figure-blocks"):
        with st.container(width=NARROW, gap=None):
            st.markdown(
                ":small[**Last block over first** :gray[ratio of the two norms, log, over the steps]]"
            )
            drawing.draw(blocks.ratio_chart(sweep, last, at), key="norm.ratio")
        with st.container(width=WIDE, gap=None):
            st.markdown(f":small[**Gradient norm per block** :gray[log, after step {at:,}]]")
            drawing.draw(blocks.blocks_chart(sweep, at), key="norm.blocks")
    with st.container(horizontal=True, gap="medium", key="results-blocks"):
        with st.container(width=training.TABLE_WIDTH):
            st.table(blocks.results(sweep, at), border="horizontal", hide_index=True)
            st.caption(
                "Of the gradient of that step’s batch, before its own update. Over several seeds: the "
                f"geometric mean. Broken from: the step from which on the last block’s stays over "
                f"{blocks.BROKEN:,} times the first’s."
            )
        with st.container(width=training.NOTICE_WIDTH):
            st.subheader("What to notice", anchor=False)
            st.markdown(blocks.reading(sweep, at))


def breaking(choice: Choice, cut: Cut) -> Sweep:
    """Post-norm over learning rates or warmups."""
    st.header("Where does post-norm break?", anchor=False)
    st.markdown(
        "Train post-norm at one warmup over five learning rates, or at one rate over five warmups. Each such "
        "row adds a line to the first figure.",
        width=frame.MEASURE,
    )
    _presets(cut)
    everything, refused = norm_breaking.grid(choice, open_store())
    chosen = norm_breaking.along(everything, cut)
    with st.container(horizontal=True, vertical_alignment="bottom", key="instruments-breaking"):
        st.segmented_control(
            "Sweep over", list(OVERS), format_func=OVERS.__getitem__, key=settings.key("over"), required=True
        )
        if cut.over == "rate":
            st.select_slider("Warmup, steps", WARMUPS, key=settings.key("warmup"), width=240)
        else:
            st.select_slider(
                "Learning rate",
                RATES,
                format_func=lambda rate: f"{rate:g}",
                key=settings.key("rate"),
                width=240,
            )
        missing = len({norm_breaking.cell_of(spec) for spec in chosen.missing}) or len(cut.cells)
        label = f"Train {count(missing)} model{'s' if missing > 1 else ''}"
        instruments.action(chosen, settings, label, "breaking-")
        said = training.status_line()
    st.caption(norm_breaking.size_line())

    def draw(now: Sweep) -> None:
        grid = everything.again()
        with st.container(horizontal=True, gap="small", key="figure-breaking"):
            with st.container(width=WIDE, gap=None):
                over = OVERS[cut.over].lower()
                st.markdown(f":small[**Final perplexity** :gray[held out, log, over {over}; ✕ diverged]]")
                drawing.draw(norm_breaking.grid_chart(grid, cut), key=f"norm.grid.{cut.over}")
            with st.container(width=NARROW, gap=None):
                st.markdown(":small[**Training loss of this row** :gray[nats, log, over the steps]]")
                progress = now.progress if now.unended else 0.0
                drawing.draw(norm_breaking.curves_chart(now, cut, progress), key="norm.curves")
        with st.container(horizontal=True, gap="medium", key="results-breaking"):
            with st.container(width=training.TABLE_WIDTH):
                st.table(norm_breaking.results(grid, cut), border="horizontal", hide_index=True)
            with st.container(width=training.NOTICE_WIDTH):
                st.subheader("What to notice", anchor=False)
                st.markdown(norm_breaking.notice(grid, cut))

    training.follow(chosen, said, draw, refused=refused)
    return chosen


def _presets(cut: Cut) -> None:
    """What is known to go wrong, as rows of the grid to begin with, and why it does."""
    key, shown = settings.key("preset"), norm_breaking.preset_of(cut)
    st.session_state[key] = shown.id if shown else None
    known = {preset.id: preset for preset in PRESETS}

    def chosen() -> None:
        if name := st.session_state[key]:
            there = known[name].cut
            for setting, value in (("over", there.over), ("warmup", there.warmup), ("rate", there.rate)):
                st.session_state[settings.key(setting)] = value

    st.pills("Known bad", list(known), format_func=lambda name: known[name].label, key=key, on_change=chosen)
    st.markdown(
        shown.why if shown else "A row of your own. The pills lead to three that are known to go wrong.",
        width=frame.MEASURE,
    )


settings = Settings("norm", (*training.NAMES, "of", "at", "over", "warmup", "rate"))
which = settings.seed("of", one_of("of", tuple(MEASURES)), "qkv")
over = settings.seed("over", one_of("over", tuple(OVERS)), "rate")
warmup = settings.seed("warmup", norm_breaking.listed("warmup", WARMUPS), 0, "{:g}".format)
rate = settings.seed("rate", norm_breaking.listed("rate", RATES), USUAL, "{:g}".format)
longest = NORM_PLACEMENT.budget("chapter").steps
settings.seed("at", blocks.checked(longest), 30)

frame.header(
    SECTION,
    NORM_PLACEMENT.question,
    "Twelve blocks. The norm stands before each sublayer, or, as in 2017, on the stream behind it. Train "
    "both with a learning rate that is there at once and with one that rises slowly.",
)
choice, sweep = training.show(NORM_PLACEMENT, settings, notice, alone=False)
st.caption(budget_line(choice))
frame.sources((PRE_NORM, POST_NORM), "The code of the two, and what differs")
probes.beside(partial(before, choice))
during(sweep, NORM_PLACEMENT.budget(choice.budget).steps)
training.watch(sweep, breaking(choice, Cut(over, warmup, rate)))
frame.footer(SECTION)
