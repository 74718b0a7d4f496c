"""What a reader asks to be trained: budget, seeds and text, and the widgets that these are chosen with."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import streamlit as st

from engine.chapter.budget import Budget
from engine.chapter.experiments import Experiment, parse_seeds
from engine.data import corpus
from engine.runs import launch
from engine.runs.spec import RunSpec
from engine.system.errors import LabError
from lab.bench.layout import HALF
from lab.settings import Settings, one_of
from lab.words import plain

UPLOAD, OWN = "upload", "own"
SEEDS = {"0": "1", "0,1,2": "3", "0,1,2,3,4": "5"}


@dataclass(frozen=True)
class Request:
    """What is to be trained.

    seeds: empty while the reader's own are still to be typed; corpus_id: the text, None while one is to be
    brought. refusal: why nothing can be trained with these settings.
    """

    budget: str = "quick"
    seeds: tuple[int, ...] = (0,)
    corpus_id: str | None = None
    refusal: str = ""

    @property
    def missing_input(self) -> str:
        """What is to be given before anything can be trained."""
        return ("" if self.seeds else "Type your seeds first") or (
            "" if self.corpus_id else "Bring a text first"
        )

    @property
    def built_in(self) -> bool:
        """Whether it trains on a language that the chapter printed figures of, where it is one."""
        return True

    @property
    def as_the_chapter(self) -> bool:
        """Whether it trains as the chapter did, so that a difference can be judged."""
        return self.budget == "chapter"

    def with_budget(self, budget: str) -> "Request":
        """The same at another budget."""
        return replace(self, budget=budget)

    def specs(
        self, experiment: Experiment, seeds: Sequence[int], variants: Sequence[str] | None = None
    ) -> list[RunSpec]:
        """The runs of an experiment on this text, seed by seed. variants: some of its; all by default.

        Raises ValueError: when the text cannot be had.
        """
        assert self.corpus_id is not None
        return launch.specs(experiment.id, self.budget, seeds, self.corpus_id, variants)


def in_words(budget: Budget) -> str:
    """What a budget trains: "120 steps of 4 × 64 tokens at learning rate 0.001"."""
    return (
        f"{budget.steps:,} steps of {budget.batch_size} × {budget.context_length} tokens at learning rate "
        f"{budget.learning_rate:g}"
    )


class Setup:
    """The widgets of budget, seeds and, where an experiment has no language of its own, text.

    request: what they ask for now.
    """

    def __init__(self, experiment: Experiment, settings: Settings) -> None:
        self.experiment = experiment
        self.settings = settings
        self._budget = settings.choice(
            "budget", "Budget", tuple(map(str, experiment.budgets)), "quick", shown=str.capitalize
        )
        self._seeds = settings.value("seeds", seeds_text, "0")
        text: str | None = experiment.language
        if not experiment.language:
            default, instead = corpus.present_corpus_id()
            if instead:
                settings.notices["instead"] = instead
            allowed = [name for name, _ in corpus.listing()]
            chosen = settings.value("text", one_of("text", [*allowed, UPLOAD]), default).value
            text = None if chosen == UPLOAD else chosen
        seeds = () if self._seeds.value == OWN else parse_seeds(self._seeds.value)
        self.request = Request(self._budget.value, seeds, text)

    def draw(self) -> None:
        """The widgets, in the row that this is called in."""
        self._budget.draw()
        self._draw_seeds()
        if not self.experiment.language:
            titles = {**dict(corpus.listing()), UPLOAD: "Your own text…"}
            st.selectbox(
                "Text",
                list(titles),
                format_func=lambda name: titles.get(name, name),
                key=self.settings.key("text"),
                width=190,
            )

    def _draw_seeds(self) -> None:
        key, chosen = self._seeds.key, self._seeds.value
        st.segmented_control(
            "Seeds",
            list(dict.fromkeys([*SEEDS, chosen, OWN])),
            format_func=_seeds_label,
            key=key,
            required=True,
        )
        if chosen == OWN:
            own = self.settings.key("own_seeds")
            st.text_input(
                "Your seeds",
                key=own,
                placeholder="7, 9",
                on_change=_accept,
                args=(own, key, lambda: seeds_text(st.session_state[own])),
                width=190,
            )

    def draw_missing(self) -> None:
        """Below the row: the place for a text to be brought, and what was wrong with what was given."""
        given = []
        if not self.request.seeds:
            given.append("own_seeds")
        if self.request.corpus_id is None:
            given.append("uploaded")
            key = self.settings.key("uploaded")
            st.file_uploader(
                "A text of yours, UTF-8, at most 20 MB",
                key=key,
                on_change=_accept,
                args=(key, self.settings.key("text"), lambda: _uploaded_id(key)),
                width=HALF,
            )
        for name in given:
            if error := st.session_state.get(f"{self.settings.key(name)}.error"):
                st.markdown(f":red[{plain(error)}]")


def seeds_text(seeds: str) -> str:
    """Seeds as text, never as numbers: a browser would round the long ones."""
    return seeds if seeds == OWN else ",".join(map(str, parse_seeds(seeds)))


def _seeds_label(seeds: str) -> str:
    if seeds == OWN:
        return "…"
    return SEEDS.get(seeds) or f"seed{'s' if ',' in seeds else ''} {seeds.replace(',', ', ')}"


def _accept(key: str, target: str, value: Callable[[], str]) -> None:
    """Make what was given the value of a setting, or keep the sentence that says what is wrong with it."""
    st.session_state.pop(f"{key}.error", None)
    if st.session_state[key]:
        try:
            st.session_state[target] = value()
        except LabError as error:
            st.session_state[f"{key}.error"] = str(error)


def _uploaded_id(key: str) -> str:
    uploaded = st.session_state[key]
    return corpus.add_upload(uploaded.getvalue(), uploaded.name).id
