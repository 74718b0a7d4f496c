"""One attention layer caught stage by stage, against the same computed by hand."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from engine.chapter.experiments import VARIANTS
from engine.data import corpus
from engine.models.transformer import Transformer
from engine.probes import attention, models
from engine.probes.results.attention import Capture, steps
from engine.training import checkpoint
from tests.trainings import untrained

SENTENCE = "the king loves the queen, and the queen loves the king"
HEAD = VARIANTS["head-added"].config

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def trained(tmp_path):
    """A checkpoint of a head that is not the untrained one of seed 0, and its model."""
    path = untrained(tmp_path / "head-added.safetensors", HEAD, seed=7)
    return path, checkpoint.load_model(path)[0]


def captured(config, text=SENTENCE):
    """Its layers, untrained."""
    return attention.captured(models.untrained(config), text)


def by_hand(model):
    """The stages of one head in numpy, from nothing but its weights."""
    ids = corpus.shipped_vocabulary().encode(f" {SENTENCE}")
    named = {name: parameter.detach().numpy() for name, parameter in model.named_parameters()}
    x = named["token_embedding.weight"][ids] + named["positions.table.weight"][: len(ids)]
    q, k, v = (x @ named[f"blocks.0.0.sublayer.W_{name}.weight"].T for name in "QKV")
    scaled = q @ k.T / np.sqrt(q.shape[-1])
    ahead = np.triu(np.ones_like(scaled, dtype=bool), 1)
    powers = np.where(ahead, 0, np.exp(scaled))
    weights = powers / powers.sum(axis=-1, keepdims=True)
    return x, q @ k.T, scaled, ahead, weights, v, weights @ v


def test_every_stage_is_what_a_hand_would_compute(trained):
    path, model = trained
    caught = attention.capture(SENTENCE, path)
    x, products, scaled, ahead, weights, values, mixed = by_hand(model)
    assert caught.pieces[:2] == (" the", " king")
    np.testing.assert_allclose(caught.x, x, atol=1e-6)
    np.testing.assert_allclose(caught.raw, x @ x.T, atol=1e-3)
    np.testing.assert_allclose(caught.products[0], products, atol=1e-4)
    np.testing.assert_allclose(caught.scaled[0], scaled, atol=1e-5)
    np.testing.assert_array_equal(caught.masked, ahead)
    np.testing.assert_allclose(caught.weights[0], weights, atol=1e-6)
    np.testing.assert_allclose(caught.values[0], values, atol=1e-5)
    np.testing.assert_allclose(caught.mixed[0], mixed, atol=1e-5)
    assert all(getattr(caught, name).dtype == np.float32 for name in ("x", "products", "weights", "mixed"))


def test_the_map_is_the_models_own_computation(trained):
    path, model = trained
    caught = attention.capture(SENTENCE, path)
    ids = torch.tensor([corpus.shipped_vocabulary().encode(f" {SENTENCE}")])
    with torch.no_grad():
        logits = model.unembedding(torch.from_numpy(caught.x + caught.mixed[0]))
        torch.testing.assert_close(logits, model(ids)[0], atol=1e-4, rtol=1e-4)
    np.testing.assert_allclose(caught.weights.sum(axis=-1), 1, atol=1e-6)
    assert (caught.weights[:, caught.masked] == 0).all()


def test_an_untrained_model_is_the_one_that_seed_0_begins_with():
    before = torch.random.get_rng_state()
    models.untrained.cache_clear()
    (caught,) = captured(HEAD)
    assert torch.equal(before, torch.random.get_rng_state())  # nobody else's draws are moved
    np.testing.assert_array_equal(attention.capture(SENTENCE).weights, caught.weights)
    torch.manual_seed(0)
    np.testing.assert_allclose(caught.weights[0], by_hand(Transformer(HEAD))[4], atol=1e-6)


def test_several_layers_and_heads_without_and_with_a_mask():
    layers = captured(replace(HEAD, n_layer=2, n_head=4, connection="pre-norm", output_projection=True))
    assert [layer.weights.shape for layer in layers] == [(4, 14, 14)] * 2
    assert layers[0].values.shape == (4, 14, 32)
    assert not np.allclose(layers[0].x, layers[1].x)
    (open_,) = captured(VARIANTS["unmasked"].config)
    assert not open_.masked.any()
    assert (open_.weights > 0).all()


@pytest.mark.parametrize("scale", ["none", "width", "learned", "qk-norm"])
def test_the_scale_is_what_lies_between_products_and_scores(scale):
    (caught,) = captured(replace(HEAD, score_scale=scale))
    factor = {"none": 1, "width": 1 / 128}.get(scale, 128**-0.5)
    np.testing.assert_allclose(caught.products * factor, caught.scaled, atol=1e-4)


def test_raw_scores_point_at_the_token_itself_and_are_mutual():
    (caught,) = captured(HEAD)
    found = steps(caught)
    assert (found.rows, found.own_raw) == (13, 13)
    # Products of 128 terms; x·y and y·x may be added in another order, on some processors.
    rounding = 128 * np.finfo(np.float32).eps
    assert found.mirror_raw <= rounding * caught.raw.max()
    assert found.asymmetry_raw <= rounding
    assert found.own_score < 13
    assert found.mirror_score > 1
    assert 0.4 < found.asymmetry_score < 0.8
    assert -1 <= found.likeness < 0.99
    (raw,) = captured(VARIANTS["raw"].config)
    same = steps(raw)
    assert same.own_score == 13
    assert same.asymmetry_score < 1e-6
    assert same.likeness == pytest.approx(1)


def test_steps_by_hand():
    x = np.eye(3, dtype=np.float32)
    caught = Capture(
        pieces=("a", "b", "c"),
        x=x,
        raw=x @ x.T,
        products=np.array([[[0, 1, 2], [1, 0, 2], [5, 1, 0]]], np.float32),
        scaled=np.zeros((1, 3, 3), np.float32),
        masked=np.triu(np.ones((3, 3), bool), 1),
        weights=np.array([[[1, 0, 0], [0.6, 0.4, 0], [0.2, 0.5, 0.3]]], np.float32),
        keys=x[None],
        values=np.array([[[1, 0, 0], [0, 9, 0], [0, 0, 1]]], np.float32),
        mixed=np.zeros((1, 3, 3), np.float32),
    )
    found = steps(caught)
    assert (found.rows, found.own_raw, found.own_score) == (2, 2, 0)
    assert found.mirror_score == 3  # 2 against 5
    assert found.asymmetry_score == pytest.approx(np.sqrt(2 * (9 + 1)) / (2 * 6))
    assert found.likeness is None  # no two keys are more alike than others
    assert found.moved == 1  # row b looks most at a, but 0.4 of 9 is more than 0.6 of 1


@pytest.mark.parametrize("text", ["a", "To be"])
def test_one_or_two_tokens_have_no_pairs_to_compare(text):
    (caught,) = captured(HEAD, text)
    found = steps(caught)
    assert found.rows == len(caught.pieces) - 1
    assert (found.likeness is None) == (len(caught.pieces) < 3)


@pytest.mark.parametrize(
    ("source", "text", "complaint"),
    [
        (HEAD, "  ", "Type at least one word."),
        (HEAD, "word " * 200, "allowed: 1 to 128."),
        (VARIANTS["average"].config, SENTENCE, "mixer 'average' has no queries and keys"),
    ],
)
def test_what_cannot_be_looked_into_is_said(source, text, complaint):
    with pytest.raises(ValueError, match=complaint):
        captured(source, text)
