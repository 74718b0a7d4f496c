"""The shipped reference: what the shipped code measured, with device, seeds and date. Imports no torch
until weights are written or the code is vouched for.

``checkpoints/reference/<experiment>.json`` holds figures and curves of all seeds; beside it lie the
weights of the models that pages load, of the first seed or of all, in float16 and without optimiser state.
"""

import statistics
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from engine.chapter.definitions import DIFFERENCES, paired
from engine.chapter.experiments import EXPERIMENTS, Experiment
from engine.system import files, paths


@dataclass(frozen=True)
class ReferenceRow:
    """One variant: figures by seed, curves by seed as pairs of [step, the figure its table is about].

    measured: with the differences that its table is about, in the seeds that have both of their figures.
    losses: nats of the first 20 steps, see ``first_losses``; whoever gets the same has the same code.
    series: curves of other metrics, by metric and seed.
    """

    measured: dict[str, dict[str, float | None]]
    curves: dict[str, list[list[float]]]
    losses: list[float]
    series: dict[str, dict[str, list[list[float]]]] = field(default_factory=dict)

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds measured, ascending."""
        return tuple(sorted(int(seed) for seed in self.measured))

    def by_seed(self, metric: str) -> dict[str, float | None]:
        """The figure of every seed, None where it diverged or was not measured."""
        return {seed: figures.get(metric) for seed, figures in self.measured.items()}

    def values(self, metric: str) -> list[float]:
        """The figure of every seed that has one, by ascending seed."""
        found = (self.measured[str(seed)].get(metric) for seed in self.seeds)
        return [value for value in found if value is not None]

    def mean(self, metric: str) -> float | None:
        """Mean over the seeds, None without any."""
        values = self.values(metric)
        return statistics.fmean(values) if values else None

    def sd(self, metric: str) -> float | None:
        """Standard deviation over the seeds (n - 1), None under two."""
        values = self.values(metric)
        return statistics.stdev(values) if len(values) > 1 else None


@dataclass(frozen=True)
class Reference:
    """The shipped figures of one experiment at its chapter budget, or of one measurement.

    A measurement trains no model: its ``code`` is empty, as are the curves and losses of its rows, and its
    ``corpus_sha256`` where it reads no text. It is quick enough to be measured again.
    device, threads, versions, date: where, with what and when they were measured.
    code: digest of the sources that decide what training computes, as they were then.
    """

    id: str
    device: str
    threads: int
    versions: dict[str, str]
    date: str
    corpus_sha256: str
    code: str
    rows: dict[str, ReferenceRow]


@lru_cache(maxsize=32)
def load(experiment_id: str) -> Reference | None:
    """The shipped reference of an experiment, or None where none is shipped yet."""
    data = files.read_json(paths.REFERENCE / f"{experiment_id}.json")
    if data is None:
        return None
    rows = {name: ReferenceRow(**row) for name, row in data.pop("rows").items()}
    if experiment_id in EXPERIMENTS:
        _add_differences(rows, EXPERIMENTS[experiment_id])
    return Reference(rows=rows, **data)


def _add_differences(rows: dict[str, ReferenceRow], shown: Experiment) -> None:
    for name, row in rows.items():
        for metric in DIFFERENCES:
            terms = shown.terms(name, metric)
            if terms and all(variant in rows for variant, _ in terms):
                first, second = (rows[variant].by_seed(of) for variant, of in terms)
                for seed, difference in paired(first, second).items():
                    row.measured[seed][metric] = difference


def weights_path(experiment: Experiment, variant_id: str, seed: int) -> Path:
    """Where the weights of a seed lie: of the first under the variant's name alone."""
    name = variant_id if seed == experiment.seeds[0] else f"{variant_id}-{seed}"
    return paths.REFERENCE / experiment.id / f"{name}.safetensors"


def weights(experiment_id: str, variant_id: str, seed: int | None = None) -> Path | None:
    """The shipped weights of a variant, of its first seed or another; None where none are shipped."""
    known = EXPERIMENTS[experiment_id]
    path = weights_path(known, variant_id, known.seeds[0] if seed is None else seed)
    return path if path.exists() else None
