"""What measures the n x n wall: a budget that refuses, a card's allocator and events (injected), a clock."""

import subprocess
import sys
import time
from types import SimpleNamespace

import pytest
import torch

from engine.memory_wall import predict
from engine.memory_wall.attention import draw, step
from engine.memory_wall.live_bytes import LiveBytes, OutOfMemory
from engine.memory_wall.meters import (
    MAX_REPEATS,
    MIN_REPEATS,
    CudaStopwatch,
    HostStopwatch,
    Measurement,
    Timing,
    measure_bytes,
    measure_time,
)
from engine.memory_wall.setting import GB, Setting
from engine.system import paths

pytestmark = pytest.mark.usefixtures("one_thread")

GROWTH = """
import sys
from engine.memory_wall.meters import Measurement, measure_bytes
from engine.memory_wall.setting import Setting
measurement = Measurement(n=int(sys.argv[1]), implementation="explicit", setting=Setting(), device="cpu")
print(measure_bytes(measurement)[1].resident_bytes)
"""
SMALL = {"d_model": 32, "n_head": 4, "batch": 2, "block": 8}


# The budget.


def test_a_budget_refuses_before_anything_is_allocated_or_afterwards():
    with LiveBytes(1000) as live:
        x = torch.zeros(200)
        with pytest.raises(OutOfMemory, match="1,000 allowed") as refused:
            torch.empty(2**40)  # 4 TiB: no machine that runs this test has them
        with pytest.raises(OutOfMemory):
            x[:, None] * x
        assert live.bytes == live.peak_bytes == 800
        x.add_(1)
        assert x.sum().item() == 200
    assert (refused.value.needed_bytes, refused.value.allowed_bytes) == (800 + 2**42, 1000)
    with LiveBytes(1000, beforehand=False) as live:
        torch.zeros(250)
        with pytest.raises(OutOfMemory):
            torch.zeros(251)
    assert live.bytes == 0


def test_a_budget_leaves_other_errors_what_they_are():
    with LiveBytes(10**6), pytest.raises(RuntimeError, match="cannot be multiplied") as error:
        torch.zeros(3, 4) @ torch.zeros(3, 4)
    assert not isinstance(error.value, MemoryError)


def test_the_exact_wall_of_a_budget():
    setting = Setting(**SMALL)
    n = predict.longest(400_000, "explicit", setting, 0)

    def run(n):
        measurement = Measurement(n=n, implementation="explicit", setting=setting, device="cpu")
        return measure_bytes(measurement, 400_000)[1].peak_bytes

    assert run(n) <= 400_000
    with pytest.raises(OutOfMemory):
        run(n + 1)


@pytest.mark.full
@pytest.mark.skipif(sys.platform != "linux", reason="resident memory is set back on Linux only")
@pytest.mark.parametrize("n", [1024, 2048])
def test_the_process_grows_by_what_is_predicted(n):
    said = subprocess.run(
        [sys.executable, "-c", GROWTH, str(n)], cwd=paths.ROOT, capture_output=True, text=True, check=True
    )
    assert int(said.stdout) == pytest.approx(predict.predicted_bytes(n, "explicit"), rel=0.05)


# The card, injected.


class Card(SimpleNamespace):
    """Stands in for ``torch.cuda``."""

    def __init__(self):
        super().__init__(asked=[], clock=0.0)

    def __getattr__(self, name):
        def noted(*arguments):
            self.asked.append((name, *arguments))

        return noted

    def get_device_properties(self, device):  # noqa: ARG002
        return SimpleNamespace(total_memory=16 * GB)

    def max_memory_allocated(self):
        self.asked.append(("max_memory_allocated",))
        return 12345

    def Event(self, enable_timing):  # noqa: ARG002
        card = self

        class Event:
            def record(self):
                self.at = card.clock

            def elapsed_time(self, end):
                return (end.at - self.at) * 1000

        return Event()


class OnACard(Measurement):
    """Says that it is on CUDA, and computes here."""

    def make(self):
        x, weights = draw(self.n, self.setting, "cpu")
        return lambda: step(self.implementation, x, weights, self.setting)


@pytest.mark.parametrize(("budget", "fraction"), [(4 * GB, 0.25), (32 * GB, 1.0), (None, 1.0)])
def test_on_a_card_its_allocator_is_asked_and_given_the_budget_and_events_keep_the_time(budget, fraction):
    card = Card()
    measurement = OnACard(n=32, implementation="fused", setting=Setting(**SMALL), device="cuda")
    _, found = measure_bytes(measurement, budget, allocator=card)
    assert (found.peak_bytes, found.backend) == (12345, "flash (CPU)")
    names = [name for name, *_ in card.asked]
    assert card.asked[0] == ("set_per_process_memory_fraction", fraction)
    assert names.index("reset_peak_memory_stats") < names.index("max_memory_allocated")
    assert names[names.index("max_memory_allocated") - 1] == "synchronize"
    card.asked.clear()
    assert CudaStopwatch(card)(lambda: setattr(card, "clock", card.clock + 0.25)) == 0.25
    assert card.asked == [("synchronize",), ("synchronize",)]


@pytest.mark.parametrize(("seconds", "repeats"), [(0.001, MAX_REPEATS), (0.1, 10), (5.0, MIN_REPEATS)])
def test_a_fast_step_is_repeated_more_often(seconds, repeats):
    ran = []

    def stopwatch(step):
        ran.append(step)
        return seconds

    timing = measure_time(lambda: None, "cpu", stopwatch)
    assert timing.repeats == pytest.approx(repeats, abs=1)
    assert timing.step_ms == pytest.approx(seconds * 1000)
    assert timing.spread_ms == pytest.approx(0)
    assert len(ran) - timing.repeats == (2 if seconds < 2 else 1), "to warm up"


def test_the_median_and_the_quartiles_are_told():
    times = iter([9.0, 4.0, 1.0, 3.0])
    assert measure_time(lambda: None, "cpu", lambda step: next(times)) == Timing(3000.0, 1500.0, 3)
    assert 0.01 < HostStopwatch("cpu")(lambda: time.sleep(0.01)) < 5
