"""What a reader of the Winograd page chooses: the version, its words, budget, seeds, steps; and its sweep."""

import re
from dataclasses import dataclass, replace

import streamlit as st

from engine.chapter.definitions import Experiment
from engine.chapter.experiments import parse_seeds
from engine.chapter.language_experiments import WINOGRAD_CLOSED, WINOGRAD_OPEN
from engine.data.languages import shelf
from engine.data.languages.winograd import CLOSED, OPEN, Winograd
from engine.runs import launch
from engine.runs.spec import RunSpec
from engine.runs.store import open_store
from lab.bench import instruments
from lab.bench.sweep import Sweep
from lab.settings import MAX_VALUE, Settings, one_of, whole
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
NAMES = ("version", *LISTS, "held", "budget", "seeds", "steps")
LEAST_STEPS, MOST_STEPS = 10, 20_000
BUDGETS = tuple(WINOGRAD_CLOSED.budgets)


@dataclass(frozen=True)
class Choice:
    """What is to be trained. language: None where the reader's own words make none; ``refusal`` says why.

    steps: of every model, in place of the budget's; None keeps those.
    """

    version: str
    language: Winograd | None
    refusal: str
    budget: str
    seeds: tuple[int, ...]
    steps: int | None

    @property
    def experiment(self) -> Experiment:
        """The table that these models stand in."""
        closed = self.language is None or self.language.closed
        return WINOGRAD_CLOSED if closed else WINOGRAD_OPEN

    @property
    def as_the_chapter(self) -> bool:
        """Whether the language is one that the chapter printed figures of."""
        return self.language in BUILT_IN.values()

    @property
    def comparable(self) -> bool:
        """Whether a difference from the chapter can be judged."""
        return self.as_the_chapter and self.budget == "chapter" and self.steps is None

    def steps_of(self, variant: str) -> int:
        """How long a model is trained."""
        return self.steps or self.experiment.budget(self.budget, variant).steps


def choose(settings: Settings) -> Choice:
    """The settings as they stand, from the URL or the widgets."""
    version = settings.seed("version", one_of("version", tuple(VERSIONS)), "closed")
    budget = settings.seed("budget", one_of("budget", BUDGETS), "quick")
    seeds = settings.seed("seeds", instruments.seeds_text, "0")
    steps = settings.seed("steps", whole("steps", LEAST_STEPS, MOST_STEPS), None)
    words = {name: settings.seed(name, str, " ".join(getattr(CLOSED, name))) for name in LISTS}
    held = settings.seed("held", whole("held", 1, 100), 100)
    language, refusal = BUILT_IN.get(version), ""
    if version == "yours":
        try:
            language = _own(words, held / 100)
        except ValueError as error:
            refusal = str(error)
    chosen = () if seeds == instruments.OWN else parse_seeds(seeds)
    return Choice(version, language, refusal, budget, chosen, steps)


def _own(words: dict[str, str], share: float) -> Winograd:
    """The reader's language. Raises ValueError: as ``Winograd``."""
    lists = {name: tuple(re.findall(r"[^\s,;]+", text.lower())) for name, text in words.items()}
    return Winograd(**lists, held_out_share=share)


def asked(choice: Choice) -> tuple[Sweep, str | None]:
    """The sweep of these settings, and the sentence that says why there can be none."""
    experiment, store = choice.experiment, open_store()
    nothing = Sweep(experiment, {}, store)
    if choice.language is None:
        return nothing, f":red[{plain(choice.refusal[:1].upper() + choice.refusal[1:])}]"
    if not choice.seeds:
        return nothing, ":gray[Type your seeds first]"
    try:
        return Sweep.of(experiment, specs(choice, choice.seeds), store), None
    except (ValueError, OSError) as error:
        return nothing, f":red[{plain(str(error))}]"


def specs(choice: Choice, seeds: tuple[int, ...], variants: tuple[str, ...] = ()) -> list[RunSpec]:
    """The runs of a choice. variants: some of the table's; all by default.

    Raises ValueError: when there is no language; OSError: when the words cannot be kept for the runs.
    """
    if choice.language is None:
        raise ValueError(choice.refusal)
    found = launch.specs(
        choice.experiment.id, choice.budget, seeds, shelf.keep(choice.language), variants or None
    )
    return [_of_steps(spec, choice.steps) for spec in found]


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


def row(settings: Settings) -> None:
    """Version, budget and seeds."""
    st.segmented_control(
        "Version",
        list(VERSIONS),
        format_func=VERSIONS.__getitem__,
        key=settings.key("version"),
        required=True,
    )
    instruments.budget_and_seeds(WINOGRAD_CLOSED, settings)


def words(settings: Settings, choice: Choice) -> None:
    """The sentence, its words, editable when they are the reader's, and the steps."""
    st.markdown(
        "Closed: x and y come from one pool of nouns, so only their order tells them apart. Open: x is an "
        "animal and y a place, so the class of a noun is enough.",
        width=frame.MEASURE,
    )
    st.code("the {x} did not cross the {y} because it was too {adj} , so the {ref} waited .", language=None)
    own = choice.version == "yours"
    shown = choice.language if choice.language and not own else None
    with st.container(horizontal=True):
        for name, (label, note) in LISTS.items():
            with st.container(width=instruments.HALF):
                if shown:
                    listed = " ".join(getattr(shown, name)) or "none: y is drawn from the nouns"
                    st.markdown(f":small[**{label}**  \n{plain(listed)}]")
                else:
                    st.text_area(
                        f"{label} :gray[{plain(note)}]",
                        key=settings.key(name),
                        max_chars=MAX_VALUE,
                        height=80,
                    )
        st.number_input(
            "Steps of every model",
            LEAST_STEPS,
            MOST_STEPS,
            value=None,
            step=10,
            placeholder="as the budget says",
            key=settings.key("steps"),
            width=200,
        )
        if own:
            st.number_input("Pairs held out, %", 1, 100, step=5, key=settings.key("held"), width=200)
    if choice.refusal:
        st.markdown(f":red[{plain(choice.refusal[:1].upper() + choice.refusal[1:])}]")
    if choice.language:
        st.caption(" ".join(_sizes(choice.language, choice.seeds)))


def _sizes(language: Winograd, seeds: tuple[int, ...]) -> list[str]:
    split = language.split(seeds[0] if seeds else 0)
    adjectives = len(language.adjectives)
    trained, held = (adjectives * len(pairs) for pairs in (split.train, split.held_out))
    why = (
        "each held-out pair of nouns is trained on in its reverse order only"
        if language.closed
        else "no held-out pair of animal and place is trained on"
    )
    return [
        f"{len(language.words)} words; {trained:,} sentences to train on and {held:,} held out, and "
        f"{why}. Training is on every next word; scored is the one after “so the”.",
        "A link to this page holds all of it.",
    ]


def in_options(settings: Settings, name: str, options: tuple[str, ...], default: str) -> str:
    """A setting whose options may have changed since it was chosen: then it is the default again."""
    value = settings.seed(name, one_of(name, options), default)
    if value not in options:
        st.session_state[settings.key(name)] = value = default
        st.query_params[name] = default
    return value
