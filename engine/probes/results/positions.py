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
    the mask taken off. ordered, shuffled: perplexity of the last position alone, and with all that stands
    before it shuffled.
    """

    read: float
    unmasked: float
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
