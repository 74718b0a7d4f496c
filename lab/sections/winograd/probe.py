"""Which trained model is looked into, and at which two sentences."""

import streamlit as st

from engine.data.languages.winograd import ANSWER, TEMPLATE, Sentence, Winograd
from engine.probes.results.winograd import Pair
from engine.system.errors import LabError
from lab import weights
from lab.bench import Sweep
from lab.sections.winograd.parts import BLOCKS
from lab.sections.winograd.setup import WinogradRequest
from lab.settings import Setting, Settings
from lab.weights import SHIPPED, Weights
from lab.words import plain

MODELS = {"two-blocks": "Two blocks", "one-block": "One block"}
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


def shipped(choice: WinogradRequest, variant: str) -> dict[int, Weights]:
    """The shipped model of that kind, where the language is one that models are shipped for."""
    found = weights.shipped(choice.experiment.id, variant) if choice.built_in else None
    return {found.seed: found} if found else {}


class Chosen:
    """Whose model is looked into, at which two sentences: the settings, and what they choose.

    variant: the kind of model. model: None where no such model is trained here or shipped; pair: None where
    there is no language.
    """

    def __init__(self, settings: Settings, sweep: Sweep) -> None:
        assert isinstance(sweep.request, WinogradRequest)
        self._settings, self._language = settings, sweep.request.language
        self._model = settings.choice("model", "Model", MODELS, BLOCKS[-1])
        self.variant = self._model.value
        ready, own = shipped(sweep.request, self.variant), trained(sweep, self.variant)
        self._usual = weights.usual(ready, list(own.values()))
        found = ready if weights.switched(settings.key("look"), self._usual) == SHIPPED else own
        self._seeds = tuple(map(str, found))
        self._seed = settings.value("look", str, self._seeds[0] if self._seeds else "0")
        if self._seeds and self._seed.value not in self._seeds:
            self._seed.value = st.query_params["look"] = self._seeds[0]
        self.model = next((one for seed, one in found.items() if str(seed) == self._seed.value), None)
        self._words: tuple[Setting[str], ...] = ()
        self.pair: Pair | None = None
        if self._language is None:
            settings.names += ["x", "y", "a", "b"]  # kept until there is one again
            return
        words, seconds = self._language, self._language.places or self._language.nouns
        x, y, a, b = self._words = (
            settings.choice("x", "x, who crosses", words.nouns, words.nouns[0], widget="list"),
            settings.choice(
                "y", "y, what is crossed", seconds, seconds[0 if words.places else 1], widget="list"
            ),
            settings.choice("a", "Adjective", words.adjectives, words.crosser[0], widget="list"),
            settings.choice("b", "Changed to", words.adjectives, words.crossed[0], widget="list"),
        )
        self.pair = Pair(x.value, y.value, (a.value, b.value))

    def draw(self) -> None:
        """The model and the sentences, chosen or typed."""
        if self._language is None:
            return
        with st.container(horizontal=True, vertical_alignment="bottom", key="instruments-look"):
            self._model.draw()
            weights.switch(self._settings.key("look"), self._usual)
            if len(self._seeds) > 1:
                st.selectbox("Seed", self._seeds, key=self._seed.key, width=90)
            for word in self._words:
                word.draw(width=130)
            st.text_input(
                "Or type a sentence",
                key=TYPED,
                placeholder="the dog did not cross the road because it was too slow",
                on_change=_typed,
                args=(self._settings, self._language),
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
    except LabError as error:
        state[f"{TYPED}.error"] = str(error)
        return
    state[settings.key("x")], state[settings.key("y")] = read.first, read.second
    state[settings.key("a")] = read.adjective
    if state[settings.key("b")] == read.adjective:
        others = language.crossed if read.adjective in language.crosser else language.crosser
        state[settings.key("b")] = others[0]


def _read(text: str, language: Winograd) -> Sentence:
    """The sentence; its end, the same in all, need not be typed.

    Raises InvalidInput: as ``Winograd.read``.
    """
    words = text.split()
    adjective = TEMPLATE.index("{adj}") + 1
    tail = TEMPLATE[adjective:ANSWER]
    return language.read(" ".join([*words, *tail]) if len(words) == adjective else text)
