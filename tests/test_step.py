"""The engine's step computes what a textbook's loop does, in less time and memory."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from engine.chapter.budget import Budget
from engine.chapter.experiments import VARIANTS
from engine.models.linear import by_torch_alone
from engine.models.mixers import CausalSelfAttention
from engine.models.transformer import Transformer
from engine.training.loop import Training
from engine.training.tasks import TextTask

IDS = torch.randint(96, (3000,), generator=torch.Generator().manual_seed(5))
BLOCK = replace(VARIANTS["block"].config, vocab_size=96, d_model=32, d_ff=64, max_positions=64)
BUDGET = Budget(steps=20, batch_size=16, context_length=64)


def training(config=BLOCK, budget=BUDGET):
    task = TextTask(IDS, IDS[:400], budget.context_length)
    return Training(config=config, budget=budget, seed=0, task=task)


def plain_loop(config, budget):
    """Losses of the straightforward loop: torch's own linear layers and AdamW, a batch of stacked slices."""
    torch.manual_seed(0)
    model, draws = Transformer(config), torch.Generator().manual_seed(0)
    by_torch_alone(model)
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
