"""Runs asked for from a shell: queue them as others do, and wait for their end. Imports no torch."""

import getpass
import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress

from engine.runs.dispatcher import TICK_SECONDS, AlreadyRunning, Dispatcher
from engine.runs.local import LocalEngine
from engine.runs.store import ACTIVE, ENDED, Entry, Store
from engine.system import files


def wait(store: Store, sweeps: Sequence[str], say: Callable[[Sequence[Entry]], None]) -> list[Entry]:
    """Wait until all runs of the sweeps ended, dispatching them here if nobody else does.

    say: called ten times a second with the runs as they stand.
    Ctrl-C asks them to save what they have and to end, and is then raised.
    """
    with ExitStack() as stack:
        dispatcher: Dispatcher | None = None
        try:
            while True:
                if dispatcher is None:
                    # While the lab is open its dispatcher does the work; ours is the next in line.
                    with suppress(AlreadyRunning):
                        dispatcher = stack.enter_context(Dispatcher(store, LocalEngine()))
                if dispatcher is not None:
                    dispatcher.tick()
                runs = _of(store, sweeps)
                say(runs)
                if all(run.state in ENDED for run in runs):
                    return runs
                time.sleep(TICK_SECONDS)
        except KeyboardInterrupt:
            print("stopping: runs save what they have first", file=sys.stderr)
            for run in _of(store, sweeps):
                if run.state == "queued":
                    store.cancel(run.id)
                elif run.state in ACTIVE:
                    files.request_stop(store.directory(run.id), run.attempt, "stop")
            if dispatcher is not None:
                dispatcher.stop_runs()
            raise


def shell_user() -> str:
    """Whose turn it is when several people share the machine."""
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):
        return str(os.getpid())


def _of(store: Store, sweeps: Sequence[str]) -> list[Entry]:
    return [run for sweep in dict.fromkeys(sweeps) for run in store.entries(sweep=sweep)]
