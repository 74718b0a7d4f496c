"""Weights kept over the steps: whole, of the step they say, none beyond the checkpoint after a kill."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from engine.chapter.budget import MAX_KEPT, Budget
from engine.chapter.experiments import EXPERIMENTS, experiment
from engine.models.config import ModelConfig
from engine.runs import estimates, launch, trainer
from engine.runs.spec import RunSpec
from engine.system import device, files
from engine.training import checkpoint

BUDGET = Budget(
    steps=50, batch_size=4, context_length=17, evaluate_every=100, checkpoint_every=20, keep_every=15
)
STEPS = [0, 15, 30, 45, 50]

pytestmark = pytest.mark.usefixtures("one_thread", "home")


@pytest.fixture
def spec(monkeypatch):
    here = device.Device("cpu", "CPU, 2 cores", 0, "2", False)
    monkeypatch.setattr(device, "probe", lambda: here)
    monkeypatch.setattr(estimates, "remember", lambda *_: None)
    (asked,) = launch.specs("winograd-closed", "quick", (3,), "winograd-closed", ["one-block"])
    config = replace(asked.config, d_model=16, d_ff=16)
    return replace(asked, config=config, budget=BUDGET)


def folder(tmp_path: Path, name: str, spec: RunSpec) -> Path:
    made = tmp_path / name
    made.mkdir()
    (made / "spec.json").write_text(spec.to_json())
    return made


def kept(directory):
    """Tensors by step, read whole from every file."""
    found = {}
    for step, path in files.kept_weights(directory).items():
        tensors, header = checkpoint.load(path)
        assert header["step"] == step
        found[step] = tensors
    return found


def same(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def test_they_are_kept_at_their_steps_the_first_and_the_last_included(tmp_path, spec):
    directory = folder(tmp_path, "1", spec)
    assert trainer.run(directory, 1)["state"] == "done"
    found = kept(directory)
    assert list(found) == STEPS
    for step, tensors in found.items():
        assert all(name.startswith("model.") for name in tensors), "no optimiser"
        model, _ = checkpoint.load_model(directory / "weights" / f"{step}.safetensors")
        assert model.config == spec.config
    last, _ = checkpoint.load(directory / "checkpoint.safetensors")
    assert same(found[50], {name: t for name, t in last.items() if name.startswith("model.")})
    assert not same(found[0], found[15])


def test_they_are_those_of_a_run_of_so_many_steps(tmp_path, spec):
    trainer.run(long := folder(tmp_path, "1", spec), 1)
    short = replace(spec, budget=replace(BUDGET, steps=30, keep_every=0))
    trainer.run(other := folder(tmp_path, "2", short), 1)
    tensors, _ = checkpoint.load(other / "checkpoint.safetensors")
    assert same(kept(long)[30], {name: t for name, t in tensors.items() if name.startswith("model.")})


def test_without_the_field_none_are_kept(tmp_path, spec):
    directory = folder(tmp_path, "1", replace(spec, budget=replace(BUDGET, keep_every=0)))
    trainer.run(directory, 1)
    assert not (directory / "weights").exists()
    assert files.kept_weights(directory) == {}


@pytest.mark.parametrize("killed_at", [1, 18, 36, 49])
def test_after_a_kill_they_are_as_if_nothing_had_happened(tmp_path, spec, monkeypatch, killed_at):
    whole, directory = folder(tmp_path, "1", spec), folder(tmp_path, "2", spec)
    trainer.run(whole, 1)
    with monkeypatch.context() as patch:
        _killed_at(patch, killed_at)
        with pytest.raises(KeyboardInterrupt):
            trainer.run(directory, 1)
    (directory / "weights" / "45.safetensors.tmp").write_bytes(b"half")
    seen = []
    prepared = trainer.prepared(directory, 2, spec)
    seen = list(files.kept_weights(directory))
    assert seen == [step for step in STEPS if step <= prepared.step and (directory / CHECKPOINT).exists()]
    assert not list((directory / "weights").glob("*.tmp"))
    trainer.run(directory, 2)
    again, before = kept(directory), kept(whole)
    assert list(again) == STEPS
    assert all(same(again[step], before[step]) for step in STEPS)


CHECKPOINT = "checkpoint.safetensors"


def _killed_at(patch, step):
    """The trainer is lost at that step, without a word and without a checkpoint."""
    from engine.training.loop import Training

    advance = Training.advance

    def lost(self):
        if self.step == step:
            raise KeyboardInterrupt
        return advance(self)

    patch.setattr(Training, "advance", lost)


def test_stopped_and_resumed_they_are_those_of_an_uninterrupted_run(tmp_path, spec):
    whole, directory = folder(tmp_path, "1", spec), folder(tmp_path, "2", spec)
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


def test_induction_keeps_its_weights_and_they_are_small():
    shown = experiment("induction")
    for name in shown.budgets:
        budget = shown.budget(name)
        assert 20 <= budget.steps / budget.keep_every <= 60
    assert not any(
        budget.keep_every
        for other in EXPERIMENTS.values()
        if other.id != "induction"
        for budget in other.budgets.values()
    )
    assert shown.variant("two-layers").config.d_model <= ModelConfig().d_model
