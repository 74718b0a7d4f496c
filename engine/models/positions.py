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


class SinusoidalPositions(NoPositions):
    """x_t + (sin, cos) of t at wavelengths from 2 pi to 10,000 * 2 pi; nothing is learned.

    Source: Vaswani et al. 2017, section 3.5.
    """

    def embed(self, x: Tensor) -> Tensor:
        T, D = x.shape[-2:]
        angles = _angles(T, D, 10_000.0, 1.0, x)
        waves = torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)
        return x + waves[:, :D].to(x.dtype)  # an odd width has one sine more


class RotaryPositions(NoPositions):
    """RoPE: each pair of numbers of q and of k is turned by an angle that grows with the position.

    So q.k depends on t - s only. The pairs are (i, i + K/2), as in GPT-NeoX and Llama.
    Source: Su et al. 2021, "RoFormer". rope_stretch: Chen et al. 2023; a larger rope_base: "NTK-aware".
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.base, self.stretch = config.rope_base, config.rope_stretch

    def rotate(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        return self._turned(q), self._turned(k)

    def _turned(self, x: Tensor) -> Tensor:
        T, K = x.shape[-2:]
        angles = _angles(T, K, self.base, self.stretch, x)
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        first, second = x.chunk(2, dim=-1)
        return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


class LinearBiases(NoPositions):
    """ALiBi: every head takes off its scores a slope times the distance; nothing is learned.

    Source: Press et al. 2022, "Train Short, Test Long".
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.register_buffer("slopes", alibi_slopes(config.n_head), persistent=False)

    def bias(self, T: int, S: int) -> Tensor:
        slopes: Tensor = self.slopes  # type: ignore[assignment]
        queries = torch.arange(T, device=slopes.device)[:, None]
        distance = (queries - torch.arange(S, device=slopes.device)).abs()
        return -slopes[:, None, None] * distance  # q's type decides later: scores + bias


def alibi_slopes(n_head: int) -> Tensor:
    """A slope a head: 2^(-8/n), 2^(-16/n), ...; shape: -> (H,)

    For a number that is no power of two: those of the next lower one, then every other of the next higher.
    """
    lower = 1 << (n_head.bit_length() - 1)
    slopes = [2 ** (-8 * (i + 1) / lower) for i in range(lower)]
    between = [2 ** (-4 * (i + 1) / lower) for i in range(0, 2 * lower, 2)]
    return torch.tensor(slopes + between[: n_head - lower])


def ntk_base(base: float, factor: float, d_head: int) -> float:
    """The base with which the slowest pair turns ``factor`` times slower and the fastest as before.

    Source: "NTK-aware scaled RoPE", bloc97 2023; Peng et al. 2023, "YaRN", section 3.2.
    """
    return float(base * factor ** (d_head / (d_head - 2)))


def _angles(T: int, width: int, base: float, stretch: float, like: Tensor) -> Tensor:
    """t / stretch / base^(2 i / width). shape: -> (T, width / 2, rounded up)"""
    exact = torch.float64 if like.dtype == torch.float64 else torch.float32  # bfloat16 cannot count to 512
    rates = base ** (-torch.arange(0, width, 2, device=like.device, dtype=exact) / width)
    positions = torch.arange(T, device=like.device, dtype=exact) / stretch
    return torch.outer(positions, rates)


def make_positions(config: ModelConfig) -> NoPositions:
    """The scheme that ``config.positions`` names."""
    match config.positions:
        case "none":
            return NoPositions()
        case "learned":
            return LearnedPositions(config)
        case "sinusoidal":
            return SinusoidalPositions()
        case "rope":
            return RotaryPositions(config)
        case "alibi":
            return LinearBiases(config)
