"""Start the lab: ``python -m lab``, from any folder.

Two processes serve it: the dispatcher, which starts runs, and Streamlit, which shows them. Either may
die; it is started again, and what trains goes on. A third one answers probes
(``engine/probes/worker.py``). Ctrl-C asks runs to save a checkpoint, then ends them all.
"""

import argparse
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
import webbrowser
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from engine.probes.address import Address
from engine.system import paths
from engine.system.errors import InvalidInput, LabError, Unavailable
from engine.system.numbers import whole_number
from lab.check import report

HERE = Path(__file__).resolve().parent
DEFAULT_PORT = 8501
OWN_HOSTS = ("localhost", "127.0.0.1", "::1")
RESTARTS, WITHIN_SECONDS = 5, 60.0
SETTLE_SECONDS = 3.0  # the first page has the cores for itself so long
ALREADY_SERVED = 3  # the dispatcher's exit code when another one holds the data folder


class Service:
    """A child process that is started again when it dies by itself, a few times a minute at most."""

    def __init__(self, name: str, command: Sequence[str], folder: Path) -> None:
        self.name, self._command, self._folder = name, [sys.executable, *command], folder
        self._started: list[float] = []
        self._not_before = 0.0
        self._process = self._start()

    def keep_alive(self) -> str | None:
        """Start it again if it died. Returns why the lab must end, when it dies again and again."""
        code = self._process.poll()
        now = time.monotonic()
        if code is None or now < self._not_before:
            return None
        if code == ALREADY_SERVED:
            self._not_before = now + 5.0  # another lab's dispatcher works for us; ours is next in line
        else:
            self._started = [at for at in self._started if now - at < WITHIN_SECONDS]
            if len(self._started) >= RESTARTS:
                return f"{self.name} ended {RESTARTS} times within a minute (exit code {code}); see above."
            print(f"{self.name} ended (exit code {code}); starting it again.", file=sys.stderr)
        self._process = self._start()
        return None

    def end(self, seconds: float) -> None:
        """Ask it to end, wait, and kill it if it does not."""
        if self._process.poll() is None:
            self._process.terminate()
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _start(self) -> subprocess.Popen[bytes]:
        self._started.append(time.monotonic())
        quiet = subprocess.DEVNULL if len(self._started) > 1 and self._not_before else None
        python_path = os.pathsep.join(filter(None, (str(paths.ROOT), os.environ.get("PYTHONPATH"))))
        return subprocess.Popen(
            self._command,
            cwd=self._folder,
            env={**os.environ, "PYTHONPATH": python_path, "ATTENTION_LAB_HOME": str(paths.HOME)},
            stdin=subprocess.DEVNULL,
            stderr=quiet,
        )


def serve(port: int) -> int:
    """Run the lab until it is asked to end. Returns the exit code."""
    address = os.environ.get("STREAMLIT_SERVER_ADDRESS", "localhost")
    asked = False

    def ask(*_: object) -> None:
        nonlocal asked
        asked = True

    signal.signal(signal.SIGINT, ask)
    signal.signal(signal.SIGTERM, ask)
    dispatcher = Service("The dispatcher", ["-m", "engine.runs.dispatcher"], paths.ROOT)
    streamlit = Service(
        "Streamlit",
        [
            *("-m", "streamlit", "run", str(HERE / "server.py")),
            *("--server.headless=true", f"--server.port={port}", f"--server.address={address}"),
            *(f"--server.allowedHosts={host}" for host in _hosts(address)),
        ],
        HERE,  # where .streamlit/config.toml lies
    )
    host = _shown(address)
    url, failure = f"http://{f'[{host}]' if ':' in host else host}:{port}", None
    opened: float | None = None
    prepare: subprocess.Popen[bytes] | None = None
    try:
        while not asked and failure is None:
            failure = dispatcher.keep_alive() or streamlit.keep_alive()
            if opened is None and _healthy(f"{url}/_stcore/health"):
                opened = time.monotonic()
                print(
                    f"Attention Lab is open at {url}. Ctrl-C ends it; runs save a checkpoint first.",
                    flush=True,
                )
                if _wants_browser():
                    webbrowser.open(url)
            if prepare is None and opened and time.monotonic() > opened + SETTLE_SECONDS:
                with suppress(LabError, OSError):  # pages start it themselves, and say what is wrong
                    Address.here().start()
                # Fetches the text, makes tokens of it and times a few steps, so that no page waits for that.
                prepare = subprocess.Popen(
                    [sys.executable, "-m", "engine", "prepare"], cwd=paths.ROOT, stdin=subprocess.DEVNULL
                )
            time.sleep(0.1)
    finally:
        if prepare is not None:
            prepare.kill()
            prepare.wait()
        Address.here().close()
        dispatcher.end(8.0)
        streamlit.end(3.0)
    if failure:
        print(failure, file=sys.stderr)
    return 1 if failure else 0


def choose_port() -> int:
    """The port that was asked for, else the first free one from 8501 on.

    Raises InvalidInput: when the port asked for is no port, or is taken.
    """
    asked = os.environ.get("STREAMLIT_SERVER_PORT")
    if asked is None:
        return next(port for port in range(DEFAULT_PORT, DEFAULT_PORT + 100) if port_is_free(port))
    port = whole_number(asked, 1, 65535)
    if port is None:
        raise InvalidInput(f"STREAMLIT_SERVER_PORT is {asked!r}; allowed: a whole number from 1 to 65535.")
    if not port_is_free(port):
        raise Unavailable(f"port {port} is taken, perhaps by a lab that is open already; choose another.")
    return port


def port_is_free(port: int) -> bool:
    """Whether a server could listen on this port of localhost."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, int(sys.platform != "win32"))
        with suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return True
    return False


def _shown(address: str) -> str:
    return "localhost" if address in ("", "0.0.0.0", "::") else address


def _hosts(address: str) -> list[str]:
    """Whose requests are answered: our own names, the address served at, and what the environment adds."""
    added = os.environ.get("STREAMLIT_SERVER_ALLOWED_HOSTS", "").split()
    return list(dict.fromkeys([*OWN_HOSTS, _shown(address), *added]))


def _healthy(url: str) -> bool:
    with suppress(OSError), urllib.request.urlopen(url, timeout=1) as answer:
        return bool(answer.status == 200)
    return False


def _wants_browser() -> bool:
    if os.environ.get("STREAMLIT_SERVER_HEADLESS", "").lower() in ("1", "true"):
        return False
    has_screen = (
        sys.platform in ("win32", "darwin") or "DISPLAY" in os.environ or "WAYLAND_DISPLAY" in os.environ
    )
    return has_screen and "SSH_CONNECTION" not in os.environ


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line of the lab. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m lab", description="Open Attention Lab in the browser.")
    parser.add_argument("--check", action="store_true", help="look at this machine and say what to do")
    options = parser.parse_args(arguments)
    try:
        port = choose_port()
    except LabError as error:
        if not options.check:
            print(error, file=sys.stderr)
            return 2
        port = 0
    if options.check:
        text, ready = report(port)
        print(text)
        return 0 if ready else 1
    return serve(port)


if __name__ == "__main__":
    sys.exit(main())
