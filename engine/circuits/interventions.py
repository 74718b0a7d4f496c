"""What may be changed in a run, as values: heads ablated, activations of another run put in.

Shapes: B batch, T query position, S key position (S = T), D d_model, H heads, L blocks.
Blocks, heads, positions and boundaries are counted from 0. Boundary 0 of the residual stream lies behind the
embedding, and one more behind every sublayer.
"""

from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from engine.circuits.results import Head


@dataclass(frozen=True)
class Shape:
    """The sizes of one run, against which interventions are checked."""

    batch: int
    length: int
    blocks: int
    heads: int
    boundaries: int
    width: int
    feed_forward: bool
    causal: bool


class Intervention:
    """The base of every kind: five hooks that change nothing. A kind overrides the one it needs."""

    def check(self, shape: Shape) -> None:
        """Raises ValueError: when it names what the run has not, or holds values of another shape."""

    def part(self, rows: slice) -> Self:  # noqa: ARG002 - the base holds nothing that belongs to a row
        """The same for some rows of the batch."""
        return self

    def at(self, places: Sequence[int]) -> Self:  # noqa: ARG002 - the base names no position
        """The same where only these queries are computed, in this order; what acts elsewhere is left out."""
        return self

    def first_block(self, shape: Shape) -> int:  # noqa: ARG002
        """The block from which on it may change a run; all before stay as they are without it."""
        return 0

    def reach(self, shape: Shape) -> frozenset[int]:
        """The positions whose stream may change behind that first block."""
        return frozenset(range(shape.length))

    def on_residual(self, boundary: int, x: Tensor) -> Tensor:  # noqa: ARG002
        """The residual stream at a boundary. shape: (B, T, D) -> (B, T, D)"""
        return x

    def on_scores(self, block: int, scores: Tensor) -> Tensor:  # noqa: ARG002
        """Scores behind the causal mask, before the softmax. shape: (B, H, T, S) -> (B, H, T, S)"""
        return scores

    def on_mixed(self, block: int, mixed: Tensor, weights: Tensor, values: Tensor) -> Tensor:  # noqa: ARG002
        """Each head's weighted sum of values, of the weights and values that it was made of.

        shape: (B, H, T, K), (B, H, T, S), (B, H, S, K) -> (B, H, T, K)
        """
        return mixed

    def on_heads(self, block: int, heads: Tensor) -> Tensor:  # noqa: ARG002
        """What each head adds to the sublayer's output. shape: (B, H, T, D) -> (B, H, T, D)"""
        return heads

    def on_feed_forward(self, block: int, output: Tensor) -> Tensor:  # noqa: ARG002
        """The feed-forward's output. shape: (B, T, D) -> (B, T, D)"""
        return output


def changed(interventions: Iterable[Intervention], hook: str, at: int, x: Tensor, *beside: Tensor) -> Tensor:
    """x behind every intervention's hook of that name, in order.

    at: the block or the boundary. beside: what the hook is given besides.
    """
    for intervention in interventions:
        x = getattr(intervention, hook)(at, x, *beside)
    return x


@dataclass(frozen=True)
class ZeroHeads(Intervention):
    """These heads add nothing, at any position; W_O's bias stays."""

    heads: frozenset[Head]

    def first_block(self, shape: Shape) -> int:  # noqa: ARG002
        return min((head.block for head in self.heads), default=0)

    def check(self, shape: Shape) -> None:
        _check_heads(self.heads, shape)

    def on_heads(self, block: int, heads: Tensor) -> Tensor:
        return _with_heads(heads, self.heads, block, torch.zeros_like(heads[0]))


@dataclass(frozen=True, eq=False)
class MeanHeads(ZeroHeads):
    """These heads add what they add on average, position by position: they no longer tell sentences apart.

    means: from ``capture.head_means``, shape (L, H, T, D).
    Source: Wang et al. 2023, "Interpretability in the Wild", section 2.1.
    """

    means: Tensor

    def at(self, places: Sequence[int]) -> Self:
        return replace(self, means=self.means[:, :, list(places)])

    def check(self, shape: Shape) -> None:
        super().check(shape)
        check_shape("means", self.means, (shape.blocks, shape.heads, shape.length, shape.width))

    def on_heads(self, block: int, heads: Tensor) -> Tensor:
        return _with_heads(heads, self.heads, block, self.means[block])


@dataclass(frozen=True, eq=False)
class PatchResidual(Intervention):
    """The residual stream of another run, at some positions of one boundary.

    stream: the other run's, shape (B, T, D).
    """

    boundary: int
    positions: tuple[int, ...]
    stream: Tensor

    def first_block(self, shape: Shape) -> int:
        return max(0, self.boundary - 1) // (2 if shape.feed_forward else 1)

    def reach(self, shape: Shape) -> frozenset[int]:
        return frozenset(self.positions) if self.boundary else super().reach(shape)

    def at(self, places: Sequence[int]) -> Self:
        kept = tuple(number for number, place in enumerate(places) if place in self.positions)
        return replace(self, positions=kept, stream=self.stream[:, list(places)])

    def check(self, shape: Shape) -> None:
        check_index("boundary", self.boundary, shape.boundaries)
        for position in self.positions:
            check_index("position", position, shape.length)
        check_shape("stream", self.stream, (shape.batch, shape.length, shape.width))

    def part(self, rows: slice) -> Self:
        return replace(self, stream=self.stream[rows])

    def on_residual(self, boundary: int, x: Tensor) -> Tensor:
        if boundary != self.boundary:
            return x
        places = list(self.positions)
        patched = x.clone()
        patched[:, places] = self.stream[:, places]
        return patched


@dataclass(frozen=True, eq=False)
class PatchHeads(Intervention):
    """What some heads of one block added in another run, at every position.

    outputs: the other run's ``BlockRun.heads``, shape (B, H, T, D).
    """

    block: int
    heads: frozenset[int]
    outputs: Tensor

    def first_block(self, shape: Shape) -> int:  # noqa: ARG002
        return self.block

    def at(self, places: Sequence[int]) -> Self:
        return replace(self, outputs=self.outputs[:, :, list(places)])

    def check(self, shape: Shape) -> None:
        _check_heads({Head(self.block, head) for head in self.heads}, shape)
        check_shape("outputs", self.outputs, (shape.batch, shape.heads, shape.length, shape.width))

    def part(self, rows: slice) -> Self:
        return replace(self, outputs=self.outputs[rows])

    def on_heads(self, block: int, heads: Tensor) -> Tensor:
        return _with_heads(heads, {Head(self.block, head) for head in self.heads}, block, self.outputs)


@dataclass(frozen=True, eq=False)
class PatchFeedForward(Intervention):
    """The output of one block's feed-forward in another run, at every position.

    output: the other run's ``BlockRun.feed_forward``, shape (B, T, D).
    """

    block: int
    output: Tensor

    def first_block(self, shape: Shape) -> int:  # noqa: ARG002
        return self.block

    def at(self, places: Sequence[int]) -> Self:
        return replace(self, output=self.output[:, list(places)])

    def check(self, shape: Shape) -> None:
        if not shape.feed_forward:
            raise ValueError("a feed-forward is to be patched; this model has none (d_ff is 0).")
        check_index("block", self.block, shape.blocks)
        check_shape("output", self.output, (shape.batch, shape.length, shape.width))

    def part(self, rows: slice) -> Self:
        return replace(self, output=self.output[rows])

    def on_feed_forward(self, block: int, output: Tensor) -> Tensor:
        return self.output if block == self.block else output


def _with_heads(outputs: Tensor, heads: Set[Head], block: int, values: Tensor) -> Tensor:
    """These heads' outputs taken from ``values``. shape: (B, H, T, D), (..., H, T, D) -> (B, H, T, D)"""
    here = [head for of_block, head in heads if of_block == block]
    if not here:
        return outputs
    changed = outputs.clone()
    changed[:, here] = values[..., here, :, :]
    return changed


def _check_heads(heads: Set[Head], shape: Shape) -> None:
    for block, head in heads:
        check_index("block", block, shape.blocks)
        check_index("head", head, shape.heads)


def check_index(name: str, value: int, count: int) -> None:
    """Raises ValueError: when there is no such one."""
    if not 0 <= value < count:
        allowed = f"0 to {count - 1}" if count else "none, there are no blocks"
        raise ValueError(f"the {name} is {value}; allowed: {allowed}.")


def check_shape(name: str, values: Tensor, wanted: tuple[int, ...]) -> None:
    """Raises ValueError: when values of another run have another shape."""
    if tuple(values.shape) != wanted:
        raise ValueError(f"{name} has shape {tuple(values.shape)}; this run needs {wanted}.")
