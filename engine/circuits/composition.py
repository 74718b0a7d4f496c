"""Composition: what a later head's queries, keys and values take from an earlier head's output.

Path patching: on the way from the earlier head to one of these inputs, and there alone, its output is
replaced; whatever else reads the residual stream reads it as it was. The way is the direct one, along the
stream past all that lies between. That the keys need it is K-composition, the others are Q- and V-
composition.
Shapes: B batch, T query position, S key position (S = T), D d_model, H heads, K d_head, L
blocks.
Source: Elhage et al. 2021, "A Mathematical Framework for Transformer Circuits" (composition); Wang et al.
2023, "Interpretability in the Wild", and Goldowsky-Dill et al. 2023, "Localizing Model Behavior with Path
Patching".
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from engine.circuits.capture import Captured, carried_by, connections, read_by
from engine.circuits.interventions import Intervention, Shape, check_index, check_shape
from engine.circuits.results import INPUTS, Head
from engine.models.block import Add, PreNorm
from engine.models.mixers import CausalSelfAttention
from engine.models.transformer import Transformer


@dataclass(frozen=True, eq=False)
class PatchInputs(Intervention):
    """Some heads of one block have other scores and other values, as if they had read something else.

    scores: before the mask, shape (B, H, T, S). values: shape (B, H, S, K).
    """

    block: int
    heads: frozenset[int]
    scores: Tensor
    values: Tensor

    def first_block(self, shape: Shape) -> int:  # noqa: ARG002
        return self.block

    def at(self, places: Sequence[int]) -> Self:
        return replace(self, scores=self.scores[:, :, list(places)])

    def part(self, rows: slice) -> Self:
        return replace(self, scores=self.scores[rows], values=self.values[rows])

    def check(self, shape: Shape) -> None:
        check_index("block", self.block, shape.blocks)
        for head in self.heads:
            check_index("head", head, shape.heads)
        check_shape("scores", self.scores, (shape.batch, shape.heads, shape.length, shape.length))
        check_shape("values", self.values, (*self.scores.shape[:3], self.values.shape[-1]))

    def on_scores(self, block: int, scores: Tensor) -> Tensor:
        if block != self.block:
            return scores
        patched, here = scores.clone(), list(self.heads)
        patched[:, here] = self.scores[:, here].masked_fill(scores[:, here].isneginf(), -torch.inf)
        return patched

    def on_mixed(self, block: int, mixed: Tensor, weights: Tensor, values: Tensor) -> Tensor:  # noqa: ARG002
        if block != self.block:
            return mixed
        patched, here = mixed.clone(), list(self.heads)
        patched[:, here] = weights[:, here] @ self.values[:, here]
        return patched


@torch.no_grad()
def patch_path(
    model: Transformer,
    captured: Captured,
    senders: Collection[Head],
    instead: Tensor,
    receivers: Collection[Head],
    inputs: Collection[str],
) -> PatchInputs:
    """The direct path from some heads to inputs of heads of one later block, patched.

    captured: the run as it is. instead: what the heads of every block add instead, shape (L, B or 1, H, T,
    D). inputs: of the receivers, those that the path ends in, of ``INPUTS``.
    Raises ValueError: when the receivers are none or of several blocks, an input has no such name, a sender
        does not lie before them, or there is no such path: no queries and keys, or a stream that is no sum.
    """
    blocks = {head.block for head in receivers}
    if len(blocks) != 1:
        raise ValueError(f"the receivers are of {len(blocks)} blocks; needed: heads of one block.")
    if unknown := set(inputs) - set(INPUTS):
        raise ValueError(f"the inputs have {min(unknown)!r}; allowed: {', '.join(INPUTS)}.")
    (block,) = blocks
    check_index("block", block, len(captured.blocks))
    attention, before = connections(model)[block][0], captured.blocks[block].before
    mixer = attention.sublayer
    if not isinstance(mixer, CausalSelfAttention) or type(attention) not in (Add, PreNorm):
        raise ValueError(
            f"the mixer is {model.config.mixer!r}, the connection {model.config.connection!r}; needed: heads "
            f"that add what they write to the stream, and read queries, keys and values from it."
        )
    patched = before.clone()
    for head in senders:
        check_index(f"block of the sender {head.name}", head.block, block)
        patched += instead[head.block][:, head.head] - captured.blocks[head.block].heads[:, head.head]
    own, other = read_by(attention, before), read_by(attention, patched)
    queries, keys, values = (other if name in inputs else own for name in INPUTS)
    bias = mixer._positions[0].bias(before.shape[1], before.shape[1])
    scores = mixer.queries_and_keys(queries)[0] @ mixer.queries_and_keys(keys)[1].transpose(-2, -1)
    return PatchInputs(
        block=block,
        heads=frozenset(head.head for head in receivers),
        scores=scores if bias is None else scores + bias,
        values=carried_by(mixer, values)[0],
    )
