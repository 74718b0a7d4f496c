"""Text from a trained model, one token at a time.

Shapes: T position, V vocabulary.
"""

import math
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from engine.data.tokenizer import Vocabulary
from engine.models.transformer import Transformer
from engine.system.errors import InvalidInput, Unavailable
from engine.system.numbers import check_whole
from engine.training.evaluation import evaluating


def generate(
    model: Transformer,
    ids: Sequence[int],
    *,
    tokens: int,
    temperature: float = 1.0,
    generator: torch.Generator | None = None,
) -> Iterator[int]:
    """Continue a prompt: yields ``tokens`` new token ids, each as soon as it is drawn.

    Everything is checked at the call, before the first token is asked for. An empty prompt is refused: this
    vocabulary has no token that begins a text.

    ids: the prompt; of it and of what was drawn, the model sees the last ``max_positions`` tokens.
    temperature: see ``next_probabilities``.
    generator: a CPU generator, so that every device draws the same; None is torch's own.

    Raises InvalidInput: when the prompt is empty or holds an id outside the vocabulary, or a setting is out
        of range; from the iterator Unavailable when the model's logits are no numbers.
    """
    window = model.config.max_positions
    check_whole("tokens", tokens, 0)
    check_temperature(temperature)
    if not ids:
        raise InvalidInput("the prompt is empty; allowed: at least 1 token to continue from.")
    if wrong := [i for i in ids if not 0 <= i < model.config.vocab_size]:
        raise InvalidInput(
            f"the prompt holds token {wrong[0]}; allowed: a whole number from 0 to "
            f"{model.config.vocab_size - 1:,}."
        )

    def drawn() -> Iterator[int]:
        seen = list(ids[-window:])
        for _ in range(tokens):
            probabilities = next_probabilities(next_logits(model, seen), temperature)
            seen.append(int(torch.multinomial(probabilities, 1, generator=generator)))
            yield seen[-1]
            del seen[:-window]

    return drawn()


def continued(
    model: Transformer,
    vocabulary: Vocabulary,
    ids: Sequence[int],
    *,
    tokens: int,
    temperature: float = 1.0,
    seed: int,
) -> str:
    """The text of a prompt and of what a model adds to it, drawn from a generator of that seed.

    Raises InvalidInput: as ``generate``.
    """
    generator = torch.Generator().manual_seed(seed)
    added = generate(model, ids, tokens=tokens, temperature=temperature, generator=generator)
    return vocabulary.decode([*ids, *added])


@torch.inference_mode()
def next_logits(model: Transformer, ids: Sequence[int]) -> Tensor:
    """Logits of the token that follows, in eval mode, on the CPU in float64. shape: -> (V,)"""
    with evaluating(model):
        device = next(model.parameters()).device
        return model(torch.tensor([list(ids)], device=device))[0, -1].cpu().double()  # type: ignore[no-any-return]


def next_probabilities(logits: Tensor, temperature: float = 1.0) -> Tensor:
    """softmax(logits / temperature), in float64. shape: (V,) -> (V,)

    temperature: 0 puts everything on the largest logit (the first, of equals).

    Raises Unavailable: when the largest logit is no finite number.
    """
    largest = logits.max()
    if not largest.isfinite():
        raise Unavailable(f"the largest logit is {largest.item()}: the model is lost; allowed: numbers.")
    if temperature == 0:
        return torch.zeros_like(logits).index_fill(0, logits.argmax(), 1.0)
    # From 0 downwards, in float64: even the smallest temperature divides without an overflow to NaN.
    return ((logits - largest).double() / temperature).softmax(dim=0)


def check_temperature(temperature: float) -> None:
    """Raises InvalidInput: when it is out of range; the message gives got and allowed."""
    is_number = isinstance(temperature, int | float) and not isinstance(temperature, bool)
    if not is_number or not 0 <= temperature < math.inf:
        raise InvalidInput(f"temperature is {temperature!r}; allowed: a number from 0 up.")
