"""Induction: repeated random tokens, which one layer cannot continue and two can, and the heads for it."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import streamlit as st

from engine.chapter.definitions import ACCURACY
from engine.chapter.experiments import MAX_SEED, parse_seeds
from engine.chapter.language_experiments import INDUCTION
from engine.probes.registry import ABLATE, FORMATION, IN_TEXTS
from lab import probes, weights
from lab.bench import instruments
from lab.bench import training as bench
from lab.bench.instruments import OWN, Choice
from lab.bench.sweep import Sweep
from lab.charts import panels
from lab.sections.induction import formation as induction_formation
from lab.sections.induction import parts, probe, text, view
from lab.sections.induction.parts import HOW_GUESSES, LOSS, ONE, REPEAT_GUESSES, SCORE, TWO
from lab.sections.induction.probe import FOUND, PERIODS, Subject
from lab.settings import Settings, one_of, whole
from lab.shell import export, frame
from lab.shell.chapter import section
from lab.words import plain

if TYPE_CHECKING:
    from streamlit.delta_generator import DeltaGenerator

SECTION = section("induction.py")
NAMES = ("budget", "seeds", "repeat", "how", "of", "seed", "at", "period", "row", "left", "right", "heads")
MODELS = {name: INDUCTION.variant(name).short.capitalize() for name in (TWO, ONE)}
NOTHING = ":gray[Train the two models above first]"


def choose() -> Choice:
    """Budget and seeds; the language has no settings."""
    budget = settings.seed("budget", one_of("budget", tuple(INDUCTION.budgets)), "quick")
    seeds = settings.seed("seeds", instruments.seeds_text, "0")
    return Choice(budget, () if seeds == OWN else parse_seeds(seeds), INDUCTION.language)


def guesses() -> None:
    """The two predictions."""
    with st.container(horizontal=True):
        for name, question, options in (
            ("repeat", "Before you train: how much of a repeat can one layer continue?", REPEAT_GUESSES),
            ("how", "And how does the ability come, in two?", HOW_GUESSES),
        ):
            with st.container(width=bench.HALF):
                st.pills(question, list(options), format_func=options.__getitem__, key=settings.key(name))


def training(choice: Choice, sweep: Sweep, refused: str | None) -> None:
    """Settings, the one button, three curves, results."""
    with st.container(horizontal=True, vertical_alignment="bottom", key="instruments"):
        instruments.budget_and_seeds(INDUCTION, settings)
        instruments.action(sweep, settings)
        said = bench.status_line()
    instruments.wanting(settings, choice)
    last, paused = INDUCTION.budget(choice.budget).steps, False
    with st.container(horizontal=True, vertical_alignment="center", key="figure-title"):
        st.markdown("**What two layers learn and one does not** :gray[over the steps]", width="stretch")
        if sweep.unended:
            paused = st.toggle("Pause live", key="induction.paused")
        with st.popover("Export", type="tertiary"):
            export.downloads(
                f"induction-{choice.budget}",
                lambda: panels.together(parts.parts(sweep.again()), last),
                lambda: parts.table_rows(sweep.again()),
            )

    def draw(now: Sweep) -> None:
        progress = now.progress if now.unended else 0.0
        panels.draw(parts.parts(now), last, "induction", progress)
        with st.container(horizontal=True, gap="medium", key="results"):
            with st.container(width=bench.TABLE_WIDTH):
                st.table(parts.results(now), border="horizontal", hide_index=True)
                st.caption(parts.remarks(now, choice.budget))
            with st.container(width=bench.NOTICE_WIDTH):
                st.subheader("What to notice", anchor=False)
                st.markdown(noticed(now))

    bench.follow(sweep, said, draw, refused=refused, paused=paused)


def noticed(now: Sweep) -> str:
    """The guesses answered, once both models have ended."""
    ended = {now.wanted[digest].variant for digest in now.measured}
    if ended == set(INDUCTION.variants) and not now.unended:
        guessed = (st.session_state[settings.key(name)] for name in ("repeat", "how"))
        return parts.notice(now, *guessed)
    if now.unended:
        return "Your guesses are answered here when both models have ended."
    return "No runs yet. Make your two guesses, then train."


def subject_of(sweep: Sweep) -> Subject | None:
    """The model that the sections below look into, of the chosen kind and seed."""
    variant = st.session_state[settings.key("of")]
    usual = probe.usual(sweep, variant)
    key, wanted = settings.key("seed"), st.session_state[settings.key("seed")]
    found = probe.subjects(sweep, variant, weights.switched(settings.key("of"), usual))
    if found and wanted is not None and wanted not in found:
        there = ", ".join(map(str, found))
        used = next(iter(found))
        st.markdown(f":orange[There is no model of seed {wanted} here, only of {there}. Used: {used}.]")
    if found and wanted not in found:
        st.session_state[key] = next(iter(found))
    with st.container(horizontal=True, vertical_alignment="bottom", key="instruments-subject"):
        st.segmented_control(
            "Look into", list(MODELS), format_func=MODELS.__getitem__, key=settings.key("of"), required=True
        )
        weights.switch(settings.key("of"), usual)
        if found:
            st.selectbox("Seed", list(found), key=key, width=120)
    if not found:
        weights.missing(found)
        return None
    subject = found[st.session_state[key]]
    st.caption(f"The next two sections are about this model: {plain(subject.weights.whose)}.")
    return subject


def formation(sweep: Sweep, subject: Subject | None) -> None:
    """Scores over the kept steps, and the two heads at one of them."""
    settings.again("at", "period", "row", "left", "right")
    with probes.section(
        "When does it form?",
        "Those papers describe a circuit of two heads. One looks one token back and writes down what it saw; "
        "one in a later layer looks for its own token among those notes, and so lands on what came after the "
        "last time. Score every head for both, at every step whose weights were kept.",
        "formation",
    ):
        if subject and subject.run:
            asked = probes.pressed("Find the heads", settings.key("find"), subject, FORMATION.seconds)
        said = bench.status_line()
    if subject is None:
        said.markdown(f":small[{NOTHING}]")
    elif subject.run is None:
        said.markdown(
            ":small[:gray[Of this model only the final weights are available. Train it above for its steps.]]"
        )
    elif asked:
        probes.outdated(asked, subject)
        if measured := probes.attempt(said, FORMATION, run=asked.run):
            view.over_steps(settings, measured, curves_of(sweep, asked))
            view.side_by_side(settings, measured, asked)


def curves_of(sweep: Sweep, subject: Subject) -> induction_formation.Curves:
    """What the run recorded over its steps."""
    assert subject.weights.run is not None  # or it had kept none
    return {metric: sweep.curve(subject.weights.run, metric).points for metric in (ACCURACY, LOSS, SCORE)}


def ablation(subject: Subject | None) -> None:
    """Heads taken away: those with a role together, each alone, and a set of the reader's."""
    settings.again("heads")
    with probes.section(
        "Ablate either, and what is left?",
        "A map shows where a head looks, not what that is worth. Take heads away, by zeros or by what they "
        "add on average at each position, and let the model continue the same unseen sequences.",
        "ablation",
    ):
        if subject:
            asked = probes.pressed("Ablate", settings.key("ablate"), subject, ABLATE.seconds)
        said = bench.status_line()
    if subject is None:
        said.markdown(f":small[{NOTHING}]")
    elif asked:
        probes.outdated(asked, subject)
        one = asked.weights
        if found := probes.attempt(said, ABLATE, weights=one.path, seed=one.seed):
            view.ablated(settings, found, asked)


def over_seeds(choice: Choice, sweep: Sweep) -> None:
    """Every seed that was trained, and when its pair forms."""
    subjects = [one for one in probe.subjects(sweep, TWO, weights.YOURS).values() if one.run]
    with probes.section(
        "Does it always form?",
        "One seed is one throw. Train five above, and look for the step of formation in each: same rule, "
        "same kept steps.",
        "seeds",
    ):
        seconds = FORMATION.seconds * max(1, len(subjects))
        asked = probes.pressed("Find the steps", settings.key("steps"), subjects, seconds)
        said = bench.status_line()
    probes.outdated(asked, subjects)
    formed = steps_formed(asked, said) if asked else {}
    if not subjects:
        said.markdown(f":small[{NOTHING}]")
    with st.container(horizontal=True, gap="medium", key="results-seeds"):
        with st.container(width=bench.TABLE_WIDTH):
            table = parts.seeds_table(sweep, choice.seeds, formed)
            st.table(table, border="horizontal", hide_index=True)
            st.caption("No-context level: right tokens where nothing before tells the next.")
        with st.container(width=bench.NOTICE_WIDTH):
            st.subheader("What to notice", anchor=False)
            st.markdown(parts.seeds_words(sweep, formed))


def steps_formed(subjects: Sequence[Subject], said: "DeltaGenerator") -> dict[int, int | None]:
    """The step of formation by seed; without those that could not be measured."""
    formed: dict[int, int | None] = {}
    for number, one in enumerate(subjects, start=1):
        busy = f"Seed {one.weights.seed}, {number} of {len(subjects)}"
        found = probes.attempt(said, FORMATION, busy, run=one.run)
        if found is None:  # the line says why
            return formed
        formed[one.weights.seed] = found.formed
    return formed


def in_text() -> None:
    """The same heads in models of Shakespeare."""
    with probes.section(
        "And in a model of real text?",
        "The same two scores, on random tokens said again and on held-out Shakespeare, for every model with "
        "heads that is here; and what a repeat is worth to it, in nats.",
        "text",
    ):
        models = probe.text_models(settings.key("text"))
        asked = probes.pressed("Look for it", settings.key("text"), models, IN_TEXTS.seconds)
        said = bench.status_line()
    probes.outdated(asked, models)
    if not models:
        said.markdown(":small[:gray[No model of Shakespeare with heads is here. Train one on Ladder.]]")
    elif asked:
        paths = {name: one.path for name, one in asked.items()}
        if found := probes.attempt(said, IN_TEXTS, models=paths):
            with st.container(horizontal=True, gap="medium", key="results-text"):
                with st.container(width=bench.TABLE_WIDTH):
                    for table in (text.gains(found), text.results(found)):
                        st.table(table, border="horizontal", hide_index=True)
                    st.caption(f"{text.remark(found)} {weights.whose(asked)}")
                with st.container(width=bench.NOTICE_WIDTH):
                    st.subheader("What to notice", anchor=False)
                    st.markdown(text.words(found))


settings = Settings("induction", NAMES)
settings.seed("repeat", one_of("repeat", tuple(REPEAT_GUESSES)), None)
settings.seed("how", one_of("how", tuple(HOW_GUESSES)), None)
settings.seed("of", one_of("of", tuple(MODELS)), TWO)
settings.seed("seed", whole("seed", 0, MAX_SEED), None)
settings.seed("at", whole("at", 0, 10_000_000), None)
settings.seed("period", probe.period_in, 12)
settings.seed("row", whole("row", 0, 2 * PERIODS[-1] - 1), None)
settings.seed("left", probe.head_or_found("left"), FOUND)
settings.seed("right", probe.head_or_found("right"), FOUND)
settings.seed("heads", probe.heads_in, list[str](), ",".join)

frame.header(
    SECTION,
    INDUCTION.question,
    "Random tokens, then the same again: nothing to know but what was just said. The chapter only points "
    "here; the heads that do it are from Elhage et al. 2021 and Olsson et al. 2022.",
)
choice = choose()
settings.show_notices()
guesses()
sweep, refused = bench.asked((INDUCTION,), choice)
training(choice, sweep, refused)
frame.sources(INDUCTION.models, "The code of the two models")
subject = subject_of(sweep)
for part in (
    partial(formation, sweep, subject),
    partial(ablation, subject),
    partial(over_seeds, choice, sweep),
    in_text,
):
    probes.beside(part)
bench.watch(sweep)
frame.footer(SECTION)
