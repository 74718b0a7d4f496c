"""Texts to train on: where they come from, their tokenizer, the split into training and held-out tokens.

Three kinds of corpus, by id: ``tinyshakespeare`` (the chapter's, fetched once), ``python-reference`` (the
help topics inside every Python, no network needed) and ``upload-<first 16 hex digits of the sha256>``.
A text is tokenized once; later loads map the token ids from ``data/cache``. Imports no torch.
"""

import hashlib
import importlib.util
import json
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from engine.data.tokenized import (
    TINYSHAKESPEARE_SHA256,
    Corpus,
    alone,
    check_sizes,
    shipped_vocabulary,
    tokenized,
)
from engine.data.tokenizer import CorpusError, Vocabulary
from engine.system import files, paths
from engine.system.errors import Unavailable

# What is defined elsewhere and read from here.
__all__ = ["TINYSHAKESPEARE_SHA256", "Corpus", "CorpusError", "Vocabulary", "shipped_vocabulary"]

TINYSHAKESPEARE = "tinyshakespeare"
PYTHON_REFERENCE = "python-reference"
TITLES = {TINYSHAKESPEARE: "Tiny Shakespeare", PYTHON_REFERENCE: "Python reference"}

TINYSHAKESPEARE_URL = (
    "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt"
)
CONNECT_TIMEOUT_S = 10.0
RETRY_AFTER_S = 600.0  # a failed download is not tried again sooner, else every page would wait for it

# The chapter counts 459,760 tokens in Tiny Shakespeare, we count 459,792: 32 tokens of tie-breaking between
# equally frequent merges. To print beside ours, never in its place.
CHAPTER_TOKENS = 459_760

MAX_UPLOAD_BYTES = 20 * 1024 * 1024  # 20 MB as Streamlit's maxUploadSize counts them


class CorpusUnavailable(CorpusError, Unavailable):
    """Tiny Shakespeare is neither on this machine nor to be had from the network."""


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
    check_sizes(vocab_size, context_length)
    title, data = _source(corpus_id)
    return tokenized(corpus_id, title, data, vocab_size, context_length)


@_disk_errors_in_a_sentence()
def add_upload(data: bytes, file_name: str, vocab_size: int = 1024, context_length: int = 128) -> Corpus:
    """Check, tokenize and keep a text that a person brought; nothing is kept of a refused one.

    A byte-order mark is dropped, carriage returns stay. ``file_name`` is only ever a title, never a path.
    Raises CorpusError: when it is empty, above 20 MB, not UTF-8 text, or too small for the sizes asked.
    """
    check_sizes(vocab_size, context_length)
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
    corpus = tokenized(corpus_id, title, data, vocab_size, context_length)
    path = _upload_path(corpus_id)
    with alone(corpus_id):
        path.parent.mkdir(exist_ok=True)
        files.write_json(path.with_suffix(".json"), {"title": title})
        files.write_bytes(path, data)  # last: a text is there once this file is
    return corpus


@_disk_errors_in_a_sentence()
def sha256_of(corpus_id: str) -> str:
    """Return the sha256 of a corpus' text without tokenizing it. Raises CorpusError: as ``load``."""
    return hashlib.sha256(_source(corpus_id)[1]).hexdigest()


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
        with alone(TINYSHAKESPEARE):
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
