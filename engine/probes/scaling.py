"""What a dot product of d numbers does to a softmax, on random vectors; nothing is trained.

Shapes: N pairs or rows, S keys in a row, K d_head, also d.
Source: chapter, "why divide by sqrt(d_k)".
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from engine.chapter.measurements import D_HEADS
from engine.probes.results.scaling import RandomVectors, RowStatistics, Saturation, Variance
from engine.system.errors import InvalidInput
from engine.system.numbers import check_whole
from engine.training.evaluation import FROZEN

PAIRS, ROWS, KEYS = 20_000, 2_000, 64
MAX_PAIRS, MAX_ROWS, MAX_D_HEAD = 50_000, 10_000, 4096
MAX_NUMBERS = 100_000_000  # of one drawing: 400 MB
ROWS_AT_ONCE = 250


def variance(pairs: int = PAIRS, d_heads: Sequence[int] = D_HEADS, seed: int = 0) -> list[Variance]:
    """Variance and standard deviation of q.k for standard normal q and k.

    One generator; q is drawn before k, and the values of d in the order given: with the defaults, the
    chapter's digits come out.
    """
    draw, found = torch.Generator().manual_seed(seed), []
    for d_head in d_heads:
        q = torch.randn(pairs, d_head, generator=draw)
        products = q.mul_(torch.randn(pairs, d_head, generator=draw)).sum(dim=1)
        found.append(Variance(d_head, products.var().item(), products.std().item()))
    return found


def saturation(rows: int = ROWS, d_heads: Sequence[int] = D_HEADS, seed: int = 0) -> list[Saturation]:
    """What softmax makes of rows of 64 scores, divided by the square root of d and not.

    Each row is a query of its own over keys of its own.
    """
    draw, found = torch.Generator().manual_seed(seed), []
    gradients = torch.Generator().manual_seed(seed + 1)
    for d_head in d_heads:
        scores = random_scores(rows, d_head, draw)
        arriving = torch.randn(scores.shape, generator=gradients)
        divided = row_statistics(scores / math.sqrt(d_head), arriving)
        found.append(Saturation(d_head, row_statistics(scores, arriving), divided))
    return found


def measured(measurement_id: str, seed: int) -> list[Variance] | list[Saturation]:
    """The rows of one seed at the chapter's size, on one thread, for the ``Measurement`` of that id."""
    torch.set_num_threads(1)
    return variance(seed=seed) if measurement_id == "scaling-variance" else saturation(seed=seed)


def random_scores(rows: int, d_head: int, draw: torch.Generator) -> Tensor:
    """q.k of standard normal vectors, undivided. shape: -> (N, S)"""
    queries = torch.randn(rows, d_head, generator=draw)
    parts = []
    for some in queries.split(ROWS_AT_ONCE):
        keys = torch.randn(len(some), KEYS, d_head, generator=draw)
        parts.append((keys @ some.unsqueeze(-1)).squeeze(-1))
    return torch.cat(parts)


def row_statistics(scores: Tensor, arriving: Tensor) -> RowStatistics:
    """What a softmax lets through.

    shape: (N, S), (N, S) -> numbers
    arriving: a gradient with respect to the weights.
    """
    weights = scores.softmax(dim=-1)
    entropy = -torch.special.xlogy(weights, weights).sum(dim=-1)
    reaching = weights * (arriving - (weights * arriving).sum(dim=-1, keepdim=True))
    share = reaching.norm(dim=-1) / arriving.norm(dim=-1)
    return RowStatistics(
        effective_tokens=entropy.exp().mean().item(),
        frozen_share=(weights.amax(dim=-1) > FROZEN).float().mean().item(),
        trace=(weights * (1 - weights)).sum(dim=-1).mean().item(),
        gradient_share=share.mean().item(),
        gradient_share_median=share.median().item(),
    )


def random_vectors(
    pairs: int = PAIRS, rows: int = ROWS, d_heads: list[int] | None = None, seed: int = 0
) -> RandomVectors:
    """Both at these values of d, by default the chapter's. Raises InvalidInput: when one is out of range."""
    chosen = D_HEADS if d_heads is None else tuple(d_heads)
    check_whole("pairs", pairs, 2, MAX_PAIRS)
    check_whole("rows", rows, 1, MAX_ROWS)
    for d_head in chosen:
        check_whole("d", d_head, 1, MAX_D_HEAD)
        if pairs * d_head > MAX_NUMBERS:
            most = MAX_NUMBERS // d_head
            raise InvalidInput(f"{pairs:,} pairs with d {d_head:,}; allowed: at most {most:,} pairs.")
    return RandomVectors(
        variance=variance(pairs, chosen, seed),
        saturation=saturation(rows, chosen, seed),
        pairs=pairs,
        rows=rows,
        keys=KEYS,
        seed=seed,
    )
