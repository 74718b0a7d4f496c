"""Induction heads: who looks one token back, who finds what came after the last time, and who is needed.

The sequences must repeat after different numbers of tokens. Where the number is always the same, a head finds
the place by counting: one block with learned positions then names every repeated token, and its heads have
prefix-matching scores near 0.8.
Shapes: B batch, T query position, S key position, H heads, L blocks.
Source: Olsson et al. 2022, "In-context Learning and Induction Heads".
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.circuits.capture import batches, run
from engine.circuits.interventions import Intervention, ZeroHeads
from engine.circuits.results import Head, HeadScores
from engine.models.transformer import Transformer

FOUND = 0.2  # a head has a role from this score on; on 32 tokens one that sees all alike has 0.1 at most


@dataclass(frozen=True)
class ByPosition:
    """What a model makes of the token that follows each position but the last, mean over the sequences."""

    losses_nats: list[float]
    accuracy: list[float]


@dataclass(frozen=True)
class Induction:
    """What one model does with sequences that repeat what they said.

    previous_head, matching_head: the pair, block and head, None where there is none.
    previous_heads, matching_heads: all that reach ``FOUND`` with a partner behind or before them. Several may
    do the same work: then the ability goes only with all of them.
    accuracy: share of the late tokens that are named. in_context_score: mean loss late less mean loss early,
    in nats, below 0 when the repetition helps.
    without: the accuracy with each head ablated to zero, L rows of H. without_previous, without_matching:
    with all heads of that kind ablated, the whole accuracy where there is none.
    """

    scores: HeadScores
    previous_head: Head | None
    matching_head: Head | None
    previous_heads: list[Head]
    matching_heads: list[Head]
    positions: ByPosition
    accuracy: float
    in_context_score: float
    without: list[list[float]]
    without_previous: float
    without_matching: float


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


@torch.no_grad()
def by_position(model: Transformer, ids: Tensor, interventions: Sequence[Intervention] = ()) -> ByPosition:
    """Loss and accuracy of the next token at each position but the last.

    shape: (B, T) token ids
    Raises ValueError: as ``capture.run``.
    """
    losses, right = [], []
    start = 0
    for part in batches(ids):
        changes = [change.part(slice(start, start + len(part))) for change in interventions]
        logits, wanted = run(model, part, changes).logits[:, :-1], part[:, 1:]
        losses.append(F.cross_entropy(logits.transpose(1, 2), wanted, reduction="none"))
        right.append(logits.argmax(dim=-1) == wanted)
        start += len(part)
    return ByPosition(
        losses_nats=torch.cat(losses).double().mean(dim=0).tolist(),
        accuracy=torch.cat(right).double().mean(dim=0).tolist(),
    )


def induction(model: Transformer, ids: Tensor, early: slice, late: slice) -> Induction:
    """Scores, the pair, what the repetition is worth, and what is left without each head.

    early, late: the positions whose next token nothing before tells, and those where it was said before.
    shape: (B, T) token ids
    Raises ValueError: when one of the two holds no position, and as ``head_scores``.
    """
    for name, positions in (("early", early), ("late", late)):
        if not range(ids.shape[-1] - 1)[positions]:
            raise ValueError(
                f"{name} is {positions}, which holds no position; allowed: some of 0 to {ids.shape[-1] - 2}."
            )
    scores, whole = head_scores(model, ids), by_position(model, ids)
    previous, matching = pair_of(scores) or (None, None)
    all_previous, all_matching = partners_of(scores)

    def without(heads: Iterable[Head]) -> float:
        return _mean(by_position(model, ids, [ZeroHeads(frozenset(heads))]).accuracy[late])

    return Induction(
        scores=scores,
        previous_head=previous,
        matching_head=matching,
        previous_heads=all_previous,
        matching_heads=all_matching,
        positions=whole,
        accuracy=_mean(whole.accuracy[late]),
        in_context_score=_mean(whole.losses_nats[late]) - _mean(whole.losses_nats[early]),
        without=[
            [without([Head(block, head)]) for head in range(len(row))]
            for block, row in enumerate(scores.previous_token)
        ],
        without_previous=without(all_previous),
        without_matching=without(all_matching),
    )


def _mean(numbers: Sequence[float]) -> float:
    return sum(numbers) / len(numbers)
