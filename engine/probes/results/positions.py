"""What a position scheme does. Imports no torch.

Shapes: T position, H heads.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Bins:
    """Perplexity in bins of neighbouring positions, and of all."""

    bins: list[float]
    perplexity: float


@dataclass(frozen=True)
class Places:
    """How hard each position of a long window is, by scheme. bin: positions in one."""

    models: dict[str, Bins]
    windows: int
    length: int
    bin: int


@dataclass(frozen=True)
class Turned:
    """RoPE at one length. way: how its rotation was slowed. factor: by how much.

    perplexity: None where it is beyond all numbers.
    """

    way: str
    length: int
    factor: float
    perplexity: float | None


@dataclass(frozen=True)
class Rescaled:
    """RoPE's trained weights at every length and way."""

    rows: list[Turned]


@dataclass(frozen=True)
class SchemeOrder:
    """What another order does to one scheme's logits, largest absolute difference.

    unmasked, masked: between the shuffled text's logits and the logits, shuffled; one block. one_block,
    two_blocks: at the last position, with all that stands before it shuffled; masked.
    magnitude: mean absolute logit of the masked block.
    """

    scheme: str
    magnitude: float
    unmasked: float
    masked: float
    one_block: float
    two_blocks: float


@dataclass(frozen=True)
class Order:
    """A text in another order. order, prefix: where each token comes from. pieces: the tokens."""

    rows: list[SchemeOrder]
    order: list[int]
    prefix: list[int]
    pieces: list[str]


@dataclass(frozen=True)
class Known:
    """What one trained model knows of order.

    read: how much of the position's logarithm can be read off what attention adds. unmasked: the same with
    the mask taken off. untrained: the same as read, with the weights of seed 0 before training. ordered,
    shuffled: perplexity of the last position alone, and with all that stands before it shuffled.
    """

    read: float
    unmasked: float
    untrained: float
    ordered: float
    shuffled: float


@dataclass(frozen=True)
class Knowledge:
    """The same by scheme."""

    models: dict[str, Known]
    windows: int
    length: int


@dataclass(frozen=True)
class Diagonal:
    """Scores at one distance over the query's place. inside, all: largest less smallest, over the places that
    training saw, and over all of them.
    """

    scores: list[float]
    inside: float
    all: float


@dataclass(frozen=True)
class Diagonals:
    """By scheme, head and distance: one query token and one key token moved through a window.

    every: places between two scores. query, key: the tokens as text.
    """

    models: dict[str, list[list[Diagonal]]]
    distances: list[int]
    every: int
    length: int
    query: str
    key: str


@dataclass(frozen=True)
class Table:
    """What training did to a learned table, row by row.

    turned: the angle in degrees between a row and what it was before the first step. moved: the length of the
    difference, over the length it had. alike: the cosine of a row with the next one; the last row has none.
    """

    turned: list[float]
    moved: list[float]
    alike: list[float]
    rows: int
    trained: int


@dataclass(frozen=True)
class AtLength:
    """Perplexity at one length of the window. whole: of all tokens of whole windows. predicted: what that
    would be if the losses of the trained windows were only spread over more tokens. sliding: of the last
    tokens of a sliding window, the same tokens at every length.

    change_nats, error_nats: of the sliding window's loss, from the trained length on; its standard error.
    """

    length: int
    whole: float
    predicted: float
    sliding: float
    change_nats: float
    error_nats: float


@dataclass(frozen=True)
class EarlyTokens:
    """How much of a longer window's gain is due to its start. first, late: perplexity of the first token of
    the trained windows, and of those after the first ``stride``.

    stride: tokens that a sliding window scores. scored: tokens that all of them score.
    """

    rows: list[AtLength]
    first: float
    late: float
    stride: int
    scored: int


@dataclass(frozen=True)
class WithRows:
    """A learned table at one length. way: what stands in the rows that were never trained.

    perplexity: None where it is beyond all numbers.
    """

    way: str
    length: int
    perplexity: float | None


@dataclass(frozen=True)
class OtherRows:
    """A learned table with something else in its untrained rows. inside: perplexity at the trained length;
    none_inside: there with zeros in all rows.

    windows: of the longest. scale: of the rows that are scaled.
    """

    rows: list[WithRows]
    inside: float | None
    none_inside: float | None
    windows: int
    scale: float
