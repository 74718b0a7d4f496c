"""Activation patching: how much of an answer comes back when one value of another sentence's run is put in.

Shapes: N pairs, T position, H heads, L blocks, R boundaries of the residual stream.
Source: Meng et al. 2022, "Locating and Editing Factual Associations in GPT", section 2; Wang et al. 2023.
"""

from collections.abc import Sequence

import torch

from engine.circuits.capture import Captured, boundaries, run, shape_of
from engine.circuits.interventions import Intervention, PatchFeedForward, PatchHeads, PatchResidual
from engine.circuits.results import Patched
from engine.circuits.scoring import Questions, difference
from engine.circuits.trials import logits_of_each
from engine.models.transformer import Transformer

SMALLEST = 1e-4  # a smaller change of the logit difference is rounding: shares of it would be noise


class Pairs:
    """Clean sentences and corrupted ones that differ in one word, and the runs of both.

    restored = (patched - corrupted) / (clean - corrupted), each a mean logit difference over the pairs
    Raises ValueError: when a pair does not differ in exactly one position that the decision sees, or the
        model answers both alike, so that there is nothing to restore.
    """

    def __init__(self, model: Transformer, clean: Questions, corrupted_ids: torch.Tensor) -> None:
        if corrupted_ids.shape != clean.ids.shape:
            raise ValueError(
                f"the corrupted sentences have shape {tuple(corrupted_ids.shape)}, "
                f"the clean ones {tuple(clean.ids.shape)}; allowed: the same."
            )
        seen = slice(clean.decision + 1)
        words = (corrupted_ids != clean.ids)[:, seen].sum(dim=1)
        if (words != 1).any():
            odd = int((words != 1).nonzero()[0])
            raise ValueError(
                f"pair {odd} differs in {int(words[odd])} words up to the decision; allowed: exactly 1."
            )
        self.model, self.questions, self.corrupted_ids = model, clean, corrupted_ids
        self.source: Captured = run(model, clean.ids)
        self.clean = self._difference(self.source.logits[:, clean.decision])
        self.changed: Captured = run(model, corrupted_ids)
        self.corrupted = self._difference(self.changed.logits[:, clean.decision])
        if abs(self.clean - self.corrupted) < SMALLEST:
            raise ValueError(
                f"the logit difference is {self.clean:.6f} clean and {self.corrupted:.6f} corrupted; "
                f"needed: at least {SMALLEST:g} apart, or there is nothing to restore."
            )

    def restored(self, *cases: Sequence[Intervention]) -> list[float]:
        """The share that each of these sets of patches restores in the corrupted run."""
        logits = logits_of_each(self.model, self.changed, (self.questions.decision,), cases)[:, :, 0]
        return [(self._difference(one) - self.corrupted) / (self.clean - self.corrupted) for one in logits]

    def _difference(self, logits: torch.Tensor) -> float:
        found = difference(logits, self.questions.answers, self.questions.others)
        return found.double().mean().item()


def patched(pairs: Pairs) -> Patched:
    """Every single patch: the stream at each boundary and position, each head, each feed-forward.

    Positions behind the decision restore nothing and are left out, where the model has a causal mask.
    """
    model, source = pairs.model, pairs.source
    shape = shape_of(model, source.ids)
    length = pairs.questions.decision + 1 if shape.causal else shape.length
    return Patched(
        boundaries=list(boundaries(model)),
        residual=[
            pairs.restored(*([PatchResidual(boundary, (place,), stream)] for place in range(length)))
            for boundary, stream in enumerate(source.stream)
        ],
        heads=[
            pairs.restored(
                *([PatchHeads(number, frozenset([head]), block.heads)] for head in range(shape.heads))
            )
            for number, block in enumerate(source.blocks)
        ],
        feed_forwards=[
            share
            for number, block in enumerate(source.blocks)
            if block.feed_forward is not None
            for share in pairs.restored([PatchFeedForward(number, block.feed_forward)])
        ],
        clean=pairs.clean,
        corrupted=pairs.corrupted,
    )
