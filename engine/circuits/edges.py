"""What may be changed along single looks (edges): cut, or given the scores or the values of another run.

A look has two parts. Its score decides how much flows along it and, as a row shares one denominator, along
all others; its value is what flows. Cutting it changes both, a patch of either tells them apart.
Shapes: B batch, T query position, S key position (S = T), H heads, K d_head.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

from torch import Tensor

from engine.circuits.interventions import Intervention, Shape, check_index, check_shape
from engine.circuits.results import Edge


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


def _check_blocks(name: str, of_blocks: tuple[Tensor, ...], shape: Shape, last: int | None = None) -> None:
    """What another run gives of every block, for each sentence or once for all. last: size, None for any."""
    if len(of_blocks) != shape.blocks:
        raise ValueError(f"{name} are given of {len(of_blocks)} blocks; this run has {shape.blocks}.")
    for values in of_blocks:
        batch = 1 if len(values) == 1 else shape.batch
        check_shape(name, values, (batch, shape.heads, shape.length, last or values.shape[-1]))


def _rows(of_blocks: tuple[Tensor, ...], rows: slice) -> tuple[Tensor, ...]:
    return tuple(one if len(one) == 1 else one[rows] for one in of_blocks)
