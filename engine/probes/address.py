"""Where the warm worker of a data folder is met, how it is started, and how it is ended. Imports no torch.

The folder of a worker lies among the system's temporary files, for the path of a socket must be short, and is
its user's alone: key, a secret that both sides prove to know; pid.json, whose process listens; log, of the
newest worker. It goes when the worker ends, that of a killed one when another starts. By a lock beside the
folders one at a time is started or taken away.
A worker belongs to one data folder, one checkout and one state of its code: another code has another worker.
"""

import errno
import hashlib
import json
import os
import secrets
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import filelock
import psutil

from engine.system import files, paths
from engine.system.errors import Unavailable

LONGEST = 50  # characters of the temporary folder's path, so that a socket's stays under 100
START_SECONDS, END_SECONDS = 30.0, 5.0
COMMAND = (sys.executable, "-m", "engine.probes.worker")


@lru_cache(maxsize=1)
def code_digest() -> str:
    """Of the engine's sources as they were when this process first asked."""
    digest = hashlib.sha256()
    for path in sorted((paths.ROOT / "engine").rglob("*.py")):
        digest.update(str(path.relative_to(paths.ROOT)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


@dataclass(frozen=True)
class Address:
    """One worker's place. folder: of its files. at: what a listener or client of multiprocessing is given."""

    folder: Path
    at: str

    @classmethod
    def here(cls) -> "Address":
        """That of this data folder and code."""
        of = "\0".join((str(paths.HOME), str(paths.ROOT), code_digest()))
        temporary = Path(tempfile.gettempdir())
        if len(str(temporary)) > LONGEST and sys.platform != "win32":
            temporary = Path("/tmp")
        whose = "attention-lab" if sys.platform == "win32" else f"attention-lab-{os.getuid()}"
        return cls.of(temporary / whose / hashlib.sha256(of.encode()).hexdigest()[:16])

    @classmethod
    def of(cls, folder: Path) -> "Address":
        """That of a worker's folder."""
        pipe = sys.platform == "win32"
        return cls(folder, rf"\\.\pipe\attention-lab-{folder.name}" if pipe else str(folder / "socket"))

    def prepare(self) -> None:
        """Make the folder, or see that it is this user's alone. Raises Unavailable: when it is not."""
        for folder in (self.folder.parent, self.folder):
            folder.mkdir(mode=0o700, exist_ok=True)
            if sys.platform == "win32":  # temporary files are the user's own there
                continue
            state = folder.lstat()
            if not stat.S_ISDIR(state.st_mode) or state.st_uid != os.getuid() or state.st_mode & 0o077:
                raise Unavailable(f"{folder} belongs to somebody else, or is open to others: remove it.")

    def key(self) -> bytes:
        """The secret; made by whoever asks first. Raises OSError: when it cannot be written."""
        path = self.folder / "key"
        with suppress(FileExistsError):
            descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(secrets.token_bytes(32))
        return path.read_bytes()

    def worker(self) -> psutil.Process | None:
        """The process that listens here, None where there is none."""
        noted = files.read_json(self.folder / "pid.json")
        with suppress(psutil.Error, KeyError, TypeError):
            if noted:
                process = psutil.Process(noted["pid"])
                if process.create_time() == noted["created"] and process.status() != psutil.STATUS_ZOMBIE:
                    return process
        return None

    def write_pid(self) -> None:
        """Note that this process listens here."""
        created = psutil.Process().create_time()
        (self.folder / "pid.json").write_text(json.dumps({"pid": os.getpid(), "created": created}))

    def start(self) -> None:
        """See that a worker listens; who asks while another starts one waits for that.

        Raises Unavailable: when none comes up.
        """
        self.prepare()
        with self._lock():
            self.prepare()  # a worker that ended may have taken it away
            self.key()
            if self.worker() and self._listens():
                return
            self._clear()
            for folder in self.folder.parent.iterdir():
                if folder != self.folder and Address.of(folder).gone():
                    shutil.rmtree(folder, ignore_errors=True)
            log = (self.folder / "log").open("wb")
            process = subprocess.Popen(
                [*COMMAND, str(os.getpid())],
                cwd=paths.ROOT,
                env={**os.environ, **_ENVIRONMENT, "ATTENTION_LAB_HOME": str(paths.HOME)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C in a terminal is the lab's to answer
            )
            log.close()
            _STARTED.append(process)
            until = time.monotonic() + START_SECONDS
            while not self._listens() or not self.worker():
                if process.poll() is not None or time.monotonic() > until:
                    process.kill()
                    last = (self.folder / "log").read_text(errors="replace").strip().splitlines()[-1:]
                    raise Unavailable(f"The process that measures does not start: {'; '.join(last)}")
                time.sleep(0.01)

    def _clear(self) -> None:
        """Forget a worker that is gone, or has not come to listen."""
        end(self.worker())
        for name in ("pid.json", "socket"):
            with suppress(OSError):
                (self.folder / name).unlink()

    def gone(self) -> bool:
        """Whether a worker was here and certainly is no more: no such process, and nobody at its socket."""
        if self.worker() or not (self.folder / "pid.json").is_file():
            return False
        if sys.platform == "win32":
            return True
        with socket.socket(socket.AF_UNIX) as caller:
            caller.settimeout(1.0)
            return caller.connect_ex(self.at) in (errno.ECONNREFUSED, errno.ENOENT)

    def close(self) -> None:
        """End the worker and take its folder away; a worker that ends does the latter itself."""
        if (worker := self.worker()) and worker.pid != os.getpid():
            end(worker)
        if not self.folder.is_dir():
            return
        with suppress(filelock.Timeout, OSError), self._lock(END_SECONDS):
            if not (worker := self.worker()) or worker.pid == os.getpid():  # no other has been started here
                shutil.rmtree(self.folder, ignore_errors=True)

    def _lock(self, seconds: float = -1) -> filelock.BaseFileLock:
        return filelock.FileLock(self.folder.parent / "lock", timeout=seconds)

    def _listens(self) -> bool:
        return sys.platform == "win32" or (self.folder / "socket").exists()


_STARTED: list[subprocess.Popen[bytes]] = []
# One thread, so that runs keep the cores; never on the accelerator while they may have it.
_ENVIRONMENT = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}


def end(worker: psutil.Process | None) -> None:
    """Kill a worker and see it gone, unless it is already."""
    if worker:
        with suppress(psutil.Error):
            worker.kill()
            worker.wait(5)
    # A dead child is a zombie until it is asked for.
    _STARTED[:] = [process for process in _STARTED if process.poll() is None]
