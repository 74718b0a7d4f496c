"""What the lab says of models, on the shipped weights and on untrained ones: rows of ``docs/claims.md``."""

import json
import math
from dataclasses import replace
from statistics import median

import pytest
import torch

from engine.chapter import reference
from engine.chapter import variants as v
from engine.chapter.budget import Budget
from engine.chapter.experiments import BREAKING, EXPERIMENTS
from engine.data import corpus
from engine.models.mixers import CausalSelfAttention
from engine.models.transformer import Transformer
from engine.system import paths
from engine.training import checkpoint
from engine.training.evaluation import attention_statistics, mean_loss, perplexity, windows
from engine.training.loop import Training
from engine.training.tasks import TextTask

TOKENS = torch.randint(1024, (4096,), generator=torch.Generator().manual_seed(0))

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def text():
    """The chapter's text: the ids trained on and those held out."""
    if not corpus.is_present(corpus.TINYSHAKESPEARE):
        pytest.skip("Tiny Shakespeare is not here")
    found = corpus.load(corpus.TINYSHAKESPEARE)
    return [torch.from_numpy(ids.astype("int64")) for ids in (found.train_ids, found.held_out_ids)]


def shipped(experiment, variant):
    model, _ = checkpoint.load_model(reference.weights(experiment, variant))
    return model


def spread(ids, count):
    """So many of all windows of 128 tokens, spread evenly."""
    rows = windows(ids, 128)
    return rows[torch.linspace(0, len(rows) - 1, count).long()]


def test_in_place_of_the_token_a_head_spends_most_of_its_weight_on_the_token_itself(text):
    found = {}
    for name in ("head-replaces", "head-added"):
        model, read = shipped("ladder", name), list[torch.Tensor]()
        (mixer,) = (module for module in model.modules() if isinstance(module, CausalSelfAttention))
        mixer.register_forward_pre_hook(lambda _, arguments, read=read: read.append(arguments[0]))
        with torch.inference_mode():
            model.residual(spread(text[1], 48)[:, :-1])
            weights = mixer.attention_weights(read[0])
        found[name] = weights.diagonal(dim1=-2, dim2=-1)[..., 1:].mean().item()
    assert found == pytest.approx({"head-replaces": 0.79, "head-added": 0.33}, abs=0.005)


def test_positions_tell_the_mean_how_many_tokens_there_were_and_not_in_which_order(text):
    rows = spread(text[1], 96)
    order = torch.randperm(128, generator=torch.Generator().manual_seed(1))
    for name in ("average", "average-positions"):
        with torch.inference_mode():
            model = shipped("averages", name)
            before, after = (model(ids)[:, -1].softmax(-1) for ids in (rows[:16, :-1], rows[:16, order]))
        assert (before - after).abs().max() < 1e-6
    table = model.positions.table.weight.data
    whole = perplexity(mean_loss(model, rows))
    table.copy_(table.mean(dim=0).expand_as(table))  # every length of text now has the same mean
    assert perplexity(mean_loss(model, rows)) > 1.05 * whole


def test_undivided_scores_are_large_before_the_first_step_and_larger_after_the_last():
    task = TextTask(TOKENS, TOKENS, 128)
    began = {}
    for experiment in ("scaling-training", "scaling-training-long", "scaling-training-wide"):
        rows = json.loads((paths.REFERENCE / f"{experiment}.json").read_text())["rows"]
        for name in filter(lambda name: name.startswith("undivided"), rows):
            torch.manual_seed(0)
            model = Transformer(EXPERIMENTS[experiment].variant(name).config)
            began[name] = attention_statistics(model, task.probe[:4]).score_std
            assert all(
                figures["score_std"] > 1.4 * began[name] for figures in rows[name]["measured"].values()
            )
    assert began["undivided-1024"] == pytest.approx(21, abs=0.5)
    assert all(began[f"undivided-{width}"] > 7 for width in (128, 256, 1024))


def test_divided_by_its_width_a_head_begins_nearly_uniform():
    torch.manual_seed(0)
    found = attention_statistics(Transformer(v.BY_WIDTH.config), TOKENS[:512].view(4, 128))
    uniform = sum(math.log(keys) for keys in range(2, 129)) / 127
    assert found.entropy_nats == pytest.approx(uniform, abs=0.001)


def test_in_a_wider_model_a_step_of_the_same_rate_moves_a_score_further():
    def moved(variant, seed):
        task = TextTask(TOKENS, TOKENS, 128)
        training = Training(config=variant.config, budget=Budget(steps=1, batch_size=4), seed=seed, task=task)
        mixer = training.model.blocks[0][0].sublayer
        with torch.no_grad():
            x = training.model.positions.embed(training.model.token_embedding(task.probe[:4, :-1]))
            before = mixer.scores(x)
        training.advance()
        with torch.no_grad():
            return (mixer.scores(x) - before).square().mean().sqrt().item()

    for seed in (0, 1):
        ladder, wide, widest = (
            moved(variant, seed) for variant in (v.HEAD_ADDED, v.DIVIDED_256_WIDE, v.DIVIDED_1024_WIDE)
        )
        assert 1.5 * ladder < wide < 0.5 * widest


def test_at_rate_1_the_first_step_moves_every_weight_of_a_block_by_1():
    budget = replace(BREAKING.budget("quick"), learning_rate=1.0, warmup_steps=0)
    task = TextTask(TOKENS, TOKENS, budget.context_length)
    training = Training(config=v.POST_NORM.config, budget=budget, seed=0, task=task)
    blocks = training.model.blocks
    before = {name: parameter.detach().clone() for name, parameter in blocks.named_parameters()}
    assert max(one.abs().max() for one in before.values() if one.dim() == 2) < 0.1
    training.advance()
    for name, parameter in blocks.named_parameters():
        assert median((parameter - before[name]).abs().flatten().tolist()) == pytest.approx(1, abs=0.02), name


def test_post_norm_without_a_warmup_never_gets_below_what_counting_tokens_gives(text):
    training, held_out = text
    counts = 1 + torch.bincount(training, minlength=1024).double()
    unigram = math.exp(-(counts / counts.sum()).log()[held_out[1:]].mean().item())
    assert unigram == pytest.approx(306.66, abs=0.01)
    curves = reference.load("norm-placement").rows["post-norm"].curves
    for curve in curves.values():
        assert unigram < min(value for _, value in curve) < 1.01 * unigram


def test_perplexity_on_the_training_text_depends_on_the_windows_taken(text):
    rows = windows(text[0], 128)
    model = shipped("ladder", "block")
    evenly = reference.load("ladder").rows["block"].measured["0"]["train_perplexity"]
    first_tenth = perplexity(mean_loss(model, rows[: len(rows) // 10]))
    assert evenly == pytest.approx(18.1, abs=0.05)
    assert first_tenth == pytest.approx(19.15, abs=0.05)


@pytest.mark.parametrize("seed", [0, 1])
def test_in_a_collapsed_head_few_rows_make_the_gradient_and_larger_scores_change_no_loss(text, seed):
    task = TextTask(text[0], text[1], 64)
    budget = Budget(steps=40, batch_size=4, context_length=64, learning_rate=1e-2)
    config = v.UNDIVIDED["divided-1024"].config
    training = Training(config=config, budget=budget, seed=seed, task=task)
    for _ in range(budget.steps):
        training.advance()
    mixer, read = training.model.blocks[0][0].sublayer, []
    hook = mixer.W_Q.register_forward_hook(lambda _, arguments, q: read.append((arguments[0], q)))
    rows = task.batch(torch.Generator().manual_seed(1), 16)

    def losses():
        logits = training.model(rows[:, :-1]).transpose(1, 2)
        return torch.nn.functional.cross_entropy(logits, rows[:, 1:], reduction="none")

    before = losses()
    hook.remove()
    ((x, queries),) = read
    (of_queries,) = torch.autograd.grad(before.mean(), queries)
    with torch.no_grad():
        saturated = mixer.attention_weights(x)[:, 0].amax(dim=-1) > 0.99
        saturated[:, 0] = True  # it has one key only
        norms = [
            torch.einsum("btk,btd->kd", of_queries * chosen[..., None], x).norm()
            for chosen in (saturated, ~saturated)
        ]
        mixer.scale *= 2
        moved = (losses() - before).abs()
    assert saturated.float().mean() > 0.85
    assert norms[0] < 0.1 * norms[1]
    assert moved[saturated].mean() < 0.05 * moved[~saturated].mean()
