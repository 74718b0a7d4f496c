"""A measurement of the wall as its page sees it: the run of a plan, and the rows that it recorded."""

from dataclasses import dataclass
from typing import Literal

from engine.memory_wall.plan import Plan, Row, last_rows
from engine.runs.spec import WallSpec
from engine.runs.store import ACTIVE, open_store
from engine.runs.store import State as RunState
from engine.system import files
from lab.settings import Settings
from lab.shell.watch import IDLE_SECONDS, Watched

State = Literal["none"] | RunState
LIVE: tuple[State, ...] = ("queued", *ACTIVE)


@dataclass(frozen=True)
class Measurement:
    """What is known of one plan.

    rows: the last word on each n of each implementation, in the order of measuring.
    reason: how it ended. seconds: how long it took. user: who asked for it; run: its number. before: how many
    runs of any kind are older and wait too.
    newer: how a newer measurement of the plan ended, where that is not whole and this one is shown instead.
    """

    state: State = "none"
    rows: tuple[Row, ...] = ()
    reason: str = ""
    seconds: float = 0.0
    user: str = ""
    run: int | None = None
    before: int = 0
    newer: RunState | None = None

    @property
    def live(self) -> bool:
        return self.state in LIVE

    @property
    def ended(self) -> tuple[Row, ...]:
        """The rows that are over, but for one that was cancelled."""
        return tuple(row for row in self.rows if row.ended and row.state != "cancelled")


def look(plan: Plan | None) -> Measurement:
    """The measurement of a plan that is under way; else the newest whole one; else the newest."""
    if plan is None:
        return Measurement()
    store = open_store()
    known = store.entries(digests=[WallSpec(plan).digest])
    if not known:
        return Measurement()
    newest = known[-1]
    run = (
        newest
        if newest.state in LIVE
        else next((run for run in reversed(known) if run.state == "done"), newest)
    )
    newer = None if run is newest else newest.state
    rows = last_rows(files.records(store.directory(run.id)))
    before = store.queue_position(run.id) if run.state == "queued" else 0
    return Measurement(run.state, rows, run.reason, run.seconds or 0.0, run.user, run.id, before, newer)


def followed(plan: Plan | None, page: Settings) -> Measurement:
    """The same, and the page is drawn again when it has changed."""
    found = look(plan)
    page.watched.append(Watched(lambda: look(plan), found, 1.0 if found.live else IDLE_SECONDS))
    return found


def start(plan: Plan, user: str) -> None:
    """Queue it, or let it go on where it was interrupted; nothing, when it is under way.

    Raises sqlite3.Error, OSError: when the list of runs cannot be written.
    """
    found, store = look(plan), open_store()
    if found.live:
        return
    if not (found.state == "interrupted" and found.user == user and found.run and store.resume(found.run)):
        store.submit([WallSpec(plan)], user)


def cancel(plan: Plan, user: str) -> None:
    """End what is under way, if it is this reader's.

    Raises sqlite3.Error, OSError: when the wish cannot be written.
    """
    found = look(plan)
    if found.live and found.user == user and found.run:
        open_store().cancel(found.run)
