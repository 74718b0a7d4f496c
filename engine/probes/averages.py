"""What an average can and cannot tell apart, on sentences that a reader types.

Shapes: T tokens, D d_model, V vocabulary.
"""

from collections import Counter
from pathlib import Path

import torch

from engine.data import corpus
from engine.models.mixers import UniformAverage
from engine.models.transformer import Transformer
from engine.probes.models import token_ids, trained
from engine.probes.results.averages import Comparison

TOP = 8


def compare(weights: Path, text_a: str, text_b: str) -> Comparison:
    """Encode both texts with a leading space and compare what the model makes of them.

    weights: a checkpoint trained with the shipped tokenizer.
    Raises InvalidInput: when a text holds no token, or more than the model has positions for.
    """
    model, vocabulary = trained(weights), corpus.shipped_vocabulary()
    ids = [token_ids(vocabulary, text, model.config.max_positions) for text in (text_a, text_b)]
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


@torch.no_grad()
def _look(model: Transformer, ids: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
    """The last position's average and next-token probabilities. shape: -> (D,), (V,)"""
    batch = torch.tensor([ids])
    embedded = model.positions.embed(model.token_embedding(batch))
    average: torch.Tensor = UniformAverage()(embedded)[0, -1]
    return average, model(batch)[0, -1].softmax(dim=-1)


def _top(vocabulary: corpus.Vocabulary, probabilities: torch.Tensor) -> list[tuple[str, float]]:
    values, ids = probabilities.topk(TOP)
    return list(zip(vocabulary.pieces(ids.tolist()), values.tolist(), strict=True))
