"""A language with nothing to know but what was just said: random tokens, said again. Imports no torch.

    ka mu te lo | ka mu te lo | ka mu ...

A sequence is a word of p random tokens, none twice, repeated until the sequence is full. Where a token stood
before, its successor is known: [A][B] ... [A] -> [B]. The period p is drawn anew for every sequence, so that
looking back by a fixed number of tokens finds nothing. Source: Olsson et al. 2022, "In-context learning and
induction heads"; the chapter only points there.
"""

import hashlib
import json
from dataclasses import asdict, dataclass
from itertools import product
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from engine.system.errors import InvalidInput
from engine.system.numbers import check_whole

TRAIN_SEQUENCES, UNSEEN_SEQUENCES = 16_384, 256
_SYLLABLES = tuple("".join(pair) for pair in product("bdfghjklmnprstvz", "aeiou"))
MAX_VOCAB, MAX_LENGTH = len(_SYLLABLES), 128


@dataclass(frozen=True, kw_only=True)
class Repeats:
    """Random tokens, repeated.

    vocab_size: different tokens.
    shortest: tokens before the earliest repeat. The longest period is one less than half a sequence, so that
        all of the second half can be known from what stood before.
    length: of a sequence, in tokens.

    Raises InvalidInput: when a number is out of range.
    """

    kind: ClassVar[str] = "induction"

    vocab_size: int = 64
    shortest: int = 11
    length: int = 64

    def __post_init__(self) -> None:
        check_whole("length", self.length, 8, MAX_LENGTH)
        if self.length % 2:
            raise InvalidInput(f"length is {self.length}; allowed: an even number, for two halves.")
        check_whole("shortest", self.shortest, 2, self.longest)
        check_whole("vocab_size", self.vocab_size, self.longest, MAX_VOCAB)

    @property
    def half(self) -> int:
        """Where the second half begins, in tokens."""
        return self.length // 2

    @property
    def longest(self) -> int:
        """Tokens before the latest repeat."""
        return self.half - 1

    @property
    def context_length(self) -> int:
        """Tokens that a model reads of a sequence: all but the last."""
        return self.length - 1

    @property
    def words(self) -> tuple[str, ...]:
        """The vocabulary, syllables: a token's place in it is its id."""
        return _SYLLABLES[: self.vocab_size]

    @property
    def known_nothing(self) -> slice:
        """The positions whose next token nothing before it tells, in every sequence."""
        return slice(0, self.shortest - 1)

    @property
    def known_all(self) -> slice:
        """The positions whose next token is of the second half: in every sequence it stood there before."""
        return slice(self.half - 1, self.length - 1)

    def train_rows(self, seed: int) -> NDArray[np.int64]:
        """The sequences trained on, a row each. shape: (16384, length)"""
        return self._drawn([seed, 0], TRAIN_SEQUENCES)

    def unseen_rows(self, seed: int) -> NDArray[np.int64]:
        """Sequences that are never trained on. shape: (256, length)"""
        return self._drawn([seed, 1], UNSEEN_SEQUENCES)

    def halved_rows(self, seed: int, count: int) -> NDArray[np.int64]:
        """Unseen sequences of two halves, the second the first again. shape: (count, 2 longest)"""
        words = self._words(np.random.Generator(np.random.PCG64([seed, 2])), count)[:, : self.longest]
        return np.concatenate([words, words], axis=1)

    def _drawn(self, seed: list[int], count: int) -> NDArray[np.int64]:
        draw = np.random.Generator(np.random.PCG64(seed))
        words = self._words(draw, count)
        periods = self.shortest + np.floor(draw.random((count, 1)) * (self.half - self.shortest))
        places = np.arange(self.length) % periods.astype(np.int64)
        return np.take_along_axis(words, places, axis=1)

    def _words(self, draw: np.random.Generator, count: int) -> NDArray[np.int64]:
        """All tokens in a random order, a row a word. shape: (count, vocab_size)"""
        return draw.random((count, self.vocab_size)).argsort(axis=1, kind="stable").astype(np.int64)

    def to_json(self) -> str:
        """The canonical text of the language: equal languages have equal texts."""
        fields = {"kind": self.kind, "sequences": [TRAIN_SEQUENCES, UNSEEN_SEQUENCES], **asdict(self)}
        return json.dumps(fields, sort_keys=True, separators=(",", ":"), allow_nan=False)

    @property
    def sha256(self) -> str:
        """Names the language, as that of a text names the text."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()


INDUCTION = Repeats()
