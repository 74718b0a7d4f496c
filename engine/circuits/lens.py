"""The logit lens: what the model would answer if its stream ended here.

Shapes: R boundaries of the residual stream, B batch, V vocabulary.
Source: nostalgebraist 2020, "interpreting GPT: the logit lens".
"""

import torch
from torch import Tensor

from engine.circuits.capture import Captured, boundaries, run
from engine.circuits.results import Layer
from engine.circuits.scoring import outcomes_of
from engine.circuits.trials import Trials
from engine.models.transformer import Transformer


@torch.no_grad()
def logits(model: Transformer, captured: Captured, position: int) -> Tensor:
    """Final norm and unembedding of the stream at every boundary; the last are the model's own logits.

    shape: -> (R, B, V)
    Raises ValueError: when the run has no such position.
    """
    length = captured.ids.shape[1]
    if not 0 <= position < length:
        raise ValueError(f"the position is {position}; allowed: 0 to {length - 1}.")
    streams = torch.stack([stream[:, position] for stream in captured.stream])
    return model.unembedding(model.final_norm(streams))  # type: ignore[no-any-return]


def layers(trials: Trials) -> list[Layer]:
    """The score at every boundary of the stream at the decision."""
    model, questions = trials.model, trials.questions
    parts = [logits(model, captured, questions.decision) for _, captured in trials.captured]
    return [
        Layer(name, outcomes_of(at, questions.answers, questions.others).score())
        for name, at in zip(boundaries(model), torch.cat(parts, dim=1), strict=True)
    ]


def likeliest(model: Transformer, ids: Tensor, position: int, count: int) -> tuple[Tensor, Tensor]:
    """Probabilities and ids of the likeliest tokens at every boundary; fewer in a smaller vocabulary.

    shape: (B, T) token ids -> (B, R, count) each, the likeliest first
    Raises ValueError: when there is no such position.
    """
    shares = logits(model, run(model, ids), position).softmax(dim=-1).transpose(0, 1)
    best = shares.topk(min(count, shares.shape[-1]), dim=-1)
    return best.values, best.indices
