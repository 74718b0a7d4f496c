"""The language model: embed, blocks, unembed.

Shapes: B batch, T position, D d_model, V vocabulary.
"""

from torch import Tensor, nn

from engine.models.block import Block
from engine.models.config import ModelConfig
from engine.models.linear import Linear
from engine.models.positions import make_positions


class Transformer(nn.Module):
    """Next-token logits for every position, with torch's default initialisation.

    shape: (B, T) token ids -> (B, T, V) logits
    Source: chapter, "the block"; the variants of ``variants.py`` are all this class.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.token_embedding = nn.Embedding(config.vocab_size, config.d_model)
        self.positions = make_positions(config)
        self.dropout = nn.Dropout(config.dropout) if config.dropout else nn.Identity()
        self.blocks = nn.Sequential(*(Block(config, self.positions) for _ in range(config.n_layer)))
        self.final_norm = nn.LayerNorm(config.d_model) if config.connection == "pre-norm" else nn.Identity()
        self.unembedding = Linear(config.d_model, config.vocab_size, bias=config.unembedding_bias)
        if config.tied:
            self.unembedding.weight = self.token_embedding.weight

    def residual(self, ids: Tensor) -> Tensor:
        """The residual stream behind the last block. shape: (B, T) -> (B, T, D)"""
        x = self.dropout(self.positions.embed(self.token_embedding(ids)))
        return self.blocks(x)  # type: ignore[no-any-return]

    def forward(self, ids: Tensor) -> Tensor:
        return self.unembedding(self.final_norm(self.residual(ids)))  # type: ignore[no-any-return]


def parameter_count(model: nn.Module) -> int:
    """Learned numbers, each storage counted once (a tied table is one table)."""
    return sum(p.numel() for p in model.parameters())
