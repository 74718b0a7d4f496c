"""What a reader of the Winograd page chooses: the version, its words, budget, seeds, steps; and its sweep."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import streamlit as st

from engine.chapter.definitions import Experiment
from engine.chapter.language_experiments import WINOGRAD_CLOSED, WINOGRAD_OPEN
from engine.data.languages import shelf
from engine.data.languages.winograd import CLOSED, OPEN, Winograd
from engine.runs import launch
from engine.runs.spec import RunSpec
from engine.system.errors import InvalidInput, LabError
from lab.bench import HALF, Request, Setup
from lab.settings import Settings
from lab.shell import frame
from lab.words import plain

VERSIONS = {"closed": "Closed", "open": "Open", "yours": "Yours"}
BUILT_IN = {"closed": CLOSED, "open": OPEN}
# By setting: the label of a list of words, and what it says beside.
LISTS = {
    "nouns": ("Nouns of x and y", "with places: of x alone"),
    "places": ("Places, for y", "empty: one pool"),
    "crosser": ("Adjectives of x, who crosses", "tired -> x"),
    "crossed": ("Adjectives of y, which is crossed", "wet -> y"),
}
LEAST_STEPS, MOST_STEPS = 10, 20_000


@dataclass(frozen=True, kw_only=True)
class WinogradRequest(Request):
    """What is to be trained on which words. language: None where the reader's own make none.

    steps: of every model, in place of the budget's; None keeps those.
    """

    version: str
    language: Winograd | None
    steps: int | None

    @property
    def experiment(self) -> Experiment:
        """The table that these models stand in."""
        closed = self.language is None or self.language.closed
        return WINOGRAD_CLOSED if closed else WINOGRAD_OPEN

    @property
    def built_in(self) -> bool:
        """As ``Request``."""
        return self.language in BUILT_IN.values()

    @property
    def as_the_chapter(self) -> bool:
        """Whether a difference from the chapter can be judged."""
        return self.built_in and self.budget == "chapter" and self.steps is None

    def steps_of(self, variant: str) -> int:
        """How long a model is trained."""
        return self.steps or self.experiment.budget(self.budget, variant).steps

    def specs(
        self, experiment: Experiment, seeds: Sequence[int], variants: Sequence[str] | None = None
    ) -> list[RunSpec]:
        """The runs. Raises InvalidInput: without a language; OSError: when its words cannot be kept."""
        if self.language is None:
            raise InvalidInput(self.refusal)
        found = launch.specs(experiment.id, self.budget, seeds, shelf.keep(self.language), variants)
        return [_of_steps(spec, self.steps) for spec in found]


class WinogradSetup(Setup):
    """Version and words beside budget and seeds. request: what they ask for now."""

    request: WinogradRequest

    def __init__(self, settings: Settings) -> None:
        super().__init__(WINOGRAD_CLOSED, settings)
        self._version = settings.choice("version", "Version", VERSIONS, "closed")
        self._words = {
            name: settings.text(name, f"{label} :gray[{plain(note)}]", _listed(CLOSED, name), lines=2)
            for name, (label, note) in LISTS.items()
        }
        self._held = settings.whole("held", "Pairs held out, %", 1, 100, 100)
        self._steps = settings.whole("steps", "Steps of every model", LEAST_STEPS, MOST_STEPS, None)
        language, refusal = BUILT_IN.get(self._version.value), ""
        if language is None:
            try:
                language = self._own()
            except LabError as error:
                refusal = str(error)[:1].upper() + str(error)[1:]
        asked = self.request
        self.request = WinogradRequest(
            budget=asked.budget, seeds=asked.seeds, corpus_id=WINOGRAD_CLOSED.language, refusal=refusal,
            version=self._version.value, language=language, steps=self._steps.value,
        )  # fmt: skip

    def _own(self) -> Winograd:
        """The reader's language. Raises InvalidInput: as ``Winograd``."""
        lists = {
            name: tuple(re.findall(r"[^\s,;]+", text.value.lower())) for name, text in self._words.items()
        }
        return Winograd(**lists, held_out_share=self._held.value / 100)

    def draw(self) -> None:
        """The widgets of the row."""
        self._version.draw()
        super().draw()

    def draw_words(self) -> None:
        """The sentence, its words, editable when they are the reader's, and the steps."""
        request, own = self.request, self.request.version == "yours"
        st.markdown(
            "Closed: x and y come from one pool of nouns, so only their order tells them apart. Open: x is "
            "an animal and y a place, so the class of a noun is enough.",
            width=frame.MEASURE,
        )
        sentence = "the {x} did not cross the {y} because it was too {adj} , so the {ref} waited ."
        st.code(sentence, language=None)
        with st.container(horizontal=True):
            for name, (label, _) in LISTS.items():
                with st.container(width=HALF):
                    if own or request.language is None:
                        self._words[name].draw()
                    else:
                        listed = _listed(request.language, name) or "none: y is drawn from the nouns"
                        st.markdown(f":small[**{label}**  \n{plain(listed)}]")
            self._steps.draw(step=10, placeholder="as the budget says", width=200)
            if own:
                self._held.draw(step=5, width=200)
        if request.refusal:
            st.markdown(f":red[{plain(request.refusal)}]")
        if request.language:
            st.caption(_sizes(request.language, request.seeds))


def _of_steps(spec: RunSpec, steps: int | None) -> RunSpec:
    """The run with other steps than its budget's, looked at as often."""
    if steps is None:
        return spec
    budget = spec.budget
    every = {
        name: max(1, round(getattr(budget, name) * steps / budget.steps))
        for name in ("evaluate_every", "checkpoint_every")
    }
    return replace(spec, budget=replace(budget, steps=steps, **every))


def _listed(language: Winograd, name: str) -> str:
    return " ".join(getattr(language, name))


def _sizes(language: Winograd, seeds: tuple[int, ...]) -> str:
    split = language.split(seeds[0] if seeds else 0)
    trained, held = (len(language.adjectives) * len(pairs) for pairs in (split.train, split.held_out))
    why = "no held-out pair of animal and place is trained on"
    if language.closed:
        why = "each held-out pair of nouns is trained on in its reverse order only"
    return (
        f"{len(language.words)} words; {trained:,} sentences to train on and {held:,} held out, and "
        f"{why}. Training is on every next word; scored is the one after “so the”. A link to this page holds "
        f"all of it."
    )
