"""All that an accelerator has to show, within ten minutes: ``python -m engine bench gpu-check``.

A section is a process of its own with a limit of time: one that fails, hangs or takes the driver with it is
written down with its reason, and the next begins. Sections that matter most come first; the quick experiments
take what time is left. Everything is trained and kept in a temporary folder. Imports no torch.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from statistics import mean
from typing import Any

from engine.benchmarks import say, table
from engine.chapter.experiments import EXPERIMENTS
from engine.runs.store import Store
from engine.system import device, files, paths
from engine.system.errors import InvalidInput
from engine.system.processes import end_marked

LEAST_SECONDS = 15.0  # for a section: with less left it is not begun
LONGEST_SECONDS = 180.0  # for one quick experiment
STOP_SECONDS = 10.0  # for a section to save and end when its time is over
MINUTES = (0.1, 60.0)  # allowed


@dataclass(frozen=True)
class Section:
    """One command. arguments: of python; seconds: its limit; it prints one JSON document."""

    name: str
    arguments: tuple[str, ...]
    seconds: float


def sections(kind: str, peer: Path | None, *, rehearse: bool) -> Iterator[Section]:
    """All sections, in the order in which they run."""
    tiny = ("--rehearse",) if rehearse else ()

    def on_device(name: str, seconds: float) -> Section:
        return Section(name, ("-m", "engine.benchmarks.on_device", name, kind, *tiny), seconds)

    def engine(name: str, seconds: float, *arguments: str) -> Section:
        return Section(name, ("-m", "engine", *arguments, "--json"), seconds)

    yield on_device("variants", 90)
    yield on_device("training", 60)
    size: tuple[str, ...]
    if rehearse:
        size = ("--device", kind, "--to", "128", "--implementation", "fused")
    elif kind == "cuda":
        size = ("--gpu-check",)
    else:
        size = ("--device", kind, "--to", "16384", "--budget-gb", "8")
    yield engine("wall", 150, "bench", "memory", *size)
    small = ("--layers", "1", "--batch", "2", "--rounds", "1") if rehearse else ("--rounds", "6")
    yield engine("steps", 120, "bench", "train", *small, *(("--peer", str(peer.resolve())) if peer else ()))
    yield on_device("stacked", 60)
    quick = (("averages", "--variant", "no-context"),) if rehearse else ((name,) for name in EXPERIMENTS)
    for name, *chosen in quick:
        yield engine(f"quick {name}", LONGEST_SECONDS, "run", name, "--budget", "quick", *chosen)


def bench(
    *,
    kind: str | None = None,
    rehearse: bool = False,
    peer: Path | None = None,
    minutes: float = 10.0,
    out: Path | None = None,
) -> dict[str, Any]:
    """Measure. Returns what ``bench gpu-check --json`` prints.

    kind: "cuda" or "mps", what this machine has when None; "cpu" for a rehearsal, which measures nothing.
    out: where the document is written after every section.
    Raises InvalidInput: when there is no such accelerator here, or an option is out of range.
    """
    if not MINUTES[0] <= minutes <= MINUTES[1]:
        raise InvalidInput(f"minutes are {minutes}; allowed: {MINUTES[0]} to {MINUTES[1]:g}.")
    here = device.describe()
    kind = kind or here.kind
    allowed = {here.kind, "cpu"} if rehearse else {here.kind} - {"cpu"}
    if kind not in allowed:
        names = " or ".join(sorted(allowed)) or "none, since torch finds no accelerator; add --rehearse"
        raise InvalidInput(f"device is {kind!r}; allowed here: {names}.")
    began = time.monotonic()
    document: dict[str, Any] = {
        "bench": "gpu-check",
        "rehearsal": rehearse,
        "device": here.title if kind == here.kind else device.cpu_title(),
        "kind": kind,
        "memory_bytes": here.memory_bytes if kind == here.kind else 0,
        "torch": here.torch,
        "date": date.today().isoformat(),
        "limit_s": 60 * minutes,
        "seconds": 0.0,
        "sections": [],
        "startup": None,
    }
    with tempfile.TemporaryDirectory(prefix="attention-lab-", ignore_cleanup_errors=True) as home:
        environment = _environment(Path(home), kind)
        for section in sections(kind, peer, rehearse=rehearse):
            left = 60 * minutes - (time.monotonic() - began) - STOP_SECONDS
            say(section.name)
            document["sections"].append(measured(section, min(section.seconds, left), environment))
            document["startup"] = startup(Path(home) / "checkpoints" / "runs")
            document["seconds"] = round(time.monotonic() - began, 1)
            if out:
                files.write_json(out, document)
    return document


def measured(section: Section, seconds: float, environment: Mapping[str, str]) -> dict[str, Any]:
    """Run one section. Returns its row of the document; ``found`` is what it printed, None for nothing."""
    row = {"name": section.name, "command": " ".join(section.arguments), "limit_s": round(seconds, 1)}
    if seconds < LEAST_SECONDS:
        return {**row, "state": "skipped", "reason": "no time was left", "seconds": 0.0, "found": None}
    began = time.monotonic()
    with tempfile.TemporaryFile() as said, tempfile.TemporaryFile() as complained:
        child = subprocess.Popen(
            [sys.executable, *section.arguments],
            cwd=paths.ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=complained,
            start_new_session=True,
        )
        ended_by_itself = _ended(child, seconds)
        end_marked("ATTENTION_LAB_HOME", environment["ATTENTION_LAB_HOME"])
        child.wait()
        said.seek(0)
        complained.seek(0)
        found = None
        with suppress(ValueError):
            found = json.loads(said.read())
        words = complained.read().decode("utf-8", "replace").strip().splitlines()
    reason = "; ".join(found.get("failed", ())) if isinstance(found, dict) else ""
    if not ended_by_itself:
        state, reason = "out of time", f"it did not end within {seconds:.0f} s"
    elif child.returncode or reason or found is None:
        state = "failed"
        reason = reason or (words or [f"exit code {child.returncode}, without a word"])[-1]
    else:
        state = "done"
    took = round(time.monotonic() - began, 1)
    return {**row, "state": state, "reason": reason, "seconds": took, "found": found}


def _ended(child: "subprocess.Popen[bytes]", seconds: float) -> bool:
    """Wait for a section, at last ask it to end. Returns whether it ended by itself."""
    try:
        child.wait(seconds)
    except subprocess.TimeoutExpired:
        with suppress(ValueError):  # Windows sends no such signal
            child.send_signal(signal.SIGINT)  # runs stop, save and end
        with suppress(subprocess.TimeoutExpired):
            child.wait(STOP_SECONDS)
        return False
    return True


def startup(runs: Path) -> dict[str, Any] | None:
    """What the trained runs took beside their training: processes, imports, files. None: none was trained."""
    if not runs.is_dir():
        return None
    store = Store(runs)
    try:
        times = [
            (run.ended - run.started, run.seconds)
            for run in store.runs(states=["done"])
            if run.ended and run.started and run.seconds
        ]
    finally:
        store.close()
    if not times:
        return None
    whole, trained = (mean(column) for column in zip(*times, strict=True))
    return {
        "runs": len(times),
        "run_s": round(whole, 3),
        "trained_s": round(trained, 3),
        "share": round(1 - trained / whole, 4),
    }


def _environment(home: Path, kind: str) -> dict[str, str]:
    """A data folder of its own, with the chapter's text where it is at hand; on the CPU no card is seen."""
    text = paths.DATA / "tinyshakespeare.txt"
    (home / "data").mkdir()
    if text.is_file():
        shutil.copy(text, home / "data")
    hidden = {"CUDA_VISIBLE_DEVICES": ""} if kind == "cpu" else {}
    return {**os.environ, "ATTENTION_LAB_HOME": str(home), **hidden}


def failures(document: Mapping[str, Any]) -> list[str]:
    """A sentence for each section that failed or ran out of its time; one that was skipped is none."""
    return [
        f"{row['name']}: {row['state']}: {row['reason']}"
        for row in document["sections"]
        if row["state"] in ("failed", "out of time")
    ]


def text(document: Mapping[str, Any]) -> str:
    """``bench`` for people: how each section ended; the figures are in the JSON."""
    what = "rehearsal of gpu-check, in sizes that measure nothing" if document["rehearsal"] else "gpu-check"
    title = f"{what}, {document['device']}, torch {document['torch']}, {document['date']}"
    columns = {"name": "section", "state": "state", "seconds": "s", "reason": "reason"}
    lines = [title, *table(columns, document["sections"])]
    if found := document["startup"]:
        lines.append(
            f"start-up: {found['run_s'] - found['trained_s']:.1f} s of a quick run's {found['run_s']:.1f} s "
            f"({found['share']:.0%}), the mean of {found['runs']}"
        )
    return "\n".join([*lines, f"{document['seconds']:.0f} of {document['limit_s']:.0f} s"])
