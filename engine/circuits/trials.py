"""Many changed runs of the same sentences at once, computed from one run as they are.

A change is tried as one case of a batch. What lies before the first block that it can change is taken from
the run as it is, and in the last block only the positions whose logits are wanted are computed.
Shapes: C cases, N sentences, T query position, S key position, P wanted positions, D d_model, H heads, K
d_head, V vocabulary. A first axis of 1 stands for all cases as long as nothing tells them apart.
"""

from collections.abc import Sequence, Set
from typing import Literal, get_args

import torch
from torch import Tensor

from engine.circuits import capture
from engine.circuits.capture import Captured, connections, joined, read_by, run, shape_of
from engine.circuits.edges import CutEdges, OnEdges, PatchFlow, PatchPattern, PatchRest, PatchValues, flow
from engine.circuits.interventions import Intervention, Shape, changed
from engine.circuits.results import Edge, Left, Part, Score
from engine.circuits.scoring import Outcomes, Questions, outcomes_of
from engine.models.transformer import Transformer

Portions = Sequence[tuple[slice, Captured]]  # runs, each with the place of its sentences among all
Case = Sequence[Intervention]
TOKENS_AT_ONCE = 16_384  # of all cases of a batch: some 100 MB at d_model 128


class Trials:
    """Questions answered by a model as it is and under changes.

    captured: the runs as they are. whole: the answers then.
    """

    def __init__(self, model: Transformer, questions: Questions) -> None:
        self.model, self.questions = model, questions
        self.captured: Portions = [(rows, run(model, part.ids)) for rows, part in questions.portions()]
        self._means: dict[str, tuple[Tensor, ...]] = {}
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
        return capture.mean_heads(self._runs)

    def change(self, edges: Set[Edge], part: Part) -> list[OnEdges]:
        """Some looks cut, or a part of them as it is on average over the sentences; see ``Left``.

        Source: Heimersheim and Nanda 2024, "How to use and interpret activation patching".
        """
        those = frozenset(edges)
        match part:
            case "cut":
                return [CutEdges(those)]
            case "pattern":
                return [PatchPattern(those, self._mean("scores"))]
            case "values":
                return [PatchValues(those, self._mean("values"))]
            case "both":
                return [*self.change(those, "pattern"), *self.change(those, "values")]
            case "flow":
                return [PatchFlow(those, self._flows(those)[0])]
            case "rest":
                return [PatchRest(those, self._flows(those)[1])]

    def _mean(self, what: Literal["scores", "values"]) -> tuple[Tensor, ...]:
        if what not in self._means:
            self._means[what] = capture.mean_of(self._runs, what)
        return self._means[what]

    def _flows(self, edges: Set[Edge]) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        """The mean flow of each block, (1, H, T, K), and what is left to the rest of its rows, (1, H, T)."""
        of_blocks = []
        for number in range(len(self._runs[0].blocks)):
            runs = [
                flow(edges, number, ran.blocks[number].weights, ran.blocks[number].values)
                for ran in self._runs
            ]
            of_blocks.append([torch.cat(part).mean(dim=0, keepdim=True) for part in zip(*runs, strict=True)])
        flows, rests = zip(*of_blocks, strict=True)
        return tuple(flows), tuple(rests)

    def left(self, looks: Sequence[Set[Edge]]) -> list[Left]:
        """The accuracy without each of these sets of edges, and without each part of them."""
        parts = get_args(Part)
        found = iter(self.scores([self.change(edges, part) for edges in looks for part in parts]))
        return [Left(*(next(found).accuracy for _ in parts)) for _ in looks]

    @property
    def _runs(self) -> list[Captured]:
        return [ran for _, ran in self.captured]

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
    alike: dict[tuple[int, tuple[int, ...]], list[int]] = {}
    for number, case in enumerate(cases):
        for change in case:
            change.check(shape)
        alike.setdefault(_beginning(case, shape), []).append(number)
    most = max(1, TOKENS_AT_ONCE // captured.ids.numel())
    found: dict[int, Tensor] = {}
    for (start, reach), numbers in alike.items():
        for first in range(0, len(numbers), most):
            chunk = numbers[first : first + most]
            logits = _from(model, captured, start, reach, places, [cases[number] for number in chunk])
            found.update(zip(chunk, logits, strict=True))
    return torch.stack([found[number] for number in range(len(cases))])


def _beginning(case: Case, shape: Shape) -> tuple[int, tuple[int, ...]]:
    """The first block that a case changes, and the positions whose stream it changes there."""
    start = min((change.first_block(shape) for change in case), default=shape.blocks - 1)
    reach = frozenset[int]().union(*(one.reach(shape) for one in case if one.first_block(shape) == start))
    return start, tuple(sorted(reach))


def _from(
    model: Transformer,
    captured: Captured,
    start: int,
    reach: Sequence[int],
    places: Sequence[int],
    cases: Sequence[Case],
) -> Tensor:
    """The logits of cases that change nothing before one block, and there no other positions.

    shape: -> (C, N, P, V)
    """
    x = captured.blocks[start].before[None]
    parts = connections(model)
    boundary = sum(map(len, parts[:start])) if start else 0
    if not start:
        x = _each(cases, "on_residual", 0, x)
    for number, (attention, *more) in enumerate(parts[start:], start):
        last = number == len(parts) - 1
        queries = list(places if last else reach if number == start else range(x.shape[2]))
        here = [[change.at(queries) for change in case] for case in cases]
        y = _attended(attention.sublayer, read_by(attention, x), number, queries, here)
        boundary += 1
        x = _each(here, "on_residual", boundary, joined(attention, x[:, :, queries], y))
        for connection in more:
            output = connection.sublayer(read_by(connection, x))
            output = _each(here, "on_feed_forward", number, output)
            boundary += 1
            x = _each(here, "on_residual", boundary, joined(connection, x, output))
        if not last:
            computed, x = x, captured.blocks[number].after.expand(len(x), *captured.embedding.shape).clone()
            x[:, :, queries] = computed
    logits: Tensor = model.unembedding(model.final_norm(x))
    return logits.expand(len(cases), *logits.shape[1:])


def _attended(
    mixer: torch.nn.Module, x: Tensor, block: int, queries: list[int], cases: Sequence[Case]
) -> Tensor:
    """What an attention sublayer adds at some positions. shape: (C, N, S, D) -> (C, N, P, D)"""
    scores, values, output, bias = capture.parts_of(mixer, x.flatten(0, 1))
    scores = capture.masked(mixer, scores)[:, :, queries]
    scores, values = (part.unflatten(0, x.shape[:2]) for part in (scores, values))
    scores = _each(cases, "on_scores", block, scores)
    weights = capture.weights_of(scores, block, queries)
    mixed = _each(cases, "on_mixed", block, weights @ values, weights, values)  # (C, N, H, P, K)
    if all(type(change).on_heads is Intervention.on_heads for case in cases for change in case):
        return torch.einsum("cnhpk,dhk->cnpd", mixed, output) + bias
    heads = torch.einsum("cnhpk,dhk->cnhpd", mixed, output)
    return _each(cases, "on_heads", block, heads).sum(dim=2) + bias


def _each(cases: Sequence[Case], hook: str, at: int, *given: Tensor) -> Tensor:
    """Every case's changes made to its own part of what is given first; as it is where none changes it."""
    x = given[0]
    parts = [[one[number % len(one)] for one in given] for number in range(len(cases))]
    before = [part[0] for part in parts]
    after = [changed(case, hook, at, *part) for case, part in zip(cases, parts, strict=True)]
    alike = all(new is old for new, old in zip(after, before, strict=True))
    return x if alike else torch.stack(after)
