"""Induction: repeated random tokens, which one layer cannot continue and two can, and the heads for it."""

from functools import partial

import streamlit as st

from engine.chapter.experiments import MAX_SEED
from engine.chapter.language_experiments import INDUCTION
from engine.probes.registry import ABLATE, COMPOSITION, FORMATION, IN_TEXTS
from lab import bench, probes
from lab.probes import look
from lab.sections.induction import composition, parts, probe, seeds, text
from lab.sections.induction.ablation import OwnHeads
from lab.sections.induction.parts import ONE, TWO
from lab.sections.induction.view import OverSteps
from lab.settings import Settings, whole
from lab.shell import frame
from lab.shell.chapter import section

SECTION = section("induction.py")
MODELS = {name: INDUCTION.variant(name).short.capitalize() for name in (TWO, ONE)}


settings = Settings("induction")
model = settings.choice("of", "Look into", MODELS, TWO)
seed = settings.value("seed", whole("seed", 0, MAX_SEED), None, widget=st.selectbox)
over_steps, own_heads = OverSteps(settings), OwnHeads(settings)

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
frame.sources(INDUCTION, "The code of the two models")
subject = probe.Chosen(sweep, model, seed)
look(
    "When does it form?",
    "Those papers describe a circuit of two heads. One looks one token back and writes down what it saw; "
    "one in a later layer, the induction head, looks for its own token among those notes, and so lands on "
    "the token that followed the previous occurrence (prefix matching), whose logit it raises (copying). "
    "Score every head for all three, at every step whose weights were kept.",
    settings,
    "find",
    FORMATION,
    partial(over_steps.draw, sweep=sweep),
    models=subject.opened,
    arguments=subject.kept,
    button="Find the heads",
)
look(
    "Ablate either, and what is left?",
    "A map shows where a head looks, not what that is worth. Take heads away, by zeros or by what they "
    "add on average at each position, and let the model continue the same unseen sequences.",
    settings,
    "ablate",
    ABLATE,
    own_heads.draw,
    models=subject.opened,
    arguments=subject.ended,
    button="Ablate",
)
look(
    "Does the later head read what the earlier one wrote?",
    "A head reads the residual stream three times: for its queries, its keys and its values. Path patching "
    "(Wang et al. 2023; Goldowsky-Dill et al. 2023) changes a single one of these: there the earlier heads "
    "add what they add on average at each position, and everywhere else they stay as they are. If the notes "
    "are what the later head looks among, its keys need them, and neither its queries nor its values do.",
    settings,
    "compose",
    COMPOSITION,
    composition.draw,
    models=subject.opened,
    arguments=subject.ended,
    button="Patch the paths",
)
probes.beside(partial(seeds.draw, settings, sweep))
look(
    "And in a model of real text?",
    "The same scores, on random tokens said again and on held-out Shakespeare, for every model with "
    "heads that is here; and how much repetition lowers its loss, in nats.",
    settings,
    "text",
    IN_TEXTS,
    text.draw,
    models=lambda: probe.text_models(settings.key("text")),
    arguments=text.models,
    button="Look for it",
)
frame.footer(SECTION, settings)
