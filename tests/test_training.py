"""Training: resume equals uninterrupted, divergence is labelled, records are strict JSON."""

import itertools
import json
import math
import statistics
import time
from dataclasses import replace
from functools import partial

import pytest
import torch

from engine.chapter.budget import Budget
from engine.models.config import ModelConfig
from engine.models.transformer import Transformer, parameter_count
from engine.runs import trainer
from engine.training import checkpoint
from engine.training.evaluation import mean_loss, perplexity, windows
from tests.trainings import on_language, on_text, parameters

BUDGET = Budget(steps=30, batch_size=4, context_length=16, evaluate_every=20, checkpoint_every=10)
WARMED = replace(BUDGET, warmup_steps=12, also_at=(8, 12, 16))
SMALL = ModelConfig(vocab_size=64, d_model=16, max_positions=16)
CONFIGS = {
    "no-context": SMALL,
    "average-positions": replace(SMALL, mixer="average", positions="learned"),
    "tied block": replace(
        SMALL, mixer="attention", connection="pre-norm", n_head=2, d_ff=32, output_projection=True, tied=True,
        unembedding_bias=False,
    ),
    "dropout": replace(
        SMALL, mixer="attention", connection="add", n_head=2, d_ff=32, positions="alibi", dropout=0.3
    ),
}  # fmt: skip
TRAININGS = {
    **{name: partial(on_text, config, WARMED) for name, config in CONFIGS.items()},
    "language": partial(on_language),
}

pytestmark = pytest.mark.usefixtures("one_thread")


def training(config=SMALL, budget=BUDGET, **more):
    return on_text(config, budget, **more)


@pytest.fixture
def saved(tmp_path):
    """Where a training saves itself, and how."""
    path = tmp_path / "checkpoint.safetensors"
    return path, {"save": lambda tensors, header: checkpoint.save(path, tensors, header)}


@pytest.mark.parametrize("make", TRAININGS.values(), ids=TRAININGS)
@pytest.mark.parametrize("stop_at", [1, 7, 10, 23])
def test_resume_equals_uninterrupted_bit_for_bit(saved, make, stop_at):
    path, saving = saved
    whole = make()
    records = list(whole.records())
    first = make(**saving)  # after it: what dropout draws is seeded as a training is made
    first.stop = lambda: first.step >= stop_at
    list(first.records())
    assert (first.result.state, first.result.step) == ("stopped", stop_at)
    # Whatever it was made with, the checkpoint decides; but a language is split by the seed.
    second = make(seed=3 if make is TRAININGS["language"] else 99)
    second.restore(*checkpoint.load(path))
    resumed = list(second.records())
    assert second.step == whole.step == 30
    assert all(torch.equal(a, b) for a, b in zip(parameters(whole), parameters(second), strict=True))
    assert second.result.measured == whole.result.measured
    shown = second.task.figures
    assert {name: records[-1].get(name) for name in shown} == {name: resumed[-1].get(name) for name in shown}


def test_a_warmup_raises_the_rate_in_a_line_and_then_leaves_it():
    run, rates = training(budget=replace(BUDGET, warmup_steps=4, learning_rate=0.8)), []
    for _ in range(6):
        run.advance()
        rates.append(run.optimizer.param_groups[0]["lr"])
    assert rates == pytest.approx([0.2, 0.4, 0.6, 0.8, 0.8, 0.8])


def test_other_lengths_are_evaluated_at_the_end():
    run = training(budget=replace(BUDGET, also_at=(8, 16, 64)))
    list(run.records())
    measured = run.result.measured
    assert measured["perplexity_16"] == pytest.approx(measured["validation_perplexity"])
    for length in (8, 64):
        loss = mean_loss(run.model, run.task.also[length])
        assert run.task.also[length].shape == (99 // length, length + 1)
        assert measured[f"perplexity_{length}"] == pytest.approx(math.exp(loss))
    with pytest.raises(ValueError, match=r"100 tokens; one window needs 129"):
        training(budget=replace(BUDGET, also_at=(16, 128)))


@pytest.mark.parametrize("make", [on_language, training], ids=["language", "text"])
def test_same_seed_same_run_and_another_seed_another(make):
    runs = [make(seed=seed) for seed in (5, 5, 6)]
    losses = [[r["loss_nats"] for r in run.records() if "loss_nats" in r] for run in runs]
    assert losses[0] == losses[1] != losses[2]


def test_tied_weights_are_saved_once_and_stay_tied(saved):
    path, saving = saved
    run = training(CONFIGS["tied block"], **saving)
    list(run.records())
    loaded, _ = checkpoint.load_model(path)
    assert loaded.unembedding.weight.data_ptr() == loaded.token_embedding.weight.data_ptr()
    ids = torch.arange(16).view(1, -1)
    assert torch.equal(loaded(ids), run.model.eval()(ids))
    assert parameter_count(loaded) == parameter_count(run.model)


@pytest.mark.parametrize("learning_rate", [1e6, 1e9])
def test_divergence_is_a_labelled_result_in_strict_json(learning_rate):
    run = training(budget=replace(BUDGET, learning_rate=learning_rate))
    records = list(run.records())
    assert run.result.state == "diverged"
    assert f"diverged at step {run.result.step}: loss is" in run.result.reason
    assert 1 <= run.result.step < BUDGET.steps
    assert run.result.measured["validation_perplexity"] is None
    json.dumps(records, allow_nan=False)
    assert records[-1]["step"] == run.result.step


@pytest.mark.parametrize(
    ("make", "lost", "reason"),
    [
        (training, lambda run: float("nan") if run.model.training and run.step >= 12 else 1.0,
         "diverged at step 13: loss is NaN"),
        (training, lambda run: 1.0 if run.model.training or run.step < 30 else 1e30, "diverged at step 30: "),
        (on_language, lambda run: 1.0 if run.model.training or run.step < 30 else float("nan"),
         "diverged at step 30: share of right answers is no number"),
    ],
    ids=["in training", "at the last step", "of a language"],
)  # fmt: skip
def test_a_model_that_is_lost_did_diverge_at_its_step(make, lost, reason):
    run = make()
    forward = run.model.forward
    run.model.forward = lambda ids: forward(ids) * lost(run)
    records = list(run.records())
    assert run.result.state == "diverged"
    assert run.result.reason.startswith(reason)
    assert run.result.measured[run.task.figures[0]] is None
    json.dumps(records, allow_nan=False)


def test_records_say_what_was_measured():
    records = list(training().records())
    assert [r["step"] for r in records] == [0, 10, 20, 30]
    assert [r["step"] for r in records if "validation_perplexity" in r] == [0, 10, 20, 30]
    for before, after in itertools.pairwise(records[1:]):
        assert after["seconds"] >= before["seconds"] >= 0
        assert after["tokens_per_s"] > 0
        assert after["grad_norm"] > 0


@pytest.mark.parametrize(
    ("change", "steps"),
    [
        ({"steps": 120, "evaluate_every": 100}, [0, 10, 20, 40, 80, 100, 120]),
        ({"steps": 50, "evaluate_every": 30, "evaluate_early": False}, [0, 30, 50]),
    ],
)
def test_early_evaluations_double_or_are_done_without(change, steps):
    run = training(budget=replace(BUDGET, **change))
    assert [r["step"] for r in run.records() if "validation_perplexity" in r] == steps


def test_a_clock_set_back_makes_no_negative_time(monkeypatch):
    monkeypatch.setattr("time.time", lambda: 0.0)  # an hour or a life ago: nothing measured may depend on it
    for record in training().records():
        assert record["seconds"] >= 0
        assert record.get("tokens_per_s", 1) > 0


def test_mean_loss_is_that_of_torch_over_all_windows():
    model = Transformer(CONFIGS["average-positions"])
    batch = windows(torch.arange(64).repeat(5), 16)
    assert batch.shape == (19, 17)
    logits = model(batch[:, :-1])
    expected = torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten()).item()
    assert mean_loss(model, batch) == pytest.approx(expected, rel=1e-5)


def test_perplexity_beyond_a_float_is_none():
    assert (perplexity(1e6), perplexity(float("nan")), perplexity(0.0)) == (None, None, 1.0)


def test_a_text_without_a_window_is_refused():
    with pytest.raises(ValueError, match=r"16 tokens; one window needs 17"):
        windows(torch.arange(16), 16)


def test_a_torn_checkpoint_and_weights_of_another_shape_are_refused_with_a_sentence(saved):
    path, saving = saved
    list(training(**saving).records())
    with pytest.raises(ValueError, match="has shape"):
        training(replace(SMALL, d_model=8)).restore(*checkpoint.load(path))
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ValueError, match="is not a whole checkpoint"):
        checkpoint.load(path)


def test_a_deep_model_records_the_gradient_of_every_blocks_projections():
    config = replace(CONFIGS["tied block"], n_layer=3)
    run = training(config)
    records = list(run.records())
    assert "grad_norm_blocks" not in records[0], "no step, no gradient"
    assert [len(record["grad_norm_blocks"]) for record in records[1:]] == [3] * 3
    for block, norm in zip(run.model.blocks, records[-1]["grad_norm_blocks"], strict=True):
        mixer = block[0].sublayer
        squares = [w.weight.grad.square().sum() for w in (mixer.W_Q, mixer.W_K, mixer.W_V)]
        assert norm == pytest.approx(sum(squares).sqrt().item(), rel=1e-5)
    assert "grad_norm_blocks" not in list(training(CONFIGS["tied block"]).records())[-1]
    averages = replace(CONFIGS["average-positions"], n_layer=2)
    assert list(training(averages).records())[-1]["grad_norm_blocks"] == []


def test_while_a_run_trains_denormal_numbers_are_zero_and_afterwards_they_are_not():
    tiny = torch.tensor([1e-39])
    assert (tiny * 0.5).item() > 0
    with trainer.flushed():
        assert (tiny * 0.5).item() == 0
    assert (tiny * 0.5).item() > 0


@pytest.mark.full
def test_a_collapsed_head_steps_as_fast_as_a_soft_one_once_denormal_numbers_are_zero(one_thread):
    """Ratio of the CPU time of products with weights as they are at scores of spread 170, side by side."""
    scores, values = 170 * torch.randn(64, 128, 128), torch.randn(64, 128, 256)
    weights = {spread: (scores * spread).softmax(dim=-1) for spread in (0.01, 1.0)}

    def seconds(of):
        began = time.process_time()
        for _ in range(10):
            of @ values
        return time.process_time() - began

    took: dict[bool, list[float]] = {False: [], True: []}
    for _ in range(5):
        took[False].append(seconds(weights[1.0]) / seconds(weights[0.01]))
        with trainer.flushed():
            took[True].append(seconds(weights[1.0]) / seconds(weights[0.01]))
    before, after = (statistics.median(took[one]) for one in (False, True))
    assert before > 1.2 * after, "else there is nothing to gain here"
    assert after < 1.3
