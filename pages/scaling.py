"""Why sqrt(d_k): a head that is not divided freezes, while it trains and before."""

from collections.abc import Callable, Sequence

import streamlit as st

from engine.chapter.definitions import ids
from engine.chapter.experiments import RESCUE, SCALES, SCALING, SCALING_LONG, SCALING_WIDE, Experiment
from engine.probes.registry import SCALING as SCALING_PROBE
from engine.runs import launch
from engine.runs.store import open_store
from lab import probes
from lab.bench import instruments
from lab.bench import training as bench
from lab.bench.instruments import Choice
from lab.bench.sweep import Sweep
from lab.charts import panels as small_multiples
from lab.sections.scaling import notice, parts, probe
from lab.sections.scaling import rescue as scaling_rescue
from lab.sections.scaling.notice import FROZEN_GUESSES, HELPS_GUESSES
from lab.sections.scaling.parts import WIDTHS, Width
from lab.sections.scaling.rescue import Rescue
from lab.settings import Settings, one_of
from lab.shell import export, frame
from lab.shell.chapter import section
from lab.words import count, plain

SECTION = section("scaling.py")
WIDTHS_BY_ID = {row.id: row for row in WIDTHS}
EXTRA = tuple(made for made in SCALES.models if made.id not in SCALING.variants)


def guesses() -> None:
    """The two predictions."""
    with st.container(horizontal=True):
        for name, question, options in (
            ("helps", "Before you train: from which width on does the division help?", HELPS_GUESSES),
            ("frozen", "Undivided at d_k 1024, how many rows end frozen?", FROZEN_GUESSES),
        ):
            with st.container(width=bench.HALF):
                st.pills(question, list(options), format_func=options.__getitem__, key=settings.key(name))


def training(choice: Choice, row: Width) -> Sweep:
    """The sweep over widths: settings, five panels, tables. row: the width whose panels are drawn."""
    sweep, refused = bench.asked((SCALING, SCALING_LONG), choice)
    said = bench.instrument_row(SCALING, sweep, settings, choice)
    st.caption(parts.budget_line(choice))
    last, paused = row.steps(choice.budget), False
    with st.container(horizontal=True, vertical_alignment="center", key="figure-title"):
        st.markdown(f"**One head while it trains** :gray[{row.label(choice.budget)}]", width="stretch")
        rows = {one.id: one.short for one in WIDTHS}
        st.segmented_control(
            "Width shown",
            list(rows),
            format_func=rows.__getitem__,
            key=settings.key("width"),
            required=True,
            label_visibility="collapsed",
        )
        if sweep.unended:
            paused = st.toggle("Pause live", key="scaling.paused")
        with st.popover("Export", type="tertiary"):
            export.downloads(
                f"{SCALING.id}-{choice.budget}-{row.id}",
                lambda: small_multiples.together(parts.width_parts(sweep.again(), row), last),
                lambda: small_multiples.table(parts.width_parts(sweep.again(), row)),
            )

    def draw(now: Sweep) -> None:
        part = row.of(now)
        progress = part.progress if part.unended else 0.0
        small_multiples.draw(parts.width_parts(now, row), last, "widths", progress)
        st.caption(
            "Scores, weights and rows of 16 held-out windows at each evaluation; the gradient at every tenth "
            f"step. Dashed rules: the chapter, after {row.steps('chapter'):,} steps."
        )
        with st.container(horizontal=True, gap="medium", key="results"):
            with st.container(width=bench.TABLE_WIDTH):
                parts.results(now, choice)
            with st.container(width=bench.NOTICE_WIDTH):
                st.subheader("What to notice", anchor=False)
                helps, frozen = (st.session_state[settings.key(name)] for name in ("helps", "frozen"))
                words = notice.notice(now, helps, frozen)
                st.markdown(words or "Your guesses are answered here, once the heads are trained.")

    bench.follow(sweep, said, draw, refused=refused, paused=paused)
    return sweep


def rescue(sweep: Sweep) -> Sweep | None:
    """A collapsed head, the division put back, trained on."""
    st.header("Can a collapsed head be rescued?", anchor=False)
    st.markdown(
        "Take the weights of an undivided head at its end, put the division back, and train on, for as many "
        "steps again and with a fresh optimiser. Only the scale differs.",
        width=frame.MEASURE,
    )
    runs = scaling_rescue.collapsed_runs(sweep)
    if not runs:
        st.markdown(":gray[No undivided head of these settings is trained yet. Train the heads above first.]")
        return None
    key = settings.key("rescue")
    if (wanted := st.session_state[key]) not in runs:
        st.session_state[key] = next(iter(runs))
        if wanted:
            st.markdown(f":orange[No finished undivided head of these settings is {plain(wanted)}.]")
    run = runs[st.session_state[key]]
    fork = Sweep.of(RESCUE, [launch.rescue(run.id, run.spec)], open_store())
    story = Rescue(run, fork, scaling_rescue.divided_all_along(sweep, run))
    with st.container(horizontal=True, vertical_alignment="bottom", key="instruments-rescue"):
        st.selectbox(
            "Collapsed head",
            list(runs),
            format_func=lambda name: scaling_rescue.titled(runs[name]),
            key=key,
            width=220,
        )
        instruments.action(fork, settings, "Put the division back", "rescue-", width=190)
        said = bench.status_line()

    def draw(now: Sweep) -> None:
        progress = (1 + now.progress) / 2 if now.unended else 0.0
        panels = scaling_rescue.parts(story, now)
        small_multiples.draw(panels, 2 * story.steps, "rescue", progress, scaling_rescue.across(story))
        with st.container(horizontal=True, gap="medium", key="results-rescue"):
            with st.container(width=bench.TABLE_WIDTH):
                st.table(scaling_rescue.results(story, now), border="horizontal", hide_index=True)
            with st.container(width=bench.NOTICE_WIDTH):
                st.subheader("What to notice", anchor=False)
                st.markdown(scaling_rescue.notice(story, now))

    bench.follow(fork, said, draw)
    return fork


def random_vectors() -> None:
    """Variance, saturation and Jacobian of vectors that nobody trained."""
    settings.again("pairs", "widest")
    pairs, widest = (int(st.session_state[settings.key(name)]) for name in ("pairs", "widest"))
    st.header("Before any training: random vectors", anchor=False)
    st.markdown(
        "Draw queries and keys from a standard normal distribution. How wide are their products, and what "
        "does a softmax over 64 of them let through, with the division and without?",
        width=frame.MEASURE,
    )
    with st.container(horizontal=True, vertical_alignment="bottom", key="instruments-vectors"):
        st.select_slider(
            "Pairs", probe.PAIRS, format_func=lambda n: f"{n:,}", key=settings.key("pairs"), width=260
        )
        st.select_slider(
            "Widths up to",
            probe.WIDTHS[1:],
            format_func=lambda n: f"{n:,}",
            key=settings.key("widest"),
            width=260,
        )
        widths = probe.up_to(widest)
        now = {"pairs": pairs, "widths": list(widths)}
        asked = probes.pressed("Measure", settings.key("measure"), now, SCALING_PROBE.seconds)
        with st.container(width=bench.STATUS_WIDTH):
            said = st.empty()
    probes.outdated(asked, now)
    measured = probes.attempt(said, SCALING_PROBE, **asked) if asked else None
    widths = tuple(asked["widths"]) if measured and asked else widths
    made = probe.saturation_parts(measured)
    axis = probe.across(widths)
    with st.container(horizontal=True, vertical_alignment="center", key="figure-title-vectors"):
        st.markdown("**2,000 rows of 64 random scores** :gray[over the width]", width="stretch")
    small_multiples.draw(made, widths[-1], "vectors", across=axis)
    with st.container(horizontal=True, gap="medium", key="results-vectors"):
        with st.container(width=bench.TABLE_WIDTH):
            for styler in (
                probe.variance_table(widths, measured),
                probe.saturation_table(widths, measured),
                probe.chapter_table(measured),
            ):
                st.table(styler, border="horizontal", hide_index=True)
            st.caption(probe.remarks(measured))
        with st.container(width=bench.NOTICE_WIDTH):
            st.subheader("What to notice", anchor=False)
            st.markdown(probe.notice(measured))


def beside(
    experiment: Experiment,
    choice: Choice,
    trained: Sequence[str],
    key: str,
    labels: dict[str, str],
    panels: Sequence[small_multiples.Panel],
    results: Callable[[Sweep], None],
) -> Sweep:
    """An experiment beside the sweep: its button, panels, results. trained: what the button trains."""
    sweep, refused = bench.asked((experiment,), choice)
    extra = sweep.part(lambda spec: spec.variant in trained)
    with st.container(horizontal=True, vertical_alignment="bottom", key=f"instruments-{key}"):
        instruments.action(extra, settings, f"Train {count(len(trained))} models", f"{key}-")
        said = bench.status_line()
    rules = bool(experiment.chapter) and sweep.of_the_chapters_text

    def draw(now: Sweep) -> None:
        everything = sweep.again()
        progress = now.progress if now.unended else 0.0
        made = parts.parts(everything, experiment.variants, labels, panels, rules=rules)
        small_multiples.draw(made, experiment.budget(choice.budget).steps, key, progress)
        with st.container(key=f"results-{key}", width=bench.TABLE_WIDTH):
            results(everything)

    bench.follow(extra, said, draw, refused=refused)
    return extra


def as_wide(choice: Choice) -> Sweep:
    """The heads in models of their own width."""
    st.header("In a model as wide as its head", anchor=False)
    budget = SCALING_WIDE.budget(choice.budget)
    st.markdown(
        "Above, the model stays 128 wide and only the head grows. Here the model grows with it, and each "
        "query and key sums over as many numbers as it has. Figures like the chapter’s come from here. "
        f"{budget.steps:,} steps of {budget.batch_size} × {budget.context_length} tokens at learning rate "
        f"{budget.learning_rate:g}.",
        width=frame.MEASURE,
    )

    def results(sweep: Sweep) -> None:
        labels = parts.AS_WIDE_LABELS
        styler = parts.models_table(sweep, "d_k and d_model", labels)
        st.table(styler, border="horizontal", hide_index=True)
        st.caption(" ".join(parts.against_the_chapter(sweep, parts.AS_WIDE, choice)))

    labels, panels = parts.AS_WIDE_LABELS, parts.PANELS
    return beside(SCALING_WIDE, choice, SCALING_WIDE.variants, "wide", labels, panels, results)


def other_scales(choice: Choice) -> Sweep:
    """What else might keep a wide head soft."""
    st.header("Divide by something else?", anchor=False)
    st.markdown(
        "By d_k itself; by a number that the head learns; or by √d_k, with queries and keys brought to one "
        "length first (QK-norm). The three beside the two heads of d_k 1024 above, on the same budget, seeds "
        "and text.",
        width=frame.MEASURE,
    )

    def results(sweep: Sweep) -> None:
        styler = parts.models_table(sweep, "d_k 1024", parts.SCALES_LABELS)
        st.table(styler, border="horizontal", hide_index=True)
        st.caption(" ".join(bench.general_remarks(SCALES, sweep.rows(), choice)))

    labels, panels = parts.SCALES_LABELS, parts.SCALES_PANELS
    return beside(SCALES, choice, ids(*EXTRA), "scales", labels, panels, results)


settings = Settings(
    "scaling", ("budget", "seeds", "text", "helps", "frozen", "width", "rescue", "pairs", "widest")
)
frame.header(
    SECTION,
    SCALING.question,
    "A score is a sum of d_k products, so it grows with √d_k, and softmax turns large scores into a hard "
    "choice. Train one head at four widths, divided by √d_k and not, and watch it.",
)
settings.seed("helps", one_of("helps", tuple(HELPS_GUESSES)), None)
settings.seed("frozen", one_of("frozen", tuple(FROZEN_GUESSES)), None)
width = settings.seed("width", one_of("width", tuple(WIDTHS_BY_ID)), "1024")
settings.seed("rescue", scaling_rescue.named, None)
settings.seed("pairs", probe.listed("pairs", probe.PAIRS), 20_000)
settings.seed("widest", probe.listed("widest", probe.WIDTHS[1:]), 1024)
choice = bench.choose(SCALING, settings)
guesses()
sweeps = [training(choice, WIDTHS_BY_ID[width])]
frame.sources(SCALES.models, "The code of the head, and what each variant changes")
fork = rescue(sweeps[0])
sweeps.append(as_wide(choice))
probes.beside(random_vectors)
sweeps += [other_scales(choice), *([fork] if fork else [])]
bench.watch(*sweeps)
frame.footer(SECTION)
