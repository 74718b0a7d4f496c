"""From an experiment's definition to the runs of one sweep. Imports no torch."""

from collections.abc import Sequence
from dataclasses import replace

from engine.chapter.experiments import BREAKING, RESCUE, Experiment, experiment
from engine.chapter.measurements import Measurement
from engine.chapter.variants import UNDIVIDED
from engine.data import corpus
from engine.data.languages import shelf
from engine.models.config import ModelConfig
from engine.runs.spec import RunSpec
from engine.system.errors import InvalidInput

OWN = "own"  # stands for a variant in runs of a configuration that is none


def specs(
    experiment_id: str,
    budget_name: str,
    seeds: Sequence[int],
    corpus_id: str,
    variants: Sequence[str] | None = None,
) -> list[RunSpec]:
    """The runs of a sweep, seed by seed, so that a first whole comparison is there early.

    corpus_id: of a text, or of a language for an experiment that has one.
    Raises InvalidInput: when a name is unknown, a variant is none of the experiment's, or the corpus is of
        another kind than it trains on; CorpusError: when the text cannot be had.
    """
    return _specs(check_names(experiment_id, budget_name, variants), budget_name, seeds, corpus_id, variants)


def own(experiment_id: str, config: ModelConfig, budget_name: str, seed: int, corpus_id: str) -> RunSpec:
    """A run of a configuration of the reader's own, beside an experiment's variants.

    Raises InvalidInput: when the experiment or budget is unknown, or the corpus is of another kind than it
        trains on; CorpusError: when the text cannot be had.
    """
    chosen = experiment(experiment_id)
    (spec,) = _specs(chosen, budget_name, (seed,), corpus_id, chosen.variants[:1])
    return replace(spec, variant=OWN, config=config, budget=chosen.budget(budget_name))


def breaking(seeds: Sequence[int], corpus_id: str, settings: Sequence[tuple[int, float]]) -> list[RunSpec]:
    """Post-norm runs of other warmups and learning rates than the table's.

    settings: (warmup in steps, learning rate).
    Raises InvalidInput: when a number is out of range; CorpusError: when the text cannot be had.
    """
    return [
        replace(spec, budget=replace(spec.budget, warmup_steps=warmup, learning_rate=rate))
        for spec in _specs(BREAKING, "quick", seeds, corpus_id)
        for warmup, rate in settings
    ]


def _specs(
    chosen: Experiment,
    budget_name: str,
    seeds: Sequence[int],
    corpus_id: str,
    variants: Sequence[str] | None = None,
) -> list[RunSpec]:
    sha256 = source_sha256(chosen, corpus_id)
    return [
        RunSpec(
            experiment=chosen.id,
            variant=name,
            budget_name=budget_name,
            config=config_of(chosen, name, corpus_id),
            budget=chosen.budget(budget_name, name),
            corpus=corpus_id,
            corpus_sha256=sha256,
            seed=seed,
        )
        for seed in seeds
        for name in variants or chosen.variants
    ]


def rescue(run_id: int, collapsed: RunSpec) -> RunSpec:
    """The run that puts the division back into a finished undivided one and trains on, for as long again.

    Raises InvalidInput: when that run's scores were not undivided.
    """
    divided = next((one for one in RESCUE.models if UNDIVIDED[one.id].id == collapsed.variant), None)
    if collapsed.config.score_scale != "none" or divided is None:
        raise InvalidInput(
            f"run #{run_id} is {collapsed.variant}; allowed: an undivided head of the widths in {RESCUE.id}."
        )
    return collapsed.fork(
        run_id, experiment=RESCUE.id, variant=divided.id, config=replace(collapsed.config, score_scale="sqrt")
    )


def config_of(chosen: Experiment, variant_id: str, corpus_id: str) -> ModelConfig:
    """A variant's configuration on that corpus: an edited language may have more or fewer words."""
    config = chosen.variant(variant_id).config
    if not chosen.language:
        return config
    return replace(config, vocab_size=len(shelf.load(corpus_id).words))


def source_sha256(chosen: Experiment, corpus_id: str) -> str:
    """The sha256 of the text or language that an experiment is to train on.

    Raises InvalidInput: when it is of another kind than the experiment trains on; CorpusError:
        when a text cannot be had.
    """
    if not chosen.language:
        if shelf.is_language(corpus_id):
            raise InvalidInput(f"{corpus_id} is a language; {chosen.id} trains on a text.")
        return corpus.sha256_of(corpus_id)
    kind = shelf.load(corpus_id).kind if shelf.is_language(corpus_id) else "a text"
    if kind != chosen.language:
        edited = " or one edited from it" if chosen.language.startswith("winograd") else ""
        raise InvalidInput(
            f"{corpus_id!r} is no language that {chosen.id} trains on; allowed: {chosen.language}{edited}."
        )
    return shelf.sha256_of(corpus_id)


def check_names(experiment_id: str, budget_name: str, variants: Sequence[str] | None = None) -> Experiment:
    """The experiment of these names; needs no text, so a wrong name fetches none.

    Raises InvalidInput: when a name is unknown, or a variant is none of the experiment's or named twice.
    """
    chosen = experiment(experiment_id)
    chosen.budget(budget_name)
    check_variants(chosen, variants or ())
    return chosen


def check_variants(chosen: Experiment | Measurement, variants: Sequence[str]) -> None:
    """Raises InvalidInput: when one is none of that experiment's, or is named twice."""
    for number, name in enumerate(variants):
        if name not in chosen.variants:
            raise InvalidInput(
                f"no variant {name!r} in {chosen.id}; there are: {', '.join(chosen.variants)}."
            )
        if name in variants[:number]:
            raise InvalidInput(f"variant {name!r} is given twice; allowed: each once.")
