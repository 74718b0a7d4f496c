"""The nursery: what it forks trains the same bits, no run needs it later, it is used only while it fits."""

import os
import signal
import sys

import psutil
import pytest
import torch
from filelock import FileLock

from engine.runs import nursery
from engine.runs.nursery import FORKS
from engine.system import files, paths
from engine.training import checkpoint
from tests.processes import test_faults
from tests.processes.test_faults import gone, spec

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals are POSIX's")
lab = test_faults.lab
linux = pytest.mark.skipif(not FORKS, reason="nothing forks here")


def nursery_of(here):
    """The pid of a nursery that is ready."""
    here.until(lambda: here.engine.capacity(), 60)
    assert here.engine._nursery._is_ready_or_gone()
    return here.engine._nursery._process.pid


def spare_of(here):
    """The spare supervisor, which has begun to warm up its trainer."""
    here.dispatcher.tick()
    spare = psutil.Process(here.engine._nursery._process.pid)
    here.until(spare.children, 20)
    return spare


def started(here, *specs):
    """Submit and wait until all have begun."""
    runs = here.submit(*specs)
    for run in runs:
        here.began(run)
    return runs


@linux
def test_a_forked_run_a_spare_one_and_a_plain_one_train_the_same_bits(lab):
    results = []
    for way in ("forked", "plain", "spare"):
        here = lab(way=way)
        if way == "forked":
            nursery_of(here)
        elif way == "spare":
            spare = spare_of(here)
        (run,) = here.submit(spec(steps=60))
        here.until(lambda here=here, run=run: here.state(run) != "queued", 60)
        assert here.forked(run) == (way == "forked")
        if way == "spare":
            assert here.pid(run, "supervisor") == spare.pid
        here.until(lambda here=here, run=run: here.state(run) == "done", 60)
        tensors, _ = checkpoint.load(here.folder(run) / "checkpoint.safetensors")
        results.append((here.get(run).measured, here.get(run).environment, tensors))
        here.dispatcher.__exit__()
    (measured, environment, tensors), *others = results
    for other_measured, other_environment, other_tensors in others:
        assert other_measured == measured
        assert other_environment == environment  # the number of threads is in it
        assert all(torch.equal(other_tensors[name], tensors[name]) for name in tensors)


@linux
def test_the_nursery_killed_harms_no_run_and_the_next_two_start(lab):
    here = lab("sleep", slots=3)
    pid = nursery_of(here)
    (first,) = started(here, spec(0))
    assert here.forked(first)
    os.kill(pid, signal.SIGKILL)
    (second,) = here.submit(spec(1))
    assert here.until(lambda: (here.folder(second) / "began.1").exists(), 10) < 3
    assert not here.forked(second)
    assert nursery_of(here) != pid
    (third,) = started(here, spec(2))
    assert here.forked(third)
    assert here.state(first) == "running"
    os.kill(here.pid(first, "trainer"), signal.SIGKILL)  # its supervisor still knows how it ended
    here.until(lambda: here.state(first) == "failed", 5)
    assert here.get(first).reason == "the trainer was killed from outside (SIGKILL)"


@linux
@pytest.mark.parametrize("change", ["it hangs", "other code", "another folder"])
def test_a_nursery_that_hangs_or_is_of_other_code_or_folder_forks_nothing_and_is_replaced(
    lab, monkeypatch, change
):
    here = lab("sleep", slots=2)
    pid = nursery_of(here)
    if change == "it hangs":
        os.kill(pid, signal.SIGSTOP)
    elif change == "other code":
        version = nursery._version
        monkeypatch.setattr(nursery, "_version", lambda environment: (version(environment), "edited"))
    else:
        monkeypatch.setattr(paths, "HOME", paths.HOME.parent)
    (first,) = started(here, spec(0))
    assert not here.forked(first)
    assert gone(pid)
    nursery_of(here)
    (second,) = started(here, spec(1))
    assert here.forked(second)


@linux
def test_nobody_but_the_supervisor_holds_its_lock_and_the_nursery_holds_no_file(lab):
    here = lab("sleep")
    pid = nursery_of(here)
    (run,) = started(here, spec(0))
    assert psutil.Process(pid).open_files() == []
    log = str(here.folder(run) / "log.txt")
    assert {file.path for file in psutil.Process(here.pid(run, "trainer")).open_files()} == {log}
    os.kill(here.pid(run, "trainer"), signal.SIGSTOP)  # it cannot end, nor let go of what it held
    os.kill(here.pid(run, "supervisor"), signal.SIGKILL)
    with FileLock(here.folder(run) / "alive.lock", timeout=2):
        pass
    os.kill(here.pid(run, "trainer"), signal.SIGKILL)


@linux
def test_a_run_that_comes_while_the_first_nursery_imports_torch_waits_and_can_be_cancelled(lab):
    here = lab("slow")
    (run,) = here.submit(spec(0))
    here.dispatcher.tick()
    assert here.state(run) == "queued"
    here.store.cancel(run)
    assert here.state(run) == "cancelled"


def test_a_spare_trainer_that_was_killed_is_replaced_by_a_plain_one(lab):
    here = lab(way="spare")
    spare_of(here).children()[0].kill()
    (run,) = here.submit(spec(steps=20))
    here.until(lambda: here.state(run) == "done", 60)


WARM = """
import sys, torch
def asked(*_):
    raise AssertionError("the nursery asked for CUDA: a fork cannot use it then")
torch.cuda.is_available = torch.cuda.device_count = torch.cuda._lazy_init = asked
from pathlib import Path
from engine.runs import trainer
trainer.warm_up()
torch.cuda.is_available = lambda: False
before = set(sys.modules)
assert trainer.run(Path(sys.argv[1]), 1)["state"] == "done"
late = {name for name in set(sys.modules) - before if name.startswith(("torch.", "engine."))}
print(*late - {"torch.profiler._cupti_monitor"})  # a few lines long
"""


def test_the_nursery_imports_all_that_a_run_needs_and_leaves_cuda_alone(home, python):
    folder = home / "run"
    folder.mkdir()
    files.write_bytes(folder / "spec.json", spec(steps=20).to_json().encode())
    answer = python("-c", WARM, folder)
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.split() == []
