"""Trained weights on windows longer than those of training: what these bring, and what the rows there hold.

Shapes: N windows, T context length.
"""

import copy
import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.models.transformer import Transformer
from engine.probes.results import positions as results
from engine.probes.schemes import LENGTHS, LONGEST, TRAINED, losses_by_position, position_table
from engine.training.evaluation import TOKENS_A_BATCH, mean_loss, perplexity, windows

COMPARED = LENGTHS[:3]  # the last is the one that the chapter compares at
STRIDE = 32  # tokens that a sliding window scores; each has as many before it, or more
SCALE = 0.02  # GPT-2's standard deviation of a fresh row, where torch's is 1

# What stands in the rows that were never trained, made of the whole table. shape: (rows, D) -> (rows - T, D)
ROWS: dict[str, Callable[[Tensor], Tensor]] = {
    "random": lambda table: table[TRAINED:],
    "scaled": lambda table: SCALE * table[TRAINED:],
    "zero": lambda table: torch.zeros_like(table[TRAINED:]),
    "last": lambda table: table[TRAINED - 1].expand_as(table[TRAINED:]),
}


def early_tokens(model: Transformer, ids: Tensor) -> results.EarlyTokens:
    """What is left of a longer window's gain once no token that is scored stands early in its window.

    ids: held-out tokens, shape (N,).
    Source: Press et al. 2021, "Shortformer", and 2022, "Train Short, Test Long", appendix B: the early token
    curse, and the evaluation by a sliding window.
    """
    short = losses_by_position(model, windows(ids, TRAINED))
    start, late = short[:STRIDE], short[STRIDE:].mean()
    rows, first = [], Tensor()
    for length in COMPARED:
        whole = short if length == TRAINED else losses_by_position(model, windows(ids, length))
        sliding = sliding_losses(model, ids, length)
        first = sliding if length == TRAINED else first
        change = sliding - first
        rows.append(
            results.AtLength(
                length=length,
                whole=_exp(whole.mean()),
                predicted=_exp((start.sum() + (length - STRIDE) * late) / length),
                sliding=_exp(sliding.mean()),
                change_nats=change.mean().item(),
                error_nats=(change.std() / math.sqrt(len(change))).item(),
            )
        )
    return results.EarlyTokens(rows, _exp(short[0]), _exp(late), STRIDE, STRIDE * len(first))


@torch.inference_mode()
def sliding_losses(model: Transformer, ids: Tensor, length: int) -> Tensor:
    """Cross-entropy in nats of the last 32 tokens of a sliding window, a mean a window.

    The tokens that are scored are the same for every length of ``COMPARED``. shape: (N,) -> (windows,)
    """
    ends = torch.arange(max(COMPARED), len(ids), STRIDE).unsqueeze(1)
    losses = []
    for part in ids[ends + torch.arange(-length, 1)].split(max(1, TOKENS_A_BATCH // length)):
        last = model.residual(part[:, :-1])[:, -STRIDE:]
        logits = model.unembedding(model.final_norm(last)).transpose(1, 2)
        losses.append(F.cross_entropy(logits, part[:, -STRIDE:], reduction="none").double().mean(dim=1))
    return torch.cat(losses)


@torch.no_grad()
def other_rows(model: Transformer, ids: Tensor) -> results.OtherRows:
    """A learned table on longer windows, with something else in the rows that were never trained.

    Every other window is read. ids: held-out tokens, shape (N,).
    """
    batches = {length: windows(ids, length)[::2] for length in LENGTHS}
    short = batches.pop(TRAINED)
    rows = []
    for way, made in ROWS.items():
        changed = copy.deepcopy(model)
        table = position_table(changed)
        table[TRAINED:] = made(table.clone())
        rows += [
            results.WithRows(way, length, perplexity(mean_loss(changed, batch)))
            for length, batch in batches.items()
        ]
    bare = copy.deepcopy(model)
    position_table(bare).zero_()
    inside, none_inside = (perplexity(mean_loss(one, short)) for one in (model, bare))
    return results.OtherRows(rows, inside, none_inside, len(batches[LONGEST]), SCALE)


def _exp(loss: Tensor) -> float:
    return loss.exp().item()
