"""Why sqrt(d_k): a head that is not divided freezes, while it trains and before."""

from collections.abc import Callable, Sequence
from functools import partial

import streamlit as st

from engine.chapter.definitions import ids
from engine.chapter.experiments import RESCUE, SCALES, SCALING, SCALING_LONG, SCALING_WIDE, Experiment
from engine.probes.registry import SCALING as SCALING_PROBE
from engine.runs import launch
from lab import bench, probes
from lab.bench import Request, Sweep, Table
from lab.charts import panels as small_multiples
from lab.sections.scaling import notice, parts, probe
from lab.sections.scaling import rescue as scaling_rescue
from lab.sections.scaling.rescue import Rescue
from lab.settings import Settings
from lab.shell import frame
from lab.shell.chapter import section
from lab.words import count, plain

SECTION = section("scaling.py")
EXTRA = ids(*(made for made in SCALES.models if made.id not in SCALING.variants))


def rescue(sweep: Sweep) -> None:
    """A collapsed head, the division put back, trained on."""
    frame.heading(
        "Can a collapsed head be rescued?",
        "Take the final weights of an unscaled head, put the division back, and train on, for as many steps "
        "again and with a fresh optimiser. Only the scale differs.",
    )
    runs = scaling_rescue.collapsed_runs(sweep)
    if not runs:
        st.markdown(":gray[No undivided head of these settings is trained yet. Train the heads above first.]")
        return
    if (wanted := collapsed.value) not in runs:
        collapsed.value = next(iter(runs))
        if wanted:
            st.markdown(f":orange[No finished undivided head of these settings is {plain(wanted)}.]")
    run = runs[collapsed.value or ""]
    fork = Sweep.of(RESCUE, [launch.rescue(run.id, run.spec)], sweep.request)
    story = Rescue(run, fork, scaling_rescue.divided_all_along(sweep, run))

    def draw(now: Sweep) -> None:
        progress = (1 + now.progress) / 2 if now.unended else 0.0
        panels = scaling_rescue.parts(story, now)
        small_multiples.draw(panels, 2 * story.steps, "rescue", progress, scaling_rescue.across(story))
        table = scaling_rescue.results(story, now)
        bench.beside("results-rescue", [table], scaling_rescue.notice(story, now))

    def widgets() -> None:
        st.selectbox(
            "Collapsed head",
            list(runs),
            format_func=lambda name: scaling_rescue.titled(runs[name]),
            key=collapsed.key,
            width=220,
        )

    bench.train_also(fork, settings, "rescue", "Put the division back", draw, widgets=widgets, width=190)


def random_vectors() -> None:
    """Variance, saturation and Jacobian of vectors that nobody trained."""
    frame.heading(
        "Before any training: random vectors",
        "Draw queries and keys from a standard normal distribution. How wide are their products, and what "
        "does a softmax over 64 of them let through, with the division and without?",
    )
    with st.container(horizontal=True, vertical_alignment="bottom", key="instruments-vectors"):
        pairs.draw(width=260)
        widest.draw(width=260)
        d_heads = probe.up_to(widest.value)
        now = {"pairs": pairs.value, "d_heads": list(d_heads)}
        asked = probes.pressed("Measure", settings.key("measure"), now, SCALING_PROBE.seconds)
        said = bench.status_line()
    probes.outdated(asked, now)
    measured = probes.attempt(said, SCALING_PROBE, **asked) if asked else None
    d_heads = tuple(asked["d_heads"]) if measured and asked else d_heads
    made = probe.saturation_parts(measured)
    axis = probe.across(d_heads)
    with st.container(horizontal=True, vertical_alignment="center", key="figure-title-vectors"):
        st.markdown("**2,000 rows of 64 random scores** :gray[over the width]", width="stretch")
    small_multiples.draw(made, d_heads[-1], "vectors", across=axis)
    tables = (
        probe.variance_table(d_heads, measured),
        probe.saturation_table(d_heads, measured),
        probe.chapter_table(measured),
    )
    bench.beside("results-vectors", tables, probe.notice(measured))


def beside(
    experiment: Experiment,
    request: Request,
    name: str,
    trained: Sequence[str],
    labels: dict[str, str],
    panels: Sequence[small_multiples.Panel],
    results: Callable[[Sweep], Sequence[Table]],
) -> None:
    """An experiment beside the sweep: its button, panels, results. trained: what the button trains."""
    sweep, refused = bench.requested(request, experiment)
    extra = sweep.part(lambda spec: spec.variant in trained)
    rules = bool(experiment.chapter) and sweep.of_the_chapters_text

    def draw(now: Sweep) -> None:
        everything = sweep.again()
        made = parts.parts(everything, experiment.variants, labels, panels, rules=rules)
        small_multiples.draw(made, experiment.budget(request.budget).steps, name, now.progress)
        with st.container(key=f"results-{name}", width=bench.TABLE_WIDTH):
            for table in results(everything):
                table.draw()

    bench.train_also(extra, settings, name, f"Train {count(len(trained))} models", draw, refused=refused)


def as_wide(request: Request) -> None:
    """The heads in models of their own width."""
    st.header("In a model as wide as its head", anchor=False)
    budget = SCALING_WIDE.budget(request.budget)
    st.markdown(
        "Above, the model stays 128 wide and only the head grows. Here the model grows with it, and each "
        "query and key sums over as many numbers as it has. Figures like the chapter’s come from here. "
        f"{budget.steps:,} steps of {budget.batch_size} × {budget.context_length} tokens at learning rate "
        f"{budget.learning_rate:g}.",
        width=frame.MEASURE,
    )
    labels = parts.AS_WIDE_LABELS
    beside(SCALING_WIDE, request, "wide", SCALING_WIDE.variants, labels, parts.PANELS, parts.wide_tables)


def other_scales(request: Request) -> None:
    """What else might keep a wide head soft."""
    frame.heading(
        "Divide by something else?",
        "By d_k itself; by a number that the head learns; or by √d_k, with queries and keys brought to one "
        "length first (QK-norm). The three beside the two heads of d_k 1024 above, on the same budget, seeds "
        "and text.",
    )
    labels = parts.SCALES_LABELS
    beside(SCALES, request, "scales", EXTRA, labels, parts.SCALES_PANELS, parts.scales_tables)


settings = Settings("scaling")
width = settings.choice("width", "Width shown", {row.id: row.short for row in parts.PAIRS}, "1024")
collapsed = settings.value("rescue", scaling_rescue.named, None)
pairs = settings.choice("pairs", "Pairs", probe.PAIRS, 20_000, shown="{:,}".format, widget="slider")
widest = settings.choice(
    "widest", "Widths up to", probe.D_HEADS[1:], 1024, shown="{:,}".format, widget="slider"
)

frame.header(
    SECTION,
    SCALING.question,
    "A score is a sum of d_k products, so it grows with √d_k, and softmax turns large scores into a hard "
    "choice. Train one head at four widths, divided by √d_k and not, and watch it.",
    settings,
)
sweep = bench.train(
    SCALING,
    settings,
    also=(SCALING_LONG,),
    questions=notice.QUESTIONS,
    figure=partial(parts.widths_figure, width=width),
    tables=(parts.perplexity_table, parts.scores_table, parts.beside_the_chapter),
    caption=parts.caption,
    under=parts.budget_line,
    notice=notice.notice,
    waits=False,
)
frame.sources(SCALES.models, "The code of the head, and what each variant changes")
rescue(sweep)
as_wide(sweep.request)
probes.beside(random_vectors)
other_scales(sweep.request)
frame.footer(SECTION, settings)
