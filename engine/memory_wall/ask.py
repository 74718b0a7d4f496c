"""Predictions for whoever loads no torch: asked of a process of their own. Imports no torch."""

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from engine.memory_wall.setting import Setting
from engine.system import paths

MODULE = "engine.memory_wall.predict"

Task = tuple[int, str]  # n and the implementation


@dataclass(frozen=True)
class Predictions:
    """bytes: by task, the workspace not included; longest: rows of "card_gb", "implementation" and "n"."""

    bytes: dict[Task, int]
    longest: list[dict[str, Any]]


def predict(
    setting: Setting,
    tasks: Sequence[Task] = (),
    *,
    device: str = "cpu",
    cards_gb: Sequence[float] = (),
    implementations: Sequence[str] = (),
) -> Predictions:
    """Bytes of each task, and the longest n of these implementations on cards of so many GB (2^30 bytes).

    Takes 2 s for torch to load, then about 15 ms a task and up to a second a card.
    Raises RuntimeError: when it cannot be predicted; the message is the process's last line.
    """
    command = predict_command(setting, tasks, device, cards_gb, implementations)
    asked = subprocess.run(command, cwd=paths.ROOT, capture_output=True, text=True, check=False)
    if asked.returncode:
        said = (asked.stderr.strip().splitlines() or ["torch does not start"])[-1]
        raise RuntimeError(f"The bytes cannot be predicted: {said.rstrip('.')}.")
    found, longest = dict[Task, int](), list[dict[str, Any]]()
    for line in map(json.loads, asked.stdout.splitlines()):
        if "longest" in line:
            longest = line["longest"]
        else:
            found[line["n"], line["implementation"]] = line["predicted_bytes"]
    return Predictions(found, longest)


def predict_command(
    setting: Setting,
    tasks: Sequence[Task],
    device: str,
    cards_gb: Sequence[float] = (),
    implementations: Sequence[str] = (),
) -> list[str]:
    """What to start; it prints a line of JSON a task."""
    request = {
        "setting": asdict(setting),
        "rows": tasks,
        "device": device,
        "cards_gb": cards_gb,
        "implementations": implementations,
    }
    return [sys.executable, "-m", MODULE, "--json", json.dumps(request)]
