"""A model run again in the open: every value on the way is returned, and nothing is left on the model.

It computes what ``Transformer.forward`` computes in eval mode, sublayer by sublayer, head by head. It sets no
hook and no mode: dropout is all that modes differ in, and it is not computed here.
Shapes: B batch, T query position, S key position (S = T), D d_model, H heads, K d_head, V vocabulary, L
blocks.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import Literal

import torch
from torch import Tensor, nn

from engine.circuits.interventions import Intervention, Shape, changed
from engine.models.block import Add, PostNorm, PreNorm, Replace
from engine.models.config import WITHOUT_HEADS
from engine.models.mixers import CausalSelfAttention, future
from engine.models.transformer import Transformer

TOKENS_A_BATCH = 8192  # a batch's values then take some 100 MB at d_model 128


@dataclass(frozen=True, eq=False)
class BlockRun:
    """One block on the way, with the changes of the interventions.

    before: the residual stream that comes in. read: what the mixer reads, in pre-norm its norm.
    scores: as the model scales them, before mask and cuts; of a mixer without scores the logarithm of its
        weights, whose softmax they are. weights: each row sums to 1. values: of each head at each key.
    heads: what each head adds; with W_O's bias they sum to the sublayer's output. A mixer without heads
        counts as one.
    output_bias: W_O's bias, zeros where there is none.
    attended: the stream behind the attention sublayer. feed_forward: its output, None where there is none.
    after: the stream behind the block.
    shape: (B, T, D), but scores and weights (B, H, T, S), values (B, H, S, K), heads (B, H, T, D),
    output_bias (D,)
    """

    before: Tensor
    read: Tensor
    scores: Tensor
    weights: Tensor
    values: Tensor
    heads: Tensor
    output_bias: Tensor
    attended: Tensor
    feed_forward: Tensor | None
    after: Tensor


@dataclass(frozen=True, eq=False)
class Captured:
    """One run: the embedding with its positions, every block, the last residual stream, the logits.

    shape: ids (B, T); embedding, residual (B, T, D); logits (B, T, V)
    """

    ids: Tensor
    embedding: Tensor
    blocks: tuple[BlockRun, ...]
    residual: Tensor
    logits: Tensor

    @property
    def stream(self) -> tuple[Tensor, ...]:
        """The residual stream at every boundary, in the order of ``boundaries``. shape: (B, T, D) each"""
        found = [self.embedding]
        for block in self.blocks:
            found.append(block.attended)
            if block.feed_forward is not None:
                found.append(block.after)
        return tuple(found)


def boundaries(model: Transformer) -> tuple[str, ...]:
    """What the residual stream lies behind, for people: blocks are counted from 1."""
    parts = ("attention", "feed-forward") if model.config.d_ff else ("attention",)
    blocks = range(1, model.config.n_layer + 1)
    return ("embedding", *(f"block {block} {part}" for block in blocks for part in parts))


@torch.no_grad()
def run(model: Transformer, ids: Tensor, interventions: Sequence[Intervention] = ()) -> Captured:
    """Everything that the model computes on these tokens; interventions act in the order given.

    shape: (B, T) token ids
    Raises ValueError: when the mixer is "none", the ids are no tokens of the model, or an intervention names
        what is not there or leaves a query without any key.
    """
    shape = shape_of(model, ids)
    for intervention in interventions:
        intervention.check(shape)
    boundary = count()

    def passed(x: Tensor) -> Tensor:
        return changed(interventions, "on_residual", next(boundary), x)

    embedding = x = passed(model.positions.embed(model.token_embedding(ids)))
    blocks = []
    for number, (attention, *more) in enumerate(connections(model)):
        before, read = x, read_by(attention, x)
        scores, weights, values, heads, bias = _attend(attention.sublayer, read, number, interventions)
        x = attended = passed(joined(attention, x, heads.sum(dim=1) + bias))
        output = None
        for connection in more:
            output = connection.sublayer(read_by(connection, x))
            output = changed(interventions, "on_feed_forward", number, output)
            x = passed(joined(connection, x, output))
        blocks.append(BlockRun(before, read, scores, weights, values, heads, bias, attended, output, x))
    logits = model.unembedding(model.final_norm(x))
    return Captured(ids, embedding, tuple(blocks), x, logits)


def head_means(model: Transformer, ids: Tensor) -> Tensor:
    """What each head adds at each position, mean over these reference sentences.

    shape: (B, T) token ids -> (L, H, T, D)
    """
    return mean_heads([run(model, part) for part in batches(ids)])


def mean_heads(captured: Sequence[Captured]) -> Tensor:
    """The same of runs at hand. shape: -> (L, H, T, D)"""
    return torch.cat(mean_of(captured, "heads"))


def mean_of(captured: Sequence[Captured], what: Literal["scores", "values", "heads"]) -> tuple[Tensor, ...]:
    """What each block has there, mean over all sentences. shape: -> (1, ...) each, as ``BlockRun``"""
    count = sum(len(ran.ids) for ran in captured)
    of_blocks = zip(*(ran.blocks for ran in captured), strict=True)
    return tuple(
        torch.stack([getattr(block, what).sum(dim=0) for block in of_block]).sum(dim=0)[None] / count
        for of_block in of_blocks
    )


def batches(ids: Tensor) -> tuple[Tensor, ...]:
    """Rows in portions that fit into memory. shape: (B, T) -> (b, T) each"""
    return ids.split(max(1, TOKENS_A_BATCH // max(1, ids.shape[-1])))  # type: ignore[no-any-return]


def connections(model: Transformer) -> list[list[Replace]]:
    """Each block's connections: the mixer's, and the feed-forward's where there is one."""
    return [[part for part in block.modules() if isinstance(part, Replace)] for block in model.blocks]


def shape_of(model: Transformer, ids: Tensor) -> Shape:
    """The sizes of a run.

    Raises ValueError: when the model mixes nothing, or the ids are no tokens of it.
    """
    config = model.config
    if config.mixer == "none":
        raise ValueError("the model's mixer is 'none': no position sees another; allowed: any other mixer.")
    if ids.ndim != 2 or not ids.numel():
        raise ValueError(
            f"ids have shape {tuple(ids.shape)}; allowed: (sentences, tokens), at least one each."
        )
    low, high = int(ids.min()), int(ids.max())
    if low < 0 or high >= config.vocab_size:
        raise ValueError(f"token ids run from {low} to {high}; allowed: 0 to {config.vocab_size - 1}.")
    return Shape(
        batch=ids.shape[0],
        length=ids.shape[1],
        blocks=config.n_layer,
        heads=1 if config.mixer in WITHOUT_HEADS else config.n_head,
        boundaries=len(boundaries(model)),
        width=config.d_model,
        feed_forward=config.d_ff > 0,
        causal=config.mixer != "unmasked",
    )


def read_by(connection: Replace, x: Tensor) -> Tensor:
    """What the sublayer of a connection reads. shape: (B, T, D) -> (B, T, D)"""
    y: Tensor = connection.norm(x) if isinstance(connection, PreNorm) else x
    return y


def joined(connection: Replace, x: Tensor, y: Tensor) -> Tensor:
    """The stream behind a connection, of the one before it and its sublayer's output y; see ``block.py``."""
    match connection:
        case Add() | PreNorm():
            return x + y
        case PostNorm():
            return connection.norm(x + y)  # type: ignore[no-any-return]
        case _:
            return y


def _attend(
    mixer: nn.Module, x: Tensor, block: int, interventions: Sequence[Intervention]
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Scores, weights, values, what each head adds, and W_O's bias."""
    scores, values, output, bias = parts_of(mixer, x)
    seen = changed(interventions, "on_scores", block, masked(mixer, scores))
    weights = weights_of(seen, block, range(x.shape[1]))
    mixed = changed(interventions, "on_mixed", block, weights @ values, weights, values)
    heads = torch.einsum("bhtk,dhk->bhtd", mixed, output)
    return scores, weights, values, changed(interventions, "on_heads", block, heads), bias


def masked(mixer: nn.Module, scores: Tensor) -> Tensor:
    """-inf at every key ahead, of a mixer that sees none of them. shape: (..., T, S) -> (..., T, S)"""
    return scores.masked_fill(future(scores), -math.inf) if getattr(mixer, "causal", True) else scores


def weights_of(scores: Tensor, block: int, queries: Sequence[int]) -> Tensor:
    """The softmax of masked and perhaps cut scores; queries: the positions of the rows.

    shape: (..., H, T, S) -> (..., H, T, S)
    Raises ValueError: when a row is left without any key.
    """
    if (empty := scores.isneginf().all(dim=-1)).any():
        *_, head, query = empty.nonzero()[0].tolist()
        raise ValueError(
            f"position {queries[query]} would see no key in head {head} of block {block} (counted from 0); "
            f"leave it at least one edge."
        )
    return scores.softmax(dim=-1)


def parts_of(mixer: nn.Module, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Scores (B, H, T, S), values (B, H, S, K), W_O by head (D, H, K) and its bias (D,)."""
    values, output = carried_by(mixer, x)
    bias = getattr(getattr(mixer, "W_O", None), "bias", None)
    if isinstance(mixer, CausalSelfAttention):
        scores = mixer.scores(x)
    else:
        scores = mixer.attention_weights(x).log().expand(len(x), -1, -1, -1)  # type: ignore[operator]
    return scores, values, output, x.new_zeros(x.shape[-1]) if bias is None else bias


def carried_by(mixer: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
    """What heads carry of what is read, and to where: values (B, H, S, K), W_O by head (D, H, K)."""
    unit = torch.eye(x.shape[-1], dtype=x.dtype, device=x.device)
    if not isinstance(mixer, CausalSelfAttention):  # an average of the vectors themselves
        return x[:, None], unit[:, None]
    size = mixer.n_head, mixer.d_head
    output = mixer.W_O.weight if isinstance(mixer.W_O, nn.Linear) else unit
    return mixer.W_V(x).unflatten(-1, size).transpose(1, 2), output.unflatten(-1, size)
