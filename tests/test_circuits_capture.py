"""A run in the open is the model's own computation, is what a hand computes, and leaves nothing behind."""

from dataclasses import replace
from itertools import product
from typing import get_args

import pytest
import torch
from torch import nn

from engine.circuits.capture import boundaries, head_means, run
from engine.models.config import (
    WITHOUT_HEADS,
    WITHOUT_TABLES,
    Connection,
    Mixer,
    ModelConfig,
    Positions,
    ScoreScale,
)
from engine.models.transformer import Transformer
from tests.circuit_models import CONFIG, felt, sentences

pytestmark = pytest.mark.usefixtures("one_thread")

CONFIGS = (
    {
        "/".join((mixer, connection, str(d_ff))): replace(
            CONFIG, mixer=mixer, connection=connection, d_ff=d_ff
        )
        for mixer, connection, d_ff in product(get_args(Mixer), get_args(Connection), (0, 20))
        if mixer != "none" and (d_ff or mixer == "attention")
    }
    | {
        f"{mixer}/{scheme}": replace(
            CONFIG, output_projection=False, d_model=24, mixer=mixer, positions=scheme
        )
        for mixer, scheme in product(("attention", "average", "unmasked"), get_args(Positions))
        if scheme not in WITHOUT_TABLES or mixer not in WITHOUT_HEADS
    }
    | {f"scale {scale}": replace(CONFIG, score_scale=scale) for scale in get_args(ScoreScale)}
    | {
        "no W_O": replace(CONFIG, output_projection=False),
        "no bias of W_O": replace(CONFIG, output_bias=False),
        "biases everywhere": replace(CONFIG, qkv_bias=True),
        "heads not d_model wide": replace(CONFIG, d_head=5),
        "tied": replace(CONFIG, tied=True, unembedding_bias=False),
        "dropout": replace(CONFIG, dropout=0.5),
        "one head": replace(CONFIG, n_head=1),
        "no block": replace(CONFIG, n_layer=0),
    }
)


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize(("dtype", "near"), [(torch.float32, 1e-5), (torch.float64, 1e-12)])
def test_the_logits_are_the_models_own(name, dtype, near):
    made, ids = felt(CONFIGS[name], dtype), sentences()
    captured = run(made, ids)
    with torch.no_grad():
        pairs = ((captured.logits, made(ids)), (captured.residual, made.residual(ids)))
    for found, expected in pairs:
        assert (found - expected).abs().max() < near * max(1.0, expected.abs().max().item())
    assert captured.logits.dtype == dtype
    assert not captured.logits.requires_grad


@pytest.mark.parametrize("name", CONFIGS)
def test_the_parts_of_a_block_fit_together(name):
    config = CONFIGS[name]
    made, ids = felt(config), sentences()
    captured = run(made, ids)
    x = captured.embedding
    for block, ran in zip(made.blocks, captured.blocks, strict=True):
        connection = block[0]
        torch.testing.assert_close(ran.before, x)
        read = connection.norm(x) if config.connection == "pre-norm" else x
        torch.testing.assert_close(ran.read, read)
        with torch.no_grad():
            torch.testing.assert_close(ran.heads.sum(dim=1) + ran.output_bias, connection.sublayer(read))
            weights = connection.sublayer.attention_weights(read)
            torch.testing.assert_close(ran.weights, weights.expand_as(ran.weights))
            if config.mixer not in WITHOUT_HEADS:
                torch.testing.assert_close(ran.scores, connection.sublayer.scores(read))
            torch.testing.assert_close(ran.attended, connection(x))
            x = block(x)
        torch.testing.assert_close(ran.after, x)
        assert ran.scores.shape == ran.weights.shape == (4, ran.heads.shape[1], 7, 7)
        assert (ran.feed_forward is None) == (config.d_ff == 0)
    torch.testing.assert_close(captured.residual, x)
    assert len(captured.stream) == len(boundaries(made))
    torch.testing.assert_close(captured.stream[-1], x)


def test_boundaries_are_named_for_people():
    names = [f"block {block} {part}" for block in (1, 2) for part in ("attention", "feed-forward")]
    assert boundaries(felt()) == ("embedding", *names)
    assert boundaries(felt(replace(CONFIG, d_ff=0, n_layer=1))) == ("embedding", "block 1 attention")


def test_means_are_over_all_sentences_at_each_position(monkeypatch):
    made, ids = felt(), sentences(count=7)
    expected = torch.stack([block.heads.mean(dim=0) for block in run(made, ids).blocks])
    torch.testing.assert_close(head_means(made, ids), expected)
    monkeypatch.setattr("engine.circuits.capture.TOKENS_A_BATCH", 14)  # two sentences at once
    torch.testing.assert_close(head_means(made, ids), expected)


def left_behind(made):
    """All that a run might leave on a model: attributes, hooks, modes, gradients, numbers."""
    tensors = {id(tensor): (tensor.clone(), tensor.grad) for tensor in (*made.parameters(), *made.buffers())}
    modules = [
        (
            name,
            module.training,
            sorted(vars(module)),
            sorted(module._buffers),
            *(len(hooks) for kind, hooks in sorted(vars(module).items()) if kind.endswith("_hooks")),
        )
        for name, module in made.named_modules()
    ]
    return tensors, modules


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("name", ["dropout", "attention/alibi", "average/learned", "scale qk-norm"])
def test_nothing_is_left_on_the_model_and_its_mode_changes_nothing(name, training):
    made, ids = felt(CONFIGS[name]), sentences()
    expected = made(ids).detach()
    made.train(training)
    made.blocks[0].train(not training)  # one part in another mode than the rest
    before, draws = left_behind(made), torch.random.get_rng_state()
    captured = run(made, ids)
    after = left_behind(made)
    torch.testing.assert_close(captured.logits, expected)
    assert before[1] == after[1]
    assert all(torch.equal(kept, after[0][key][0]) for key, (kept, _) in before[0].items())
    assert all(gradient is None for _, gradient in after[0].values())
    assert torch.equal(draws, torch.random.get_rng_state())


def test_the_check_for_what_is_left_finds_hooks_and_attributes():
    made = felt(CONFIGS["dropout"])
    before = left_behind(made)[1]
    made.blocks[0].register_forward_hook(lambda *_: None)
    assert left_behind(made)[1] != before
    again = left_behind(made)[1]
    made.blocks[1].seen = 1
    assert left_behind(made)[1] != again


@pytest.mark.parametrize(
    ("ids", "says"),
    [
        (torch.zeros(3, dtype=torch.long), r"shape \(3,\)"),
        (torch.zeros(0, 3, dtype=torch.long), r"shape \(0, 3\)"),
        (torch.zeros(3, 0, dtype=torch.long), r"shape \(3, 0\)"),
        (torch.tensor([[0, 20]]), "from 0 to 20; allowed: 0 to 19"),
        (torch.tensor([[-1, 2]]), "from -1 to 2; allowed: 0 to 19"),
        (torch.zeros(1, 17, dtype=torch.long), "17 tokens; the position table has 16 rows"),
    ],
)
def test_ids_that_are_no_sentences_of_the_model_are_refused(ids, says):
    with pytest.raises(ValueError, match=says):
        run(felt(), ids)


def test_a_model_that_mixes_nothing_has_nothing_to_capture():
    with pytest.raises(ValueError, match="mixer is 'none'"):
        run(Transformer(ModelConfig(d_ff=8, n_layer=1)), torch.zeros(1, 2, dtype=torch.long))


def test_a_capture_keeps_its_values_when_the_model_changes():
    made = felt()
    captured = run(made, sentences())
    kept = captured.blocks[1].heads.clone(), captured.logits.clone()
    for parameter in made.parameters():
        nn.init.zeros_(parameter)
    assert torch.equal(captured.blocks[1].heads, kept[0])
    assert torch.equal(captured.logits, kept[1])
