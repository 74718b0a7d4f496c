"""What is found in a model of Winograd sentences. Imports no torch.

Shapes: T query position, S key position, H heads, L blocks, C adjectives.
"""

from dataclasses import dataclass

from engine.circuits.results import Attribution, Layer, Left, Patched, Roles, Score, Unmoved, Verdict
from engine.data.languages.winograd import ANSWER, Sentence, Winograd


@dataclass(frozen=True)
class Pair:
    """Two sentences that differ in the adjective alone."""

    first: str
    second: str
    adjectives: tuple[str, str]

    @property
    def sentences(self) -> list[Sentence]:
        """Both, in the order of the adjectives."""
        return [Sentence(self.first, self.second, adjective) for adjective in self.adjectives]

    def check(self, language: Winograd) -> None:
        """Raises ValueError: when a word is none of the language's in its place, or both are the same."""
        for sentence in self.sentences:
            language.read(" ".join(language.tokens(sentence)[:ANSWER]))
        if len(set(self.adjectives)) < 2:
            raise ValueError(f"both adjectives are {self.adjectives[0]!r}; allowed: two that differ.")


@dataclass(frozen=True)
class Answer:
    """What the model says of one sentence.

    answer, other: the right noun and the pair's other. named: the likeliest word. likeliest: the best words
    with their probabilities, best first.
    """

    adjective: str
    answer: str
    other: str
    answer_share: float
    other_share: float
    named: str
    likeliest: list[tuple[str, float]]


@dataclass(frozen=True)
class Maps:
    """Both sentences side by side, all adjectives in one grid, and what block 1 sees of a change.

    tokens: of each sentence. weights: by sentence, block and head the whole map. grid: by adjective, block
    and head the decision's mean row over ``grid_count`` held-out sentences.
    """

    tokens: list[list[str]]
    answers: list[Answer]
    weights: list[list[list[list[list[float]]]]]
    adjectives: list[str]
    grid: list[list[list[list[float]]]]
    grid_count: int
    unmoved: Unmoved


@dataclass(frozen=True)
class BlockLook:
    """A look of the decision, cut in all heads of a block. left: the accuracy then."""

    block: int
    query: str
    key: str
    left: float


@dataclass(frozen=True)
class Circuit:
    """What each head does. together: looks cut in all heads of a block. names: of the positions."""

    roles: Roles
    together: list[BlockLook]
    names: list[str]


@dataclass(frozen=True)
class PartOfLook:
    """What is left without a look of the decision by all heads of a block, or without a part of it.

    key: "nouns" or "adjective".
    """

    block: int
    key: str
    left: Left


@dataclass(frozen=True)
class ClassWeights:
    """A head's mean weights at the decision on the first noun, the second and the adjective.

    of_first, of_second: where the adjective tells of the first noun, and where of the second.
    """

    block: int
    head: int
    of_first: tuple[float, float, float]
    of_second: tuple[float, float, float]


@dataclass(frozen=True)
class Parts:
    """Scores or values: what of each block's looks counts, and where each head looks for either answer.

    clean: the accuracy of the model as it is.
    """

    clean: float
    count: int
    looks: list[PartOfLook]
    heads: list[ClassWeights]


@dataclass(frozen=True)
class Changed:
    """A change's effect: on the held-out sentences, and on two of them.

    cells: how many cells of the maps it changed in each sentence; None of whole heads.
    """

    before: Score
    after: Score
    answers: list[Answer]
    changed: list[Answer]
    cells: int | None


@dataclass(frozen=True)
class Reading:
    """The likeliest words of one sentence at one boundary of the stream, with their probabilities."""

    boundary: str
    words: list[str]
    shares: list[float]


@dataclass(frozen=True)
class Attributed:
    """Who wrote the logit difference, over all held-out sentences with one adjective. total: of all parts."""

    adjective: str
    parts: Attribution
    total: float


@dataclass(frozen=True)
class Proof:
    """Patching between two adjectives, the logit lens, direct attribution, and the route taken.

    count: patched pairs of sentences. nothing, everything: what patching nothing restores, and all of the
    last stream: 0 and 1. route: None of a model that has not two blocks.
    """

    patching: Patched
    count: int
    nothing: float
    everything: float
    lens: list[Layer]
    readings: list[list[Reading]]
    attribution: list[Attributed]
    route: Verdict | None
    tokens: list[list[str]]


@dataclass(frozen=True)
class Scored:
    """The route of a two-block model, and its heads; ``reason`` says why they have no roles."""

    route: Verdict
    roles: Roles | None
    reason: str
