"""Sentences of the page of the n x n wall: where a measurement stands, and what its rows say."""

from collections.abc import Sequence
from dataclasses import replace

from engine.memory_wall.plan import Plan, Row, shared_words
from engine.memory_wall.setting import FIRST_TOKENS, WORKSPACE_BYTES, closed_form
from engine.runs import dispatcher
from lab.sections.wall.parts import FIRST_GUESSES, TIME_GUESSES, Choice, needed_bytes, whole_mb
from lab.sections.wall.rows import Measurement
from lab.shell.frame import dot
from lab.words import NBSP, about, count, duration, plain, quantity


def standing(choice: Choice, found: Measurement) -> str:
    """Where the measurement stands, in Markdown."""
    if choice.plan is None:
        return f":red[{plain(choice.refusal)}]"
    if found.state == "none":
        return f":gray[{_takes(choice.plan)}]"
    if found.live:
        now = found.current
        line = under_way(found, f"{now.implementation}, {now.n:,} tokens" if now else "loading torch")
        return line if dispatcher.running() else f"{line}  \n:orange[Nothing will start: run `python -m lab`]"
    rows = f"{len(found.ended)} row{'' if len(found.ended) == 1 else 's'}"
    if found.state == "failed":
        return f":red[Failed: {plain(found.reason)}]"
    if found.state == "cancelled":
        return f":gray[Cancelled after {rows}]"
    if found.state == "interrupted":
        return f":orange[Interrupted after {rows}. Resume measures the others]"
    failed = sum(row.state == "failed" for row in found.ended)
    done = f":green[{rows} in {duration(found.seconds)}]"
    if failed:
        done = f":red[{count(failed).capitalize()} of {rows} failed]"
    if found.newer:
        done += f" :gray[The one after it was {found.newer}]"
    return done


def under_way(found: Measurement, doing: str) -> str:
    """That it waits its turn, or what it is doing."""
    if found.state == "queued":
        before = f"{count(found.before)} run{'' if found.before == 1 else 's'} before it"
        return f":gray[Queued, {before if found.before else 'next in turn'}]"
    return f":primary[Running: {doing}]"


def _takes(plan: Plan) -> str:
    """A rough word beforehand: most of it is the time that torch takes to load, row by row."""
    last, rows = max(plan.tokens), len(plan.tokens) * len(plan.implementations)
    seconds = 1.5 * rows + 4 * (last / 4096) ** 2 * len(plan.implementations)
    return f"Takes {about(seconds)} on two cores; more with a wider layer"


def row_notes(found: Measurement, plan: Plan) -> list[str]:
    """A sentence for each row that is no figure: what it would have needed, or what went wrong."""
    said = []
    for row in found.rows:
        lead = f"{dot(row.implementation)} {row.implementation}, {row.n:,} tokens: "
        if row.state == "out of memory":
            why = plain(row.reason or "")
            if row.predicted_bytes:
                needed = needed_bytes(row.predicted_bytes, plan)
                if plan.budget_bytes and needed > plan.budget_bytes:
                    why = f"{whole_mb(plan.budget_bytes)} allowed."
                why = f"{whole_mb(needed)}{NBSP}MB needed, {why}"
            said.append(f"{lead}:red[out of memory:] {why}")
        elif row.state == "failed":
            said.append(f"{lead}:red[failed:] {plain(row.reason or 'without a word')}")
        elif row.state == "cancelled":
            said.append(f":gray[{lead}cancelled.]")
    if beside := max((row.runs_beside for row in found.rows), default=0):
        said.append(f":orange[{shared_words(beside)}]")
    return said


def notice(choice: Choice, found: Measurement, first: str | None, time: str | None) -> str:
    """The guesses, answered by the reader's rows; then what the rows say."""
    done = [row for row in found.ended if row.state == "done"]
    explicit = _of(done, "explicit")
    if choice.plan is None or not found.ended:
        return "Nothing is measured yet. Make your two guesses, then measure."
    if found.live:
        return "Your guesses are answered here when the last row has ended."
    said = [_wall_answer(choice.plan, found, first), _time_answer(explicit, done, time)]
    if len(explicit) > 1:
        said.append(_memory_words(done))
    return "\n\n".join(line for line in said if line)


def _of(rows: Sequence[Row], name: str) -> list[Row]:
    return sorted((row for row in rows if row.implementation == name), key=lambda row: row.n)


def _wall_answer(plan: Plan, found: Measurement, first: str | None) -> str:
    if "explicit" not in plan.implementations:
        return ""
    guess = f"You guessed *{FIRST_GUESSES[first]}*. " if first else ""
    wall = next(
        (r for r in found.ended if r.implementation == "explicit" and r.state == "out of memory"), None
    )
    if wall is None:
        last = max(plan.tokens)
        if plan.budget_bytes is None:
            return f"{guess}Explicit had room for all rows up to {last:,}."
        n = first_over(plan)
        return f"{guess}All rows up to {last:,} fit. By the formula **{n:,}** is the first that does not."
    others = [
        name
        for name in ("fused", "chunked")
        if any(row.implementation == name and row.n == wall.n and row.state == "done" for row in found.ended)
    ]
    passed = f" {' and '.join(others).capitalize()} pass it." if len(others) > 1 else ""
    if len(others) == 1:
        passed = f" {others[0].capitalize()} passes it."
    return f"{guess}Explicit ends at **{wall.n:,}** tokens.{passed}"


def first_over(plan: Plan) -> int:
    """The first power of two that explicit does not fit into the budget, by the closed form."""
    setting, n = replace(plan.setting, backward=False), FIRST_TOKENS
    while closed_form(n, setting, WORKSPACE_BYTES) <= (plan.budget_bytes or 0):
        n *= 2
    return n


def _time_answer(explicit: Sequence[Row], done: Sequence[Row], time: str | None) -> str:
    timed = [row for row in explicit if row.step_ms]
    if len(timed) < 2:
        return ""
    a, b = timed[-2:]
    guess = f"You guessed *{TIME_GUESSES[time]}*. " if time else ""
    grown = (b.step_ms or 0) / (a.step_ms or 1)
    said = f"{guess}From {a.n:,} to {b.n:,} tokens explicit takes **{quantity(grown, 2)} times** as long"
    control = {row.n: row.step_ms for row in done if row.implementation == "projections"}
    if control.get(a.n) and control.get(b.n):
        linear = (control[b.n] or 0) / (control[a.n] or 1)
        said += f", its four projections alone {quantity(linear, 2)}"
    return f"{said}. Twice the tokens are four times the pairs."


def _memory_words(done: Sequence[Row]) -> str:
    grown = []
    for name in ("explicit", "fused", "chunked"):
        rows = [row for row in _of(done, name) if row.peak_bytes]
        if len(rows) > 1:
            grown.append((name, (rows[-1].peak_bytes or 0) / (rows[-2].peak_bytes or 1)))
    listed = ", ".join(f"{name} **{quantity(value, 2)}**" for name, value in grown)
    if not listed:
        return ""
    tail = "" if len(grown) < 2 else " Only explicit stores the matrix; the others compute the same numbers."
    return f"Memory at the last doubling: {listed} times.{tail}"
