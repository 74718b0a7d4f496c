"""Induction heads: who looks one token back, who finds what came after the last time, and who copies it.

An induction head does both of the latter: it attends to the token that followed an earlier copy of its own
(prefix matching), and raises the logit of what it attends to (copying).

The sequences must repeat after different numbers of tokens. Where the number is always the same, a head may
find the place by counting back, without any other head, and has a high prefix-matching score all the same.
Shapes: B batch, T query position, S key position, H heads, L blocks.
Source: Olsson et al. 2022, "In-context Learning and Induction Heads".
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from engine.circuits.capture import batches, carried_by, connections, run
from engine.circuits.results import Head, HeadScores
from engine.models.block import PreNorm
from engine.models.transformer import Transformer


@torch.no_grad()
def head_scores(model: Transformer, ids: Tensor) -> HeadScores:
    """The scores of every head on any sequences in which tokens come again.

    shape: (B, T) token ids
    Raises ValueError: when there are fewer than two tokens, or none comes again.
    """
    if ids.shape[-1] < 2:
        raise ValueError(f"a sequence has {ids.shape[-1]} tokens; needed: at least 2.")
    following = followers(ids)
    queries = following.any(dim=-1)
    if not queries.any():
        raise ValueError("no token comes again in its sequence; prefix matching needs one that does.")
    previous, matching = [], []
    start = 0
    for part in batches(ids):
        weights = torch.stack([block.weights for block in run(model, part).blocks])  # (L, b, H, T, S)
        after = following[start : start + len(part), None]
        previous.append(weights.diagonal(-1, dim1=-2, dim2=-1).mean(dim=-1).sum(dim=1))
        matching.append((weights * after).sum(dim=(1, 3, 4)))
        start += len(part)
    return HeadScores(
        previous_token=(torch.stack(previous).sum(dim=0) / len(ids)).tolist(),
        prefix_matching=(torch.stack(matching).sum(dim=0) / queries.sum()).tolist(),
        copying=copying(model),
    )


@torch.no_grad()
def copying(model: Transformer) -> list[list[float]]:
    """The copying score of every head, -1 to 1: above 0 it raises the logits of tokens that it attends to.

    sum of the eigenvalues / sum of their sizes, of W_U W_O W_V W_E of that head; 0 where all are 0
    The way from embedding to logits is the direct one: what other heads add to it is left out. A norm on the
    way is not linear. What is linear in a pre-norm is kept, its gain and that it takes the mean off; its
    scale, one positive number for every token, is left out, and so are all biases. shape: -> L rows of H
    Source: Elhage et al. 2021, "A Mathematical Framework for Transformer Circuits" (eigenvalues of the OV
    circuit); Olsson et al. 2022 compare it with the rise of the attended tokens' logits in runs.
    """
    embedding = model.token_embedding.weight
    unembedding = (
        _linear_part(model.final_norm, torch.eye(embedding.shape[1], dtype=embedding.dtype))
        @ model.unembedding.weight.T
    )
    found = []
    for attention, *_ in connections(model):
        read = _linear_part(attention.norm, embedding) if isinstance(attention, PreNorm) else embedding
        values, output = carried_by(attention.sublayer, torch.stack([read, torch.zeros_like(read)]))
        # The same nonzero eigenvalues as of the V x V matrix: those of a product do not depend on its order.
        circuit = torch.einsum("dhk,dv,hvj->hkj", output, unembedding, values[0] - values[1]).double()
        eigenvalues = torch.linalg.eigvals(circuit)
        sizes = eigenvalues.abs().sum(dim=-1)
        found.append((eigenvalues.real.sum(dim=-1) / sizes.where(sizes > 0, 1)).tolist())
    return found


def _linear_part(norm: nn.Module, x: Tensor) -> Tensor:
    """A norm without its scale and its bias. shape: (N, D) -> (N, D)"""
    if not isinstance(norm, nn.LayerNorm):
        return x
    return (x - x.mean(dim=-1, keepdim=True)) * norm.weight


def followers(ids: Tensor) -> Tensor:
    """True where the key's predecessor is an earlier copy of the query. shape: (B, T) -> (B, T, S)"""
    same = ids[:, :, None] == F.pad(ids, (1, 0), value=-1)[:, None, :-1]
    return same.tril()


def pair_of(scores: HeadScores) -> tuple[Head, Head] | None:
    """A previous-token head and, in a later block, an induction head: the pair whose lower attention score is
    highest, None where there is none.
    """
    previous, matching = partners_of(scores)
    pairs = [
        (min(scores.of("previous_token", early), scores.of("prefix_matching", late)), early, late)
        for early in previous
        for late in matching
        if early.block < late.block
    ]
    return max(pairs)[1:] if pairs else None


def partners_of(scores: HeadScores) -> tuple[list[Head], list[Head]]:
    """The previous-token heads before some induction head, and the induction heads behind such."""
    previous = [head for head in scores.heads if scores.has("previous_token", head)]
    matching = [
        head for head in scores.heads if scores.has("prefix_matching", head) and scores.has("copying", head)
    ]
    return (
        [head for head in previous if any(head.block < other.block for other in matching)],
        [head for head in matching if any(other.block < head.block for other in previous)],
    )
