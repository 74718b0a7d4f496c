"""Generation: sampling exactly as asked (field case 20), and streamed text that is the decoded text (05)."""

import itertools
import math
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from engine.chapter.experiments import VARIANTS
from engine.data import corpus
from engine.models.config import Mixer, ModelConfig
from engine.models.transformer import Transformer
from engine.training.generation import generate, longest_context, next_logits, next_probabilities, stream_text

pytestmark = pytest.mark.usefixtures("one_thread")

CASES = Path(__file__).parent / "cases"
CASE_20 = torch.tensor([0.5, 0.35, 0.1, 0.05], dtype=torch.float64).log()
EMOJI = "\N{WOMAN}\N{ZERO WIDTH JOINER}\N{ROCKET}"
SMALL = ModelConfig(
    vocab_size=50, d_model=16, mixer="attention", connection="add", positions="learned", max_positions=8
)


def model(config=SMALL, seed=0):
    torch.manual_seed(seed)
    return Transformer(config)


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def continued(made, ids, tokens=20, **how):
    return list(generate(made, ids, tokens=tokens, **how))


def kept(logits, **how):
    return (next_probabilities(logits, **how) > 0).tolist()


# Which tokens may come


def test_without_filters_it_is_the_softmax():
    logits = torch.randn(40, generator=seeded())
    assert torch.allclose(next_probabilities(logits), logits.double().softmax(0))
    assert torch.allclose(next_probabilities(logits, temperature=0.3), (logits.double() / 0.3).softmax(0))


@pytest.mark.parametrize(
    ("top_p", "count"),
    [(0, 1), (0.0, 1), (1e-300, 1), (0.49, 1), (0.51, 2), (0.84, 2), (0.9, 3), (0.96, 4), (1, 4)],
)
def test_top_p_keeps_the_token_that_crosses_it(top_p, count):
    assert kept(CASE_20, top_p=top_p) == [True] * count + [False] * (4 - count)
    shuffled = CASE_20[[2, 0, 3, 1]]
    assert kept(shuffled, top_p=top_p) == [rank < count for rank in (2, 0, 3, 1)]


def test_what_is_kept_keeps_its_proportions():
    three, two = next_probabilities(CASE_20, top_p=0.9), next_probabilities(CASE_20, top_k=2)
    assert three.tolist() == pytest.approx([0.5 / 0.95, 0.35 / 0.95, 0.1 / 0.95, 0])
    assert two.tolist() == pytest.approx([0.5 / 0.85, 0.35 / 0.85, 0, 0])
    for no_filter in (4, 5, 5000):
        assert torch.equal(next_probabilities(CASE_20, top_k=no_filter), next_probabilities(CASE_20))


def test_top_p_counts_what_top_k_left():
    # of the two that are left, the first holds .5 / .85 = .588
    assert kept(CASE_20, top_k=2, top_p=0.55) == [True, False, False, False]
    assert kept(CASE_20, top_p=0.55) == [True, True, False, False]


def test_of_equal_logits_exactly_as_many_are_kept_as_were_asked_for():
    equal = torch.zeros(10)
    assert kept(equal, top_k=3) == [True] * 3 + [False] * 7
    assert kept(equal, top_p=0) == [True] + [False] * 9
    assert next_probabilities(equal, temperature=0).tolist() == [1.0] + [0.0] * 9


@pytest.mark.parametrize("temperature", [0, 0.0, 5e-324, 1e-300, 1e-9])
def test_no_temperature_is_too_small_or_too_large(temperature):
    logits = torch.tensor([1.0, 3.0, 2.0])
    assert next_probabilities(logits, temperature=temperature).tolist() == [0, 1, 0]
    assert next_probabilities(logits, temperature=1e300).tolist() == pytest.approx([1 / 3] * 3)


@given(
    st.lists(st.floats(-1e4, 1e4, width=32), min_size=1, max_size=30),
    st.floats(0, 100),
    st.none() | st.integers(1, 40),
    st.none() | st.floats(0, 1),
)
def test_probabilities_are_ever_probabilities_of_the_largest(logits, temperature, top_k, top_p):
    logits = torch.tensor(logits)
    found = next_probabilities(logits, temperature=temperature, top_k=top_k, top_p=top_p)
    assert found.sum().item() == pytest.approx(1)
    assert (found >= 0).all()
    assert 1 <= (found > 0).sum() <= (top_k or len(logits))
    assert found[logits.argmax()] == found.max() > 0
    if (found == 0).any():
        assert logits[found > 0].min() >= logits[found == 0].max()


@pytest.mark.parametrize("lost", [math.nan, math.inf])
def test_logits_that_are_no_numbers_are_said(lost):
    said = rf"^the largest logit is {lost}: the model is lost; allowed: numbers\.$"
    with pytest.raises(ValueError, match=said):
        next_probabilities(torch.tensor([0.0, lost]))
    made = model()
    torch.nn.init.constant_(made.unembedding.weight, math.nan)
    with pytest.raises(ValueError, match="the model is lost"):
        continued(made, [1])
    assert next_probabilities(torch.tensor([0.0, -math.inf])).tolist() == [1, 0]


# Generation


def test_temperature_zero_is_the_argmax_and_repeatable():
    made, ids = model(), [3, 1, 4]
    greedy = continued(made, ids, temperature=0)
    assert greedy == continued(made, ids, temperature=0, generator=seeded(5))
    for place, token in enumerate(greedy):
        before = (ids + greedy[:place])[-8:]
        with torch.no_grad():
            assert made(torch.tensor([before]))[0, -1].argmax() == token


def test_the_same_seed_gives_the_same_text_and_another_seed_another():
    made = model()
    first, again, other = (continued(made, [1], generator=seeded(seed)) for seed in (0, 0, 1))
    assert first == again != other


def test_tokens_come_with_the_frequency_of_their_probability():
    made = model()
    expected = next_logits(made, [7]).softmax(0)
    generator = seeded()
    drawn = [continued(made, [7], tokens=1, generator=generator)[0] for _ in range(3000)]
    shares = torch.bincount(torch.tensor(drawn), minlength=50) / 3000
    assert (shares - expected).abs().max() < 4 * (expected.max() / 3000) ** 0.5


def test_only_as_many_are_computed_as_are_asked_for():
    made, calls = model(), []
    made.register_forward_hook(lambda *_: calls.append(1))
    stream = generate(made, [1], tokens=1_000_000)
    assert calls == []
    assert len(list(itertools.islice(stream, 3))) == len(calls) == 3
    assert continued(made, [1], tokens=0) == []


def test_it_leaves_the_model_and_the_caller_as_they_were():
    made = model()
    modes = []
    made.register_forward_pre_hook(lambda module, _: modes.append((module.training, torch.is_grad_enabled())))
    for mode in (True, False):
        made.train(mode)
        for _ in generate(made, [1], tokens=2):
            assert made.training == mode
            assert torch.is_grad_enabled()
            assert not torch.is_inference_mode_enabled()
    assert modes == [(False, False)] * 4
    assert all(parameter.grad is None for parameter in made.parameters())


WINDOWS = {
    **{f"a prompt of {length}": (SMALL, length, 8) for length in (1, 7, 8)},
    "a long prompt": (VARIANTS["head-added"].config, 300, 128),
    **{
        f"one token, {mixer}": (replace(SMALL, mixer=mixer, max_positions=1), 3, 1)
        for mixer in get_args(Mixer)
    },
}


@pytest.mark.parametrize(("config", "length", "window"), WINDOWS.values(), ids=WINDOWS)
def test_a_text_that_outgrows_the_context_slides(config, length, window):
    made, seen = model(config), []
    ids = torch.randint(config.vocab_size, (length,), generator=seeded()).tolist()
    made.register_forward_pre_hook(lambda _, arguments: seen.append(arguments[0][0].tolist()))
    drawn = continued(made, ids, tokens=12, generator=seeded())
    assert seen == [(ids + drawn[:place])[-window:] for place in range(12)]
    assert drawn == continued(made, ids[-window:], tokens=12, generator=seeded())


def test_a_context_may_be_longer_only_where_no_table_ends():
    free = ModelConfig(mixer="attention", max_positions=8)
    assert longest_context(free) == 8
    assert longest_context(free, 300) == 300
    for bound in ({"positions": "learned"}, {"mixer": "matrix"}):
        config = ModelConfig(max_positions=8, **bound)
        assert longest_context(config, 8) == 8
        with pytest.raises(ValueError, match=r"^context_length is 9; allowed: a whole number from 1 to 8\.$"):
            longest_context(config, 9)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"ids": []}, "the prompt is empty; allowed: at least 1 token to continue from."),
        ({"ids": [3, 50]}, "the prompt holds token 50; allowed: a whole number from 0 to 49."),
        ({"ids": [-1]}, "the prompt holds token -1; allowed: a whole number from 0 to 49."),
        ({"tokens": -1}, "tokens is -1; allowed: a whole number from 0 up."),
        ({"tokens": 2.0}, "tokens is 2.0; allowed: a whole number from 0 up."),
        *(
            ({"temperature": wrong}, f"temperature is {wrong!r}; allowed: a number from 0 up.")
            for wrong in (-0.1, math.nan, math.inf, "1")
        ),
        ({"top_k": 0}, "top_k is 0; allowed: a whole number from 1 up."),
        ({"top_k": True}, "top_k is True; allowed: a whole number from 1 up."),
        *(
            ({"top_p": wrong}, f"top_p is {wrong!r}; allowed: a number from 0 to 1.")
            for wrong in (1.01, -1, math.nan)
        ),
        ({"context_length": 0}, "context_length is 0; allowed: a whole number from 1 to 8."),
    ],
)
def test_what_cannot_be_is_refused_before_the_first_token(change, said):
    arguments = {"ids": [1], "tokens": 3, **change}
    with pytest.raises(ValueError, match="allowed") as refused:
        generate(model(), arguments.pop("ids"), **arguments)
    assert str(refused.value) == said


# The text as it comes


@pytest.fixture
def chinese(home):
    return corpus.add_upload((CASES / "zh_emoji.txt").read_bytes(), "zh_emoji.txt")


@pytest.fixture(scope="module")
def vocabulary():
    return corpus.shipped_vocabulary()


@pytest.mark.parametrize("name", ["zh_emoji", "zh300_mixed", "specials"])
def test_whole_characters_come_as_they_are(chinese, name):
    text = (CASES / f"{name}.txt").read_bytes().decode()[:3000] + EMOJI
    ids = chinese.encode(text)
    assert "".join(stream_text(chinese, ids)) == text
    assert any(piece not in text for piece in chinese.pieces(ids)), "alone some tokens are but bytes"


def test_a_part_of_a_character_is_held_back_until_it_is_whole(vocabulary):
    ids = vocabulary.encode(f"a{EMOJI}b")
    assert len(ids) == 13  # Shakespeare's vocabulary has no emoji: byte by byte
    assert list(stream_text(vocabulary, ids)) == ["a", *EMOJI, "b"]


def test_text_comes_no_later_than_it_is_whole(vocabulary):
    fed = []

    def feed():
        for i in vocabulary.encode("é\N{ROCKET}"):
            fed.append(i)
            yield i

    stream = stream_text(vocabulary, feed())
    assert (next(stream), len(fed)) == ("é", 2)
    assert (next(stream), len(fed)) == ("\N{ROCKET}", 6)
    assert list(stream) == []


def byte_ids(vocabulary, data):
    return [vocabulary.token_bytes.index(bytes([byte])) for byte in data]


def test_a_broken_byte_is_shown_as_that_byte(vocabulary):
    ids = byte_ids(vocabulary, b"a\xf0\x9fb\xff\xe4\xbd")
    assert list(stream_text(vocabulary, ids)) == ["a", "\\xf0\\x9fb", "\\xff", "\\xe4\\xbd"]


@given(st.binary(max_size=40) | st.text(max_size=12).map(lambda text: text.encode(errors="surrogatepass")))
@example(b"\xed\xa0\x80")  # half a character
@example(b"\xf4\x90\x80\x80")  # beyond the last
@example(b"\xf0\x9f\x9a")
def test_any_bytes_stream_to_what_they_decode_to(vocabulary, data):
    ids = byte_ids(vocabulary, data)
    assert "".join(stream_text(vocabulary, ids)) == vocabulary.decode(ids)


@given(st.lists(st.integers(0, 1023), max_size=60))
def test_any_tokens_stream_to_what_they_decode_to(vocabulary, ids):
    parts = list(stream_text(vocabulary, ids))
    assert "".join(parts) == vocabulary.decode(ids)
    assert "" not in parts
