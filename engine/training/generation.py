"""Text from a trained model, one token at a time.

Shapes: T position, V vocabulary.
"""

import codecs
import math
from collections.abc import Iterable, Iterator, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.data.tokenizer import Vocabulary
from engine.models.config import ModelConfig
from engine.models.transformer import Transformer
from engine.system.errors import InvalidInput, Unavailable


def generate(
    model: Transformer,
    ids: Sequence[int],
    *,
    tokens: int,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    generator: torch.Generator | None = None,
    context_length: int | None = None,
) -> Iterator[int]:
    """Continue a prompt: yields ``tokens`` new token ids, each as soon as it is drawn.

    Everything is checked at the call, before the first token is asked for. An empty prompt is refused: this
    vocabulary has no token that begins a text.

    ids: the prompt; of it and of what was drawn, the model sees the last ``longest_context`` tokens.
    temperature, top_k, top_p: see ``next_probabilities``.
    generator: a CPU generator, so that every device draws the same; None is torch's own.

    Raises InvalidInput: when the prompt is empty or holds an id outside the vocabulary, or a setting is out
        of range; from the iterator Unavailable when the model's logits are no numbers.
    """
    window = longest_context(model.config, context_length)
    _whole("tokens", tokens, 0)
    check_sampling(temperature, top_k, top_p)
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
            logits = next_logits(model, seen)
            probabilities = next_probabilities(logits, temperature=temperature, top_k=top_k, top_p=top_p)
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


def longest_context(config: ModelConfig, context_length: int | None = None) -> int:
    """How many of the last tokens a model is given: ``context_length``, or the configuration's positions.

    Raises InvalidInput: when ``context_length`` is no whole number above 0, or more than a learned table has.
    """
    table = config.positions == "learned" or (config.mixer == "matrix" and config.n_layer > 0)
    if context_length is None:
        return config.max_positions
    return _whole("context_length", context_length, 1, config.max_positions if table else None)


@torch.inference_mode()
def next_logits(model: Transformer, ids: Sequence[int]) -> Tensor:
    """Logits of the token that follows, in eval mode, on the CPU in float64. shape: -> (V,)"""
    training = model.training
    model.eval()
    try:
        device = next(model.parameters()).device
        return model(torch.tensor([list(ids)], device=device))[0, -1].cpu().double()  # type: ignore[no-any-return]
    finally:
        model.train(training)


def next_probabilities(
    logits: Tensor, *, temperature: float = 1.0, top_k: int | None = None, top_p: float | None = None
) -> Tensor:
    """softmax(logits / temperature) over the tokens that are kept; 0 for the others. shape: (V,) -> (V,)

    temperature: 0 puts everything on the largest logit (the first, of equals).
    top_k: keep the k largest; a k of at least V keeps all.
    top_p: of those, keep the fewest of the largest that hold at least this share, the one that crosses it
        included; 0 keeps one, 1 keeps all.

    Raises InvalidInput: when a setting is out of range, or the largest logit is no finite number.
    Source: Fan et al. 2018 (top k); Holtzman et al. 2020, section 3.1 (top p).
    """
    check_sampling(temperature, top_k, top_p)
    if not logits.max().isfinite():
        raise Unavailable(f"the largest logit is {logits.max().item()}: the model is lost; allowed: numbers.")
    order = logits.sort(descending=True, stable=True)
    if temperature == 0:
        return torch.zeros_like(logits).index_fill(0, order.indices[:1], 1.0)
    # From 0 downwards, in float64: even the smallest temperature divides without an overflow to NaN.
    kept = ((order.values - order.values[0]).double() / temperature)[:top_k].softmax(dim=0)
    if top_p is not None and top_p < 1:
        before = F.pad(kept.cumsum(dim=0)[:-1], (1, 0))
        kept = kept.masked_fill(before >= max(top_p, math.ulp(0.0)), 0.0)
    probabilities = torch.zeros_like(logits, dtype=torch.float64)
    return probabilities.index_copy(0, order.indices[: len(kept)], kept / kept.sum())


def check_sampling(temperature: float, top_k: int | None, top_p: float | None) -> None:
    """Raises InvalidInput: when a setting is out of range; the message gives got and allowed."""
    if not _number(temperature) or not 0 <= temperature < math.inf:
        raise InvalidInput(f"temperature is {temperature!r}; allowed: a number from 0 up.")
    if top_k is not None:
        _whole("top_k", top_k, 1)
    if top_p is not None and not (_number(top_p) and 0 <= top_p <= 1):
        raise InvalidInput(f"top_p is {top_p!r}; allowed: a number from 0 to 1.")


def stream_text(vocabulary: Vocabulary, ids: Iterable[int]) -> Iterator[str]:
    """The text of tokens as they come: joined, it is ``vocabulary.decode`` of them all.

    A part of a character is held back until the rest comes; bytes that make no character appear as escapes
    such as ``\\xf0``. Yields no empty text.
    """
    decoder = codecs.getincrementaldecoder("utf-8")(errors="backslashreplace")
    for i in ids:
        if text := decoder.decode(vocabulary.token_bytes[i]):
            yield text
    if rest := decoder.decode(b"", final=True):
        yield rest


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _whole(name: str, value: object, low: int, high: int | None = None) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and low <= value <= (high or value):
        return value
    to = "up" if high is None else f"to {high:,}"
    raise InvalidInput(f"{name} is {value!r}; allowed: a whole number from {low} {to}.")
