"""What moves information between positions.

Shapes: B batch, T query position, S key position (S = T here), D d_model, H heads, K d_head.
Every mixer has ``attention_weights(x)``, the readable computation that a map shows, and ``forward(x)``,
what training runs; a test holds the two equal.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from engine.models.config import ModelConfig
from engine.models.linear import Linear
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


class LearnedMatrix(nn.Module):
    """softmax(M, causal) x, with one learned M for every sentence; it begins as the uniform average.

    shape: (B, T, D) -> (B, T, D)
    Source: chapter, "query, key, value".
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.matrix = nn.Parameter(torch.zeros(config.max_positions, config.max_positions))

    def attention_weights(self, x: Tensor) -> Tensor:
        """The same rows whatever x is. shape: (B, T, D) -> (1, 1, T, S)"""
        T, rows = x.shape[1], len(self.matrix)
        if rows < T:
            raise ValueError(f"{T} tokens; the learned matrix has {rows} rows.")
        return causal_softmax(self.matrix[:T, :T]).view(1, 1, T, T)

    def forward(self, x: Tensor) -> Tensor:
        return self.attention_weights(x)[0, 0] @ x


class QueriesAndKeys(nn.Module):
    """scores = (W_Q x) (W_K x)^T * scale + position bias, in H heads.

    The scale is put into q, so that scores and the fused kernel both use 1 afterwards. QK-norm first gives
    q and k a root mean square of 1, times a learned gain, head by head, as Gemma 3 and Qwen 3 have it. (Henry
    et al. 2020 have a length of 1 and one learned scale, Dehghani et al. 2023 a LayerNorm.)
    """

    projected: tuple[str, ...] = ("W_Q", "W_K", "W_V")

    def __init__(self, config: ModelConfig, positions: NoPositions) -> None:
        super().__init__()
        self.n_head, self.d_head = config.n_head, config.effective_d_head
        self.scale = _score_scale(config)
        normalise = config.score_scale == "qk-norm"
        self.norm_q = nn.RMSNorm(self.d_head) if normalise else nn.Identity()
        self.norm_k = nn.RMSNorm(self.d_head) if normalise else nn.Identity()
        self.W_Q, self.W_K = self._projection("W_Q", config), self._projection("W_K", config)
        self._positions = (positions,)  # in a tuple: shared with the model, not owned, not saved twice

    def scores(self, x: Tensor) -> Tensor:
        """Scaled scores with the position bias, before the mask. shape: (B, T, D) -> (B, H, T, S)"""
        q, k = self.queries_and_keys(x)
        scores = q @ k.transpose(-2, -1)
        bias = self._positions[0].bias(x.shape[1], x.shape[1])
        return scores if bias is None else scores + bias

    def queries_and_keys(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """q, scaled, and k. shape: (B, T, D) -> (B, H, T, K), (B, H, T, K)"""
        q, k = self.norm_q(self._heads(self.W_Q(x))), self.norm_k(self._heads(self.W_K(x)))
        return self._positions[0].rotate(q * self.scale, k)

    def _heads(self, x: Tensor) -> Tensor:
        """shape: (B, T, H K) -> (B, H, T, K)"""
        return x.view(*x.shape[:-1], self.n_head, self.d_head).transpose(1, 2)

    def _projection(self, name: str, config: ModelConfig) -> nn.Module:
        if name not in self.projected:
            return nn.Identity()
        return Linear(config.d_model, self.n_head * self.d_head, bias=config.qkv_bias)


class CausalSelfAttention(QueriesAndKeys):
    """softmax(scores, causal) (W_V x), the heads joined, then W_O.

    shape: (B, T, D) -> (B, T, D)
    Source: Vaswani et al. 2017, section 3.2; chapter, "query, key, value".
    """

    causal = True

    def __init__(self, config: ModelConfig, positions: NoPositions) -> None:
        super().__init__(config, positions)
        self.W_V, self.dropout = self._projection("W_V", config), config.dropout
        self.W_O: nn.Module = nn.Identity()
        if config.output_projection:
            self.W_O = Linear(self.n_head * self.d_head, config.d_model, bias=config.output_bias)

    def attention_weights(self, x: Tensor) -> Tensor:
        """Each row sums to 1; what lies ahead has weight exactly 0. shape: (B, T, D) -> (B, H, T, S)"""
        scores = self.scores(x)
        return causal_softmax(scores) if self.causal else scores.softmax(dim=-1)

    def forward(self, x: Tensor) -> Tensor:
        q, k = self.queries_and_keys(x)
        v = self._heads(self.W_V(x))
        bias = self._positions[0].bias(x.shape[1], x.shape[1])
        if bias is not None and self.causal:
            bias = bias.masked_fill(future(bias), float("-inf"))
        is_causal = bias is None and self.causal
        attend = _unfused if q.device.type == "cpu" and q.dtype == torch.bfloat16 else _fused
        y = attend(q, k, v, bias, is_causal, self.dropout if self.training else 0.0)
        out: Tensor = self.W_O(y.transpose(1, 2).flatten(2))
        return out


class UnmaskedSelfAttention(CausalSelfAttention):
    """The same without its mask: every position sees the answer. For the leak test only."""

    causal = False


class RawAttention(CausalSelfAttention):
    """softmax(x x^T * scale, causal) x: a token is matched and copied as it is."""

    projected = ()


class QueryKeyAttention(CausalSelfAttention):
    """softmax(scores, causal) x: what is matched has two roles, what is copied is the token itself."""

    projected = ("W_Q", "W_K")


def _fused(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, is_causal: bool, dropout: float) -> Tensor:
    """torch's kernel. shape: (B, H, T, K), (B, H, S, K), (B, H, S, K), (H, T, S) -> (B, H, T, K)"""
    return F.scaled_dot_product_attention(
        q, k, v, attn_mask=bias, dropout_p=dropout, is_causal=is_causal, scale=1.0
    )


def _unfused(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, is_causal: bool, dropout: float) -> Tensor:
    """The same, product by product: in bfloat16 on a CPU it takes a third of the kernel's time."""
    scores = q @ k.transpose(-2, -1)
    if is_causal:
        bias = torch.full_like(scores[0, 0], float("-inf")).triu(1)
    weights = (scores if bias is None else scores + bias.to(scores.dtype)).softmax(dim=-1)
    return F.dropout(weights, dropout) @ v


def causal_softmax(scores: Tensor) -> Tensor:
    """Softmax over what is not ahead. shape: (..., T, S) -> (..., T, S)"""
    return F.softmax(scores.masked_fill(future(scores), float("-inf")), dim=-1)


def future(scores: Tensor) -> Tensor:
    """True above the diagonal. shape: (..., T, S) -> (T, S)"""
    return torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)


def _score_scale(config: ModelConfig) -> float | nn.Parameter:
    """What q is multiplied by; a learned scale is one number a head. shape: (), or (H, 1, 1)"""
    sqrt: float = config.effective_d_head**-0.5
    match config.score_scale:
        case "none":
            return 1.0
        case "width":
            return 1.0 / config.effective_d_head
        case "learned":
            return nn.Parameter(torch.full((config.n_head, 1, 1), sqrt))
        case _:
            return sqrt


ATTENTION: dict[str, type[CausalSelfAttention]] = {
    "attention": CausalSelfAttention,
    "unmasked": UnmaskedSelfAttention,
    "raw": RawAttention,
    "query-key": QueryKeyAttention,
}


def make_mixer(config: ModelConfig, positions: NoPositions) -> nn.Module | None:
    """The mixer that ``config.mixer`` names, or None for a block that mixes nothing."""
    match config.mixer:
        case "none":
            return None
        case "average":
            return UniformAverage()
        case "matrix":
            return LearnedMatrix(config)
        case _:
            return ATTENTION[config.mixer](config, positions)
