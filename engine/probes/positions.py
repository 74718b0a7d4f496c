"""What position schemes do, on the models that a reader names. What there is to measure is in ``schemes``."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from engine.chapter import reference
from engine.chapter.experiments import POSITIONS
from engine.chapter.measurements import CONTEXT
from engine.data import corpus
from engine.models.transformer import Transformer
from engine.probes import beyond, schemes
from engine.probes.models import check_seed, for_the_reader, held_out, token_ids, trained, untrained
from engine.probes.results.positions import (
    AtLength,
    Diagonals,
    EarlyTokens,
    Knowledge,
    Order,
    OtherRows,
    Places,
    Rescaled,
    Table,
    WithRows,
)
from engine.probes.schemes import SCHEMES, TRAINED
from engine.system import files
from engine.system.errors import InvalidInput

QUERY, KEY = " king", " the"  # the two tokens of the diagonals
Weights = dict[str, Path]  # a checkpoint by scheme


def places(weights: Weights, text: str = corpus.TINYSHAKESPEARE) -> Places:
    """How hard each position of a long window is. text: whose held-out part is read."""
    return schemes.places(_models(weights), _held_out(text))


def rescaled(weights: Weights, text: str = corpus.TINYSHAKESPEARE) -> Rescaled:
    """RoPE's trained weights at every length, as they are and with a slower rotation."""
    return schemes.rescaled(_models(weights, ["rope"])["rope"], _held_out(text))


def order(sentence: str, seed: int = 0) -> Order:
    """What a change of order does to fresh weights.

    Raises InvalidInput: when there are fewer than three tokens, or more than a trained window has.
    """
    check_seed(seed)
    vocabulary = corpus.shipped_vocabulary()
    ids = token_ids(vocabulary, sentence, TRAINED, least=3)
    return schemes.order(ids, seed, vocabulary.pieces(ids))


def knowledge(weights: Weights, text: str = corpus.TINYSHAKESPEARE, seed: int = 0) -> Knowledge:
    """What trained models know of order."""
    check_seed(seed)
    return schemes.knowledge(_models(weights), _held_out(text), seed)


def diagonals(weights: Weights) -> Diagonals:
    """One query token and one key token moved through a window; fresh weights where none are named."""
    models = _models(weights)
    models |= {name: untrained(POSITIONS.variant(name).config) for name in SCHEMES if name not in models}
    vocabulary = corpus.shipped_vocabulary()
    query, key = (vocabulary.encode(text)[0] for text in (QUERY, KEY))
    ordered = {name: models[name] for name in SCHEMES}
    return schemes.diagonals(ordered, (query, key), vocabulary.pieces([query, key]))


def table(weights: Weights) -> Table:
    """What training did to the rows of a learned table."""
    return schemes.rows_of_the_table(_models(weights, ["learned"])["learned"], _seed_of(weights["learned"]))


def other_rows(weights: Weights, text: str = corpus.TINYSHAKESPEARE) -> OtherRows:
    """A learned table on longer windows, with something else in the rows that were never trained."""
    return beyond.other_rows(_models(weights, ["learned"])["learned"], _held_out(text))


def early_tokens(weights: Weights, text: str = corpus.TINYSHAKESPEARE) -> EarlyTokens:
    """How much of what ALiBi gains on longer windows is left where no token stands early in its window."""
    return beyond.early_tokens(_models(weights, ["alibi"])["alibi"], _held_out(text))


def measured(measurement_id: str, seed: int) -> Sequence[AtLength | WithRows]:
    """The rows of a seed's shipped weights on the chapter's text, for the ``Measurement`` of that id.

    Raises CorpusError: when that text cannot be had; InvalidInput: when no weights of that seed are shipped.
    """
    torch.set_num_threads(1)
    variant = "alibi" if measurement_id == CONTEXT.id else "learned"
    if (path := reference.weights(POSITIONS.id, variant, seed)) is None:
        shipped = ", ".join(map(str, POSITIONS.shipped_seeds(variant)))
        raise InvalidInput(f"no weights of {variant} are shipped of seed {seed}; allowed: {shipped}.")
    return (early_tokens if variant == "alibi" else other_rows)({variant: path}).rows


def _models(weights: Mapping[str, Path], needed: Sequence[str] = ()) -> dict[str, Transformer]:
    """Raises InvalidInput: when one is missing or of another scheme, or cannot be read."""
    if missing := [name for name in needed if name not in weights]:
        raise InvalidInput(f"no weights of {', '.join(missing)} are given.")
    if odd := [name for name in weights if name not in SCHEMES]:
        raise InvalidInput(f"weights are given of {odd[0]}; allowed: {', '.join(SCHEMES)}.")
    models = {name: trained(path) for name, path in weights.items()}
    for name, model in models.items():
        if model.config.positions != name:
            raise InvalidInput(f"the weights given as {name} are of {model.config.positions}.")
    return models


def _seed_of(path: Path) -> int:
    """The seed that a run's folder names; what is shipped is of seed 0."""
    return int((files.read_json(path.parent / "spec.json") or {}).get("seed", 0))


def _held_out(text: str) -> Tensor:
    with for_the_reader():
        return held_out(corpus.load(text))
