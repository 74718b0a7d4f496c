"""What a trained model does with Winograd sentences: maps, cuts, circuit, proof.

Scores are over held-out sentences; of one pair of sentences, what a page shows of it. Every probe is given a
checkpoint, the language that the model was trained on, and the seed of its split.
Shapes: C cases, N questions, T position, S key position, H heads, L blocks, V vocabulary.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from engine.circuits import lens
from engine.circuits.attribution import attribution
from engine.circuits.capture import boundaries, run
from engine.circuits.first_block import scores_under_change
from engine.circuits.interventions import Intervention, MeanHeads, PatchResidual, ZeroHeads
from engine.circuits.looks import SOUGHT
from engine.circuits.patching import Pairs, patched
from engine.circuits.results import Edge, Head, Part
from engine.circuits.roles import find_roles
from engine.circuits.routes import find_route
from engine.circuits.scoring import Questions
from engine.circuits.sites import ADJECTIVE, FIRST, NOUNS, SECOND, Sites
from engine.circuits.sites import DECISION as SITE
from engine.circuits.trials import Trials, logits_of_each
from engine.circuits.weights import mean_weights
from engine.data.languages import winograd
from engine.data.languages.winograd import ANSWER, DECISION, Sentence, Winograd
from engine.models.transformer import Transformer
from engine.probes.models import check_seed, for_the_reader, trained
from engine.probes.results import winograd as results
from engine.probes.results.winograd import Pair

HELD_OUT = 240  # sentences at most
PATCHED = 30  # pairs of nouns at most: each patch is a run of all of them
LIKELIEST = 5
NAMES = {winograd.FIRST: FIRST, winograd.SECOND: SECOND, winograd.ADJECTIVE: ADJECTIVE}


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
        others = self.language.encode(" ".join(self.language.other(sentence) for sentence in sentences))
        return Questions(rows[:, :ANSWER], DECISION, rows[:, ANSWER], torch.tensor(others))

    @property
    def questions(self) -> Questions:
        """Held-out pairs of nouns, each with every adjective."""
        pairs = self.language.split(self.seed).held_out
        most = max(1, HELD_OUT // len(self.language.adjectives))
        return self.asked(self.language.sentences(pairs[:most]))

    @cached_property
    def trials(self) -> Trials:
        """Those questions, answered by the model as it is."""
        return Trials(self.model, self.questions)


def maps(weights: Path, language: Winograd, seed: int, pair: Pair) -> results.Maps:
    """Both sentences side by side, all adjectives in one grid, and what block 1 sees of a change."""
    subject = _subject(weights, language, seed, pair)
    ids, trials = subject.asked(pair.sentences).ids, subject.trials
    by_word = mean_weights(trials.captured, trials.questions.ids[:, winograd.ADJECTIVE])
    every = subject.asked([Sentence(pair.first, pair.second, word) for word in language.adjectives])
    return results.Maps(
        tokens=[language.decode(row) for row in ids.tolist()],
        answers=answered(subject, pair, [])[0],
        weights=[
            [block.weights[place].tolist() for block in run(subject.model, ids).blocks] for place in range(2)
        ],
        adjectives=list(language.adjectives),
        grid=[
            by_word[token][:, :, DECISION, : DECISION + 1].tolist()
            for token in every.ids[:, winograd.ADJECTIVE].tolist()
        ],
        grid_count=len(trials.questions),
        unmoved=scores_under_change(subject.model, every.ids, winograd.ADJECTIVE, DECISION),
    )


def circuit(weights: Path, language: Winograd, seed: int) -> results.Circuit:
    """What each head does, every look that it takes and what it costs to cut it, over held-out sentences.

    Raises InvalidInput: as ``find_roles``.
    """
    subject = _subject(weights, language, seed)
    trials, sites = subject.trials, Sites.of(NAMES, DECISION)
    with for_the_reader():  # a model that gives no answer has none to lose
        roles = find_roles(trials, NAMES)
    looks = [(block, key) for block in range(subject.model.config.n_layer) for key in SOUGHT[SITE]]
    left = trials.scores([trials.change(sites.look(SITE, key, block), "cut") for block, key in looks])
    together = [
        results.BlockLook(block, SITE, key, one.accuracy)
        for (block, key), one in zip(looks, left, strict=True)
    ]
    return results.Circuit(roles, together, list(sites.names))


def parts(weights: Path, language: Winograd, seed: int) -> results.Parts:
    """Whether the score or the value of each block's looks counts, over held-out sentences."""
    subject, sites = _subject(weights, language, seed), Sites.of(NAMES, DECISION)
    trials, questions = subject.trials, subject.trials.questions
    keys = {"nouns": NOUNS, "adjective": (ADJECTIVE,)}
    looks = [(block, key) for block in range(subject.model.config.n_layer) for key in keys]
    edges = [sites.looks([(SITE, name, block) for name in keys[key]]) for block, key in looks]
    left = zip(looks, trials.left(edges), strict=True)
    first = questions.ids[:, winograd.FIRST] == questions.answers
    by_answer = mean_weights(trials.captured, (~first).long())
    rows = torch.stack(
        [by_answer[kind][:, :, DECISION, sorted(NAMES)] for kind in (0, 1)], dim=2
    )  # (L, H, 2, 3)
    return results.Parts(
        clean=trials.whole.score().accuracy,
        count=len(questions),
        looks=[results.PartOfLook(block, key, one) for (block, key), one in left],
        heads=[
            results.ClassWeights(block, head, *map(tuple, of_head))
            for block, of_block in enumerate(rows.tolist())
            for head, of_head in enumerate(of_block)
        ],
    )


def cut(
    weights: Path, language: Winograd, seed: int, pair: Pair, edges: list[Edge], part: Part = "cut"
) -> results.Changed:
    """The answers before and after some edges are changed, of the two sentences and of the held-out ones.

    part: whether they are cut, or what of them is as it is on average over the held-out sentences.
    """
    subject = _subject(weights, language, seed, pair)
    changes = subject.trials.change(frozenset(edges), part)
    return _changed_by(subject, pair, *changes, cells=changes[0].cells(subject.model.config.n_head))


def ablated(
    weights: Path,
    language: Winograd,
    seed: int,
    pair: Pair,
    heads: list[Head],
    how: Literal["zero", "mean"] = "zero",
) -> results.Changed:
    """The same without some heads. how: to zero, or to their mean over the held-out sentences."""
    subject, names = _subject(weights, language, seed, pair), frozenset(heads)
    change = ZeroHeads(names)
    if how == "mean":
        change = MeanHeads(names, subject.trials.head_means())
    return _changed_by(subject, pair, change)


def _changed_by(
    subject: Subject, pair: Pair, *changes: Intervention, cells: int | None = None
) -> results.Changed:
    """Raises InvalidInput: when a change names what the model has not, or leaves a position no key."""
    with for_the_reader():
        after = subject.trials.scores([changes])[0]
        as_it_is, changed = answered(subject, pair, [], changes)
    return results.Changed(subject.trials.whole.score(), after, as_it_is, changed, cells)


def proof(weights: Path, language: Winograd, seed: int, pair: Pair) -> results.Proof:
    """Patching between the two sentences, the logit lens, direct attribution, and the route taken.

    Patched over the held-out pairs of nouns: the sentences with the second adjective, and what of the run
    with the first brings the first one's answer back.
    """
    subject = _subject(weights, language, seed, pair)
    model, trials = subject.model, subject.trials
    nouns = language.split(seed).held_out[:PATCHED]
    clean, other = (subject.asked([Sentence(*two, word) for two in nouns]) for word in pair.adjectives)
    with for_the_reader():  # a model may answer both alike: then there is nothing to restore
        pairs = Pairs(model, clean, other.ids)
    last, places = pairs.source.stream[-1], tuple(range(clean.ids.shape[1]))
    everything = PatchResidual(len(pairs.source.stream) - 1, places, last)
    nothing, all_of_it = pairs.restored([], [everything])
    ids = subject.asked(pair.sentences).ids
    shares, likeliest = lens.likeliest(model, ids, DECISION, 3)
    return results.Proof(
        patching=patched(pairs),
        count=len(clean),
        nothing=nothing,
        everything=all_of_it,
        lens=lens.layers(trials),
        readings=[
            [
                results.Reading(name, language.decode(tokens), probabilities)
                for name, tokens, probabilities in zip(boundaries(model), *of_sentence, strict=True)
            ]
            for of_sentence in zip(likeliest.tolist(), shares.tolist(), strict=True)
        ],
        attribution=[_attributed(subject, trials.questions, sentence) for sentence in pair.sentences],
        route=find_route(trials, NAMES) if model.config.n_layer == 2 else None,
        tokens=[language.decode(row) for row in ids.tolist()],
    )


def _attributed(subject: Subject, questions: Questions, sentence: Sentence) -> results.Attributed:
    token = subject.language.encode(sentence.adjective)[0]
    parts = attribution(subject.model, questions.chosen(questions.ids[:, winograd.ADJECTIVE] == token))
    return results.Attributed(sentence.adjective, parts, parts.total)


def score(weights: Path, language: Winograd, seed: int) -> results.Scored:
    """The route of a two-block model, and what is left without each set of heads."""
    subject = _subject(weights, language, seed)
    trials = subject.trials
    verdict = find_route(trials, NAMES)
    try:
        return results.Scored(verdict, find_roles(trials, NAMES), "")
    except ValueError as error:  # no answer to lose
        return results.Scored(verdict, None, str(error))


def _subject(weights: Path, language: Winograd, seed: int, pair: Pair | None = None) -> Subject:
    """Raises InvalidInput: when the words are none of the language's, or it is not the model's."""
    check_seed(seed)
    with for_the_reader():
        if pair:
            pair.check(language)
        return Subject(trained(weights), language, seed)


def answered(subject: Subject, pair: Pair, *cases: Sequence[Intervention]) -> list[list[results.Answer]]:
    """What the model says of each sentence, in each case: its likeliest words, and the two nouns' shares."""
    asked = subject.asked(pair.sentences)
    logits = logits_of_each(subject.model, run(subject.model, asked.ids), (DECISION,), cases)[:, :, 0]
    return [_answers(subject, pair, asked, shares) for shares in logits.softmax(dim=-1)]


def _answers(subject: Subject, pair: Pair, asked: Questions, shares: Tensor) -> list[results.Answer]:
    """Of one case. shape: (2, V)"""
    likeliest = shares.topk(min(LIKELIEST, shares.shape[-1]), dim=-1)
    found = []
    for place, sentence in enumerate(pair.sentences):
        answer, other = int(asked.answers[place]), int(asked.others[place])
        words = subject.language.decode(likeliest.indices[place].tolist())
        found.append(
            results.Answer(
                adjective=sentence.adjective,
                answer=subject.language.referent(sentence),
                other=subject.language.other(sentence),
                answer_share=float(shares[place, answer]),
                other_share=float(shares[place, other]),
                named=words[0],
                likeliest=list(zip(words, likeliest.values[place].tolist(), strict=True)),
            )
        )
    return found
