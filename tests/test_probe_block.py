"""What a block is on fixed weights: linear with its attention frozen, and normalised token by token."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from engine.chapter.experiments import VARIANTS
from engine.models.transformer import Transformer
from engine.probes import block, models, samples
from engine.system.errors import InvalidInput
from engine.training import checkpoint

CONFIG = VARIANTS["block"].config


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def measured():
    return block.claims()


def saved(path, config, seed=3):
    torch.manual_seed(seed)
    checkpoint.save(path, checkpoint.model_tensors(Transformer(config)), {"config": config.to_dict()})
    return path


def bends(measured):
    return {row.layer: row.bent for row in measured.linearity.rows}


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
    steps = [b - a for a, b in zip(line["frozen"], line["frozen"][1:], strict=False)]
    assert max(steps) - min(steps) < 2e-3
    bent = [b - a for a, b in zip(line["feed-forward"], line["feed-forward"][1:], strict=False)]
    assert max(bent) - min(bent) > 0.02
    for name in ("frozen", "feed-forward"):
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


def test_trained_weights_are_what_is_looked_into(tmp_path, measured):
    path = saved(tmp_path / "block.safetensors", CONFIG)
    other = bends(block.claims(path))
    assert other["frozen"] < 1e-5
    assert other["feed-forward"] != bends(measured)["feed-forward"]


def test_a_model_without_a_feed_forward_is_refused(tmp_path):
    path = saved(tmp_path / "bare.safetensors", replace(CONFIG, d_ff=0))
    with pytest.raises(InvalidInput, match="has no block of attention and feed-forward"):
        block.claims(path)
    with pytest.raises(InvalidInput, match="No such file"):
        block.claims(tmp_path / "nowhere.safetensors")


# What models write


def written(paths, prompt="ROMEO:", tokens=20, temperature=0.8, seed=0):
    return samples.samples(paths, prompt, tokens, temperature, seed)


def test_the_same_seed_writes_the_same_and_another_another(tmp_path):
    path = saved(tmp_path / "one.safetensors", CONFIG)
    first, again = written([path, path])
    assert first.text == again.text != written([path], seed=1)[0].text
    assert first.text.startswith("ROMEO:")


def test_a_checkpoint_that_cannot_be_read_costs_its_own_row_only(tmp_path):
    path = saved(tmp_path / "one.safetensors", CONFIG)
    broken = tmp_path / "broken.safetensors"
    broken.write_bytes(b"nothing")
    rows = written([broken, path, tmp_path / "gone.safetensors"])
    assert [bool(row.error) for row in rows] == [True, False, True]
    assert "not a whole checkpoint" in rows[0].error


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
