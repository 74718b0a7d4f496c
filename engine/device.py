"""Which device trains here. ``describe`` asks torch in another process, once, so that pages need none."""

import json
import platform
import subprocess
import sys
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Literal

from engine import paths
from engine.runs import files
from engine.runs.local import usable_cores

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
    cache = paths.DATA / "cache" / "device.json"
    key = _key()
    known = files.read_json(cache)
    if known is None or known.pop("key", None) != key:
        asked = subprocess.run(
            [sys.executable, "-m", "engine.device"],
            cwd=paths.ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        if asked.returncode:
            raise RuntimeError((asked.stderr.strip().splitlines() or ["torch does not start"])[-1])
        known = json.loads(asked.stdout)
        cache.parent.mkdir(parents=True, exist_ok=True)
        files.write_json(cache, {**known, "key": key})
    return Device(**known)


def probe() -> Device:
    """Ask torch. Slow the first time: it imports torch."""
    import torch

    kind: Kind = "cpu"
    title, memory = f"CPU, {usable_cores()} cores", 0
    if torch.cuda.is_available():
        properties = torch.cuda.get_device_properties(0)
        kind, title, memory = "cuda", properties.name, properties.total_memory
    elif torch.backends.mps.is_available():
        kind, title = "mps", f"Apple GPU ({platform.machine()})"
    is_cpu_build = torch.version.cuda is None and getattr(torch.version, "hip", None) is None
    return Device(kind, title, memory, torch.__version__, is_cpu_build and sys.platform != "darwin")


def _key() -> str:
    """Changes when the answer could: another torch, another machine, another number of cores."""
    from importlib.metadata import version

    return f"{version('torch')} {platform.node()} {usable_cores()} {sys.executable}"


if __name__ == "__main__":
    print(json.dumps(asdict(probe())))
