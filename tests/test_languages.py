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


def said(language, rows):
    return [" ".join(language.decode(row)) for row in rows]


# The Winograd language


def test_the_sentences_are_the_chapters():
    tired, wet = (Sentence("animal", "street", adjective) for adjective in ("tired", "wet"))
    assert said(CLOSED, CLOSED.rows([tired, wet])) == [
        "the animal did not cross the street because it was too tired , so the animal waited .",
        "the animal did not cross the street because it was too wet , so the street waited .",
    ]
    assert (LENGTH, DECISION, ANSWER) == (18, 14, 15)
    assert (len(CLOSED.nouns), len(CLOSED.crosser), len(CLOSED.crossed)) == (16, 4, 4)
    assert CLOSED.crosser == ("tired", "scared", "slow", "weak")
    assert CLOSED.crossed == ("wet", "wide", "busy", "steep")


@pytest.mark.parametrize("language", [CLOSED, OPEN], ids=["closed", "open"])
def test_every_answer_follows_its_rule(language):
    split = language.split(3)
    rows = language.rows(language.sentences((*split.train, *split.held_out)))
    assert rows.dtype == np.int64
    assert rows.shape == (len(language.adjectives) * len((*split.train, *split.held_out)), LENGTH)
    for row in rows:
        words = language.decode(row)
        meant, other = (FIRST, SECOND) if words[ADJECTIVE] in language.crosser else (SECOND, FIRST)
        sentence = Sentence(words[FIRST], words[SECOND], words[ADJECTIVE])
        assert words[ANSWER] == words[meant] == language.referent(sentence)
        assert words[other] == language.other(sentence)
        assert words[FIRST] != words[SECOND]
    assert len({tuple(row) for row in rows.tolist()}) == len(rows), "no sentence twice"


@given(SEEDS)
def test_closed_what_is_held_out_is_the_reverse_of_what_is_trained_on(seed):
    split = CLOSED.split(seed)
    train, held_out = set(split.train), set(split.held_out)
    assert not train & held_out
    assert {pair[::-1] for pair in held_out} == train
    assert len(split.train) == len(split.held_out) == len(train) == 16 * 15 / 2


@given(SEEDS, st.floats(0.01, 1))
def test_closed_a_share_of_the_pairs_has_one_order_held_out_and_the_rest_none(seed, share):
    split = replace(CLOSED, held_out_share=share).split(seed)
    train, held_out = set(split.train), set(split.held_out)
    assert len(held_out) == max(1, round(share * 120)) == len(split.held_out)
    assert not train & held_out
    assert {pair[::-1] for pair in held_out} <= train
    assert len(train) + len(held_out) == 16 * 15
    assert len(split.train) == len(train)


@given(SEEDS, st.floats(0.01, 1))
def test_open_pairs_are_held_out_and_every_noun_stays_in_training(seed, share):
    language = replace(OPEN, places=OPEN.places[:5], held_out_share=share)
    split = language.split(seed)
    train, held_out = set(split.train), set(split.held_out)
    assert not train & held_out
    assert train | held_out == {(noun, place) for noun in language.nouns for place in language.places}
    assert len(held_out) == min(40 - 8, max(1, round(share * 40)))
    assert {noun for pair in train for noun in pair} == {*language.nouns, *language.places}


@pytest.mark.parametrize("language", [CLOSED, OPEN], ids=["closed", "open"])
def test_a_seed_is_a_split_and_another_seed_another(language):
    splits = [language.split(seed) for seed in (*range(20), 2**53, 2**53 + 1)]
    assert len({frozenset(split.train) for split in splits}) == len(splits)
    assert language.split(7) == splits[7]


def test_a_split_stays_what_it_was():
    # Runs and references are bound to it by their seed alone.
    assert CLOSED.split(0).train[:3] == CLOSED_0
    assert OPEN.split(0).held_out[:3] == OPEN_0


CLOSED_0 = (("path", "horse"), ("valley", "duck"), ("duck", "street"))
OPEN_0 = (("animal", "street"), ("farmer", "street"), ("horse", "hill"))


@given(st.data())
def test_ids_go_there_and_back(data):
    ids = data.draw(st.lists(st.integers(0, len(CLOSED.words) - 1), max_size=LENGTH))
    assert CLOSED.encode(" ".join(CLOSED.decode(ids))) == ids


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


def test_the_open_version_takes_no_place_for_an_animal():
    with pytest.raises(ValueError, match="word 1 is 'street'; allowed there: animal, child"):
        OPEN.read("the street did not cross the river because it was too wet , so the")


def test_an_id_out_of_range_is_refused():
    with pytest.raises(ValueError, match=r"token 36; allowed: 0 to 35\."):
        CLOSED.decode([0, 36])


def test_a_language_of_the_least_size_is_allowed():
    assert len(Winograd(**WORDS).split(0).train) == 6
    least = Winograd(nouns=("ant", "bee"), places=("hill", "road"), crosser=("tired",), crossed=("wet",))
    assert len(least.split(0).held_out) == 2


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"nouns": ("ant", "bee", "cow", "ant")}, "the word 'ant' stands twice; allowed: each word once"),
        ({"crossed": ("dog",)}, "the word 'dog' stands twice"),
        ({"places": ("bee", "road")}, "the word 'bee' stands twice"),
        ({"nouns": ("ant", "bee", "cow")}, "3 nouns; allowed: 4 to 64."),
        (
            {"nouns": tuple(f"ant{'x' * n}" for n in range(17))[:1], "places": ("hill", "road")},
            "1 nouns; allow",
        ),
        ({"places": ("road",)}, "1 places; allowed: 2 to 64."),
        (
            {"crosser": ("tired", "weak")},
            "2 adjectives of the crosser and 1 of the crossed; allowed: as many",
        ),
        ({"crosser": (), "crossed": ()}, "0 adjectives of the crosser and 0 of the crossed; allowed"),
        ({"nouns": ("ant", "bee", "cow", "cross")}, "the template has the word 'cross' already"),
        ({"nouns": ("ant", "bee", "cow", "")}, "a word is empty (''); allowed: letters."),
        ({"nouns": ("ant", "bee", "cow", " \t")}, "a word is empty"),
        ({"nouns": ("ant", "bee", "cow", "sea lion")}, "the word 'sea lion' has ' '; allowed: small letters"),
        ({"nouns": ("ant", "bee", "cow", "Dog")}, "the word 'Dog' has 'D'; allowed: small letters"),
        ({"nouns": ("ant", "bee", "cow", "d0g")}, "the word 'd0g' has '0'; allowed"),
        ({"nouns": ("ant", "bee", "cow", "dog.")}, "the word 'dog.' has '.'; allowed"),
        ({"nouns": ("ant", "bee", "cow", "-dog")}, "the word '-dog' begins or ends with '-'; allowed"),
        ({"nouns": ("ant", "bee", "cow", "dog'")}, 'the word "dog\'" begins or ends with "\'"; allowed'),
        ({"nouns": ("ant", "bee", "cow", "d" * 21)}, "has 21 letters; allowed: at most 20."),
        ({"nouns": "ant"}, "nouns is 'ant'; allowed: a list of words."),
        ({"nouns": ("ant", "bee", "cow", 4)}, "nouns is ('ant', 'bee', 'cow', 4); allowed: a list of words."),
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
    assert replace(CLOSED, held_out_share=1).sha256 == CLOSED.sha256
    changed = [
        replace(CLOSED, held_out_share=0.5),
        replace(CLOSED, nouns=CLOSED.nouns[::-1]),
        replace(CLOSED, crosser=CLOSED.crossed, crossed=CLOSED.crosser),
        EDITED,
        OPEN,
    ]
    assert len({language.sha256 for language in (CLOSED, *changed)}) == len(changed) + 1


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
    for wrong in (
        "winograd",
        "winograd-CLOSED",
        "../etc/passwd",
        "winograd-" + "0" * 15,
        "upload-" + "0" * 16,
    ):
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


def test_sequences_are_a_seeds_and_unseen_ones_are_never_trained_on():
    train, unseen = INDUCTION.train_rows(4), INDUCTION.unseen_rows(4)
    assert np.array_equal(train, INDUCTION.train_rows(4))
    assert not np.array_equal(unseen, INDUCTION.unseen_rows(5))
    starts = {tuple(row[:8]) for row in train.tolist()}
    assert len(starts) == len(train)
    assert not starts & {tuple(row[:8]) for row in unseen.tolist()}


def test_halved_sequences_repeat_their_half_and_are_seen_by_no_model():
    rows = INDUCTION.halved_rows(4, 50)
    assert rows.shape == (50, 62)
    assert np.array_equal(rows[:, :31], rows[:, 31:])
    assert rows.shape[1] <= INDUCTION.context_length, "a model that was trained on the language can read them"
    starts = {tuple(row[:8]) for row in rows.tolist()}
    assert len(starts) == 50
    assert not starts & {tuple(row[:8]) for row in INDUCTION.train_rows(4).tolist()}


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


def test_the_canonical_json_is_one_line_of_sorted_keys():
    for language in shelf.BUILT_IN.values():
        fields = json.loads(language.to_json())
        assert list(fields) == sorted(fields)
        assert "\n" not in language.to_json()
