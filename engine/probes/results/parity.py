"""Our attention against PyTorch's own. Imports no torch."""

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """One comparison.

    ours: "written out" (weights times V) or "fused" (what training runs); theirs: ``nn.MultiheadAttention``
    or ``F.scaled_dot_product_attention``. magnitude: mean absolute output of theirs; difference: the largest
    absolute one; relative: that over the magnitude. The same of the gradients, of x and of every weight, that
    a fixed random direction in the output gives. state: "done", or "unsupported" where this CPU lacks
    it and nothing is a number.
    """

    precision: str
    batch: int
    tokens: int
    d_model: int
    n_head: int
    mask: str
    scale: str
    seed: int
    ours: str
    theirs: str
    state: str = "done"
    magnitude: float = math.nan
    difference: float = math.nan
    relative: float = math.nan
    gradient_magnitude: float = math.nan
    gradient_difference: float = math.nan
    gradient_relative: float = math.nan


@dataclass(frozen=True)
class Parity:
    """All comparisons of some seeds. rounding: of one number, by precision. torch: its version."""

    torch: str
    rounding: dict[str, float]
    rows: list[Row]
