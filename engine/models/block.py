"""A block: sublayers, each joined to its input by one connection.

Shapes: B batch, T position, D d_model, F d_ff.
"""

from torch import Tensor, nn

from engine.models.config import ModelConfig
from engine.models.linear import Linear
from engine.models.mixers import make_mixer
from engine.models.positions import NoPositions


class FeedForward(nn.Sequential):
    """W_2 gelu(W_1 x + b_1) + b_2, the same at every position.

    shape: (B, T, D) -> (B, T, D)
    Source: Vaswani et al. 2017, section 3.3, with GELU for ReLU; chapter, "the block".
    """

    def __init__(self, d_model: int, d_ff: int) -> None:
        super().__init__(Linear(d_model, d_ff), nn.GELU(), Linear(d_ff, d_model))


class Replace(nn.Module):
    """y = f(x), with dropout if there is some."""

    def __init__(self, config: ModelConfig, sublayer: nn.Module) -> None:
        super().__init__()
        self.sublayer = sublayer
        self.dropout = nn.Dropout(config.dropout) if config.dropout else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return self.dropout(self.sublayer(x))  # type: ignore[no-any-return]


class Add(Replace):
    """y = x + f(x)"""

    def forward(self, x: Tensor) -> Tensor:
        return x + super().forward(x)


class PreNorm(Replace):
    """y = x + f(norm(x))

    Source: Xiong et al. 2020.
    """

    def __init__(self, config: ModelConfig, sublayer: nn.Module) -> None:
        super().__init__(config, sublayer)
        self.norm = nn.LayerNorm(config.d_model)

    def forward(self, x: Tensor) -> Tensor:
        return x + super().forward(self.norm(x))


class PostNorm(Replace):
    """y = norm(x + f(x))

    Source: Vaswani et al. 2017, section 3.1.
    """

    def __init__(self, config: ModelConfig, sublayer: nn.Module) -> None:
        super().__init__(config, sublayer)
        self.norm = nn.LayerNorm(config.d_model)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x + super().forward(x))  # type: ignore[no-any-return]


CONNECTIONS: dict[str, type[Replace]] = {
    "replace": Replace,
    "add": Add,
    "pre-norm": PreNorm,
    "post-norm": PostNorm,
}


class Block(nn.Sequential):
    """The mixer, then the feed-forward, each in its connection; either may be absent.

    shape: (B, T, D) -> (B, T, D)
    """

    def __init__(self, config: ModelConfig, positions: NoPositions) -> None:
        connect = CONNECTIONS[config.connection]
        mixer = make_mixer(config, positions)
        feed_forward = FeedForward(config.d_model, config.d_ff) if config.d_ff else None
        super().__init__(*(connect(config, f) for f in (mixer, feed_forward) if f is not None))
