"""The engine's step computes what a textbook's loop does, in less time and memory."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from engine.budget import Budget
from engine.loss import next_token_loss
from engine.models.mixers import CausalSelfAttention
from engine.models.transformer import Transformer
from engine.training import Training
from engine.variants import variant

IDS = torch.randint(96, (3000,), generator=torch.Generator().manual_seed(5))
BLOCK = replace(variant("block").config, vocab_size=96, d_model=32, d_ff=64, max_positions=64)
BUDGET = Budget(steps=20, batch_size=16, context_length=64)


def training(config=BLOCK, budget=BUDGET):
    return Training(config=config, budget=budget, seed=0, train_ids=IDS, held_out_ids=IDS[:400])


@pytest.mark.parametrize("bias", [True, False])
def test_loss_and_gradients_are_those_of_torch(bias):
    torch.manual_seed(0)
    x, head = torch.randn(50, 8, dtype=torch.float64), nn.Linear(8, 11, bias=bias).double()
    targets, found = torch.randint(11, (50,)), []
    for ours in (True, False):
        leaf, parameters = x.clone().requires_grad_(), list(head.parameters())
        loss = next_token_loss(leaf, head, targets) if ours else F.cross_entropy(head(leaf), targets)
        found.append((loss, *torch.autograd.grad(3 * loss, [leaf, *parameters])))
    for mine, torchs in zip(*found, strict=True):
        assert torch.allclose(mine, torchs, rtol=1e-12, atol=1e-14)


def test_a_loss_far_beyond_what_exp_can_hold_is_still_a_number():
    head = nn.Linear(4, 3, bias=False)
    with torch.no_grad():
        head.weight.copy_(torch.tensor([[1e4] * 4, [0.0] * 4, [-1e4] * 4]))
    x, targets = torch.ones(2, 4), torch.tensor([2, 1])
    assert next_token_loss(x, head, targets).item() == F.cross_entropy(head(x), targets).item() == 6e4


def plain_loop(config, budget):
    """Losses of the straightforward loop: whole batches, logits, torch's cross-entropy, torch's AdamW."""
    torch.manual_seed(0)
    model, draws = Transformer(config), torch.Generator().manual_seed(0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=budget.learning_rate)
    T = budget.context_length
    losses = []
    for _ in range(budget.steps):
        starts = torch.randint(len(IDS) - T, (budget.batch_size, 1), generator=draws)
        batch = torch.stack([IDS[start : start + T + 1] for start in starts])
        loss = F.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize(
    "change",
    [{}, {"n_layer": 3}, {"tied": True, "unembedding_bias": False}, {"positions": "alibi"}],
    ids=["block", "three blocks", "tied", "alibi"],
)
def test_twenty_steps_lose_what_the_plain_loop_loses(change):
    config = replace(BLOCK, **change)
    run = training(config)
    losses = [run.advance().item() for _ in range(20)]
    assert losses == pytest.approx(plain_loop(config, BUDGET), abs=2e-5)
    assert losses[-1] < losses[0]


def test_bfloat16_trains_about_the_same_with_weights_and_evaluations_in_float32():
    exact, rounded = training(), training(budget=replace(BUDGET, precision="bfloat16"))
    losses = [(exact.advance().item(), rounded.advance().item()) for _ in range(20)]
    assert losses != [(first, first) for first, _ in losses], "nothing was rounded"
    for first, second in losses:
        assert second == pytest.approx(first, rel=0.01)
    assert {parameter.dtype for parameter in rounded.model.parameters()} == {torch.float32}
    assert rounded._evaluate()["validation_loss_nats"] == pytest.approx(
        exact._evaluate()["validation_loss_nats"], rel=0.01
    )


@pytest.mark.parametrize("mixer", ["attention", "unmasked"])
@pytest.mark.parametrize("positions", ["learned", "alibi"])
def test_attention_in_bfloat16_on_a_cpu_is_that_of_float32_rounded(mixer, positions):
    torch.manual_seed(0)
    model = Transformer(replace(BLOCK, mixer=mixer, positions=positions))
    attention = next(m for m in model.modules() if isinstance(m, CausalSelfAttention))
    x = torch.randn(2, 20, 32)
    with torch.autocast("cpu", torch.bfloat16):
        rounded = attention(x)
    assert rounded.dtype == torch.bfloat16
    assert torch.allclose(rounded.float(), attention(x), atol=0.02)
