"""Our attention against PyTorch's own, weights copied.

Shapes: B batch, T position, D d_model, H heads, K d_head.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from engine.chapter.experiments import MAX_SEED
from engine.chapter.measurements import THEIRS
from engine.models.config import ModelConfig, ScoreScale
from engine.models.linear import by_torch_alone
from engine.models.mixers import CausalSelfAttention, UnmaskedSelfAttention
from engine.models.positions import NoPositions
from engine.probes.results.parity import Parity, Row
from engine.system.errors import InvalidInput

PRECISIONS = {
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "float32": torch.float32,
    "float64": torch.float64,
}
SCALES: tuple[ScoreScale, ...] = ("sqrt", "none", "width")
MODULE, FUNCTION = THEIRS["module"], THEIRS["function"]
MAX_SEEDS = 20

Way = Callable[[CausalSelfAttention, Tensor], tuple[Tensor, list[Tensor]]]
Measured = tuple[Tensor, Tensor] | None


@dataclass(frozen=True)
class Size:
    """B sequences of T tokens, D wide, in H heads."""

    batch: int
    tokens: int
    d_model: int
    n_head: int


SIZES = (Size(8, 8, 128, 1), Size(8, 8, 128, 4), Size(4, 64, 128, 4), Size(1, 64, 256, 8))


def compare(
    seeds: Sequence[int],
    precisions: Sequence[str] = tuple(PRECISIONS),
    sizes: Sequence[Size] = SIZES,
    masks: Sequence[str] = ("causal", "none"),
    scales: Sequence[ScoreScale] = SCALES,
) -> list[Row]:
    """Every comparison of these seeds: precisions x sizes x masks x scales x theirs x ours."""
    return [row for given in product(seeds, precisions, sizes, masks, scales) for row in _rows(*given)]


def measured(_: str, seed: int) -> list[Row]:
    """One seed's rows, causal and divided by the square root of d, on one thread, for a ``Measurement``."""
    torch.set_num_threads(1)
    return compare([seed], masks=("causal",), scales=("sqrt",))


def _rows(seed: int, precision: str, size: Size, mask: str, scale: ScoreScale) -> Iterator[Row]:
    head, x, direction = _setting(seed, size, mask, scale)
    dtype = PRECISIONS[precision]
    head, x, direction = head.to(dtype), x.to(dtype), direction.to(dtype)
    ways: dict[str, Way] = {"written out": _written_out, "fused": _fused, FUNCTION: _functional}
    if scale == "sqrt":  # nn.MultiheadAttention knows no other
        ways[MODULE] = _module
    measured = {name: _run(way, head, x, direction) for name, way in ways.items()}
    named = {**asdict(size), "precision": precision, "mask": mask, "scale": scale, "seed": seed}
    for theirs in (FUNCTION, MODULE):
        for ours in ("written out", "fused") if theirs in ways else ():
            yield _row(measured[ours], measured[theirs], {**named, "ours": ours, "theirs": theirs})


def _row(ours: Measured, theirs: Measured, named: dict[str, Any]) -> Row:
    if ours is None or theirs is None:
        return Row(**named, state="unsupported")
    (y, gradients), (z, expected) = ours, theirs
    return Row(**named, **_compared(y, z), **_compared(gradients, expected, "gradient_"))


def _compared(ours: Tensor, theirs: Tensor, of: str = "") -> dict[str, Any]:
    size, gap = theirs.abs().mean().item(), (ours - theirs).abs().max().item()
    return {f"{of}magnitude": size, f"{of}difference": gap, f"{of}relative": gap / size}


def _setting(
    seed: int, size: Size, mask: str, scale: ScoreScale
) -> tuple[CausalSelfAttention, Tensor, Tensor]:
    """A head as it is initialised, its input and a direction in its output, drawn in float32."""
    torch.manual_seed(seed)
    config = ModelConfig(
        mixer="attention", d_model=size.d_model, n_head=size.n_head, score_scale=scale, output_projection=True
    )
    kind = CausalSelfAttention if mask == "causal" else UnmaskedSelfAttention
    head = kind(config, NoPositions())
    by_torch_alone(head)  # what differs is then attention, not the library that multiplies its weights
    x = torch.randn(size.batch, size.tokens, size.d_model)
    return head, x, torch.randn(size.batch, size.tokens, size.d_model)


def _run(way: Way, head: CausalSelfAttention, x: Tensor, direction: Tensor) -> Measured:
    """The output, and the gradients of x and every weight in one vector; both in float64 from here on.

    None where this CPU has no kernel for that precision.
    """
    x = x.clone().requires_grad_()
    try:
        y, weights = way(head, x)
        gradients = torch.autograd.grad((y * direction).sum(), [x, *weights])
    except (RuntimeError, NotImplementedError) as error:
        if "not implemented for" not in str(error):
            raise
        return None
    return y.detach().double(), torch.cat([g.double().flatten() for g in gradients])


def _written_out(head: CausalSelfAttention, x: Tensor) -> tuple[Tensor, list[Tensor]]:
    y = head.attention_weights(x) @ head._heads(head.W_V(x))
    return head.W_O(y.transpose(1, 2).flatten(2)), _weights(head)


def _fused(head: CausalSelfAttention, x: Tensor) -> tuple[Tensor, list[Tensor]]:
    return head(x), _weights(head)


def _functional(head: CausalSelfAttention, x: Tensor) -> tuple[Tensor, list[Tensor]]:
    """Our projections, PyTorch's attention between them, with its own scale and mask."""
    q, k, v = (head._heads(project(x)) for project in (head.W_Q, head.W_K, head.W_V))
    scale = None if head.scale == head.d_head**-0.5 else float(head.scale)
    y = F.scaled_dot_product_attention(q, k, v, is_causal=head.causal, scale=scale)
    return head.W_O(y.transpose(1, 2).flatten(2)), _weights(head)


def _module(head: CausalSelfAttention, x: Tensor) -> tuple[Tensor, list[Tensor]]:
    """PyTorch's whole module with our weights copied into it."""
    W_Q, W_K, W_V, W_O = _weights(head)
    theirs = nn.MultiheadAttention(x.shape[-1], head.n_head, batch_first=True, dtype=x.dtype)
    with torch.no_grad():
        theirs.in_proj_weight.copy_(torch.cat([W_Q, W_K, W_V]))
        theirs.in_proj_bias.zero_()
        theirs.out_proj.weight.copy_(W_O)
        theirs.out_proj.bias.copy_(head.W_O.bias)  # type: ignore[arg-type]
    ahead = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1) if head.causal else None
    y, _ = theirs(x, x, x, attn_mask=ahead)
    return y, [theirs.in_proj_weight, theirs.out_proj.weight]


def _weights(head: CausalSelfAttention) -> list[Tensor]:
    return [m.weight for m in (head.W_Q, head.W_K, head.W_V, head.W_O)]  # type: ignore[misc]


def parity(seeds: list[int]) -> Parity:
    """Every comparison of these seeds. Raises InvalidInput: when there are too many, or one is too large."""
    if not 1 <= len(seeds) <= MAX_SEEDS or not all(0 <= seed <= MAX_SEED for seed in seeds):
        raise InvalidInput(f"seeds are {seeds}; allowed: 1 to {MAX_SEEDS}, each from 0 to {MAX_SEED:,}.")
    rounding = {name: torch.finfo(dtype).eps for name, dtype in PRECISIONS.items()}
    return Parity(torch.__version__, rounding, compare(seeds))
