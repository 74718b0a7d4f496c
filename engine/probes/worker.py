"""The warm worker: one process a data folder that holds torch and answers probes, one at a time.

A request is JSON, {"probe", "arguments", "reader"}; what comes back is one JSON object after the other:
"waiting" while it waits or is computed, and then "result", "refused" with a sentence for the reader, or
"bug". Requests of several readers take turns, equal ones are computed once. It ends when a probe takes longer
than its limit or memory beyond the cap, after ten minutes without a request, and with the process that
started it.
"""

import json
import os
import socket
import struct
import sys
import threading
import time
import traceback
from collections import OrderedDict, deque
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, Listener
from typing import Any

import psutil

from engine.probes import registry, wire
from engine.probes.address import Address
from engine.system.errors import LabError
from engine.system.processes import gigabytes, machine_bytes

IDLE_SECONDS = 600.0
BEAT_SECONDS = 1.0
LOOK_SECONDS = 0.05
PATIENCE_SECONDS = 5
CAP_BYTES = min(4 * 10**9, machine_bytes() // 2)


@dataclass(eq=False)
class Job:
    """One computation, and who waits for it."""

    probe: registry.Probe[Any]
    arguments: Any
    waiting: list[Connection] = field(default_factory=list)
    began: float | None = None
    speaking: threading.Lock = field(default_factory=threading.Lock)

    def say(self, message: dict[str, Any]) -> None:
        """Tell everybody who waits; who has left, or does not listen, is forgotten."""
        self.answer(wire.dumps(message))

    def answer(self, data: bytes) -> None:
        """The same, as it goes over the wire."""
        with self.speaking:
            for connection in list(self.waiting):
                try:
                    connection.send_bytes(data)
                except OSError:
                    self.waiting.remove(connection)


class Queue:
    """Jobs by reader, readers in turn."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.jobs: OrderedDict[str, Job] = OrderedDict()  # by what is asked for, the running one too
        self._turns: OrderedDict[str, deque[str]] = OrderedDict()  # of each reader, what is still to come
        self.touched = time.monotonic()

    def add(self, reader: str, asked: str, job: Job, connection: Connection) -> None:
        """Put a job in the reader's line, or its asker to an equal one."""
        with self.changed:
            self.touched = time.monotonic()
            if asked not in self.jobs:
                self.jobs[asked] = job
                self._turns.setdefault(reader, deque()).append(asked)
            self.jobs[asked].waiting.append(connection)
            self.changed.notify()

    def take(self, seconds: float) -> tuple[str, Job] | None:
        """The next job, of the reader whose turn it is; None when none comes within these seconds."""
        with self.changed:
            if not self._turns:
                self.changed.wait(seconds)
            while self._turns:
                reader, line = self._turns.popitem(last=False)
                asked = line.popleft()
                if line:
                    self._turns[reader] = line  # behind all others
                if self.jobs[asked].waiting:
                    return asked, self.jobs[asked]
                del self.jobs[asked]  # nobody waits for it any more
        return None

    def done(self, asked: str) -> Job:
        """Forget a job, so that the next equal request computes anew."""
        with self.changed:
            self.touched = time.monotonic()
            return self.jobs.pop(asked)

    def all(self) -> list[Job]:
        """Every job there is."""
        with self.changed:
            return list(self.jobs.values())


def _no_longer_than(connection: Any, seconds: int) -> None:
    """A reader that neither writes nor reads must not hold up the others."""
    if sys.platform != "win32":
        with socket.socket(fileno=os.dup(connection.fileno())) as same:
            for way in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
                same.setsockopt(socket.SOL_SOCKET, way, struct.pack("ll", seconds, 0))


class Worker:
    """Listens in a thread of its own and computes in the main one."""

    def __init__(self, address: Address, parent: int) -> None:
        self.queue = Queue()
        self._parent, self._address = psutil.Process(parent), address
        address.prepare()
        with suppress(OSError):
            os.unlink(address.at)  # noqa: PTH108 - on Windows it is no path
        self._listener = Listener(address.at, backlog=64)
        self._key = address.key()
        address.write_pid()

    def run(self) -> None:
        """Answer until nobody asks any more."""
        for work in (self._listen, self._beat, self._watch):
            threading.Thread(target=work, daemon=True).start()
        import torch

        torch.set_num_threads(1)
        while self.queue.all() or time.monotonic() - self.queue.touched < IDLE_SECONDS:
            if taken := self.queue.take(1.0):
                self._compute(*taken)
        self._address.close()

    def _listen(self) -> None:
        while True:
            with suppress(OSError):
                connection = self._listener.accept()
                _no_longer_than(connection, PATIENCE_SECONDS)
                threading.Thread(target=self._receive, args=(connection,), daemon=True).start()

    def _receive(self, connection: Any) -> None:
        """Prove to each other that both know the key; then one request. A stranger is left without a word."""
        from multiprocessing.connection import answer_challenge, deliver_challenge

        try:
            deliver_challenge(connection, self._key)
            answer_challenge(connection, self._key)
            request = json.loads(connection.recv_bytes(2**24))
            probe = registry.known(request["probe"])
        except LabError as error:
            connection.send_bytes(wire.dumps({"refused": str(error)}))
            return
        except (AuthenticationError, OSError, EOFError, ValueError, KeyError, TypeError):
            connection.close()
            return
        asked = json.dumps([probe.name, request["arguments"], request.get("files")], sort_keys=True)
        self.queue.add(str(request.get("reader")), asked, Job(probe, request["arguments"]), connection)

    def _compute(self, asked: str, job: Job) -> None:
        job.began = time.monotonic()
        try:
            result = job.probe.call(job.arguments)
            answer = wire.dumps({"result": result, "seconds": time.monotonic() - job.began})
        except LabError as error:
            answer = wire.dumps({"refused": str(error)})
        except Exception:  # a bug: whoever asked shows it as one
            answer = wire.dumps({"bug": traceback.format_exc()})
        self.queue.done(asked).answer(answer)

    def _beat(self) -> None:
        """Tell all who wait that this process lives; end it when the one that started it does not."""
        while True:
            time.sleep(BEAT_SECONDS)
            for job in self.queue.all():
                job.say({"waiting": job.began is None})
            if not self._parent.is_running() or self._parent.status() == psutil.STATUS_ZOMBIE:
                self._address.close()
                os._exit(0)

    def _watch(self) -> None:
        """End this process when a probe takes too long or too much; the others that wait ask anew."""
        own = psutil.Process()
        while True:
            time.sleep(LOOK_SECONDS)
            for job in self.queue.all():
                if job.began is None:
                    continue
                if time.monotonic() - job.began > job.probe.limit_s:
                    self._give_up(job, f"It took longer than {job.probe.limit_s:.0f} s and was ended.")
                if own.memory_info().rss > CAP_BYTES:
                    self._give_up(job, f"It needed more than {gigabytes(CAP_BYTES)} of memory and was ended.")

    def _give_up(self, job: Job, sentence: str) -> None:
        job.say({"refused": sentence})
        os._exit(1)


def main() -> None:
    """Serve until nobody asks any more; the last argument is the id of the process to end with."""
    Worker(Address.here(), int(sys.argv[-1])).run()


if __name__ == "__main__":
    main()
