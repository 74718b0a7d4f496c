"""How a probe in a process of its own answers: one JSON document, or a line that says why not."""

import json
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch

from engine.chapter.experiments import MAX_SEED


def answer(find: Callable[[], Mapping[str, Any]], seed: int) -> int:
    """Print what is found, on one thread, with the seconds that it took. Returns the exit code.

    0; or 2 when the seed is out of range or ``find`` raises ValueError or OSError, whose message is printed.
    """
    began = time.monotonic()
    torch.set_num_threads(1)
    try:
        if not 0 <= seed <= MAX_SEED:
            raise ValueError(f"the seed is {seed}; allowed: 0 to {MAX_SEED:,}.")
        found = find()
    except (ValueError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    print(json.dumps({**found, "seconds": round(time.monotonic() - began, 2)}, allow_nan=False))
    return 0
