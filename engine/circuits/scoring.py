"""Questions with a right answer, and how a model answers them, whole or changed.

Shapes: N questions, T position, V vocabulary.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.circuits.capture import batches
from engine.circuits.results import Score


@dataclass(frozen=True, eq=False)
class Questions:
    """Sentences of one template, and the two words between which the model decides.

    decision: the position whose logits are scored, the same in every sentence; what stands behind it need not
        be given. answers: the right token. others: the wrong one of the pair.
    shape: ids (N, T); answers, others (N,)
    Raises ValueError: when sizes differ, the decision lies outside the sentence, or a pair is one token
        twice.
    """

    ids: Tensor
    decision: int
    answers: Tensor
    others: Tensor

    def __post_init__(self) -> None:
        if self.ids.ndim != 2 or not self.ids.numel():
            raise ValueError(
                f"ids have shape {tuple(self.ids.shape)}; allowed: (sentences, tokens), at least one each."
            )
        count, length = self.ids.shape
        for name, ids in (("answers", self.answers), ("others", self.others)):
            if tuple(ids.shape) != (count,):
                raise ValueError(f"{name} have shape {tuple(ids.shape)}; {count} sentences need ({count},).")
        if not 0 <= self.decision < length:
            raise ValueError(f"the decision is at position {self.decision}; allowed: 0 to {length - 1}.")
        if (self.answers == self.others).any():
            raise ValueError("a sentence has one token as answer and as other; allowed: two different ones.")

    def __len__(self) -> int:
        return len(self.ids)

    def chosen(self, rows: slice | Tensor) -> "Questions":
        """Some of the questions: a slice of them, or those where a mask is true."""
        return Questions(self.ids[rows], self.decision, self.answers[rows], self.others[rows])

    def portions(self) -> Iterator[tuple[slice, "Questions"]]:
        """All of them in parts that fit into memory, each with its place among the rows."""
        start = 0
        for ids in batches(self.ids):
            rows = slice(start, start + len(ids))
            yield rows, self.chosen(rows)
            start = rows.stop


@dataclass(frozen=True, eq=False)
class Outcomes:
    """The answers one by one: whether right, whether the wrong one of the pair, and the logit difference.

    shape: (N,) each
    """

    right: Tensor
    wrong: Tensor
    differences: Tensor

    def score(self, chosen: Tensor | None = None) -> Score:
        """The shares, of all questions or of those where ``chosen`` is true.

        Raises ValueError: when none is chosen.
        """
        take = torch.ones_like(self.right) if chosen is None else chosen
        if not (count := int(take.sum())):
            raise ValueError("no question is chosen; needed: at least one.")
        right, wrong = int(self.right[take].sum()), int(self.wrong[take].sum())
        return Score(
            accuracy=right / count,
            wrong=wrong / count,
            other=(count - right - wrong) / count,
            logit_difference=self.differences[take].double().mean().item(),
            count=count,
        )


def outcomes_of(logits: Tensor, answers: Tensor, others: Tensor) -> Outcomes:
    """What logits at the decision say. shape: (N, V), (N,), (N,)"""
    named = logits.argmax(dim=-1)
    differences = difference(logits, answers, others)
    return Outcomes(named == answers, named == others, differences)


def difference(logits: Tensor, answers: Tensor, others: Tensor) -> Tensor:
    """Logit of the answer less that of the other. shape: (N, V), (N,), (N,) -> (N,)"""
    pair = logits.gather(-1, torch.stack([answers, others], dim=-1))
    return pair[:, 0] - pair[:, 1]
