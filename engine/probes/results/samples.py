"""What trained models write after the same words. Imports no torch."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Written:
    """One model's text, or what is wrong with the model."""

    text: str
    error: str
