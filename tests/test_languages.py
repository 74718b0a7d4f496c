"""The languages: every answer follows its rule, what is held out stays out, what is typed is read."""

import json
import re
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.chapter.experiments import MAX_SEED
from engine.data.languages import shelf
from engine.data.languages.induction import INDUCTION, Repeats
from engine.data.languages.winograd import (
    ADJECTIVE,
    ANSWER,
    CLOSED,
    DECISION,
    FIRST,
    LENGTH,
    OPEN,
    SECOND,
    Sentence,
    Winograd,
)
from engine.system import paths

SEEDS = st.integers(0, MAX_SEED)
WORDS = {"nouns": ("ant", "bee", "cow", "dog"), "crosser": ("tired",), "crossed": ("wet",)}
EDITED = replace(CLOSED, nouns=(*CLOSED.nouns[:-1], "camel"))


# The Winograd language


BOTH = pytest.mark.parametrize("language", [CLOSED, OPEN], ids=["closed", "open"])


def test_the_sentences_are_the_chapters():
    tired, wet = (Sentence("animal", "street", adjective) for adjective in ("tired", "wet"))
    assert [" ".join(CLOSED.decode(row)) for row in CLOSED.rows([tired, wet])] == [
        "the animal did not cross the street because it was too tired , so the animal waited .",
        "the animal did not cross the street because it was too wet , so the street waited .",
    ]
    assert (LENGTH, DECISION, ANSWER) == (18, 14, 15)
    assert len(CLOSED.nouns) == 16
    assert CLOSED.crosser == ("tired", "scared", "slow", "weak")
    assert CLOSED.crossed == ("wet", "wide", "busy", "steep")


@BOTH
def test_every_answer_follows_its_rule(language):
    split = language.split(3)
    pairs = (*split.train, *split.held_out)
    rows = language.rows(language.sentences(pairs))
    assert rows.dtype == np.int64
    assert rows.shape == (len(language.adjectives) * len(pairs), LENGTH)
    for row in rows:
        words = language.decode(row)
        meant, other = (FIRST, SECOND) if words[ADJECTIVE] in language.crosser else (SECOND, FIRST)
        sentence = Sentence(words[FIRST], words[SECOND], words[ADJECTIVE])
        assert words[ANSWER] == words[meant] == language.referent(sentence)
        assert words[other] == language.other(sentence)
        assert words[FIRST] != words[SECOND]
    assert len({tuple(row) for row in rows.tolist()}) == len(rows), "no sentence twice"


def sets(split):
    """Both parts, none of whose pairs comes twice or is in the other."""
    train, held_out = set(split.train), set(split.held_out)
    assert (len(train), len(held_out)) == (len(split.train), len(split.held_out))
    assert not train & held_out
    return train, held_out


@given(SEEDS)
def test_closed_what_is_held_out_is_the_reverse_of_what_is_trained_on(seed):
    train, held_out = sets(CLOSED.split(seed))
    assert {pair[::-1] for pair in held_out} == train
    assert len(train) == 16 * 15 / 2


@given(SEEDS, st.floats(0.01, 1))
def test_closed_a_share_of_the_pairs_has_one_order_held_out_and_the_rest_none(seed, share):
    train, held_out = sets(replace(CLOSED, held_out_share=share).split(seed))
    assert len(held_out) == max(1, round(share * 120))
    assert {pair[::-1] for pair in held_out} <= train
    assert len(train) + len(held_out) == 16 * 15


@given(SEEDS, st.floats(0.01, 1))
def test_open_pairs_are_held_out_and_every_noun_stays_in_training(seed, share):
    language = replace(OPEN, places=OPEN.places[:5], held_out_share=share)
    train, held_out = sets(language.split(seed))
    assert train | held_out == {(noun, place) for noun in language.nouns for place in language.places}
    assert len(held_out) == min(40 - 8, max(1, round(share * 40)))
    assert {noun for pair in train for noun in pair} == {*language.nouns, *language.places}


@BOTH
def test_a_seed_is_a_split_and_another_seed_another(language):
    splits = [language.split(seed) for seed in (*range(20), 2**53, 2**53 + 1)]
    assert len({frozenset(split.train) for split in splits}) == len(splits)
    assert language.split(7) == splits[7]
    # Runs and references are bound to it by their seed alone.
    if language is CLOSED:
        assert splits[0].train[:3] == (("path", "horse"), ("valley", "duck"), ("duck", "street"))
    else:
        assert splits[0].held_out[:3] == (("animal", "street"), ("farmer", "street"), ("horse", "hill"))


@given(st.data())
def test_ids_go_there_and_back(data):
    ids = data.draw(st.lists(st.integers(0, len(CLOSED.words) - 1), max_size=LENGTH))
    assert CLOSED.encode(" ".join(CLOSED.decode(ids))) == ids
    with pytest.raises(ValueError, match=r"token 36; allowed: 0 to 35\."):
        CLOSED.decode([*ids, 36])


@pytest.mark.parametrize(
    "text",
    [
        "the animal did not cross the street because it was too tired , so the",
        "  The ANIMAL did not\ncross the street because it was too tired, so the animal",
        "the animal did not cross the street because it was too tired,so the animal waited.",
    ],
)
def test_a_typed_sentence_is_read(text):
    assert CLOSED.read(text) == OPEN.read(text) == Sentence("animal", "street", "tired")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (("animal", "unicorn"), "'unicorn' is no word of this language; it has: the, did, "),
        (("not ", ""), "14 words; needed: the 15 of 'the {x} did not cross"),
        (("cross", "not"), "word 4 is 'not'; allowed there: cross."),
        (("tired", "street"), "word 11 is 'street'; allowed there: tired, scared"),
        (("animal", "street"), "both nouns are 'street'; allowed: two that differ."),
        (("so the", "so the the"), "word 15 is 'the'; allowed there: animal, "),
        (("so the", "so the animal waited . ."), "19 words; needed"),
    ],
)
def test_what_is_no_sentence_of_the_language_is_refused(change, why):
    right = "the animal did not cross the street because it was too tired , so the"
    with pytest.raises(ValueError, match=re.escape(why)):
        CLOSED.read(right.replace(*change))
    with pytest.raises(ValueError, match="word 1 is 'street'; allowed there: animal, child"):
        OPEN.read("the street did not cross the river because it was too wet , so the")


def test_a_language_of_the_least_size_is_allowed():
    assert len(Winograd(**WORDS).split(0).train) == 6
    least = Winograd(nouns=("ant", "bee"), places=("hill", "road"), crosser=("tired",), crossed=("wet",))
    assert len(least.split(0).held_out) == 2


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"crossed": ("dog",)}, "the word 'dog' stands twice; allowed: each word once"),
        ({"places": ("bee", "road")}, "the word 'bee' stands twice"),
        ({"nouns": ("ant", "bee", "cow")}, "3 nouns; allowed: 4 to 64."),
        ({"nouns": ("ant",), "places": ("hill", "road")}, "1 nouns; allow"),
        ({"places": ("road",)}, "1 places; allowed: 2 to 64."),
        ({"crosser": ("tired", "weak")}, "2 adjectives of the crosser and 1 of the crossed; allowed"),
        ({"crosser": (), "crossed": ()}, "0 adjectives of the crosser and 0 of the crossed; allowed"),
        *(
            ({"nouns": ("ant", "bee", "cow", word)}, why)
            for word, why in (
                ("ant", "the word 'ant' stands twice"),
                ("cross", "the template has the word 'cross' already"),
                ("", "a word is empty (''); allowed: letters."),
                (" \t", "a word is empty"),
                ("sea lion", "the word 'sea lion' has ' '; allowed: small letters"),
                ("Dog", "the word 'Dog' has 'D'; allowed: small letters"),
                ("d0g", "the word 'd0g' has '0'; allowed"),
                ("-dog", "the word '-dog' begins or ends with '-'; allowed"),
                ("dog'", 'the word "dog\'" begins or ends with "\'"; allowed'),
                ("d" * 21, "has 21 letters; allowed: at most 20."),
                (4, "nouns is ('ant', 'bee', 'cow', 4); allowed: a list of words."),
            )
        ),
        ({"nouns": "ant"}, "nouns is 'ant'; allowed: a list of words."),
        ({"held_out_share": 0}, "held_out_share is 0; allowed: above 0, at most 1."),
        ({"held_out_share": 1.5}, "held_out_share is 1.5; allowed"),
        ({"held_out_share": True}, "held_out_share is True; allowed"),
        ({"held_out_share": float("nan")}, "held_out_share is nan; allowed"),
    ],
)
def test_a_wrong_language_is_refused_with_what_is_allowed(change, why):
    with pytest.raises(ValueError, match=re.escape(why)):
        Winograd(**{**WORDS, **change})


def test_words_of_other_scripts_and_with_hyphens_are_allowed():
    language = Winograd(**{**WORDS, "nouns": ("猫", "bête", "sea-lion", "o'possum")})
    assert language.encode("猫 bête sea-lion o'possum") == [12, 13, 14, 15]


@given(st.text(max_size=6))
def test_any_word_is_allowed_and_read_or_refused_in_a_sentence(word):
    try:
        language = Winograd(**{**WORDS, "nouns": ("ant", "bee", "cow", word)})
    except ValueError:
        return
    assert language.decode(language.encode(f"the {word} did")) == ["the", word, "did"]


# Its file


def test_a_language_survives_its_json_and_equal_ones_have_equal_digests():
    for language in (CLOSED, OPEN, EDITED):
        assert Winograd.from_json(language.to_json()) == language
    for text in (language.to_json() for language in shelf.BUILT_IN.values()):
        assert text == json.dumps(json.loads(text), sort_keys=True, separators=(",", ":"))
    assert replace(CLOSED, held_out_share=1).sha256 == CLOSED.sha256
    half, reversed_nouns = replace(CLOSED, held_out_share=0.5), replace(CLOSED, nouns=CLOSED.nouns[::-1])
    swapped = replace(CLOSED, crosser=CLOSED.crossed, crossed=CLOSED.crosser)
    assert len({one.sha256 for one in (CLOSED, OPEN, EDITED, half, reversed_nouns, swapped)}) == 6


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[1]", "a language is a JSON object, not list"),
        ("{}", "the kind of the language is None; allowed: 'winograd'."),
        (CLOSED.to_json().replace("waited", "slept"), "the template of the language is 'the {x}"),
        (CLOSED.to_json().replace('"places"', '"planets"'), "cannot be read: "),
        ("{", "Expecting property name"),
    ],
)
def test_what_is_no_language_is_refused(text, why):
    with pytest.raises(ValueError, match=re.escape(why)):
        Winograd.from_json(text)


# Their shelf


def test_the_built_in_ones_are_found_by_their_kind(home):
    assert list(shelf.BUILT_IN) == ["winograd-open", "winograd-closed", "induction"]
    for name, language in shelf.BUILT_IN.items():
        assert shelf.load(name) is language
        assert shelf.sha256_of(name) == language.sha256
        assert shelf.id_of(language) == language.kind == name
        assert shelf.is_language(name)
        assert shelf.title(name)
    assert shelf.keep(CLOSED) == "winograd-closed"
    assert not any(home.rglob("*")), "nothing to keep"


def test_an_edited_language_survives_a_restart(home, python):
    name = shelf.keep(EDITED)
    assert name == f"winograd-{EDITED.sha256[:16]}" == shelf.keep(EDITED)
    assert shelf.load(name) == EDITED
    assert shelf.title(name) == "Winograd, one pool of nouns, edited"
    ended = python("-c", f"from engine.data.languages import shelf; print(shelf.load({name!r}).nouns[-1])")
    assert (ended.stdout, ended.stderr) == ("camel\n", "")


def test_a_language_that_is_gone_changed_or_none_is_refused(home):
    name = shelf.keep(EDITED)
    (path,) = (paths.DATA / "languages").glob("*.json")
    path.write_text(path.read_text().replace("camel", "llama"))
    with pytest.raises(ValueError, match=r"has changed \(sha256 "):
        shelf.load(name)
    path.unlink()
    with pytest.raises(ValueError, match=f"{name} is not on this machine: edit the words again"):
        shelf.load(name)
    short, other = f"winograd-{'0' * 15}", f"upload-{'0' * 16}"
    for wrong in ("winograd", "winograd-CLOSED", "../etc/passwd", short, other):
        assert not shelf.is_language(wrong)
        with pytest.raises(ValueError, match=re.escape(f"No language is called {wrong!r}: winograd-open, ")):
            shelf.load(wrong)


# Repeated tokens


def test_a_sequence_is_one_word_said_again():
    rows = INDUCTION.unseen_rows(0)
    assert rows.shape == (256, 64)
    assert rows.dtype == np.int64
    periods = set()
    for row in rows.tolist():
        period = next(p for p in range(1, 64) if row[p:] == row[: 64 - p])
        assert len(set(row[:period])) == period, "no token twice in it, so that one token follows another"
        periods.add(period)
    assert periods == set(range(11, 32)), "drawn anew: looking back by a fixed number finds nothing"


@given(SEEDS)
def test_what_is_scored_can_be_known_and_what_it_is_set_against_cannot(seed):
    language = Repeats(vocab_size=40, shortest=5, length=32)
    for row in language.unseen_rows(seed)[:20].tolist():
        for position in range(language.context_length):
            followed = [b for a, b in pairwise(row[: position + 1]) if a == row[position]]
            if position in range(*language.known_all.indices(31)):
                assert followed[-1] == row[position + 1]
            if position in range(*language.known_nothing.indices(31)):
                assert not followed
                assert row[position + 1] not in row[: position + 1]
    assert language.known_all.start + 1 == language.half == 16


def test_sequences_are_a_seeds_and_those_that_are_measured_on_are_never_trained_on():
    train, unseen, halved = INDUCTION.train_rows(4), INDUCTION.unseen_rows(4), INDUCTION.halved_rows(4, 50)
    assert np.array_equal(train, INDUCTION.train_rows(4))
    assert not np.array_equal(unseen, INDUCTION.unseen_rows(5))
    assert halved.shape == (50, 62), "no longer than what a model was trained on"
    assert np.array_equal(halved[:, :31], halved[:, 31:])
    starts, *others = ({tuple(row[:8]) for row in rows.tolist()} for rows in (train, unseen, halved))
    assert (len(starts), len(others[1])) == (len(train), 50)
    assert not any(starts & other for other in others)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"length": 7}, "length is 7; allowed: a whole number from 8 to 128."),
        ({"length": 33}, "length is 33; allowed: an even number"),
        ({"shortest": 1}, "shortest is 1; allowed: a whole number from 2 to 31."),
        ({"shortest": 32}, "shortest is 32; allowed"),
        ({"vocab_size": 30}, "vocab_size is 30; allowed: a whole number from 31 to 80."),
        ({"vocab_size": 64.0}, "vocab_size is 64.0; allowed"),
    ],
)
def test_a_wrong_size_is_refused(change, why):
    with pytest.raises(ValueError, match=re.escape(why)):
        Repeats(**change)
