"""The one line that says how a sweep stands, in the words of the lab's states."""

from dataclasses import dataclass

from engine.runs import estimates
from engine.runs.store import ACTIVE, Run, State
from engine.system.cores import default_slots
from lab.bench.sweep import Sweep
from lab.words import NBSP, about, count, duration, plain

COLORS: dict[State, str] = {
    "queued": "gray",
    "starting": "primary",
    "running": "primary",
    "done": "green",
    "diverged": "red",
    "failed": "red",
    "cancelled": "gray",
    "interrupted": "orange",
}
# Of runs that ended differently, the one that the reader has to do something about is named.
_GRAVEST: tuple[State, ...] = ("failed", "interrupted", "cancelled", "diverged")


@dataclass(frozen=True)
class Status:
    """A sentence and the state that gives it its colour; None before anything was run."""

    text: str
    state: State | None

    @property
    def markdown(self) -> str:
        """The sentence, coloured."""
        return f":{COLORS[self.state] if self.state else 'gray'}[{plain(self.text)}]"


def of(sweep: Sweep) -> Status:
    """How the sweep stands now."""
    if sweep.unended:
        return _under_way(sweep)
    for state in _GRAVEST:
        if runs := [run for run in sweep.runs if run.state == state]:
            return Status(_ended(runs[0], sweep) + _share(len(runs), len(sweep.wanted)), state)
    if sweep.runs and not sweep.missing:
        return Status(f"Done in {duration(elapsed(sweep.runs))}", "done")
    seconds = estimates.sweep_seconds(sweep.missing)
    rest = "not yet timed on this machine" if seconds is None else f"{about(seconds)} on this machine"
    if sweep.measured:
        rest = f"{len(sweep.measured)} of {len(sweep.wanted)} runs are measured; the others: {rest}"
    return Status(rest[:1].upper() + rest[1:], None)


def _under_way(sweep: Sweep) -> Status:
    active = [run for run in sweep.unended if run.state in ACTIVE]
    if not active:
        before = sweep.store.queue_position(sweep.unended[0].id)
        waiting = f"{count(before)} run{'' if before == 1 else 's'} before it" if before else "next in turn"
        return Status(f"Queued, {waiting}", "queued")
    steps = [sweep.step(run) for run in active]
    ended = len(sweep.runs) - len(sweep.unended)
    parts = [f"{ended} of {len(sweep.wanted)} runs done"] if ended else []
    if max(steps) == 0:
        parts.append("starting")
    else:
        parts.append(f"step {min(steps):,} of {active[0].spec.budget.steps:,}")
    if speed := sum(int(sweep.last(run).get("tokens_per_s") or 0) for run in active):
        parts.append(f"{speed:,} tokens/s")
    left = seconds_left(sweep)
    if left is not None:
        parts.append(f"{about(left)} left")
    return Status(f"Running: {', '.join(parts)}", "running")


def seconds_left(sweep: Sweep) -> float | None:
    """What the unended runs still need, from their own pace; None as long as none has one.

    A pace is a run's own clock over its own steps, so a clock that is set back changes nothing.
    """
    paces: dict[int, float] = {}
    steps: dict[int, int] = {}
    for run in sweep.unended:
        record = sweep.last(run)
        steps[run.id] = int(record.get("step", 0))
        if steps[run.id] and record.get("seconds"):
            paces[run.id] = float(record["seconds"]) / steps[run.id]
        elif (expected := estimates.run_seconds(run.spec)) is not None:
            paces[run.id] = expected / run.spec.budget.steps
    if not paces:
        return None
    usual = sum(paces.values()) / len(paces)
    each = [(run.spec.budget.steps - steps[run.id]) * paces.get(run.id, usual) for run in sweep.unended]
    return max(*each, sum(each) / min(len(each), default_slots()), 0.0)


def elapsed(runs: list[Run]) -> float:
    """From the first start to the last end of one sweep; of several, the time trained in all."""
    starts = [run.started for run in runs if run.started is not None]
    ends = [run.ended for run in runs if run.ended is not None]
    wall = max(ends) - min(starts) if starts and ends else 0.0
    if len({run.sweep for run in runs}) == 1 and wall > 0:
        return wall
    return sum(run.seconds or 0.0 for run in runs)


def _ended(run: Run, sweep: Sweep) -> str:
    match run.state:
        case "failed":
            return f"Failed: {run.reason}"
        case "interrupted":
            return f"Interrupted. Resume from step {sweep.step(run):,}"
        case "cancelled":
            at = sweep.step(run)
            return f"Cancelled by you at step {at:,}" if at else "Cancelled by you before it started"
        case _:
            return run.reason[:1].upper() + run.reason[1:]


def _share(some: int, all_: int) -> str:
    return "" if some == all_ == 1 else f"{NBSP}({some} of {all_} runs)"
