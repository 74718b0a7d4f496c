"""Byte-level BPE: 256 single bytes, then merges; no special tokens, so ``<|endoftext|>`` is plain text.

Imports no torch. Source: Sennrich et al. 2016; Radford et al. 2019 (GPT-2), section 2.2.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from engine.system.errors import LabError

MIN_VOCAB_SIZE = 256  # every single byte, so that any text can be encoded
MAX_VOCAB_SIZE = 65_536  # what the 16 bits of a stored id hold


class CorpusError(LabError):
    """A text that cannot be used; the message says in one sentence what was got and what is allowed."""


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """A tokenizer, and what its tokens look like."""

    tokenizer_json: str = field(default="", repr=False, kw_only=True)

    @property
    def tokenizer(self) -> Tokenizer:
        return parse(self.tokenizer_json)

    @property
    def token_bytes(self) -> tuple[bytes, ...]:
        """The bytes that each token id stands for; a character may be spread over several tokens."""
        return token_bytes(self.tokenizer)

    def encode(self, text: str) -> list[int]:
        """Return the token ids of ``text``. Raises CorpusError: when it holds half a character."""
        try:
            text.encode()
        except UnicodeEncodeError as error:
            half = f"half a character, U+{ord(text[error.start]):04X}, at position {error.start}"
            raise CorpusError(f"The text holds {half}: only whole characters are allowed.") from error
        return [int(i) for i in encode(self.tokenizer, text)]

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of ``ids``; bytes that make no character appear as escapes such as ``\\xf0``."""
        return b"".join(self.token_bytes[i] for i in ids).decode(errors="backslashreplace")

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """Return the text of each token alone, for labels; a part of a character appears as its bytes."""
        return [self.decode([i]) for i in ids]


def train(text: str, vocab_size: int) -> str:
    """Return the JSON of a byte-level BPE tokenizer of exactly this size.

    Raises CorpusError: when the text has too few different pieces to fill it.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=vocab_size, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(_training_parts(text), trainer)
    if (reached := tokenizer.get_vocab_size()) < vocab_size:
        raise CorpusError(
            f"The text cannot fill a vocabulary of {vocab_size}: it reaches {reached}, so "
            f"{MIN_VOCAB_SIZE} to {reached} are allowed."
        )
    return tokenizer.to_str()


def encode(tokenizer: Tokenizer, text: str) -> NDArray[np.uint16]:
    """Return the token ids of a whole text. shape: -> (N,)"""
    chunks = [np.array(tokenizer.encode(chunk).ids, dtype=np.uint16) for chunk in _chunks(text)]
    return np.concatenate([np.array([], dtype=np.uint16), *chunks])


_WORD_END = re.compile(r"(?<=\S)[ \n]")


def _chunks(text: str, size: int = 20_000) -> Iterator[str]:
    """Yield ``text`` in parts of at least ``size`` characters whose encodings join to that of the whole.

    The tokenizer first splits a text into words, each with at most one space before it, and runs of
    whitespace. None of these reaches from a visible character into whitespace: a cut there changes nothing.
    """
    start = 0
    while start < len(text):
        cut = _WORD_END.search(text, start + size)
        end = cut.start() if cut else len(text)
        yield text[start:end]
        start = end


def _training_parts(text: str) -> Iterator[str]:
    """Yield the chunks with every run of 1,000 characters without (or of) whitespace ended there.

    The trainer's time is quadratic in the length of a word: a line of base64 or a genome would never end.
    """
    for chunk in _chunks(text):
        start = 0
        for run in re.finditer(r"\S{1000}|\s{1000}", chunk):
            yield chunk[start : run.end()]
            start = run.end()
        yield chunk[start:]


@lru_cache(maxsize=4)
def parse(tokenizer_json: str) -> Tokenizer:
    """Return the tokenizer of a JSON text; the last few are kept."""
    return Tokenizer.from_str(tokenizer_json)


@lru_cache(maxsize=4)
def token_bytes(tokenizer: Tokenizer) -> tuple[bytes, ...]:
    """Return the bytes of every token, by id; of the last few tokenizers they are kept.

    The alphabet writes printable bytes as themselves and the others, in order, as characters from 256 on.
    Source: Radford et al. 2019 (GPT-2), section 2.2 and its ``encoder.py``.
    """
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    byte_of = {character: ord(character) for character in alphabet if ord(character) < 256}
    others = [byte for byte in range(256) if chr(byte) not in byte_of]
    byte_of |= dict(zip(alphabet[len(byte_of) :], others, strict=True))
    vocab = tokenizer.get_vocab()
    return tuple(
        bytes(byte_of[character] for character in token) for token in sorted(vocab, key=vocab.__getitem__)
    )
