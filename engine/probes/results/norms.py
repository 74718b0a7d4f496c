"""What gradient each block gets before the first step. Imports no torch."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Gradients:
    """The gradient norms of the first batch's loss, first block first.

    qkv: over W_Q, W_K and W_V together; W_O: over its matrix; block: over all parameters of the block.
    """

    placement: str
    seed: int
    loss_nats: float
    qkv: list[float]
    W_O: list[float]
    block: list[float]


@dataclass(frozen=True)
class Norms:
    """Both placements at one seed, on a text. text: its title."""

    rows: list[Gradients]
    text: str
    corpus: str
    of_the_chapters_text: bool
    batch: int
    context: int
