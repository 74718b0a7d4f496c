"""Which trained model the page on induction looks into, and its heads as people write them."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import streamlit as st

from engine.chapter.experiments import EXPERIMENTS
from engine.chapter.language_experiments import INDUCTION
from engine.circuits.results import Head
from engine.models.config import WITHOUT_HEADS
from engine.system import files
from engine.system.errors import InvalidInput
from lab import weights
from lab.bench import Sweep
from lab.settings import Setting
from lab.weights import YOURS, Opened, Weights
from lab.words import plain

FOUND = "found"  # stands for the head that has the role
NOTHING = ":gray[Train the two models above first]"


@dataclass(frozen=True)
class Subject:
    """A trained model.

    weights: of its end. run: the folder with weights kept over its steps, None where there are none.
    """

    weights: Weights
    run: Path | None


def subjects(sweep: Sweep, variant: str, whose: str) -> dict[int, Subject]:
    """The models of that kind, by seed. whose: as the switch says."""
    if whose == YOURS:
        yours = weights.trained(sweep, variant).items()
        kept = {seed: one.path.parent for seed, one in yours if files.kept_weights(one.path.parent)}
        return {seed: Subject(one, kept.get(seed)) for seed, one in yours}
    ready = weights.shipped(INDUCTION.id, variant)
    return {ready.seed: Subject(ready, None)} if ready else {}


class Chosen:
    """The model that is looked into, if there is one; a row of widgets chooses its kind, whose, its seed."""

    def __init__(self, sweep: Sweep, model: Setting[str], seed: Setting[int | None]) -> None:
        ready, own = weights.shipped(INDUCTION.id, model.value), weights.trained(sweep, model.value)
        usual, wanted = weights.usual(ready, list(own.values())), seed.value
        found = subjects(sweep, model.value, weights.switched(model.key, usual))
        if found and wanted not in found:
            seed.value = used = next(iter(found))
            if wanted is not None:
                there = ", ".join(map(str, found))
                st.markdown(
                    f":orange[There is no model of seed {wanted} here, only of {there}. Used: {used}.]"
                )
        with st.container(horizontal=True, vertical_alignment="bottom", key="instruments-subject"):
            model.draw()
            weights.switch(model.key, usual)
            if found:
                seed.draw(label="Seed", options=list(found), width=120)
        self._variant, self._subject = model.value, found[seed.value or 0] if found else None
        if self._subject:
            whose = plain(self._subject.weights.whose)
            st.caption(f"The next three sections are about this model: {whose}.")
        else:
            weights.missing(found)

    def opened(self) -> Opened:
        """It by its variant."""
        return {self._variant: self._subject.weights} if self._subject else {}

    def kept(self, _: Opened) -> dict[str, Any] | None:
        """Its run, whose weights were kept over the steps, for a probe; what is missing is said."""
        if self._subject and self._subject.run:
            return {"run": self._subject.run}
        only_the_end = "Of this model only the final weights are available. Train it above for its steps."
        st.markdown(f":small[{f':gray[{only_the_end}]' if self._subject else NOTHING}]")
        return None

    def ended(self, _: Opened) -> dict[str, Any] | None:
        """Its final weights, for a probe; what is missing is said."""
        if self._subject:
            return {"weights": self._subject.weights.path, "seed": self._subject.weights.seed}
        st.markdown(f":small[{NOTHING}]")
        return None


def text_models(key: str) -> Opened:
    """Models of Shakespeare that have heads, by title, as the switch says. key: of the switch."""
    ready, own = Opened(), Opened()
    for experiment_id, shown in EXPERIMENTS.items():
        for rung in () if shown.language else map(shown.variant, shown.weights):
            if rung.config.mixer not in WITHOUT_HEADS:
                if one := weights.shipped(experiment_id, rung.id):
                    ready.setdefault(rung.title, one)
                if one := weights.own(rung.config):
                    own.setdefault(rung.title, one)
    return own if weights.switch(key, weights.usual(ready, list(own.values()))) == YOURS else ready


def heads_in(text: str) -> list[str]:
    """Heads from the URL. Raises InvalidInput: when one is not written as a head."""
    heads = text.split(",") if text else []
    for head in heads:
        _check_head("heads", head)
    return list(dict.fromkeys(heads))


def head_or_found(name: str) -> Callable[[str], str]:
    """A parser of the setting that names a map's head, or leaves it to what was found."""

    def parse(text: str) -> str:
        if text != FOUND:
            _check_head(name, text, f"{FOUND}, or ")
        return text

    return parse


def _check_head(name: str, text: str, more: str = "") -> None:
    if not re.fullmatch(r"[1-9]\d?\.[1-9]\d?", text, re.ASCII):
        raise InvalidInput(f"{name} has {text!r}; allowed: {more}LAYER.HEAD, counted from 1, as in 1.3.")


def listed(heads: Sequence[Head]) -> str:
    """Heads in a sentence: "1.3", "1.1 and 1.3", "1.1, 1.2 and 1.3"."""
    names = [head.name for head in heads]
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
