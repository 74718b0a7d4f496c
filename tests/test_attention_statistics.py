"""What training writes down about attention: right to the digit, without a trace, and cheap."""

import itertools
import math
import statistics
import time
from dataclasses import replace

import pytest
import torch

from engine.chapter.budget import Budget
from engine.chapter.experiments import VARIANTS
from engine.models.config import Connection, ModelConfig
from engine.models.mixers import ATTENTION, CausalSelfAttention
from engine.models.transformer import Transformer
from engine.training.evaluation import FROZEN, attention_statistics
from engine.training.loop import Training
from engine.training.tasks import PROBE_WINDOWS, TextTask
from tests.trainings import on_text, parameters

pytestmark = pytest.mark.usefixtures("one_thread")

NAMES = ["score_std", "entropy_nats", "frozen_share"]
SMALL = ModelConfig(
    vocab_size=20, d_model=8, n_layer=2, n_head=2, d_ff=8, max_positions=8, mixer="attention",
    connection="pre-norm", positions="learned", output_projection=True,
)  # fmt: skip
BUDGET = Budget(steps=30, batch_size=4, context_length=8, evaluate_every=20)


def model(config=SMALL, seed=0):
    torch.manual_seed(seed)
    return Transformer(config)


def tokens(config, windows=PROBE_WINDOWS, length=128):
    return torch.randint(config.vocab_size, (windows, length), generator=torch.Generator().manual_seed(1))


def training(config=SMALL, budget=BUDGET, seed=0):
    return on_text(config, budget, seed, train=400)


def by_hand(made, ids):
    """Standard deviation, entropy and frozen share, one row at a time."""
    scores, entropies, frozen = [], [], []
    x = made.positions.embed(made.token_embedding(ids))
    for sublayer in (sublayer for block in made.blocks for sublayer in block):
        mixer = sublayer.sublayer
        if isinstance(mixer, CausalSelfAttention):
            q, k = mixer.queries_and_keys(sublayer.norm(x) if made.config.connection == "pre-norm" else x)
            for b, h, t in itertools.product(*map(range, q.shape[:2]), range(1, q.shape[2])):
                row = (k[b, h, : t + 1 if mixer.causal else None] @ q[b, h, t]).tolist()
                exps = [math.exp(score - max(row)) for score in row]
                weights = [e / sum(exps) for e in exps]
                scores += row
                entropies.append(-sum(w * math.log(w) for w in weights if w > 0))
                frozen.append(max(weights) > FROZEN)
        x = sublayer(x)
    return [statistics.stdev(scores), statistics.fmean(entropies), statistics.fmean(frozen)]


@pytest.mark.parametrize("mixer", ATTENTION)
@pytest.mark.parametrize("connection", ["add", "pre-norm"])
def test_they_are_what_a_hand_would_count(mixer, connection: Connection):
    config = replace(SMALL, mixer=mixer, connection=connection, score_scale="none")
    made, ids = model(config), tokens(config, windows=2, length=5)
    if mixer != "raw":
        for attention in (m for m in made.modules() if isinstance(m, CausalSelfAttention)):
            torch.nn.init.normal_(attention.W_Q.weight)  # some rows frozen, others not
    with torch.no_grad():
        expected = by_hand(made, ids)
    assert 0 < expected[2] < 1
    assert list(vars(attention_statistics(made, ids)).values()) == pytest.approx(expected, rel=1e-4)


def test_equal_scores_have_the_entropy_of_an_average_and_freeze_nothing():
    made = model(VARIANTS["head-added"].config)
    for attention in (m for m in made.modules() if isinstance(m, CausalSelfAttention)):
        torch.nn.init.zeros_(attention.W_Q.weight)
    found = attention_statistics(made, tokens(made.config))
    mean_log = sum(math.log(t) for t in range(2, 129)) / 127
    assert found.entropy_nats == pytest.approx(mean_log, rel=1e-5)
    assert (found.score_std, found.frozen_share) == (0, 0)


def test_one_token_for_every_row_is_frozen_without_entropy():
    made = model(VARIANTS["raw"].config)
    with torch.no_grad():
        for table in (made.token_embedding, made.positions.table):
            table.weight.mul_(10)
    found = attention_statistics(made, tokens(made.config))
    assert found.frozen_share == 1
    assert 0 <= found.entropy_nats < 1e-6


@pytest.mark.parametrize("seed", range(2))
def test_the_figures_at_initialisation_are_the_chapters(seed):
    """sqrt(1024) * 2/3 = 21.3 for N(0, 1) tokens and positions; checked on Shakespeare: 58 % frozen."""
    undivided, divided = (
        attention_statistics(made, tokens(made.config))
        for made in (model(VARIANTS[name].config, seed) for name in ("undivided-1024", "divided-1024"))
    )
    assert undivided.score_std == pytest.approx(21.3, abs=1)
    assert undivided.frozen_share > 0.5
    assert divided.score_std == pytest.approx(0.67, abs=0.05)
    assert divided.frozen_share == 0
    assert undivided.score_std == pytest.approx(32 * divided.score_std, rel=1e-4)


# Without a trace


@pytest.mark.parametrize("mode", [True, False])
def test_it_leaves_no_hook_and_the_model_as_it_was(mode):
    made, ids = model().train(mode), tokens(SMALL, length=8)
    state = torch.get_rng_state()
    first = attention_statistics(made, ids)
    with pytest.raises(ValueError, match="9 tokens; the position table has 8 rows"):
        attention_statistics(made, tokens(SMALL, length=9))
    assert not any(m._forward_pre_hooks or m._forward_hooks for m in made.modules())
    assert made.training == mode
    assert all(parameter.grad is None for parameter in made.parameters())
    assert torch.equal(torch.get_rng_state(), state)
    assert attention_statistics(made, ids) == first


def test_looking_changes_nothing_that_is_trained():
    often, seldom = (training(budget=replace(BUDGET, evaluate_every=every)) for every in (10, 30))
    for run in (often, seldom):
        list(run.records())
    assert all(torch.equal(a, b) for a, b in zip(parameters(often), parameters(seldom), strict=True))


# In the records


def test_evaluations_and_final_figures_have_them():
    run = training(budget=replace(BUDGET, steps=50, evaluate_every=40))
    records = list(run.records())
    evaluated = [record["step"] for record in records if "validation_perplexity" in record]
    assert evaluated == [0, 10, 20, 40, 50]
    for name in NAMES:
        assert [record["step"] for record in records if name in record] == evaluated
        assert run.result.measured[name] == records[-1][name]
    looked = vars(attention_statistics(run.model, run.task.probe))
    assert looked == {name: records[-1][name] for name in NAMES}


def test_the_probe_is_held_out_fixed_and_spread():
    task = training().task
    assert task.probe.shape == (16, 8)
    assert torch.equal(task.probe, training(seed=1).task.probe)
    places = [next(n for n, w in enumerate(task.held_out) if torch.equal(w[:-1], row)) for row in task.probe]
    assert places == sorted(set(places))


def test_a_model_without_attention_records_none():
    config = replace(SMALL, mixer="average")
    run = training(config)
    for record in [*run.records(), run.result.measured]:
        assert not {*NAMES, "grad_norm_W_Q"} & record.keys()
    for mixer in ("none", "average", "matrix"):
        assert attention_statistics(model(replace(SMALL, mixer=mixer)), tokens(config, length=8)) is None


@pytest.mark.parametrize(("mixer", "recorded"), [("attention", True), ("query-key", True), ("raw", False)])
def test_the_gradient_of_the_query_projections_is_theirs_alone(mixer, recorded):
    run = training(replace(SMALL, mixer=mixer))
    records = list(run.records())[1:]
    assert all(("grad_norm_W_Q" in record) == recorded for record in records)
    if recorded:
        gradients = [m.W_Q.weight.grad for m in run.model.modules() if isinstance(m, CausalSelfAttention)]
        expected = torch.cat(gradients).norm().item()
        assert records[-1]["grad_norm_W_Q"] == pytest.approx(expected, rel=1e-5)
        assert 0 < records[-1]["grad_norm_W_Q"] < records[-1]["grad_norm"]


def test_a_context_of_one_has_nothing_to_choose_and_no_number_for_it():
    run = training(budget=replace(BUDGET, context_length=1))
    list(run.records())
    assert run.result.state == "done"
    assert not {*NAMES} & run.result.measured.keys()


# Its price


def test_recording_them_costs_at_most_a_twentieth_of_training():
    """Side by side in turns, in processor time: the least disturbed turn of each."""
    config, budget = VARIANTS["divided-128"].config, Budget(steps=1500, batch_size=32)
    ids = tokens(config, windows=1, length=16_384)[0]
    task = TextTask(ids, ids[:4096], budget.context_length)
    run = Training(config=config, budget=budget, seed=0, task=task)
    assert task.probe.shape == (PROBE_WINDOWS, 128)
    run.advance()
    steps, looks = [], []
    for _ in range(6):
        began = time.process_time()
        run.advance()
        run.advance()
        between = time.process_time()
        attention_statistics(run.model, task.probe)
        steps.append((between - began) / 2)
        looks.append(time.process_time() - between)
    # Over a whole run, the early evaluations at 0, 10, 20, 40 and 80 steps included.
    times = 5 + budget.steps // budget.evaluate_every
    assert times * min(looks) / (budget.steps * min(steps)) <= 0.05
