"""The failed rescue: a collapsed run, its fork with the division put back, and a run divided all along."""

import re
from dataclasses import dataclass, replace

import streamlit as st

from engine.chapter.experiments import PERPLEXITY, RESCUE
from engine.runs import launch
from engine.runs.store import Run
from engine.system.errors import InvalidInput
from lab import bench
from lab.bench import Sweep, Table
from lab.bench.tables import number
from lab.charts import panels
from lab.charts.lines import Across, Curve, Line
from lab.charts.panels import Panel, Part
from lab.sections.scaling.parts import ENTROPY, FROZEN, LOSS, PAIRS, SPREAD, Pair, figure, share
from lab.settings import Setting, Settings
from lab.shell import frame
from lab.shell.styles import Style
from lab.words import NBSP, plain, quantity


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


def draw(sweep: Sweep, collapsed: Setting[str | None], settings: Settings) -> None:
    """A collapsed head, the division put back, trained on."""
    frame.heading(
        "Can a collapsed head be rescued?",
        "Take the final weights of an unscaled head, put the division back, and train on, for as many steps "
        "again and with a fresh optimiser. Only the scale differs.",
    )
    runs = collapsed_runs(sweep)
    if not runs:
        st.markdown(":gray[No undivided head of these settings is trained yet. Train the heads above first.]")
        return
    if (wanted := collapsed.value) not in runs:
        collapsed.value = next(iter(runs))
        if wanted:
            st.markdown(f":orange[No finished undivided head of these settings is {plain(wanted)}.]")
    run = runs[collapsed.value or ""]
    fork = Sweep.of(RESCUE, [launch.rescue(run.id, run.spec)], sweep.request)
    story = Rescue(run, fork, divided_all_along(sweep, run))

    def drawn(now: Sweep) -> None:
        progress = (1 + now.progress) / 2 if now.unended else 0.0
        panels.draw(parts(story, now), 2 * story.steps, "rescue", progress, across(story))
        bench.beside("results-rescue", [results(story, now)], notice(story, now))

    def widgets() -> None:
        titled = {name: f"d_k {_width(run).short}, seed {run.spec.seed}" for name, run in runs.items()}
        key = collapsed.key
        st.selectbox("Collapsed head", list(runs), format_func=titled.__getitem__, key=key, width=220)

    bench.train_also(fork, settings, "rescue", "Put the division back", drawn, widgets=widgets, width=190)


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
    wanted = [digest for digest, spec in sweep.wanted.items() if spec.variant in undivided]
    found = [run for digest in wanted if (run := sweep.measured.get(digest)) and run.state == "done"]
    found.sort(key=lambda run: (-run.spec.config.effective_d_head, run.spec.seed))
    return {f"{_width(run).id}-{run.spec.seed}": run for run in found}


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
    steps, shown = f"{rescue.steps:,}{NBSP}steps", (LOSS, SPREAD, FROZEN, ENTROPY)
    rows, only = [], next(iter(now.runs), None)
    reached = next((curve.points[-1][0] for curve in now.curves(rescue.name)), 0)
    for label, run, end in (
        (f"undivided, {steps}", rescue.collapsed, -1),
        ("division put back, no step yet", only, 0),
        (f"division put back, {f'{reached:,}{NBSP}steps on' if reached else 'trained on'}", only, -1),
        (f"divided all along, {steps}", rescue.scratch, -1),
    ):
        curves = ((panel, _curves(now, run, panel)) for panel in shown)
        cells = (
            number(found[0].points[end][1] if found else None, panel.shown, bold=True)
            for panel, found in curves
        )
        rows.append((label, *cells))
    return Table(("yours", "perplexity", "std of scores", "over 0.99", "entropy, nats"), rows)


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
            f"which had half as many steps."
        )
    said.append("The chapter says that a collapsed head does not recover.")
    return "\n\n".join(said)
