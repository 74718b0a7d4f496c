"""What leaks through a mask: by the constant that stands for "never", by the type that holds it, and in
training without one. Measured with torch as it is installed, never from memory.

Shapes: N grids, T query position, S key position (S = T here), D features.
"""

import math
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from engine.data import corpus
from engine.models.mixers import future
from engine.probes.models import for_the_reader, held_out, trained
from engine.probes.results.leaks import Constant, EmptyRow, Sample
from engine.probes.schemes import last_loss
from engine.system.errors import InvalidInput
from engine.training.evaluation import perplexity
from engine.training.generation import continued

MASK_VALUES = {"-inf": -math.inf, "-1e9": -1e9, "-1e4": -1e4}
DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
GRIDS, TOKENS, WIDTH = 500, 6, 8


@torch.no_grad()
def constants(sizes: list[float]) -> list[Constant]:
    """Every mask value in every type.

    sizes: standard deviations of the scores to try, in 500 grids of 6 x 6 normal numbers, always the same.
    Rows that see everything are left out of the mean: nothing can leak into them.
    """
    drawn = torch.randn(GRIDS, TOKENS, TOKENS, generator=torch.Generator().manual_seed(0))
    return [_constant(kind, name, drawn, sizes) for kind in DTYPES for name in MASK_VALUES]


def _constant(kind: str, name: str, drawn: Tensor, sizes: Sequence[float]) -> Constant:
    dtype, value = DTYPES[kind], MASK_VALUES[name]
    ahead = future(drawn)
    filled, refusal = None, ""
    try:
        filled = torch.zeros(1, dtype=dtype).masked_fill(torch.tensor([True]), value).item()
    except RuntimeError as error:
        refusal = str(error).splitlines()[0]
    leaks = dict[float, float | None]()
    for size in sizes:
        scores = (drawn * size).to(dtype)
        if refusal or not scores.isfinite().all():
            leaks[size] = None
            continue
        weights = scores.masked_fill(ahead, value).softmax(dim=-1)
        leaks[size] = (weights.float() * ahead).sum(dim=-1)[:, :-1].mean().item()
    return Constant(kind, name, filled, refusal, torch.tensor(value).to(dtype).item(), leaks)


EMPTY_ROW = 2  # the third of six


def empty_rows() -> list[EmptyRow]:
    """Six ways with the same weights, input and mask."""
    return [_empty_row(way, attend) for way, attend in WAYS.items()]


class _Layer:
    """One head of torch's own layer with weights that are always the same, and an input for it."""

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(0)
        with torch.random.fork_rng(devices=[]):  # a new layer draws weights, which are not kept
            self.module = nn.MultiheadAttention(WIDTH, 1, batch_first=True)
        with torch.no_grad():
            for weight in (self.module.in_proj_weight, self.module.out_proj.weight):
                weight.copy_(torch.randn(weight.shape, generator=generator) / WIDTH**0.5)
            self.module.in_proj_bias.zero_()
            self.module.out_proj.bias.copy_(torch.linspace(0.1, 0.8, WIDTH))
        self.x = torch.randn(TOKENS, WIDTH, generator=generator)
        self.hidden = future(torch.zeros(TOKENS, TOKENS))
        self.hidden[EMPTY_ROW] = True

    def projected(self) -> tuple[Tensor, Tensor, Tensor]:
        """q, scaled, and k, v. shape: -> (T, D) each"""
        q, k, v = (self.x @ self.module.in_proj_weight.T).chunk(3, dim=-1)
        return q / WIDTH**0.5, k, v

    def out(self, y: Tensor) -> Tensor:
        """W_O and its bias. shape: (T, D) -> (T, D)"""
        out: Tensor = self.module.out_proj(y)
        return out


Attend = Callable[[_Layer], Tensor]


def _written_out(value: float, repair: Callable[[Tensor], Tensor] = lambda weights: weights) -> Attend:
    def attend(layer: _Layer) -> Tensor:
        q, k, v = layer.projected()
        return layer.out(repair((q @ k.T).masked_fill(layer.hidden, value).softmax(dim=-1)) @ v)

    return attend


def _fused(layer: _Layer) -> Tensor:
    q, k, v = (part[None, None] for part in layer.projected())
    y = F.scaled_dot_product_attention(q, k, v, attn_mask=~layer.hidden, scale=1.0)
    return layer.out(y[0, 0])


def _torchs_layer(*, need_weights: bool) -> Attend:
    def attend(layer: _Layer) -> Tensor:
        x = layer.x[None]
        out: Tensor = layer.module(x, x, x, attn_mask=layer.hidden, need_weights=need_weights)[0][0]
        return out

    return attend


WAYS: dict[str, Attend] = {
    "masked_fill(−inf), softmax": _written_out(-math.inf),
    "masked_fill(−1e9), softmax": _written_out(-1e9),
    "−inf, then nan_to_num": _written_out(-math.inf, torch.nan_to_num),
    "F.scaled_dot_product_attention": _fused,
    "nn.MultiheadAttention": _torchs_layer(need_weights=True),
    "the same, need_weights=False": _torchs_layer(need_weights=False),
}


def _empty_row(way: str, attend: Attend) -> EmptyRow:
    layer = _Layer()
    y = attend(layer)
    others = torch.arange(TOKENS) != EMPTY_ROW
    y[others].sum().backward()
    incoming, outgoing = layer.module.in_proj_weight.grad, layer.module.out_proj.weight.grad
    assert incoming is not None
    assert outgoing is not None
    gradients = dict(zip(("W_Q", "W_K", "W_V", "W_O"), (*incoming.chunk(3), outgoing), strict=True))
    return EmptyRow(
        way=way,
        output=y[EMPTY_ROW].tolist(),
        like=_like(y[EMPTY_ROW].detach(), layer),
        nan_gradients=[name for name, gradient in gradients.items() if gradient.isnan().any()],
    )


@torch.no_grad()
def _like(row: Tensor, layer: _Layer) -> str:
    mean = layer.out(layer.projected()[2].mean(dim=0))
    if row.isnan().all():
        return "nan"
    for name, known in (("bias", layer.module.out_proj.bias), ("mean", mean)):
        if torch.allclose(row, known, atol=1e-6):
            return name
    return "other"


SAMPLE_TOKENS = 80
STRIDE = 32  # tokens between the held-out windows: about 1,400 of Tiny Shakespeare


@torch.no_grad()
def sample(weights: Path, corpus_id: str, prompt: str, seed: int) -> Sample:
    """Let a model continue a prompt, and measure it where the answer lies outside its window.

    weights: a checkpoint; corpus_id: the text it was trained on.
    Raises InvalidInput: when the prompt holds no token, more than the model has positions for, or the text is
        no longer here.
    """
    model = trained(weights)
    with for_the_reader():
        text = corpus.load(corpus_id)
        ids = text.encode(prompt) if prompt.strip() else []
    limit = model.config.max_positions
    if not 1 <= len(ids) <= limit:
        raise InvalidInput(f"The prompt has {len(ids)} tokens; allowed: 1 to {limit}.")
    written = continued(model, text, ids, tokens=SAMPLE_TOKENS, seed=seed)
    # What follows a window is the only question that a model without a mask cannot look the answer up for.
    windows = held_out(text).unfold(0, limit + 1, STRIDE)
    return Sample(written, perplexity(last_loss(model, windows)))
