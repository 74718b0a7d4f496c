"""Many changed runs of the same sentences at once, computed from one run as they are.

A change is tried as one case of a batch. What lies before the first block that it can change is taken from the
run as it is, and in the last block only the positions whose logits are wanted are computed.
Shapes: C cases, N sentences, T query position, S key position, P wanted positions, D d_model, H heads, K
d_head, V vocabulary. A first axis of 1 stands for all cases as long as nothing tells them apart.
"""

import math
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from engine.circuits.capture import Captured, connections, joined, parts_of, read_by, run, shape_of
from engine.circuits.interventions import Intervention
from engine.circuits.scoring import Outcomes, Questions, Score, outcomes_of
from engine.models.mixers import future
from engine.models.transformer import Transformer

Portions = Sequence[tuple[slice, Captured]]  # runs, each with the place of its sentences among all
Case = Sequence[Intervention]
Hook = Callable[[Intervention, Tensor], Tensor]
TOKENS_AT_ONCE = 32_768  # of all cases of a batch: some 100 MB at d_model 128


class Trials:
    """Questions answered by a model as it is and under changes.

    captured: the runs as they are. whole: the answers then.
    """

    def __init__(self, model: Transformer, questions: Questions) -> None:
        self.model, self.questions = model, questions
        self.captured: Portions = [(rows, run(model, part.ids)) for rows, part in questions.portions()]
        self.whole = self._outcomes([one.logits[:, questions.decision] for _, one in self.captured])

    def outcomes(self, cases: Sequence[Case]) -> list[Outcomes]:
        """The answers in each case. Raises ValueError: as ``capture.run``."""
        place = (self.questions.decision,)
        portions = [
            logits_of_each(self.model, captured, place, [[one.part(rows) for one in case] for case in cases])
            for rows, captured in self.captured
        ]
        return [self._outcomes([logits[case, :, 0] for logits in portions]) for case in range(len(cases))]

    def scores(self, cases: Sequence[Case]) -> list[Score]:
        """The same as shares."""
        return [found.score() for found in self.outcomes(cases)]

    def head_means(self) -> Tensor:
        """What each head adds at each position, mean over the sentences. shape: -> (L, H, T, D)"""
        sums = [torch.stack([block.heads.sum(dim=0) for block in ran.blocks]) for _, ran in self.captured]
        return torch.stack(sums).sum(dim=0) / len(self.questions)

    def _outcomes(self, logits: list[Tensor]) -> Outcomes:
        return outcomes_of(torch.cat(logits), self.questions.answers, self.questions.others)


@torch.no_grad()
def logits_of_each(
    model: Transformer, captured: Captured, places: Sequence[int], cases: Sequence[Case]
) -> Tensor:
    """The logits at some positions in each case. shape: -> (C, N, P, V)

    captured: the run without changes; interventions of a case act in the order given.
    Raises ValueError: as ``capture.run``.
    """
    shape = shape_of(model, captured.ids)
    starts = []
    for case in cases:
        for change in case:
            change.check(shape)
        starts.append(min((change.first_block(shape) for change in case), default=shape.blocks - 1))
    most = max(1, TOKENS_AT_ONCE // captured.ids.numel())
    found: dict[int, Tensor] = {}
    for start in sorted(set(starts)):
        numbers = [number for number, at in enumerate(starts) if at == start]
        for first in range(0, len(numbers), most):
            chunk = numbers[first : first + most]
            logits = _from(model, captured, start, places, [cases[number] for number in chunk])
            found.update(zip(chunk, logits, strict=True))
    return torch.stack([found[number] for number in range(len(cases))])


def _from(
    model: Transformer, captured: Captured, start: int, places: Sequence[int], cases: Sequence[Case]
) -> Tensor:
    """The logits of cases that change nothing before one block. shape: -> (C, N, P, V)"""
    x = captured.blocks[start].before[None]
    parts = connections(model)
    boundary = sum(map(len, parts[:start])) if start else 0
    if not start:
        x = _each(cases, x, lambda change, x: change.on_residual(0, x))
    for number, (attention, *more) in enumerate(parts[start:], start):
        last = number == len(parts) - 1
        read = read_by(attention, x)
        if last:
            x, cases = x[:, :, list(places)], [[change.at(places) for change in case] for case in cases]
        y = _attended(attention.sublayer, read, number, list(places) if last else None, cases)
        boundary += 1
        x = _each(cases, joined(attention, x, y), _on_residual(boundary))
        for connection in more:
            output = connection.sublayer(read_by(connection, x))
            output = _each(cases, output, lambda change, y, at=number: change.on_feed_forward(at, y))
            boundary += 1
            x = _each(cases, joined(connection, x, output), _on_residual(boundary))
    logits: Tensor = model.unembedding(model.final_norm(x))
    return logits.expand(len(cases), *logits.shape[1:])


def _on_residual(boundary: int) -> Hook:
    return lambda change, x: change.on_residual(boundary, x)


def _attended(
    mixer: torch.nn.Module, x: Tensor, block: int, places: list[int] | None, cases: Sequence[Case]
) -> Tensor:
    """What an attention sublayer adds. shape: (C, N, S, D) -> (C, N, T, D), or (C, N, P, D) at ``places``"""
    scores, values, output, bias = parts_of(mixer, x.flatten(0, 1))
    if getattr(mixer, "causal", True):
        scores = scores.masked_fill(future(scores), -math.inf)
    if places is not None:
        scores = scores[:, :, places]
    scores, values = (part.unflatten(0, x.shape[:2]) for part in (scores, values))
    scores = _each(cases, scores, lambda change, scores: change.on_scores(block, scores))
    if (empty := scores.isneginf().all(dim=-1)).any():
        _, _, head, query = empty.nonzero()[0].tolist()
        query = query if places is None else places[query]
        raise ValueError(
            f"position {query} would see no key in head {head} of block {block} (counted from 0); "
            f"leave it at least one edge."
        )
    mixed = scores.softmax(dim=-1) @ values  # (C, N, H, T, K)
    if not any(type(change).on_heads is not Intervention.on_heads for change in _all(cases)):
        return torch.einsum("cnhtk,dhk->cntd", mixed, output) + bias
    heads = torch.einsum("cnhtk,dhk->cnhtd", mixed, output)
    return _each(cases, heads, lambda change, heads: change.on_heads(block, heads)).sum(dim=2) + bias


def _all(cases: Sequence[Case]) -> Iterator[Intervention]:
    return (change for case in cases for change in case)


def _each(cases: Sequence[Case], x: Tensor, hook: Hook) -> Tensor:
    """Every case's changes made to its own part; x as it is where none of them changes it."""
    before = [x[number % len(x)] for number in range(len(cases))]
    after = []
    for case, value in zip(cases, before, strict=True):
        for change in case:
            value = hook(change, value)
        after.append(value)
    changed = any(new is not old for new, old in zip(after, before, strict=True))
    return torch.stack(after) if changed else x
