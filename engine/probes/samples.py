"""What trained models write after the same words."""

from pathlib import Path

from engine.chapter.experiments import MAX_SEED
from engine.data import corpus
from engine.probes.models import for_the_reader, trained
from engine.probes.results.samples import Written
from engine.system.errors import InvalidInput
from engine.system.numbers import check_whole
from engine.training.generation import check_temperature, continued

TOKENS = 60
MAX_TOKENS, MAX_MODELS = 500, 40


def samples(
    weights: list[Path], prompt: str, tokens: int = TOKENS, temperature: float = 1.0, seed: int = 0
) -> list[Written]:
    """The prompt and what each model adds to it, or what is wrong with that model.

    weights: checkpoints trained on Tiny Shakespeare. Every model draws from a generator of the same seed.
    Raises InvalidInput: when the prompt holds no token, or a number is out of range.
    """
    with for_the_reader():
        check_temperature(temperature)
    for name, value, low, high in (
        ("tokens", tokens, 1, MAX_TOKENS),
        ("models", len(weights), 1, MAX_MODELS),
        ("seed", seed, 0, MAX_SEED),
    ):
        check_whole(name, value, low, high)
    vocabulary = corpus.shipped_vocabulary()
    with for_the_reader():
        ids = vocabulary.encode(prompt) if prompt.strip() else []
    if not ids:
        raise InvalidInput("Type at least one word.")
    found = []
    for path in weights:
        try:
            model = trained(path)
            with for_the_reader():
                text = continued(model, vocabulary, ids, tokens=tokens, temperature=temperature, seed=seed)
            found.append(Written(text, ""))
        except InvalidInput as error:
            found.append(Written("", str(error)))
    return found
