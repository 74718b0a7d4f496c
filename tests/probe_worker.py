"""A worker that has, beside the lab's own probes, some that fail, hang and eat: for tests of faults.

The registry names functions by module; these are found here, in the process of the worker.
"""

import sys
import time

from engine.probes import registry, worker
from engine.probes.registry import Probe
from engine.system.errors import LabError


def slow(seconds: float = 0.0, note: str = "") -> str:
    time.sleep(seconds)
    return f"{note}{time.monotonic()}"


def hungry() -> str:
    eaten = []
    while True:
        eaten.append(bytearray(50 * 10**6))
        time.sleep(0.01)


def refusing() -> str:
    raise LabError("This is refused.")


def failing() -> str:
    raise ValueError("an oversight")


SLOW = Probe[str]("slow", "slow", str, 0.1, 3.0)
HUNGRY = Probe[str]("hungry", "hungry", str, 0.1, 60.0)
REFUSING = Probe[str]("refusing", "refusing", str, 0.1)
FAILING = Probe[str]("failing", "failing", str, 0.1)
ALL = (SLOW, HUNGRY, REFUSING, FAILING)

if __name__ == "__main__":
    registry.PROBES.update({probe.name: probe for probe in ALL})
    resolved = Probe.resolved
    Probe.resolved = lambda self: globals().get(self.function) or resolved(self)  # type: ignore[method-assign]
    worker.CAP_BYTES = 700 * 10**6
    worker.IDLE_SECONDS = float(sys.argv[1])
    worker.main()
