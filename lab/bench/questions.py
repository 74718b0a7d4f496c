"""What a page asks before it trains, and how the answers are told afterwards."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import streamlit as st

from engine.chapter.experiments import Experiment
from lab.bench.layout import HALF
from lab.bench.sweep import Row, Sweep, difference
from lab.settings import Setting, Settings
from lab.words import NBSP, plain

WAITING = "Your guesses are answered here when every model has ended."
NOTHING_YET = "No runs yet. Make your two guesses, then train."


@dataclass(frozen=True)
class Question:
    """A prediction that the reader makes.

    name: in the URL. options: what can be guessed, and how a sentence calls it. answer: what the figures of a
    sweep say, as a sentence; empty while they say nothing. It reads rows and curves only, so whoever has such
    rows of other runs can ask it about them.
    """

    name: str
    text: str
    options: Mapping[str, str]
    answer: Callable[[Sweep], str] = lambda now: ""

    def answered(self, now: Sweep, guess: str | None) -> str:
        """What was guessed, and what is so."""
        found = self.answer(now)
        return f"You guessed *{self.options[guess]}*. {found}" if found and guess else found


def ask(questions: Sequence[Question], settings: Settings) -> dict[str, Setting[str | None]]:
    """The questions, side by side. Returns the guesses by their names."""
    guesses = {}
    with st.container(horizontal=True):
        for one in questions:
            guess = settings.choice(one.name, one.text, one.options, None, widget="pills")
            with st.container(width=HALF):
                guess.draw()
            guesses[one.name] = guess
    return guesses


def best_and_worst(experiment: Experiment) -> tuple[Question, Question]:
    """Which variant ends lowest, and which highest."""
    options = {name: plain(experiment.variant(name).short) for name in experiment.variants}

    def answer(now: Sweep, name: str) -> str:
        order = sorted((row for row in now.rows() if row.mean is not None), key=lambda row: row.mean or 0.0)
        if len(order) < 2:
            return ""
        first, second = (order[0], order[1]) if name == "best" else (order[-1], order[-2])
        gap = difference(first, second)
        lead = f"level with {short(now, second)}"
        if gap and not gap.level:
            lead = f"by {gap.size()}"
        return f"The {name} is **{short(now, first)}**, {lead}."

    return (
        Question(
            "best", "Before you train: which model will be best?", options, lambda now: answer(now, "best")
        ),
        Question("worst", "And which will be worst?", options, lambda now: answer(now, "worst")),
    )


def left_out(now: Sweep) -> str:
    """Which variants have no figure because they diverged."""
    lost = [short(now, row) for row in now.rows() if row.mean is None and row.diverged]
    return f"Diverged, and left out here: {', '.join(lost)}." if lost else ""


def short(now: Sweep, row: Row) -> str:
    """A variant's short name in a sentence, never broken after its first sign."""
    return plain(now.experiment.variant(row.variant).short.replace("+ ", f"+{NBSP}"))
