"""What a trained model is worth on text it has not seen.

Shapes: B windows, T context_length, V vocabulary.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from engine.models.mixers import CausalSelfAttention
from engine.models.transformer import Transformer
from engine.system.errors import InvalidInput

# A batch of evaluation costs about as much memory as a training step's forward pass.
TOKENS_A_BATCH = 8192
FROZEN = 0.99  # the weight above which a row no longer learns where to look; the chapter's threshold


class Stopped(Exception):
    """The evaluation was asked to end before it was complete."""


def windows(ids: Tensor, context_length: int) -> Tensor:
    """All whole non-overlapping windows, each with the token that follows it.

    shape: (N,) -> (B, T + 1)
    Raises InvalidInput: when the text is shorter than one window.
    """
    count = (len(ids) - 1) // context_length
    if count < 1:
        raise InvalidInput(f"{len(ids)} tokens; one window needs {context_length + 1}.")
    starts = torch.arange(count, device=ids.device).unsqueeze(1) * context_length
    return ids[starts + torch.arange(context_length + 1, device=ids.device)]


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """The model in eval mode; afterwards in that of before."""
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)


def _outputs(model: nn.Module, rows: Tensor, stop: Callable[[], object]) -> Iterator[tuple[Tensor, Tensor]]:
    """Logits in eval mode and the tokens that follow, batch by batch. shape: (B, T + 1) -> (b, T, V), (b, T)

    Raises Stopped: when ``stop()`` is true between two batches.
    """
    with evaluating(model):
        for part in rows.split(max(1, TOKENS_A_BATCH // (rows.shape[1] - 1))):
            if stop():
                raise Stopped
            yield model(part[:, :-1]), part[:, 1:]


@torch.inference_mode()
def mean_loss(model: nn.Module, batch: Tensor, stop: Callable[[], object] = lambda: None) -> float:
    """Mean cross-entropy in nats over every position of every window, in eval mode.

    shape: (B, T + 1) token ids -> a number
    Raises Stopped: when ``stop()`` is true between two batches.
    """
    total = 0.0
    for logits, following in _outputs(model, batch, stop):
        total += F.cross_entropy(logits.flatten(0, 1), following.flatten(), reduction="sum").item()
    return total / batch[:, 1:].numel()


@torch.inference_mode()
def predictions(
    model: nn.Module, rows: Tensor, stop: Callable[[], object] = lambda: None
) -> tuple[Tensor, Tensor]:
    """The loss in nats at every position, and the token that the model thinks likeliest there, in eval mode.

    shape: (B, T + 1) token ids -> (B, T), (B, T)
    Raises Stopped: when ``stop()`` is true between two batches.
    """
    losses, likeliest = list[Tensor](), list[Tensor]()
    for logits, following in _outputs(model, rows, stop):
        losses.append(F.cross_entropy(logits.transpose(1, 2), following, reduction="none"))
        likeliest.append(logits.argmax(dim=-1))
    return torch.cat(losses), torch.cat(likeliest)


@dataclass(frozen=True)
class AttentionStatistics:
    """What the scores of a model look like on some windows, over all heads and attention layers.

    score_std: standard deviation of the scores that the mask leaves, scaled as the model scales them.
    entropy_nats: mean entropy of a row of weights; exp of it is the number of effective tokens.
    frozen_share: share of rows that put more than 0.99 on one token.
    Rows of the first position are left out: they have nothing to choose.
    """

    score_std: float
    entropy_nats: float
    frozen_share: float


@torch.inference_mode()
def attention_statistics(model: Transformer, ids: Tensor) -> AttentionStatistics | None:
    """Statistics of the attention on these windows, in eval mode; None where there is none to look at.

    shape: (B, T) token ids
    Source: chapter, "why divide by sqrt(d_k)".
    """
    mixers = [module for module in model.modules() if isinstance(module, CausalSelfAttention)]
    T = ids.shape[1]  # noqa: N806 - the field's name
    if not mixers or T < 2:
        return None
    inputs: list[Tensor] = []
    hooks = [
        mixer.register_forward_pre_hook(lambda _, arguments: inputs.append(arguments[0])) for mixer in mixers
    ]
    with evaluating(model):
        try:
            model.residual(ids)
        finally:
            for hook in hooks:
                hook.remove()
    looks = list(zip(mixers, inputs, strict=True))
    seen = torch.ones(T, T, dtype=torch.bool, device=ids.device)
    seen = (seen.tril() if mixers[0].causal else seen)[1:]
    scores = torch.stack([mixer.scores(x)[:, :, 1:] for mixer, x in looks])
    weights = torch.stack([mixer.attention_weights(x)[:, :, 1:] for mixer, x in looks])
    return AttentionStatistics(
        score_std=scores[..., seen].std().item(),
        entropy_nats=-torch.special.xlogy(weights, weights).sum(dim=-1).mean().item(),
        frozen_share=(weights.amax(dim=-1) > FROZEN).float().mean().item(),
    )


def perplexity(loss_nats: float) -> float | None:
    """exp(loss), or None where that is no number a float can hold.

    Source: chapter, "perplexity"; exp overflows above 709.78 nats.
    """
    return math.exp(loss_nats) if loss_nats < 700 else None
