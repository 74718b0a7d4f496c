"""What can be predicted of the layer, as values; ``predict.py`` finds them. Imports no torch."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Predicted:
    """Peak bytes of one n of one implementation, the workspace not included."""

    n: int
    implementation: str
    predicted_bytes: int


@dataclass(frozen=True)
class Longest:
    """The largest n that fits a card of so many GB (2^30 bytes); 0 when none does."""

    card_gb: float
    implementation: str
    n: int


@dataclass(frozen=True)
class Predictions:
    """What was asked for: bytes of tasks, and the longest n on cards."""

    rows: tuple[Predicted, ...] = ()
    longest: tuple[Longest, ...] = ()
