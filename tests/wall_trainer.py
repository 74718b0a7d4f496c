"""The process of a run, with stand-ins for the workers: ``python -m tests.wall_trainer MODE DIR ATTEMPT``.

MODE: of ``wall_workers.py``. All else of a measurement is what ships; a training does nothing, for an hour.
"""

import json
import sys
import time
from functools import partial
from pathlib import Path

WORKERS = (sys.executable, str(Path(__file__).with_name("wall_workers.py")))


def predictor(setting, tasks, device):
    """A stand-in for ``sweep.predict_command``."""
    return [*WORKERS, "predict", json.dumps({"tasks": tasks})]


if __name__ == "__main__":
    from engine.memory_wall import sweep
    from engine.runs import trainer
    from engine.system import device

    here = device.Device("cpu", "CPU, 2 cores", 0, "2.13.0", False)
    setattr(device, "describe", lambda: here)  # noqa: B010 - asking torch takes two seconds
    setattr(trainer, "prepared", lambda *_: time.sleep(3600))  # noqa: B010 - what trains beside
    mode = sys.argv[1]
    broken = mode == "unpredictable"
    sweep.measure = partial(
        sweep.measure,
        worker=(*WORKERS, "done" if broken else mode),
        predictor=(lambda *_: [*WORKERS, "broken", "{}"]) if broken else predictor,
    )
    sys.exit(trainer.main(sys.argv[2:]))
