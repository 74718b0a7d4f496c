"""Linear layers by the faster of the two libraries that torch brings for a CPU.

Shapes: N any leading sizes, I in, O out.
"""

import platform
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

# torch gives float32 products to MKL; the operator that its compiler writes into models gives them to oneDNN.
_ONEDNN = (
    getattr(torch.ops.mkldnn, "_linear_pointwise", None)
    if torch.backends.mkldnn.is_available() and platform.machine() in ("x86_64", "AMD64")
    else None
)


FEW_ROWS = 128  # below, a call of that operator (0.1 ms) costs more than it saves


class Linear(nn.Linear):
    """y = x W^T + b, with torch's parameters and initialisation. shape: (*N, I) -> (*N, O)"""

    def forward(self, x: Tensor) -> Tensor:
        return linear(x, self.weight, self.bias)


def by_torch_alone(model: nn.Module) -> None:
    """Give a model's linear layers torch's own forward, for comparisons that are not of libraries."""
    for module in model.modules():
        if isinstance(module, Linear):
            module.forward = partial(nn.Linear.forward, module)  # type: ignore[method-assign]


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``F.linear``; in float32 on an x86 CPU by oneDNN, but for a few rows without gradient.

    shape: (*N, I), (O, I), (O,) -> (*N, O)
    """
    few = not torch.is_grad_enabled() and x.numel() < FEW_ROWS * x.shape[-1]
    plain = not few and x.device.type == "cpu" and x.dtype == weight.dtype == torch.float32
    if plain and _ONEDNN is not None and not torch.is_autocast_enabled("cpu"):
        return _OneDNNLinear.apply(x, weight, bias)  # type: ignore[no-any-return, no-untyped-call]
    return F.linear(x, weight, bias)


def _onednn(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return _ONEDNN(x, weight, bias, "none", [], "")  # type: ignore[no-any-return, misc]


class _OneDNNLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return _onednn(x, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        rows, gradient = x.reshape(-1, x.shape[-1]), upstream.reshape(-1, upstream.shape[-1])
        of_x, of_weight, of_bias = ctx.needs_input_grad
        return (
            _onednn(gradient, weight.t(), None).view(x.shape) if of_x else None,
            gradient.t() @ rows if of_weight else None,  # MKL is the faster one for this shape
            gradient.sum(dim=0) if of_bias else None,
        )
