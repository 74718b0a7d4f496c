"""One attention layer on a sentence that a reader types, caught stage by stage, as plain arrays.

Shapes: T query position, S key position (S = T), D d_model, H heads, K d_head.
"""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from engine.chapter.variants import HEAD_ADDED
from engine.circuits.capture import parts_of, run
from engine.data import corpus
from engine.models.mixers import CausalSelfAttention, future
from engine.models.transformer import Transformer
from engine.probes.models import token_ids, trained, untrained
from engine.probes.results.attention import Capture
from engine.system.errors import InvalidInput


def capture(text: str, weights: Path | None = None) -> Capture:
    """The first attention layer of a model on a text.

    weights: a checkpoint trained with the shipped tokenizer; without one, the untrained head of seed 0.
    Raises InvalidInput: when the model has no attention, or the text no token or too many; and as
        ``trained``.
    """
    return captured(trained(weights) if weights else untrained(HEAD_ADDED.config), text)[0]


@torch.no_grad()
def captured(model: Transformer, text: str) -> list[Capture]:
    """Every attention layer of a model on a text, from the first block to the last.

    Raises InvalidInput: as ``capture``.
    """
    vocabulary = corpus.shipped_vocabulary()
    ids = token_ids(vocabulary, text, model.config.max_positions)
    pieces = tuple(vocabulary.pieces(ids))
    layers = [module for module in model.modules() if isinstance(module, CausalSelfAttention)]
    if not layers:
        raise InvalidInput(f"A model of mixer {model.config.mixer!r} has no queries and keys to look into.")
    blocks = run(model, torch.tensor([ids])).blocks
    return [_stages(layer, block.read, pieces) for layer, block in zip(layers, blocks, strict=True)]


def _stages(mixer: CausalSelfAttention, x: Tensor, pieces: tuple[str, ...]) -> Capture:
    q, k = mixer.queries_and_keys(x)
    scaled, weights = mixer.scores(x), mixer.attention_weights(x)
    values = parts_of(mixer, x)[1]
    masked = future(scaled) if mixer.causal else torch.zeros(scaled.shape[-2:], dtype=torch.bool)
    stages = {
        "x": x,
        "raw": x @ x.transpose(-2, -1),
        "products": (q / mixer.scale) @ k.transpose(-2, -1),
        "scaled": scaled,
        "weights": weights,
        "keys": k,
        "values": values,
        "mixed": weights @ values,
    }
    arrays = {name: stage[0].numpy().astype(np.float32) for name, stage in stages.items()}
    return Capture(pieces=pieces, masked=masked.numpy(), **arrays)
