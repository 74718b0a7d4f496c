"""What all live probes share: they run in the app's own process, on the CPU, one thread, one at a time."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

import torch

from engine.data import corpus
from engine.models.config import ModelConfig
from engine.models.transformer import Transformer
from engine.training import checkpoint

_LOCK = threading.Lock()


@contextmanager
def alone() -> Iterator[None]:
    """While this holds no other probe computes, and torch keeps to one thread without gradients."""
    with _LOCK, torch.no_grad():
        torch.set_num_threads(1)
        yield


def trained(weights: Path) -> Transformer:
    """The model of a checkpoint in eval mode; the last two are kept until their files change.

    Raises ValueError, OSError: as ``checkpoint.load_model``.
    """
    return _trained(weights, weights.stat().st_mtime_ns)


@lru_cache(maxsize=2)
def _trained(weights: Path, _changed: int) -> Transformer:
    return checkpoint.load_model(weights)[0]


@lru_cache(maxsize=2)
def untrained(config: ModelConfig) -> Transformer:
    """The model that training with seed 0 begins with, in eval mode."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return Transformer(config).eval()


def token_ids(vocabulary: corpus.Vocabulary, text: str, model: Transformer) -> list[int]:
    """A reader's text with a leading space, as tokens are inside a text.

    Raises ValueError: when it holds no token, or more than the model has positions for.
    """
    ids = vocabulary.encode(f" {text.strip()}") if text.strip() else []
    limit = model.config.max_positions
    if not 1 <= len(ids) <= limit:
        raise ValueError(f"The text has {len(ids)} tokens; allowed: 1 to {limit}.")
    return ids
