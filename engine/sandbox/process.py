"""Starts the process that runs pasted code (``child.py``), limits it and ends all that came of it."""

import ipaddress
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any
from uuid import uuid4

import psutil

from engine.sandbox import MEMORY_BYTES
from engine.system import paths
from engine.system.processes import end_marked, gigabytes, kill_tree

LOAD_SECONDS = 30.0  # for torch, whatever else the machine does
CODE_SECONDS = 5.0  # for the code's first lines, and as much again for all cases
MAX_PRINTED = 2000  # characters
MAX_ANSWERS = 2_000_000  # bytes
SWITCH = "ATTENTION_LAB_RUN_CODE"
ROOTS = str(paths.ROOT)  # where modules are looked for, beside those installed
END = b'{"end": true}'  # the child's last line
MARK = "ATTENTION_LAB_CHECK"  # in the environment of whatever a check starts: which check that was


@dataclass(frozen=True)
class Ended:
    """What is left of a process that ran pasted code, after it and all that it started have ended.

    answers: what it said of the first lines, then of each case; None where that is no JSON.
    stopped: a sentence about code that did not come to its end, else "".
    busy: torch did not load in time, so the code never ran.
    printed: the beginning of its standard output and standard error. seconds: from its start to its end.
    """

    answers: list[Any]
    stopped: str
    busy: bool
    printed: str
    seconds: float


def allowed(address: str | None) -> bool:
    """Whether pasted code may run where the server listens on that address.

    address: of the server; None, as for "every address there is", is no.
    """
    if os.environ.get(SWITCH) == "1" or address == "localhost":
        return True
    with suppress(ValueError):
        return ipaddress.ip_address(address or "").is_loopback
    return False


def run(code: str, cases: Mapping[str, Mapping[str, Any]]) -> Ended:
    """Run the code on the cases, within the limits above. cases: by name, as ``child.answers`` takes them."""
    began, mark = time.monotonic(), uuid4().hex
    with tempfile.TemporaryDirectory(prefix="attention-lab-", ignore_cleanup_errors=True) as folder:
        request = {"code": code, "cases": list(cases.values())}
        Path(folder, "request.json").write_text(json.dumps(request), "utf-8")
        child = subprocess.Popen(
            [sys.executable, "-u", "-m", "engine.sandbox.child", str(os.getpid())],
            cwd=folder,
            env=_environment(mark),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        said, printed = _Kept(child.stdout, MAX_ANSWERS), _Kept(child.stderr, 4 * MAX_PRINTED)
        try:
            limit = _until_it_ends(child, said)
        finally:
            if child.poll() is None:
                kill_tree(child.pid)
                child.wait()
            left_another = end_marked(MARK, mark)
    lines = said.all().splitlines()
    places = ["while torch loaded", "in its first lines", *(f"in the case {name}" for name in cases)]
    where = places[min(len(lines), len(places) - 1)]
    limit = "process" if left_another else limit
    ended = not limit and lines[-1:] == [END]
    return Ended(
        answers=[_parsed(line) for line in lines[1:] if line != END],
        stopped="" if ended else _why(limit, child.returncode, where),
        busy=limit == "load",
        printed=printed.all().decode("utf-8", "replace")[:MAX_PRINTED],
        seconds=time.monotonic() - began,
    )


def _environment(mark: str) -> dict[str, str]:
    """One thread, no accelerator, nothing written beside the lab's own code."""
    return {
        **os.environ,
        MARK: mark,
        "CUDA_VISIBLE_DEVICES": "",
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONPATH": ROOTS,
    }


class _Kept:
    """The beginning of what a pipe carries, read by a thread so that the pipe never fills."""

    def __init__(self, pipe: IO[bytes] | None, most: int) -> None:
        assert pipe
        self._pipe, self._most, self._kept = pipe, most, bytearray()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        with self._pipe:
            while block := os.read(self._pipe.fileno(), 65536):
                self._kept += block[: self._most - len(self._kept)]

    def lines(self) -> int:
        """How many have come so far."""
        return self._kept.count(b"\n")

    def all(self) -> bytes:
        """What a process that has ended left here."""
        self._reader.join(timeout=1.0)
        return bytes(self._kept)


def _until_it_ends(child: "subprocess.Popen[bytes]", said: _Kept) -> str:
    """Returns the limit beyond which the child went, or "" when it ended by itself."""
    seen = psutil.Process(child.pid)
    lines, since = 0, time.monotonic()
    while child.poll() is None:
        if lines < 2 and said.lines() > lines:  # torch is loaded, or the first lines have run
            lines, since = said.lines(), time.monotonic()
        if time.monotonic() - since > (CODE_SECONDS if lines else LOAD_SECONDS):
            return "time" if lines else "load"
        with suppress(psutil.Error):
            if seen.memory_info().rss > MEMORY_BYTES:
                return "memory"
            if lines and seen.children():
                return "process"
        time.sleep(0.02)
    return ""


def _parsed(line: bytes) -> Any:
    with suppress(ValueError, RecursionError):
        return json.loads(line)
    return None


def _why(limit: str, code: int, where: str) -> str:
    """One sentence about a child that went beyond a limit, or that ended before its end."""
    if limit == "load":
        return f"This machine is busy: torch did not load within {LOAD_SECONDS:.0f} s. Check again."
    if limit == "memory":
        return f"It uses more memory than the {gigabytes(MEMORY_BYTES)} that it may have."
    if limit == "process":
        return "It started another process; here a function may not."
    if limit == "time":
        return f"It was stopped after {CODE_SECONDS:.0f} s {where}: it is too slow, or never ends."
    if where == "while torch loaded":
        return f"The process that was to run it did not start (exit code {code})."
    if code >= 0:
        return f"It ends the process itself, with exit code {code}, {where}."
    name = signal.Signals(-code).name
    if name in ("SIGSEGV", "SIGBUS", "SIGABRT"):
        return f"It crashes the interpreter ({name}) {where}, as endless recursion does."
    return f"Its process was ended by {name} {where}."
