"""The ladder of inputs for a reader's attention, and the mistakes that its outputs are compared with.

Shapes: B batch, T position, d head width.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Case:
    """One rung of the ladder. aims_at: what it is there to catch, None for the arithmetic itself."""

    batch: int
    tokens: int
    width: int
    causal: bool
    dtype: torch.dtype = torch.float32
    times: float = 1.0
    aims_at: str | None = None

    @property
    def name(self) -> str:
        """For people: "T = 3, d = 2, causal"."""
        said = [f"B = {self.batch}"] if self.batch > 1 else []
        said += [f"T = {self.tokens}", f"d = {self.width}", "causal" if self.causal else "not causal"]
        if self.dtype != torch.float32:
            said.append(str(self.dtype).removeprefix("torch."))
        return ", ".join(said + ["large scores"] * (self.times > 1))

    def inputs(self) -> tuple[Tensor, Tensor, Tensor]:
        """q, k and v with one decimal, so that they can be read; always the same. shape: (B, T, d)"""
        generator = torch.Generator().manual_seed(100 * self.batch + 10 * self.tokens + self.width)
        drawn = torch.randn(3, self.batch, self.tokens, self.width, generator=generator)
        q, k, v = (drawn.mul(10).round() / 10 + 0.0).to(self.dtype)
        return q * self.times, k * self.times, v


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
    Case(1, 3, 2, True, dtype=torch.float64, aims_at="dtype"),
    Case(1, 3, 2, True, dtype=torch.float16, aims_at="dtype"),
    Case(1, 3, 2, True, dtype=torch.bfloat16, aims_at="dtype"),
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


def attend(q: Tensor, k: Tensor, v: Tensor, causal: bool, faults: Sequence[Fault] = ()) -> Tensor:
    """softmax(q k^T / sqrt(d), causal) v, or with some of its parts wrong."""
    wrong = {fault.part: fault.switch for fault in faults}
    T, d = q.shape[-2:]
    turned = k.transpose(-2, -1)
    if wrong.get("transpose") == "missing":
        turned = k
    elif wrong.get("transpose") == "reshaped":
        turned = k.reshape(*k.shape[:-2], d, T)
    divisor = {"none": 1.0, "width": d, "tokens": math.sqrt(T), "times": 1 / math.sqrt(d)}
    scores = q @ turned / divisor.get(wrong.get("scale", ""), math.sqrt(d))
    mask = wrong.get("mask", "")
    if {"never": False, "always": True, "inverted": not causal}.get(mask, causal):
        ones = torch.ones(T, T, dtype=torch.bool)
        hidden = {"ahead": ones.triu(2), "self": ones.triu(0), "past": ones.tril(-1)}.get(mask, ones.triu(1))
    else:
        hidden = torch.zeros(T, T, dtype=torch.bool)
    if mask != "late":
        scores = scores.masked_fill(hidden, 0.0 if mask == "zero" else float("-inf"))
    axis = {"queries": -2, "batch": 0}.get(wrong.get("softmax axis", ""), -1)
    weights = scores if wrong.get("softmax axis") == "missing" else scores.softmax(dim=axis)
    if mask == "late":
        weights = weights.masked_fill(hidden, 0.0)
    if wrong.get("transpose") == "weights":
        weights = weights.transpose(-2, -1)
    if wrong.get("values") == "alone":
        return v
    return weights @ {"keys": k, "queries": q}.get(wrong.get("values", ""), v)


def expected(case: Case) -> Tensor:
    """The right output of a case, computed in float64 and rounded once. shape: (B, T, d)"""
    q, k, v = (one.double() for one in case.inputs())
    return attend(q, k, v, case.causal).to(case.dtype)
