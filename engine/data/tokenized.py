"""From a text to its tokens, once: from the cache where it was made before, anew where that is damaged."""

import hashlib
import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from filelock import FileLock
from numpy.typing import NDArray
from tokenizers import Tokenizer

from engine.data.tokenizer import (
    MAX_VOCAB_SIZE,
    MIN_VOCAB_SIZE,
    CorpusError,
    Vocabulary,
    encode,
    parse,
    token_bytes,
    train,
)
from engine.system import files, paths

TINYSHAKESPEARE_SHA256 = "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"
SHIPPED_VOCAB_SIZE = 1024


@dataclass(frozen=True, eq=False)
class Corpus(Vocabulary):
    """One tokenized text; ``ids`` are all its tokens in order, read-only and mapped from disk."""

    id: str
    title: str
    sha256: str
    characters: int
    vocab_size: int
    tokenizer_sha256: str
    ids: NDArray[np.uint16]

    @property
    def tokens(self) -> int:
        return len(self.ids)

    @property
    def train_ids(self) -> NDArray[np.uint16]:
        """The first 90 % of the tokens."""
        return self.ids[: _train_tokens(self.tokens)]

    @property
    def held_out_ids(self) -> NDArray[np.uint16]:
        """The last 10 % of the tokens, never trained on."""
        return self.ids[_train_tokens(self.tokens) :]

    def windows(self, context_length: int) -> int:
        """Return how many whole held-out windows there are; one needs ``context_length + 1`` tokens."""
        return _windows(self.tokens, context_length)


def shipped_vocabulary() -> Vocabulary:
    """Return the tokenizer of Tiny Shakespeare, for which the text itself is not needed."""
    if (tokenizer_json := _kept_tokenizer(_shipped_path(), SHIPPED_VOCAB_SIZE)) is None:
        raise CorpusError(f"{_shipped_path()} is missing or damaged: the file that the lab ships is needed.")
    return Vocabulary(tokenizer_json=tokenizer_json)


def _train_tokens(tokens: int) -> int:
    return tokens * 9 // 10


def _windows(tokens: int, context_length: int) -> int:
    return max(0, tokens - _train_tokens(tokens) - 1) // context_length


def check_sizes(vocab_size: int, context_length: int) -> None:
    if not MIN_VOCAB_SIZE <= vocab_size <= MAX_VOCAB_SIZE:
        raise CorpusError(
            f"The vocabulary size is {vocab_size}: {MIN_VOCAB_SIZE} (the single bytes, always needed) to "
            f"{MAX_VOCAB_SIZE} are allowed."
        )
    if context_length < 1:
        raise CorpusError(f"The context length is {context_length}: 1 or more is allowed.")


def tokenized(corpus_id: str, title: str, data: bytes, vocab_size: int, context_length: int) -> Corpus:
    """Return the corpus of ``data`` (UTF-8), from the cache what is sound there; a refusal keeps nothing."""
    text, sha256 = data.decode(), hashlib.sha256(data).hexdigest()
    stem = f"{sha256[:16]}-{vocab_size}"
    with alone(stem) as cache:
        places = [tokenizer_path := cache / f"{stem}.tokenizer.json"]
        if (sha256, vocab_size) == (TINYSHAKESPEARE_SHA256, SHIPPED_VOCAB_SIZE):
            places.insert(0, _shipped_path())
        kept = next(filter(None, (_kept_tokenizer(place, vocab_size) for place in places)), None)
        tokenizer_json = kept or train(text, vocab_size)
        tokenizer = parse(tokenizer_json)
        tokenizer_sha256 = hashlib.sha256(tokenizer_json.encode()).hexdigest()

        ids_path = cache / f"{stem}-{tokenizer_sha256[:8]}.npy"
        mapped = _kept_ids(ids_path, tokenizer, len(data))
        ids = encode(tokenizer, text) if mapped is None else mapped
        if not _windows(len(ids), context_length):
            raise CorpusError(
                f"The text is too short: its {len(ids):,} tokens hold out no window of {context_length}; "
                f"{10 * context_length + 1:,} or more tokens are needed."
            )
        if kept is None:
            files.write_bytes(tokenizer_path, tokenizer_json.encode())
        if mapped is None:
            np.save(npy := io.BytesIO(), ids)
            files.write_bytes(ids_path, npy.getvalue())
            ids = np.load(ids_path, mmap_mode="r")
    return Corpus(
        corpus_id, title, sha256, len(text), vocab_size, tokenizer_sha256, ids, tokenizer_json=tokenizer_json
    )


def _shipped_path() -> Path:
    return paths.SHIPPED_DATA / "tokenizer-tinyshakespeare.json"


def _kept_tokenizer(path: Path, vocab_size: int) -> str | None:
    """Return the tokenizer at ``path`` if it is one of this size, else None: it is trained again."""
    try:
        tokenizer_json = path.read_text("utf-8")
        return tokenizer_json if len(token_bytes(parse(tokenizer_json))) == vocab_size else None
    except Exception:  # tokenizers raises no narrower class
        return None


def _kept_ids(path: Path, tokenizer: Tokenizer, size: int) -> NDArray[np.uint16] | None:
    """Return the ids at ``path`` if they stand for exactly ``size`` bytes, else None: they are made again."""
    try:
        ids: NDArray[np.uint16] = np.load(path, mmap_mode="r")
        lengths = np.array([len(token) for token in token_bytes(tokenizer)])
        sound = ids.dtype == np.uint16 and ids.ndim == 1 and lengths[ids].sum() == size
        return ids if sound else None
    except (OSError, ValueError, EOFError, IndexError):
        return None


@contextmanager
def alone(name: str) -> Iterator[Path]:
    """Yield the cache folder while no other process works on ``name``."""
    cache = paths.DATA / "cache"
    cache.mkdir(parents=True, exist_ok=True)
    with FileLock(cache / f"{name}.lock"):
        yield cache
