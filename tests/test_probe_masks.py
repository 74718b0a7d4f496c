"""Masks and softmax: one average three ways, what scores become, what leaks, and the row without a key."""

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from engine.chapter.experiments import VARIANTS
from engine.data import corpus
from engine.models.mixers import causal_softmax
from engine.probes import leaks, masks, schemes
from engine.training import checkpoint
from tests.trainings import untrained

SIZES = (1.0, 100.0, 1000.0, 10_000.0, 20_000.0, 1e9, 1e10)
GRIDS = st.lists(st.floats(-50, 50), min_size=36, max_size=36).map(lambda row: np.array(row).reshape(6, 6))


@pytest.fixture(scope="module")
def measured():
    return {(one.kind, one.value): one for one in leaks.constants(list(SIZES))}


@given(st.integers(1, 128), st.integers(0, 9_999))
@example(6, 0)
def test_three_ways_give_one_average(tokens, seed):
    found = masks.three_ways(tokens, seed)
    assert len(found.differences) == 3
    if (tokens, seed) == (6, 0):
        assert 0 < max(found.differences.values()) < 1e-7, "the chapter's difference"
        assert found.magnitude > 0.1
    assert max(found.differences.values()) < 5e-7


@given(GRIDS)
def test_the_weights_are_those_of_the_models_softmax(scores):
    theirs = causal_softmax(torch.from_numpy(scores)).numpy()
    assert np.allclose(masks.mix(scores).weights, theirs, atol=1e-12)


@given(st.floats(-1e4, 1e4), st.sampled_from([0.1, 1.0, 10.0, 100.0]))
def test_equal_scores_give_one_over_t_whatever_they_are_multiplied_by(score, times):
    found = masks.mix(np.full((6, 6), score), times)
    for t in range(6):
        assert found.weights[t, : t + 1] == pytest.approx(1 / (t + 1))
        assert found.effective[t] == pytest.approx(t + 1)


@given(GRIDS, st.booleans())
def test_rows_sum_to_one_what_is_ahead_gets_nothing_and_a_mean_stays_between_its_values(scores, causal):
    found = masks.mix(scores, causal=causal)
    assert found.weights.sum(axis=1) == pytest.approx(1)
    assert not causal or not found.weights[np.triu_indices(6, 1)].any()
    assert (np.linalg.norm(found.mixed, axis=1) <= 1 + 1e-9).all()
    assert (found.effective >= 1 - 1e-9).all()
    assert (found.effective <= 6 + 1e-9).all()


@given(GRIDS)
def test_multiplying_hardens_the_softmax_and_leaves_a_linear_layers_shares(scores):
    counts = [masks.mix(scores, times) for times in (0.1, 1.0, 10.0)]
    for softer, harder in pairwise(counts):
        assert (harder.effective <= softer.effective + 1e-6).all()
        assert np.allclose(harder.linear_effective, softer.linear_effective, equal_nan=True)


def test_a_linear_layer_of_zeros_has_no_shares():
    assert np.isnan(masks.mix(np.zeros((6, 6))).linear_effective).all()


def test_minus_infinity_never_leaks(measured):
    for kind in leaks.DTYPES:
        one = measured[kind, "-inf"]
        assert one.filled == one.cast == -math.inf
        assert {leak for leak in one.leaks.values() if leak is not None} == {0.0}


def test_a_constant_leaks_once_the_scores_reach_its_size(measured):
    for kind in ("float32", "bfloat16"):
        small, large = measured[kind, "-1e4"].leaks, measured[kind, "-1e9"].leaks
        assert small[1000.0] == 0
        assert small[10_000.0] > 0.01
        assert small[20_000.0] > small[10_000.0]
        assert large[20_000.0] == 0
        assert large[1e9] > 0.01


def test_float16_refuses_what_it_cannot_hold_a_cast_says_nothing_and_bfloat16_rounds(measured):
    refused, kept = measured["float16", "-1e9"], measured["float16", "-1e4"]
    assert (refused.filled, refused.cast) == (None, -math.inf)
    assert "overflow" in refused.refusal
    assert set(refused.leaks.values()) == {None}
    assert kept.filled == -1e4
    assert kept.leaks[10_000.0] > 0.01
    assert kept.leaks[20_000.0] is None
    rounded = measured["bfloat16", "-1e9"]
    assert -1e9 != rounded.filled == rounded.cast == pytest.approx(-1e9, rel=1 / 256)


def test_six_ways_agree_where_there_is_something_to_see():
    others = torch.arange(leaks.TOKENS) != leaks.EMPTY_ROW
    rows = [attend(leaks._Layer())[others] for attend in leaks.WAYS.values()]
    for row in rows[1:]:
        assert torch.allclose(row, rows[0], atol=1e-6)


def test_the_row_with_nothing_to_see():
    found = {one.way: one for one in leaks.empty_rows()}
    likes = [one.like for one in found.values()]
    assert likes == ["nan", "mean", "bias", "bias", "nan", "bias"]
    for one in found.values():
        assert all(map(math.isnan, one.output)) == (one.like == "nan")
        assert bool(one.nan_gradients) == (one.like == "nan")
    assert found["nn.MultiheadAttention"].nan_gradients == ["W_Q", "W_K", "W_V", "W_O"]


def test_the_probes_leave_the_global_generator_alone():
    torch.manual_seed(3)
    before = torch.random.get_rng_state()
    leaks.empty_rows()
    leaks.constants([1.0])
    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.fixture
def models(tmp_path, tiny_corpus, one_thread):
    """A masked and an unmasked head, untrained, as checkpoints."""
    configs = {name: VARIANTS[name].config for name in ("head-added", "unmasked")}
    return {
        name: untrained(tmp_path / name, replace(config, max_positions=16, d_model=32))
        for name, config in configs.items()
    }


def test_a_sample_begins_with_its_prompt_and_repeats_by_its_seed(models, tiny_corpus):
    first, again, other = (leaks.sample(models["unmasked"], tiny_corpus, "aha noe", n) for n in (0, 0, 1))
    assert first.text.startswith("aha noe")
    assert first == again
    assert other.text != first.text
    assert other.blind_perplexity == first.blind_perplexity > 1


def test_the_blind_loss_is_the_last_positions(models, tiny_corpus):
    model = checkpoint.load_model(models["unmasked"])[0]
    held_out = torch.from_numpy(corpus.load(tiny_corpus).held_out_ids.astype("int64"))
    windows = held_out.unfold(0, 17, leaks.STRIDE)
    with torch.inference_mode():
        logits = model(windows[:, :-1])[:, -1]
    expected = torch.nn.functional.cross_entropy(logits, windows[:, -1]).item()
    assert schemes.last_loss(model, windows) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("prompt", ["", "  ", "zyx" * 60])
def test_a_prompt_without_tokens_or_too_long_is_refused_in_a_sentence(models, tiny_corpus, prompt):
    with pytest.raises(ValueError, match=r"The prompt has \d+ tokens; allowed: 1 to 16\."):
        leaks.sample(models["head-added"], tiny_corpus, prompt, 0)
