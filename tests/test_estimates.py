"""Estimates: unknown until something was timed, then close to what a run takes."""

import pytest

from engine.runs import estimates
from engine.runs.launch import specs
from engine.system import paths


@pytest.fixture(autouse=True)
def folder(monkeypatch, tmp_path):
    monkeypatch.setattr(paths, "DATA", tmp_path)
    monkeypatch.setenv("ATTENTION_LAB_SLOTS", "2")


def quick(seeds=(0,)):
    return specs("averages", "quick", seeds, "python-reference")


def test_nothing_is_known_before_a_step_was_timed():
    assert estimates.run_seconds(quick()[0]) is None
    assert estimates.sweep_seconds(quick()) is None


def test_calibration_times_each_shape_once_and_a_finished_run_improves_it(monkeypatch):
    estimates.calibrate(quick())
    first = estimates.run_seconds(quick()[0])
    assert first is not None
    assert first > estimates.START_SECONDS
    monkeypatch.setattr(estimates, "remember", lambda *_: pytest.fail("timed again"))
    estimates.calibrate(quick(seeds=(1,)))  # another seed is the same work
    monkeypatch.undo()


def test_a_remembered_speed_decides():
    spec = quick()[0]
    estimates.remember(spec, 0.5)
    assert estimates.run_seconds(spec) == pytest.approx(estimates.START_SECONDS + spec.budget.steps * 0.5)


def test_a_model_timed_on_one_budget_is_known_on_the_other():
    short, long = (specs("averages", name, (0,), "python-reference")[0] for name in ("quick", "chapter"))
    estimates.remember(short, 0.1)
    tokens = long.budget.batch_size / short.budget.batch_size
    expected = estimates.START_SECONDS + long.budget.steps * 0.1 * tokens
    assert estimates.run_seconds(long) == pytest.approx(expected, rel=0.2)  # evaluations weigh less there


def test_a_model_that_was_never_timed_takes_as_long_as_its_likeness_in_size():
    average, narrow, wide = (
        specs(experiment, "quick", (0,), "python-reference", (name,))[0]
        for experiment, name in (
            ("averages", "average"),
            ("scaling-training", "divided-256"),
            ("scaling-training", "divided-1024"),
        )
    )
    estimates.remember(average, 0.01)
    assert estimates.run_seconds(narrow) > estimates.START_SECONDS
    estimates.remember(wide, 0.5)
    of_wide = estimates.run_seconds(wide) - estimates.START_SECONDS
    undivided = specs("scaling-training", "quick", (0,), "python-reference", ("undivided-1024",))[0]
    assert estimates.run_seconds(undivided) - estimates.START_SECONDS == pytest.approx(of_wide)
    assert 0 < estimates.run_seconds(narrow) - estimates.START_SECONDS < of_wide


def test_a_speed_of_another_device_says_nothing_about_this_one(monkeypatch):
    estimates.remember(quick()[0], 0.1)
    monkeypatch.setenv("ATTENTION_LAB_SLOTS", "1")
    assert estimates.run_seconds(quick()[0]) is None


def test_a_sweep_shares_the_slots():
    four = quick()
    for spec in four:
        estimates.remember(spec, 0.1)
    one = estimates.run_seconds(four[0])
    assert one is not None
    assert estimates.sweep_seconds(four) == pytest.approx(2 * one)
    assert estimates.sweep_seconds(four[:3]) == pytest.approx(2 * one)
    assert estimates.sweep_seconds(four[:1]) == pytest.approx(one)


def test_a_torn_speed_file_is_no_error(tmp_path):
    (tmp_path / "cache").mkdir()
    for torn in ('{"half', '{"a": 0.1, "b": {"work": 1}}'):  # the second as an earlier version wrote it
        (tmp_path / "cache" / "speed.json").write_text(torn)
        assert estimates.run_seconds(quick()[0]) is None
    estimates.remember(quick()[0], 0.1)
    assert estimates.run_seconds(quick()[0]) is not None
