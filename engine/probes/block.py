"""Two claims about a block, on fixed weights.

Attention with frozen weights is linear along the features and the feed-forward is not; LayerNorm keeps four
promises that BatchNorm does not.
Shapes: B examples, T position, S key position (S = T here), D d_model, N points.
"""

from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

from engine.chapter.variants import BLOCK
from engine.circuits import capture
from engine.models.block import FeedForward
from engine.models.mixers import CausalSelfAttention
from engine.models.transformer import Transformer
from engine.probes.models import trained, untrained
from engine.probes.results.block import Bent, Block, Linearity, Promise, Promises
from engine.system.errors import InvalidInput

A, B = 2.0, -3.0  # the two factors of a x + b y
TOKENS = 32
EXAMPLES, SHORT, LONG, SEEN = 8, 16, 64, 100
REACH, POINTS = 3.0, 61  # how far a line through x goes, in steps of 0.1

Layer = Callable[[Tensor], Tensor]


def parts_of(model: Transformer) -> tuple[CausalSelfAttention, FeedForward]:
    """The first block's attention and feed-forward.

    Raises InvalidInput: when it lacks one of them.
    """
    attention = next((part for part in model.modules() if isinstance(part, CausalSelfAttention)), None)
    feed_forward = next((part for part in model.modules() if isinstance(part, FeedForward)), None)
    if attention is None or feed_forward is None:
        raise InvalidInput("the model has no block of attention and feed-forward; needed: one of each.")
    return attention, feed_forward


def frozen(attention: CausalSelfAttention, weights: Tensor) -> Layer:
    """The layer with these attention weights, whatever comes in.

    weights: (B, H, T, S). shape: (B, T, D) -> (B, T, D)
    """

    def layer(x: Tensor) -> Tensor:
        _, values, output, bias = capture.parts_of(attention, x)
        return torch.einsum("bhtk,dhk->btd", weights @ values, output) + bias

    return layer


def bent(layer: Layer, x: Tensor, y: Tensor) -> float:
    """How far f(a x + b y) is from a f(x) + b f(y), over the length of the latter; 0 is linear.

    What the layer gives for zeros, its biases, is taken off first.
    """
    nothing = layer(torch.zeros_like(x))
    together = layer(A * x + B * y) - nothing
    apart = A * (layer(x) - nothing) + B * (layer(y) - nothing)
    return float((together - apart).norm() / apart.norm())


@torch.no_grad()
def linearity(model: Transformer, seed: int) -> Linearity:
    """How far each part of a block is from linear, and one feature of each along a line.

    Inputs are standard normal, as what leaves a LayerNorm nearly is.
    """
    attention, feed_forward = parts_of(model)
    draw = torch.Generator().manual_seed(seed)
    x, y, other = torch.randn(3, 1, TOKENS, model.config.d_model, generator=draw)
    fixed = frozen(attention, attention.attention_weights(other))
    straight = nn.Sequential(feed_forward[0], feed_forward[2])  # without the GELU between them
    layers: dict[str, Layer] = {
        "frozen": fixed,
        "frozen-twice": lambda x: fixed(fixed(x)),
        "attention": attention,
        "feed-forward": feed_forward,
        "without-gelu": straight,
    }
    return Linearity(
        rows=[Bent(name, bent(layer, x, y)) for name, layer in layers.items()],
        line=along_a_line({"frozen": fixed, "feed-forward": feed_forward}, x, y),
        rounding=torch.finfo(x.dtype).eps,
    )


def along_a_line(layers: dict[str, Layer], x: Tensor, y: Tensor) -> dict[str, list[float]]:
    """x + t y for t from -3 to 3: the feature of the last position that bends most, less a straight line's
    middle and over its largest size, so that layers can be drawn together.
    """
    steps = torch.linspace(-REACH, REACH, POINTS)
    found = {"t": [round(t, 1) for t in steps.tolist()]}
    for name, layer in layers.items():
        outputs = torch.stack([layer(x + t * y)[0, -1] for t in steps])  # (N, D)
        chord = outputs[0] + (outputs[-1] - outputs[0]) * ((steps + REACH) / (2 * REACH))[:, None]
        feature = int(((outputs - chord).abs().amax(dim=0) / (outputs.amax(0) - outputs.amin(0))).argmax())
        one = outputs[:, feature] - outputs[POINTS // 2, feature]
        found[name] = (one / one.abs().max()).tolist()
    return found


@torch.no_grad()
def promises(width: int, seed: int) -> Promises:
    """LayerNorm and BatchNorm on the same numbers: what else their outputs depend on.

    Each value is the largest absolute change in the output for the same tokens; BatchNorm as it trains and as
    it infers, after having seen 100 batches. Every example has a mean of its own, as texts do.
    """
    draw = torch.Generator().manual_seed(seed)

    def batch(length: int) -> Tensor:
        offsets = torch.randn(EXAMPLES, 1, width, generator=draw)
        return offsets + torch.randn(EXAMPLES, length, width, generator=draw)

    layer_norm, batch_norm = nn.LayerNorm(width), _OverBatch(width)
    for _ in range(SEEN):
        batch_norm(batch(SHORT))
    x = batch(LONG)
    found = []
    for name, norm, training in (
        ("layer-norm", layer_norm, True),
        ("batch-norm", batch_norm, True),
        ("batch-norm-inference", batch_norm, False),
    ):
        norm.train(training)
        kept = {key: value.clone() for key, value in norm.state_dict().items()}

        def output(z: Tensor, norm: nn.Module = norm, kept: dict[str, Tensor] = kept) -> Tensor:
            norm.load_state_dict(kept)  # what one call does to the running statistics is undone
            y: Tensor = norm(z)
            return y

        short = x[:, :SHORT]
        whole, alone, longer = output(short), output(short[:1]), output(x)[:, :SHORT]
        single = _refusal(output, short[:1, :1])
        norm.train(not training)
        found.append(
            Promise(
                norm=name,
                batch=_largest(alone - whole[:1]),
                running=sum(b.numel() for b in norm.buffers()),
                mode=_largest(output(short) - whole),
                length=_largest(longer - whole),
                single=single,
            )
        )
    return Promises(rows=found, examples=EXAMPLES, short=SHORT, long=LONG, seen=SEEN)


class _OverBatch(nn.BatchNorm1d):
    """BatchNorm of every feature over all examples and positions. shape: (B, T, D) -> (B, T, D)"""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.flatten(0, 1)).view_as(x)


def _largest(change: Tensor) -> float:
    return float(change.abs().max())


def _refusal(layer: Layer, x: Tensor) -> str:
    """What torch says instead of computing it; empty when it computes it."""
    try:
        layer(x)
    except ValueError as error:
        return str(error).splitlines()[0]
    return ""


@torch.no_grad()
def claims(weights: Path | None = None, seed: int = 0) -> Block:
    """Both claims on a block of the chapter's: of a checkpoint, or as torch draws it with seed 0.

    Raises InvalidInput: when the checkpoint holds no single block of attention and feed-forward, and as
        ``trained``.
    """
    model = trained(weights) if weights else untrained(BLOCK.config)
    norms = promises(model.config.d_model, seed)
    return Block(torch.__version__, seed, linearity(model, seed), norms)
