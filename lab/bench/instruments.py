"""The row of instruments above a figure: guesses, settings, the one button. It writes to the store only."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import streamlit as st

from engine.chapter.experiments import Experiment, parse_seeds
from engine.data import corpus
from engine.runs.store import Run
from lab.bench.sweep import Sweep
from lab.settings import Settings, one_of, user
from lab.words import count, plain

NAMES = ("budget", "seeds", "text", "best", "worst")
UPLOAD, OWN = "upload", "own"
SEEDS = {"0": "1", "0,1,2": "3", "0,1,2,3,4": "5"}
HALF, BUTTON = 544, 160  # px
ERROR = "instruments.error"


@dataclass(frozen=True)
class Choice:
    """What the reader chose to measure.

    seeds: empty while the reader's own are still to be typed; corpus_id: None while a text is to be brought.
    """

    budget: str
    seeds: tuple[int, ...]
    corpus_id: str | None

    @property
    def lacks(self) -> str:
        """What is to be given before anything can be trained."""
        return ("" if self.seeds else "Type your seeds first") or (
            "" if self.corpus_id else "Bring a text first"
        )


def choose(experiment: Experiment, settings: Settings) -> tuple[Choice, str | None]:
    """The settings row's values, from the URL or the widgets, and why the text is not the chapter's."""
    budget = settings.seed("budget", one_of("budget", tuple(experiment.budgets)), "quick")
    seeds = settings.seed("seeds", seeds_text, "0")
    default, why_not = corpus.present_corpus_id()
    allowed = [name for name, _ in corpus.listing()]
    text = settings.seed("text", one_of("text", [*allowed, UPLOAD]), default)
    chosen = () if seeds == OWN else parse_seeds(seeds)
    return Choice(budget, chosen, None if text == UPLOAD else text), why_not


def seeds_text(seeds: str) -> str:
    """Seeds as text, never as numbers: a browser would round the long ones."""
    return seeds if seeds == OWN else ",".join(map(str, parse_seeds(seeds)))


def guesses(experiment: Experiment, settings: Settings) -> None:
    with st.container(horizontal=True):
        for name, question in (
            ("best", "Before you train: which model will be best?"),
            ("worst", "And which will be worst?"),
        ):
            with st.container(width=HALF):
                st.pills(
                    question,
                    experiment.variants,
                    format_func=lambda name: plain(experiment.variant(name).short),
                    key=settings.key(name),
                )


def row(experiment: Experiment, settings: Settings) -> None:
    budget_and_seeds(experiment, settings)
    titles = {**dict(corpus.listing()), UPLOAD: "Your own text…"}
    st.selectbox(
        "Text",
        list(titles),
        format_func=lambda name: titles.get(name, name),
        key=settings.key("text"),
        width=190,
    )


def budget_and_seeds(experiment: Experiment, settings: Settings) -> None:
    """What every row has, whatever it trains on."""
    st.segmented_control(
        "Budget",
        list(experiment.budgets),
        format_func=str.capitalize,
        key=settings.key("budget"),
        required=True,
    )
    chosen = st.session_state[settings.key("seeds")]
    st.segmented_control(
        "Seeds",
        list(dict.fromkeys([*SEEDS, chosen, OWN])),
        format_func=_seeds_label,
        key=settings.key("seeds"),
        required=True,
    )
    if chosen == OWN:
        key = settings.key("own_seeds")
        st.text_input(
            "Your seeds",
            key=key,
            placeholder="7, 9",
            on_change=_accept,
            args=(key, settings.key("seeds"), lambda: seeds_text(st.session_state[key])),
            width=190,
        )


def _seeds_label(seeds: str) -> str:
    if seeds == OWN:
        return "…"
    return SEEDS.get(seeds) or f"seed{'s' if ',' in seeds else ''} {seeds.replace(',', ', ')}"


def action(
    sweep: Sweep, settings: Settings, label: str | None = None, name: str = "", width: int = BUTTON
) -> None:
    """The one button of a sweep: Train, Cancel or Resume, always in the same place.

    label: instead of "Train four models". name: of the sweep, where a page has another one beside.
    """
    interrupted = [run for run in sweep.runs if run.state == "interrupted"]
    if sweep.unended:
        st.button(
            "Cancel",
            on_click=_cancel,
            args=(sweep,),
            width=width,
            disabled=not _own(sweep),  # another reader's runs of the same settings: watched, not ended
            key=settings.key(f"{name}cancel"),
        )
    elif interrupted:
        st.button(
            "Resume",
            type="primary",
            on_click=_resume,
            args=(sweep,),
            width=width,
            key=settings.key(f"{name}resume"),
        )
    else:
        # A variant that is trained on two budgets is two models.
        models = {(spec.variant, spec.budget.steps) for spec in sweep.wanted.values()}
        st.button(
            label or f"Train {count(len(models) or len(sweep.experiment.variants))} models",
            type="primary",
            on_click=_train,
            args=(sweep,),
            width=width,
            disabled=not sweep.wanted,
            key=settings.key(f"{name}train"),
        )


def _train(sweep: Sweep) -> None:
    """Queue what is missing, or all of it once more when nothing is; a second click changes nothing."""
    with _told():
        now = sweep.again()
        if not now.unended:
            now.store.submit(now.missing or now.wanted.values(), user())


def _cancel(sweep: Sweep) -> None:
    with _told():
        for run in reversed(_own(sweep)):  # the last first, or a slot set free would start a queued one
            sweep.store.cancel(run.id)


def _own(sweep: Sweep) -> list[Run]:
    """The reader's own of the runs that wait or are carried out."""
    return [run for run in sweep.unended if run.user == user()]


def _resume(sweep: Sweep) -> None:
    with _told():
        for run in sweep.runs:
            if run.state == "interrupted":
                sweep.store.resume(run.id)
        sweep.store.submit(
            [spec for digest, spec in sweep.wanted.items() if digest not in sweep.newest], user()
        )


@contextmanager
def _told() -> Iterator[None]:
    """When the store cannot be written, the status line says so; no traceback."""
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        st.session_state[ERROR] = f"The list of runs cannot be written: {error}."


def wanting(settings: Settings, choice: Choice) -> None:
    """Below the row: the place for a text that is to be brought, and what was wrong with what was given."""
    if choice.corpus_id is None:
        key = settings.key("uploaded")
        st.file_uploader(
            "A text of yours, UTF-8, at most 20 MB",
            key=key,
            on_change=_accept,
            args=(key, settings.key("text"), lambda: _uploaded_id(key)),
            width=HALF,
        )
    for name in ("own_seeds",) * (not choice.seeds) + ("uploaded",) * (choice.corpus_id is None):
        if error := st.session_state.get(f"{settings.key(name)}.error"):
            st.markdown(f":red[{plain(error)}]")


def _accept(key: str, target: str, value: Callable[[], str]) -> None:
    """Make what was given the value of a setting, or keep the sentence that says what is wrong with it."""
    st.session_state.pop(f"{key}.error", None)
    if st.session_state[key]:
        try:
            st.session_state[target] = value()
        except ValueError as error:
            st.session_state[f"{key}.error"] = str(error)


def _uploaded_id(key: str) -> str:
    uploaded = st.session_state[key]
    return corpus.add_upload(uploaded.getvalue(), uploaded.name).id
