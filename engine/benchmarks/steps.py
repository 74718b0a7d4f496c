"""The candidates of ``bench train``: what each does in a step."""

import importlib.util
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from types import ModuleType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from engine.benchmarks import count
from engine.chapter.budget import Budget, Precision
from engine.models.config import ModelConfig
from engine.models.linear import by_torch_alone
from engine.models.transformer import Transformer
from engine.system.errors import InvalidInput, first_line
from engine.training.loop import Training
from engine.training.tasks import TextTask

CONTEXT_LENGTH = 128
SEED = 0
LEARNING_RATE = 1e-3  # torch's default, for every candidate
WARM_UP_ROUNDS = 2
STEPS_A_TURN = 10  # on an accelerator: it works through a queue that every look at the clock drains
CPU_BFLOAT16 = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")  # of torch.cpu; names may go

Step = Callable[[], object]


@dataclass(frozen=True, kw_only=True)
class Task:
    """What every candidate trains: a model's sizes, windows a batch, the text, and where."""

    config: ModelConfig
    batch_size: int
    ids: Tensor
    device: str

    @property
    def tokens(self) -> int:
        """Trained on in one step."""
        return self.batch_size * CONTEXT_LENGTH

    @property
    def steps_a_turn(self) -> int:
        return 1 if self.device == "cpu" else STEPS_A_TURN


@dataclass
class Candidate:
    """One that takes turns. seconds: of a step, one value a round; reason: why it takes none."""

    implementation: str
    dtype: str
    step: Step
    seconds: list[float] = field(default_factory=list)
    reason: str | None = None

    def times_slower_than(self, other: "Candidate | None") -> float | None:
        """Median over rounds of this one's seconds over the other's; None where either has none."""
        if other is None or not self.seconds or not other.seconds:
            return None
        return median(mine / its for mine, its in zip(self.seconds, other.seconds, strict=True))


def our_step(task: Task, dtype: Precision, rounds: int) -> Step:
    """The engine's."""
    training = Training(
        config=task.config,
        budget=Budget(
            steps=(WARM_UP_ROUNDS + rounds) * task.steps_a_turn,
            batch_size=task.batch_size,
            context_length=CONTEXT_LENGTH,
            learning_rate=LEARNING_RATE,
            precision=dtype,
        ),
        seed=SEED,
        task=TextTask(task.ids, task.ids[: 10 * CONTEXT_LENGTH], CONTEXT_LENGTH, device=task.device),
        device=task.device,
    )
    return training.advance


def bfloat16_refusal(kind: str) -> str | None:
    """Why bfloat16 is not offered on a device of this kind, or None where it is.

    Without instructions for it torch converts to float32 and back, which is slower than float32.
    """
    if kind == "cpu" and not any(getattr(torch.cpu, name, bool)() for name in CPU_BFLOAT16):
        return "bfloat16 is not offered: this CPU has neither avx512_bf16 nor AMX."
    if kind == "cuda" and not torch.cuda.is_bf16_supported(including_emulation=False):
        return "bfloat16 is not offered: this card has no instructions for it."
    if kind not in ("cpu", "cuda"):
        return f"bfloat16 is not offered: of {kind} it is not known whether it gains."
    return None


def plain_step(task: Task, *, compiled: bool = False) -> Step:
    """What a textbook writes, with torch's defaults throughout: its own linear layers, too."""
    torch.manual_seed(SEED)
    model: nn.Module = Transformer(task.config).to(task.device)
    by_torch_alone(model)
    if compiled:
        model = torch.compile(model)  # type: ignore[assignment]
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE)
    batch = slices(task)

    def step() -> None:
        x, y = batch()
        optimizer.zero_grad()
        logits = model(x)
        loss = F.cross_entropy(logits.view(-1, logits.shape[-1]), y.view(-1))
        loss.backward()
        optimizer.step()

    return step


def compiled_candidate(task: Task) -> Candidate:
    """The plain loop, compiled, if this machine can; its first step is what compiles."""
    torch.compiler.reset()  # else a model of another depth is the same code once more, which has a limit
    candidate = Candidate("compiled", "float32", lambda: None)
    try:
        candidate.step = plain_step(task, compiled=True)
        candidate.step()
    except Exception as error:  # a missing compiler, an unsupported Python: each raises a type of its own
        layers = count(task.config.n_layer, "layer")
        candidate.reason = f"compiled with {layers} does not run: {first_line(error)}."
    return candidate


def slices(task: Task) -> Callable[[], tuple[Tensor, Tensor]]:
    """Batches as nanoGPT and textbooks cut them: slices of a text in main memory, stacked, then sent over.

    shape: -> (B, T), (B, T), the second one token ahead
    """
    drawn = torch.Generator().manual_seed(SEED)

    def batch() -> tuple[Tensor, Tensor]:
        starts = torch.randint(len(task.ids) - CONTEXT_LENGTH, (task.batch_size,), generator=drawn)
        x = torch.stack([task.ids[i : i + CONTEXT_LENGTH] for i in starts])
        y = torch.stack([task.ids[i + 1 : i + 1 + CONTEXT_LENGTH] for i in starts])
        if task.device == "cuda":
            x, y = x.pin_memory(), y.pin_memory()
        return x.to(task.device, non_blocking=True), y.to(task.device, non_blocking=True)

    return batch


@dataclass(frozen=True)
class Peer:
    """A nanoGPT: the file it came from, its two classes."""

    path: Path
    model: Callable[[Any], nn.Module]
    config: Callable[..., Any]


def load_peer(directory: Path) -> Peer:
    """The classes of a checkout's model.py, imported by its path, so that no name of ours is hidden.

    Raises InvalidInput: when there is no such folder or file, or it does not define them.
    """
    path, wanted = directory / "model.py", "allowed: a checkout of nanoGPT, with a model.py"
    if not directory.is_dir():
        raise InvalidInput(f"peer is {str(directory)!r}, which is no folder; {wanted}.")
    if not path.is_file():
        raise InvalidInput(f"peer is {str(directory)!r}, which has no model.py; {wanted}.")
    try:
        module = _module(path)
    except Exception as error:  # it is other people's code
        raise InvalidInput(f"{path} cannot be imported: {first_line(error)}.") from error
    if missing := [name for name in ("GPT", "GPTConfig") if not callable(getattr(module, name, None))]:
        raise InvalidInput(f"{path} defines no {' and no '.join(missing)}; {wanted}, as nanoGPT's is.")
    return Peer(path, module.GPT, module.GPTConfig)


def _module(path: Path) -> ModuleType:
    name = "attention_lab_peer"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up there
    spec.loader.exec_module(module)
    return module


def peer_step(task: Task, peer: Peer) -> Step:
    """nanoGPT's own: its model, its optimiser, gradients clipped at 1, as in its train.py. Tried once.

    Raises InvalidInput: when it does not take these sizes, or its step fails.
    """
    config = task.config
    sizes = {
        "block_size": CONTEXT_LENGTH,
        "vocab_size": config.vocab_size,
        "n_layer": config.n_layer,
        "n_head": config.n_head,
        "n_embd": config.d_model,
        "dropout": 0.0,
        "bias": True,
    }
    torch.manual_seed(SEED)
    try:
        model = peer.model(peer.config(**sizes)).to(task.device)
        step = _peer_loop(task, model, _peer_optimizer(task, model))
        step()
    except Exception as error:  # it is other people's code
        given = ", ".join(f"{name}={value}" for name, value in sizes.items())
        raise InvalidInput(f"{peer.path} does not train with {given}: {first_line(error)}.") from error
    return step


def _peer_optimizer(task: Task, model: nn.Module) -> torch.optim.Optimizer:
    """As its train.py asks the model for it; of a model that makes none, AdamW with the same betas."""
    betas = (0.9, 0.95)
    make: Callable[..., torch.optim.Optimizer] | None = getattr(model, "configure_optimizers", None)
    if make is not None:
        return make(0.1, LEARNING_RATE, betas, task.device)
    return torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, betas=betas)


def _peer_loop(task: Task, model: nn.Module, optimizer: torch.optim.Optimizer) -> Step:
    batch = slices(task)

    def step() -> None:
        x, y = batch()
        _, loss = model(x, y)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step
