"""Five wrong attentions and the tests that may catch them.

A page prints the source of what is here, so this file names torch only where something runs.
Shapes: B batch, T query position, S key position, d head width.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

Weights = Callable[["Tensor", "Tensor", bool], "Tensor"]
ROUNDING = 1e-6


def right(q: "Tensor", k: "Tensor", causal: bool) -> "Tensor":
    """softmax(q k^T / sqrt(d)). shape: (B, T, d), (B, S, d) -> (B, T, S)"""
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    if causal:
        ahead = scores.new_ones(scores.shape[-2:]).triu(1).bool()
        scores = scores.masked_fill(ahead, float("-inf"))
    return scores.softmax(dim=-1)


def softmax_axis(q: "Tensor", k: "Tensor", causal: bool) -> "Tensor":
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    if causal:
        ahead = scores.new_ones(scores.shape[-2:]).triu(1).bool()
        scores = scores.masked_fill(ahead, float("-inf"))
    return scores.softmax(dim=-2)  # over the queries


def no_scale(q: "Tensor", k: "Tensor", causal: bool) -> "Tensor":
    scores = q @ k.transpose(-2, -1)  # not divided
    if causal:
        ahead = scores.new_ones(scores.shape[-2:]).triu(1).bool()
        scores = scores.masked_fill(ahead, float("-inf"))
    return scores.softmax(dim=-1)


def late_mask(q: "Tensor", k: "Tensor", causal: bool) -> "Tensor":
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    weights = scores.softmax(dim=-1)
    if causal:
        weights = weights.tril()  # after the softmax
    return weights


def no_transpose(q: "Tensor", k: "Tensor", causal: bool) -> "Tensor":
    scores = q @ k / math.sqrt(q.shape[-1])  # not transposed
    if causal:
        ahead = scores.new_ones(scores.shape[-2:]).triu(1).bool()
        scores = scores.masked_fill(ahead, float("-inf"))
    return scores.softmax(dim=-1)


def off_by_one(q: "Tensor", k: "Tensor", causal: bool) -> "Tensor":
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    if causal:
        ahead = scores.new_ones(scores.shape[-2:]).triu(2).bool()  # one too far
        scores = scores.masked_fill(ahead, float("-inf"))
    return scores.softmax(dim=-1)


@dataclass(frozen=True)
class Finding:
    """What one test made of one implementation. said: what it measured, in a sentence."""

    implementation: str
    test: str
    caught: bool
    said: str


def rows_sum_to_one(weights: Weights) -> tuple[bool, str]:
    """Each row of weights sums to 1."""
    q, k, _ = _drawn()
    worst = (weights(q, k, True).sum(dim=-1) - 1).abs().max().item()
    return not worst < 1e-5, f"A row’s sum is off by up to {_short(worst)}."


def triangle(weights: Weights) -> tuple[bool, str]:
    """Nothing ahead has any weight."""
    q, k, _ = _drawn()
    worst = weights(q, k, True).triu(1).abs().max().item()
    return worst != 0, f"The largest weight ahead is {_short(worst)}."


def causality(weights: Weights) -> tuple[bool, str]:
    """Other tokens later on leave every earlier output as it was."""
    q, k, v = _drawn()
    half = q.shape[1] // 2
    before = weights(q, k, True) @ v
    for changed, by in zip((q, k, v), _drawn(seed=1), strict=True):
        changed[:, half:] = by[:, half:]
    worst = ((weights(q, k, True) @ v) - before)[:, :half].abs().max().item()
    return not worst < ROUNDING, f"Changing later tokens moves earlier outputs by up to {_short(worst)}."


def equal_scores(weights: Weights) -> tuple[bool, str]:
    """With a query of zeros, row t holds 1/t: the uniform average."""
    q, k, _ = _drawn()
    average = q.new_ones(q.shape[1], q.shape[1]).tril()
    average = average / average.sum(dim=-1, keepdim=True)
    worst = (weights(0 * q, k, True) - average).abs().max().item()
    return not worst < ROUNDING, f"A weight is off 1/t by up to {_short(worst)}."


def score_variance(weights: Weights) -> tuple[bool, str]:
    """Of random q and k, 64 wide, the scores (logarithms of the weights) have standard deviation 1."""
    q, k, _ = _drawn(batch=8, tokens=64, width=64)
    found = weights(q, k, False).log()
    deviation = (found - found.mean(dim=-1, keepdim=True)).std().item()
    return not 0.9 < deviation < 1.1, f"Their standard deviation is {deviation:.2f}."


def shuffle(weights: Weights) -> tuple[bool, str]:
    """Unmasked, keys and values in another order give the same output."""
    import torch

    q, k, v = _drawn()
    order = torch.randperm(k.shape[1], generator=torch.Generator().manual_seed(0))
    gap = weights(q, k[:, order], False) @ v[:, order] - weights(q, k, False) @ v
    worst = gap.abs().max().item()
    return not worst < ROUNDING, f"Another order moves the output by up to {_short(worst)}."


def oblong(weights: Weights) -> tuple[bool, str]:
    """Five tokens, 3 wide, go in and come out."""
    q, k, v = _drawn(tokens=5, width=3)
    shape = tuple((weights(q, k, True) @ v).shape)
    return shape != tuple(v.shape), f"In go {_by(v.shape)}, out come {_by(shape)}."


def parity(weights: Weights) -> tuple[bool, str]:
    """The output equals that of ``F.scaled_dot_product_attention``."""
    from torch.nn.functional import scaled_dot_product_attention

    q, k, v = _drawn()
    gap = weights(q, k, True) @ v - scaled_dot_product_attention(q, k, v, is_causal=True)
    worst = gap.abs().max().item()
    return not worst < ROUNDING, f"The largest difference is {_short(worst)}."


IMPLEMENTATIONS: dict[str, Weights] = {
    "right": right,
    "softmax-axis": softmax_axis,
    "no-scale": no_scale,
    "late-mask": late_mask,
    "no-transpose": no_transpose,
    "off-by-one": off_by_one,
}
WRONG = tuple(IMPLEMENTATIONS)[1:]
TESTS: dict[str, Callable[[Weights], tuple[bool, str]]] = {
    "rows": rows_sum_to_one,
    "triangle": triangle,
    "causality": causality,
    "equal-scores": equal_scores,
    "variance": score_variance,
    "shuffle": shuffle,
    "oblong": oblong,
    "parity": parity,
}


def findings() -> list[Finding]:
    """Every test on every implementation. An error counts as caught: a test that cannot run is red."""
    found = []
    for name, weights in IMPLEMENTATIONS.items():
        for test, run in TESTS.items():
            try:
                caught, said = run(weights)
            except RuntimeError as error:
                caught, said = True, f"It stops with “{str(error).splitlines()[0][:120]}”."
            found.append(Finding(name, test, caught, said))
    return found


def _drawn(seed: int = 0, batch: int = 2, tokens: int = 8, width: int = 8) -> "tuple[Tensor, Tensor, Tensor]":
    """Normal q, k and v. Square unless asked otherwise, as hurried tests are."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    q, k, v = torch.randn(3, batch, tokens, width, generator=generator)
    return q, k, v


def _short(value: float) -> str:
    return f"{value:.2g}".replace("-", "−")


def _by(shape: Sequence[int]) -> str:
    return " × ".join(map(str, shape))
