"""Processors, and how many runs share them. Imports no torch."""

import os

from engine.system.numbers import whole_number

MAX_SLOTS = 64


def default_slots() -> int:
    """Runs at once on this machine: one a core, four at most; ``ATTENTION_LAB_SLOTS`` decides otherwise.

    Tiny models gain little from a second thread, so a sweep is fastest with one run a core.
    """
    given = os.environ.get("ATTENTION_LAB_SLOTS", "")
    return whole_number(given, 1, MAX_SLOTS) or min(4, usable_cores())


def usable_cores() -> int:
    """Processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
