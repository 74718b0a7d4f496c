"""The machine's rate for the products of a training step, of whose seconds ``gemm_share`` is made."""

import torch
from torch import Tensor

from engine.benchmarks.steps import CONTEXT_LENGTH, SEED, Step, Task
from engine.models import ledger
from engine.models.config import ModelConfig


def linear_layers(config: ModelConfig) -> list[tuple[int, int]]:
    """Input and output width of every linear layer of a model of whole blocks, in order."""
    width, joined = config.d_model, config.n_head * config.effective_d_head
    block = [(width, joined)] * 3 + [(joined, width), (width, config.d_ff), (config.d_ff, width)]
    return block * config.n_layer + [(width, config.vocab_size)]


def products_step(task: Task, dtype: str) -> Step:
    """Every product of a step and nothing else, into tensors that lie ready.

    Layers of one size share theirs, so a small machine's cache serves them better than it does a step.
    """
    layers = linear_layers(task.config)
    ready = {sizes: _operands(task, *sizes, getattr(torch, dtype)) for sizes in set(layers)}

    def step() -> None:
        for sizes in layers:
            x, weight, y, x_grad, weight_grad, y_grad = ready[sizes]
            torch.mm(x, weight.t(), out=y)
            torch.mm(y_grad, weight, out=x_grad)
            torch.mm(y_grad.t(), x, out=weight_grad)

    return step


def _operands(task: Task, n_in: int, n_out: int, dtype: torch.dtype) -> tuple[Tensor, ...]:
    """x, weight, y and their gradients. shape: (N, in), (out, in), (N, out), and these once more"""
    shapes = ((task.tokens, n_in), (n_out, n_in), (task.tokens, n_out)) * 2
    drawn = torch.Generator().manual_seed(SEED)
    return tuple(torch.randn(shape, generator=drawn).to(task.device, dtype) for shape in shapes)


def step_flop(task: Task) -> int:
    """Floating-point operations of a step; see the top."""
    return 3 * 2 * ledger.multiplications(task.config, CONTEXT_LENGTH) * task.tokens


def products_flop(task: Task) -> int:
    """The same of its linear layers alone."""
    return 3 * 2 * sum(n_in * n_out for n_in, n_out in linear_layers(task.config)) * task.tokens
