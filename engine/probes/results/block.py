"""Two claims about a block. Imports no torch."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Bent:
    """How far a part is from linear, over the length of its output; 0 is linear."""

    layer: str
    bent: float


@dataclass(frozen=True)
class Linearity:
    """Every part of a block, and one feature of two of them while the input moves along a line.

    line: by part, beside "t", how far along. rounding: of one number.
    """

    rows: list[Bent]
    line: dict[str, list[float]]
    rounding: float


@dataclass(frozen=True)
class Promise:
    """What else the output of a norm depends on: largest absolute change for the same tokens.

    batch: alone or among others. running: how many numbers it keeps from earlier batches. mode: in training
    or in inference. length: in a short text or a long one. single: what torch says to a single token instead
    of computing it; empty where it does.
    """

    norm: str
    batch: float
    running: int
    mode: float
    length: float
    single: str


@dataclass(frozen=True)
class Promises:
    """The norms, and on how much they were tried."""

    rows: list[Promise]
    examples: int
    short: int
    long: int
    seen: int


@dataclass(frozen=True)
class Block:
    """Both claims on one block. torch: its version."""

    torch: str
    seed: int
    linearity: Linearity
    norms: Promises
