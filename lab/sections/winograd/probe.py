"""Which trained model is looked into, at which two sentences, and what ``engine.probes.winograd`` finds."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import streamlit as st

from engine.chapter import reference
from engine.chapter.language_variants import ONE_BLOCK, TWO_BLOCKS
from engine.data.languages.winograd import ANSWER, TEMPLATE, Sentence, Winograd
from engine.system.numbers import whole_number
from lab import probes
from lab.bench.sweep import Sweep
from lab.sections.winograd.parts import BLOCKS
from lab.sections.winograd.setup import Choice, in_options
from lab.settings import Settings, one_of
from lab.words import plain

MODULE = "engine.probes.winograd"
MODELS = {made.id: made.short.capitalize() for made in (TWO_BLOCKS, ONE_BLOCK)}
NAMES = ("model", "look", "x", "y", "a", "b")
TYPED = "winograd.typed"

Measured = dict[str, Any]


@dataclass(frozen=True)
class Looked:
    """A model whose inside is shown: the checkpoint, whose it is, and the seed of its split."""

    path: Path
    whose: str
    seed: int


@dataclass(frozen=True)
class Pair:
    """The two sentences: who crosses what, and the two adjectives."""

    x: str
    y: str
    a: str
    b: str

    @property
    def lacks(self) -> str:
        """What is wrong with it; empty when nothing is."""
        if self.x == self.y:
            return f"Both nouns are {self.x!r}; choose two that differ."
        return f"Both adjectives are {self.a!r}; choose two that differ." if self.a == self.b else ""

    def said(self, adjective: str) -> str:
        """The sentence up to the place where the answer is due."""
        filled = {"{x}": self.x, "{y}": self.y, "{adj}": adjective}
        return " ".join(filled.get(word, word) for word in TEMPLATE[:ANSWER])


def trained(sweep: Sweep, variant: str) -> dict[int, Looked]:
    """The reader's models of that kind, by seed."""
    found = {}
    for digest, run in sweep.measured.items():
        path = sweep.store.directory(run.id) / "checkpoint.safetensors"
        if sweep.wanted[digest].variant == variant and run.state == "done" and path.exists():
            whose = f"yours, run #{run.id}, {run.spec.budget.steps:,} steps, seed {run.spec.seed}"
            found[run.spec.seed] = Looked(path, whose, run.spec.seed)
    return found


def shipped(choice: Choice, variant: str) -> dict[int, Looked]:
    """The shipped model of that kind, where the language is one that models are shipped for."""
    path = reference.weights(choice.experiment.id, variant) if choice.as_the_chapter else None
    seed = choice.experiment.seeds[0]
    return {seed: Looked(path, f"shipped, seed {seed}", seed)} if path else {}


def models(sweep: Sweep, choice: Choice, variant: str) -> dict[int, Looked]:
    """What can be looked into, by seed: what this reader trained, else what is shipped."""
    return trained(sweep, variant) or shipped(choice, variant)


def choose(settings: Settings, sweep: Sweep, choice: Choice) -> tuple[str, Looked | None, Pair | None]:
    """The kind of model, the model of it, and the sentences, as the reader chose them."""
    variant = settings.seed("model", one_of("model", tuple(MODELS)), BLOCKS[-1])
    found = models(sweep, choice, variant)
    seeds = tuple(map(str, found))
    look = settings.seed("look", str, seeds[0] if seeds else "0")
    if seeds and look not in seeds:
        st.session_state[settings.key("look")] = look = seeds[0]
        st.query_params["look"] = look
    pair = _pair(settings, choice.language) if choice.language else None
    seed = whole_number(look)
    return variant, None if seed is None else found.get(seed), pair


def _pair(settings: Settings, language: Winograd) -> Pair:
    seconds = language.places or language.nouns
    second = seconds[0] if language.places else seconds[1]
    return Pair(
        in_options(settings, "x", language.nouns, language.nouns[0]),
        in_options(settings, "y", seconds, second),
        in_options(settings, "a", language.adjectives, language.crosser[0]),
        in_options(settings, "b", language.adjectives, language.crossed[0]),
    )


def row(settings: Settings, sweep: Sweep, choice: Choice, variant: str) -> None:
    """The model and the sentences, chosen or typed."""
    language = choice.language
    if language is None:
        return
    with st.container(horizontal=True, vertical_alignment="bottom", key="instruments-look"):
        st.segmented_control(
            "Model", list(MODELS), format_func=MODELS.__getitem__, key=settings.key("model"), required=True
        )
        seeds = list(map(str, models(sweep, choice, variant)))
        if len(seeds) > 1:
            st.selectbox("Seed", seeds, key=settings.key("look"), width=90)
        for name, label, words in (
            ("x", "x, who crosses", language.nouns),
            ("y", "y, what is crossed", language.places or language.nouns),
            ("a", "Adjective", language.adjectives),
            ("b", "Changed to", language.adjectives),
        ):
            st.selectbox(label, words, key=settings.key(name), width=130)
        st.text_input(
            "Or type a sentence",
            key=TYPED,
            placeholder="the dog did not cross the road because it was too slow",
            on_change=_typed,
            args=(settings, language),
            width=300,
        )
    if error := st.session_state.get(f"{TYPED}.error"):
        st.markdown(f":red[{plain(error)}]")


def _typed(settings: Settings, language: Winograd) -> None:
    """Make a typed sentence the first of the two, or keep what is wrong with it."""
    state = st.session_state
    state.pop(f"{TYPED}.error", None)
    if not state[TYPED].strip():
        return
    try:
        read = _read(state[TYPED], language)
    except ValueError as error:
        state[f"{TYPED}.error"] = str(error)
        return
    state[settings.key("x")], state[settings.key("y")] = read.first, read.second
    state[settings.key("a")] = read.adjective
    if state[settings.key("b")] == read.adjective:
        others = language.crossed if read.adjective in language.crosser else language.crosser
        state[settings.key("b")] = others[0]


def _read(text: str, language: Winograd) -> Sentence:
    """The sentence; its end, the same in all, need not be typed. Raises ValueError: as ``Winograd.read``."""
    words = text.split()
    adjective = TEMPLATE.index("{adj}") + 1
    tail = TEMPLATE[adjective:ANSWER]
    return language.read(" ".join([*words, *tail]) if len(words) == adjective else text)


def measure(what: str, looked: Looked, language: Winograd, pair: Pair | None, *more: str) -> Measured:
    """What the probe finds. Raises ValueError: when it cannot; the message says why."""
    given = ["--weights", str(looked.path), "--language", language.to_json(), "--seed", str(looked.seed)]
    if pair:
        given += ["--first", pair.x, "--second", pair.y, "--adjectives", f"{pair.a},{pair.b}"]
    return probes.measured(MODULE, what, *given, *more)
