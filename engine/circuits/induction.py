"""Induction heads: who looks one token back, and who finds what came after the last time.

The sequences must repeat after different numbers of tokens. Where the number is always the same, a head finds
the place by counting: one block with learned positions then names every repeated token, and its heads have
prefix-matching scores near 0.8.
Shapes: B batch, T query position, S key position, H heads, L blocks.
Source: Olsson et al. 2022, "In-context Learning and Induction Heads".
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.circuits.capture import batches, run
from engine.circuits.results import Head, HeadScores
from engine.models.transformer import Transformer

FOUND = 0.2  # a head has a role from this score on; on 32 tokens one that sees all alike has 0.1 at most


@torch.no_grad()
def head_scores(model: Transformer, ids: Tensor) -> HeadScores:
    """The two scores of every head on any sequences in which tokens come again.

    shape: (B, T) token ids
    Raises ValueError: when there are fewer than two tokens, or none comes again.
    """
    if ids.shape[-1] < 2:
        raise ValueError(f"a sequence has {ids.shape[-1]} tokens; needed: at least 2.")
    followers = _followers(ids)
    queries = followers.any(dim=-1)
    if not queries.any():
        raise ValueError("no token comes again in its sequence; prefix matching needs one that does.")
    previous, matching = [], []
    start = 0
    for part in batches(ids):
        weights = torch.stack([block.weights for block in run(model, part).blocks])  # (L, b, H, T, S)
        after = followers[start : start + len(part), None]
        previous.append(weights.diagonal(-1, dim1=-2, dim2=-1).mean(dim=-1).sum(dim=1))
        matching.append((weights * after).sum(dim=(1, 3, 4)))
        start += len(part)
    return HeadScores(
        previous_token=(torch.stack(previous).sum(dim=0) / len(ids)).tolist(),
        prefix_matching=(torch.stack(matching).sum(dim=0) / queries.sum()).tolist(),
    )


def _followers(ids: Tensor) -> Tensor:
    """True where the key's predecessor is an earlier copy of the query. shape: (B, T) -> (B, T, S)"""
    same = ids[:, :, None] == F.pad(ids, (1, 0), value=-1)[:, None, :-1]
    return same.tril()


def pair_of(scores: HeadScores) -> tuple[Head, Head] | None:
    """The previous-token head and, in a later block, the prefix-matching head: the pair whose lower score is
    highest, if it reaches ``FOUND``.
    """
    pairs = [
        (min(looks_back, matches), Head(early, first), Head(late, second))
        for early, row in enumerate(scores.previous_token)
        for first, looks_back in enumerate(row)
        for late in range(early + 1, len(scores.prefix_matching))
        for second, matches in enumerate(scores.prefix_matching[late])
    ]
    best = max(pairs, default=None)
    return None if best is None or best[0] < FOUND else best[1:]


def partners_of(scores: HeadScores) -> tuple[list[Head], list[Head]]:
    """The previous-token heads before some prefix-matching one, and the prefix-matching heads behind such."""
    previous, matching = _reaching(scores.previous_token), _reaching(scores.prefix_matching)
    return (
        [head for head in previous if any(head.block < other.block for other in matching)],
        [head for head in matching if any(other.block < head.block for other in previous)],
    )


def _reaching(scores: list[list[float]]) -> list[Head]:
    return [
        Head(block, head)
        for block, row in enumerate(scores)
        for head, score in enumerate(row)
        if score >= FOUND
    ]
