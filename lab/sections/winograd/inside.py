"""Which trained model is looked into, at which two sentences, and what is asked of it."""

from typing import Any, TypeVar

import streamlit as st

from engine.chapter.language_experiments import WINOGRAD_CLOSED
from engine.data.languages.winograd import ANSWER, TEMPLATE, Winograd
from engine.probes.registry import Probe
from engine.probes.results.winograd import Pair
from engine.system.errors import LabError
from lab import probes, weights
from lab.bench import Sweep
from lab.sections.winograd.parts import BLOCKS
from lab.sections.winograd.setup import WinogradRequest
from lab.settings import Setting, Settings
from lab.weights import SHIPPED, Weights
from lab.words import plain

R = TypeVar("R")

MODELS = {"two-blocks": "Two blocks", "one-block": "One block"}
TYPED = "winograd.typed"


class Inside:
    """What the sections below the training are about: the settings, and what they choose.

    variant: the kind of model. model: None where no such model is trained here or shipped; pair: None where
    there is no language.
    """

    def __init__(self, settings: Settings, sweep: Sweep) -> None:
        assert isinstance(sweep.request, WinogradRequest)
        self.settings, self.request = settings, sweep.request
        self._kind = settings.choice("model", "Model", MODELS, BLOCKS[-1])
        self.variant = self._kind.value
        experiment = self.request.experiment.id
        ready = weights.shipped_by_seed(experiment, self.variant) if self.request.built_in else {}
        own = weights.trained(sweep, self.variant)
        self._usual = weights.usual(ready, list(own.values()))
        found = ready if weights.switched(settings.key("look"), self._usual) == SHIPPED else own
        by_seed = {str(seed): model for seed, model in found.items()}
        self._seeds = list(by_seed)
        typical = str(self.request.experiment.typical.get(self.variant, ""))
        first = typical if typical in by_seed else next(iter(by_seed), "0")
        self._seed = settings.value("look", str, first, widget=st.selectbox)
        if by_seed and self._seed.value not in by_seed:
            self._seed.value = st.query_params["look"] = first
        self.model: Weights | None = by_seed.get(self._seed.value)
        self._words: dict[str, Setting[str]] = {}
        self.pair: Pair | None = None
        if language := self.request.language:
            self._words = _boxes(settings, language)
            x, y, a, b = (word.value for word in self._words.values())
            self.pair = Pair(x, y, (a, b))
        else:
            settings.names += ["x", "y", "a", "b"]  # kept until there is one again

    @property
    def about(self) -> tuple[object, ...]:
        """What is chosen."""
        return self.request, self.variant, self.model, self.pair

    @property
    def blocks(self) -> int:
        """Of the model."""
        return WINOGRAD_CLOSED.variant(self.variant).config.n_layer

    @property
    def subject(self) -> dict[str, Any]:
        """What every probe is about; only once ``ready``."""
        assert self.model is not None
        return {"weights": self.model.path, "language": self.request.language, "seed": self.model.seed}

    def draw(self) -> None:
        """The model and the sentences, chosen or typed."""
        if self.request.language is None:
            return
        with st.container(horizontal=True, vertical_alignment="bottom", key="instruments-look"):
            self._kind.draw()
            weights.switch(self.settings.key("look"), self._usual)
            if len(self._seeds) > 1:
                self._seed.draw(label="Seed", options=self._seeds, width=90)
            for word in self._words.values():
                word.draw(width=130)
            st.text_input(
                "Or type a sentence",
                key=TYPED,
                placeholder="the dog did not cross the road because it was too slow",
                on_change=self._typed,
                width=300,
            )
        if error := st.session_state.get(f"{TYPED}.error"):
            st.markdown(f":red[{plain(error)}]")

    def _typed(self) -> None:
        """Make a typed sentence the first of the two, or keep what is wrong with it."""
        state, language = st.session_state, self.request.language
        state.pop(f"{TYPED}.error", None)
        words = state[TYPED].split()
        if not words or language is None:
            return
        adjective = TEMPLATE.index("{adj}") + 1
        if len(words) == adjective:  # the end, the same in all, need not be typed
            words += TEMPLATE[adjective:ANSWER]
        try:
            read = language.read(" ".join(words))
        except LabError as error:
            state[f"{TYPED}.error"] = str(error)
            return
        boxes = self._words
        boxes["x"].value, boxes["y"].value, boxes["a"].value = read.first, read.second, read.adjective
        if boxes["b"].value == read.adjective:
            others = language.crossed if read.adjective in language.crosser else language.crosser
            boxes["b"].value = others[0]

    def ready(self) -> bool:
        """Whether there is a model to look into and a pair to send through it; says what is missing."""
        if self.model is None or self.pair is None:
            st.markdown(
                ":small[:gray[There is no such model here. Train the models above, or choose the other "
                "weights.]]"
            )
            return False
        nouns = self.pair.first, self.pair.second
        for what, (one, other) in (("nouns", nouns), ("adjectives", self.pair.adjectives)):
            if one == other:
                st.markdown(f":small[:red[{plain(f'Both {what} are {one!r}; choose two that differ.')}]]")
                return False
        return True

    def find(self, probe: Probe[R], **arguments: Any) -> R | None:
        """What a probe finds; None where it cannot be had, and the page says why."""
        return probes.attempt(st.empty(), probe, **arguments)

    def pressed(self, name: str, label: str, probe: Probe[R], **arguments: Any) -> dict[str, Any] | None:
        """The button of a probe that takes its time: what was asked when it was last pressed."""
        asked: dict[str, Any] | None
        asked = probes.pressed(label, self.settings.key(name), arguments, probe.seconds)
        probes.outdated(asked, arguments)
        self.whose()
        return asked

    def whose(self) -> None:
        """Whose model it is."""
        if self.model:
            st.caption(f"Weights: {plain(self.model.whose)}.")


def _boxes(settings: Settings, language: Winograd) -> dict[str, Setting[str]]:
    seconds = language.places or language.nouns[1:]
    listed = (
        ("x", "x, who crosses", language.nouns, language.nouns[0]),
        ("y", "y, what is crossed", language.places or language.nouns, seconds[0]),
        ("a", "Adjective", language.adjectives, language.crosser[0]),
        ("b", "Changed to", language.adjectives, language.crossed[0]),
    )
    return {
        name: settings.choice(name, label, words, usual, widget="list")
        for name, label, words, usual in listed
    }
