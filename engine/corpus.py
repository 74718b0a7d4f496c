"""Texts to train on: where they come from, their tokenizer, and the split into training and held-out tokens.

Three kinds of corpus, by id: ``tinyshakespeare`` (the chapter's, fetched once), ``python-reference`` (the
help topics inside every Python, which need no network) and ``upload-<first 16 hex digits of its sha256>``.
A text is tokenized once; later loads map the token ids from ``data/cache``. Imports no torch.
"""

import hashlib
import importlib.util
import json
import os
import re
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock
from numpy.typing import NDArray
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from engine import paths

TINYSHAKESPEARE = "tinyshakespeare"
PYTHON_REFERENCE = "python-reference"
TINYSHAKESPEARE_URL = (
    "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt"
)
TINYSHAKESPEARE_SHA256 = "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"
CONNECT_TIMEOUT_S = 10.0
RETRY_AFTER_S = 600.0  # a failed download is not tried again sooner: every page would wait for it

# The chapter counts 459,760 tokens in Tiny Shakespeare. Ours are 459,792: 32 tokens of tie-breaking
# between equally frequent merges. Printed beside ours, never used in place of it.
CHAPTER_TOKENS = 459_760

MIN_VOCAB_SIZE = 256  # every single byte, so that any text can be encoded
MAX_VOCAB_SIZE = 65_536  # what 16 bits hold
MAX_UPLOAD_BYTES = 20 * 1024 * 1024  # 20 MB as Streamlit's maxUploadSize counts them

_TITLES = {TINYSHAKESPEARE: "Tiny Shakespeare", PYTHON_REFERENCE: "Python reference"}
_SHIPPED_VOCAB_SIZE = 1024
_last_failure: tuple[float, str] | None = None  # when (monotonic clock) and why the download failed


class CorpusError(ValueError):
    """A text that cannot be used; the message says in one sentence what was got and what is allowed."""


class CorpusUnavailable(CorpusError):
    """Tiny Shakespeare is neither on this machine nor to be had from the network."""


@dataclass(frozen=True, eq=False)
class Corpus:
    """One tokenized text; ``ids`` (uint16, mapped from disk, read-only) are all its tokens in order."""

    id: str
    title: str
    sha256: str
    characters: int
    vocab_size: int
    tokenizer_sha256: str
    ids: NDArray[np.uint16]
    tokenizer_json: str = field(default="", repr=False)

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
        """Return how many whole windows of ``context_length`` tokens, each with its next token, are held out."""
        return _held_out_windows(self.tokens, context_length)

    @property
    def tokenizer(self) -> Tokenizer:
        return _parse(self.tokenizer_json)

    @cached_property
    def token_bytes(self) -> list[bytes]:
        """The bytes that each token id stands for; a character may be spread over several tokens."""
        return _token_bytes(self.tokenizer)

    def encode(self, text: str) -> list[int]:
        """Return the token ids of ``text``. Raises CorpusError: when half a character (a surrogate) is in it."""
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise CorpusError(
                f"The text holds half a character (U+{ord(text[error.start]):04X}) at position {error.start}: "
                "only whole Unicode characters can be encoded."
            ) from error
        return [token for chunk in _chunks(text) for token in self.tokenizer.encode(chunk).ids]

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of ``ids``; bytes that make no character appear as escapes such as ``\\xf0``."""
        return b"".join(self.token_bytes[i] for i in ids).decode(errors="backslashreplace")

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """Return a label for each single token; a part of a character appears as its bytes, never as U+FFFD."""
        return [self.token_bytes[i].decode(errors="backslashreplace") for i in ids]


def load(corpus_id: str = TINYSHAKESPEARE, vocab_size: int = 1024, context_length: int = 128) -> Corpus:
    """Return a tokenized corpus, from the cache where it was tokenized before.

    Raises CorpusError: when the id or a size is not allowed, or the text does not suffice for the sizes.
    Raises CorpusUnavailable: when Tiny Shakespeare cannot be had.
    """
    _check_sizes(vocab_size, context_length)
    title, data = _source(corpus_id)
    return _tokenize(corpus_id, title, data, vocab_size, context_length)


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
            f"The file is binary or not UTF-8 (byte 0x00 at offset {offset}): only plain text in UTF-8 is allowed."
        )
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise CorpusError(
            f"The file is not UTF-8 (byte 0x{data[error.start]:02x} at offset {error.start}): "
            "save it as plain text in UTF-8."
        ) from error
    data = text.removeprefix("\ufeff").encode()
    if not data:
        raise CorpusError("The file is empty: a text in UTF-8 is needed.")

    corpus_id = f"upload-{hashlib.sha256(data).hexdigest()[:16]}"
    title = file_name[:80].encode(errors="replace").decode() or corpus_id
    corpus = _tokenize(corpus_id, title, data, vocab_size, context_length)
    with _alone_with(_upload_path(corpus_id)) as path:
        _write(path, data)
        _write(path.with_suffix(".json"), json.dumps({"title": title}).encode())
    return corpus


def sha256_of(corpus_id: str) -> str:
    """Return the sha256 of a corpus' text without tokenizing it. Raises CorpusError: as ``load``."""
    return hashlib.sha256(_source(corpus_id)[1]).hexdigest()


def default_corpus_id() -> tuple[str, str | None]:
    """Return the corpus to begin with and, where it is not the chapter's, a sentence that says why."""
    try:
        _tinyshakespeare()
    except CorpusError as error:
        return PYTHON_REFERENCE, str(error)
    return TINYSHAKESPEARE, None


def is_present(corpus_id: str) -> bool:
    """Return whether the corpus can be loaded without the network."""
    if corpus_id == PYTHON_REFERENCE:
        return importlib.util.find_spec("pydoc_data") is not None
    if corpus_id == TINYSHAKESPEARE:
        return _tinyshakespeare_path().is_file()
    try:
        return _upload_path(corpus_id).with_suffix(".json").is_file() and _upload_path(corpus_id).is_file()
    except CorpusError:
        return False


def listing() -> list[tuple[str, str]]:
    """Return (id, title) of every corpus that can be loaded without the network, uploads last and by title."""
    uploads = [f"upload-{file.stem}" for file in (paths.DATA / "uploads").glob("*.json")]
    titled = sorted(((i, _upload_title(i)) for i in uploads if is_present(i)), key=lambda entry: entry[::-1])
    return [(i, title) for i, title in _TITLES.items() if is_present(i)] + titled


def _train_tokens(tokens: int) -> int:
    return tokens * 9 // 10


def _held_out_windows(tokens: int, context_length: int) -> int:
    return max(0, tokens - _train_tokens(tokens) - 1) // context_length


def _check_sizes(vocab_size: int, context_length: int) -> None:
    if not MIN_VOCAB_SIZE <= vocab_size <= MAX_VOCAB_SIZE:
        raise CorpusError(
            f"A vocabulary of {vocab_size} is not possible: {MIN_VOCAB_SIZE} (the single bytes, always needed) "
            f"to {MAX_VOCAB_SIZE} are allowed."
        )
    if context_length < 1:
        raise CorpusError(f"A context length of {context_length} is not possible: 1 or more is allowed.")


# Where the texts come from


def _source(corpus_id: str) -> tuple[str, bytes]:
    """Return the title and the checked bytes of a corpus."""
    if corpus_id == TINYSHAKESPEARE:
        return _TITLES[corpus_id], _tinyshakespeare()
    if corpus_id == PYTHON_REFERENCE:
        return _TITLES[corpus_id], _python_reference()
    return _upload(corpus_id)


def _tinyshakespeare_path() -> Path:
    return paths.DATA / "tinyshakespeare.txt"


def _tinyshakespeare() -> bytes:
    path = _tinyshakespeare_path()
    if not path.is_file():
        with _alone_with(path):
            if not path.is_file():  # another process may have fetched it while this one waited
                _fetch(path)
    data = _read(path)
    if (got := hashlib.sha256(data).hexdigest()) != TINYSHAKESPEARE_SHA256:
        raise CorpusError(
            f"{path} is not Tiny Shakespeare: its sha256 is {got}, expected is {TINYSHAKESPEARE_SHA256}; "
            "remove it or put the right file in its place."
        )
    return data


def _fetch(path: Path) -> None:
    """Download to ``path``; pooch moves the file there only once its checksum is right."""
    global _last_failure
    import pooch  # here, because it takes longer to import than all the rest and is needed once

    if _last_failure is None or time.monotonic() - _last_failure[0] > RETRY_AFTER_S:
        pooch.get_logger().setLevel("ERROR")
        downloader = pooch.HTTPDownloader(timeout=CONNECT_TIMEOUT_S)
        try:
            pooch.retrieve(
                TINYSHAKESPEARE_URL, TINYSHAKESPEARE_SHA256, path.name, path.parent, downloader=downloader
            )
            _last_failure = None
            return
        except Exception as error:
            _last_failure = time.monotonic(), _download_reason(error)
    raise CorpusUnavailable(
        f"Tiny Shakespeare could not be fetched from {TINYSHAKESPEARE_URL} ({_last_failure[1]}): place that "
        f"file by hand at {path}; until then the lab goes on with {PYTHON_REFERENCE}."
    )


def _download_reason(error: Exception) -> str:
    if isinstance(error, ValueError) and "hash" in str(error):
        return "what arrived has a wrong checksum"
    return type(error).__name__


def _python_reference() -> bytes:
    """Return Python's own help topics, one after the other in the order of their names."""
    try:
        from pydoc_data.topics import topics
    except ImportError as error:
        raise CorpusError(
            f"{PYTHON_REFERENCE} is not in this Python (pydoc_data is missing): a complete Python is needed."
        ) from error
    return "\n\n".join(topics[name] for name in sorted(topics)).encode()


def _upload_path(corpus_id: str) -> Path:
    if not re.fullmatch(r"upload-[0-9a-f]{16}", corpus_id):
        raise CorpusError(
            f"No corpus is called {corpus_id[:80]!r}: {TINYSHAKESPEARE}, {PYTHON_REFERENCE} and "
            "upload-<16 hex digits> are allowed."
        )
    return paths.DATA / "uploads" / f"{corpus_id.removeprefix('upload-')}.txt"


def _upload(corpus_id: str) -> tuple[str, bytes]:
    path = _upload_path(corpus_id)
    if not is_present(corpus_id):
        raise CorpusError(
            f"{corpus_id} is not on this machine: only an uploaded text that is kept is allowed."
        )
    data = _read(path)
    if not (got := hashlib.sha256(data).hexdigest()).startswith(path.stem):
        raise CorpusError(
            f"{path} has changed: its sha256 begins with {got[:16]}, expected is {path.stem}; upload it again."
        )
    return _upload_title(corpus_id), data


def _upload_title(corpus_id: str) -> str:
    try:
        return str(json.loads(_upload_path(corpus_id).with_suffix(".json").read_bytes())["title"])
    except (OSError, ValueError, KeyError, TypeError):
        return corpus_id


# Byte-level BPE: 256 single bytes, then merges; no special tokens, so `<|endoftext|>` is plain text


def _tokenize(corpus_id: str, title: str, data: bytes, vocab_size: int, context_length: int) -> Corpus:
    """Return the corpus of ``data`` (UTF-8), from the cache where it is sound; cache only what passes all checks."""
    text = data.decode()
    sha256 = hashlib.sha256(data).hexdigest()
    stem = f"{sha256[:16]}-{vocab_size}"
    with _alone_with(paths.DATA / "cache" / f"{stem}.tokenizer.json") as tokenizer_path:
        shipped = []
        if sha256 == TINYSHAKESPEARE_SHA256 and vocab_size == _SHIPPED_VOCAB_SIZE:
            shipped = [paths.SHIPPED_DATA / "tokenizer-tinyshakespeare.json"]
        kept = _first_sound([*shipped, tokenizer_path], vocab_size)
        tokenizer_json = kept or _train(text, vocab_size)
        tokenizer_sha256 = hashlib.sha256(tokenizer_json.encode()).hexdigest()

        ids_path = tokenizer_path.with_name(f"{stem}-{tokenizer_sha256[:8]}.npy")
        tokenizer = _parse(tokenizer_json)
        if (ids := _sound_ids(ids_path, tokenizer, len(data))) is None:
            chunks = [np.array(tokenizer.encode(chunk).ids, dtype=np.uint16) for chunk in _chunks(text)]
            encoded = np.concatenate(chunks)
            _check_windows(len(encoded), context_length)
            if kept is None:
                _write(tokenizer_path, tokenizer_json.encode())
            _write(ids_path, encoded)
            ids = np.load(ids_path, mmap_mode="r")
        _check_windows(len(ids), context_length)
    return Corpus(corpus_id, title, sha256, len(text), vocab_size, tokenizer_sha256, ids, tokenizer_json)


def _check_windows(tokens: int, context_length: int) -> None:
    if not _held_out_windows(tokens, context_length):
        needed = 10 * context_length + 1
        raise CorpusError(
            f"The text is too short: its {tokens} tokens hold out no window of {context_length}; at least "
            f"{needed} tokens are needed."
        )


def _train(text: str, vocab_size: int) -> str:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=[],
        show_progress=False,
    )
    tokenizer.train_from_iterator(_chunks(text), trainer)
    if (reached := tokenizer.get_vocab_size()) < vocab_size:
        raise CorpusError(
            f"The text cannot fill a vocabulary of {vocab_size}: it reaches {reached}, so {MIN_VOCAB_SIZE} to "
            f"{reached} are allowed."
        )
    return tokenizer.to_str()


@lru_cache(maxsize=4)
def _parse(tokenizer_json: str) -> Tokenizer:
    return Tokenizer.from_str(tokenizer_json)


def _first_sound(files: Sequence[Path], vocab_size: int) -> str | None:
    """Return the first of ``files`` that is a tokenizer of this size."""
    for file in files:
        try:
            tokenizer_json = file.read_text("utf-8")
            tokenizer = _parse(tokenizer_json)
            if tokenizer.get_vocab_size() == vocab_size == len(_token_bytes(tokenizer)):
                return tokenizer_json
        except Exception:  # tokenizers raises bare Exception; whatever is wrong, the remedy is to train anew
            continue
    return None


def _sound_ids(path: Path, tokenizer: Tokenizer, size: int) -> NDArray[np.uint16] | None:
    """Return the cached ids if they stand for exactly ``size`` bytes, else None: the file is made again."""
    try:
        ids = np.load(path, mmap_mode="r")
        lengths = np.array([len(token) for token in _token_bytes(tokenizer)])
        sound = ids.dtype == np.uint16 and ids.ndim == 1 and int(lengths[ids].sum()) == size
    except (OSError, ValueError, EOFError, IndexError):
        return None
    return ids if sound else None


def _token_bytes(tokenizer: Tokenizer) -> list[bytes]:
    """Return the bytes of every token. Source: GPT-2's byte alphabet (Radford et al. 2019, section 2.2).

    The alphabet writes printable bytes as themselves and the others, in order, as characters from 256 on.
    """
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    byte_of = {character: ord(character) for character in alphabet if ord(character) < 256}
    others = (byte for byte in range(256) if chr(byte) not in byte_of)
    byte_of |= dict(zip(alphabet[len(byte_of) :], others, strict=True))
    vocab = tokenizer.get_vocab()
    return [
        bytes(byte_of[character] for character in token) for token in sorted(vocab, key=vocab.__getitem__)
    ]


def _chunks(text: str, size: int = 100_000) -> Iterator[str]:
    """Yield ``text`` in parts of about ``size`` characters whose encodings join to that of the whole.

    The tokenizer first splits a text into words, each with at most one space before it, and runs of
    whitespace. No such piece reaches from a visible character into whitespace, so cuts there change nothing.
    """
    start = 0
    while start < len(text):
        cut = _CUT.search(text, start + size)
        end = cut.start() if cut else len(text)
        yield text[start:end]
        start = end


_CUT = re.compile(r"(?<=\S)[ \n]")


# Files: written whole or not at all, by one process at a time


@contextmanager
def _alone_with(path: Path) -> Iterator[Path]:
    """Make the folder of ``path`` and keep other processes from it; disk errors become a CorpusError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{path}.lock"):
            yield path
    except OSError as error:
        raise CorpusError(
            f"{path.parent} cannot be written ({error.strerror}): free, writable space is needed."
        ) from error


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise CorpusError(f"{path} cannot be read ({error.strerror}): a readable file is needed.") from error


def _write(path: Path, content: bytes | NDArray[Any]) -> None:
    handle, temporary = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as file:
            if isinstance(content, bytes):
                file.write(content)
            else:
                np.save(file, content)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
