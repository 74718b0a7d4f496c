"""Which trained model the page on induction looks into, and what ``engine.probes.induction`` finds there."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.chapter import reference
from engine.chapter.experiments import EXPERIMENTS
from engine.chapter.language_experiments import INDUCTION
from engine.models.config import WITHOUT_HEADS
from engine.system import files
from lab import probes
from lab.bench.sweep import Sweep

MODULE = "engine.probes.induction"
BUSY = "Measuring in a process of its own, some seconds"
FOUND = "found"  # stands for the head that has the role
PERIODS = (11, 12, 14)  # tokens before the repeat, of the sequence that is shown

Measured = dict[str, Any]
Head = tuple[int, int]  # layer and head, counted from 0


@dataclass(frozen=True)
class Subject:
    """A trained model.

    weights: of its end. run: the folder with weights kept over its steps, None where there are none.
    whose: where it is from, for people. seed: of its sequences.
    """

    weights: Path
    run: Path | None
    whose: str
    seed: int


def subjects(sweep: Sweep, variant: str) -> dict[int, Subject]:
    """The reader's models of that kind, by seed; without any, the shipped one."""
    found = {}
    for digest, run in sweep.measured.items():
        spec, folder = sweep.wanted[digest], sweep.store.directory(run.id)
        weights = folder / "checkpoint.safetensors"
        if spec.variant == variant and run.state == "done" and weights.exists():
            whose = f"yours, run #{run.id}, {spec.budget_name} budget, seed {spec.seed}"
            kept = folder if files.kept_weights(folder) else None
            found[spec.seed] = Subject(weights, kept, whose, spec.seed)
    if not found and (path := reference.weights(INDUCTION.id, variant)):
        seed = INDUCTION.seeds[0]
        found[seed] = Subject(path, None, f"shipped, seed {seed}", seed)
    return dict(sorted(found.items()))


def formation(subject: Subject) -> Measured:
    """The scores of every head over the kept steps.

    Raises ValueError: when it has kept none, or they cannot be measured; the message says why.
    """
    return probes.measured(MODULE, "formation", "--run", str(subject.run))


def maps(subject: Subject, period: int) -> Measured:
    """Every head's attention on one sequence over the kept steps. Raises ValueError: as ``formation``."""
    return probes.measured(MODULE, "maps", "--run", str(subject.run), "--period", str(period))


def ablation(subject: Subject, heads: str = "") -> Measured:
    """What is left without each head, or without these together. Raises ValueError: as ``formation``."""
    where = ("--weights", str(subject.weights), "--seed", str(subject.seed))
    return probes.measured(MODULE, "ablate", *where, *(("--heads", heads) if heads else ()))


def in_text(models: dict[str, tuple[Path, str]]) -> Measured:
    """The scores of models of Shakespeare. Raises ValueError: as ``formation``."""
    given = [part for name, (path, _) in models.items() for part in ("--model", f"{name}={path}")]
    return probes.measured(MODULE, "text", *given)


def text_models() -> dict[str, tuple[Path, str]]:
    """Models of Shakespeare that have heads: by title, the weights and whose they are.

    Those that are shipped, or trained by the reader in their place.
    """
    found: dict[str, tuple[Path, str]] = {}
    for experiment_id, shown in EXPERIMENTS.items():
        for name in () if shown.language else shown.weights:
            rung = shown.variant(name)
            has_heads = rung.config.mixer not in WITHOUT_HEADS
            if has_heads and (weights := probes.weights(experiment_id, name)):
                found.setdefault(rung.title, weights)
    return found


def period_in(text: str) -> int:
    """From the URL. Raises ValueError: when the page offers no such period."""
    if text not in map(str, PERIODS):
        raise ValueError(f"period is {text!r}; allowed: {', '.join(map(str, PERIODS))}.")
    return int(text)


def heads_in(text: str) -> list[str]:
    """Heads from the URL. Raises ValueError: when one is not written as a head."""
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
        raise ValueError(f"{name} has {text!r}; allowed: {more}LAYER.HEAD, counted from 1, as in 1.3.")


def head_name(head: Head | list[int]) -> str:
    """A head as people write it, layer and head counted from 1: "1.3"."""
    layer, number = head
    return f"{layer + 1}.{number + 1}"


def head_names(measured_scores: list[list[float]]) -> list[str]:
    """Every head of a model, by its scores."""
    return [head_name((layer, head)) for layer, row in enumerate(measured_scores) for head in range(len(row))]


def listed(heads: list[list[int]]) -> str:
    """Heads in a sentence: "1.3", "1.1 and 1.3", "1.1, 1.2 and 1.3"."""
    names = [head_name(head) for head in heads]
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
