"""A lab as a person starts it, for tests that use it from outside."""

import os
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from engine.runs.store import Store
from engine.system import files, paths


@dataclass
class Served:
    """A running ``python -m lab`` on a data folder of its own."""

    process: subprocess.Popen[bytes]
    port: int
    store: Store
    log: Path
    started: float


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def healthy(port):
    with (
        suppress(OSError),
        urllib.request.urlopen(f"http://localhost:{port}/_stcore/health", timeout=2) as answer,
    ):
        return answer.status == 200
    return False


def until(condition, seconds, what):
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < seconds, what() if callable(what) else what
        time.sleep(0.02)
    return time.monotonic() - began


@contextmanager
def serve(tmp_path):
    """A lab on a data folder of its own, started from a folder that is not the checkout."""
    port = free_port()
    environment = {
        **os.environ,
        "ATTENTION_LAB_HOME": str(tmp_path / "home"),
        "STREAMLIT_SERVER_PORT": str(port),
        "STREAMLIT_SERVER_HEADLESS": "true",
        "PYTHONPATH": str(paths.ROOT),
    }
    text = paths.ROOT / "data" / "tinyshakespeare.txt"
    (tmp_path / "home" / "data").mkdir(parents=True, exist_ok=True)
    if text.exists():
        (tmp_path / "home" / "data" / text.name).write_bytes(text.read_bytes())
    log = (tmp_path / "log").open("w")
    started = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-m", "lab"], cwd=tmp_path, env=environment, stdout=log, stderr=log
    )
    try:
        until(lambda: healthy(port), 60, lambda: (tmp_path / "log").read_text())
        store = Store(tmp_path / "home" / "checkpoints" / "runs")
        yield Served(process, port, store, tmp_path / "log", started)
    finally:
        children = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
        process.kill()  # first, or it would start anew what is killed below
        process.wait()
        log.close()
        for child in children:
            kill(child.pid)
        for pids in (tmp_path / "home").rglob("pid.*.json"):  # supervisors that outlived their dispatcher
            kill((files.read_json(pids) or {}).get("supervisor"))


def kill(pid):
    if pid is not None:
        with suppress(psutil.NoSuchProcess):
            psutil.Process(pid).kill()
