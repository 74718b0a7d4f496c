"""How long a run will take on this device, from what was timed here before. Imports no torch.

Times lie in ``data/cache/speed.json``: seconds a token takes, by configuration and device; a budget's tokens
and evaluations make a duration of it. ``calibrate`` times a few steps; every finished run improves it.
A model that was never timed takes as long for a multiplication as the one most like it in size.
"""

import math
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from filelock import FileLock

from engine.chapter.budget import Budget
from engine.models import ledger
from engine.runs.spec import RunSpec, digest
from engine.system import device, files, paths
from engine.system.cores import default_slots

START_SECONDS = 1.0  # processes, first evaluation; where nothing forks, imports beside
WARM_UP_STEPS, TIMED_STEPS = 1, 2  # while the first reader waits


def run_seconds(spec: RunSpec) -> float | None:
    """Expected duration of one run in seconds, or None when no model was ever timed here."""
    token_seconds = _token_seconds(spec)
    if token_seconds is None:
        return None
    return START_SECONDS + spec.budget.steps * token_seconds * _tokens_a_step(spec.budget)


def sweep_seconds(specs: Sequence[RunSpec]) -> float | None:
    """Expected duration of runs that share this machine's slots; None when nothing was ever timed here."""
    each = [run_seconds(spec) for spec in specs]
    known = [seconds for seconds in each if seconds is not None]
    if len(known) < len(each) or not known:
        return None
    # The longest first is how a greedy plan comes closest; ours is first come, first served.
    slots = [0.0] * default_slots()
    for seconds in known:
        slots[slots.index(min(slots))] += seconds
    return max(slots)


def remember(spec: RunSpec, step_seconds: float) -> None:
    """Keep what a step of such a run took, its share of the evaluations included."""
    path = _path()
    path.parent.mkdir(parents=True, exist_ok=True)
    timed = {
        "token_seconds": step_seconds / _tokens_a_step(spec.budget),
        "work": _work(spec),
        "here": _here(),
    }
    with FileLock(path.with_suffix(".lock")):
        files.write_json(path, {**_known(), key(spec): timed})


def calibrate(specs: Iterable[RunSpec]) -> None:
    """Time a few steps of every run that was never timed here. Imports torch; call it in a process apart."""
    import torch

    from engine.training.loop import Training
    from engine.training.tasks import TextTask

    torch.set_num_threads(max(1, torch.get_num_threads() // default_slots()))
    for spec in specs:
        if key(spec) in _known():
            continue
        ids = torch.randint(spec.config.vocab_size, (spec.budget.context_length * 64,))
        training = Training(
            config=spec.config,
            budget=spec.budget,
            seed=0,
            task=TextTask(ids, ids, spec.budget.context_length, device=device.describe().kind),
            device=device.describe().kind,
        )
        for _ in range(WARM_UP_STEPS):
            training.advance().item()
        began = time.perf_counter()
        for _ in range(TIMED_STEPS):
            training.advance().item()
        step_seconds = (time.perf_counter() - began) / TIMED_STEPS
        remember(spec, step_seconds * (1 + _evaluation_share(spec.budget)))


def _tokens_a_step(budget: Budget) -> float:
    """Tokens trained on, and as much as the evaluations weigh."""
    return budget.batch_size * budget.context_length * (1 + _evaluation_share(budget))


def _evaluation_share(budget: Budget) -> float:
    """What evaluations add to a step: the chapter's held-out text is 359 windows, forward only (a third)."""
    return 359 / 3 / (budget.batch_size * budget.evaluate_every)


def key(spec: RunSpec) -> str:
    """Names a speed: the model, the device, and how many runs share it."""
    return digest({"config": spec.config.changes(), "here": _here()})


def _here() -> str:
    return f"{device.describe().title}, {default_slots()} at once"


def _work(spec: RunSpec) -> int:
    return ledger.multiplications(spec.config, spec.budget.context_length)


def _token_seconds(spec: RunSpec) -> float | None:
    """What a token takes: as timed, or as the timed model nearest in size would have it."""
    known, work, here = _known(), _work(spec), _here()
    timed = {name: found for name, found in known.items() if found["here"] == here}
    if not timed:
        return None
    nearest = timed.get(key(spec)) or min(timed.values(), key=lambda one: abs(math.log(one["work"] / work)))
    return float(nearest["token_seconds"] * work / nearest["work"])


def _path() -> Path:
    return paths.DATA / "cache" / "speed.json"


def _known() -> dict[str, dict[str, Any]]:
    """What was timed; a torn file, or one of another version of the lab, holds nothing."""
    found = files.read_json(_path()) or {}
    whole = {"token_seconds", "work", "here"}
    return {name: one for name, one in found.items() if isinstance(one, dict) and whole <= set(one)}
