"""A language whose questions have right answers: which noun of a sentence was tired? Imports no torch.

    the {x} did not cross the {y} because it was too {adj} , so the {ref} waited .

An adjective says by its role which noun is meant: the crosser x (tired) or the crossed y (wet). In the open
version x is an animal and y a place, so that the class of a noun answers; in the closed one both come from
one pool, and only their order does. Source: chapter, "circuits"; Levesque et al. 2012.
"""

import hashlib
import json
import random
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from itertools import combinations, product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.system.errors import InvalidInput

TEMPLATE = (
    *("the", "{x}", "did", "not", "cross", "the", "{y}", "because", "it", "was", "too", "{adj}", ","),
    *("so", "the", "{ref}", "waited", "."),
)
LENGTH = len(TEMPLATE)  # 18 tokens
FIRST, SECOND, ADJECTIVE, ANSWER = (TEMPLATE.index(slot) for slot in ("{x}", "{y}", "{adj}", "{ref}"))
DECISION = ANSWER - 1  # 14: the position whose prediction is scored
FIXED = tuple(dict.fromkeys(word for word in TEMPLATE if not word.startswith("{")))

MIN_POOL, MIN_CLASS, MAX_NOUNS, MAX_ADJECTIVES, MAX_LETTERS = 4, 2, 64, 16, 20

Pair = tuple[str, str]  # (x, y): the crosser and the crossed


@dataclass(frozen=True)
class Sentence:
    """What fills the template. first: the crosser x; second: the crossed y."""

    first: str
    second: str
    adjective: str


@dataclass(frozen=True)
class Split:
    """Which ordered pairs of nouns are trained on, and which are held out; each with every adjective."""

    train: tuple[Pair, ...]
    held_out: tuple[Pair, ...]


@dataclass(frozen=True, kw_only=True)
class Winograd:
    """One version of the language: its words, and what is held out of training.

    nouns: the pool of x and of y; with places, of x alone.
    places: what y is drawn from in the open version; empty in the closed one.
    crosser, crossed: adjectives by the noun that they tell of: x, or y.
    held_out_share: closed, of the pairs of nouns, how many are trained on in one order only and asked in the
        other (1: all of them); open, of the (animal, place) pairs, how many are held out, as far as each noun
        stays in training.

    Raises InvalidInput: when a word is odd, stands twice or belongs to the template, when there are too few
        or too many, when the roles have not as many adjectives each, or the share is out of range.
    """

    nouns: tuple[str, ...]
    places: tuple[str, ...] = ()
    crosser: tuple[str, ...]
    crossed: tuple[str, ...]
    held_out_share: float = 1.0

    def __post_init__(self) -> None:
        for name in ("nouns", "places", "crosser", "crossed"):
            object.__setattr__(self, name, _listed(name, getattr(self, name)))
        seen = set[str]()
        for word in self.own_words:
            _check_word(word)
            if word in seen:
                raise InvalidInput(f"the word {word!r} stands twice; allowed: each word once, in one list.")
            seen.add(word)
        least = MIN_POOL if self.closed else MIN_CLASS
        for name, given in (("nouns", self.nouns), *(() if self.closed else (("places", self.places),))):
            if not least <= len(given) <= MAX_NOUNS:
                raise InvalidInput(f"{len(given)} {name}; allowed: {least} to {MAX_NOUNS}.")
        if len(self.crosser) != len(self.crossed) or not 1 <= len(self.crosser) <= MAX_ADJECTIVES:
            raise InvalidInput(
                f"{len(self.crosser)} adjectives of the crosser and {len(self.crossed)} of the crossed; "
                f"allowed: as many of each, 1 to {MAX_ADJECTIVES}."
            )
        share = self.held_out_share
        if not isinstance(share, int | float) or isinstance(share, bool) or not 0 < share <= 1:
            raise InvalidInput(f"held_out_share is {share!r}; allowed: above 0, at most 1.")
        object.__setattr__(self, "held_out_share", float(share))  # 1 and 1.0 are one language

    @property
    def closed(self) -> bool:
        """Whether x and y come from one pool."""
        return not self.places

    @property
    def kind(self) -> str:
        """The id of the built-in language that this one is, or was edited from."""
        return "winograd-closed" if self.closed else "winograd-open"

    @property
    def adjectives(self) -> tuple[str, ...]:
        """Of both roles, the crosser's first."""
        return self.crosser + self.crossed

    @property
    def own_words(self) -> tuple[str, ...]:
        """All but the template's."""
        return self.nouns + self.places + self.adjectives

    @property
    def words(self) -> tuple[str, ...]:
        """The vocabulary: a word's place in it is its id."""
        return FIXED + self.own_words

    @property
    def context_length(self) -> int:
        """Tokens that a model reads of a sentence: all but the last."""
        return LENGTH - 1

    def referent(self, sentence: Sentence) -> str:
        """The right answer: the noun that the adjective tells of."""
        return sentence.first if sentence.adjective in self.crosser else sentence.second

    def other(self, sentence: Sentence) -> str:
        """The wrong answer that is in the sentence: the pair's other noun."""
        return sentence.second if sentence.adjective in self.crosser else sentence.first

    def tokens(self, sentence: Sentence) -> tuple[str, ...]:
        """The whole sentence, word by word."""
        filled = {
            "{x}": sentence.first,
            "{y}": sentence.second,
            "{adj}": sentence.adjective,
            "{ref}": self.referent(sentence),
        }
        return tuple(filled.get(word, word) for word in TEMPLATE)

    def rows(self, sentences: Iterable[Sentence]) -> NDArray[np.int64]:
        """Token ids, a row a sentence. shape: (N, 18)"""
        ids = {word: number for number, word in enumerate(self.words)}
        found = [[ids[word] for word in self.tokens(sentence)] for sentence in sentences]
        return np.array(found, dtype=np.int64).reshape(-1, LENGTH)

    def sentences(self, pairs: Iterable[Pair]) -> list[Sentence]:
        """Each pair with every adjective, pair by pair."""
        return [Sentence(*pair, adjective) for pair in pairs for adjective in self.adjectives]

    def split(self, seed: int) -> Split:
        """The split of a seed: closed, every held-out pair is the reverse of one that is trained on."""
        draw = random.Random(seed)
        return self._closed_split(draw) if self.closed else self._open_split(draw)

    def _closed_split(self, draw: random.Random) -> Split:
        pairs = [pair if draw.random() < 0.5 else pair[::-1] for pair in combinations(self.nouns, 2)]
        draw.shuffle(pairs)
        asked = max(1, round(self.held_out_share * len(pairs)))
        both = [pair[::-1] for pair in pairs[asked:]]
        return Split((*pairs, *both), tuple(pair[::-1] for pair in pairs[:asked]))

    def _open_split(self, draw: random.Random) -> Split:
        nouns, places = list(self.nouns), list(self.places)
        draw.shuffle(nouns)
        draw.shuffle(places)
        # These stay in training: a word that was never trained on could not be asked for.
        longer = range(max(len(nouns), len(places)))
        kept = [(nouns[n % len(nouns)], places[n % len(places)]) for n in longer]
        rest = [pair for pair in product(nouns, places) if pair not in kept]
        draw.shuffle(rest)
        asked = min(len(rest), max(1, round(self.held_out_share * len(nouns) * len(places))))
        return Split((*kept, *rest[asked:]), tuple(rest[:asked]))

    def encode(self, text: str) -> list[int]:
        """The ids of typed words; case and spaces do not matter.

        Raises InvalidInput: when a word is not in the language; the message names it and those there are.
        """
        ids = {word: number for number, word in enumerate(self.words)}
        typed = re.findall(r"[,.]|[^\s,.]+", text.lower())
        for word in typed:
            if word not in ids:
                raise InvalidInput(f"{word!r} is no word of this language; it has: {', '.join(self.words)}.")
        return [ids[word] for word in typed]

    def decode(self, ids: Iterable[int]) -> list[str]:
        """The words of ids. Raises InvalidInput: when one is out of range."""
        found = []
        for number in ids:
            if not 0 <= number < len(self.words):
                raise InvalidInput(f"token {number}; allowed: 0 to {len(self.words) - 1}.")
            found.append(self.words[number])
        return found

    def read(self, text: str) -> Sentence:
        """A typed sentence, up to the place where the answer is due or beyond it.

        Raises InvalidInput: when a word is not in the language, or stands where the template has another.
        """
        typed = self.decode(self.encode(text))
        if not ANSWER <= len(typed) <= LENGTH:
            raise InvalidInput(
                f"{len(typed)} words; needed: the {ANSWER} of {' '.join(TEMPLATE[:ANSWER])!r}, or more of "
                f"all {LENGTH}."
            )
        slots = {
            "{x}": self.nouns,
            "{y}": self.places or self.nouns,
            "{adj}": self.adjectives,
            "{ref}": self.nouns + self.places,
        }
        for number, (word, wanted) in enumerate(zip(typed, TEMPLATE, strict=False)):
            if word not in slots.get(wanted, (wanted,)):
                allowed = ", ".join(slots.get(wanted, (wanted,)))
                raise InvalidInput(f"word {number} is {word!r}; allowed there: {allowed}.")
        if typed[FIRST] == typed[SECOND]:
            raise InvalidInput(f"both nouns are {typed[FIRST]!r}; allowed: two that differ.")
        return Sentence(typed[FIRST], typed[SECOND], typed[ADJECTIVE])

    def to_json(self) -> str:
        """The canonical text of the language: equal languages have equal texts."""
        fields = {"kind": "winograd", "template": " ".join(TEMPLATE), **asdict(self)}
        return json.dumps(fields, sort_keys=True, separators=(",", ":"), allow_nan=False)

    @property
    def sha256(self) -> str:
        """Names the language, as that of a text names the text."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()

    @classmethod
    def from_json(cls, text: str) -> "Winograd":
        """The inverse of ``to_json``.

        Raises InvalidInput: when the text is no language of this kind, or one of another template.
        """
        fields: Any = json.loads(text)
        if not isinstance(fields, dict):
            raise InvalidInput(f"a language is a JSON object, not {type(fields).__name__}.")
        for name, known in (("kind", "winograd"), ("template", " ".join(TEMPLATE))):
            if (got := fields.pop(name, None)) != known:
                raise InvalidInput(f"the {name} of the language is {got!r}; allowed: {known!r}.")
        try:
            return cls(**fields)
        except TypeError as error:  # a field too many or too few
            raise InvalidInput(f"the language cannot be read: {error}.") from error


def _listed(name: str, words: object) -> tuple[str, ...]:
    if not isinstance(words, list | tuple) or not all(isinstance(word, str) for word in words):
        raise InvalidInput(f"{name} is {words!r}; allowed: a list of words.")
    return tuple(words)


def _check_word(word: str) -> None:
    if not word.strip():
        raise InvalidInput(f"a word is empty ({word!r}); allowed: letters.")
    if word in FIXED:
        raise InvalidInput(f"the template has the word {word!r} already; allowed: words that it has not.")
    for sign in word:
        if not (sign.isalpha() and sign == sign.lower()) and sign not in "-'":
            raise InvalidInput(
                f"the word {word!r} has {sign!r}; allowed: small letters, with hyphens or apostrophes inside."
            )
    for end in (word[0], word[-1]):
        if not end.isalpha():
            raise InvalidInput(f"the word {word!r} begins or ends with {end!r}; allowed: with a letter.")
    if len(word) > MAX_LETTERS:
        raise InvalidInput(f"the word {word!r} has {len(word)} letters; allowed: at most {MAX_LETTERS}.")


_CROSSER, _CROSSED = ("tired", "scared", "slow", "weak"), ("wet", "wide", "busy", "steep")

CLOSED = Winograd(
    nouns=(
        *("animal", "street", "child", "river", "dog", "bridge", "farmer", "field"),
        *("horse", "road", "cat", "valley", "cow", "path", "duck", "hill"),
    ),
    crosser=_CROSSER,
    crossed=_CROSSED,
)
OPEN = Winograd(
    nouns=("animal", "child", "dog", "farmer", "horse", "cat", "cow", "duck"),
    places=("street", "river", "bridge", "field", "road", "valley", "path", "hill"),
    crosser=_CROSSER,
    crossed=_CROSSED,
    held_out_share=0.25,
)
