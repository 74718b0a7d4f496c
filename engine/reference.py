"""The shipped reference: what the shipped code measured, with device, seeds and date. Imports no torch
until weights are written or the code is vouched for.

``checkpoints/reference/<experiment>.json`` holds figures and curves of all seeds; beside it lie the
weights of the first seed of the models that pages load, in float16 and without optimiser state.
"""

import hashlib
import statistics
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from engine import corpus, paths
from engine.experiments import EXPERIMENTS, GAP, LADDER, PERPLEXITY, Experiment, experiment
from engine.languages import shelf
from engine.measurements import Figures, Measurement
from engine.models.config import ModelConfig
from engine.runs import files
from engine.runs.store import Run, Store

# What pages look into; their weights are shipped.
WEIGHTS = {
    "averages": ("average", "average-positions", "average-added"),
    "query-key-value": ("head-added",),
    "ladder": LADDER.variants,
    "positions": ("none", "learned", "sinusoidal", "rope", "alibi"),
    "winograd-closed": ("one-block", "two-blocks"),
    "winograd-open": ("one-block", "two-blocks"),
    "induction": ("one-layer", "two-layers"),
}
VOUCHED_STEPS = 20


@dataclass(frozen=True)
class ReferenceRow:
    """One variant: figures by seed, curves by seed as pairs of [step, the figure its table is about].

    measured: with the gap to the variant's parent, seed by seed, where that was measured beside it.
    losses: nats of the first 20 steps, see ``first_losses``; whoever gets the same has the same code.
    """

    measured: dict[str, dict[str, float | None]]
    curves: dict[str, list[list[float]]]
    losses: list[float]

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds measured, ascending."""
        return tuple(sorted(int(seed) for seed in self.measured))

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
        _add_gaps(rows, EXPERIMENTS[experiment_id])
    return Reference(rows=rows, **data)


def _add_gaps(rows: dict[str, ReferenceRow], shown: Experiment) -> None:
    """Paired by seed, so that what seeds share falls out."""
    for name, row in rows.items():
        other = rows.get(shown.beside.get(name) or shown.models[name].parent or "")
        if other is None:
            continue
        for seed, figures in row.measured.items():
            mine, theirs = figures.get(PERPLEXITY), other.measured.get(seed, {}).get(PERPLEXITY)
            if mine is not None and theirs is not None:
                figures[GAP] = mine - theirs


def weights(experiment_id: str, variant_id: str) -> Path | None:
    """The shipped weights of a variant (its first seed), or None where none are shipped."""
    path = paths.REFERENCE / experiment_id / f"{variant_id}.safetensors"
    return path if path.exists() else None


def code_digest() -> str:
    """sha256 of the sources that decide what training computes, cut to 16 hex digits."""
    engine = paths.ROOT / "engine"
    sources = [*sorted((engine / "models").glob("*.py")), *sorted((engine / "languages").glob("*.py"))]
    sources += [engine / name for name in ("evaluation.py", "tasks.py", "training.py")]
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in sources)).hexdigest()[:16]


def first_losses(config: ModelConfig, language_id: str = "") -> list[float]:
    """Training losses in nats of the first 20 steps, seed 0, on a CPU: of a language, or on made-up tokens.

    Quick and free of any text, so that a test can tell whether changed code still trains the same.
    """
    import torch

    from engine.budget import Budget
    from engine.tasks import Task, TextTask, task_of_language
    from engine.training import Training

    budget = Budget(steps=VOUCHED_STEPS, batch_size=4, context_length=64)
    if language_id:
        task: Task = task_of_language(shelf.load(language_id), seed=0)
    else:
        ids = torch.randint(config.vocab_size, (4096,), generator=torch.Generator().manual_seed(0))
        task = TextTask(ids[:2048].repeat(2), ids[2048:], budget.context_length)
    training = Training(config=config, budget=budget, seed=0, task=task)
    return [training.advance().item() for _ in range(VOUCHED_STEPS)]


def vouched_tolerance(config: ModelConfig) -> float:
    """How far, in nats, first losses may lie apart: other processors and libraries add in another order.

    A row of a wide undivided head is nearly all or nothing, so rounding decides between two close tokens.
    """
    return 1e-2 if config.score_scale == "none" and config.head_width >= 256 else 1e-3


def write(experiment_id: str, store: Store, runs: Iterable[Run]) -> Path:
    """Make the shipped reference of finished chapter-budget runs. Returns the JSON's path.

    Raises ValueError: when a variant has no finished run, or they differ in device, code or text.
    """
    from engine import checkpoint

    done, chosen = list(runs), experiment(experiment_id)
    of_variant: dict[str, list[Run]] = {}
    for name in chosen.variants:
        # Not by name: a run may have been made for another table. Two variants may differ in budget only.
        asked = (chosen.variant(name).config, chosen.budget("chapter", name).decisive())
        of_variant[name] = [run for run in done if (run.spec.config, run.spec.budget.decisive()) == asked]
        if not of_variant[name]:
            raise ValueError(f"{experiment_id} has no finished run of {name}.")
    environment = _one_environment(done)
    rows: dict[str, ReferenceRow] = {}
    for name, found in of_variant.items():
        mine = {str(run.spec.seed): run for run in found}
        rows[name] = ReferenceRow(
            measured={seed: run.measured for seed, run in mine.items()},
            curves={seed: curve(store.directory(run.id), chosen.metric) for seed, run in mine.items()},
            losses=[round(loss, 6) for loss in first_losses(chosen.variant(name).config, chosen.language)],
        )
    folder = paths.REFERENCE / experiment_id
    folder.mkdir(parents=True, exist_ok=True)
    for name in WEIGHTS.get(experiment_id, ()):
        run = next(run for run in of_variant[name] if run.spec.seed == chosen.seeds[0])
        tensors, header = checkpoint.load(store.directory(run.id) / "checkpoint.safetensors")
        # Half the size; what such a model says of a text moves in the fifth digit.
        kept = {key: tensor.half() for key, tensor in tensors.items() if key.startswith("model.")}
        checkpoint.save(folder / f"{name}.safetensors", kept, header)
    reference = Reference(
        id=experiment_id,
        device=environment["device"],
        threads=environment["threads"],
        versions={key: environment[key] for key in ("lab", "torch", "python")},
        date=time.strftime("%Y-%m-%d", time.gmtime(max(run.ended or 0 for run in done))),
        corpus_sha256=done[0].spec.corpus_sha256,
        code=code_digest(),
        rows=rows,
    )
    path = paths.REFERENCE / f"{experiment_id}.json"
    files.write_json(path, asdict(reference))
    load.cache_clear()
    return path


def write_measurement(
    measurement: Measurement, by_seed: Mapping[int, Figures], environment: Mapping[str, Any]
) -> Path:
    """Make the shipped reference of what was measured, today and on this machine. Returns the JSON's path."""
    rows = {
        name: ReferenceRow(
            measured={str(seed): dict(figures.get(name, {})) for seed, figures in by_seed.items()},
            curves={},
            losses=[],
        )
        for name in measurement.variants
    }
    reference = Reference(
        id=measurement.id,
        device=environment["device"],
        threads=environment["threads"],
        versions={key: environment[key] for key in ("lab", "torch", "python")},
        date=time.strftime("%Y-%m-%d", time.gmtime()),
        corpus_sha256=corpus.sha256_of(measurement.corpus_id) if measurement.corpus_id else "",
        code="",
        rows=rows,
    )
    path = paths.REFERENCE / f"{measurement.id}.json"
    files.write_json(path, asdict(reference))
    load.cache_clear()
    return path


def curve(directory: Path, metric: str = PERPLEXITY) -> list[list[float]]:
    """[step, that figure] of a run at its evaluations, as far as it came."""
    return [
        [record["step"], round(record[metric], 3)]
        for record in files.records(directory)
        if record.get(metric) is not None
    ]


def _one_environment(runs: list[Run]) -> dict[str, Any]:
    first = runs[0]
    for run in runs[1:]:
        if (run.environment, run.spec.corpus_sha256) != (first.environment, first.spec.corpus_sha256):
            raise ValueError(
                f"runs #{first.id} and #{run.id} differ in device, versions or text; "
                f"a reference is of one kind."
            )
    return first.environment
