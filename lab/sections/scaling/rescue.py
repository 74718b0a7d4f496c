"""The failed rescue: a collapsed run, its fork with the division put back, and a run divided all along."""

import re
from dataclasses import dataclass, replace

from engine.chapter.experiments import PERPLEXITY
from engine.runs.store import Run
from engine.system.errors import InvalidInput
from lab.bench import Sweep, Table
from lab.bench.tables import number
from lab.charts.lines import Across, Curve, Line
from lab.charts.panels import Panel, Part
from lab.sections.scaling.parts import ENTROPY, FROZEN, LOSS, PAIRS, SPREAD, Pair, figure, share
from lab.shell.styles import Style
from lab.words import NBSP, quantity


@dataclass(frozen=True)
class Rescue:
    """One story.

    collapsed: the finished undivided run. fork: the one run that starts from it. scratch: divided from the
    start, of the same seed and budget; None where nobody has trained it.
    """

    collapsed: Run
    fork: Sweep
    scratch: Run | None

    @property
    def steps(self) -> int:
        """How long each of the three trains."""
        return self.collapsed.spec.budget.steps

    @property
    def name(self) -> str:
        """The fork's variant."""
        (spec,) = self.fork.wanted.values()
        return spec.variant


def named(text: str) -> str:
    """A collapsed run as it stands in the URL: "1024-0", "128-block-0": what it trains, and its seed.

    Raises InvalidInput: when the text is no such name.
    """
    if not re.fullmatch(r"[0-9]{1,5}(-block)?-[0-9]{1,19}", text):
        raise InvalidInput(f"rescue is {text!r}; allowed: a width and a seed, as in 1024-0.")
    return text


def collapsed_runs(sweep: Sweep) -> dict[str, Run]:
    """Finished undivided runs of a sweep by name, the widest first."""
    undivided = {row.names[1] for row in PAIRS}
    found = [
        run
        for digest, spec in sweep.wanted.items()
        if spec.variant in undivided
        and (run := sweep.measured.get(digest)) is not None
        and run.state == "done"
    ]
    found.sort(key=lambda run: (-run.spec.config.effective_d_head, run.spec.seed))
    return {f"{_width(run).id}-{run.spec.seed}": run for run in found}


def titled(run: Run) -> str:
    """ "d_k 1024, seed 0"."""
    return f"d_k {_width(run).short}, seed {run.spec.seed}"


def _width(run: Run) -> Pair:
    """The row of the sweep that an undivided run belongs to."""
    return next(row for row in PAIRS if row.names[1] == run.spec.variant)


def divided_all_along(sweep: Sweep, collapsed: Run) -> Run | None:
    """The finished run that differs from a collapsed one in the division only."""
    for run in sweep.measured.values():
        same = (run.spec.seed, run.spec.budget) == (collapsed.spec.seed, collapsed.spec.budget)
        if same and run.state == "done" and run.spec.variant == _width(collapsed).divided.id:
            return run
    return None


def across(rescue: Rescue) -> Across:
    """The axis: two trainings of one length, the division put back between them."""
    steps = rescue.steps
    return Across(title=f"training step; the division is put back at {steps:,}", ticks=(0, steps, 2 * steps))


def parts(rescue: Rescue, now: Sweep) -> list[Part]:
    """Spread, frozen rows and perplexity: the collapse, what follows on it, and the head never collapsed."""
    found = []
    for panel in (SPREAD, FROZEN, LOSS):
        fork = tuple(
            replace(curve, points=tuple((step + rescue.steps, value) for step, value in curve.points))
            for curve in now.curves(rescue.name, panel.metric)
        )
        lines = [
            Line("undivided", Style("red"), _curves(now, rescue.collapsed, panel)),
            Line("divided all along", Style("green"), _curves(now, rescue.scratch, panel)),
            Line("division put back", Style("green", "dashed"), fork),
        ]
        found.append(Part(panel, lines))
    return found


def _curves(now: Sweep, run: Run | None, panel: Panel) -> tuple[Curve, ...]:
    if run is None:
        return ()
    curve = now.curve(run, panel.metric)
    return (curve,) if curve.points else ()


def results(rescue: Rescue, now: Sweep) -> Table:
    """Before, at once after, at the end, and without the detour."""
    steps, panels = f"{rescue.steps:,}{NBSP}steps", (LOSS, SPREAD, FROZEN, ENTROPY)
    rows = []
    reached = next((curve.points[-1][0] for curve in now.curves(rescue.name)), 0)
    for label, run, end in (
        (f"undivided, {steps}", rescue.collapsed, -1),
        ("division put back, no step yet", _only(now), 0),
        (f"division put back, {f'{reached:,}{NBSP}steps on' if reached else 'trained on'}", _only(now), -1),
        (f"divided all along, {steps}", rescue.scratch, -1),
    ):
        curves = ((panel, _curves(now, run, panel)) for panel in panels)
        cells = (
            number(found[0].points[end][1] if found else None, panel.shown, bold=True)
            for panel, found in curves
        )
        rows.append((label, *cells))
    return Table(("yours", "perplexity", "std of scores", "over 0.99", "entropy, nats"), rows)


def _only(now: Sweep) -> Run | None:
    return next(iter(now.runs), None)


def notice(rescue: Rescue, now: Sweep) -> str:
    """Whether it recovered, in figures."""
    run = next(iter(now.measured.values()), None)
    if run is None or run.state != "done":
        return "The chapter says that an undivided head does not recover. What yours does is drawn here."
    after, before = run.measured, rescue.collapsed.measured
    without = rescue.scratch.measured if rescue.scratch else {}
    frozen = [share(figures.get(FROZEN.metric)) for figures in (before, after, without)]
    spread = [figure(figures.get(SPREAD.metric)) for figures in (before, after, without)]
    said = [
        f"With the division put back, the share of rows over 0.99 goes from {frozen[0]} to **{frozen[1]}**, "
        f"and the spread of the scores from {spread[0]} to {spread[1]}."
    ]
    if without:
        said[0] += f" Divided all along they are {frozen[2]} and {spread[2]}."
    points = [figures.get(PERPLEXITY) for figures in (before, after, without)]
    if points[0] is not None and points[1] is not None:
        said.append(f"Perplexity goes from {quantity(points[0])} to {quantity(points[1])}.")
    if points[1] is not None and points[2] is not None:
        side = "behind" if points[1] > points[2] else "ahead of"
        said[-1] += (
            f" That is {quantity(abs(points[1] - points[2]))} points {side} the head divided all along, "
            f"which had half as many steps: the rest of the model goes on learning, whatever the head does."
        )
    said.append("The chapter says that a collapsed head does not recover.")
    return "\n\n".join(said)
