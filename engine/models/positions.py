"""How a model learns where a token stands.

Shapes: B batch, T query position, S key position, D d_model, H heads, K d_head.
"""

import torch
from torch import Tensor, nn

from engine.models.config import ModelConfig


class NoPositions(nn.Module):
    """The base of every scheme: three hooks that do nothing. A scheme overrides the one it needs."""

    def embed(self, x: Tensor) -> Tensor:
        """Added to the token embeddings. shape: (B, T, D) -> (B, T, D)"""
        return x

    def rotate(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """Applied to queries and keys. shape: (B, H, T, K), (B, H, S, K) -> the same"""
        return q, k

    def bias(self, T: int, S: int) -> Tensor | None:  # noqa: ARG002 - the base has none
        """Added to the scores before the mask. shape: -> (H, T, S), or None for nothing"""
        return None


class LearnedPositions(NoPositions):
    """x_t + P[t], one learned vector a position.

    Raises ValueError: when a sequence is longer than the table.
    Source: chapter, "positions"; Gehring et al. 2017, section 3.1.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.table = nn.Embedding(config.max_positions, config.d_model)

    def embed(self, x: Tensor) -> Tensor:
        T = x.shape[1]
        if self.table.num_embeddings < T:
            raise ValueError(f"{T} tokens; the position table has {self.table.num_embeddings} rows.")
        vectors: Tensor = self.table(torch.arange(T, device=x.device))
        return x + vectors


def make_positions(config: ModelConfig) -> NoPositions:
    """The scheme that ``config.positions`` names."""
    match config.positions:
        case "none":
            return NoPositions()
        case "learned":
            return LearnedPositions(config)
