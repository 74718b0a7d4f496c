"""Stand-ins for the processes of the memory wall: ``python tests/wall_workers.py MODE ... --json TASK``.

LIGHT, predict and broken load no torch. bug, memory and stuck are the real worker with another layer.
"""

import json
import os
import sys
import time
from pathlib import Path


def main(mode, task):
    if mode == "predict":
        rows = [{"n": n, "implementation": name, "predicted_bytes": 1000 * n} for n, name in task["tasks"]]
        say({"rows": rows, "longest": []})
    elif mode == "broken":
        gone(task)
    elif mode in LIGHT:
        say({"event": "ready"})
        sys.stdin.readline()
        LIGHT[mode](task)
    else:
        sys.exit(real(mode))


def done(_):
    say({"event": "bytes", "peak_bytes": 77, "resident_bytes": None, "backend": None})
    say({"event": "time", "step_ms": 2.0, "spread_ms": 0.5, "repeats": 3})
    say({"event": "end", "state": "done", "reason": None})


def full(_):
    said = "1,001 bytes of tensors at once, 1,000 allowed"
    say({"event": "end", "state": "out of memory", "reason": said, "needed_bytes": 1001})


def hang(_):
    """Until whoever started it is gone."""
    sys.stdin.read()


def last_hangs(task):
    """All but chunked at 128."""
    (hang if (task["tokens"], task["implementations"]) == ([128], ["chunked"]) else done)(task)


def grow(_):
    """Half a gigabyte a second, touched."""
    held = []
    for _ in range(100):
        held.append(bytearray(os.urandom(1) * 5_000_000))
        time.sleep(0.01)
    time.sleep(60)


def gone(_):
    print("torch is broken", file=sys.stderr)
    sys.exit(7)


LIGHT = {"done": done, "full": full, "hang": hang, "grow": grow, "gone": gone, "last-hangs": last_hangs}


def real(mode):
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
    from engine.memory_wall import attention, worker

    def bug(x, weights, setting):
        raise ValueError("there is no memory of that\nsecond line")

    def memory(x, weights, setting):
        raise MemoryError

    def stuck(x, weights, setting):
        time.sleep(60)

    attention.WAYS["explicit"] = {"bug": bug, "memory": memory, "stuck": stuck}[mode]
    return worker.main(sys.argv[-2:])


def say(line):
    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[-1]))
