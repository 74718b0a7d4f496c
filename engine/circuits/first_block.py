"""What a changed word moves in block 1: its own key alone, and by the shared denominator every weight.

Shapes: N sentences, T query position, S key position, H heads.
Source: chapter, "Winograd circuits".
"""

import torch
from torch import Tensor

from engine.circuits.capture import run
from engine.circuits.results import Unmoved
from engine.models.transformer import Transformer


def scores_under_change(model: Transformer, ids: Tensor, position_changed: int, decision: int) -> Unmoved:
    """Compare the first block's row at ``decision`` in sentences that differ at ``position_changed`` alone.

    shape: (N, T) token ids
    Raises ValueError: when there are fewer than two sentences, they differ elsewhere, or the decision does
        not lie behind the change.
    """
    length = ids.shape[1]
    if not 0 <= position_changed < decision < length:
        raise ValueError(
            f"the change is at {position_changed} and the decision at {decision}; "
            f"allowed: change before decision, both from 0 to {length - 1}."
        )
    if len(ids) < 2:
        raise ValueError(f"{len(ids)} sentences; needed: at least 2 to compare.")
    moved = (ids != ids[0]).any(dim=0)
    moved[position_changed] = False
    if moved.any():
        places = ", ".join(map(str, moved.nonzero().flatten().tolist()))
        raise ValueError(f"the sentences differ at {places} too; allowed: at {position_changed} alone.")
    captured = run(model, ids)
    if not captured.blocks:
        raise ValueError("the model has no block; needed: at least 1.")
    seen = decision + 1
    scores = captured.blocks[0].scores[:, :, decision, :seen]
    weights = captured.blocks[0].weights[:, :, decision, :seen]
    others = torch.arange(seen, device=ids.device) != position_changed
    # In float64: where the changed key takes nearly all, what is left is too small for float32.
    without = scores[..., others].double().softmax(dim=-1)
    return Unmoved(
        scores=scores.tolist(),
        weights=weights.tolist(),
        score_change=_spread(scores[..., others]),
        weight_change=_spread(without),
        own_scores=scores[..., position_changed].tolist(),
        own_weights=weights[..., position_changed].tolist(),
    )


def _spread(rows: Tensor) -> float:
    """The largest difference between two sentences. shape: (N, H, S)"""
    return (rows.amax(dim=0) - rows.amin(dim=0)).max().item()
