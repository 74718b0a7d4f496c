"""One matrix of an attention layer, as what is to be drawn, said and put into tables.

Shapes: T query position, S key position.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from lab.words import visible

Array = NDArray[np.float32]
Bools = NDArray[np.bool_]
Kind = Literal["weights", "scores"]


@dataclass(frozen=True, eq=False)
class Panel:
    """One matrix to be drawn.

    values: (T, S). rows, columns: their labels, each of its kind only once (see ``labels``).
    masked: what may not be seen, (T, S). value_name: what a value is called. more: further numbers for the
    hover by name, each (T, S), or (T, 1) for one a row, with its d3 format.
    down, across: what rows and columns are.
    """

    kind: Kind
    values: Array
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    masked: Bools | None = None
    value_name: str = "score"
    more: Mapping[str, tuple[Array, str]] = field(default_factory=dict)
    down: str = "query"
    across: str = "key"

    @property
    def of_tokens(self) -> bool:
        """Whether the columns are tokens, and not the channels of a vector."""
        return self.across in ("key", "position")

    @property
    def limit(self) -> float:
        """Where the colours end: 1 for weights, the largest size there is for scores."""
        if self.kind == "weights":
            return 1.0
        return max(float(np.nanmax(np.abs(self.shown()))), 1e-6)

    def seen(self, row: int) -> Bools:
        """Which columns of a row are not masked."""
        return np.ones(len(self.columns), bool) if self.masked is None else ~self.masked[row]

    def shown(self) -> Array:
        """The values, not a number where masked."""
        values = self.values.astype(np.float32)
        return values if self.masked is None else np.where(self.masked, np.float32("nan"), values)


def weights_panel(pieces: Sequence[str], weights: Array, scores: Array, masked: Bools | None) -> Panel:
    """One head's weights, with all that pointing at a cell should tell."""
    names = labels(pieces)
    seen = np.full((len(names), 1), len(names)) if masked is None else (~masked).sum(1, keepdims=True)
    more = {
        "raw score": (scores, ".2f"),
        "row entropy, nats": (entropy(weights)[:, None], ".2f"),
        "effective tokens": (effective_tokens(weights)[:, None], ".1f"),
        "tokens visible": (seen.astype(np.float32), "d"),
    }
    return Panel("weights", weights, names, names, masked, "weight", more)


def scores_panel(
    pieces: Sequence[str], scores: Array, masked: Bools | None = None, value_name: str = "score"
) -> Panel:
    """Scores, or any difference of two maps: about 0."""
    names = labels(pieces)
    return Panel("scores", scores, names, names, masked, value_name)


def labels(pieces: Sequence[str]) -> tuple[str, ...]:
    """Tokens with their index, spaces and newlines to be seen: "·the (14)"."""
    return tuple(f"{visible(piece)} ({index})" for index, piece in enumerate(pieces))


def entropy(weights: Array) -> Array:
    """Of each row, in nats. shape: (..., T, S) -> (..., T)"""
    safe = np.where(weights > 0, weights, 1.0)
    nats: Array = -(weights * np.log(safe)).sum(axis=-1)
    return np.maximum(nats, 0.0)


def effective_tokens(weights: Array) -> Array:
    """exp(entropy): how many tokens a row attends to. shape: (..., T, S) -> (..., T)"""
    tokens: Array = np.exp(entropy(weights))
    return tokens


def shades(panel: Panel) -> Array:
    """What is coloured: the square root of a weight, a score as it is; not a number where masked."""
    shown = panel.shown()
    return np.sqrt(shown) if panel.kind == "weights" else shown
