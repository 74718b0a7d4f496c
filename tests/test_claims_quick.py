"""What quick budgets show, as pages say below their tables: seed 0, ``checkpoints/reference/quick.json``.

Of this code on one thread, evaluated at the end; ``python -m engine run NAME --budget quick`` repeats it.
"""

import json
from functools import cache

import pytest
import torch

from engine.chapter.experiments import (
    AVERAGES,
    EXPERIMENTS,
    LADDER,
    MASK,
    NORM_PLACEMENT,
    PERPLEXITY,
    POSITIONS,
    QKV,
)
from engine.chapter.scaling_experiments import SCALES, SCALING, SCALING_WIDE
from engine.data import corpus
from engine.system import paths
from engine.training.loop import Training
from engine.training.tasks import TextTask


@cache
def shipped():
    return json.loads((paths.REFERENCE / "quick.json").read_text())


def ends(experiment, metric=PERPLEXITY):
    """The figure of every model of the experiment that is shipped."""
    return {name: figures[metric] for name, figures in shipped()["rows"][experiment.id].items()}


def test_it_says_where_it_was_measured():
    assert shipped()["device"].startswith("CPU, ")
    assert (shipped()["threads"], shipped()["seed"]) == (1, 0)
    assert shipped()["corpus_sha256"] == corpus.TINYSHAKESPEARE_SHA256


def test_the_replaced_average_is_far_behind_and_positions_do_not_show():
    assert "the replaced average is far behind the other two" in AVERAGES.shows
    found = ends(AVERAGES)
    assert found["average"] > 3 * max(found["no-context"], found["average-added"])
    assert "the 2 points that positions buy" in AVERAGES.hides
    assert found["average"] == pytest.approx(found["average-positions"], abs=0.1)


def test_the_unmasked_head_falls_far_below():
    assert "falls far below" in MASK.shows
    assert ends(MASK)["unmasked"] < 1.5 < 50 < ends(MASK)["head-added"]


def test_raw_scores_are_no_better_than_equal_weights():
    assert "raw scores are no better than equal weights" in QKV.shows
    assert ends(QKV)["raw"] > ends(QKV)["average-added-positions"]
    # Mean weight of a token on itself, of 32 held-out windows.
    assert shipped()["rows"][QKV.id]["raw"]["own_weight"] > 0.99


def test_at_1024_undivided_scores_run_away_and_nearly_every_row_freezes():
    assert "at d_k 1024 the undivided head’s scores run away and nearly every row freezes" in SCALING.shows
    spread, frozen = (ends(SCALING, metric) for metric in ("score_std", "frozen_share"))
    assert spread["undivided-1024"] > 300
    assert spread["divided-1024"] < 10
    assert (frozen["undivided-1024"] > 0.95, frozen["divided-1024"] < 0.2) == (True, True)


def test_of_all_scales_the_undivided_one_alone_lets_the_scores_run_away():
    assert SCALES.shows == "which scales let the scores run away"
    assert set(ends(SCALES, "score_std")) == {"by-width-1024", "learned-scale-1024", "qk-norm-1024"}
    assert max(ends(SCALES, "score_std").values()) < ends(SCALING, "score_std")["divided-1024"] < 10


def test_in_a_wide_model_undivided_scores_run_away_within_twenty_steps():
    assert SCALING_WIDE.shows == "undivided, the scores run away within the first steps"
    spread = ends(SCALING_WIDE, "score_std")
    assert spread["undivided-1024-wide"] > 5 * 21.4, "where it begins"
    assert spread["divided-1024-wide"] < 10


def test_a_head_that_replaces_is_far_behind_one_that_is_added_and_a_block_ahead_of_both():
    assert "far behind one that is added, and a whole block ahead of both" in LADDER.shows
    found = ends(LADDER)
    assert found["head-replaces"] > found["head-added"] + 15
    assert found["head-added"] > found["block"] + 10


def test_post_norm_without_a_warmup_is_far_behind_the_other_three():
    assert NORM_PLACEMENT.shows == "post-norm without a warmup is far behind the other three"
    found = ends(NORM_PLACEMENT)
    assert set(found) == set(NORM_PLACEMENT.variants)
    post = found.pop("post-norm")
    assert post > 1.2 * max(found.values())
    assert "level" in NORM_PLACEMENT.hides
    assert max(found.values()) > 1.1 * min(found.values())


def test_a_table_and_sinusoids_lose_far_more_beyond_their_window_than_rope_and_alibi():
    assert POSITIONS.shows.endswith("lose far more beyond their window than RoPE and ALiBi")
    near, far = (ends(POSITIONS, f"perplexity_{length}") for length in (64, 256))
    lost = {name: far[name] - near[name] for name in near}
    assert min(lost["learned"], lost["sinusoidal"]) > 5 * max(lost["rope"], lost["alibi"])


def again(experiment, name):
    """Trained again as it was for the file."""
    text, budget = corpus.load(corpus.TINYSHAKESPEARE), EXPERIMENTS[experiment].budget("quick", name)
    train, held_out = (torch.from_numpy(part.astype("int64")) for part in (text.train_ids, text.held_out_ids))
    task = TextTask(train, held_out, budget.context_length)
    config = EXPERIMENTS[experiment].variant(name).config
    training = Training(config=config, budget=budget, seed=0, task=task)
    for _ in range(budget.steps):
        training.advance()
    return task.evaluate(training.model, lambda: False)[PERPLEXITY]


@pytest.mark.full
@pytest.mark.usefixtures("one_thread")
@pytest.mark.skipif(not corpus.is_present(corpus.TINYSHAKESPEARE), reason="Tiny Shakespeare is not here")
@pytest.mark.parametrize(
    ("experiment", "name"),
    [(LADDER.id, "head-added"), (LADDER.id, "block"), (MASK.id, "unmasked"), (AVERAGES.id, "average")],
)
def test_trained_again_it_ends_as_it_is_shipped(experiment, name):
    before = shipped()["rows"][experiment][name][PERPLEXITY]
    assert again(experiment, name) == pytest.approx(before, rel=0.01)
