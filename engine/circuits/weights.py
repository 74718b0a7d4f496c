"""Mean attention weights over many sentences of one template, split by the kind of sentence.

Shapes: N sentences, T query position, S key position, H heads, L blocks.
"""

import torch
from torch import Tensor

from engine.circuits.trials import Portions


def mean_weights(captured: Portions, labels: Tensor) -> dict[int, Tensor]:
    """Mean weights over the sentences of each label.

    shape: runs of N sentences, (N,) whole numbers -> (L, H, T, S) for each label, in float64
    """
    kinds, of = labels.unique(return_inverse=True)
    member = torch.nn.functional.one_hot(of, len(kinds)).double()
    total: Tensor | float = 0.0
    for rows, ran in captured:
        weights = torch.stack([block.weights for block in ran.blocks]).double()
        total = total + torch.einsum("nc,lnhts->clhts", member[rows], weights)
    means = torch.as_tensor(total) / member.sum(dim=0).view(-1, 1, 1, 1, 1)
    return dict(zip(kinds.tolist(), means, strict=True))


def largest_shift(rows: Tensor) -> Tensor:
    """The largest total variation between two of these rows: 0 all alike, 1 nothing in common.

    shape: (C, ..., S) -> (...)
    """
    apart = (rows[:, None] - rows[None]).abs().sum(dim=-1) / 2
    return apart.flatten(0, 1).amax(dim=0)
