"""Texts to train on: where they come from, their tokenizer, the split into training and held-out tokens.

Three kinds of corpus, by id: ``tinyshakespeare`` (the chapter's, fetched once), ``python-reference`` (the
help topics inside every Python, no network needed) and ``upload-<first 16 hex digits of the sha256>``.
A text is tokenized once; later loads map the token ids from ``data/cache``. Imports no torch.
"""

import hashlib
import importlib.util
import json
import re
import secrets
import time
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
from engine.system import paths
from engine.system.errors import Unavailable

__all__ = [
    "Corpus",
    "CorpusError",
    "CorpusUnavailable",
    "Vocabulary",
    "add_upload",
    "default_corpus_id",
    "is_present",
    "listing",
    "load",
    "present_corpus_id",
    "sha256_of",
    "shipped_vocabulary",
]

TINYSHAKESPEARE = "tinyshakespeare"
PYTHON_REFERENCE = "python-reference"
TITLES = {TINYSHAKESPEARE: "Tiny Shakespeare", PYTHON_REFERENCE: "Python reference"}

TINYSHAKESPEARE_URL = (
    "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt"
)
TINYSHAKESPEARE_SHA256 = "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"
CONNECT_TIMEOUT_S = 10.0
RETRY_AFTER_S = 600.0  # a failed download is not tried again sooner, else every page would wait for it

# The chapter counts 459,760 tokens in Tiny Shakespeare, we count 459,792: 32 tokens of tie-breaking between
# equally frequent merges. To print beside ours, never in its place.
CHAPTER_TOKENS = 459_760

SHIPPED_VOCAB_SIZE = 1024
MAX_UPLOAD_BYTES = 20 * 1024 * 1024  # 20 MB as Streamlit's maxUploadSize counts them


class CorpusUnavailable(CorpusError, Unavailable):
    """Tiny Shakespeare is neither on this machine nor to be had from the network."""


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

    @property
    def characters_per_token(self) -> float:
        return self.characters / self.tokens

    def windows(self, context_length: int) -> int:
        """Return how many whole held-out windows there are; one needs ``context_length + 1`` tokens."""
        return _windows(self.tokens, context_length)


@contextmanager
def _disk_errors_in_a_sentence() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        needed = "readable files in a writable folder with free space are needed"
        raise CorpusError(f"The data folder {paths.DATA} failed ({error}): {needed}.") from error


@_disk_errors_in_a_sentence()
def load(corpus_id: str = TINYSHAKESPEARE, vocab_size: int = 1024, context_length: int = 128) -> Corpus:
    """Return a tokenized corpus, from the cache where it was tokenized before.

    Raises CorpusError: when the id or a size is not allowed, or the text does not suffice for the sizes.
    Raises CorpusUnavailable: when Tiny Shakespeare cannot be had.
    """
    _check_sizes(vocab_size, context_length)
    title, data = _source(corpus_id)
    return _tokenize(corpus_id, title, data, vocab_size, context_length)


@_disk_errors_in_a_sentence()
def add_upload(data: bytes, file_name: str, vocab_size: int = 1024, context_length: int = 128) -> Corpus:
    """Check, tokenize and keep a text that a person brought; nothing is kept of a refused one.

    A byte-order mark is dropped, carriage returns stay. ``file_name`` is only ever a title, never a path.
    Raises CorpusError: when it is empty, above 20 MB, not UTF-8 text, or too small for the sizes asked.
    """
    _check_sizes(vocab_size, context_length)
    if len(data) > MAX_UPLOAD_BYTES:
        raise CorpusError(
            f"The file has {len(data):,} bytes: at most {MAX_UPLOAD_BYTES:,} (20 MB) are allowed."
        )
    if (offset := data.find(0)) >= 0:
        raise CorpusError(
            f"The file is binary (byte 0x00 at offset {offset}): only plain text in UTF-8 is allowed."
        )
    try:
        data = data.decode().removeprefix("\ufeff").encode()
    except UnicodeDecodeError as error:
        got = f"byte 0x{data[error.start]:02x} at offset {error.start}"
        raise CorpusError(f"The file is not UTF-8 ({got}): only plain text in UTF-8 is allowed.") from error
    if not data:
        raise CorpusError("The file is empty: a plain text in UTF-8 is needed.")

    corpus_id = f"upload-{hashlib.sha256(data).hexdigest()[:16]}"
    title = file_name[:80].encode(errors="replace").decode() or corpus_id
    corpus = _tokenize(corpus_id, title, data, vocab_size, context_length)
    path = _upload_path(corpus_id)
    path.parent.mkdir(exist_ok=True)
    _write(path.with_suffix(".json"), json.dumps({"title": title}).encode())
    _write(path, data)  # last: a text is there once this file is
    return corpus


@_disk_errors_in_a_sentence()
def sha256_of(corpus_id: str) -> str:
    """Return the sha256 of a corpus' text without tokenizing it. Raises CorpusError: as ``load``."""
    return hashlib.sha256(_source(corpus_id)[1]).hexdigest()


def shipped_vocabulary() -> Vocabulary:
    """Return the tokenizer of Tiny Shakespeare, for which the text itself is not needed."""
    if (tokenizer_json := _kept_tokenizer(_shipped_path(), SHIPPED_VOCAB_SIZE)) is None:
        raise CorpusError(f"{_shipped_path()} is missing or damaged: the file that the lab ships is needed.")
    return Vocabulary(tokenizer_json=tokenizer_json)


def default_corpus_id() -> tuple[str, str | None]:
    """Return the corpus to begin with and, where it is not the chapter's, a sentence that says why."""
    try:
        with _disk_errors_in_a_sentence():
            _tinyshakespeare()
    except CorpusError as error:
        return PYTHON_REFERENCE, str(error)
    return TINYSHAKESPEARE, None


def present_corpus_id() -> tuple[str, str | None]:
    """As ``default_corpus_id``, without ever waiting for the network: for pages."""
    if is_present(TINYSHAKESPEARE):
        return default_corpus_id()
    return PYTHON_REFERENCE, (
        f"Tiny Shakespeare is not on this machine yet; the lab fetches it at each start. Without a network, "
        f"place {TINYSHAKESPEARE_URL} at {_tinyshakespeare_path()}. Until then: Python's own reference text."
    )


def is_present(corpus_id: str) -> bool:
    """Return whether the corpus can be loaded without the network."""
    if corpus_id == PYTHON_REFERENCE:
        return importlib.util.find_spec("pydoc_data") is not None
    try:
        path = _tinyshakespeare_path() if corpus_id == TINYSHAKESPEARE else _upload_path(corpus_id)
    except CorpusError:
        return False
    return path.is_file()


def listing() -> list[tuple[str, str]]:
    """Return (id, title) of every corpus that can be loaded without the network; uploads last, by title."""
    uploads = [f"upload-{file.stem}" for file in (paths.DATA / "uploads").glob("*.txt")]
    titled = sorted((_upload_title(i), i) for i in uploads if is_present(i))
    return [(i, title) for i, title in TITLES.items() if is_present(i)] + [(i, title) for title, i in titled]


def _train_tokens(tokens: int) -> int:
    return tokens * 9 // 10


def _windows(tokens: int, context_length: int) -> int:
    return max(0, tokens - _train_tokens(tokens) - 1) // context_length


def _check_sizes(vocab_size: int, context_length: int) -> None:
    if not MIN_VOCAB_SIZE <= vocab_size <= MAX_VOCAB_SIZE:
        raise CorpusError(
            f"The vocabulary size is {vocab_size}: {MIN_VOCAB_SIZE} (the single bytes, always needed) to "
            f"{MAX_VOCAB_SIZE} are allowed."
        )
    if context_length < 1:
        raise CorpusError(f"The context length is {context_length}: 1 or more is allowed.")


# Where the texts come from.


def _source(corpus_id: str) -> tuple[str, bytes]:
    """Return the title and the checked bytes of a corpus."""
    if corpus_id == TINYSHAKESPEARE:
        return TITLES[corpus_id], _tinyshakespeare()
    if corpus_id == PYTHON_REFERENCE:
        return TITLES[corpus_id], _python_reference()
    return _upload(corpus_id)


def _tinyshakespeare_path() -> Path:
    return paths.DATA / "tinyshakespeare.txt"


def _tinyshakespeare() -> bytes:
    path = _tinyshakespeare_path()
    if not path.is_file():
        with _alone(TINYSHAKESPEARE):
            if not path.is_file():  # another process may have fetched it while this one waited
                _fetch(path)
    data = path.read_bytes()
    if (got := hashlib.sha256(data).hexdigest()) != TINYSHAKESPEARE_SHA256:
        raise CorpusError(
            f"{path} is not Tiny Shakespeare: its sha256 is {got}, expected is {TINYSHAKESPEARE_SHA256}; "
            "remove it or put the right file in its place."
        )
    return data


_last_failure: tuple[float, str] | None = None  # when (monotonic clock) and why the download failed


def _fetch(path: Path) -> None:
    """Download to ``path``; pooch moves the file there in one step, once its checksum is right."""
    global _last_failure
    import pooch  # here, because its import takes longer than all the others and is needed once

    if _last_failure is None or time.monotonic() - _last_failure[0] > RETRY_AFTER_S:
        pooch.get_logger().setLevel("ERROR")
        get = pooch.HTTPDownloader(timeout=CONNECT_TIMEOUT_S)
        try:
            pooch.retrieve(
                TINYSHAKESPEARE_URL, TINYSHAKESPEARE_SHA256, path.name, path.parent, downloader=get
            )
            return
        except Exception as error:  # whatever went wrong, the remedy is the same
            wrong = isinstance(error, ValueError) and "does not match" in str(error)
            _last_failure = time.monotonic(), "wrong checksum" if wrong else type(error).__name__
    raise CorpusUnavailable(
        f"Tiny Shakespeare could not be fetched from {TINYSHAKESPEARE_URL} ({_last_failure[1]}): place that "
        f"file by hand at {path}; until then the lab goes on with {PYTHON_REFERENCE}."
    )


def _python_reference() -> bytes:
    """Return Python's own help topics, one after the other in the order of their names."""
    try:
        from pydoc_data.topics import topics
    except ImportError as error:
        raise CorpusError(
            f"This Python has no pydoc_data: {PYTHON_REFERENCE} needs a complete Python."
        ) from error
    return "\n\n".join(topics[name] for name in sorted(topics)).encode()


def _upload_path(corpus_id: str) -> Path:
    if not re.fullmatch(r"upload-[0-9a-f]{16}", corpus_id):
        allowed = f"{TINYSHAKESPEARE}, {PYTHON_REFERENCE} and upload-<16 hex digits> are allowed"
        raise CorpusError(f"No corpus is called {corpus_id[:80]!r}: {allowed}.")
    return paths.DATA / "uploads" / f"{corpus_id.removeprefix('upload-')}.txt"


def _upload(corpus_id: str) -> tuple[str, bytes]:
    path = _upload_path(corpus_id)
    if not path.is_file():
        raise CorpusError(f"{corpus_id} is not on this machine: upload the text or choose another corpus.")
    data = path.read_bytes()
    if not (got := hashlib.sha256(data).hexdigest()).startswith(path.stem):
        raise CorpusError(f"{path} has changed (sha256 {got}, not {path.stem}...): upload the text again.")
    return _upload_title(corpus_id), data


def _upload_title(corpus_id: str) -> str:
    try:
        return str(json.loads(_upload_path(corpus_id).with_suffix(".json").read_bytes())["title"])
    except (OSError, ValueError, KeyError, TypeError):  # a lost title does not lose the text
        return corpus_id


# From a text to its tokens, once.


def _tokenize(corpus_id: str, title: str, data: bytes, vocab_size: int, context_length: int) -> Corpus:
    """Return the corpus of ``data`` (UTF-8), from the cache what is sound there; a refusal keeps nothing."""
    text, sha256 = data.decode(), hashlib.sha256(data).hexdigest()
    stem = f"{sha256[:16]}-{vocab_size}"
    with _alone(stem) as cache:
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
            _write(tokenizer_path, tokenizer_json.encode())
        if mapped is None:
            _write(ids_path, ids)
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


# The cache: files are written whole or not at all, by one process at a time.


@contextmanager
def _alone(name: str) -> Iterator[Path]:
    """Yield the cache folder while no other process works on ``name``."""
    cache = paths.DATA / "cache"
    cache.mkdir(parents=True, exist_ok=True)
    with FileLock(cache / f"{name}.lock"):
        yield cache


def _write(path: Path, content: bytes | NDArray[np.uint16]) -> None:
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        with temporary.open("wb") as file:
            if isinstance(content, bytes):
                file.write(content)
            else:
                np.save(file, content)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
