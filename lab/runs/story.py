"""What happened to a run and what to do next, in two sentences."""

import json
from functools import lru_cache
from pathlib import Path

from engine.runs.store import Run, Store
from engine.system import files
from engine.system.errors import InvalidInput
from lab.runs import card
from lab.runs.card import Sheet, figure_name
from lab.runs.view import held_out, metric, step_of, time_left, waiting_text
from lab.words import duration, quantity

LOG_LINES, LOG_BYTES = 20, 8192


def sheet(store: Store, run: Run, before: int) -> Sheet:
    """What the panel shows of a training. before: how many queued runs are older."""
    record = files.last_record(store.directory(run.id))
    step = step_of(run, record)
    seconds = record.get("seconds") if run.seconds is None else run.seconds
    fields, changed = run.spec.config.to_dict(), card.changed_fields(run)
    return Sheet(
        story=story(store, run, before),
        lines=card.lines(run, step, seconds),
        fields=[*changed.items(), *(one for one in fields.items() if one[0] not in changed)],
        command=card.command(run),
        goes_on=checkpoint_step(store.directory(run.id)) is not None,
        as_json=lambda: card.as_json(run, step, seconds),
    )


def story(store: Store, run: Run, before: int) -> str:
    """Plain text. before: how many queued runs are older."""
    directory = store.directory(run.id)
    record = files.last_record(directory)
    step = int(record.get("step", 0))
    match run.state:
        case "queued":
            goes_on = f" It goes on from step {saved:,}." if (saved := checkpoint_step(directory)) else ""
            return f"Queued, {waiting_text(before)}. It starts when a place is free.{goes_on}"
        case "starting" | "running":
            return _running(run, directory, step, time_left(run, record), record)
        case "done":
            took = f" in {duration(run.seconds)}" if run.seconds is not None else ""
            value = held_out(run, directory)
            figure = f"{figure_name(metric(run))} {quantity(value, 2)}"
            return f"Done{took}: {figure} after {run.spec.budget.steps:,} steps."
        case "diverged":
            rate = run.spec.budget.learning_rate
            return (
                f"{sentence(run.reason)} That is a result, not a fault: at learning rate {rate:g} this "
                f"model does not stay on course. A smaller learning rate is the first thing to try."
            )
        case "failed":
            what = sentence(run.reason, first=False)
            return f"Failed: {what} Nothing else was stopped. {_remedy(run, directory)}"
        case "cancelled":
            return f"Cancelled {sentence(run.reason, first=False)} {_goes_on(directory)}"
    return f"Interrupted: {sentence(run.reason, first=False)} {_goes_on(directory)}"


def _running(run: Run, directory: Path, step: int, left: str, record: dict[str, float]) -> str:
    if files.stop_requested(directory, run.attempt):
        return "It was asked to stop: it saves a checkpoint and ends, within two seconds."
    if not record:
        return "Starting: it loads the text and measures the untrained model."
    speed = f"{record['tokens_per_s']:,.0f} tokens a second" if record.get("tokens_per_s") else ""
    parts = f"Running: step {step:,} of {run.spec.budget.steps:,}", left, speed
    return ", ".join(filter(None, parts)) + "."


def _remedy(run: Run, directory: Path) -> str:
    if run.reason.startswith("out of memory"):
        return "Close what else uses memory, or choose a smaller model or batch, then run it again."
    if run.reason.startswith("disk full"):
        return f"Free some space. {_goes_on(directory)}"
    return f"The last lines of its log may say more. {_goes_on(directory)}"


def _goes_on(directory: Path) -> str:
    if (step := checkpoint_step(directory)) is None:
        return "It saved no checkpoint: run it again from the start."
    return f"Resume goes on from step {step:,}."


def sentence(text: str, first: bool = True) -> str:
    """A reason as a sentence. first: whether one begins with it."""
    text = text.strip() or "no reason was recorded"
    head = text[0].upper() if first else text[0]
    return head + text[1:] + ("" if text.endswith((".", "?", "…")) else ".")


def checkpoint_step(directory: Path) -> int | None:
    """The step a run would go on from, read from the checkpoint's header without torch."""
    path = directory / "checkpoint.safetensors"
    try:
        return _header_step(path, path.stat().st_mtime_ns)
    except (OSError, ValueError, KeyError, TypeError):
        return None


@lru_cache(maxsize=256)
def _header_step(path: Path, stamp: int) -> int:  # noqa: ARG001 - a changed file is another entry
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        if size > 10_000_000:
            raise InvalidInput("not a header")
        return int(json.loads(json.loads(file.read(size))["__metadata__"]["lab"])["step"])


def log_tail(directory: Path) -> str:
    """The last lines that the trainer printed; empty when it printed nothing."""
    try:
        with (directory / "log.txt").open("rb") as file:
            file.seek(max(0, file.seek(0, 2) - LOG_BYTES))
            text = file.read().decode(errors="replace")
    except OSError:
        return ""
    return "\n".join(text.rstrip().splitlines()[-LOG_LINES:])
