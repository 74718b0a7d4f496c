"""What a block is on fixed weights: linear with its attention frozen, and normalised token by token."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from engine.chapter.experiments import VARIANTS
from engine.probes import block, models, samples
from engine.system.errors import InvalidInput
from tests.trainings import untrained

CONFIG = VARIANTS["block"].config


pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def measured():
    return block.claims()


def bends(claims):
    return {row.layer: row.bent for row in claims.linearity.rows}


def test_frozen_attention_is_linear_to_rounding_and_the_feed_forward_is_not(measured):
    found = bends(measured)
    for layer in ("frozen", "frozen-twice", "without-gelu"):
        assert 0 < found[layer] < 20 * measured.linearity.rounding
    assert found["feed-forward"] > 0.1
    assert found["attention"] > 0.1


def test_the_frozen_layer_is_the_layer_itself_at_its_own_weights():
    model = models.untrained(CONFIG)
    attention, _ = block.parts_of(model)
    x = torch.randn(2, 9, CONFIG.d_model, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        again = block.frozen(attention, attention.attention_weights(x))(x)
        torch.testing.assert_close(again, attention(x))


def test_a_linear_map_with_a_bias_is_not_bent_and_a_bent_one_is():
    torch.manual_seed(0)
    x, y = torch.randn(2, 1, 4, 8)
    with torch.no_grad():
        assert block.bent(nn.Linear(8, 8), x, y) < 1e-5
        assert block.bent(torch.relu, x, y) > 0.1


def test_along_a_line_frozen_attention_is_straight(measured):
    line = measured.linearity.line
    assert line["t"][0] == -3 == -line["t"][-1]
    uneven = {name: np.ptp(np.diff(line[name])) for name in ("frozen", "feed-forward")}
    assert uneven["frozen"] < 2e-3
    assert uneven["feed-forward"] > 0.02
    for name in uneven:
        assert max(map(abs, line[name])) == pytest.approx(1)


def test_layer_norm_keeps_its_four_promises_and_batch_norm_does_not(measured):
    rows = {row.norm: row for row in measured.norms.rows}
    ours = rows["layer-norm"]
    assert (ours.batch, ours.running, ours.mode, ours.length, ours.single) == (0, 0, 0, 0, "")
    training, inference = rows["batch-norm"], rows["batch-norm-inference"]
    assert training.running == 2 * CONFIG.d_model + 1
    assert min(training.batch, training.length, training.mode) > 0.1
    assert training.single.startswith("Expected more than 1 value per channel when training")
    assert (inference.batch, inference.length, inference.single) == (0, 0, "")
    assert inference.mode == training.mode


def test_weights_that_are_given_are_what_is_looked_into(tmp_path, measured):
    other = bends(block.claims(untrained(tmp_path / "block.safetensors", CONFIG, seed=3)))
    assert other["frozen"] < 1e-5
    assert other["feed-forward"] != bends(measured)["feed-forward"]
    bare = untrained(tmp_path / "bare.safetensors", replace(CONFIG, d_ff=0))
    with pytest.raises(InvalidInput, match="has no block of attention and feed-forward"):
        block.claims(bare)
    with pytest.raises(InvalidInput, match="No such file"):
        block.claims(tmp_path / "nowhere.safetensors")


# What models write


def written(paths, prompt="ROMEO:", tokens=20, temperature=0.8, seed=0):
    return samples.samples(paths, prompt, tokens, temperature, seed)


def test_the_same_seed_writes_the_same_and_what_cannot_be_read_costs_its_own_row_only(tmp_path):
    path, broken = untrained(tmp_path / "one.safetensors", CONFIG), tmp_path / "broken.safetensors"
    broken.write_bytes(b"nothing")
    unread, first, again, gone = written([broken, path, path, tmp_path / "gone.safetensors"])
    assert first.text == again.text != written([path], seed=1)[0].text
    assert first.text.startswith("ROMEO:")
    assert [bool(row.error) for row in (unread, first, gone)] == [True, False, True]
    assert "not a whole checkpoint" in unread.error


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"prompt": ""}, "Type at least one word."),
        ({"prompt": "  \n"}, "Type at least one word."),
        ({"tokens": 0}, "tokens is 0; allowed: a whole number from 1 to 500."),
        ({"temperature": -1.0}, "temperature is -1.0; allowed: a number from 0 up."),
        ({"seed": -1}, "seed is -1; allowed: a whole number from 0 to"),
        ({"paths": []}, "models is 0; allowed: a whole number from 1 to 40."),
    ],
)
def test_samples_refuse_what_is_out_of_range(tmp_path, changes, complaint):
    with pytest.raises(InvalidInput, match=complaint):
        written(**{"paths": [tmp_path / "x"], **changes})
