"""One attention layer, written four ways that give the same output (but for the control).

Shapes: B batch, T position (query), S position (key), D d_model, H heads, K d_head. No biases, no dropout.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from engine.memory_wall.setting import Setting


class Weights(NamedTuple):
    """Four (D, D) matrices."""

    W_Q: Tensor
    W_K: Tensor
    W_V: Tensor
    W_O: Tensor


def draw(n: int, setting: Setting, device: str = "cpu", seed: int = 0) -> tuple[Tensor, Weights]:
    """x: (B, n, D) and the weights, made in their own dtype so that nothing else is ever alive."""
    torch.manual_seed(seed)
    D, dtype = setting.d_model, getattr(torch, setting.dtype)

    def random(*shape: int, scale: float = 1.0) -> Tensor:
        made = torch.randn(*shape, dtype=dtype, device=device).mul_(scale)
        return made.requires_grad_(setting.backward)

    weights = Weights(*(random(D, D, scale=D**-0.5) for _ in range(4)))
    return random(setting.batch, n, D), weights


def step(
    implementation: str, x: Tensor, weights: Weights, setting: Setting, last_blocks: int | None = None
) -> tuple[Tensor, ...]:
    """One pass: the output, and after it the gradients of x and the weights where they are asked for.

    last_blocks: of ``chunked``, compute no more than these; the rest of the output is whatever was there.
    Under fake tensors the last stand for all, since what a block holds grows from block to block.
    shape: (B, T, D) -> (B, T, D), ...
    """
    with torch.set_grad_enabled(setting.backward):
        if implementation == "chunked":
            y = chunked(x, weights, setting, last_blocks)
        else:
            y = WAYS[implementation](x, weights, setting)
        if not setting.backward:
            return (y,)
        return y, *torch.autograd.grad(y, [x, *weights], torch.ones_like(y))


def explicit(x: Tensor, weights: Weights, setting: Setting) -> Tensor:
    """softmax(Q K^T / sqrt(K) + mask) V, as the chapter writes it: scores and weights are stored.

    Everything is out of place, and what has a name stays to the end; ``closed_form`` counts on both.
    shape: (B, T, D) -> (B, T, D)
    """
    q, k, v = _projected(x, weights, setting)
    T = x.shape[1]
    scores = q @ k.transpose(-2, -1)
    scores = scores / math.sqrt(q.shape[-1])
    if setting.causal:
        seen = torch.ones(T, T, dtype=torch.bool, device=x.device).tril()
        scores = scores.masked_fill(~seen, -math.inf)
    attention_weights = scores.softmax(dim=-1)
    y = attention_weights @ v
    y = _merged(y)
    return F.linear(y, weights.W_O)


def fused(x: Tensor, weights: Weights, setting: Setting) -> Tensor:
    """One call to ``F.scaled_dot_product_attention``, which chooses its kernel itself.

    shape: (B, T, D) -> (B, T, D)
    """
    q, k, v = _projected(x, weights, setting)
    y = F.scaled_dot_product_attention(q, k, v, is_causal=setting.causal)
    y = _merged(y)
    return F.linear(y, weights.W_O)


def chunked(x: Tensor, weights: Weights, setting: Setting, last_blocks: int | None = None) -> Tensor:
    """Some queries at a time against all keys that they see: (block, S) scores instead of (T, S).

    Where gradients are wanted each block's scores are computed again on the way back, not kept.
    shape: (B, T, D) -> (B, T, D)
    """
    q, k, v = _projected(x, weights, setting)
    T, block = x.shape[1], setting.block
    starts = range(0, T, block)
    y = torch.empty_like(q)
    for start in starts if last_blocks is None else starts[-last_blocks:]:
        stop = min(start + block, T)
        S = stop if setting.causal else T
        some = (q[:, :, start:stop], k[:, :, :S], v[:, :, :S])
        y[:, :, start:stop] = (
            checkpoint(_attend, *some, setting.causal, use_reentrant=False, preserve_rng_state=False)
            if setting.backward
            else _attend(*some, setting.causal)
        )
    y = _merged(y)
    return F.linear(y, weights.W_O)


def projections(x: Tensor, weights: Weights, setting: Setting) -> Tensor:
    """The control: the four linear maps and no attention. q, k and v are added, so that each has a gradient.

    shape: (B, T, D) -> (B, T, D)
    """
    q, k, v = _projected(x, weights, setting)
    y = _merged(q + k + v)
    return F.linear(y, weights.W_O)


WAYS: dict[str, Callable[[Tensor, Weights, Setting], Tensor]] = {
    "explicit": explicit,
    "fused": fused,
    "chunked": chunked,
    "projections": projections,
}


def _attend(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Tensor:
    """The last queries of a text against all of its keys.

    shape: (B, H, T, K), (B, H, S, K) -> (B, H, T, K)
    """
    scores = q @ k.transpose(-2, -1)
    scores.mul_(q.shape[-1] ** -0.5)
    if causal:
        T, S = scores.shape[-2:]
        future = torch.ones(T, S, dtype=torch.bool, device=q.device).triu(S - T + 1)
        scores.masked_fill_(future, -math.inf)
    return scores.softmax(dim=-1) @ v


def _projected(x: Tensor, weights: Weights, setting: Setting) -> tuple[Tensor, Tensor, Tensor]:
    """q, k, v. shape: (B, T, D) -> three (B, H, T, K)"""
    q, k, v = (F.linear(x, W).unflatten(-1, (setting.n_head, -1)).transpose(1, 2) for W in weights[:3])
    return q, k, v


def _merged(y: Tensor) -> Tensor:
    """The heads side by side. shape: (B, H, T, K) -> (B, T, D)"""
    return y.transpose(1, 2).flatten(2)
