"""A run in the open is the model's own computation, is what a hand computes, and leaves nothing behind."""

import math
from dataclasses import replace
from itertools import product
from typing import get_args

import numpy as np
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


def by_hand(made, ids):
    """Every stage of every block for one sentence in numpy, from nothing but the weights; then the logits."""
    W = {name: parameter.detach().numpy() for name, parameter in made.named_parameters()}
    config = made.config
    H, K, T = config.n_head, config.effective_d_head, len(ids)

    def norm(x, name):
        scaled = (x - x.mean(axis=-1, keepdims=True)) / np.sqrt(x.var(axis=-1, keepdims=True) + 1e-5)
        return scaled * W[f"{name}.weight"] + W[f"{name}.bias"]

    x = W["token_embedding.weight"][ids] + W["positions.table.weight"][:T]
    stages = []
    for block in range(config.n_layer):
        attention, feed_forward = (f"blocks.{block}.{part}" for part in (0, 1))
        read = norm(x, f"{attention}.norm")
        heads, all_scores, all_weights = [], [], []
        for head in range(H):
            of = slice(head * K, head * K + K)
            q, k, v = (read @ W[f"{attention}.sublayer.W_{name}.weight"][of].T for name in "QKV")
            scores = np.array([[q[t] @ k[s] / math.sqrt(K) for s in range(T)] for t in range(T)])
            weights = np.zeros((T, T))
            for t in range(T):
                powers = np.exp(scores[t, : t + 1] - scores[t, : t + 1].max())
                weights[t, : t + 1] = powers / powers.sum()
            heads.append(weights @ v @ W[f"{attention}.sublayer.W_O.weight"][:, of].T)
            all_scores.append(scores)
            all_weights.append(weights)
        attended = x + sum(heads) + W[f"{attention}.sublayer.W_O.bias"]
        first = [f"{feed_forward}.sublayer.0.{kind}" for kind in ("weight", "bias")]
        second = [f"{feed_forward}.sublayer.2.{kind}" for kind in ("weight", "bias")]
        hidden = norm(attended, f"{feed_forward}.norm") @ W[first[0]].T + W[first[1]]
        hidden = hidden * (1 + np.vectorize(math.erf)(hidden / math.sqrt(2))) / 2
        written = hidden @ W[second[0]].T + W[second[1]]
        stages.append((x, read, all_scores, all_weights, heads, attended, written, attended + written))
        x = attended + written
    return stages, norm(x, "final_norm") @ W["unembedding.weight"].T + W["unembedding.bias"]


def test_every_stage_is_what_a_hand_computes():
    made, ids = felt(), sentences(count=1)
    captured = run(made, ids)
    stages, logits = by_hand(made, ids[0].numpy())
    names = ("before", "read", "scores", "weights", "heads", "attended", "feed_forward", "after")
    for ran, stage in zip(captured.blocks, stages, strict=True):
        for name, expected in zip(names, stage, strict=True):
            np.testing.assert_allclose(getattr(ran, name)[0].numpy(), np.array(expected), atol=1e-12)
    np.testing.assert_allclose(captured.logits[0].numpy(), logits, atol=1e-12)


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
