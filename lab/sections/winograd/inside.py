"""One trained model and two sentences, and the rows of buttons that ask what goes on inside."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import streamlit as st

from engine.chapter.language_experiments import WINOGRAD_CLOSED
from lab import probes
from lab.sections.winograd.probe import Looked, Measured, Pair, measure
from lab.sections.winograd.setup import Choice
from lab.settings import Settings
from lab.shell.palette import Palette
from lab.words import plain

if TYPE_CHECKING:
    from pandas.io.formats.style import Styler
    from streamlit.delta_generator import DeltaGenerator

STATUS_WIDTH = 560  # px: with whose model it is
BUSY = "Measuring in a process of its own, some seconds"
WITHOUT_SENTENCES = ("circuit", "score")  # what is asked of the held-out sentences alone


@dataclass(frozen=True)
class Inside:
    """What the sections below the training are about.

    looked: None where no such model is trained or shipped; pair: None where there is no language.
    """

    settings: Settings
    choice: Choice
    variant: str
    looked: Looked | None
    pair: Pair | None
    colors: Palette

    @property
    def blocks(self) -> int:
        """Of the model."""
        return WINOGRAD_CLOSED.variant(self.variant).config.n_layer

    def state(self, name: str) -> str:
        """A setting's value now."""
        return str(st.session_state[self.settings.key(name)])

    def ask(self, name: str, label: str, what: str) -> Measured | None:
        """A row of one button; what the probe finds once it was pressed."""
        with st.container(horizontal=True, vertical_alignment="bottom", key=f"instruments-{name}"):
            asked = probes.button(label, self.settings.key(name))
            with st.container(width=STATUS_WIDTH):
                said = st.empty()
        return self.find(said, asked, what)

    def find(self, said: "DeltaGenerator", asked: bool, what: str, *more: str) -> Measured | None:
        """What the probe finds of this model and sentences; None, and in ``said`` why, where it cannot."""
        looked, pair, language = self.looked, self.pair, self.choice.language
        if looked is None or pair is None or language is None:
            said.markdown(
                ":small[:gray[No such model is trained here or shipped. Train the models above first.]]"
            )
            return None
        if pair.lacks:
            said.markdown(f":small[:red[{plain(pair.lacks)}]]")
            return None
        if not asked:
            said.markdown(f":small[:gray[Takes a few seconds. Model: {plain(looked.whose)}]]")
            return None
        of_pair = None if what in WITHOUT_SENTENCES else pair
        found = probes.attempt(said, BUSY, lambda: measure(what, looked, language, of_pair, *more))
        if found is not None:
            told = f"Measured in {found['seconds']:.1f} s:gray[; model: {plain(looked.whose)}]"
            said.markdown(f":small[:green[{told}]]")
        return found


def table(styler: "Styler") -> None:
    """A table of the lab."""
    st.table(styler, border="horizontal", hide_index=True)
