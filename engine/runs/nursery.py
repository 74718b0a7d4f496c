"""Trainers that need not import torch first: ``python -m engine.runs.nursery``, one process a dispatcher.

Importing torch takes seconds, a quick run trains for 15 to 30. On Linux the nursery has imported all that
training needs, computed nothing, and forks a supervisor for each run, which forks its trainer in its turn:
so a supervisor is its trainer's parent here as anywhere, and knows exactly how it ended. No run depends on
the nursery afterwards. Elsewhere it is one supervisor with a trainer that waits warm, the next run's.

It ends with the dispatcher: its standard input closes. Where it is gone, late or out of date, a run is
launched the plain way, and a new nursery is started. Imports no torch but in the nursery's own process.
"""

import gc
import json
import os
import select
import signal
import subprocess
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

from engine.runs.supervise import Process, plainly, supervise
from engine.system import paths
from engine.system.processes import DETACHED, MALLOC

FORKS = sys.platform == "linux"
COMMAND = (sys.executable, "-m", "engine.runs.nursery")
TRAINER = (sys.executable, "-m", "engine.runs.trainer")
WARM_UP_SECONDS = 60.0  # a first run waits so long for torch, then starts the plain way
ANSWER_SECONDS = 2.0  # a fork takes ten milliseconds


class Nursery:
    """The nursery as the dispatcher sees it: started when it is first asked for, anew when it is of no use.

    command: its process. forks: whether that forks, or is one supervisor that waits for its run.
    """

    def __init__(self, command: Sequence[str] = COMMAND, forks: bool = FORKS) -> None:
        self._command = [*command, *(() if forks else ("spare",))]
        self._forks = forks
        self._process: subprocess.Popen[bytes] | None = None
        self._version: object = None
        self._ready = False
        self._first_ready_by = time.monotonic() + WARM_UP_SECONDS

    def warms_up(self, environment: Mapping[str, str]) -> bool:
        """Whether the first nursery still imports torch: a run that waits for it starts sooner than another
        process that imports torch beside it."""
        if self._process is None:
            self._start(environment)
            self._first_ready_by = time.monotonic() + WARM_UP_SECONDS
        return self._forks and time.monotonic() < self._first_ready_by and not self._is_ready_or_gone()

    def launch(
        self, environment: Mapping[str, str], directory: Path, attempt: int, memory_bytes: int
    ) -> "subprocess.Popen[bytes] | Supervisor | None":
        """A supervisor at work on a run's attempt, or None: then launch it the plain way.

        environment: of the run's processes. memory_bytes: see ``supervise``.
        """
        supervisor: subprocess.Popen[bytes] | Supervisor | None = None
        if self._process is not None and self._version == _version(environment):
            if self._forks and not self._is_ready_or_gone():
                return None
            supervisor = self._ask(self._process, [str(directory), attempt, memory_bytes])
        if supervisor is None:
            self.close()
        if supervisor is None or not self._forks:  # a spare supervisor is the run's own from now on
            self._start(environment)
        return supervisor

    def close(self) -> None:
        """End the nursery; the runs go on."""
        if self._process is not None:
            for pipe in (self._process.stdin, self._process.stdout):
                if pipe is not None:
                    pipe.close()
            self._process.kill()
            self._process.wait()
            self._process = None

    def _start(self, environment: Mapping[str, str]) -> None:
        self._version, self._ready = _version(environment), False
        self._process = subprocess.Popen(
            self._command,
            cwd=paths.ROOT,
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE if self._forks else subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**MALLOC, **environment},  # glibc reads its settings when a program starts
            **DETACHED,
        )

    def _is_ready_or_gone(self) -> bool:
        self._ready = self._ready or self._answer(0) is not None
        return self._ready

    def _ask(
        self, process: "subprocess.Popen[bytes]", job: list[Any]
    ) -> "subprocess.Popen[bytes] | Supervisor | None":
        assert process.stdin is not None
        try:
            process.stdin.write(json.dumps(job).encode() + b"\n")
            if not self._forks:
                process.stdin.close()
                return process
        except OSError:  # it was killed
            return None
        answer = self._answer(ANSWER_SECONDS)
        return Supervisor(int(answer)) if answer else None

    def _answer(self, seconds: float) -> bytes | None:
        """What the nursery wrote within so long, empty when it is gone; None when it wrote nothing."""
        assert self._process is not None
        assert self._process.stdout is not None
        answers = self._process.stdout.fileno()
        return os.read(answers, 64) if select.select([answers], [], [], seconds)[0] else None


class Supervisor:
    """A forked supervisor, by its pid: the child of another process."""

    def __init__(self, pid: int) -> None:
        try:
            self._process: psutil.Process | None = psutil.Process(pid)
        except psutil.NoSuchProcess:
            self._process = None

    def poll(self) -> int | None:
        """None while it runs; its exit code is nobody's business."""
        try:
            if self._process and self._process.is_running():
                return 0 if self._process.status() == psutil.STATUS_ZOMBIE else None
        except psutil.NoSuchProcess:
            pass
        return 0


class Forked:
    """A child of this process that calls a function and exits with what it returns; watched like a Popen."""

    def __init__(self, function: Callable[[], int]) -> None:
        self.returncode: int | None = None
        with warnings.catch_warnings():
            # torch keeps one native thread. Nothing was computed, so it waits and holds no lock.
            warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
            self.pid = os.fork()
        if self.pid == 0:
            code = 1
            try:
                code = function()
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)

    def poll(self) -> int | None:
        """The exit code, or minus the signal's number; None while it runs."""
        return self._wait(os.WNOHANG)

    def wait(self) -> int:
        """As ``poll``, when it has ended."""
        code = self._wait(0)
        assert code is not None
        return code

    def _wait(self, options: int) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, options)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode


def serve(warm_up: Callable[[], None], train: Callable[[list[str]], int]) -> None:
    """Be a nursery that forks: fork a supervisor for every job on standard input and answer with its pid.

    train: the trainer; it gets its folder and attempt.
    """
    warm_up()
    gc.freeze()  # a collection in a child would copy every page it looks at
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # supervisors are never zombies
    os.write(1, b"ready\n")  # not print, which may write a line in two parts
    for line in sys.stdin:
        job = json.loads(line)
        os.write(1, b"%d\n" % Forked(lambda job=job: _supervise(job, train)).pid)  # type: ignore[misc]


def _supervise(job: list[Any], train: Callable[[list[str]], int]) -> int:
    """What the forked supervisor does; nothing of the nursery's stays open in it."""
    directory, attempt, memory_bytes = job
    os.setsid()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    nothing = os.open(os.devnull, os.O_RDWR)
    for standard in range(3):
        os.dup2(nothing, standard)
    os.close(nothing)

    def start(directory: Path, attempt: int) -> Process:
        reads, _writes = os.pipe()  # closes with this process: the trainer then ends itself
        with (directory / "log.txt").open("ab") as log:
            trainer = Forked(lambda: _train(reads, log.fileno(), [str(directory), str(attempt)], train))
        os.close(reads)
        return trainer

    supervise(Path(directory), attempt, start, memory_bytes)
    return 0


def _train(reads: int, log: int, arguments: list[str], train: Callable[[list[str]], int]) -> int:
    for standard, descriptor in enumerate((reads, log, log)):
        os.dup2(descriptor, standard)
    # Above all its supervisor's lock on the run, which would be held by both.
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    return train(arguments)


def _spare() -> None:
    """Be a supervisor whose trainer warms up while it waits for its one job."""
    trainer = subprocess.Popen(
        TRAINER, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )

    def start(directory: Path, attempt: int) -> Process:
        assert trainer.stdin is not None
        try:
            trainer.stdin.write(json.dumps([str(directory), str(attempt)]).encode() + b"\n")
            trainer.stdin.flush()
        except OSError:  # it was killed
            return plainly(TRAINER)(directory, attempt)
        return trainer

    if line := sys.stdin.readline():
        directory, attempt, memory_bytes = json.loads(line)
        supervise(Path(directory), attempt, start, memory_bytes)


def _version(environment: Mapping[str, str]) -> object:
    """Changes with the environment and with the engine's code: what was warmed up before trains otherwise."""
    code = {path: path.stat().st_mtime_ns for path in (paths.ROOT / "engine").rglob("*.py")}
    return dict(environment), code


def main(arguments: list[str]) -> None:
    """The command line of the nursery."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the lab's business: it asks through cancel.N
    if arguments == ["spare"]:
        _spare()
    else:
        from engine.runs import trainer

        serve(trainer.warm_up, trainer.main)


if __name__ == "__main__":
    main(sys.argv[1:])
