"""Small trainings in the process of a test, and the models that they end with."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from engine.chapter.budget import Budget
from engine.chapter.experiments import experiment
from engine.data.languages.winograd import Winograd
from engine.models.config import ModelConfig
from engine.models.transformer import Transformer
from engine.runs import estimates
from engine.runs.spec import RunSpec
from engine.system import device
from engine.training import checkpoint
from engine.training.loop import Training
from engine.training.tasks import TextTask, task_of_language

SMALL = Winograd(
    nouns=("ant", "bee", "cow", "dog", "elk"), crosser=("tired", "slow"), crossed=("wet", "steep")
)
OF_SMALL = replace(
    experiment("winograd-closed").variant("one-block").config,
    vocab_size=len(SMALL.words), d_model=16, d_ff=16,
)  # fmt: skip
BUDGET = Budget(steps=30, batch_size=4, context_length=17, evaluate_every=20, checkpoint_every=10)


def on_text(
    config: ModelConfig, budget: Budget = BUDGET, seed: int = 3, train: int = 500, **more
) -> Training:
    """On 600 random tokens, so many of them for training."""
    ids = torch.randint(config.vocab_size, (600,), generator=torch.Generator().manual_seed(1))
    task = TextTask(ids[:train], ids[train:], budget.context_length, budget.also_at)
    return Training(config=config, budget=budget, seed=seed, task=task, **more)


def on_language(
    language=SMALL, config: ModelConfig = OF_SMALL, budget=BUDGET, seed: int = 3, **more
) -> Training:
    """On a language, with the seed's own split."""
    return Training(config=config, budget=budget, seed=seed, task=task_of_language(language, seed), **more)


def parameters(training: Training) -> list[torch.Tensor]:
    """Copies of its weights."""
    return [parameter.detach().clone() for parameter in training.model.parameters()]


def untrained(path: Path, config: ModelConfig, seed: int = 0) -> Path:
    """Write a checkpoint of a model as it is drawn."""
    torch.manual_seed(seed)
    tensors = checkpoint.model_tensors(Transformer(config))
    checkpoint.save(path, tensors, {"config": config.to_dict(), "step": 0})
    return path


def folder(path: Path, spec: RunSpec) -> Path:
    """A run's folder as it is before its trainer begins."""
    path.mkdir(exist_ok=True)
    (path / "spec.json").write_text(spec.to_json())
    return path


def on_this_cpu(patch: pytest.MonkeyPatch) -> None:
    """Let the trainer of a run take the processor unasked, and remember no speed."""
    patch.setattr(device, "probe", lambda: device.Device("cpu", "CPU, 2 cores", 0, "2", False))
    patch.setattr(estimates, "remember", lambda *_: None)
