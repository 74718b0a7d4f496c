"""What an average can and cannot tell apart. Imports no torch."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Comparison:
    """Two texts through one trained average.

    pieces_a, pieces_b: their tokens as text; same_pieces: whether they are the same bag of tokens.
    average_difference: largest absolute difference of the last position's averages of the embeddings.
    top_a, top_b: the likeliest next tokens with their probabilities, best first.
    probability_difference: largest absolute difference over the whole vocabulary.
    """

    pieces_a: list[str]
    pieces_b: list[str]
    same_pieces: bool
    average_difference: float
    top_a: list[tuple[str, float]]
    top_b: list[tuple[str, float]]
    probability_difference: float
