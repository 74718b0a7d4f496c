"""Stand-ins for a sweep of the memory wall, without torch: ``wall_sweeps.py MODE --json PLAN --stop FILE``.

done measures all of it at once, with explicit out of memory where it does not fit the budget. slow measures
one row, and hangs in the next until the stop file is there. waiting says so, and hangs. bug fails a row, and
has two trainings beside. broken says a word and ends. gone ends without one.
"""

import json
import os
import sys
import time
from pathlib import Path

MATRIX = 2 * 4 * 8  # bytes a pair of tokens, as explicit has it


def main(mode, plan, stop):
    tasks = [(n, name) for n in plan["tokens"] for name in plan["implementations"]]
    if mode == "waiting":
        say(*tasks[0], "waiting", reason="Another measurement has the device.")
        hang(*tasks[0], stop)
    elif mode == "broken":
        sys.exit("The bytes cannot be predicted: no torch.")
    elif mode == "gone":
        say(*tasks[0], "running")
        os._exit(9)
    else:
        measure(mode, plan, tasks, stop)


def measure(mode, plan, tasks, stop):
    beyond = set()
    for index, (n, name) in enumerate(tasks):
        if name in beyond:
            continue
        peak = 10**6 * 8 + n * 4096 + (MATRIX * n * n if name == "explicit" else 0)
        say(n, name, "running", predicted_bytes=peak)
        if mode == "slow" and index:
            hang(n, name, stop)
            return
        if mode == "bug" and name == "fused":
            why = "ValueError: *no* such $kernel$."
            say(n, name, "failed", predicted_bytes=peak, runs_beside=2, reason=why)
        elif plan["budget_bytes"] and peak > plan["budget_bytes"]:
            beyond.add(name)
            say(n, name, "out of memory", predicted_bytes=peak, needed_bytes=peak, reason="It needs more.")
        else:
            ms = n * n / 65_536 if name == "explicit" else n / 128
            backend = "flash (CPU)" if name == "fused" else None
            say(n, name, "done", predicted_bytes=peak, peak_bytes=peak, step_ms=ms, backend=backend)


def hang(n, name, stop):
    """Until it is told to stop, or half a minute."""
    for _ in range(1500):
        if stop.exists():
            say(n, name, "cancelled", reason="It was cancelled.")
            return
        time.sleep(0.02)


def say(n, implementation, state, **more):
    print(json.dumps({"n": n, "implementation": implementation, "state": state, **more}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[3]), Path(sys.argv[5]))
