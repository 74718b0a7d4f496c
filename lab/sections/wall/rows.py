"""A measurement of the n x n wall as its page sees it: rows in a file, and the process that writes them.

It is a sweep (``engine.memory_wall.sweep``) whose lines go to ``cache/wall/DIGEST/`` in the data:

N.jsonl   the rows of the Nth measurement of that plan      N.json  its process, when it began, who asked
N.err     what it complained of                             N.stop  a wish to cancel it

So a reload, or another reader at the same address, sees the same rows. The sweep ends with the app that
started it: its stdin closes.
"""

import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Literal

import psutil
from filelock import FileLock

from engine.memory_wall.plan import Plan, Row
from engine.memory_wall.sweep import MODULE
from engine.system import files, paths

COMMAND: tuple[str, ...] = (sys.executable, "-m", f"{MODULE}.sweep")
KEPT = 5  # measurements of one plan
GRACE_SECONDS = 2.0
CANCEL_SECONDS = 1.0
VERSION = 1  # another one, when rows of before no longer hold

State = Literal["none", "waiting", "running", "done", "failed", "cancelled", "interrupted"]
LIVE: tuple[State, ...] = ("waiting", "running")
_FIELDS = {field.name for field in fields(Row)}
_STARTED: list["subprocess.Popen[bytes]"] = []  # kept, since a sweep ends when its stdin closes


@dataclass(frozen=True)
class Measurement:
    """What is known of one plan.

    rows: the last word on each n of each implementation, in the order of measuring.
    reason: why it failed. seconds: how long it took. user: who asked for it.
    newer: how a newer measurement of the plan ended, where that is not whole and this one is shown instead.
    """

    state: State = "none"
    rows: tuple[Row, ...] = ()
    reason: str | None = None
    seconds: float = 0.0
    user: str = ""
    newer: State | None = None

    @property
    def live(self) -> bool:
        return self.state in LIVE

    @property
    def ended(self) -> tuple[Row, ...]:
        """The rows that are over, but for one that was cancelled."""
        return tuple(row for row in self.rows if row.ended and row.state != "cancelled")

    @property
    def current(self) -> Row | None:
        """The row that is being measured."""
        return next((row for row in reversed(self.rows) if row.state == "running"), None)


def folder(plan: Plan) -> Path:
    """Where the measurements of a plan lie."""
    written = json.dumps([VERSION, asdict(plan)], sort_keys=True)
    return paths.DATA / "cache" / "wall" / hashlib.sha256(written.encode()).hexdigest()[:16]


def look(plan: Plan) -> Measurement:
    """The measurement of a plan that is under way; else the newest whole one; else the newest."""
    for process in _STARTED:
        process.poll()  # or it stays a zombie
    place = folder(plan)
    numbers = _numbers(place)
    if not numbers:
        return Measurement()
    newest = _read(plan, place / f"{numbers[-1]}.jsonl")
    if newest.live or newest.state == "done":
        return newest
    for number in reversed(numbers[:-1]):
        earlier = _read(plan, place / f"{number}.jsonl")
        if earlier.state == "done":
            return replace(earlier, newer=newest.state)
    return newest


def start(plan: Plan, user: str) -> None:
    """Measure it, unless that is under way.

    Raises OSError: when no process can be started, or nothing can be written.
    """
    place = folder(plan)
    place.mkdir(parents=True, exist_ok=True)
    with FileLock(place / "start.lock"):
        if look(plan).live:
            return
        numbers = _numbers(place)
        path = place / f"{numbers[-1] + 1 if numbers else 1}.jsonl"
        for number in numbers[: 1 - KEPT]:
            for end in ("jsonl", "json", "err", "stop"):
                (place / f"{number}.{end}").unlink(missing_ok=True)
        command = [*COMMAND, "--json", json.dumps(asdict(plan)), "--stop", str(path.with_suffix(".stop"))]
        with path.open("wb") as out, path.with_suffix(".err").open("wb") as err:
            process = subprocess.Popen(
                command,
                cwd=paths.ROOT,
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=err,
                env={**os.environ, "ATTENTION_LAB_HOME": str(paths.HOME)},
            )
        _STARTED[:] = [one for one in _STARTED if one.poll() is None]
        _STARTED.append(process)
        known = {"pid": process.pid, "began": time.time(), "user": user}
        files.write_json(path.with_suffix(".json"), known)


def cancel(plan: Plan) -> None:
    """End what is under way. Returns when it is over, after a second at most.

    Raises OSError: when the wish cannot be written.
    """
    place = folder(plan)
    for number in _numbers(place)[-1:]:
        (place / f"{number}.stop").touch()
    until = time.monotonic() + CANCEL_SECONDS
    while look(plan).live and time.monotonic() < until:
        time.sleep(0.02)


def _numbers(place: Path) -> list[int]:
    return sorted(int(path.stem) for path in place.glob("*.jsonl") if path.stem.isdigit())


def _read(plan: Plan, path: Path) -> Measurement:
    known = files.read_json(path.with_suffix(".json")) or {}
    # Before its file is read, or its last rows could be missed.
    alive = _alive(known.get("pid"), path) if known else _just_begun(path)
    rows: dict[tuple[int, str], Row] = {}
    last = "waiting"
    for row in _rows(path):
        rows[row.n, row.implementation] = row
        last = row.state
    found = Measurement(rows=tuple(rows.values()), user=str(known.get("user", "")))
    with suppress(OSError):
        found = replace(found, seconds=max(0.0, path.stat().st_mtime - known.get("began", 0.0)))
    if alive:
        # Before its first row it loads; "waiting" is only what it says itself.
        return replace(found, state="waiting" if rows and last == "waiting" else "running")
    if last == "cancelled":
        return replace(found, state="cancelled")
    if _whole(plan, found.ended):
        return replace(found, state="done")
    with suppress(OSError):
        if words := path.with_suffix(".err").read_text("utf-8", "replace").strip():
            return replace(found, state="failed", reason=words.splitlines()[-1])
    return replace(found, state="interrupted")


def _rows(path: Path) -> list[Row]:
    """Every whole line that is a row."""
    found = []
    with suppress(OSError):
        for line in path.read_text("utf-8", "replace").splitlines():
            with suppress(ValueError, TypeError, AttributeError):
                written = json.loads(line)
                found.append(Row(**{name: value for name, value in written.items() if name in _FIELDS}))
    return found


def _whole(plan: Plan, ended: Sequence[Row]) -> bool:
    """Whether every n was measured, of each implementation up to its wall."""
    states = {(row.n, row.implementation): row.state for row in ended}
    for name in plan.implementations:
        for n in sorted(set(plan.tokens)):
            if (n, name) not in states:
                return False
            if states[n, name] == "out of memory":
                break
    return True


def _just_begun(path: Path) -> bool:
    """Whether it can still be that its process is only about to be noted."""
    with suppress(OSError):
        return time.time() - path.stat().st_mtime < GRACE_SECONDS
    return False


def _alive(pid: object, path: Path) -> bool:
    """Whether that process lives and is still the one that writes this file."""
    with suppress(psutil.Error):
        if isinstance(pid, int):
            process = psutil.Process(pid)
            return (
                process.status() != psutil.STATUS_ZOMBIE
                and str(path.with_suffix(".stop")) in process.cmdline()
            )
    return False
