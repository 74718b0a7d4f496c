"""The loss of training: its gradients are made on the way forward, so the logits are held once and briefly.

Shapes: N tokens, D d_model, V vocabulary.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable


def next_token_loss(hidden: Tensor, unembedding: nn.Linear, targets: Tensor) -> Tensor:
    """Mean cross-entropy in nats of ``unembedding(hidden)``, with the same gradients as torch's own.

    Logits over a vocabulary are the largest tensor of a small model. Here each is read while it is still in
    the cache, and no copy of them waits for the way back.

    shape: (N, D), ids (N,) -> ()
    Source: the idea is that of Liger Kernel's fused linear cross-entropy (Hsu et al. 2024).
    """
    return _LinearCrossEntropy.apply(  # type: ignore[no-any-return, no-untyped-call]
        hidden, unembedding.weight, unembedding.bias, targets
    )


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor) -> Tensor:
        logits = F.linear(x, weight, bias)
        log_p = F.log_softmax(logits, dim=-1, dtype=torch.promote_types(logits.dtype, torch.float32))
        loss = F.nll_loss(log_p, targets)
        gradient = log_p.exp_()  # of the logits: p - 1 at the target, p elsewhere, over N
        gradient.scatter_add_(1, targets.unsqueeze(1), gradient.new_full((len(x), 1), -1.0))
        gradient /= len(x)
        of_weight = (gradient.t() @ x).to(weight.dtype)
        of_bias = None if bias is None else gradient.sum(dim=0).to(bias.dtype)
        ctx.save_for_backward((gradient @ weight).to(x.dtype), of_weight, of_bias)
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        return *(None if made is None else made * upstream for made in ctx.saved_tensors), None
