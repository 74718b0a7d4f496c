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
from typing import ClassVar, Self

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
class PatchEdges(OnEdges):
    """The base of those that give these looks something of another run.

    given: the other run's of each block, for every sentence or one for all, (1, ...).
    """

    given: tuple[Tensor, ...]
    by_query: ClassVar[bool] = True  # whether the third axis of what is given counts queries

    def at(self, places: Sequence[int]) -> Self:
        if not self.by_query:
            return super().at(places)
        return replace(super().at(places), given=tuple(one[:, :, list(places)] for one in self.given))

    def part(self, rows: slice) -> Self:
        return replace(self, given=tuple(one if len(one) == 1 else one[rows] for one in self.given))

    def check(self, shape: Shape) -> None:
        super().check(shape)
        name = f"what {type(self).__name__} is given"
        if len(self.given) != shape.blocks:
            raise ValueError(f"{name} is of {len(self.given)} blocks; this run has {shape.blocks}.")
        for one in self.given:
            batch = 1 if len(one) == 1 else shape.batch
            check_shape(name, one, (batch, shape.heads, shape.length, *self._last(one, shape)))

    def _last(self, one: Tensor, shape: Shape) -> tuple[int, ...]:  # noqa: ARG002
        """The sizes behind the third axis that are allowed."""
        return one.shape[3:4]


@dataclass(frozen=True, eq=False)
class PatchPattern(PatchEdges):
    """These looks take the scores of another run: the softmax shares each row out anew, all values stay.

    given: scores, (B, H, T, S).
    Source: Heimersheim and Nanda 2024, "How to use and interpret activation patching".
    """

    def on_scores(self, block: int, scores: Tensor) -> Tensor:
        if not (here := self._here(block)):
            return scores
        patched = scores.clone()
        for heads, query, key in here:
            patched[:, heads, query, key] = self.given[block][:, heads, query, key]
        return patched

    def _last(self, one: Tensor, shape: Shape) -> tuple[int, ...]:  # noqa: ARG002
        return (shape.length,)


@dataclass(frozen=True, eq=False)
class PatchValues(PatchEdges):
    """Along these looks flow the values of another run, by this run's own weights.

    mixed += weight (other value - value)
    given: values, (B, H, S, K).
    """

    by_query = False

    def on_mixed(self, block: int, mixed: Tensor, weights: Tensor, values: Tensor) -> Tensor:
        if not (here := self._here(block)):
            return mixed
        patched = mixed.clone()
        for heads, query, key in here:
            moved = self.given[block][:, heads, key] - values[:, heads, key]
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
class PatchFlow(PatchEdges):
    """What flows along these looks, weight times value, is another run's; the rest of the row stays.

    given: flows as ``flow`` gives them, (B, H, T, K).
    """

    def on_mixed(self, block: int, mixed: Tensor, weights: Tensor, values: Tensor) -> Tensor:
        if not self._here(block):
            return mixed
        own, _ = flow(self.edges, block, weights, values)
        return mixed + (self.given[block] - own) * self._rows_of(block, mixed)


@dataclass(frozen=True, eq=False)
class PatchRest(PatchEdges):
    """The weight that these looks leave to the rest of their row is another run's; their own flow stays.

    given: that weight as ``flow`` gives it, (B, H, T).
    """

    def on_mixed(self, block: int, mixed: Tensor, weights: Tensor, values: Tensor) -> Tensor:
        if not self._here(block):
            return mixed
        own, left = flow(self.edges, block, weights, values)
        rest = (weights @ values - own) * (self.given[block] / left.clamp_min(SMALLEST) - 1)[..., None]
        return mixed + rest * self._rows_of(block, mixed)

    def _last(self, one: Tensor, shape: Shape) -> tuple[int, ...]:  # noqa: ARG002
        return ()
