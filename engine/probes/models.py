"""Models that probes look into: of a checkpoint or fresh, a few of them kept, on the CPU, in eval mode."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

import torch
from torch import Tensor

from engine.chapter.experiments import MAX_SEED
from engine.data import corpus
from engine.models.config import ModelConfig
from engine.models.transformer import Transformer
from engine.system.errors import InvalidInput, LabError
from engine.system.numbers import check_whole
from engine.training import checkpoint


@contextmanager
def for_the_reader() -> Iterator[None]:
    """Around what checks a reader's own choice, or reads a file: what it refuses is told to the reader."""
    try:
        yield
    except LabError:
        raise
    except (ValueError, OSError) as error:
        raise InvalidInput(str(error)) from error


def check_seed(seed: int) -> None:
    """Raises InvalidInput: when the seed is out of range."""
    check_whole("the seed", seed, 0, MAX_SEED)


KEPT = 16  # models of a few megabytes each


def trained(weights: Path) -> Transformer:
    """The model of a checkpoint; kept with the digest of its bytes, so that a new file is a new model.

    Raises InvalidInput: when it cannot be read, or is no whole checkpoint.
    """
    with for_the_reader():
        return _loaded(weights, hashlib.sha256(weights.read_bytes()).hexdigest())


@lru_cache(maxsize=KEPT)
def _loaded(weights: Path, _digest: str) -> Transformer:
    return checkpoint.load_model(weights)[0]


@lru_cache(maxsize=KEPT)
def untrained(config: ModelConfig, seed: int = 0) -> Transformer:
    """The model that training with a seed begins with."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Transformer(config).eval()


def held_out(text: corpus.Corpus) -> Tensor:
    """The tokens of a text that no model trained on. shape: -> (N,)"""
    return torch.from_numpy(text.held_out_ids.astype("int64"))


def token_ids(vocabulary: corpus.Vocabulary, text: str, limit: int, least: int = 1) -> list[int]:
    """A reader's text with a leading space, as tokens are inside a text.

    Raises InvalidInput: when it holds fewer tokens than ``least`` or more than ``limit``.
    """
    with for_the_reader():
        ids = vocabulary.encode(f" {text.strip()}") if text.strip() else []
    if not ids:
        raise InvalidInput("Type at least one word.")
    if not least <= len(ids) <= limit:
        raise InvalidInput(f"The text has {len(ids)} tokens; allowed: {least} to {limit}.")
    return ids
