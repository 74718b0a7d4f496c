"""Makes the shipped reference of finished runs, and vouches for the code that made it. Imports no torch
until weights are written or first losses are asked for.
"""

import hashlib
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from engine.chapter.experiments import PERPLEXITY, experiment
from engine.chapter.measurements import Figures, Measurement
from engine.chapter.reference import Reference, ReferenceRow, load, weights_path
from engine.data import corpus
from engine.data.languages import shelf
from engine.models.config import ModelConfig
from engine.runs.store import Run, Store
from engine.system import files, paths
from engine.system.errors import InvalidInput, Unavailable

VOUCHED_STEPS = 20


def code_digest() -> str:
    """sha256 of the sources that decide what training computes, cut to 16 hex digits."""
    engine = paths.ROOT / "engine"
    folders = (engine / "models", engine / "data" / "languages")
    sources = [path for folder in folders for path in sorted(folder.glob("*.py"))]
    sources += [engine / "training" / f"{name}.py" for name in ("evaluation", "tasks", "loop")]
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in sources)).hexdigest()[:16]


def first_losses(config: ModelConfig, language_id: str = "", steps: int = VOUCHED_STEPS) -> list[float]:
    """Training losses in nats of the first steps, seed 0, on a CPU: of a language, or on made-up tokens.

    Quick and free of any text, so that a test can tell whether changed code still trains the same.
    """
    import torch

    from engine.chapter.budget import Budget
    from engine.training.loop import Training
    from engine.training.tasks import Task, TextTask, task_of_language

    budget = Budget(steps=steps, batch_size=4, context_length=64)
    if language_id:
        task: Task = task_of_language(shelf.load(language_id), seed=0)
    else:
        ids = torch.randint(config.vocab_size, (4096,), generator=torch.Generator().manual_seed(0))
        task = TextTask(ids[:2048].repeat(2), ids[2048:], budget.context_length)
    training = Training(config=config, budget=budget, seed=0, task=task)
    return [training.advance().item() for _ in range(steps)]


def write(experiment_id: str, store: Store, runs: Iterable[Run]) -> Path:
    """Make the shipped reference of finished chapter-budget runs. Returns the JSON's path.

    Raises InvalidInput: when a variant has no finished run, or they differ in device, code or text.
    """
    from engine.training import checkpoint

    done, chosen = list(runs), experiment(experiment_id)
    of_variant: dict[str, list[Run]] = {}
    for name in chosen.variants:
        # Not by name: a run may have been made for another table. Two variants may differ in budget only.
        asked = (chosen.variant(name).config, chosen.budget("chapter", name).decisive())
        of_variant[name] = [run for run in done if (run.spec.config, run.spec.budget.decisive()) == asked]
        if not of_variant[name]:
            raise Unavailable(f"{experiment_id} has no finished run of {name}.")
    environment = _one_environment(done)
    rows: dict[str, ReferenceRow] = {}
    for name, found in of_variant.items():
        mine = {str(run.spec.seed): run for run in found}
        rows[name] = ReferenceRow(
            measured={seed: run.measured for seed, run in mine.items()},
            curves={seed: curve(store.directory(run.id), chosen.metric) for seed, run in mine.items()},
            losses=[round(loss, 6) for loss in first_losses(chosen.variant(name).config, chosen.language)],
            series={
                metric: {seed: curve(store.directory(run.id), metric) for seed, run in mine.items()}
                for metric in chosen.series
            },
        )
    folder = paths.REFERENCE / experiment_id
    folder.mkdir(parents=True, exist_ok=True)
    for name in chosen.weights:
        for run in of_variant[name]:
            if run.spec.seed not in chosen.shipped_seeds(name):
                continue
            tensors, header = checkpoint.load(store.directory(run.id) / "checkpoint.safetensors")
            # Half the size; what such a model says of a text moves in the fifth digit.
            kept = {key: tensor.half() for key, tensor in tensors.items() if key.startswith("model.")}
            checkpoint.save(weights_path(chosen, name, run.spec.seed), kept, header)
    ended = max(run.ended or 0 for run in done)
    return _write(experiment_id, rows, environment, ended, done[0].spec.corpus_sha256, code_digest())


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
    sha256 = corpus.sha256_of(measurement.corpus_id) if measurement.corpus_id else ""
    return _write(measurement.id, rows, environment, time.time(), sha256, code="")


def _write(
    known_id: str,
    rows: dict[str, ReferenceRow],
    environment: Mapping[str, Any],
    measured: float,
    corpus_sha256: str,
    code: str,
) -> Path:
    """measured: when, in seconds since the epoch."""
    reference = Reference(
        id=known_id,
        device=environment["device"],
        threads=environment["threads"],
        versions={key: environment[key] for key in ("lab", "torch", "python")},
        date=time.strftime("%Y-%m-%d", time.gmtime(measured)),
        corpus_sha256=corpus_sha256,
        code=code,
        rows=rows,
    )
    path = paths.REFERENCE / f"{known_id}.json"
    files.write_json(path, asdict(reference))
    load.cache_clear()
    return path


def curve(directory: Path, metric: str = PERPLEXITY) -> list[list[float]]:
    """[step, that figure to six digits] of a run wherever it recorded one, as far as it came."""
    return [
        [record["step"], float(f"{record[metric]:.6g}")]
        for record in files.records(directory)
        if record.get(metric) is not None
    ]


def _one_environment(runs: list[Run]) -> dict[str, Any]:
    first = runs[0]
    for run in runs[1:]:
        if (run.environment, run.spec.corpus_sha256) != (first.environment, first.spec.corpus_sha256):
            raise InvalidInput(
                f"runs #{first.id} and #{run.id} differ in device, versions or text; "
                f"a reference is of one kind."
            )
    return first.environment
