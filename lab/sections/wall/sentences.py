"""Sentences of the page of the n x n wall: where a measurement stands, and what its rows say."""

from dataclasses import replace

from engine.memory_wall.plan import Plan, Row, shared_words
from engine.memory_wall.setting import FIRST_TOKENS, IMPLEMENTATIONS, WORKSPACE_BYTES, closed_form
from engine.runs import dispatcher
from lab.sections.wall.parts import FIRST_GUESSES, TIME_GUESSES, LayerPlan, needed_bytes, whole_mb
from lab.sections.wall.rows import Measurement
from lab.shell.frame import dot
from lab.words import NBSP, about, count, duration, plain, quantity

ByWay = dict[str, list[Row]]  # what is done, by implementation, smallest n first


def standing(choice: LayerPlan, found: Measurement) -> str:
    """Where the measurement stands, in Markdown."""
    if choice.plan is None:
        return f":red[{plain(choice.refusal)}]"
    rows = f"{len(found.ended)} row{'' if len(found.ended) == 1 else 's'}"
    match found.state:
        case "none":
            return f":gray[{_takes(choice.plan)}]"
        case "failed":
            return f":red[Failed: {plain(found.reason)}]"
        case "cancelled":
            return f":gray[Cancelled after {rows}]"
        case "interrupted":
            return f":orange[Interrupted after {rows}. Resume measures the others]"
        case "done":
            failed = sum(row.state == "failed" for row in found.ended)
            newer = f" :gray[The one after it was {found.newer}]" if found.newer else ""
            if failed:
                return f":red[{count(failed).capitalize()} of {rows} failed]{newer}"
            return f":green[{rows} in {duration(found.seconds)}]{newer}"
    now = next((row for row in reversed(found.rows) if row.state == "running"), None)
    line = under_way(found, f"{now.implementation}, {now.n:,} tokens" if now else "loading torch")
    return line if dispatcher.running() else f"{line}  \n:orange[Nothing will start: run `python -m lab`]"


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


def notice(choice: LayerPlan, found: Measurement, first: str | None, time: str | None) -> str:
    """The guesses, answered by the reader's rows; then what the rows say."""
    done = [row for row in found.ended if row.state == "done"]
    if choice.plan is None or not found.ended:
        return "Nothing is measured yet. Make your two guesses, then measure."
    if found.live:
        return "Your guesses are answered here when the last row has ended."
    by_way = {
        name: sorted((row for row in done if row.implementation == name), key=lambda row: row.n)
        for name in IMPLEMENTATIONS
    }
    said = [_wall_answer(choice.plan, found, first), _time_answer(by_way, time), _memory_words(by_way)]
    return "\n\n".join(filter(None, said))


def _wall_answer(plan: Plan, found: Measurement, first: str | None) -> str:
    if "explicit" not in plan.implementations:
        return ""
    guess = f"You guessed *{FIRST_GUESSES[first]}*. " if first else ""
    last, state = max(plan.tokens), {(row.implementation, row.n): row.state for row in found.ended}
    wall = next(
        (n for (name, n), ended in state.items() if (name, ended) == ("explicit", "out of memory")), None
    )
    if wall is None:
        if plan.budget_bytes is None:
            return f"{guess}Explicit had room for all rows up to {last:,}."
        n = first_over(plan)
        return f"{guess}All rows up to {last:,} fit. By the formula **{n:,}** is the first that does not."
    others = [name for name in ("fused", "chunked") if state.get((name, wall)) == "done"]
    passed = (
        f" {' and '.join(others).capitalize()} pass{'' if len(others) > 1 else 'es'} it." if others else ""
    )
    return f"{guess}Explicit ends at **{wall:,}** tokens.{passed}"


def first_over(plan: Plan) -> int:
    """The first power of two that explicit does not fit into the budget, by the closed form."""
    setting, n = replace(plan.setting, backward=False), FIRST_TOKENS
    while closed_form(n, setting, WORKSPACE_BYTES) <= (plan.budget_bytes or 0):
        n *= 2
    return n


def _time_answer(done: ByWay, time: str | None) -> str:
    timed = [row for row in done["explicit"] if row.step_ms]
    if len(timed) < 2:
        return ""
    a, b = timed[-2:]
    guess = f"You guessed *{TIME_GUESSES[time]}*. " if time else ""
    grown = (b.step_ms or 0) / (a.step_ms or 1)
    said = f"{guess}From {a.n:,} to {b.n:,} tokens explicit takes **{quantity(grown, 2)} times** as long"
    control = {row.n: row.step_ms or 0 for row in done["projections"]}
    if control.get(a.n) and control.get(b.n):
        said += f", its four projections alone {quantity(control[b.n] / control[a.n], 2)}"
    return f"{said}. Twice the tokens are four times the pairs."


def _memory_words(done: ByWay) -> str:
    peaks = {
        name: [row.peak_bytes for row in done[name] if row.peak_bytes]
        for name in ("explicit", "fused", "chunked")
    }
    grown = [
        f"{name} **{quantity(sizes[-1] / sizes[-2], 2)}**" for name, sizes in peaks.items() if len(sizes) > 1
    ]
    if not grown or len(done["explicit"]) < 2:
        return ""
    tail = "" if len(grown) < 2 else " Only explicit stores the matrix; the others compute the same numbers."
    return f"Memory at the last doubling: {', '.join(grown)} times.{tail}"
