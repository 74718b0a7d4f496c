"""Models for the tests of circuits, built by hand so that they provably work.

A built model adds up one-hot vectors: a token, its place, and slots that heads write to. No norm, no
feed-forward, no bias: what each head does can be read off its matrices.
"""

import itertools
from dataclasses import replace

import pytest
import torch

from engine.circuits.capture import run
from engine.circuits.scoring import Questions, outcomes_of
from engine.models.config import ModelConfig
from engine.models.transformer import Transformer

# Small, for what holds of any model.
CONFIG = ModelConfig(
    vocab_size=20, d_model=12, n_head=3, n_layer=2, d_ff=20, max_positions=16,
    mixer="attention", connection="pre-norm", positions="learned", output_projection=True,
)  # fmt: skip


def felt(config=CONFIG, dtype=torch.float64, seed=0):
    """A model none of whose parameters is what torch starts with: gains, biases and matrices are felt."""
    torch.manual_seed(seed)
    made = Transformer(config).to(dtype).eval()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return made


def sentences(count=4, length=7, seed=1, vocab_size=CONFIG.vocab_size):
    """Random tokens. shape: -> (count, length)"""
    return torch.randint(vocab_size, (count, length), generator=torch.Generator().manual_seed(seed))


SHARP = 60.0  # a score beside 0: what is not looked at keeps exp(-60)


def built(vocab_size, length, slots, blocks):
    """A model of two blocks of two heads.

    blocks: for every block its heads, each four lists of (row, column, value): W_Q, W_K, W_V over the columns
    of the stream, W_O over those of the head. Token v is column v, place t column V + t, slot i column
    V + T + i. The logit of token v is 10 times the slot ``slots - V + v``: the last V slots are the answer.
    """
    width, size = vocab_size + length + slots, vocab_size + length + 2
    config = replace(
        CONFIG, vocab_size=vocab_size, d_model=width, max_positions=length, connection="add", d_ff=0,
        n_head=2, d_head=size, score_scale="none", output_bias=False, unembedding_bias=False,
    )  # fmt: skip
    model = Transformer(config).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        model.token_embedding.weight[:, :vocab_size] = torch.eye(vocab_size)
        model.positions.table.weight[:, vocab_size : vocab_size + length] = torch.eye(length)
        model.unembedding.weight[:, width - vocab_size :] = 10 * torch.eye(vocab_size)
        for block, heads in zip(model.blocks, blocks, strict=True):
            mixer = block[0].sublayer
            for head, (query, key, value, output) in enumerate(heads):
                for W, entries in ((mixer.W_Q, query), (mixer.W_K, key), (mixer.W_V, value)):
                    for row, column, number in entries:
                        W.weight[head * size + row, column] = number
                for row, column, number in output:
                    mixer.W_O.weight[row, head * size + column] = number
    return model


# Induction: a previous-token head and, behind it, a head that matches prefixes.

HALF, LETTERS = 6, 9


def repeated(count, seed=0):
    """Six different letters, twice. shape: -> (count, 12)"""
    draw = torch.Generator().manual_seed(seed)
    once = torch.stack([torch.randperm(LETTERS, generator=draw)[:HALF] for _ in range(count)])
    return torch.cat([once, once], dim=1)


def induction_model():
    """Head 0.0 looks one token back and notes what it saw; head 1.0 looks for a note of its own token.

    Place 0 has nobody before it and notes itself: a score of -SHARP takes that match off again.
    """
    V, T = LETTERS, 2 * HALF
    note, answer = V + T, V + T + V
    letters = range(V)
    copied = [(v, v, 1.0) for v in letters]
    previous = (
        [(t - 1, V + t, SHARP) for t in range(1, T)],
        [(t, V + t, 1.0) for t in range(T)],
        copied,
        [(note + v, v, 1.0) for v in letters],
    )
    matching = (
        [(v, v, SHARP) for v in letters] + [(V, v, SHARP) for v in letters],
        [(v, note + v, 1.0) for v in letters] + [(V, V, -1.0)],
        copied,
        [(answer + v, v, 1.0) for v in letters],
    )
    return built(V, T, 2 * V, [[previous], [matching]])


# A language of the closed kind: NOUNS x, y; two adjectives that mean x, two that mean y.

NOUNS, OF_FIRST, OF_SECOND, FILLER = range(4), (4, 5), (6, 7), 8
NAMES = {1: "first noun", 3: "second noun", 5: "adjective", 7: "the"}
VOCABULARY, LENGTH, DECISION = 9, 8, 7
SENTENCE = "_ x _ y _ a _ _"


def close(one, other):
    """Whether two scores are one, up to the rounding of sums taken in another order."""
    same = replace(one, logit_difference=0.0) == replace(other, logit_difference=0.0)
    return same and one.logit_difference == pytest.approx(other.logit_difference, abs=1e-4)


def outcomes(model, asked, changes=()):
    """Every answer of a model, changed in all its sentences at once."""
    logits = run(model, asked.ids, changes).logits[:, asked.decision]
    return outcomes_of(logits, asked.answers, asked.others)


def closed_questions():
    """Every ordered pair of different nouns with every adjective: 48 sentences."""
    ids, answers, others = [], [], []
    for x, y in itertools.permutations(NOUNS, 2):
        for a in (*OF_FIRST, *OF_SECOND):
            ids.append([{"x": x, "y": y, "a": a}.get(word, FILLER) for word in SENTENCE.split()])
            pair = (x, y) if a in OF_FIRST else (y, x)
            answers.append(pair[0])
            others.append(pair[1])
    return Questions(torch.tensor(ids), DECISION, torch.tensor(answers), torch.tensor(others))


NOTE = VOCABULARY + LENGTH  # the first of nine slots for notes; the answer's nine follow
ANSWER = NOTE + VOCABULARY


def place(t):
    return VOCABULARY + t


def look(query, keys, value, strength=1.0, read=0):
    """A head that from column ``query`` looks at columns with these scores and writes nouns to ``value``.

    read: the column at which the nouns that it copies begin; 0 is the token itself.
    """
    return (
        [(0, query, SHARP)],
        [(0, column, score) for column, score in keys.items()],
        [(v, read + v, 1.0) for v in NOUNS],
        [(value + v, v, strength) for v in NOUNS],
    )


IDLE = ((), (), (), ())
SINK = dict.fromkeys(OF_SECOND, 2.0)  # an adjective whose key takes all the weight, and gives nothing
FROM_FIRST, FROM_SECOND = (
    look(place(DECISION), {place(1): 1.0, **SINK}, ANSWER, 3.0),
    look(place(DECISION), {place(3): 1.0}, ANSWER),
)
CHOICE = (
    [(0, NOTE, SHARP), (1, NOTE + 1, SHARP)],
    [(0, place(1), 1.0), (1, place(3), 1.0)],
    [(v, v, 1.0) for v in NOUNS],
    [(ANSWER + v, v, 1.0) for v in NOUNS],
)
TYPE = (
    [(0, place(DECISION), SHARP)],
    [(0, place(5), 1.0)],
    [(0, a, 1.0) for a in OF_FIRST] + [(1, a, 1.0) for a in OF_SECOND],
    [(NOTE, 0, 1.0), (NOTE + 1, 1, 1.0)],
)
GATHERED = (
    [(0, a, SHARP) for a in OF_FIRST] + [(1, a, SHARP) for a in OF_SECOND],
    [(0, place(1), 1.0), (1, place(3), 1.0)],
    [(v, v, 1.0) for v in NOUNS],
    [(NOTE + v, v, 1.0) for v in NOUNS],
)
OTHERWISE_SECOND = look(place(DECISION), {place(3): 1.0, **dict.fromkeys(OF_FIRST, 2.0)}, ANSWER, 3.0)
AT_ADJECTIVE = look(place(DECISION), {place(5): 1.0}, ANSWER, read=NOTE)
AT_RELAY = look(place(DECISION), {place(6): 1.0, **SINK}, ANSWER, 3.0, read=NOTE)
BUILT = {
    "nouns, then adjective": [
        [look(place(DECISION), {place(1): 1.0}, ANSWER), IDLE],
        [OTHERWISE_SECOND, IDLE],
    ],
    "adjective, then nouns": [[TYPE, IDLE], [CHOICE, IDLE]],
    "gather at the adjective": [[GATHERED, IDLE], [AT_ADJECTIVE, IDLE]],
    "through other words": [[look(place(6), {place(1): 1.0}, NOTE), IDLE], [AT_RELAY, FROM_SECOND]],
    "block 1 alone": [[FROM_FIRST, FROM_SECOND], [IDLE, IDLE]],
    "block 2 alone": [[IDLE, IDLE], [FROM_FIRST, FROM_SECOND]],
}


def route_model(route):
    """A model that answers every question of ``closed_questions`` by this route."""
    return built(VOCABULARY, LENGTH, 2 * VOCABULARY, BUILT[route])
