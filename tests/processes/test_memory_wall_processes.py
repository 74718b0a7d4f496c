"""The processes of the n x n wall: what counts as out of memory, cancelling, nothing left behind.

Most workers here are stand-ins without torch (``wall_workers.py``); what only torch can do is done for real.
As a run among others: ``test_memory_wall_runs.py``.
"""

import json
import os
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager
from dataclasses import asdict, replace

import psutil
import pytest
import torch

from engine.memory_wall import sweep
from engine.memory_wall.plan import Plan, Row
from engine.memory_wall.process import Guard, Worker, machine_free_bytes, wait_for
from engine.memory_wall.setting import GB
from engine.memory_wall.verdict import end_of, is_out_of_memory
from engine.system import paths
from engine.system.processes import MALLOC, kernel_kills, machine_bytes
from tests.wall_trainer import WORKERS, predictor

TASK = asdict(Plan(tokens=(64,), implementations=("explicit",), threads=1))
LIMITS = {"allowed_bytes": GB, "beforehand": False}


def never():
    return False


def stand_in(mode):
    return (*WORKERS, mode)


@pytest.fixture
def measure(tmp_path):
    """Measure a plan with stand-ins of a mode."""

    def rows(plan, mode, **options):
        return sweep.measure(plan, tmp_path / "wall", worker=stand_in(mode), predictor=predictor, **options)

    return rows


@pytest.fixture
def worker(tmp_path):
    """Start a worker and wait until it is ready; none outlives the test."""
    started = list[Worker]()

    def start(command, **task):
        one = Worker([*command, "--json", json.dumps({**TASK, **task})], tmp_path, f"worker-{len(started)}")
        started.append(one)
        wait_for([one], never)
        return one

    yield start
    for one in started:
        one.end()


@contextmanager
def later(seconds, act):
    timer = threading.Timer(seconds, act)
    timer.start()
    yield
    timer.cancel()


def pid(worker):
    return worker._process.pid


# What counts as the wall.


@pytest.mark.parametrize(
    ("error", "wall"),
    [
        (MemoryError(), True),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB."), True),
        (
            RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory"),
            True,
        ),
        (RuntimeError("CUDA out of memory. Tried to allocate 8.00 GiB."), True),
        (RuntimeError("CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate"), True),
        (RuntimeError("MPS backend out of memory"), True),
        (RuntimeError("shape '[2]' is invalid for input of size 3"), False),
        (ValueError("out of memory"), False),
        (OSError(12, "Cannot allocate memory"), False),
    ],
)
def test_errors_that_are_the_wall(error, wall):
    assert is_out_of_memory(error) == wall


@pytest.mark.parametrize(
    ("told", "code", "killed", "kills", "state", "said"),
    [
        ({"state": "done", "reason": None}, 0, None, 0, "done", ""),
        ({"state": "done", "reason": None}, 0, None, 5, "done", ""),
        (None, -9, None, 0, "failed", "killed from outside"),
        (None, -9, None, 1, "out of memory", "for want of memory"),
        (None, -11, None, 1, "failed", "crashed (SIGSEGV)"),
        (None, -15, None, 1, "failed", "asked to end"),
        (None, -9, "It took too much.", 0, "out of memory", "It took too much."),
        (None, 3, None, 1, "failed", "exit code 3: no torch."),
    ],
)
def test_ends_are_judged(told, code, killed, kills, state, said):
    end = end_of(told, code, killed, kills, "no torch.")
    assert end.state == state
    assert said in (end.reason or "")


@pytest.mark.parametrize(("kills", "state"), [([3, 3], "failed"), ([3, 4], "out of memory")])
def test_a_kill_is_the_wall_only_if_the_kernel_says_so(worker, kills, state):
    one, counted = worker(stand_in("hang")), iter(kills)
    with later(0.2, lambda: os.kill(pid(one), signal.SIGKILL)):
        end = one.work(LIMITS, never, Guard(kernel_kills=lambda: next(counted)))
    assert end.state == state
    assert "SIGKILL" in end.reason


def test_the_guard_ends_what_takes_too_much(worker):
    end = worker(stand_in("grow")).work(LIMITS, never, Guard(150_000_000))
    assert end.state == "out of memory"
    assert "0.1 GB allowed" in end.reason or "0.2 GB allowed" in end.reason


def test_the_guard_keeps_the_machine_usable(worker):
    end = worker(stand_in("hang")).work(LIMITS, never, Guard(free_bytes=lambda: 1000))
    assert end.state == "out of memory"
    assert "of this machine's memory were left" in end.reason
    assert Guard().kept_bytes == pytest.approx(0.15 * machine_bytes(), rel=0.01)
    assert Guard().resident_bytes == pytest.approx(0.85 * machine_bytes(), rel=0.01)
    assert Guard(free_bytes=lambda: 1000).room_bytes() == 0
    assert 0 < machine_free_bytes() <= machine_bytes()
    assert kernel_kills() >= 0


@pytest.mark.parametrize(
    ("mode", "state", "reason"),
    [
        ("memory", "out of memory", "MemoryError."),
        ("bug", "failed", "ValueError: there is no memory of that."),
    ],
)
def test_pythons_own_error_is_the_wall_and_a_bug_is_none_though_it_talks_of_memory(
    worker, mode, state, reason
):
    end = worker(stand_in(mode)).work(LIMITS, never, Guard())
    assert (end.state, end.reason) == (state, reason)


@pytest.mark.skipif(sys.platform != "linux", reason="a limit on the address space is Linux's")
def test_the_kernels_own_limit_is_the_wall(worker):
    real = (sys.executable, "-m", "engine.memory_wall.worker")
    one = worker(real, tokens=(512,), address_space_bytes=6_000_000)
    end = one.work(LIMITS, never, Guard())
    assert end.state == "out of memory"
    assert "allocate memory" in end.reason or "MemoryError" in end.reason


def test_one_that_does_not_load_is_said_with_its_last_words(measure):
    rows = list(measure(Plan(tokens=(64,), implementations=("fused",)), "gone"))
    assert rows[-1].state == "failed"
    assert rows[-1].reason == "The worker ended with exit code 7: torch is broken."


def test_a_worker_ends_when_whoever_started_it_is_gone(worker):
    one = worker(stand_in("stuck"))
    stdin = one._process.stdin
    stdin.write(json.dumps(LIMITS).encode() + b"\n")
    stdin.close()
    assert one._process.wait(20) == 3


def test_freed_memory_is_fetched_anew_though_trainers_keep_it(tmp_path, monkeypatch):
    for name in MALLOC:
        monkeypatch.setenv(name, "1")
    code = "import json, os; print(json.dumps({'event': 'environment', 'names': list(os.environ)}))"
    one = Worker([sys.executable, "-c", code], tmp_path, "environment")
    one._process.wait(20)
    one.end()
    names = set(one.said("environment")["names"])
    assert names & {"PATH"}
    assert not names & set(MALLOC)


def test_a_wrong_task_is_one_line():
    command = [sys.executable, "-m", "engine.memory_wall.worker", "--json"]
    wrong = json.dumps({**TASK, "implementations": ["flash"]})
    ended = subprocess.run([*command, wrong], cwd=paths.ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert ended.stderr.startswith("InvalidInput: implementation is 'flash'; allowed: explicit")


# Rows as they come.


def test_rows_come_as_running_and_as_they_ended(measure):
    plan = Plan(tokens=(256, 128), implementations=("explicit", "fused"))
    rows = list(measure(plan, "done"))
    assert [(r.n, r.implementation, r.state) for r in rows] == [
        (n, name, state)
        for n in (128, 256)
        for name in ("explicit", "fused")
        for state in ("running", "done")
    ]
    assert [r.predicted_bytes for r in rows] == [128_000] * 4 + [256_000] * 4
    assert (rows[0].closed_form_bytes, rows[2].closed_form_bytes) == (6_832_128, None)
    last = rows[-1]
    assert (last.peak_bytes, last.step_ms, last.spread_ms, last.repeats) == (77, 2.0, 0.5, 3)


@pytest.mark.full
def test_the_real_wall_of_a_budget_is_where_it_was_predicted(tmp_path):
    # longest(0.035 GB, "explicit") is 531
    plan = Plan(
        tokens=(531, 532), implementations=("explicit",), budget_bytes=int(0.035 * GB), threads=1, timed=False
    )
    rows = [row for row in sweep.measure(plan, tmp_path) if row.ended]
    assert [(row.n, row.state) for row in rows] == [(531, "done"), (532, "out of memory")]
    assert rows[0].peak_bytes == rows[0].predicted_bytes == rows[0].closed_form_bytes
    assert rows[1].peak_bytes is None
    assert rows[1].predicted_bytes == rows[1].closed_form_bytes >= rows[1].needed_bytes
    assert "are what the budget allows" in rows[1].reason


def test_what_is_out_of_memory_is_not_measured_at_a_larger_n(measure):
    rows = [
        row for row in measure(Plan(tokens=(64, 128), implementations=("explicit",)), "full") if row.ended
    ]
    assert [(row.n, row.state) for row in rows] == [(64, "out of memory")]
    assert (rows[0].needed_bytes, rows[0].predicted_bytes, rows[0].peak_bytes) == (1001, 64_000, None)
    assert rows[0].reason.startswith("1,001 bytes of tensors at once; ")
    assert rows[0].reason.endswith("are what this machine can give now and stay usable.")


def test_what_is_measured_already_does_not_come_again(measure):
    plan = Plan(tokens=(64, 128), implementations=("explicit", "fused"))
    known = [
        Row(n=64, implementation="explicit", state="out of memory"),
        Row(n=64, implementation="fused", state="done"),
    ]
    rows = [row for row in measure(plan, "done", known=known) if row.ended]
    assert [(row.n, row.implementation) for row in rows] == [(128, "fused")]
    assert list(measure(plan, "done", known=[*known, replace(known[1], n=128)])) == []


def test_closing_the_generator_ends_the_processes(measure):
    rows = measure(Plan(tokens=(64, 128)), "hang")
    next(rows)
    workers = children()
    assert workers
    rows.close()
    assert not any(alive(one) for one in workers)


def children():
    return [
        one for one in psutil.Process().children(recursive=True) if "wall_workers" in " ".join(one.cmdline())
    ]


def alive(process):
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
