"""The lab as a person starts it: ``python -m lab`` from another folder, killed in parts, closed by Ctrl-C."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress

import psutil
import pytest

from engine.runs.launch import specs
from engine.system import files, paths
from engine.training import checkpoint
from tests.serving import healthy, until

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals are POSIX's")


class Health(threading.Thread):
    """Asks the health endpoint all the time and notes the longest silence."""

    def __init__(self, port):
        super().__init__(daemon=True)
        self.port, self.stop, self.silence, self.asked = port, threading.Event(), 0.0, 0

    def run(self):
        last = time.monotonic()
        while not self.stop.wait(0.1):
            if healthy(self.port):
                self.silence, last = max(self.silence, time.monotonic() - last), time.monotonic()
                self.asked += 1


def child(process, word):
    """The pid of the lab's child with a word in its command line."""
    for one in psutil.Process(process.pid).children():
        with suppress(psutil.Error):
            if word in " ".join(one.cmdline()):
                return one.pid
    return None


def test_parts_are_killed_and_training_goes_on_then_ctrl_c_saves_and_ends_all(lab):
    process, port, store, log = lab.process, lab.port, lab.store, lab.log
    store.submit(specs("averages", "chapter", (0,), "python-reference", ["average-added"]))
    folder = store.directory(1)

    def step():
        return files.last_record(folder).get("step", -1)

    def state():
        return store.get(1).state

    until(lambda: step() >= 10, 90, lambda: (store.runs(), log.read_text()))
    until(lambda: state() == "running", 5, "never running")

    health = Health(port)
    health.start()
    os.kill(child(process, "engine.runs.dispatcher"), signal.SIGKILL)
    before = step()
    until(lambda: step() > before, 30, "training stopped with the dispatcher")
    until(lambda: child(process, "engine.runs.dispatcher"), 10, "no new dispatcher")

    os.kill(files.read_json(folder / f"pid.{store.get(1).attempt}.json")["trainer"], signal.SIGKILL)
    until(lambda: state() == "failed", 10, store.runs)
    assert store.resume(1)
    before = step()
    until(lambda: step() > before, 60, log.read_text)
    health.stop.set()
    health.join()
    assert health.asked > 3
    assert health.silence < 3.0

    os.kill(child(process, "streamlit"), signal.SIGKILL)
    before = step()
    until(lambda: step() > before, 30, "training stopped with Streamlit")
    until(lambda: healthy(port), 30, "Streamlit did not come back")
    assert state() == "running"

    process.send_signal(signal.SIGINT)
    assert process.wait(20) == 0
    assert state() == "interrupted"
    assert store.get(1).reason.startswith("the lab was closed, at step ")
    _, header = checkpoint.load(folder / "checkpoint.safetensors")
    assert header["step"] >= before
    assert not healthy(port)
    assert "Traceback" not in log.read_text()


def test_a_taken_port_and_a_wrong_one_are_said_in_one_sentence():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        for port, words in ((str(taken.getsockname()[1]), "is taken"), ("eighty", "allowed: a whole number")):
            answer = subprocess.run(
                [sys.executable, "-m", "lab"],
                cwd=paths.ROOT,
                env={**os.environ, "STREAMLIT_SERVER_PORT": port},
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
            assert answer.returncode == 2
            assert words in answer.stderr
            assert len(answer.stderr.strip().splitlines()) == 1
