"""Which weights a probe opens: one policy, one switch.

Shipped ones by default, for a model of the quick budget has not learned yet what a section shows; the
reader's own once they choose so, or have trained it at the chapter's budget.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import streamlit as st

from engine.chapter import reference
from engine.chapter.experiments import EXPERIMENTS, Experiment
from engine.data import corpus
from engine.models.config import ModelConfig
from engine.runs.store import Run, open_store
from lab.settings import hold
from lab.words import plain

if TYPE_CHECKING:
    from lab.bench import Sweep

SHIPPED, YOURS = "Shipped", "Yours"


@dataclass(frozen=True)
class Weights:
    """A trained model. path: its checkpoint. whose: where it is from, its steps and seed, for people."""

    path: Path
    whose: str
    seed: int
    of_the_chapters_budget: bool = False
    run: Run | None = None


Opened = dict[str, Weights]  # by variant


def shipped(experiment_id: str, variant_id: str) -> Weights | None:
    """The shipped model of a variant, of a typical seed; None where none is."""
    found = shipped_by_seed(experiment_id, variant_id)
    typical = EXPERIMENTS[experiment_id].typical.get(variant_id)
    return found[typical] if typical in found else next(iter(found.values()), None)


def shipped_by_seed(experiment_id: str, variant_id: str) -> dict[int, Weights]:
    """Every shipped model of a variant."""
    experiment, found = EXPERIMENTS[experiment_id], dict[int, Weights]()
    steps = experiment.budget("chapter", variant_id).steps
    for seed in experiment.shipped_seeds(variant_id):
        if path := reference.weights(experiment_id, variant_id, seed):
            whose = f"shipped, {steps:,} steps, seed {seed}"
            found[seed] = Weights(path, whose, seed, of_the_chapters_budget=True)
    return found


def of_run(run: Run) -> Weights | None:
    """The model at the end of a finished run, None where it left none."""
    path = open_store().directory(run.id) / "checkpoint.safetensors"
    if run.state != "done" or not path.exists():
        return None
    spec = run.spec
    whose = f"yours, run #{run.id}, {spec.budget.steps:,} steps, seed {spec.seed}"
    return Weights(path, whose, spec.seed, spec.budget_name == "chapter", run)


def own(config: ModelConfig, *, any_text: bool = False) -> Weights | None:
    """The newest model of that configuration that the reader trained from its start, on Tiny Shakespeare.

    any_text: on whatever text. One that went on from another run's weights is another model.
    """
    for run in reversed(open_store().runs(states=["done"])):
        spec = run.spec
        of_the_text = any_text or spec.corpus_sha256 == corpus.TINYSHAKESPEARE_SHA256
        if of_the_text and spec.config == config and not spec.start_from and (found := of_run(run)):
            return found
    return None


def trained(sweep: "Sweep", variant: str) -> dict[int, Weights]:
    """The reader's models of that kind in a sweep, by seed."""
    runs = (run for digest, run in sweep.measured.items() if sweep.wanted[digest].variant == variant)
    found = {one.seed: one for run in runs if (one := of_run(run))}
    return dict(sorted(found.items()))


def usual(shipped: object, own: Sequence[Weights]) -> str:
    """Which of the two is opened unless the reader says otherwise."""
    return YOURS if own and (not shipped or any(one.of_the_chapters_budget for one in own)) else SHIPPED


def switched(key: str, usual: str) -> str:
    """What the switch of a probe says. Once what is usual changes it is set to that anew."""
    return str(st.session_state.get(_name(key, usual)) or usual)


def switch(key: str, usual: str) -> str:
    """The same, and the switch itself."""
    name = _name(key, usual)
    hold(name, usual)
    st.segmented_control("Weights", (SHIPPED, YOURS), key=name, required=True)
    return switched(key, usual)


def _name(key: str, usual: str) -> str:
    return f"{key}.weights.{usual.lower()}"


def chosen(key: str, experiment: Experiment, variants: Sequence[str]) -> Opened:
    """The models of a probe by variant, as its switch says; without those that there are none of."""
    yours = {name: found for name in variants if (found := own(experiment.variant(name).config))}
    ready = {name: found for name in variants if (found := shipped(experiment.id, name))}
    return yours if switch(key, usual(ready, list(yours.values()))) == YOURS else ready


def missing(found: object, what: str = "model") -> None:
    """What to do where there are no weights of the chosen kind."""
    if not found:
        st.markdown(f"There is no trained {what} here. Train it above, or choose the other weights.")


def needed(opened: Opened) -> dict[str, Any] | None:
    """The models as a probe takes them; None where there are none, which is said."""
    missing(opened)
    return {"weights": paths(opened)} if opened else None


def paths(opened: Opened) -> dict[str, Path]:
    """Their checkpoints."""
    return {name: one.path for name, one in opened.items()}


def whose(found: Opened) -> str:
    """Where the weights of several models come from, in one line."""
    said = {name: one.whose for name, one in found.items()}
    if len(set(said.values())) == 1:
        return f"Weights: {plain(next(iter(said.values())))}."
    return f"Weights: {'; '.join(f'{plain(name)}: {plain(text)}' for name, text in said.items())}."
