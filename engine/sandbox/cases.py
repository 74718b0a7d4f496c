"""The ladder of inputs for a reader's attention, and the mistakes that its outputs are compared with.

In numpy, so that the app can compute what is expected: nothing here is loaded where pasted code runs.
Shapes: B batch, T position, d head width.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Case:
    """One rung of the ladder. aims_at: what it is there to catch, None for the arithmetic itself."""

    batch: int
    tokens: int
    width: int
    causal: bool
    dtype: str = "float32"
    times: float = 1.0
    aims_at: str | None = None

    @property
    def name(self) -> str:
        """For people: "T = 3, d = 2, causal"."""
        words = [f"B = {self.batch}"] if self.batch > 1 else []
        words += [f"T = {self.tokens}", f"d = {self.width}", "causal" if self.causal else "not causal"]
        words += [self.dtype] * (self.dtype != "float32") + ["large scores"] * (self.times > 1)
        return ", ".join(words)

    def inputs(self) -> Array:
        """q, k and v in quarters, which every dtype stores exactly; always the same. shape: (3, B, T, d)"""
        draw = np.random.RandomState(100 * self.batch + 10 * self.tokens + self.width)
        drawn = draw.standard_normal((3, self.batch, self.tokens, self.width))
        return ((4 * drawn).round() / 4 + 0.0) * self.times  # no -0.0

    def expected(self) -> Array:
        """The right output, in float64 whatever the case's dtype. shape: (B, T, d)"""
        return attend(self.inputs(), self.causal)


LADDER = (
    Case(1, 1, 1, False),
    Case(1, 2, 1, False),
    Case(1, 2, 1, True),
    Case(1, 1, 4, True),
    Case(1, 2, 2, False),
    Case(1, 2, 2, True),
    Case(1, 3, 2, False),
    Case(1, 3, 2, True),
    Case(1, 4, 4, True),
    Case(1, 3, 4, False),
    Case(2, 3, 2, False),
    Case(2, 3, 4, True),
    Case(1, 12, 16, True),
    Case(1, 3, 2, True, dtype="float64", aims_at="dtype"),
    Case(1, 3, 2, True, dtype="float16", aims_at="dtype"),
    Case(1, 3, 2, True, dtype="bfloat16", aims_at="dtype"),
    Case(1, 3, 2, True, times=40.0, aims_at="overflow"),
)


# What goes wrong, as switches of one computation: a wrong output is compared with what each would give.


@dataclass(frozen=True)
class Fault:
    """One known mistake. part: what of attention it is in; said: the sentence that names it."""

    part: str
    switch: str
    said: str


FAULTS = (
    Fault("scale", "none", "the scores are not divided by √d"),
    Fault("scale", "width", "the scores are divided by d, not by √d"),
    Fault("scale", "tokens", "the scores are divided by √T, the number of tokens, not by √d"),
    Fault("scale", "times", "the scores are multiplied by √d, not divided by it"),
    Fault("mask", "never", "causal=True is ignored, nothing is masked"),
    Fault("mask", "always", "the mask is laid on even where causal is False"),
    Fault("mask", "inverted", "causal=True leaves the mask out and causal=False lays it on"),
    Fault("mask", "late", "it comes after the softmax, so a masked row no longer sums to 1"),
    Fault("mask", "zero", "masked scores are set to 0 and not to −∞, and exp(0) = 1 is still a weight"),
    Fault("mask", "ahead", "it is off by one, and every position sees the token after it"),
    Fault("mask", "self", "it is off by one and hides every token from itself, so the first row is empty"),
    Fault("mask", "past", "it hides the past and leaves the future"),
    Fault(
        "softmax axis", "queries", "the softmax runs over the queries, so columns sum to 1 and rows do not"
    ),
    Fault("softmax axis", "batch", "the softmax runs over the batch"),
    Fault("softmax axis", "missing", "there is no softmax: the scores themselves are the weights"),
    Fault("transpose", "missing", "k is not transposed, and q @ k only works at all where T equals d"),
    Fault("transpose", "reshaped", "k is reshaped to (B, d, T), which scrambles it; transpose it"),
    Fault("transpose", "weights", "the weights meet v transposed"),
    Fault("values", "keys", "the weights mix k, not v"),
    Fault("values", "queries", "the weights mix q, not v"),
    Fault("values", "alone", "v comes back as it is, with nothing mixed into it"),
)
TOGETHER = ("scale", "mask", "softmax axis", "transpose")  # parts whose faults are also tried in pairs


def attend(inputs: Array, causal: bool, faults: Sequence[Fault] = ()) -> Array:
    """softmax(q k^T / sqrt(d), causal) v, or with some of its parts wrong. shape: (3, B, T, d) -> (B, T, d)

    Raises ValueError: when a fault leaves shapes that cannot be multiplied.
    """
    q, k, v = inputs
    wrong = {fault.part: fault.switch for fault in faults}
    T, d = q.shape[-2:]
    turned = {"missing": k, "reshaped": k.reshape(*k.shape[:-2], d, T)}.get(wrong.get("transpose", ""), k.mT)
    divisor = {"none": 1.0, "width": d, "tokens": math.sqrt(T), "times": 1 / math.sqrt(d)}
    scores = q @ turned / divisor.get(wrong.get("scale", ""), math.sqrt(d))
    mask, ones = wrong.get("mask", ""), np.ones((T, T), bool)
    hidden = {"ahead": np.triu(ones, 2), "self": np.triu(ones), "past": np.tril(ones, -1)}.get(
        mask, np.triu(ones, 1)
    )
    hidden &= {"never": False, "always": True, "inverted": not causal}.get(mask, causal)
    if mask != "late":
        scores = np.where(hidden, 0.0 if mask == "zero" else -np.inf, scores)
    axis = {"queries": -2, "batch": 0, "missing": None}.get(wrong.get("softmax axis", ""), -1)
    weights = scores if axis is None else softmax(scores, axis)
    if mask == "late":
        weights = np.where(hidden, 0.0, weights)
    if wrong.get("transpose") == "weights":
        weights = weights.mT
    with np.errstate(invalid="ignore"):  # rows that a fault left empty
        mixed: Array = weights @ {"keys": k, "queries": q}.get(wrong.get("values", ""), v)
    return v if wrong.get("values") == "alone" else mixed


def softmax(scores: Array, axis: int) -> Array:
    """exp over its sum along an axis; NaN, as in torch, where everything is masked."""
    with np.errstate(invalid="ignore"):
        powers = np.exp(scores - scores.max(axis, keepdims=True))
        shares: Array = powers / powers.sum(axis, keepdims=True)
    return shares
