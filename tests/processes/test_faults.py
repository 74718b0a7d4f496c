"""What a run's processes can suffer, each fault for real: real processes, real signals, a real disk.

Every test drives the dispatcher that ships over the local engine that ships; only the trainer is one of
``tests/trainers.py``. Where it could matter how a run is launched, that is done both ways: forked from a
nursery, and plainly.
"""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
import torch

from engine.chapter.budget import Budget
from engine.data import corpus
from engine.models.config import ModelConfig
from engine.runs.dispatcher import Dispatcher
from engine.runs.local import LocalEngine
from engine.runs.nursery import COMMAND, FORKS, TRAINER, Nursery, Supervisor
from engine.runs.spec import RunSpec
from engine.runs.store import Store
from engine.system import files, paths
from engine.system.processes import marked
from engine.training import checkpoint
from tests.serving import kill, until

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals are POSIX's")
TRAINERS = (sys.executable, "-m", "tests.trainers")
CONFIG = ModelConfig(d_model=8, mixer="average", connection="add")
BUDGET = Budget(steps=1, batch_size=1, context_length=8, evaluate_every=10_000_000)
ROOT = paths.ROOT


def spec(seed=0, steps=100_000, checkpoint_every=20):
    return RunSpec(
        experiment="averages",
        variant="average-added",
        budget_name="quick",
        config=CONFIG,
        budget=replace(BUDGET, steps=steps, checkpoint_every=checkpoint_every),
        corpus="python-reference",
        corpus_sha256=corpus.sha256_of("python-reference"),
        seed=seed,
    )


WAYS = ["forked", "plain"] if FORKS else ["plain"]


class Lab:
    """A data folder with a dispatcher that ticks while a test waits.

    way: whether its runs are forked from a nursery, given to a spare supervisor or launched plainly.
    """

    def __init__(self, mode, slots=1, memory_bytes=None, way=WAYS[0]):
        trainer: tuple[str, ...] = (*TRAINERS, mode)
        nursery: tuple[str, ...] = (*trainer, "nursery")
        if mode == "real":
            trainer, nursery = TRAINER, COMMAND
        elif mode.startswith("wall-"):  # the real one, but for the workers of a memory wall
            trainer = (sys.executable, "-m", "tests.wall_trainer", mode.removeprefix("wall-"))
            way = "plain"  # as whatever is carried out alone
        self.store = Store()
        self.engine = LocalEngine(slots, trainer, memory_bytes)
        self.engine._nursery = None if way == "plain" else Nursery(nursery, forks=way == "forked")
        self.dispatcher = Dispatcher(self.store, self.engine)

    def forked(self, run_id):
        """Whether a run that is under way was forked from the nursery."""
        return isinstance(self.engine._started[run_id, self.get(run_id).attempt], Supervisor)

    def submit(self, *specs, user="local"):
        sweep = self.store.submit(specs, user=user)
        return [run.id for run in self.store.entries(sweep=sweep)]

    def until(self, condition, seconds):
        """Tick until the condition holds. Returns how long that took."""
        began = time.monotonic()
        while not condition():
            if time.monotonic() - began > seconds:
                rows = [(run.id, run.state, run.reason) for run in self.store.entries()]
                raise AssertionError(f"not within {seconds} s; {rows}")
            self.dispatcher.tick()
            time.sleep(0.02)
        return time.monotonic() - began

    def began(self, run_id, seconds=20):
        attempt = self.get(run_id).attempt
        self.until(lambda: (self.folder(run_id) / f"began.{attempt}").exists(), seconds)

    def state(self, run_id):
        return self.get(run_id).state

    def get(self, run_id):
        return self.store.get(run_id)

    def folder(self, run_id):
        return self.store.directory(run_id)

    def pid(self, run_id, who):
        run = self.get(run_id)
        path = self.folder(run_id) / f"pid.{run.attempt}.json"
        self.until(path.exists, 20)
        return files.read_json(path)[who]

    def step(self, run_id):
        return files.last_record(self.folder(run_id)).get("step", 0)


@pytest.fixture
def lab(request, home):
    """Makes labs that launch runs as this system does, or as the test says; nothing outlives the test."""
    made, way = [], getattr(request, "param", WAYS[0])

    def make(mode="real", **options):
        one = Lab(mode, **{"way": way, **options})
        one.dispatcher.__enter__()
        made.append(one)
        return one

    yield make
    for one in made:
        for run in one.store.entries(states=("starting", "running")):
            for who in ("supervisor", "trainer"):
                kill(one.pid(run.id, who))
        one.dispatcher.__exit__()
    until(lambda: not at_work(home), 30, lambda: at_work(home))  # a spare trainer has to import torch first


both_ways = pytest.mark.parametrize("lab", WAYS, indirect=True)


def at_work(home):
    """The processes, but this one, that work on a data folder."""
    return list(marked("ATTENTION_LAB_HOME", str(home)))


def gone(pid):
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@both_ways
@pytest.mark.parametrize(
    ("mode", "reason"),
    [
        ("exit-3", "the trainer exited with code 3"),
        ("segfault", "the trainer crashed: segmentation fault (SIGSEGV)"),
        ("sleep", "the trainer was killed from outside (SIGKILL)"),
    ],
)
def test_a_trainer_that_dies_fails_alone_and_is_named_within_a_second_and_the_next_one_starts(
    lab, mode, reason
):
    here = lab(mode)
    first, second = here.submit(spec(0), spec(1))
    here.began(first)
    assert here.forked(first) == (here.engine._nursery is not None)
    if mode == "sleep":
        os.kill(here.pid(first, "trainer"), signal.SIGKILL)
    assert here.until(lambda: here.state(first) == "failed", 5) < 1.0
    assert here.get(first).reason == reason
    here.began(second)


@pytest.mark.parametrize(
    ("mode", "reason", "error"),
    [
        ("memory-error", "out of memory: cannot allocate 17179869184 bytes", "MemoryError"),
        pytest.param(
            *("full-disk", "disk full: No space left on device", "OSError"),
            marks=pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full"),
        ),
    ],
)
def test_what_stops_training_is_the_reason_and_stands_in_the_log(lab, mode, reason, error):
    here = lab(mode)
    (run,) = here.submit(spec())
    here.until(lambda: here.state(run) == "failed", 30)
    assert here.get(run).reason == reason
    assert error in (here.folder(run) / "log.txt").read_text()


@both_ways
def test_the_memory_cap_ends_a_hog(lab):
    here = lab("hog", memory_bytes=200_000_000)
    first, second = here.submit(spec(0), spec(1))
    here.until(lambda: here.state(first) == "failed", 20)
    assert here.get(first).reason.startswith("out of memory: 0.2 GB used, 0.2 GB allowed")
    here.began(second)


def test_cooperative_cancel_within_a_second_keeps_the_checkpoint(lab):
    here = lab("real")
    (run,) = here.submit(spec(checkpoint_every=10_000))
    here.until(lambda: here.step(run) >= 10, 40)
    here.store.cancel(run)
    assert here.until(lambda: here.state(run) == "cancelled", 5) < 1.0
    _, header = checkpoint.load(here.folder(run) / "checkpoint.safetensors")
    assert here.get(run).reason == f"by you, at step {header['step']:,}"
    assert header["step"] >= 10


@both_ways
def test_a_stuck_trainer_is_cancelled_within_two_seconds(lab):
    here = lab("stuck")
    (run,) = here.submit(spec())
    here.began(run)
    here.store.cancel(run)
    assert here.until(lambda: here.state(run) == "cancelled", 5) < 2.0
    assert gone(files.read_json(here.folder(run) / "pid.1.json")["trainer"])


@both_ways
def test_cancel_takes_the_trainers_own_children_along(lab):
    here = lab("child")
    (run,) = here.submit(spec())
    grandchild = here.folder(run) / "grandchild"
    here.until(lambda: grandchild.exists() and grandchild.read_text(), 20)
    here.store.cancel(run)
    here.until(lambda: here.state(run) == "cancelled", 5)
    assert gone(int(grandchild.read_text()))


def test_a_queued_run_is_cancelled_at_once(lab):
    here = lab("sleep")
    first, second = here.submit(spec(0), spec(1))
    here.began(first)
    here.store.cancel(second)
    assert here.state(second) == "cancelled"  # without a tick


@both_ways
def test_supervisor_killed_ends_the_trainer_and_resume_loses_at_most_one_checkpoint(lab):
    here = lab("slow")
    (run,) = here.submit(spec(steps=200))
    here.until(lambda: here.step(run) >= 50, 40)
    trainer = here.pid(run, "trainer")
    reached = here.step(run)
    os.kill(here.pid(run, "supervisor"), signal.SIGKILL)
    assert here.until(lambda: gone(trainer) and here.state(run) == "interrupted", 5) < 1.0
    assert here.get(run).reason == "its supervisor was killed"

    _, header = checkpoint.load(here.folder(run) / "checkpoint.safetensors")
    assert reached - header["step"] <= 20
    assert here.store.resume(run)
    here.until(lambda: here.state(run) == "done", 40)
    steps = [record["step"] for record in files.records(here.folder(run))]
    assert steps == list(range(0, 201, 10))  # nothing twice, nothing missing
    assert here.get(run).attempt == 2


def test_a_resumed_run_measures_what_an_uninterrupted_one_does(lab):
    here = lab("slow", slots=1)
    whole, cut = here.submit(spec(steps=60), spec(steps=60))
    here.until(lambda: here.state(whole) == "done", 40)
    here.until(lambda: here.step(cut) >= 20, 40)
    files.request_stop(here.folder(cut), 1, "stop")
    here.until(lambda: here.state(cut) == "interrupted", 5)
    assert here.get(cut).reason.startswith("the lab was closed, at step ")
    here.store.resume(cut)
    here.until(lambda: here.state(cut) == "done", 40)
    assert here.get(cut).measured == here.get(whole).measured
    one, other = (checkpoint.load(here.folder(run) / "checkpoint.safetensors")[0] for run in (whole, cut))
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_a_dead_run_is_found_though_its_heartbeat_is_dated_ahead(lab):
    here = lab("sleep")
    (run,) = here.submit(spec())
    here.began(run)
    supervisor = here.pid(run, "supervisor")
    os.kill(supervisor, signal.SIGKILL)
    ahead = time.time() + 3600
    os.utime(here.folder(run) / "pid.1.json", (ahead, ahead))
    assert here.until(lambda: here.state(run) == "interrupted", 5) < 2.0


def test_a_newer_attempt_ends_the_older_one(lab):
    here = lab("sleep")
    (run,) = here.submit(spec())
    here.began(run)
    (here.folder(run) / "claim.2").touch()
    here.until(lambda: here.state(run) == "failed", 5)
    assert here.get(run).reason == "superseded by a newer attempt"


FULL = """
from tests.processes.test_faults import Lab, spec
here = Lab("real")
with here.dispatcher:
    (run,) = here.submit(spec(checkpoint_every=10))
    folder = here.folder(run)
    here.until(lambda: here.step(run) >= 10, 60)
    with (folder / "ballast").open("wb", buffering=0) as out:  # fills the disk to the last byte
        try:
            while True:
                out.write(b"x" * 512)
        except OSError:
            pass
    here.until(lambda: here.state(run) in ("failed", "interrupted"), 60)
    print(here.state(run), here.get(run).reason)
    (folder / "ballast").unlink()
"""


def test_a_disk_that_really_fills_up_fails_with_its_reason(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    script = tmp_path / "full.py"
    script.write_text(FULL)
    mount = f"mount -t tmpfs -o size=6m tmpfs {disk}"
    if (
        shutil.which("unshare") is None
        or subprocess.run(["unshare", "-rm", "sh", "-c", mount], capture_output=True, check=False).returncode
    ):
        pytest.skip("this system lets no user mount a small disk of its own")
    answer = subprocess.run(
        ["unshare", "-rm", "sh", "-c", f"{mount} && exec {sys.executable} {script}"],
        cwd=ROOT,
        env={**os.environ, "ATTENTION_LAB_HOME": str(disk), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert answer.stdout.startswith("failed disk full: No space left on device"), answer


WRITER = """
import sys
from pathlib import Path
from engine.system import files
target, a, b = map(Path, sys.argv[1:])
texts = [a.read_bytes(), b.read_bytes()]
while True:
    for text in texts:
        files.write_bytes(target, text)
        print("x", flush=True)
"""


def test_killed_in_the_middle_of_a_checkpoint_write_50_times_it_always_loads(tmp_path):
    for name, value in (("a", 1.0), ("b", 2.0)):
        checkpoint.save(tmp_path / name, {"model.w": torch.full((1000, 500), value)}, {"step": int(value)})
    target, dice = tmp_path / "checkpoint.safetensors", random.Random(0)
    seen = set()
    for _ in range(50):
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, target, tmp_path / "a", tmp_path / "b"],
            cwd=ROOT,
            stdout=subprocess.PIPE,
        )
        assert writer.stdout is not None
        writer.stdout.readline()  # one whole file is there; from now on it is always being replaced
        time.sleep(dice.uniform(0, 0.02))
        writer.kill()
        writer.wait()
        writer.stdout.close()
        tensors, header = checkpoint.load(target)
        assert (tensors["model.w"] == float(header["step"])).all()
        seen.add((header["step"], target.with_name(target.name + ".tmp").exists()))
    assert len(seen) > 2  # some kills did hit a write: a torn temporary file was left, and did no harm


def test_a_killed_dispatcher_leaves_training_and_the_next_one_adopts_it(home):
    store = Store()
    command = [sys.executable, "-m", "engine.runs.dispatcher"]
    environment = {**os.environ, "ATTENTION_LAB_SLOTS": "1"}

    def start():
        return subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True)

    def step(run_id=1):
        return files.last_record(store.directory(run_id)).get("step", 0)

    def trains_on():
        before = step()
        until(lambda: step() > before, 10, store.runs)

    first = start()
    try:
        store.submit([spec()])
        until(lambda: step() >= 10, 40, store.runs)
        (nursery,) = psutil.Process(first.pid).children() if FORKS else (None,)
        second = start()
        assert second.wait(20) == 3
        complaint = second.stderr.read()
        assert "another dispatcher already serves" in complaint
        assert "Traceback" not in complaint

        first.kill()
        first.wait()
        trains_on()  # nobody dispatches
        until(lambda: nursery is None or gone(nursery.pid), 2, "the nursery stays")
        first = start()
        time.sleep(1.0)
        assert (store.get(1).state, store.get(1).attempt) == ("running", 1)
        trains_on()
        store.cancel(1)
        until(lambda: store.get(1).state == "cancelled", 2, store.runs)  # the new one rules it
        store.submit([spec(1)])
        until(lambda: step(2) >= 10, 40, store.runs)
    finally:
        first.send_signal(signal.SIGTERM)  # as Ctrl-C: runs save and end first
        first.wait(20)
    assert store.get(2).state == "interrupted"
    assert store.get(2).reason.startswith("the lab was closed, at step ")
    assert checkpoint.load(store.directory(2) / "checkpoint.safetensors")[1]["step"] >= 10
