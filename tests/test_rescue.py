"""A run that starts from another run's weights: the failed rescue's engine."""

import json
from dataclasses import replace

import pytest
import torch

from engine.chapter.budget import Budget
from engine.chapter.experiments import RESCUE
from engine.chapter.variants import UNDIVIDED
from engine.data import corpus
from engine.models.config import ModelConfig
from engine.runs import launch, trainer
from engine.runs.spec import RunSpec
from engine.runs.store import Store
from engine.system import files
from engine.training import checkpoint
from tests.trainings import folder

BUDGET = Budget(steps=20, batch_size=2, context_length=16, learning_rate=1e-2)


@pytest.fixture
def collapsed(tiny_corpus, one_thread):
    """A tiny undivided head, trained to its end as run 1. Returns its spec."""
    (spec,) = launch.specs("scaling-training", "quick", (0,), tiny_corpus, ["undivided-1024"])
    config = replace(spec.config, d_model=16, d_head=64, max_positions=16)
    spec = replace(spec, config=config, budget=BUDGET)
    assert trainer.run(run_folder(1, spec), 1)["state"] == "done"
    return spec


def run_folder(run_id, spec):
    return folder(Store().directory(run_id), spec)


def test_a_fork_begins_with_the_others_weights_and_another_scale_and_nothing_else(collapsed):
    fork = launch.rescue(1, collapsed)
    old, new = collapsed.config.to_dict(), fork.config.to_dict()
    assert {name: new[name] for name in new if new[name] != old[name]} == {"score_scale": "sqrt"}
    assert (fork.experiment, fork.variant) == (RESCUE.id, "divided-1024")
    assert (fork.budget, fork.seed, fork.corpus_sha256) == (BUDGET, 0, collapsed.corpus_sha256)
    training = trainer.prepared(run_folder(2, fork), 1, fork)
    saved, _ = checkpoint.load(Store().directory(1) / "checkpoint.safetensors")
    for name, parameter in training.model.named_parameters():
        assert torch.equal(parameter, saved[f"model.{name}"]), name
    assert training.step == 0
    assert not training.optimizer.state


def test_it_trains_on_from_the_divided_scores_and_resumed_from_its_own_checkpoint(collapsed):
    fork = launch.rescue(1, collapsed)
    directory = run_folder(2, fork)
    assert trainer.run(directory, 1)["state"] == "done"
    before = files.records(Store().directory(1))[-1]
    after = files.records(directory)
    assert [record["step"] for record in after] == [0, 10, 20]
    assert after[0]["score_std"] == pytest.approx(before["score_std"] / 8, rel=1e-4)  # the root of 64
    (Store().directory(1) / "checkpoint.safetensors").unlink()
    assert trainer.prepared(directory, 2, fork).step == 20


def test_what_it_forks_is_part_of_what_it_measures(collapsed):
    one, two = launch.rescue(1, collapsed), launch.rescue(17, collapsed)
    assert one.start_run == 1
    assert two.start_run == 17
    assert one.digest == two.digest  # a repeat of the same measurement, read from a repeat of its start
    assert one.digest != replace(one, start_from="").digest
    assert one.digest != launch.rescue(1, replace(collapsed, seed=1)).digest
    assert RunSpec.from_json(one.to_json()) == one


def test_specs_from_before_load_and_keep_their_digests(tiny_corpus):
    (spec,) = launch.specs("averages", "chapter", (0,), tiny_corpus, ["average"])
    spec = replace(spec, corpus="tinyshakespeare", corpus_sha256=corpus.TINYSHAKESPEARE_SHA256)
    text = json.loads(spec.to_json())
    del text["start_from"]
    old = RunSpec.from_json(json.dumps(text))
    assert old == spec
    assert old.start_run is None
    assert old.digest == "977f828075b2a431b951fb9dcfdb27b2"


@pytest.mark.parametrize("wrong", ["17", "17:abc", "../17:" + "0" * 32, "x:" + "0" * 32, "17:" + "G" * 32])
def test_a_start_that_is_no_run_is_refused(collapsed, wrong):
    with pytest.raises(ValueError, match="start_from is"):
        replace(collapsed, start_from=wrong)


def test_only_an_undivided_head_is_rescued(collapsed):
    with pytest.raises(ValueError, match="run #1 is divided-1024"):
        launch.rescue(1, replace(launch.rescue(1, collapsed), start_from=""))
    with pytest.raises(ValueError, match="run #1 is average"):
        launch.rescue(1, replace(collapsed, variant="average", config=ModelConfig()))


def test_a_start_that_is_gone_or_another_is_told(collapsed):
    gone = launch.rescue(7, collapsed)
    with pytest.raises(ValueError, match="run #7, whose weights this one starts with, cannot be read"):
        trainer.prepared(run_folder(2, gone), 1, gone)
    other = launch.rescue(1, replace(collapsed, seed=5))
    with pytest.raises(ValueError, match="run #1 at step 20 is not the finished run"):
        trainer.prepared(run_folder(3, other), 1, other)


def test_the_variants_that_can_be_rescued_are_all_divided_ones():
    assert "divided-1024" in RESCUE.variants
    assert all(UNDIVIDED[name].parent == name for name in RESCUE.variants)
