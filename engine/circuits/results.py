"""What is found in a model, as values. Imports no torch, so that whoever shows them need not either.

Heads, blocks, positions and boundaries are counted from 0.
Shapes: R boundaries of the residual stream, T query position, S key position, H heads, L blocks.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

DROPPED, KEPT = 0.75, 0.95  # accuracy: below the first an ability is gone, from the second on it is whole
WEIGHT = 0.1  # a look is one from this mean weight on
NEEDED = 0.1  # of accuracy: a part without which less is lost does not count
COST = 0.2  # and is part of the circuit if cutting it costs this share of the logit difference

# What is changed of a look; see ``Trials.change``.
Part = Literal["cut", "pattern", "values", "both", "flow", "rest"]


class Head(NamedTuple):
    """Which head of which block."""

    block: int
    head: int

    @property
    def name(self) -> str:
        """As people write it, both counted from 1: "1.3"."""
        return f"{self.block + 1}.{self.head + 1}"


@dataclass(frozen=True)
class Edge:
    """One look: from a query's position to a key's, in one block, by one head or (None) by all of them."""

    query: int
    key: int
    block: int
    head: int | None = None


@dataclass(frozen=True)
class Score:
    """How some questions are answered.

    accuracy, wrong, other: shares whose likeliest token is the answer, the other of the pair, neither.
    logit_difference: logit of the answer less that of the other, mean.
    """

    accuracy: float
    wrong: float
    other: float
    logit_difference: float
    count: int


@dataclass(frozen=True)
class HeadLook:
    """One edge of the circuit's graph: a head, at a group of queries, looks at the words of a name.

    weight: mean weight, of the query and the kind of sentence that has most.
    cost: share of the logit difference lost when this head cannot look there, for the answer that loses more.
    score: the answers then. part: whether weight and cost reach ``WEIGHT`` and ``COST``.
    pattern, values: the same cost when its scores alone, or what flows along it alone, are at their means;
    None where it is no part.
    """

    block: int
    head: int
    query: str
    key: str
    weight: float
    cost: float
    score: Score
    part: bool
    pattern: float | None
    values: float | None


@dataclass(frozen=True)
class HeadRole:
    """One head at the decision.

    weights: mean weight on the positions of each name. moved: the largest total variation between its mean
    rows for two adjectives, 0 to 1. direct: what it adds to the logit difference by itself, in logits, where
    the answer is the first noun and where it is the second. zero, mean: the answers with it ablated.
    """

    block: int
    head: int
    weights: dict[str, float]
    moved: float
    direct: dict[str, float]
    zero: Score
    mean: Score

    @property
    def at(self) -> Head:
        """Which head it is."""
        return Head(self.block, self.head)


@dataclass(frozen=True)
class HeadSet:
    """Some heads, and the answers with all of them ablated to zero and to their means."""

    heads: list[Head]
    zero: Score
    mean: Score


@dataclass(frozen=True)
class Roles:
    """What each head does in one model, all of it measured on the same questions.

    looks: the edges of the graph. at_nouns, at_adjective: heads with a look at a noun, or at the adjective,
    that is part of the circuit; a head may be both. helpers: heads without a role that are needed
    all the same for ``KEPT`` (for that share of the accuracy, where the model does not reach it), the
    costliest first. rest: all others.
    holds: the whole model reaches ``KEPT``, either set ablated leaves less than ``DROPPED``, there are no
    helpers, and the rest ablated leaves ``KEPT``. Ablated to means.
    """

    clean: Score
    heads: list[HeadRole]
    looks: list[HeadLook]
    at_nouns: HeadSet
    at_adjective: HeadSet
    helpers: HeadSet
    rest: HeadSet
    holds: bool


@dataclass(frozen=True)
class Left:
    """The accuracy that remains when looks are cut, or when a part of them is at its mean over the sentences.

    pattern: their scores. values: what they may bring. both: scores and values. flow: what flows along them,
    weight times value. rest: the weight that they leave to the rest of their rows.
    """

    cut: float
    pattern: float
    values: float
    both: float
    flow: float
    rest: float

    def counts(self, clean: float) -> tuple[str, ...]:
        """The parts without whose variation ``NEEDED`` is lost, of "pattern", "values", "flow" and "rest".

        clean: the accuracy of the model as it is. Several may count, or none though both together do.
        """
        names = "pattern", "values", "flow", "rest"
        return tuple(name for name in names if clean - getattr(self, name) >= NEEDED)

    def needed(self, clean: float) -> bool:
        """Whether ``NEEDED`` is lost with scores and values at their means."""
        return clean - self.both >= NEEDED


@dataclass(frozen=True)
class Cut:
    """The accuracy that remains without some channels."""

    channels: list[str]
    accuracy: float


@dataclass(frozen=True)
class Route:
    """One way. needed: the highest accuracy that is left when one of its channels is cut.

    alone: what is left when every channel but its own is cut. taken: by ``DROPPED``, as the module says.
    """

    name: str
    channels: list[str]
    needed: float
    alone: Cut
    taken: bool


@dataclass(frozen=True)
class Verdict:
    """The route that a model took, with all the numbers that decided it.

    route: the one of ``ROUTES`` that was taken; else "several, each enough" when two or more reach ``KEPT``
    alone; else "mixed" when the answer needs a look at the nouns and one at the adjective; else "none found".
    channels: what is left without each channel by itself, or without a part of it.
    """

    route: str
    clean: Cut
    channels: dict[str, Left]
    routes: list[Route]


@dataclass(frozen=True)
class Patched:
    """The share of the logit difference that each patch restores: 0 as nothing does, 1 as everything does.

    boundaries: names of the residual stream's places, R of them. residual: R rows of T. heads: L rows of H.
    feed_forwards: L, empty for a model without. A share may lie below 0 or above 1.
    clean, corrupted: the logit differences, answer of the clean sentence less the other, mean over pairs.
    """

    boundaries: list[str]
    residual: list[list[float]]
    heads: list[list[float]]
    feed_forwards: list[float]
    clean: float
    corrupted: float


@dataclass(frozen=True)
class Layer:
    """What all questions get at one boundary."""

    boundary: str
    score: Score


@dataclass(frozen=True)
class Attribution:
    """Each part's share of the logit difference, in logits, mean over the questions; they sum to it.

    embedding: token and position. heads: L rows of H. output_biases: of W_O, L. feed_forwards: L, zeros
    without. rest: biases of norms and of the unembedding.
    """

    logit_difference: float
    embedding: float
    heads: list[list[float]]
    output_biases: list[float]
    feed_forwards: list[float]
    rest: float

    @property
    def total(self) -> float:
        """The sum of all parts."""
        heads = sum(sum(row) for row in self.heads)
        return self.embedding + heads + sum(self.output_biases) + sum(self.feed_forwards) + self.rest


@dataclass(frozen=True)
class Unmoved:
    """The first block's row of one query in sentences that differ in one word.

    scores: raw, N rows of H rows of S. weights: the same, each row sums to 1. S counts what the query sees.
    score_change: the largest difference between two sentences at any key but the changed one.
    weight_change: the same of the weights there, renormalised without the changed key.
    own_scores, own_weights: what the changed key itself gets, N rows of H.
    """

    scores: list[list[list[float]]]
    weights: list[list[list[float]]]
    score_change: float
    weight_change: float
    own_scores: list[list[float]]
    own_weights: list[list[float]]


INPUTS = ("queries", "keys", "values")  # of a head: what it reads from the stream, three times
FOUND = 0.2  # attention scores: a head has a role from here on; one that sees all alike has 0.1 at most
COPIES = 0.5  # copying scores: three quarters of the eigenvalues, by size, are positive


@dataclass(frozen=True)
class HeadScores:
    """What every head does, L rows of H.

    previous_token: mean weight on the token before the query, 0 to 1. prefix_matching: mean weight on the
    tokens that followed the query's token where it stood before, over the queries whose token did, 0 to 1.
    copying: whether it raises the logits of the tokens that it attends to, -1 to 1 (``induction.copying``).
    """

    previous_token: list[list[float]]
    prefix_matching: list[list[float]]
    copying: list[list[float]]

    @property
    def heads(self) -> list[Head]:
        """All of them, layer by layer."""
        return [
            Head(layer, head) for layer, row in enumerate(self.previous_token) for head in range(len(row))
        ]

    def of(self, kind: str, head: Head) -> float:
        """One head's score of a kind, by its field's name."""
        return float(getattr(self, kind)[head.block][head.head])

    def best(self, kind: str) -> Head:
        """The head whose score of a kind is highest."""
        return max(self.heads, key=lambda head: (self.of(kind, head), head))

    def has(self, kind: str, head: Head) -> bool:
        """Whether one head's score of a kind counts."""
        return self.of(kind, head) >= (COPIES if kind == "copying" else FOUND)
