"""What a trained model does with Winograd sentences, as plain JSON values: maps, cuts, circuit, proof.

Scores are over held-out sentences; of one pair of sentences, what a page shows of it.
Shapes: N questions, T position, S key position, H heads, L blocks.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from engine.circuits.attribution import attribution
from engine.circuits.capture import run
from engine.circuits.first_block import scores_under_change
from engine.circuits.interventions import (
    CutEdges,
    Edge,
    Head,
    Intervention,
    MeanHeads,
    PatchResidual,
    ZeroHeads,
)
from engine.circuits.lens import layers, readings
from engine.circuits.looks import SOUGHT
from engine.circuits.patching import Pairs, patched
from engine.circuits.roles import find_roles
from engine.circuits.routes import find_route
from engine.circuits.scoring import Questions
from engine.circuits.sites import ADJECTIVE, FIRST, SECOND, Sites
from engine.circuits.sites import DECISION as SITE
from engine.circuits.trials import Trials, logits_of_each
from engine.circuits.weights import rows_by_word
from engine.data.languages import winograd
from engine.data.languages.winograd import ANSWER, DECISION, Sentence, Winograd
from engine.models.transformer import Transformer

HELD_OUT = 240  # sentences at most
PATCHED = 30  # pairs of nouns at most: each patch is a run of all of them
LIKELIEST = 5
NAMES = {winograd.FIRST: FIRST, winograd.SECOND: SECOND, winograd.ADJECTIVE: ADJECTIVE}

Found = dict[str, Any]


@dataclass(frozen=True)
class Subject:
    """A trained model, the language it was trained on, and the seed of the split.

    Raises ValueError: when the model's vocabulary is another one.
    """

    model: Transformer
    language: Winograd
    seed: int

    def __post_init__(self) -> None:
        if (got := self.model.config.vocab_size) != len(self.language.words):
            raise ValueError(
                f"the model knows {got} words; allowed for this language: {len(self.language.words)}."
            )

    def asked(self, sentences: Sequence[Sentence]) -> Questions:
        """These sentences up to the place where the answer is due."""
        rows = torch.from_numpy(self.language.rows(sentences))
        others = self._ids([self.language.other(sentence) for sentence in sentences])
        return Questions(rows[:, :ANSWER], DECISION, rows[:, ANSWER], others)

    @property
    def questions(self) -> Questions:
        """Held-out pairs of nouns, each with every adjective."""
        pairs = self.language.split(self.seed).held_out
        most = max(1, HELD_OUT // len(self.language.adjectives))
        return self.asked(self.language.sentences(pairs[:most]))

    def words(self, ids: Sequence[int]) -> list[str]:
        """Token ids as words."""
        return self.language.decode(ids)

    def _ids(self, words: Sequence[str]) -> Tensor:
        return torch.tensor(self.language.encode(" ".join(words)))


@dataclass(frozen=True)
class Pair:
    """Two sentences that differ in the adjective alone."""

    first: str
    second: str
    adjectives: tuple[str, str]

    @property
    def sentences(self) -> list[Sentence]:
        """Both, in the order of the adjectives."""
        return [Sentence(self.first, self.second, adjective) for adjective in self.adjectives]

    def check(self, language: Winograd) -> None:
        """Raises ValueError: when a word is none of the language's in its place, or both are the same."""
        for sentence in self.sentences:
            language.read(" ".join(language.tokens(sentence)[:ANSWER]))
        if len(set(self.adjectives)) < 2:
            raise ValueError(f"both adjectives are {self.adjectives[0]!r}; allowed: two that differ.")


@torch.no_grad()
def answered(subject: Subject, pair: Pair, changes: Sequence[Intervention] = ()) -> list[Found]:
    """What the model says of each sentence: its likeliest words, and the two nouns' probabilities."""
    asked = subject.asked(pair.sentences)
    shares = run(subject.model, asked.ids, changes).logits[:, DECISION].softmax(dim=-1)
    likeliest = shares.topk(min(LIKELIEST, shares.shape[-1]), dim=-1)
    found = []
    for place, sentence in enumerate(pair.sentences):
        answer, other = int(asked.answers[place]), int(asked.others[place])
        words = subject.words(likeliest.indices[place].tolist())
        found.append(
            {
                "adjective": sentence.adjective,
                "answer": subject.language.referent(sentence),
                "other": subject.language.other(sentence),
                "answer_share": float(shares[place, answer]),
                "other_share": float(shares[place, other]),
                "named": words[0],
                "likeliest": list(zip(words, likeliest.values[place].tolist(), strict=True)),
            }
        )
    return found


def maps(subject: Subject, pair: Pair) -> Found:
    """Both sentences side by side, all adjectives in one grid, and what block 1 sees of a change."""
    asked = subject.asked(pair.sentences)
    blocks = run(subject.model, asked.ids).blocks
    words = subject.language.adjectives
    questions = subject.questions
    by_word = rows_by_word(subject.model, questions.ids, winograd.ADJECTIVE, DECISION)
    grid = {row.token: row.rows for row in by_word}
    ids = {word: subject.language.encode(word)[0] for word in words}
    every = subject.asked([Sentence(pair.first, pair.second, word) for word in words])
    return {
        "tokens": [subject.words(row) for row in asked.ids.tolist()],
        "answers": answered(subject, pair),
        # By sentence, block, head: the whole map.
        "weights": [[block.weights[place].tolist() for block in blocks] for place in range(2)],
        "adjectives": list(words),
        "grid": [grid[ids[word]] for word in words],
        "grid_count": len(questions),
        "unmoved": asdict(scores_under_change(subject.model, every.ids, winograd.ADJECTIVE, DECISION)),
    }


def circuit(subject: Subject) -> Found:
    """What each head does, every look that it takes and what it costs to cut it, over held-out sentences.

    together: looks of the decision cut in all heads of a block.
    Raises ValueError: as ``find_roles``.
    """
    questions = subject.questions
    roles, sites = find_roles(subject.model, questions, NAMES), Sites.of(NAMES, DECISION)
    together = []
    for block in range(subject.model.config.n_layer):
        for key in SOUGHT[SITE]:
            left = score(subject.model, questions, [sites.cut([(SITE, key, block)])])
            look = {"block": block, "head": None, "query": SITE, "key": key}
            together.append({**look, "score": asdict(left)})
    return {**asdict(roles), "together": together, "names": list(sites.names)}


def effects(subject: Subject, pair: Pair) -> Found:
    """What cutting each look that there may be does to two sentences: of one head, or of a whole block."""
    sites = Sites.of(NAMES, DECISION)
    shape = shape_of(subject.model, subject.asked(pair.sentences).ids)
    found = [
        {
            **{"block": block, "head": head, "query": query, "key": key},
            "answers": answered(subject, pair, [sites.cut([(query, key, block)], head)]),
        }
        for block in range(shape.blocks)
        for head in (*range(shape.heads), None)
        for query, keys in SOUGHT.items()
        for key in keys
    ]
    ids = subject.asked(pair.sentences).ids.tolist()
    return {
        "looks": found,
        "answers": answered(subject, pair),
        "tokens": [subject.words(row) for row in ids],
    }


def cut(subject: Subject, pair: Pair, edges: Sequence[Edge]) -> Found:
    """The answers before and after some edges are cut, of the two sentences and of the held-out ones."""
    changes = [CutEdges(frozenset(edges))]
    return _changed(subject, pair, changes)


def ablated(subject: Subject, pair: Pair, heads: Sequence[Head], how: str) -> Found:
    """The same without some heads. how: "zero", or "mean" over the held-out sentences."""
    names = frozenset(heads)
    means = head_means(subject.model, subject.questions.ids)
    changes: list[Intervention] = [ZeroHeads(names) if how == "zero" else MeanHeads(names, means)]
    return _changed(subject, pair, changes)


def _changed(subject: Subject, pair: Pair, changes: Sequence[Intervention]) -> Found:
    questions = subject.questions
    return {
        "before": asdict(score(subject.model, questions)),
        "after": asdict(score(subject.model, questions, changes)),
        "answers": answered(subject, pair),
        "changed": answered(subject, pair, changes),
    }


def proof(subject: Subject, pair: Pair) -> Found:
    """Patching between the two sentences, the logit lens, direct attribution, and the route taken.

    Patched over the held-out pairs of nouns: the sentences with the second adjective, and what of the run
    with the first brings the first one's answer back.
    """
    nouns = subject.language.split(subject.seed).held_out[:PATCHED]
    clean, other = (
        subject.asked([Sentence(*pair_of, adjective) for pair_of in nouns]) for adjective in pair.adjectives
    )
    pairs = Pairs(subject.model, clean, other.ids)
    questions = subject.questions
    two = subject.model.config.n_layer == 2
    ids = subject.asked(pair.sentences).ids
    return {
        "patching": {**asdict(patched(pairs)), "count": len(clean), **_identities(pairs)},
        "lens": [asdict(layer) for layer in layers(subject.model, questions)],
        "readings": [
            [
                {"boundary": one.boundary, "words": subject.words(one.ids), "shares": one.probabilities}
                for one in readings(subject.model, row[None], DECISION, 3)
            ]
            for row in ids
        ],
        "attribution": [_attributed(subject, sentence) for sentence in pair.sentences],
        "route": asdict(find_route(subject.model, questions, NAMES)) if two else None,
        "tokens": [subject.words(row) for row in ids.tolist()],
    }


def _identities(pairs: Pairs) -> Found:
    """What patching nothing restores, and patching the whole last stream: 0 and 1."""
    last, places = pairs.source.stream[-1], tuple(range(pairs.source.ids.shape[1]))
    everything = PatchResidual(len(pairs.source.stream) - 1, places, last)
    return {"nothing": pairs.restored([]), "everything": pairs.restored([everything])}


def _attributed(subject: Subject, sentence: Sentence) -> Found:
    """Over all held-out sentences with that adjective."""
    questions = subject.questions
    token = subject.language.encode(sentence.adjective)[0]
    found = attribution(subject.model, questions.chosen(questions.ids[:, winograd.ADJECTIVE] == token))
    return {**asdict(found), "adjective": sentence.adjective, "total": found.total}


def scored(subject: Subject) -> Found:
    """The route of a two-block model, and what is left without each set of heads."""
    questions = subject.questions
    verdict = find_route(subject.model, questions, NAMES)
    try:
        roles = asdict(find_roles(subject.model, questions, NAMES))
    except ValueError as error:  # no answer to lose
        return {"route": asdict(verdict), "roles": None, "reason": str(error)}
    return {"route": asdict(verdict), "roles": roles, "reason": ""}
