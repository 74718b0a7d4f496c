"""A measurement of the memory wall in the list of runs: what happened to it, its card, its command."""

import shlex
from collections.abc import Sequence
from dataclasses import asdict

from engine.benchmarks.memory import described
from engine.memory_wall.plan import Plan, Row, doubling, last_rows
from engine.memory_wall.setting import FIRST_TOKENS, GB, IMPLEMENTATIONS, Setting
from engine.runs.spec import WallSpec
from engine.runs.store import Entry, Store
from engine.system import files
from lab.runs import card
from lab.runs.card import Command, Sheet
from lab.runs.story import sentence
from lab.runs.view import waiting_text
from lab.words import duration

OPTIONS = {"d_model": "width", "n_head": "heads", "batch": "batch", "dtype": "dtype", "block": "block"}


def sheet(store: Store, run: Entry, spec: WallSpec, before: int) -> Sheet:
    """What the panel shows of it. before: how many queued runs are older."""
    records = files.records(store.directory(run.id))
    rows = last_rows(records)
    measured = [row for row in rows if row.measured]
    seconds = run.seconds if run.seconds is not None or not records else records[-1].get("seconds")
    pace = "" if seconds is None else f" in {duration(seconds)}"
    plan = asdict(spec.plan)
    return Sheet(
        story=_story(run, spec, rows, before),
        lines=_lines(run, spec.plan, f"{len(measured)} of at most {spec.steps}{pace}"),
        fields=[*plan.pop("setting").items(), *plan.items()],
        command=command(spec.plan),
        goes_on=bool(measured),
        as_json=lambda: card.card_json(
            run,
            command(spec.plan),
            seconds,
            what={"title": spec.title},
            how={"plan": asdict(spec.plan), "rows": [asdict(row) for row in rows]},
        ),
    )


def _story(run: Entry, spec: WallSpec, rows: Sequence[Row], before: int) -> str:
    measured = [row for row in rows if row.measured]
    goes_on = "Resume measures the rows that are missing." if measured else "Run it again from the start."
    match run.state:
        case "queued":
            return f"Queued, {waiting_text(before)}. While it measures, no other run starts."
        case "starting" | "running":
            now = next((row for row in reversed(rows) if row.state == "running"), None)
            if now is None:
                return "Starting: it loads torch. No other run starts until it has ended."
            done = f"{len(measured)} of at most {spec.steps} rows are measured"
            return (
                f"Measuring {now.implementation} at {now.n:,} tokens; {done}. No other run starts meanwhile."
            )
        case "done":
            took = "" if run.seconds is None else f" in {duration(run.seconds)}"
            count = f"{len(measured)} row{'' if len(measured) == 1 else 's'}"
            return " ".join([f"Done{took}: {count}.", *_walls(rows)])
        case "failed":
            return f"Failed: {sentence(run.reason, first=False)} Nothing else was stopped. {goes_on}"
    return f"{run.state.capitalize()}: {sentence(run.reason, first=False)} {goes_on}"


def _walls(rows: Sequence[Row]) -> list[str]:
    """A sentence for each implementation that ran out of memory, and for each row that failed."""
    said = {"out of memory": "ran out of memory", "failed": "failed"}
    return [
        f"{row.implementation} {said[row.state]} at {row.n:,} tokens." for row in rows if row.state in said
    ]


def _lines(run: Entry, plan: Plan, rows: str) -> list[tuple[str, str]]:
    tokens = sorted(plan.tokens)
    given = "what the machine can give" if plan.budget_bytes is None else f"{plan.budget_bytes / GB:g} GB"
    figures = [("Measured", card.measured_text(run))] if run.measured else []
    return [
        *figures,
        ("Layer", described(plan.setting)),
        ("Tokens", f"{tokens[0]:,} to {tokens[-1]:,}" if tokens else "none"),
        ("Implementations", ", ".join(plan.implementations)),
        ("Memory", given),
        ("Rows", rows),
        *card.machine_lines(run),
    ]


def command(plan: Plan) -> Command:
    """How to measure the same from a shell."""
    to, usual = max(plan.tokens, default=0), Setting()
    if not plan.timed or to < FIRST_TOKENS or plan.tokens != doubling(to) or plan.address_space_bytes:
        return Command(None, "No command repeats it: its lengths were chosen by the page. Run again does.")
    words = ["python", "-m", "engine", "bench", "memory", "--to", str(to)]
    if plan.implementations != IMPLEMENTATIONS:
        words += ["--implementation", ",".join(plan.implementations)]
    if plan.budget_bytes is not None:
        words += ["--budget-gb", f"{plan.budget_bytes / GB:g}"]
    for name, option in OPTIONS.items():
        if (value := getattr(plan.setting, name)) != getattr(usual, name):
            words += [f"--{option}", str(value)]
    words += ["--backward"] * plan.setting.backward + ["--no-causal"] * (not plan.setting.causal)
    words += ["--device", plan.device]
    if plan.threads is not None:
        words += ["--threads", str(plan.threads)]
    return Command(shlex.join(words))
