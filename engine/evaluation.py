"""What a trained model is worth on text it has not seen.

Shapes: B windows, T context_length, V vocabulary.
"""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# A batch of evaluation costs about as much memory as a training step's forward pass.
TOKENS_A_BATCH = 8192


class Stopped(Exception):
    """The evaluation was asked to end before it was complete."""


def windows(ids: Tensor, context_length: int) -> Tensor:
    """All whole non-overlapping windows, each with the token that follows it.

    shape: (N,) -> (B, T + 1)
    Raises ValueError: when the text is shorter than one window.
    """
    count = (len(ids) - 1) // context_length
    if count < 1:
        raise ValueError(f"{len(ids)} tokens; one window needs {context_length + 1}.")
    starts = torch.arange(count, device=ids.device).unsqueeze(1) * context_length
    return ids[starts + torch.arange(context_length + 1, device=ids.device)]


@torch.inference_mode()
def mean_loss(model: nn.Module, batch: Tensor, stop: Callable[[], object] = lambda: None) -> float:
    """Mean cross-entropy in nats over every position of every window, in eval mode.

    shape: (B, T + 1) token ids -> a number
    Raises Stopped: when ``stop()`` is true between two batches.
    """
    training, total = model.training, 0.0
    model.eval()
    try:
        for part in batch.split(max(1, TOKENS_A_BATCH // (batch.shape[1] - 1))):
            if stop():
                raise Stopped
            logits = model(part[:, :-1])
            total += F.cross_entropy(logits.flatten(0, 1), part[:, 1:].flatten(), reduction="sum").item()
    finally:
        model.train(training)
    return total / batch[:, 1:].numel()


def perplexity(loss_nats: float) -> float | None:
    """exp(loss), or None where that is no number a float can hold.

    Source: chapter, "perplexity"; exp overflows above 709.78 nats.
    """
    return math.exp(loss_nats) if loss_nats < 700 else None
