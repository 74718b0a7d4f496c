"""Which trained model the page on induction looks into, and its heads as people write them."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from engine.chapter.experiments import EXPERIMENTS
from engine.chapter.language_experiments import INDUCTION
from engine.models.config import WITHOUT_HEADS
from engine.system import files
from engine.system.errors import InvalidInput
from lab import weights
from lab.bench import Sweep
from lab.weights import YOURS, Weights

FOUND = "found"  # stands for the head that has the role
PERIODS = (11, 12, 14)  # tokens before the repeat, of the sequence that is shown


@dataclass(frozen=True)
class Subject:
    """A trained model.

    weights: of its end. run: the folder with weights kept over its steps, None where there are none.
    """

    weights: Weights
    run: Path | None


def yours(sweep: Sweep, variant: str) -> dict[int, Weights]:
    """The reader's models of that kind, by seed."""
    runs = [run for digest, run in sweep.measured.items() if sweep.wanted[digest].variant == variant]
    found = {one.seed: one for run in runs if (one := weights.of_run(run))}
    return dict(sorted(found.items()))


def usual(sweep: Sweep, variant: str) -> str:
    """Whose model is looked into unless the reader says otherwise."""
    return weights.usual(weights.shipped(INDUCTION.id, variant), list(yours(sweep, variant).values()))


def subjects(sweep: Sweep, variant: str, whose: str) -> dict[int, Subject]:
    """The models of that kind, by seed. whose: as the switch says."""
    if whose == YOURS:
        return {seed: Subject(one, _kept(one)) for seed, one in yours(sweep, variant).items()}
    ready = weights.shipped(INDUCTION.id, variant)
    return {ready.seed: Subject(ready, None)} if ready else {}


def _kept(one: Weights) -> Path | None:
    folder = one.path.parent
    return folder if files.kept_weights(folder) else None


def text_models(key: str) -> dict[str, Weights]:
    """Models of Shakespeare that have heads, by title, as the switch says. key: of the switch."""
    ready, own = dict[str, Weights](), dict[str, Weights]()
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


def head_name(head: Sequence[int]) -> str:
    """A head as people write it, layer and head counted from 1: "1.3"."""
    layer, number = head
    return f"{layer + 1}.{number + 1}"


def head_names(measured_scores: list[list[float]]) -> list[str]:
    """Every head of a model, by its scores."""
    return [head_name((layer, head)) for layer, row in enumerate(measured_scores) for head in range(len(row))]


def listed(heads: Sequence[Sequence[int]]) -> str:
    """Heads in a sentence: "1.3", "1.1 and 1.3", "1.1, 1.2 and 1.3"."""
    names = [head_name(head) for head in heads]
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
