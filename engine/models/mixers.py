"""What moves information between positions.

Shapes: B batch, T query position, S key position (S = T here), D d_model, H heads, K d_head.
Every mixer has ``attention_weights(x)``, the readable computation that a map shows, and ``forward(x)``,
what training runs; a test holds the two equal.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from engine.models.config import ModelConfig
from engine.models.positions import NoPositions


class UniformAverage(nn.Module):
    """y_t = (x_1 + ... + x_t) / t: every earlier token counts the same.

    shape: (B, T, D) -> (B, T, D)
    Source: chapter, "averages".
    """

    def attention_weights(self, x: Tensor) -> Tensor:
        """Row t holds 1/t up to the diagonal. shape: (B, T, D) -> (1, 1, T, S)"""
        T = x.shape[1]
        ones = torch.ones(T, T, dtype=x.dtype, device=x.device).tril()
        return (ones / ones.sum(dim=1, keepdim=True)).view(1, 1, T, T)

    def forward(self, x: Tensor) -> Tensor:
        return self.attention_weights(x)[0, 0] @ x


class CausalSelfAttention(nn.Module):
    """softmax(q k^T * scale + bias, causal) v, in H heads, joined, then W_O.

    The scale is put into q, so that both paths below always use 1.
    shape: (B, T, D) -> (B, T, D)
    Source: Vaswani et al. 2017, section 3.2; chapter, "query, key, value".
    """

    def __init__(self, config: ModelConfig, positions: NoPositions) -> None:
        super().__init__()
        joined = config.n_head * config.head_width
        self.n_head, self.d_head = config.n_head, config.head_width
        self.scale = self.d_head**-0.5 if config.score_scale == "sqrt" else 1.0
        self.W_Q = nn.Linear(config.d_model, joined, bias=config.qkv_bias)
        self.W_K = nn.Linear(config.d_model, joined, bias=config.qkv_bias)
        self.W_V = nn.Linear(config.d_model, joined, bias=config.qkv_bias)
        self.W_O = (
            nn.Linear(joined, config.d_model, bias=config.output_bias)
            if config.output_projection
            else nn.Identity()
        )
        self._positions = (positions,)  # in a tuple: shared with the model, not owned, not saved twice

    def scores(self, x: Tensor) -> Tensor:
        """Scaled scores with the position bias, before the mask. shape: (B, T, D) -> (B, H, T, S)"""
        q, k = self._queries_and_keys(x)
        scores = q @ k.transpose(-2, -1)
        bias = self._positions[0].bias(x.shape[1], x.shape[1])
        return scores if bias is None else scores + bias

    def attention_weights(self, x: Tensor) -> Tensor:
        """Each row sums to 1; what lies ahead has weight exactly 0. shape: (B, T, D) -> (B, H, T, S)"""
        future = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool, device=x.device).triu(1)
        return F.softmax(self.scores(x).masked_fill(future, float("-inf")), dim=-1)

    def forward(self, x: Tensor) -> Tensor:
        q, k = self._queries_and_keys(x)
        v = self._heads(self.W_V(x))
        bias = self._positions[0].bias(x.shape[1], x.shape[1])
        if bias is not None:
            future = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool, device=x.device).triu(1)
            bias = bias.masked_fill(future, float("-inf"))
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=bias, is_causal=bias is None, scale=1.0)
        out: Tensor = self.W_O(y.transpose(1, 2).flatten(2))
        return out

    def _queries_and_keys(self, x: Tensor) -> tuple[Tensor, Tensor]:
        q, k = self._heads(self.W_Q(x)), self._heads(self.W_K(x))
        return self._positions[0].rotate(q * self.scale, k)

    def _heads(self, x: Tensor) -> Tensor:
        """shape: (B, T, H K) -> (B, H, T, K)"""
        return x.view(*x.shape[:-1], self.n_head, self.d_head).transpose(1, 2)


def make_mixer(config: ModelConfig, positions: NoPositions) -> nn.Module | None:
    """The mixer that ``config.mixer`` names, or None for a block that mixes nothing."""
    match config.mixer:
        case "none":
            return None
        case "average":
            return UniformAverage()
        case "attention":
            return CausalSelfAttention(config, positions)
