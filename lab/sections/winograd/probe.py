"""Which trained model is looked into, and at which two sentences."""

import streamlit as st

from engine.data.languages.winograd import ANSWER, TEMPLATE, Sentence, Winograd
from engine.probes.results.winograd import Pair
from lab import weights
from lab.bench.sweep import Sweep
from lab.sections.winograd.parts import BLOCKS
from lab.sections.winograd.setup import Choice, in_options
from lab.settings import Settings, one_of
from lab.weights import SHIPPED, Weights
from lab.words import plain

MODELS = {"two-blocks": "Two blocks", "one-block": "One block"}
NAMES = ("model", "look", "x", "y", "a", "b")
TYPED = "winograd.typed"


def lacks(pair: Pair) -> str:
    """What is wrong with two sentences; empty when nothing is."""
    one, other = pair.adjectives
    if pair.first == pair.second:
        return f"Both nouns are {pair.first!r}; choose two that differ."
    return f"Both adjectives are {one!r}; choose two that differ." if one == other else ""


def trained(sweep: Sweep, variant: str) -> dict[int, Weights]:
    """The reader's models of that kind, by seed."""
    runs = (run for digest, run in sweep.measured.items() if sweep.wanted[digest].variant == variant)
    return {found.seed: found for run in runs if (found := weights.of_run(run))}


def shipped(choice: Choice, variant: str) -> dict[int, Weights]:
    """The shipped model of that kind, where the language is one that models are shipped for."""
    found = weights.shipped(choice.experiment.id, variant) if choice.as_the_chapter else None
    return {found.seed: found} if found else {}


def usual(sweep: Sweep, choice: Choice, variant: str) -> str:
    """Whose models are looked into unless the reader says otherwise."""
    return weights.usual(shipped(choice, variant), list(trained(sweep, variant).values()))


def models(settings: Settings, sweep: Sweep, choice: Choice, variant: str) -> dict[int, Weights]:
    """What can be looked into, by seed, as the switch says."""
    ours = weights.switched(settings.key("look"), usual(sweep, choice, variant)) == SHIPPED
    return shipped(choice, variant) if ours else trained(sweep, variant)


def choose(settings: Settings, sweep: Sweep, choice: Choice) -> tuple[str, Weights | None, Pair | None]:
    """The kind of model, the model of it, and the sentences, as the reader chose them."""
    variant = settings.seed("model", one_of("model", tuple(MODELS)), BLOCKS[-1])
    found = models(settings, sweep, choice, variant)
    seeds = tuple(map(str, found))
    look = settings.seed("look", str, seeds[0] if seeds else "0")
    if seeds and look not in seeds:
        st.session_state[settings.key("look")] = look = seeds[0]
        st.query_params["look"] = look
    pair = _pair(settings, choice.language) if choice.language else None
    return variant, found.get(int(look)) if look in seeds else None, pair


def _pair(settings: Settings, language: Winograd) -> Pair:
    seconds = language.places or language.nouns
    second = seconds[0] if language.places else seconds[1]
    return Pair(
        in_options(settings, "x", language.nouns, language.nouns[0]),
        in_options(settings, "y", seconds, second),
        (
            in_options(settings, "a", language.adjectives, language.crosser[0]),
            in_options(settings, "b", language.adjectives, language.crossed[0]),
        ),
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
        weights.switch(settings.key("look"), usual(sweep, choice, variant))
        seeds = list(map(str, models(settings, sweep, choice, variant)))
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
