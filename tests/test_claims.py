"""What the lab says of its shipped figures is so, in every seed: a row of ``docs/claims.md`` each."""

import json
from statistics import mean
from types import SimpleNamespace

import pytest

from engine.chapter import reference
from engine.system import paths
from lab.sections.ladder import notice


def seeds(experiment, variant, metric):
    """A figure of the reference in each of its seeds, in their order."""
    rows = json.loads((paths.REFERENCE / f"{experiment}.json").read_text())["rows"]
    return [measured[metric] for measured in rows[variant]["measured"].values()]


def test_a_divided_head_keeps_its_scores_within_a_few_units_and_is_not_always_soft():
    narrow, wide = "scaling-training", "scaling-training-wide"
    divided = [(narrow, f"divided-{d}") for d in (128, 256, 1024)]
    divided += [(wide, f"divided-{d}-wide") for d in (256, 1024)]
    for experiment, variant in divided:
        assert max(seeds(experiment, variant, "score_std")) < 4
    assert seeds(wide, "divided-1024-wide", "frozen_share") == [pytest.approx(0.306, abs=0.002)]


def test_for_narrow_heads_the_division_is_worth_little_and_their_scores_are_not_small():
    for variant, spread, frozen in (("divided-32", 4.6, 0.19), ("undivided-32", 5.5, 0.23)):
        assert mean(seeds("scaling-training", variant, "score_std")) == pytest.approx(spread, abs=0.05)
        assert mean(seeds("scaling-training", variant, "frozen_share")) == pytest.approx(frozen, abs=0.005)
    ends = [
        seeds("scaling-training", name, "validation_perplexity") for name in ("divided-32", "undivided-32")
    ]
    assert all(0 < without - divided < 1 for divided, without in zip(*ends, strict=True))


def test_the_learned_table_is_not_the_best_inside_its_window_and_sinusoids_are_better_beyond():
    learned, rope = (seeds("positions", name, "perplexity_64") for name in ("learned", "rope"))
    assert mean(rope) < mean(learned)
    assert [one < other for one, other in zip(rope, learned, strict=True)] == [True, False], "one seed each"
    for length in (128, 256, 512):
        sinusoids, table = (
            seeds("positions", name, f"perplexity_{length}") for name in ("sinusoidal", "learned")
        )
        assert all(one < other for one, other in zip(sinusoids, table, strict=True))


def test_two_blocks_are_ahead_when_they_are_stopped_in_time_and_behind_at_the_end():
    rows = json.loads((paths.REFERENCE / "ladder.json").read_text())["rows"]
    one, two = (rows[name]["curves"] for name in ("block", "two-blocks"))
    lows = {seed: min(value for _, value in curve) for seed, curve in two.items()}
    assert lows == pytest.approx({"0": 36.86, "1": 36.10, "2": 35.94}, abs=0.01)
    for seed, curve in one.items():
        assert lows[seed] < min(value for _, value in curve)
        assert two[seed][-1][1] > curve[-1][1]
    found = reference.load("ladder").rows
    shown = notice._stopped(SimpleNamespace(row=lambda name, _: SimpleNamespace(reference=found[name])))
    assert "two blocks have 36.3 (after 1,800 to 2,100 steps), one block 37.6 (after 2,300 to 2,600" in shown


def test_w_v_is_worth_as_much_again_as_w_q_and_w_k():
    raw, asked, head = (
        mean(seeds("query-key-value", name, "validation_perplexity"))
        for name in ("raw", "query-key", "head-added")
    )
    assert (raw - asked, asked - head) == (pytest.approx(7.23, abs=0.01), pytest.approx(7.65, abs=0.01))


def test_the_process_grows_by_more_than_its_tensors():
    rows = json.loads((paths.REFERENCE / "bench-memory.json").read_text())["rows"]
    for implementation, most in (("explicit", 0.022), ("fused", 0.045), ("chunked", 0.116)):
        more = [
            row["resident_bytes"] / row["peak_bytes"] - 1
            for row in rows
            if row["implementation"] == implementation and row["n"] >= 2048 and row["state"] == "done"
        ]
        assert 0 < max(more) == pytest.approx(most, abs=0.0006)


def test_our_attention_differs_from_theirs_by_a_few_roundings_not_by_the_last_bit():
    steps = {"bfloat16": 2.0**-7, "float16": 2.0**-10, "float32": 2.0**-23, "float64": 2.0**-52}
    roundings = [
        mean(seeds("parity", f"{theirs}-{precision}", "relative")) / step
        for theirs in ("module", "function")
        for precision, step in steps.items()
    ]
    assert (min(roundings), max(roundings)) == (pytest.approx(7, abs=0.5), pytest.approx(24, abs=0.5))
