"""Weights kept over the steps: whole, of the step they say, none beyond the checkpoint after a kill."""

from dataclasses import replace

import pytest
import torch

from engine.chapter.budget import MAX_KEPT, Budget
from engine.chapter.experiments import EXPERIMENTS, INDUCTION
from engine.models.config import ModelConfig
from engine.runs import launch, trainer
from engine.system import files
from engine.training import checkpoint
from engine.training.loop import Training
from tests.trainings import folder, on_this_cpu

BUDGET = Budget(
    steps=50, batch_size=4, context_length=17, evaluate_every=100, checkpoint_every=20, keep_every=15
)
STEPS = [0, 15, 30, 45, 50]
CHECKPOINT = "checkpoint.safetensors"

pytestmark = pytest.mark.usefixtures("one_thread", "home")


@pytest.fixture
def spec(monkeypatch):
    on_this_cpu(monkeypatch)
    (asked,) = launch.specs("winograd-closed", "quick", (3,), "winograd-closed", ["one-block"])
    config = replace(asked.config, d_model=16, d_ff=16)
    return replace(asked, config=config, budget=BUDGET)


def kept(directory):
    """Tensors by step, read whole from every file."""
    found = {}
    for step, path in files.kept_weights(directory).items():
        found[step], header = checkpoint.load(path)
        assert header["step"] == step
    return found


def of_the_model(directory):
    """What the checkpoint holds but for the optimiser's."""
    tensors, _ = checkpoint.load(directory / CHECKPOINT)
    return {name: tensor for name, tensor in tensors.items() if name.startswith("model.")}


def same(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def test_they_are_kept_at_their_steps_the_first_and_the_last_included(tmp_path, spec):
    directory = folder(tmp_path / "1", spec)
    assert trainer.run(directory, 1)["state"] == "done"
    found = kept(directory)
    assert list(found) == STEPS
    for step, tensors in found.items():
        assert all(name.startswith("model.") for name in tensors), "no optimiser"
        model, _ = checkpoint.load_model(directory / "weights" / f"{step}.safetensors")
        assert model.config == spec.config
    assert same(found[50], of_the_model(directory))
    assert not same(found[0], found[15])
    # Those of a run of so many steps; which is told to keep none.
    short = folder(tmp_path / "2", replace(spec, budget=replace(BUDGET, steps=30, keep_every=0)))
    trainer.run(short, 1)
    assert same(found[30], of_the_model(short))
    assert not (short / "weights").exists()
    assert files.kept_weights(short) == {}


@pytest.mark.parametrize("killed_at", [1, 18, 36, 49])
def test_after_a_kill_they_are_as_if_nothing_had_happened(tmp_path, spec, monkeypatch, killed_at):
    whole, directory = folder(tmp_path / "1", spec), folder(tmp_path / "2", spec)
    trainer.run(whole, 1)

    def lost(self, advance=Training.advance):
        if self.step == killed_at:
            raise KeyboardInterrupt  # without a word and without a checkpoint
        return advance(self)

    with monkeypatch.context() as patch:
        patch.setattr(Training, "advance", lost)
        with pytest.raises(KeyboardInterrupt):
            trainer.run(directory, 1)
    (directory / "weights" / "45.safetensors.tmp").write_bytes(b"half")
    prepared = trainer.prepared(directory, 2, spec)
    seen = list(files.kept_weights(directory))
    assert seen == [step for step in STEPS if step <= prepared.step and (directory / CHECKPOINT).exists()]
    assert not list((directory / "weights").glob("*.tmp"))
    trainer.run(directory, 2)
    again, before = kept(directory), kept(whole)
    assert list(again) == STEPS
    assert all(same(again[step], before[step]) for step in STEPS)


def test_stopped_and_resumed_they_are_those_of_an_uninterrupted_run(tmp_path, spec):
    whole, directory = folder(tmp_path / "1", spec), folder(tmp_path / "2", spec)
    trainer.run(whole, 1)
    training = trainer.prepared(directory, 1, spec)
    training.stop = lambda: training.step >= 33
    list(training.records())
    assert list(files.kept_weights(directory)) == [0, 15, 30]
    trainer.run(directory, 2)
    assert all(same(kept(directory)[step], kept(whole)[step]) for step in STEPS)


def test_a_budget_keeps_no_more_than_can_be_looked_through():
    assert Budget(steps=MAX_KEPT, keep_every=1).keep_every == 1
    with pytest.raises(ValueError, match=f"keep_every is 1; allowed for {MAX_KEPT + 1} steps: 0, or a whole"):
        Budget(steps=MAX_KEPT + 1, keep_every=1)


def test_induction_alone_keeps_its_weights_and_they_are_small():
    for shown in EXPERIMENTS.values():
        for budget in shown.budgets.values():
            kept = budget.keep_every and budget.steps / budget.keep_every
            assert 20 <= kept <= 60 if shown is INDUCTION else kept == 0
    assert INDUCTION.variant("two-layers").config.d_model <= ModelConfig().d_model
