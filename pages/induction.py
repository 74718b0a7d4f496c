"""Induction: repeated random tokens, which one layer cannot continue and two can, and the heads for it."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import streamlit as st

from engine.chapter.definitions import ACCURACY
from engine.chapter.experiments import MAX_SEED
from engine.chapter.language_experiments import INDUCTION
from engine.probes.registry import ABLATE, FORMATION, IN_TEXTS
from lab import bench, probes, weights
from lab.bench import Sweep
from lab.sections.induction import formation as induction_formation
from lab.sections.induction import parts, probe, text, view
from lab.sections.induction.parts import LOSS, ONE, SCORE, TWO
from lab.sections.induction.probe import FOUND, PERIODS, Subject
from lab.settings import Settings, whole
from lab.shell import frame
from lab.shell.chapter import section
from lab.words import plain

if TYPE_CHECKING:
    from streamlit.delta_generator import DeltaGenerator

SECTION = section("induction.py")
MODELS = {name: INDUCTION.variant(name).short.capitalize() for name in (TWO, ONE)}
NOTHING = ":gray[Train the two models above first]"


def subject_of(sweep: Sweep) -> Subject | None:
    """The model that the sections below look into, of the chosen kind and seed."""
    usual, wanted = probe.usual(sweep, model.value), seed.value
    found = probe.subjects(sweep, model.value, weights.switched(model.key, usual))
    if found and wanted not in found:
        seed.value = next(iter(found))
        if wanted is not None:
            there = ", ".join(map(str, found))
            st.markdown(
                f":orange[There is no model of seed {wanted} here, only of {there}. Used: {seed.value}.]"
            )
    with st.container(horizontal=True, vertical_alignment="bottom", key="instruments-subject"):
        model.draw()
        weights.switch(model.key, usual)
        if found:
            st.selectbox("Seed", list(found), key=seed.key, width=120)
    if not found:
        weights.missing(found)
        return None
    subject = found[seed.value or 0]
    st.caption(f"The next two sections are about this model: {plain(subject.weights.whose)}.")
    return subject


def formation(sweep: Sweep, subject: Subject | None) -> None:
    """Scores over the kept steps, and the two heads at one of them."""
    settings.again("at", "period", "row", "left", "right")
    with probes.section(
        "When does it form?",
        "Those papers describe a circuit of two heads. One looks one token back and writes down what it saw; "
        "one in a later layer looks for its own token among those notes, and so lands on the token that "
        "followed the previous occurrence. Score every head for both, at every step whose weights were kept.",
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


def over_seeds(sweep: Sweep) -> None:
    """Every seed that was trained, and when its pair forms."""
    subjects = [one for one in probe.subjects(sweep, TWO, weights.YOURS).values() if one.run]
    with probes.section(
        "Does it always form?",
        "One seed is a single sample. Train five above, and look for the step of formation in each: same "
        "rule, same kept steps.",
        "seeds",
    ):
        seconds = FORMATION.seconds * max(1, len(subjects))
        asked = probes.pressed("Find the steps", settings.key("steps"), subjects, seconds)
        said = bench.status_line()
    probes.outdated(asked, subjects)
    formed = steps_formed(asked, said) if asked else {}
    if not subjects:
        said.markdown(f":small[{NOTHING}]")
    bench.beside("results-seeds", [parts.seeds_table(sweep, formed)], parts.seeds_words(sweep, formed))


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
        "heads that is here; and how much repetition lowers its loss, in nats.",
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
            remark = f"{text.remark(found)} {weights.whose(asked)}"
            tables = [text.gains(found), replace(text.results(found), caption=remark)]
            bench.beside("results-text", tables, text.words(found))


settings = Settings("induction")
model = settings.choice("of", "Look into", MODELS, TWO)
seed = settings.value("seed", whole("seed", 0, MAX_SEED), None)
settings.value("at", whole("at", 0, 10_000_000), None)
settings.choice("period", "Repeats after, tokens", PERIODS, 12)
settings.value("row", whole("row", 0, 2 * PERIODS[-1] - 1), None)
settings.value("left", probe.head_or_found("left"), FOUND)
settings.value("right", probe.head_or_found("right"), FOUND)
settings.value("heads", probe.heads_in, list[str](), ",".join)

frame.header(
    SECTION,
    INDUCTION.question,
    "Random tokens, then the same again: nothing to know but what was just said. The chapter only points "
    "here; the heads that do it are from Elhage et al. 2021 and Olsson et al. 2022.",
    settings,
)
sweep = bench.train(
    INDUCTION,
    settings,
    questions=parts.QUESTIONS,
    figure=parts.figure,
    tables=(parts.results,),
    caption=parts.caption,
)
frame.sources(INDUCTION.models, "The code of the two models")
subject = subject_of(sweep)
for part in (
    partial(formation, sweep, subject),
    partial(ablation, subject),
    partial(over_seeds, sweep),
    in_text,
):
    probes.beside(part)
frame.footer(SECTION, settings)
