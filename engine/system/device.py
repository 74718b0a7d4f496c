"""Which device trains here. ``describe`` asks torch in another process, once, so that pages need none."""

import json
import platform
import subprocess
import sys
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from filelock import FileLock

from engine.system import files, paths
from engine.system.cores import usable_cores
from engine.system.errors import Unavailable

DRIVERS = (
    Path("/proc/driver/nvidia/version"),
    Path("/sys/module/amdgpu/version"),
    Path("C:/Windows/System32/nvcuda.dll"),
)
Kind = Literal["cuda", "mps", "cpu"]


@dataclass(frozen=True)
class Device:
    """kind: what torch calls it; title: for people; memory_bytes: of the card, 0 on a CPU."""

    kind: Kind
    title: str
    memory_bytes: int
    torch: str
    torch_is_cpu_build: bool


@lru_cache(maxsize=1)
def describe() -> Device:
    """This machine's device, from a cache in the data folder or a short process (about 2 s, once).

    Raises RuntimeError: when torch cannot be imported there; the message is torch's last line.
    """
    path = paths.DATA / "cache" / "device.json"
    known = _cached(path)
    if known is None:
        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(path.with_suffix(".lock")):  # the lab's processes start together: one of them asks
            known = _cached(path) or _ask()
            files.write_json(path, {**known, "key": _key()})
    return Device(**known)


def _cached(path: Path) -> dict[str, Any] | None:
    known = files.read_json(path)
    return known if known is not None and known.pop("key", None) == _key() else None


def _ask() -> dict[str, Any]:
    if "torch" in sys.modules:  # a trainer: it need not start another process to ask
        return asdict(probe())
    asked = subprocess.run(
        [sys.executable, "-m", "engine.system.device"],
        cwd=paths.ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if asked.returncode:
        raise Unavailable((asked.stderr.strip().splitlines() or ["torch does not start"])[-1])
    answer: dict[str, Any] = json.loads(asked.stdout)
    return answer


def probe() -> Device:
    """Ask torch. Slow the first time: it imports torch."""
    import torch

    kind: Kind = "cpu"
    title, memory = cpu_title(), 0
    if torch.cuda.is_available():
        properties = torch.cuda.get_device_properties(0)
        kind, title, memory = "cuda", properties.name, properties.total_memory
    elif torch.backends.mps.is_available():
        kind, title = "mps", f"Apple GPU ({platform.machine()})"
    is_cpu_build = torch.version.cuda is None and getattr(torch.version, "hip", None) is None
    return Device(kind, title, memory, torch.__version__, is_cpu_build and sys.platform != "darwin")


def cpu_title() -> str:
    """What the CPU is called, for what is always measured on it."""
    return f"CPU, {usable_cores()} cores"


def _key() -> str:
    """Changes when the answer could: another torch, machine, number of cores, or driver of a card."""
    from importlib.metadata import version

    return f"{version('torch')} {platform.node()} {usable_cores()} {sys.executable} {_drivers()}"


def _drivers() -> str:
    """Names the drivers of cards that are installed, "" without any; an updated one has another name."""
    found = []
    for path in DRIVERS:
        with suppress(OSError):
            # The kernel's files say a version and have no date of their own; a library has only a date.
            text = str(path.stat().st_mtime_ns) if path.suffix == ".dll" else path.read_text()
            found.append(" ".join(text.split()))
    return "; ".join(found)


if __name__ == "__main__":
    print(json.dumps(asdict(probe())))
