"""What may be changed along single looks (edges): cut, or given the scores or the values of another run.

A look has two parts. Its score decides how much flows along it and, as a row shares one denominator, along
all others; its value is what flows. Cutting it changes both, a patch of either tells them apart. A score
acts in two ways again: by how much flows along the look (its flow), and by what it leaves to the rest of
the row.
Shapes: B batch, T query position, S key position (S = T), H heads, K d_head.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from engine.circuits.interventions import Intervention, Shape, check_index, check_shape
from engine.circuits.results import Edge

SMALLEST = 1e-30  # of a weight that is divided by


@dataclass(frozen=True)
class OnEdges(Intervention):
    """What is changed along some looks alone."""

    edges: frozenset[Edge]

    def first_block(self, shape: Shape) -> int:  # noqa: ARG002
        return min((edge.block for edge in self.edges), default=0)

    def reach(self, shape: Shape) -> frozenset[int]:
        first = self.first_block(shape)
        return frozenset(edge.query for edge in self.edges if edge.block == first)

    def at(self, places: Sequence[int]) -> Self:
        order = {place: number for number, place in enumerate(places)}
        kept = (edge for edge in self.edges if edge.query in order)
        return replace(self, edges=frozenset(replace(e, query=order[e.query]) for e in kept))

    def cells(self, heads: int) -> int:
        """How many cells of the maps it changes in each sentence, of a model with so many heads."""
        named = ((edge, range(heads) if edge.head is None else [edge.head]) for edge in self.edges)
        return len({(edge.block, head, edge.query, edge.key) for edge, those in named for head in those})

    def check(self, shape: Shape) -> None:
        for edge in self.edges:
            check_index("block", edge.block, shape.blocks)
            check_index("query position", edge.query, shape.length)
            check_index("key position", edge.key, shape.length)
            if edge.head is not None:
                check_index("head", edge.head, shape.heads)
            if shape.causal and edge.key > edge.query:
                raise ValueError(
                    f"the key position is {edge.key}, ahead of its query: there is no such edge; "
                    f"allowed: 0 to {edge.query}."
                )

    def _rows_of(self, block: int, mixed: Tensor) -> Tensor:
        """Which rows have such a look. shape: (B, H, T, K) -> (1, H, T, 1) of booleans"""
        found = torch.zeros_like(mixed[:1, :, :, :1], dtype=torch.bool)
        for heads, query, _ in self._here(block):
            found[:, heads, query] = True
        return found

    def _here(self, block: int) -> list[tuple[slice, int, int]]:
        """Of that block: which heads, the query's place and the key's."""
        return [
            (slice(None) if edge.head is None else slice(edge.head, edge.head + 1), edge.query, edge.key)
            for edge in self.edges
            if edge.block == block
        ]


@dataclass(frozen=True)
class CutEdges(OnEdges):
    """These looks are not possible; the rest of the row is renormalised without them, so it still sums to 1.

    weights = softmax(scores, with -inf at every cut edge)
    A run refuses to cut a row's last edge.
    Source: Geva et al. 2023, "Dissecting Recall of Factual Associations", section 4 (attention knockout).
    """

    def on_scores(self, block: int, scores: Tensor) -> Tensor:
        if not (here := self._here(block)):
            return scores
        kept = scores.clone()
        for heads, query, key in here:
            kept[:, heads, query, key] = -math.inf
        return kept


@dataclass(frozen=True, eq=False)
class PatchPattern(OnEdges):
    """These looks take the scores of another run: the softmax shares each row out anew, all values stay.

    scores: the other run's of each block, (B, H, T, S), or one for all sentences, (1, H, T, S).
    Source: Heimersheim and Nanda 2024, "How to use and interpret activation patching".
    """

    scores: tuple[Tensor, ...]

    def at(self, places: Sequence[int]) -> Self:
        return replace(super().at(places), scores=tuple(one[:, :, list(places)] for one in self.scores))

    def part(self, rows: slice) -> Self:
        return replace(self, scores=_rows(self.scores, rows))

    def check(self, shape: Shape) -> None:
        super().check(shape)
        _check_blocks("scores", self.scores, shape, shape.length)

    def on_scores(self, block: int, scores: Tensor) -> Tensor:
        if not (here := self._here(block)):
            return scores
        patched = scores.clone()
        for heads, query, key in here:
            patched[:, heads, query, key] = self.scores[block][:, heads, query, key]
        return patched


@dataclass(frozen=True, eq=False)
class PatchValues(OnEdges):
    """Along these looks flow the values of another run, by this run's own weights.

    mixed += weight (other value - value)
    values: the other run's of each block, (B, H, S, K), or one for all sentences, (1, H, S, K).
    """

    values: tuple[Tensor, ...]

    def part(self, rows: slice) -> Self:
        return replace(self, values=_rows(self.values, rows))

    def check(self, shape: Shape) -> None:
        super().check(shape)
        _check_blocks("values", self.values, shape)

    def on_mixed(self, block: int, mixed: Tensor, weights: Tensor, values: Tensor) -> Tensor:
        if not (here := self._here(block)):
            return mixed
        patched = mixed.clone()
        for heads, query, key in here:
            moved = self.values[block][:, heads, key] - values[:, heads, key]
            patched[:, heads, query] += weights[:, heads, query, key, None] * moved
        return patched


def flow(edges: Iterable[Edge], block: int, weights: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    """What flows along these looks into each row, and the weight that they leave to the rest of it.

    shape: (B, H, T, S), (B, H, S, K) -> (B, H, T, K), (B, H, T)
    """
    if not (here := [edge for edge in edges if edge.block == block]):
        return values.new_zeros(*weights.shape[:3], values.shape[-1]), weights.new_ones(weights.shape[:3])
    taken = torch.zeros_like(weights[:1], dtype=torch.bool)
    for edge in here:
        heads = slice(None) if edge.head is None else edge.head
        taken[:, heads, edge.query, edge.key] = True
    # Not 1 less the others': what is left may be too small for that.
    return (weights * taken) @ values, (weights * ~taken).sum(dim=-1)


@dataclass(frozen=True, eq=False)
class PatchFlow(OnEdges):
    """What flows along these looks, weight times value, is another run's; the rest of the row stays.

    flows: the other run's of each block, as ``flow`` gives it, or one for all sentences, (1, H, T, K).
    """

    flows: tuple[Tensor, ...]

    def at(self, places: Sequence[int]) -> Self:
        return replace(super().at(places), flows=tuple(one[:, :, list(places)] for one in self.flows))

    def part(self, rows: slice) -> Self:
        return replace(self, flows=_rows(self.flows, rows))

    def on_mixed(self, block: int, mixed: Tensor, weights: Tensor, values: Tensor) -> Tensor:
        if not self._here(block):
            return mixed
        own, _ = flow(self.edges, block, weights, values)
        return mixed + (self.flows[block] - own) * self._rows_of(block, mixed)


@dataclass(frozen=True, eq=False)
class PatchRest(OnEdges):
    """The weight that these looks leave to the rest of their row is another run's; their own flow stays.

    rests: the other run's of each block, as ``flow`` gives it, or one for all sentences, (1, H, T).
    """

    rests: tuple[Tensor, ...]

    def at(self, places: Sequence[int]) -> Self:
        return replace(super().at(places), rests=tuple(one[:, :, list(places)] for one in self.rests))

    def part(self, rows: slice) -> Self:
        return replace(self, rests=_rows(self.rests, rows))

    def on_mixed(self, block: int, mixed: Tensor, weights: Tensor, values: Tensor) -> Tensor:
        if not self._here(block):
            return mixed
        own, left = flow(self.edges, block, weights, values)
        rest = (weights @ values - own) * (self.rests[block] / left.clamp_min(SMALLEST) - 1)[..., None]
        return mixed + rest * self._rows_of(block, mixed)


def _check_blocks(name: str, of_blocks: tuple[Tensor, ...], shape: Shape, last: int | None = None) -> None:
    """What another run gives of every block, for each sentence or once for all. last: size, None for any."""
    if len(of_blocks) != shape.blocks:
        raise ValueError(f"{name} are given of {len(of_blocks)} blocks; this run has {shape.blocks}.")
    for values in of_blocks:
        batch = 1 if len(values) == 1 else shape.batch
        check_shape(name, values, (batch, shape.heads, shape.length, last or values.shape[-1]))


def _rows(of_blocks: tuple[Tensor, ...], rows: slice) -> tuple[Tensor, ...]:
    return tuple(one if len(one) == 1 else one[rows] for one in of_blocks)
