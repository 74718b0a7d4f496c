"""Generation: each token drawn with its probability, from the last tokens that the model has room for."""

import itertools
import math
from dataclasses import replace
from typing import get_args

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.chapter.experiments import VARIANTS
from engine.models.config import Mixer, ModelConfig
from engine.models.transformer import Transformer
from engine.training.generation import generate, next_logits, next_probabilities

pytestmark = pytest.mark.usefixtures("one_thread")

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


# Which tokens may come


def test_it_is_the_softmax_at_a_temperature():
    logits = torch.randn(40, generator=seeded())
    assert torch.allclose(next_probabilities(logits), logits.double().softmax(0))
    assert torch.allclose(next_probabilities(logits, temperature=0.3), (logits.double() / 0.3).softmax(0))


def test_of_equal_logits_the_first_is_taken_at_temperature_zero():
    assert next_probabilities(torch.zeros(10), temperature=0).tolist() == [1.0] + [0.0] * 9


@pytest.mark.parametrize("temperature", [0, 0.0, 5e-324, 1e-300, 1e-9])
def test_no_temperature_is_too_small_or_too_large(temperature):
    logits = torch.tensor([1.0, 3.0, 2.0])
    assert next_probabilities(logits, temperature=temperature).tolist() == [0, 1, 0]
    assert next_probabilities(logits, temperature=1e300).tolist() == pytest.approx([1 / 3] * 3)


@given(st.lists(st.floats(-1e4, 1e4, width=32), min_size=1, max_size=30), st.floats(0, 100))
def test_probabilities_are_ever_probabilities_of_the_largest(logits, temperature):
    logits = torch.tensor(logits)
    found = next_probabilities(logits, temperature=temperature)
    assert found.sum().item() == pytest.approx(1)
    assert (found >= 0).all()
    assert found[logits.argmax()] == found.max() > 0


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
    ],
)
def test_what_cannot_be_is_refused_before_the_first_token(change, said):
    arguments = {"ids": [1], "tokens": 3, **change}
    with pytest.raises(ValueError, match="allowed") as refused:
        generate(model(), arguments.pop("ids"), **arguments)
    assert str(refused.value) == said
