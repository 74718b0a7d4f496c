"""Chaos and load on the run engine: random faults by seed, then everything must still come out right."""

import random
import signal
import subprocess
import sys
import time
from contextlib import suppress

import psutil
import pytest

from engine.runs.store import ACTIVE, RESUMABLE, Store
from engine.system import files, paths
from tests.processes.test_faults import TRAINERS, WAYS, at_work, spec
from tests.serving import until
from tests.test_store import FakeEngine

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals are POSIX's")
SLOTS, RUNS = 3, 10
DISPATCHER = f"""
import sys, time
from engine.runs.dispatcher import Dispatcher
from engine.runs.local import LocalEngine
from engine.runs.nursery import Nursery
from engine.runs.store import Store
trainer = [*{TRAINERS!r}, "counter"]
nursery = Nursery([*trainer, "nursery"]) if "forked" in sys.argv else None
engine = LocalEngine({SLOTS}, trainer, nursery=nursery)
with Dispatcher(Store(), engine) as dispatcher:
    while True:
        dispatcher.tick()
        time.sleep(0.02)
"""


class Chaos:
    """A data folder, a dispatcher that gets killed, and the dice."""

    def __init__(self, seed, way):
        self.dice, self.store, self.way = random.Random(seed), Store(), way
        self.dispatcher = self.start()

    def start(self):
        return subprocess.Popen([sys.executable, "-c", DISPATCHER, self.way], cwd=paths.ROOT)

    def kill_dispatcher(self):
        self.dispatcher.kill()
        self.dispatcher.wait()
        self.dispatcher = self.start()

    def kill_nursery(self):
        for child in psutil.Process(self.dispatcher.pid).children():
            with suppress(psutil.Error):  # it may be gone already
                if "nursery" in child.cmdline():
                    child.kill()

    def kill(self, who):
        if active := self.store.runs(states=ACTIVE):
            run = self.dice.choice(active)
            pids = files.read_json(self.store.directory(run.id) / f"pid.{run.attempt}.json") or {}
            if who in pids:
                with suppress(psutil.NoSuchProcess):
                    psutil.Process(pids[who]).send_signal(signal.SIGKILL)

    def once(self):
        faults = [
            (lambda: self.store.cancel(self.dice.choice(self.store.runs()).id), 2),
            (lambda: self.store.resume(self.dice.choice(self.store.runs()).id), 6),
            (lambda: self.kill("trainer"), 3),
            (lambda: self.kill("supervisor"), 3),
            (self.kill_dispatcher, 1),
            (self.kill_nursery, 2 if self.way == "forked" else 0),
        ]
        calls, weights = zip(*faults, strict=True)
        self.dice.choices(calls, weights)[0]()


def chaos(seed, home, faults, way):
    here = Chaos(seed, way)
    try:
        here.store.submit([spec(number) for number in range(RUNS)])
        for _ in range(faults):
            here.once()
            time.sleep(here.dice.uniform(0.0, 0.15))
            assert len(here.store.runs(states=ACTIVE)) <= SLOTS
        deadline = time.monotonic() + 60
        while any(run.state != "done" for run in here.store.runs()):
            assert time.monotonic() < deadline, [
                (r.id, r.state, r.attempt, r.reason) for r in here.store.runs()
            ]
            for run in here.store.runs(states=RESUMABLE):
                assert run.reason
                here.store.resume(run.id)
            time.sleep(0.05)
        for run in here.store.runs():
            folder = here.store.directory(run.id)
            steps = [record["step"] for record in files.records(folder)]
            assert steps == list(range(1, 41)), f"#{run.id}: something twice, or lost"
            assert not (folder / "violation").exists(), (folder / "violation").read_text()
        time.sleep(0.3)
    finally:
        here.dispatcher.kill()
        here.dispatcher.wait()
    until(lambda: not at_work(home), 2, lambda: at_work(home))
    return max(run.attempt for run in here.store.runs())


MANY = [pytest.param(seed, 150, marks=pytest.mark.full) for seed in range(2, 22)]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("seed", "faults"), [(0, 40), (1, 40), *MANY])
def test_after_random_faults_every_run_ends_whole(home, seed, faults, way):
    assert chaos(seed, home, faults, way) > 1


def load(users, runs_each):
    """Everybody submits at once; runs take one tick each. Returns in which order users got their turns."""
    from engine.runs.dispatcher import Dispatcher

    store, engine = Store(), FakeEngine()
    for user in range(users):
        store.submit([spec(number) for number in range(runs_each)], user=f"user {user}")
    turns, slowest = [], 0.0
    with Dispatcher(store, engine) as dispatcher:
        while store.runs(states=("queued", *ACTIVE)):
            began = time.monotonic()
            dispatcher.tick()
            slowest = max(slowest, time.monotonic() - began)
            for run in store.runs(states=ACTIVE):
                turns.append(run.user)
                engine.end(store, run.id, state="done")
            dispatcher.tick()
    return turns, slowest


def test_thirty_people_with_runs_of_their_own_take_fair_turns(home):
    turns, slowest = load(users=30, runs_each=2)
    assert len(turns) == 60
    assert len(set(turns[:30])) == 30  # nobody's second run goes before anybody's first
    assert slowest < 1.0


@pytest.mark.full
def test_a_thousand_queued_runs_do_not_slow_the_dispatcher_down(home):
    turns, slowest = load(users=50, runs_each=20)
    assert len(turns) == 1000
    assert slowest < 1.0
