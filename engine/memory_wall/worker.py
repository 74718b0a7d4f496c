"""One n of one implementation, measured: ``python -m engine.memory_wall.worker --json PLAN``.

A process of its own, so that nothing else falls with it. It loads, says "ready", waits for a line on stdin
that says how much it may take, measures, and ends. What it finds goes out as lines of JSON:

{"event": "ready"}
{"event": "bytes", "peak_bytes", "resident_bytes", "backend"}
{"event": "time", "step_ms", "spread_ms", "repeats"}
{"event": "end", "state": "done" | "out of memory" | "failed", "reason", "needed_bytes"}

It ends at once when stdin closes: whoever started it is gone.
"""

import argparse
import json
import os
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Any

import torch

from engine.memory_wall.live_bytes import OutOfMemory
from engine.memory_wall.meters import Measurement, measure_bytes, measure_time
from engine.memory_wall.plan import Plan
from engine.memory_wall.verdict import is_out_of_memory
from engine.system.cores import usable_cores
from engine.system.errors import first_line

LONGEST_LINE = 65_536


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line. Returns the exit code: 0 measured, 1 not (the last line says why), 2 wrong arguments.

    PLAN: a ``Plan`` of one n and one implementation, with its number of threads.
    """
    parser = argparse.ArgumentParser(prog="python -m engine.memory_wall.worker")
    parser.add_argument("--json", required=True, metavar="PLAN", help="one JSON object; see the docstring")
    try:
        plan = Plan.from_dict(json.loads(parser.parse_args(arguments).json))
        ((n, implementation),) = plan.tasks
        measurement = Measurement(
            n=n, implementation=implementation, setting=plan.setting, device=plan.device
        )
        torch.set_num_threads(plan.threads or usable_cores())
    except (ValueError, TypeError, AttributeError, RuntimeError) as error:
        print(first_line(error), file=sys.stderr)
        return 2
    _say(event="ready")
    limits = json.loads(_line() or "null")
    if limits is None:
        return 0
    threading.Thread(target=_end_with_stdin, daemon=True).start()
    try:
        limit_address_space(plan.address_space_bytes)
        _measure(measurement, limits, timed=plan.timed)
    except BaseException as error:
        _say(event="end", **_end(error))
        return 1
    _say(event="end", state="done", reason=None)
    return 0


def _measure(measurement: Measurement, limits: dict[str, Any], *, timed: bool) -> None:
    step, found = measure_bytes(
        measurement, limits.get("allowed_bytes"), beforehand=limits.get("beforehand", True)
    )
    _say(event="bytes", **asdict(found))
    if timed:
        _say(event="time", **asdict(measure_time(step, measurement.device)))


def _end(error: BaseException) -> dict[str, Any]:
    error.__traceback__ = None  # and with it every frame that holds tensors
    if isinstance(error, OutOfMemory):
        said = f"It needs {error}."
        return {"state": "out of memory", "reason": said, "needed_bytes": error.needed_bytes}
    state = "out of memory" if is_out_of_memory(error) else "failed"
    return {"state": state, "reason": f"{first_line(error)}."}


def limit_address_space(more_bytes: int | None) -> None:
    """Let the kernel refuse what goes this far beyond the address space taken now; Linux only.

    Raises OSError, ValueError: when it cannot be limited.
    """
    if more_bytes is None:
        return
    import resource

    with open("/proc/self/statm") as sizes:  # noqa: PTH123
        limit = int(sizes.read().split()[0]) * resource.getpagesize() + more_bytes
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def _line() -> bytes:
    """From stdin, byte by byte: what comes after it is for another to read. Empty when stdin has closed."""
    line = b""
    while not line.endswith(b"\n") and len(line) < LONGEST_LINE:
        read = os.read(0, 1)
        if not read:
            return b""
        line += read
    return line


def _end_with_stdin() -> None:
    with suppress(OSError):
        while os.read(0, 1):
            pass
    os._exit(3)


def _say(**line: Any) -> None:
    os.write(1, json.dumps(line).encode() + b"\n")


if __name__ == "__main__":
    # Taking torch apart takes a while; what was found is written.
    os._exit(main())
