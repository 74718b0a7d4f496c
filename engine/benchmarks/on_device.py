"""What ``bench gpu-check`` asks of a device, a section a process: ``python -m engine.benchmarks.on_device``.

variants  every model of the lab, logits and gradients, against the same in float64 on the CPU
training  a few steps, against the same on the CPU, and once more from a checkpoint halfway
stacked   seeds of one model as one batched model (``torch.func``), against one after another

Each prints one JSON document; ``failed`` in it lists what should hold and does not.
"""

import argparse
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from engine.chapter.budget import Budget
from engine.chapter.experiments import EXPERIMENTS
from engine.chapter.variants import BLOCK
from engine.models.config import ModelConfig
from engine.models.linear import by_torch_alone
from engine.models.transformer import Transformer
from engine.training.loop import Training
from engine.training.tasks import TextTask

LENGTHS = (1, 31, 38, 128)  # one token; odd; no multiple of four or eight; the chapter's
SEEDS = (4, 8)  # trained at once
TOLERANCE = 1e-3  # of float32 against float64, over the largest logit, and over the gradient's norm
TRAINED_ALIKE = 1e-3  # nats, over the first steps
RESUMED_ALIKE = 1e-5  # nats; on a CPU a resumed run gives the same bits
CONTEXT = 128
FIRST, HALFWAY, STEPS = 10, 20, 40  # of training: written down, saved, ended

Step = Callable[[], Tensor]
Saved = tuple[Mapping[str, Tensor], Mapping[str, Any]]


def variants(device: str, *, rehearse: bool) -> dict[str, Any]:
    """Every configuration of every experiment once, at all lengths that it has positions for."""
    configs = {v.config: v.id for shown in EXPERIMENTS.values() for v in map(shown.variant, shown.variants)}
    rows = []
    for config, name in list(configs.items())[:: 8 if rehearse else 1]:
        lengths = [n for n in LENGTHS[: 2 if rehearse else None] if n <= config.max_positions]
        differences = [difference(config, n, device) for n in lengths]
        logits, gradients = map(max, zip(*differences, strict=True))
        rows.append({"variant": name, "lengths": lengths, "logits": logits, "gradients": gradients})
    off = [row["variant"] for row in rows if not max(row["logits"], row["gradients"]) <= TOLERANCE]
    failed = [f"differs from float64 by more than {TOLERANCE}: {', '.join(off)}"] if off else []
    return {"rows": rows, "tolerance": TOLERANCE, "failed": failed}


def difference(config: ModelConfig, n: int, device: str) -> tuple[float, float]:
    """Float32 on the device from float64 on the CPU: logits over the largest, gradients over their norm."""
    torch.manual_seed(n)
    exact = Transformer(replace(config, dropout=0.0)).double()
    ids = torch.randint(config.vocab_size, (2, n + 1))
    model = Transformer(exact.config)
    model.load_state_dict(exact.state_dict())
    logits, gradient = _logits_and_gradient(model.to(device), ids.to(device))
    wanted, slope = _logits_and_gradient(exact, ids)
    return (
        ((logits - wanted).abs().max() / wanted.abs().max()).item(),
        ((gradient - slope).norm() / slope.norm()).item(),
    )


def _logits_and_gradient(model: nn.Module, ids: Tensor) -> tuple[Tensor, Tensor]:
    """shape: (B, T + 1) -> (B, T, V) and all parameters in a row, both float64 on the CPU"""
    logits = model(ids[:, :-1])
    _loss(logits, ids).backward()
    gradients = [p.grad.flatten() for p in model.parameters() if p.grad is not None]
    return logits.detach().cpu().double(), torch.cat(gradients).cpu().double()


def training(device: str, *, rehearse: bool) -> dict[str, Any]:
    """The chapter's block; once more with dropout, which a device draws by itself."""
    rows, failed = [], []
    for dropout in (0.0, 0.1):
        config = replace(_block(rehearse), dropout=dropout)
        batch_size = 2 if rehearse else 64
        on_cpu, _ = _trained(config, "cpu", batch_size)
        losses, halfway = _trained(config, device, batch_size)
        resumed, _ = _trained(config, device, batch_size, halfway)
        apart = abs(losses[FIRST] - on_cpu[FIRST])
        again = max(abs(losses[step] - loss) for step, loss in resumed.items() if step > HALFWAY)
        rows.append({"dropout": dropout, "losses": losses, "from_cpu": apart, "from_unstopped": again})
        for holds, sentence in (
            (losses[STEPS] < losses[FIRST], "the loss does not fall"),
            (dropout or apart <= TRAINED_ALIKE, f"after {FIRST} steps it is {apart:.1e} from the CPU's"),
            (again <= RESUMED_ALIKE, f"resumed, it is {again:.1e} from the run that was not stopped"),
        ):
            failed += [] if holds else [f"dropout {dropout}: {sentence}"]
    return {"rows": rows, "failed": failed}


def _block(rehearse: bool) -> ModelConfig:
    config = BLOCK.config
    return replace(config, d_model=32, vocab_size=64) if rehearse else config


def _trained(
    config: ModelConfig, device: str, batch_size: int, halfway: Saved | None = None
) -> tuple[dict[int, float], Saved]:
    """Losses by step, from ``halfway`` on if given; and what was saved halfway."""
    saved: list[Saved] = []

    def save(tensors: Mapping[str, Tensor], header: Mapping[str, Any]) -> None:
        saved.append(({name: tensor.detach().cpu().clone() for name, tensor in tensors.items()}, header))

    trained = Training(
        config=config,
        budget=Budget(steps=STEPS, batch_size=batch_size, checkpoint_every=HALFWAY, evaluate_early=False),
        seed=0,
        task=_task(config, device),
        device=device,
        save=save,
    )
    if halfway:
        trained.restore(*halfway)
    losses = {r["step"]: r["loss_nats"] for r in trained.records() if r.get("loss_nats") is not None}
    return losses, saved[0]


def _task(config: ModelConfig, device: str) -> TextTask:
    """Tokens drawn unevenly, so that there is something to learn."""
    drawn = torch.Generator().manual_seed(0)
    ids = (torch.rand(8192, generator=drawn) ** 4 * config.vocab_size).long()
    return TextTask(ids, ids[: 4 * CONTEXT + 1], CONTEXT, device=device)


def stacked(device: str, *, rehearse: bool) -> dict[str, Any]:
    """Milliseconds of a step of so many seeds of the block, both ways, and how far their losses are apart."""
    rows = []
    for seeds in SEEDS[:1] if rehearse else SEEDS:
        for batch_size in (2,) if rehearse else (8, 32, 64):
            rows.append(_stacked_row(_block(rehearse), seeds, batch_size, device, 1 if rehearse else 10))
    worst = max(row["losses_apart"] for row in rows)
    failed = [f"stacked losses are {worst:.1e} from those of one after another"] if worst > 1e-3 else []
    return {"rows": rows, "failed": failed}


def _stacked_row(
    config: ModelConfig, seeds: int, batch_size: int, device: str, rounds: int
) -> dict[str, Any]:
    drawn = torch.Generator().manual_seed(0)
    ids = torch.randint(config.vocab_size, (seeds, batch_size, CONTEXT + 1), generator=drawn).to(device)
    models = [[_plain(config, seed, device) for seed in range(seeds)] for _ in range(2)]
    ways = [one_by_one(models[0], ids), at_once(models[1], ids)]
    first = [way() for way in ways]
    seconds: list[list[float]] = [[], []]
    for _ in range(rounds):
        for way, took in zip(ways, seconds, strict=True):
            began = time.perf_counter()
            way().cpu()  # waits for the device
            took.append(time.perf_counter() - began)
    separate, together = (1000 * median(took) for took in seconds)
    return {
        "seeds": seeds,
        "batch_size": batch_size,
        "one_after_another_ms": round(separate, 3),
        "stacked_ms": round(together, 3),
        "gain": round(separate / together, 4),
        "losses_apart": (first[0] - first[1]).abs().max().item(),
    }


def _plain(config: ModelConfig, seed: int, device: str) -> nn.Module:
    torch.manual_seed(seed)
    model = Transformer(config).to(device)
    by_torch_alone(model)  # stacked, its own linear layers have no rule
    return model


def _loss(logits: Tensor, ids: Tensor) -> Tensor:
    return F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())


def one_by_one(models: Sequence[nn.Module], ids: Tensor) -> Step:
    """A step of each model after the other. Returns their losses."""
    optimizers = [torch.optim.AdamW(model.parameters(), fused=True) for model in models]

    def step() -> Tensor:
        losses = []
        for model, optimizer, batch in zip(models, optimizers, ids, strict=True):
            optimizer.zero_grad()
            loss = _loss(model(batch[:, :-1]), batch)
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        return torch.stack(losses)

    return step


def at_once(models: Sequence[nn.Module], ids: Tensor) -> Step:
    """The same step of all models as one, their weights stacked. Returns their losses."""
    weights, buffers = torch.func.stack_module_state(list(models))
    optimizer = torch.optim.AdamW(weights.values(), fused=True)

    def loss(weights: dict[str, Tensor], buffers: dict[str, Tensor], batch: Tensor) -> Tensor:
        return _loss(torch.func.functional_call(models[0], (weights, buffers), (batch[:, :-1],)), batch)

    losses_of = torch.func.vmap(loss)

    def step() -> Tensor:
        optimizer.zero_grad()
        losses: Tensor = losses_of(weights, buffers, ids)
        losses.sum().backward()
        optimizer.step()
        return losses.detach()

    return step


SECTIONS = {"variants": variants, "training": training, "stacked": stacked}


def main() -> None:
    """Print the document of one section."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("section", choices=SECTIONS)
    parser.add_argument("device", choices=("cuda", "mps", "cpu"))
    parser.add_argument("--rehearse", action="store_true", help="in tiny sizes")
    options = parser.parse_args()
    print(json.dumps(SECTIONS[options.section](options.device, rehearse=options.rehearse), allow_nan=False))


if __name__ == "__main__":
    main()
