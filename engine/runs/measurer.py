"""What the process of a run does that measures the memory wall: rows as records. Imports no torch."""

import json
import sqlite3
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from engine.memory_wall import sweep
from engine.memory_wall.plan import Plan, Row, last_rows, slopes
from engine.runs.spec import WallSpec
from engine.runs.store import ACTIVE, Store
from engine.runs.trainer import environment, stopped
from engine.system import device, files
from engine.system.cores import usable_cores
from engine.system.errors import Unavailable


def run(directory: Path, attempt: int, spec: WallSpec) -> dict[str, Any]:
    """Measure what is not measured yet. Returns the outcome that is then written down.

    A record is a row with two more fields: "step", how many rows are behind it, and "seconds" so far.
    """
    plan = spec.plan
    here = environment(_device_title(plan), plan.threads or usable_cores())
    files.write_json(directory / "environment.json", here)
    rows = _keep_measured(directory)
    began = time.monotonic() - files.last_record(directory).get("seconds", 0.0)
    others = Store(directory.parent)
    measured = sweep.measure(
        plan,
        directory / "workers",
        (directory / f"cancel.{attempt}").exists,
        known=rows,
        runs_beside=lambda: _trainings(others),
    )
    state, reason = "done", ""
    with (directory / "metrics.jsonl").open("a", encoding="utf-8", buffering=1) as out:
        try:
            for row in measured:
                rows += [row] if row.measured or row.state == "failed" else []
                out.write(json.dumps(_record(plan, row, time.monotonic() - began), allow_nan=False) + "\n")
                if row.state == "cancelled":
                    after = f"after {len(rows)} row{'' if len(rows) == 1 else 's'}"
                    state, reason = stopped(directory, attempt, after)
        except Unavailable as error:
            state, reason = "failed", str(error)
    return {
        "state": state,
        "reason": reason,
        "seconds": time.monotonic() - began,
        "measured": _exponents(rows),
    }


def _record(plan: Plan, row: Row, seconds: float) -> dict[str, Any]:
    over = row.measured or row.state == "failed"
    return {"step": plan.tasks.index((row.n, row.implementation)) + over, "seconds": seconds, **asdict(row)}


def _keep_measured(directory: Path) -> list[Row]:
    """Drop what an earlier attempt did not measure to its end: it will be measured again."""
    records = files.records(directory)
    rows = [row for row in last_rows(records) if row.measured]
    files.write_records(directory, (r for r in records if any(last_rows([r]) == (row,) for row in rows)))
    return rows


def _trainings(store: Store) -> int:
    """Under way on this machine; none starts meanwhile."""
    with suppress(sqlite3.Error):
        return len(store.runs(states=ACTIVE))
    return 0


def _exponents(rows: Sequence[Row]) -> dict[str, float]:
    """Of time and bytes in n, by implementation, where there are rows enough."""
    return {
        f"{name}_{what}_exponent": value
        for name, found in slopes(rows).items()
        for what, value in found.items()
        if value is not None
    }


def _device_title(plan: Plan) -> str:
    here = device.describe()
    return here.title if plan.device == here.kind else device.cpu_title()
