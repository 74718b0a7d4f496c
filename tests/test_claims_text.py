"""What the lab says of models of the text is so in every shipped seed: rows of ``docs/claims.md``."""

from statistics import fmean

import pytest

from engine.chapter import reference
from engine.chapter.experiments import PERPLEXITY
from engine.chapter.measurements import PLACEMENTS
from lab.sections.norm import start
from tests.test_claims import seeds


def gaps(experiment, one, other, metric=PERPLEXITY):
    """By how much the first is above the second, seed by seed, of those that both have."""
    return [a - b for a, b in zip(*(seeds(experiment, name, metric) for name in (one, other)), strict=False)]


def test_in_place_of_the_token_the_mean_multiplies_perplexity_by_four_and_beside_it_costs_a_little():
    alone = seeds("averages", "no-context", PERPLEXITY)
    assert all(
        4.1 < one / other < 4.2
        for one, other in zip(seeds("averages", "average", PERPLEXITY), alone, strict=True)
    )
    assert gaps("averages", "average-added", "no-context") == pytest.approx([1.37, 1.24, 1.56], abs=0.01)
    assert fmean(gaps("averages", "average", "average-positions")) == pytest.approx(2.41, abs=0.01)


def test_without_a_mask_the_right_token_gets_nearly_all_of_the_probability_on_held_out_text():
    assert seeds("mask", "unmasked", PERPLEXITY) == pytest.approx([1.047, 1.047], abs=0.001)


def test_raw_scores_end_with_nine_rows_of_ten_on_one_token_and_are_worth_no_more_than_equal_weights():
    assert seeds("query-key-value", "raw", "frozen_share") == pytest.approx([0.90, 0.92], abs=0.005)
    assert all(abs(gap) < 0.3 for gap in gaps("query-key-value", "raw", "average-added-positions"))


def test_one_matrix_is_better_than_equal_weights_and_queries_and_keys_are_better_than_that():
    for better, worse in (("matrix", "average-added-positions"), ("query-key", "matrix")):
        assert max(gaps("query-key-value", better, worse)) < -1


def test_two_blocks_still_rise_when_training_stops_and_fit_their_own_text_better():
    rows = reference.load("ladder").rows
    ends = {"two-blocks": (0.28, 0.41), "block": (-0.1, 0.02)}
    for name, (low, high) in ends.items():
        for curve in rows[name].curves.values():
            by_step = dict(map(tuple, curve))
            assert low < (by_step[3000] - by_step[2500]) / 5 < high, name
    assert max(gaps("ladder", "two-blocks", "block", "train_perplexity")) < -3


def test_heads_and_layer_norm_pay_and_w_o_alone_does_not():
    assert gaps("ladder", "head-projected", "head-added") == pytest.approx([0.85], abs=0.01)
    assert gaps("ladder", "four-heads", "head-projected") == pytest.approx([-4.55], abs=0.01)
    assert gaps("ladder", "block", "feed-forward") == pytest.approx([-2.16], abs=0.01)
    assert gaps("ladder", "block-dropout", "block") == pytest.approx([-1.58], abs=0.01)


def test_a_warmup_is_worth_less_than_a_point_to_pre_norm_and_makes_post_norm_as_good():
    found = gaps("norm-placement", "pre-norm", "pre-norm-warmup")
    assert found == pytest.approx([0.39, 0.24], abs=0.01)
    assert max(map(abs, gaps("norm-placement", "post-norm-warmup", "pre-norm"))) < 0.15
    assert min(gaps("norm-placement", "post-norm", "post-norm-warmup")) > 270


def test_post_norms_ratio_is_larger_in_every_seed_and_moves_as_far_from_seed_to_seed():
    pre, post = (reference.load("norm-gradients").rows[name] for name in PLACEMENTS)
    found = gaps("norm-gradients", "post-norm", "pre-norm", "ratio")
    assert (len(found), min(found) > 0) == (10, True)
    assert (pre.sd("ratio"), post.sd("ratio")) == pytest.approx((0.137, 0.220), abs=0.001)
    assert fmean(found) < post.sd("ratio"), "so no cause is given"
    assert "in 10, by 0.02 to 0.39" in start.over_seeds()
    assert "because" not in start.over_seeds()


def test_in_a_model_as_wide_as_its_head_the_chapters_figures_come_near_but_for_one():
    wide = "scaling-training-wide"
    assert fmean(gaps(wide, "undivided-256-wide", "divided-256-wide")) == pytest.approx(17.54, abs=0.01)
    assert gaps(wide, "undivided-1024-wide", "divided-1024-wide") == pytest.approx([16.64], abs=0.01)
    assert seeds(wide, "divided-1024-wide", "score_std") == pytest.approx([3.60], abs=0.01)
    assert seeds(wide, "undivided-1024-wide", "score_std") == pytest.approx([4024], abs=1)


def test_divided_by_its_width_a_head_stays_soft_and_loses_to_the_root():
    for name, frozen in (("by-width-1024", 0.0), ("learned-scale-1024", 0.03), ("qk-norm-1024", 0.011)):
        assert max(seeds("scaling-scales", name, "frozen_share")) <= frozen
    assert gaps("scaling-scales", "by-width-1024", "divided-1024") == pytest.approx([1.46, 2.50], abs=0.01)
