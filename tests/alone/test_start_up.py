"""How soon a run trains: from its launch to the end of its first step, the evaluation before it included."""

import statistics
import sys
import time
from dataclasses import replace

import pytest

from engine.runs.launch import specs
from engine.runs.nursery import FORKS
from tests.processes.test_faults import Lab

pytestmark = pytest.mark.skipif(not FORKS, reason="nothing forks here")
BOUND = 1.5  # seconds; on an idle machine it is a third of that, see NOTES.md


def first_step_seconds(here, run):
    """From the tick that launches the run to the end of its first step."""
    began = time.monotonic()
    noted = here.folder(run) / "first-step"
    here.until(lambda: noted.exists() and noted.read_text(), 60)
    here.until(lambda: here.state(run) == "done", 60)
    return float(noted.read_text()) - began


def test_a_launched_run_trains_within_half_a_second(home):
    here = Lab("first-step")
    with here.dispatcher:
        here.until(here.engine.capacity, 60)
        taken = []
        for seed in range(7):
            (spec,) = specs("averages", "quick", (seed,), "python-reference", ["average-added"])
            (run,) = here.submit(replace(spec, budget=replace(spec.budget, steps=10)))
            taken.append(first_step_seconds(here, run))
    median = statistics.median(taken[1:])  # the first one tokenizes the text
    print(f"launch to first step: {median:.2f} s at the median of {len(taken) - 1}", file=sys.stderr)
    assert median < BOUND
