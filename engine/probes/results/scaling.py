"""What a dot product of width d does to a softmax, on random vectors. Imports no torch."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Variance:
    """Of q.k at one width d."""

    d: int
    variance: float
    std: float


@dataclass(frozen=True)
class RowStatistics:
    """What a softmax lets through: means over rows, but for the last.

    effective_tokens: exp of a row's entropy. frozen_share: rows with more than 0.99 on one key.
    trace: of the softmax' Jacobian diag(w) - w w^T, the sum of w (1 - w).
    gradient_share: norm of the gradient that reaches the scores, of the norm that arrives at the weights.
    gradient_share_median: half of the rows pass on less; the mean is that of the few that still learn.
    """

    effective_tokens: float
    frozen_share: float
    trace: float
    gradient_share: float
    gradient_share_median: float


@dataclass(frozen=True)
class Saturation:
    """The same scores at one width d, undivided and divided by its square root."""

    d: int
    undivided: RowStatistics
    divided: RowStatistics


@dataclass(frozen=True)
class RandomVectors:
    """Variances of ``pairs`` products, and what a softmax makes of ``rows`` rows of ``keys`` scores."""

    variance: list[Variance]
    saturation: list[Saturation]
    pairs: int
    rows: int
    keys: int
    seed: int
