"""One trained model and two sentences, and what is asked of what goes on inside."""

from dataclasses import dataclass
from typing import Any, TypeVar

import streamlit as st

from engine.chapter.language_experiments import WINOGRAD_CLOSED
from engine.probes.registry import Probe
from engine.probes.results.winograd import Pair
from lab import probes
from lab.sections.winograd.probe import lacks
from lab.sections.winograd.setup import WinogradRequest
from lab.settings import Settings
from lab.shell.palette import Palette
from lab.weights import Weights
from lab.words import plain

R = TypeVar("R")


@dataclass(frozen=True)
class Inside:
    """What the sections below the training are about.

    model: None where none is trained or shipped; pair: None where there is no language.
    """

    settings: Settings
    choice: WinogradRequest
    variant: str
    model: Weights | None
    pair: Pair | None
    colors: Palette

    @property
    def blocks(self) -> int:
        """Of the model."""
        return WINOGRAD_CLOSED.variant(self.variant).config.n_layer

    @property
    def subject(self) -> dict[str, Any]:
        """What every probe is about."""
        assert self.model is not None  # ``ready`` says so
        return {"weights": self.model.path, "language": self.choice.language, "seed": self.model.seed}

    def state(self, name: str) -> str:
        """A setting's value now."""
        return str(st.session_state[self.settings.key(name)])

    def ready(self) -> bool:
        """Whether there is a model to look into and a pair to send through it; says what is missing."""
        if self.model is None or self.pair is None or self.choice.language is None:
            st.markdown(
                ":small[:gray[There is no such model here. Train the models above, or choose the other "
                "weights.]]"
            )
            return False
        if problem := lacks(self.pair):
            st.markdown(f":small[:red[{plain(problem)}]]")
        return not problem

    def find(self, probe: Probe[R], **arguments: Any) -> R | None:
        """What a probe finds; None where it cannot be had, and the page says why."""
        return probes.attempt(st.empty(), probe, **arguments)

    def pressed(self, name: str, label: str, probe: Probe[R], **arguments: Any) -> R | None:
        """The same of a probe that takes its time: what it found when its button was last pressed."""
        asked = probes.pressed(label, self.settings.key(name), arguments, probe.seconds)
        probes.outdated(asked, arguments)
        return None if asked is None else self.find(probe, **asked)

    def whose(self) -> None:
        """Whose model it is."""
        if self.model:
            st.caption(f"Weights: {plain(self.model.whose)}.")
