"""What an average can and cannot tell apart, on sentences that a reader types.

Shapes: T tokens, D d_model, V vocabulary.
"""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import torch

from engine.data import corpus
from engine.models.mixers import UniformAverage
from engine.models.transformer import Transformer
from engine.probes import live

TOP = 8


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


def compare(weights: Path, text_a: str, text_b: str) -> Comparison:
    """Encode both texts with a leading space and compare what the model makes of them.

    weights: a checkpoint trained with the shipped tokenizer.
    Raises ValueError: when a text holds no token, or more than the model has positions for.
    """
    with live.alone():
        model = live.trained(weights)
        vocabulary = corpus.shipped_vocabulary()
        ids = [live.token_ids(vocabulary, text, model) for text in (text_a, text_b)]
        averages, probabilities = zip(*(_look(model, one) for one in ids), strict=True)
    return Comparison(
        pieces_a=vocabulary.pieces(ids[0]),
        pieces_b=vocabulary.pieces(ids[1]),
        same_pieces=Counter(ids[0]) == Counter(ids[1]),
        average_difference=(averages[0] - averages[1]).abs().max().item(),
        top_a=_top(vocabulary, probabilities[0]),
        top_b=_top(vocabulary, probabilities[1]),
        probability_difference=(probabilities[0] - probabilities[1]).abs().max().item(),
    )


def _look(model: Transformer, ids: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
    """The last position's average and next-token probabilities. shape: -> (D,), (V,)"""
    batch = torch.tensor([ids])
    embedded = model.positions.embed(model.token_embedding(batch))
    average: torch.Tensor = UniformAverage()(embedded)[0, -1]
    return average, model(batch)[0, -1].softmax(dim=-1)


def _top(vocabulary: corpus.Vocabulary, probabilities: torch.Tensor) -> list[tuple[str, float]]:
    values, ids = probabilities.topk(TOP)
    return list(zip(vocabulary.pieces(ids.tolist()), values.tolist(), strict=True))
