"""The memory wall as a run of the store: exclusive, cancelled, killed, resumed; real processes and signals.

The dispatcher, the supervisor and the run's process are those that ship; only its workers are stand-ins.
"""

import os
import signal
import sys

import psutil
import pytest

from engine.memory_wall.plan import Plan, last_rows
from engine.runs.spec import WallSpec
from engine.system import files
from tests.processes import test_faults
from tests.processes.test_faults import gone, spec

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals are POSIX's")
lab = test_faults.lab
WALL = WallSpec(Plan(tokens=(64, 128), implementations=("fused", "chunked"), threads=1))


def rows(here, run):
    return [(row.n, row.implementation, row.state) for row in last_rows(files.records(here.folder(run)))]


def workers(here, run):
    """Of a run, once there are some."""
    process = psutil.Process(here.pid(run, "trainer"))
    here.until(process.children, 20)
    return [one.pid for one in process.children(recursive=True)]


def measuring(here, run, seconds=20):
    here.until(lambda: any(state == "running" for *_, state in rows(here, run)), seconds)


def test_a_measurement_ends_as_other_runs_do(lab):
    here = lab("wall-done")
    (run,) = here.submit(WALL)
    here.until(lambda: here.state(run) == "done", 20)
    assert rows(here, run) == [
        (64, "fused", "done"),
        (64, "chunked", "done"),
        (128, "fused", "done"),
        (128, "chunked", "done"),
    ]
    ended = here.get(run)
    assert (ended.reason, ended.attempt) == ("", 1)
    assert ended.environment["threads"] == 1
    assert {"device", "torch", "python", "lab"} <= ended.environment.keys()
    assert ended.measured == pytest.approx(
        {f"{name}_{what}_exponent": 0.0 for name in ("fused", "chunked") for what in ("time", "bytes")}
    )
    steps = [record["step"] for record in files.records(here.folder(run))]
    assert steps == [0, 1, 1, 2, 2, 3, 3, 4], "running and ended, row by row"
    assert here.store.delete(run)
    assert not here.folder(run).exists()


def test_nothing_starts_beside_it_and_a_cancel_takes_less_than_two_seconds(lab):
    here = lab("wall-grow", slots=2)
    wall, training = here.submit(WALL, spec(), user="first")
    (other,) = here.submit(spec(1), user="second")
    measuring(here, wall)
    for _ in range(20):
        here.dispatcher.tick()
    assert here.state(training) == here.state(other) == "queued"
    left = workers(here, wall)
    here.store.cancel(wall)
    assert here.until(lambda: here.state(wall) == "cancelled", 5) < 2.0
    assert here.get(wall).reason == "by you, after 0 rows"
    assert rows(here, wall) == [(64, "fused", "cancelled")]
    assert all(map(gone, left))
    here.until(lambda: here.state(training) == here.state(other) == "running", 20)


def test_trainings_under_way_go_on_and_are_said_with_the_rows(lab):
    here = lab("wall-done", slots=1)
    (training,) = here.submit(spec())
    here.until(lambda: here.state(training) == "running", 20)
    (wall,) = here.submit(WALL)
    here.until(lambda: here.state(wall) == "done", 20)
    assert here.state(training) == "running", "the one slot was taken all the while"
    beside = [row.runs_beside for row in last_rows(files.records(here.folder(wall)))]
    assert beside == [1] * 4


def test_a_worker_killed_fails_its_row_alone(lab):
    here = lab("wall-hang")
    (run,) = here.submit(WALL)
    measuring(here, run)
    process = psutil.Process(here.pid(run, "trainer"))
    victim = next(
        one
        for one in process.children()
        if '"tokens": [64]' in one.cmdline()[-1] and '["fused"]' in one.cmdline()[-1]
    )
    victim.kill()
    here.until(lambda: (64, "fused", "failed") in rows(here, run), 5)
    failed = last_rows(files.records(here.folder(run)))[0]
    assert failed.reason == "The worker was killed from outside (SIGKILL)."
    measuring(here, run)
    assert here.state(run) == "running"


def test_its_process_killed_is_named_within_a_second_and_leaves_nothing(lab):
    here = lab("wall-hang")
    (run,) = here.submit(WALL)
    measuring(here, run)
    left = workers(here, run)
    os.kill(here.pid(run, "trainer"), signal.SIGKILL)
    assert here.until(lambda: here.state(run) == "failed", 5) < 1.0
    assert here.get(run).reason == "the trainer was killed from outside (SIGKILL)"
    here.until(lambda: all(map(gone, left)), 5)


def test_its_supervisor_killed_it_ends_and_resume_measures_only_what_is_missing(lab):
    here = lab("wall-last-hangs")
    (run,) = here.submit(WALL)
    here.until(lambda: (128, "chunked", "running") in rows(here, run), 20)
    process, left = here.pid(run, "trainer"), workers(here, run)
    os.kill(here.pid(run, "supervisor"), signal.SIGKILL)
    assert here.until(lambda: gone(process) and here.state(run) == "interrupted", 5) < 1.0
    assert here.get(run).reason == "its supervisor was killed"
    here.until(lambda: all(map(gone, left)), 5)
    before = files.records(here.folder(run))[:6]
    here.engine._trainer[-1] = "done"
    assert here.store.resume(run)
    here.until(lambda: here.state(run) == "done", 20)
    after = files.records(here.folder(run))
    assert after[:3] == before[1::2], "kept as they were"
    assert [record["step"] for record in after] == [1, 2, 3, 3, 4]
    assert (here.get(run).attempt, len(rows(here, run))) == (2, 4)


def test_closing_the_lab_interrupts_it(lab):
    here = lab("wall-last-hangs")
    (run,) = here.submit(WALL)
    here.until(lambda: (128, "chunked", "running") in rows(here, run), 20)
    here.dispatcher.stop_runs()
    assert (here.state(run), here.get(run).reason) == ("interrupted", "the lab was closed, after 3 rows")


def test_without_torch_it_fails_with_one_sentence(lab):
    here = lab("wall-unpredictable")
    (run,) = here.submit(WALL)
    here.until(lambda: here.state(run) == "failed", 20)
    assert here.get(run).reason == "The bytes cannot be predicted: torch is broken."


def test_it_watches_its_memory_itself(lab):
    here = lab("wall-done", memory_bytes=1_000_000)  # of a training
    (run,) = here.submit(WALL)
    here.until(lambda: here.state(run) == "done", 20)


@pytest.mark.full
def test_a_real_one(lab):
    here = lab("real")
    (run,) = here.submit(WallSpec(Plan(tokens=(16,), implementations=("explicit",), threads=1)))
    here.until(lambda: here.state(run) == "done", 60)
    (row,) = last_rows(files.records(here.folder(run)))
    assert row.peak_bytes == row.predicted_bytes == row.closed_form_bytes
    assert row.step_ms > 0
