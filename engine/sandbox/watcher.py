"""Runs a reader's attention in a process of its own that can be killed: ``check(code)``.

Three processes: the app, a watcher (``python -m engine.sandbox.watcher``, no torch), and the one that runs
the code (``child.py``). The watcher stands between, so that nothing pasted has the app for a parent; it
keeps time, memory and descendants, and leaves nothing behind. It is no security boundary: the code is the
reader's own, on the reader's own machine.
"""

import ipaddress
import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import psutil

from engine.system import paths
from engine.system.processes import TreeMemory, gigabytes, kill_tree

LIMIT_SECONDS = 5.0  # from the press of the button, loading torch included
ENOUGH_SECONDS = 1.0  # of these for the code itself, else the machine is too busy to judge it
ANSWER_SECONDS = 5.8  # when the app no longer waits for the watcher either
IDLE_SECONDS = 300.0  # how long a process that has loaded torch waits for code
MEMORY_BYTES = 1_500_000_000
MAX_BYTES = 50_000  # of code: less than a pipe holds, so that handing it over never blocks
MAX_ANSWER = 2_000_000
SWITCH = "ATTENTION_LAB_RUN_CODE"

BUSY = "This machine is busy, and torch has not loaded yet. Check again: it goes on loading."

_LOCK = threading.Lock()
_spare: "_Watcher | None" = None


@dataclass(frozen=True)
class Verdict:
    """What became of the code.

    outcome: "right", "wrong" (other numbers than the reference), "error" (it raised, or is no Python),
    "stopped" (it had to be, or ended the process), or "busy" when it never ran. sentence: that in words.
    part: what of attention is wrong.
    cases: each case's name and whether it failed; smallest: the smallest failing input with both outputs.
    printed: the beginning of what it printed.
    """

    outcome: str
    sentence: str
    part: str | None = None
    cases: list[dict[str, Any]] = field(default_factory=list)
    smallest: dict[str, Any] | None = None
    printed: str = ""
    seconds: float = 0.0


def allowed(address: str | None) -> bool:
    """Whether pasted code may run where the server listens on that address.

    address: of the server; None, as for "every address there is", is no.
    """
    if os.environ.get(SWITCH) == "1" or address == "localhost":
        return True
    with suppress(ValueError):
        return ipaddress.ip_address(address or "").is_loopback
    return False


def check(code: str) -> Verdict:
    """Judge a reader's ``attention(q, k, v, causal)``, within six seconds whatever it does."""
    began = time.monotonic()
    sent = code.encode("utf-8", "replace")
    if not code.strip():
        return Verdict("error", "There is no code to check.")
    if len(sent) > MAX_BYTES:
        return Verdict("error", f"The code has {len(sent):,} bytes; allowed: at most {MAX_BYTES:,}.")
    watcher = _taken()
    if watcher.line(LIMIT_SECONDS - ENOUGH_SECONDS) is None:
        _keep(watcher)  # it goes on loading, and the next press finds it further
        return Verdict("busy", BUSY, seconds=time.monotonic() - began)
    spent = time.monotonic() - began
    watcher.send(f"{LIMIT_SECONDS - spent}\n".encode() + sent)
    answer = watcher.line(ANSWER_SECONDS - spent)
    watcher.end()
    _keep(_Watcher())  # for the next press, while the reader reads
    found: dict[str, Any] = {"outcome": "stopped", "sentence": "It ended the process that was watching it."}
    if answer is None:
        found["sentence"] = f"It was stopped: no answer within {ANSWER_SECONDS:.0f} s."
    with suppress(ValueError):
        found = json.loads(answer or "")
    return Verdict(**{**found, "seconds": time.monotonic() - began})


def release() -> None:
    """End the process that waits for code, if one does."""
    _keep(None)


class _Watcher:
    """The app's end of a watcher: one line when it is ready for code, one with the answer."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "engine.sandbox.watcher"],
            cwd=paths.ROOT,
            stdin=subprocess.PIPE,  # closes with this process: the watcher then ends, and its child with it
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._lines: queue.Queue[bytes] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout
        with suppress(OSError, ValueError):
            for line in self._process.stdout:
                self._lines.put(line)
        self._lines.put(b"")

    @property
    def alive(self) -> bool:
        """Whether it still runs; it gives up after a while."""
        return self._process.poll() is None

    def line(self, seconds: float) -> bytes | None:
        """Its next line, empty when it has ended, None when there is none in time."""
        with suppress(queue.Empty):
            return self._lines.get(timeout=seconds)
        return None

    def send(self, code: bytes) -> None:
        """Hand it the code, which is all that it will ever get."""
        assert self._process.stdin
        with suppress(OSError):
            self._process.stdin.write(code)
            self._process.stdin.close()

    def end(self) -> None:
        """Kill it and what it started, unless it has ended."""
        kill_tree(self._process.pid)
        self._process.wait()


def _taken() -> _Watcher:
    """The watcher that waits, else a new one."""
    global _spare
    with _LOCK:
        waiting, _spare = _spare, None
    return waiting if waiting and waiting.alive else _Watcher()


def _keep(watcher: _Watcher | None) -> None:
    """Let this one wait for code, in place of the one that does."""
    global _spare
    with _LOCK:
        former, _spare = _spare, watcher
    if former:
        former.end()


# From here on: the watcher.


def watch() -> None:
    """Start the child, say when it is ready, wait for the code, see it through, print the answer."""
    _adopt_orphans()
    folder = tempfile.mkdtemp(prefix="attention-lab-")
    child = subprocess.Popen(
        [sys.executable, "-m", "engine.sandbox.child", str(LIMIT_SECONDS + 1)],
        cwd=folder,
        env=_environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    answer = None
    try:
        idle = threading.Timer(IDLE_SECONDS, _give_up, (child, folder))
        idle.daemon = True
        idle.start()
        said = _Said(child)
        given = sys.stdin.buffer.read()
        idle.cancel()
        if given:
            seconds, _, code = given.partition(b"\n")
            answer = _seen_through(child, said, code, float(seconds))
    finally:
        _end_all(child)
        shutil.rmtree(folder, ignore_errors=True)
    if answer:
        print(json.dumps(answer), flush=True)


def _environment() -> dict[str, str]:
    """One thread, no accelerator, nothing written beside the lab's own code."""
    return {
        **os.environ,
        "CUDA_VISIBLE_DEVICES": "",
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONPATH": str(paths.ROOT),
    }


class _Said:
    """What the child has said so far, read by a thread so that its pipe never fills."""

    def __init__(self, child: "subprocess.Popen[bytes]") -> None:
        self._child, self._kept = child, bytearray()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        """The first that comes, be it the end, is the sign to send the code."""
        assert self._child.stdout
        waiting = True
        block = b"?"
        while block:
            try:
                block = os.read(self._child.stdout.fileno(), 65536)
            except (OSError, ValueError):
                block = b""
            self._kept += block[: MAX_ANSWER - len(self._kept)]
            if waiting:
                print("ready", flush=True)
                waiting = False

    def all(self) -> dict[str, Any]:
        """The last word on each matter; what was printed, joined."""
        said: dict[str, Any] = {"printed": ""}
        for line in bytes(self._kept).splitlines():
            with suppress(ValueError):
                word = json.loads(line)
                if isinstance(word, dict):
                    said.update({**word, "printed": said["printed"] + str(word.get("printed", ""))})
        return said

    def end(self) -> None:
        """Wait for the rest of what a dead child has said."""
        self._reader.join(timeout=0.5)


def _seen_through(
    child: "subprocess.Popen[bytes]", said: _Said, code: bytes, seconds: float
) -> dict[str, Any]:
    """Hand the code over and watch. Returns the verdict's fields."""
    assert child.stdin
    began = time.monotonic()
    with suppress(OSError):
        child.stdin.write(code)
        child.stdin.close()
    stopped = _until_it_ends(child, seconds)
    ran = time.monotonic() - began
    if _end_all(child) and not stopped:
        stopped = "process"
    said.end()
    words = said.all()
    printed = str(words["printed"])
    verdict = words.get("verdict")
    if stopped is None and isinstance(verdict, dict):
        return {**verdict, "printed": printed}
    sentence = _why(stopped, child.returncode, words, ran)
    return {"outcome": "stopped", "sentence": sentence, "printed": printed}


def _until_it_ends(child: "subprocess.Popen[bytes]", seconds: float) -> str | None:
    """Returns why the child has to be killed, or None when it ended by itself."""
    began = looked = time.monotonic()
    memory = TreeMemory(child.pid)
    while child.poll() is None:
        now = time.monotonic()
        if now - began > seconds:
            return "time"
        if memory.bytes() > MEMORY_BYTES:
            return "memory"
        if now - looked > 0.1:
            looked = now
            if _children(child.pid):
                return "process"
        time.sleep(0.01)
    return None


def _why(stopped: str | None, code: int, words: dict[str, Any], ran: float) -> str:
    """One sentence for a child that was stopped, or that ended without a verdict."""
    where = f" in {words['at']}" if "at" in words else ""
    if stopped == "memory":
        return f"It uses more memory than the {gigabytes(MEMORY_BYTES)} that it may have."
    if stopped == "process":
        return "It started another process; here a function may not."
    if stopped == "time":
        return f"It does not end: stopped after {ran:.1f} s{where}."
    if "ready" not in words:
        return f"The process that was to run it did not start (exit code {code})."
    if code >= 0:
        return f"It ends the process itself, with exit code {code},{where}."
    name = signal.Signals(-code).name
    if name in ("SIGSEGV", "SIGBUS", "SIGABRT"):
        return f"It crashes the interpreter ({name}){where}, as endless recursion does."
    return f"Its process was ended by {name}{where}."


def _adopt_orphans() -> None:
    """Make this process the parent of whatever its descendants leave behind, where the system can (Linux)."""
    with suppress(OSError, AttributeError):
        import ctypes

        ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER


def _children(pid: int) -> list[psutil.Process]:
    """Living descendants of a process."""
    with suppress(psutil.Error):
        found = psutil.Process(pid).children(recursive=True)
        return [one for one in found if one.is_running() and one.status() != psutil.STATUS_ZOMBIE]
    return []


def _end_all(child: "subprocess.Popen[bytes]") -> bool:
    """Kill the child and all that came of it. Returns whether there was more than the child."""
    kill_tree(child.pid)
    child.wait()
    more, until = False, time.monotonic() + 1.0
    while (left := _children(os.getpid())) and time.monotonic() < until:
        more = True
        for process in left:
            with suppress(psutil.Error):
                process.kill()
        time.sleep(0.01)
    return more


def _give_up(child: "subprocess.Popen[bytes]", folder: str) -> None:
    """Nobody sent any code: end, so that no memory is held for nothing."""
    _end_all(child)
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(0)


if __name__ == "__main__":
    watch()
