"""The ledger of all runs: one SQLite file, read and written by pages, command line and dispatcher.

Most runs train (``Run``); what measures the memory wall is one too, so the ledger has entries of every kind.

A run's state changes only by compare-and-set, so of two writers one always learns that it was late.
Imports no torch.
"""

import json
import secrets
import shutil
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Generic, Literal, TypeAlias, TypeGuard, TypeVar, get_args

from filelock import FileLock

from engine.runs.spec import RunSpec, Spec, spec_of
from engine.system import files, paths
from engine.system.numbers import whole_number

State = Literal["queued", "starting", "running", "done", "diverged", "failed", "cancelled", "interrupted"]
STATES: tuple[State, ...] = get_args(State)
ACTIVE: tuple[State, ...] = ("starting", "running")
ENDED: tuple[State, ...] = ("done", "diverged", "failed", "cancelled", "interrupted")
RESUMABLE: tuple[State, ...] = ("failed", "cancelled", "interrupted")

_SCHEMA = """
CREATE TABLE IF NOT EXISTS runs (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    sweep TEXT NOT NULL,
    user TEXT NOT NULL,
    spec TEXT NOT NULL,
    digest TEXT NOT NULL,
    state TEXT NOT NULL,
    reason TEXT NOT NULL DEFAULT '',
    attempt INTEGER NOT NULL DEFAULT 1,
    slot INTEGER,
    created REAL NOT NULL,
    started REAL,
    ended REAL,
    seconds REAL,
    measured TEXT NOT NULL DEFAULT '{}',
    environment TEXT NOT NULL DEFAULT '{}'
);
CREATE INDEX IF NOT EXISTS runs_state ON runs (state);
CREATE INDEX IF NOT EXISTS runs_sweep ON runs (sweep);
CREATE INDEX IF NOT EXISTS runs_digest ON runs (digest);
"""

# Clocks are set back; a page that subtracts two times must not get a negative one.
_NEVER_BEFORE = {"started": "MAX(?, created)", "ended": "MAX(?, COALESCE(started, created))"}


def open_store() -> "Store":
    """This process' one store of the data folder, opened at the first call."""
    return _shared(paths.RUNS)


@lru_cache(maxsize=4)
def _shared(root: Path) -> "Store":
    return Store(root)


AnySpec = TypeVar("AnySpec", bound=Spec, covariant=True)


@dataclass(frozen=True)
class LedgerRow(Generic[AnySpec]):
    """One row, as it stood when read.

    sweep: shared by all runs that one click or command started.
    attempt: 1, and one more at each resume.
    created, started, ended: seconds since the epoch, for display; seconds: time trained, by a clock
        that nobody sets, over all attempts.
    measured: the final figures by metric; None stands for a value too large to print.
    environment: device, threads, versions: what the reproducibility card shows.
    """

    id: int
    sweep: str
    user: str
    spec: AnySpec
    digest: str
    state: State
    reason: str
    attempt: int
    slot: int | None
    created: float
    started: float | None
    ended: float | None
    seconds: float | None
    measured: dict[str, float | None]
    environment: dict[str, Any]


Run: TypeAlias = LedgerRow[RunSpec]
Entry: TypeAlias = LedgerRow[Spec]


def trains(entry: Entry) -> TypeGuard[Run]:
    """Whether it is a training."""
    return isinstance(entry.spec, RunSpec)


class Store:
    """All runs of one data folder; may be shared by threads.

    One connection stays open: what SQLite needs beside its file then exists before a disk is full, and
    the ledger can still be read, and a little written, when it is.
    Raises sqlite3.OperationalError: when the file cannot be written (a full disk, a lock held for 10 s).
    """

    def __init__(self, root: Path | None = None) -> None:
        self.root = root or paths.RUNS
        self.root.mkdir(parents=True, exist_ok=True)
        self._lock = threading.Lock()
        self._db = sqlite3.connect(self.root / "store.sqlite", timeout=10, check_same_thread=False)
        self._db.row_factory = sqlite3.Row
        # The lab's processes open a new folder at one moment, and SQLite does not wait for its turn
        # where a file becomes a WAL file: they take turns here.
        with FileLock(self.root / "store.lock", timeout=10, poll_interval=0.01), self._connect() as db:
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = NORMAL")
            db.executescript(_SCHEMA)
            # Never hand out the id of a folder that is still there, though its row was lost.
            highest = max((whole_number(path.name) or 0 for path in self.root.iterdir()), default=0)
            known = db.execute("SELECT seq FROM sqlite_sequence WHERE name = 'runs'").fetchone()
            if known is None:
                db.execute("INSERT INTO sqlite_sequence (name, seq) VALUES ('runs', ?)", (highest,))
            else:
                db.execute(
                    "UPDATE sqlite_sequence SET seq = ? WHERE name = 'runs' AND seq < ?", (highest, highest)
                )

    def directory(self, run_id: int) -> Path:
        """Where a run's files lie; it may not exist yet."""
        return self.root / str(run_id)

    def submit(self, specs: Iterable[Spec], user: str = "local", sweep: str | None = None) -> str:
        """Queue runs as one sweep. Returns the sweep's token."""
        sweep = sweep or secrets.token_hex(4)
        now = time.time()
        rows = [(sweep, user, spec.to_json(), spec.digest, "queued", now) for spec in specs]
        with self._connect() as db:
            db.executemany(
                "INSERT INTO runs (sweep, user, spec, digest, state, created) VALUES (?, ?, ?, ?, ?, ?)", rows
            )
        return sweep

    def get(self, run_id: int) -> Entry | None:
        """One run, or None when there is no such id."""
        return next(iter(self._select("id = ?", (run_id,))), None)

    def runs(
        self,
        *,
        sweep: str | None = None,
        states: Sequence[State] | None = None,
        digests: Sequence[str] | None = None,
    ) -> list[Run]:
        """Trainings that match every argument given, oldest first."""
        return list(filter(trains, self.entries(sweep=sweep, states=states, digests=digests)))

    def entries(
        self,
        *,
        sweep: str | None = None,
        states: Sequence[State] | None = None,
        digests: Sequence[str] | None = None,
    ) -> list[Entry]:
        """Runs of every kind that match every argument given, oldest first."""
        where, values = ["1"], list[Any]()
        if sweep is not None:
            where.append("sweep = ?")
            values.append(sweep)
        for column, allowed in (("state", states), ("digest", digests)):
            if allowed is not None:
                where.append(f"{column} IN ({', '.join('?' * len(allowed))})")
                values.extend(allowed)
        return self._select(" AND ".join(where), values)

    def advance(self, run_id: int, old: State, new: State, **changes: Any) -> bool:
        """Compare-and-set of the state, with other columns in the same write.

        Returns False, and writes nothing, when the run is not in ``old``.
        """
        for column in ("measured", "environment"):
            if column in changes:
                changes[column] = json.dumps(changes[column], allow_nan=False)
        columns = ("state", *changes)
        assignments = ", ".join(f"{column} = {_NEVER_BEFORE.get(column, '?')}" for column in columns)
        with self._connect() as db:
            done = db.execute(
                f"UPDATE runs SET {assignments} WHERE id = ? AND state = ?",
                (new, *changes.values(), run_id, old),
            )
            return done.rowcount == 1

    def cancel(self, run_id: int) -> None:
        """Stop a run: at once when it is queued, else by its supervisor. Ended runs are left alone."""
        if self.advance(run_id, "queued", "cancelled", reason="by you, before it started", ended=time.time()):
            return
        run = self.get(run_id)
        if run is not None and run.state in ACTIVE:
            files.request_stop(self.directory(run_id), run.attempt, "cancel")

    def resume(self, run_id: int) -> bool:
        """Queue an ended run again; it goes on from its last checkpoint. False when it cannot be."""
        run = self.get(run_id)
        return (
            run is not None
            and run.state in RESUMABLE
            and self.advance(run_id, run.state, "queued", attempt=run.attempt + 1, reason="", ended=None)
        )

    def delete(self, run_id: int) -> bool:
        """Remove an ended run and its files. False when it is not ended."""
        with self._connect() as db:
            marks = ", ".join("?" * len(ENDED))
            gone = db.execute(f"DELETE FROM runs WHERE id = ? AND state IN ({marks})", (run_id, *ENDED))
            if gone.rowcount != 1:
                return False
        with suppress(FileNotFoundError):
            shutil.rmtree(self.directory(run_id))
        return True

    def last_started(self) -> dict[str, float]:
        """When each user's newest run was started; users without one are not in it."""
        with self._connect() as db:
            rows = db.execute("SELECT user, MAX(started) FROM runs WHERE started IS NOT NULL GROUP BY user")
            return dict(rows.fetchall())

    def queue_position(self, run_id: int) -> int:
        """How many queued runs are older than this one. (Fair turns may start it sooner.)"""
        with self._connect() as db:
            row = db.execute(
                "SELECT COUNT(*) FROM runs WHERE state = 'queued' AND id < ?", (run_id,)
            ).fetchone()
            return int(row[0])

    def _select(self, where: str, values: Sequence[Any]) -> list[Entry]:
        with self._connect() as db:
            rows = db.execute(f"SELECT * FROM runs WHERE {where} ORDER BY id", tuple(values)).fetchall()
        return [run for row in rows if (run := _run(row)) is not None]

    @contextmanager
    def _connect(self) -> Iterator[sqlite3.Connection]:
        """One transaction at a time: committed at the end, rolled back on an error."""
        with self._lock, self._db:
            yield self._db

    def close(self) -> None:
        """Let go of the file; the store is of no use afterwards."""
        self._db.close()


_spec = lru_cache(maxsize=4096)(spec_of)  # the dispatcher reads what waits ten times a second


def _run(row: sqlite3.Row) -> Entry | None:
    """The run of a row; None when another version of the lab wrote what this one does not know."""
    fields = dict(row)
    try:
        for column in ("measured", "environment"):
            fields[column] = json.loads(fields[column])
        fields["spec"] = _spec(fields["spec"])
        return LedgerRow(**fields)
    except (ValueError, TypeError, KeyError):
        return None
