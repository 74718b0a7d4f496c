"""Predictions for whoever loads no torch: asked of a process of their own. Imports no torch."""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from engine.memory_wall.plan import Task
from engine.memory_wall.setting import Setting
from engine.system import paths
from engine.system.errors import Unavailable

MODULE = "engine.memory_wall.predict"


@dataclass(frozen=True)
class Predicted:
    """Peak bytes of one n of one implementation, the workspace not included."""

    n: int
    implementation: str
    predicted_bytes: int


@dataclass(frozen=True)
class Longest:
    """The largest n that fits a card of so many GB (2^30 bytes); 0 when none does."""

    card_gb: float
    implementation: str
    n: int


@dataclass(frozen=True)
class Predictions:
    """What was asked for: bytes of tasks, and the longest n on cards."""

    rows: tuple[Predicted, ...] = ()
    longest: tuple[Longest, ...] = ()

    @classmethod
    def from_dict(cls, written: Mapping[str, Any]) -> "Predictions":
        """From ``asdict``, perhaps through JSON."""
        return cls(
            tuple(Predicted(**row) for row in written["rows"]),
            tuple(Longest(**row) for row in written["longest"]),
        )


def predict(
    setting: Setting,
    tasks: Sequence[Task] = (),
    *,
    device: str = "cpu",
    cards_gb: Sequence[float] = (),
    implementations: Sequence[str] = (),
) -> Predictions:
    """``predict.predictions``, in a process of its own: 2 s for torch to load beside what it takes.

    Raises Unavailable: when it cannot be predicted; the message is the process's last line.
    """
    command = predict_command(setting, tasks, device, cards_gb, implementations)
    ended = subprocess.run(command, cwd=paths.ROOT, capture_output=True, text=True, check=False)
    if ended.returncode:
        last = (ended.stderr.strip().splitlines() or ["torch does not start"])[-1]
        raise Unavailable(f"The bytes cannot be predicted: {last.rstrip('.')}.")
    return Predictions.from_dict(json.loads(ended.stdout))


def predict_command(
    setting: Setting,
    tasks: Sequence[Task],
    device: str,
    cards_gb: Sequence[float] = (),
    implementations: Sequence[str] = (),
) -> list[str]:
    """What to start; it prints ``Predictions`` as one line of JSON."""
    request = {
        "setting": asdict(setting),
        "tasks": tasks,
        "device": device,
        "cards_gb": cards_gb,
        "implementations": implementations,
    }
    return [sys.executable, "-m", MODULE, "--json", json.dumps(request)]
