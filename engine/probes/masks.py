"""One average computed three ways, and what a mask and a softmax make of any scores. Imports no torch.

What torch alone can answer (bfloat16, its own attention) is in ``leaks.py``.
Shapes: T query position, S key position (S = T here), D features.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.floating]

TOKENS = 6
WIDTH = 8  # features of the vectors that are averaged


def loop(x: Array) -> Array:
    """The mean of everything up to t, one position after the other. shape: (T, D) -> (T, D)"""
    return np.stack([x[: t + 1].mean(axis=0) for t in range(len(x))])


def matrix_product(x: Array) -> Array:
    """A triangle of ones, each row divided by its sum, times x. shape: (T, D) -> (T, D)"""
    ones = np.tril(np.ones((len(x), len(x)), x.dtype))
    averages: Array = ones / ones.sum(axis=1, keepdims=True) @ x
    return averages


def softmax_of_zeros(x: Array) -> Array:
    """The softmax of equal scores, what is ahead masked, times x. shape: (T, D) -> (T, D)"""
    return softmax(masked(np.zeros((len(x), len(x)), x.dtype))) @ x


def masked(scores: Array) -> Array:
    """-inf above the diagonal. shape: (T, S) -> (T, S)"""
    return np.where(np.tril(np.ones(scores.shape, bool)), scores, scores.dtype.type(-np.inf))


def softmax(scores: Array) -> Array:
    """exp(score) over its row's sum, with the row's maximum taken off first. shape: (T, S) -> (T, S)"""
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    weights: Array = powers / powers.sum(axis=1, keepdims=True)
    return weights


WAYS: dict[str, Callable[[Array], Array]] = {
    "loop": loop,
    "matrix product": matrix_product,
    "softmax": softmax_of_zeros,
}


@dataclass(frozen=True)
class ThreeWays:
    """How far the three ways to one average are apart, in float32.

    differences: the largest absolute difference of two ways, by their names.
    magnitude: the mean absolute value of the averages.
    """

    differences: dict[tuple[str, str], float]
    magnitude: float


def three_ways(tokens: int, seed: int) -> ThreeWays:
    """Average ``tokens`` standard normal vectors of width 8 in all three ways.

    Source: chapter, "averages"; seed 0 and six tokens give its 5.96e-08.
    """
    x = np.random.default_rng(seed).standard_normal((tokens, WIDTH), dtype=np.float32)
    found = {name: way(x) for name, way in WAYS.items()}
    return ThreeWays(
        differences={(a, b): float(np.abs(found[a] - found[b]).max()) for a, b in combinations(found, 2)},
        magnitude=float(np.abs(found["loop"]).mean()),
    )


@dataclass(frozen=True)
class Mixture:
    """What a grid of scores makes of six value vectors.

    weights: after mask and softmax, shape (T, S); mixed: weights times values, shape (T, D).
    effective: effective tokens of each row of weights, shape (T,).
    linear_effective: the same of a linear layer that takes the scores for its coefficients, by the share
        that each has in the row's sum of absolute values; NaN for a row of zeros. shape (T,)
    """

    weights: Array
    mixed: Array
    effective: Array
    linear_effective: Array


# The corners of a hexagon: a mixture of them lies inside, and the harder the choice, the nearer to a corner.
VALUES: Array = np.array([[np.cos(a), np.sin(a)] for a in np.pi / 2 - np.pi / 3 * np.arange(TOKENS)])


def mix(scores: Array, times: float = 1.0, *, causal: bool = True) -> Mixture:
    """Multiply the scores, mask, softmax, mix the six values. shape: (T, S) in

    times: what every score is multiplied by, as the chapter's ten.
    """
    multiplied = scores * times
    weights = softmax(masked(multiplied) if causal else multiplied)
    coefficients = np.abs(np.tril(multiplied) if causal else multiplied)
    with np.errstate(invalid="ignore"):
        shares = coefficients / coefficients.sum(axis=1, keepdims=True)
    return Mixture(weights, weights @ VALUES, effective_tokens(weights), effective_tokens(shares))


def effective_tokens(shares: Array) -> Array:
    """exp(entropy): over how many tokens a row in effect takes its mean. shape: (T, S) -> (T,)

    Source: chapter, "why divide by sqrt(d_k)".
    """
    logs = np.log(shares, where=shares > 0, out=np.zeros_like(shares))
    counts: Array = np.exp(-(shares * logs).sum(axis=1))
    return counts
