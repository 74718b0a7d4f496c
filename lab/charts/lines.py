"""The chart of a figure over training steps: curves that grow inside a frame that never moves.

Its specification depends on the frame alone and the curves are named data beside it, so at a live tick the
browser keeps the drawing and moves the lines.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from lab.charts.vega import COLOR, DASH, GRAY, GUTTER, INK, Spec, chart, gutter, layer, levels, x_axis, y_axis
from lab.shell.styles import Style
from lab.words import quantity

HEIGHT, PLOT_HEIGHT = 316, 255  # px; the second is what the first leaves for the curves
BELOW = HEIGHT - PLOT_HEIGHT
LABEL_GAP = 18.0  # px between two names in the gutter
MAX_POINTS = 500

Point = tuple[float, float]


@dataclass(frozen=True)
class Across:
    """The horizontal axis, where it is not steps from 0 on.

    ticks: by default a few round ones. form: of their labels.
    """

    field: str = "step"
    title: str = "training step"
    first: float = 0
    log: bool = False
    ticks: tuple[float, ...] = ()
    form: str = ",d"


STEPS = Across()


@dataclass(frozen=True)
class Frame:
    """All that is known of a chart before a run exists.

    steps: where the horizontal axis ends. low, high: bounds of the vertical one.
    rules: (value, inferred) of the chapter's figures; note: said after their labels.
    field: what is drawn, as the reader is told it when pointing at a curve.
    log, ticks, form: of the vertical axis; its ticks are 1, 3, 10, 30, ... if none are given.
    shown: a value as text; printed: a figure of the chapter's, which may be inferred.
    height: px for the curves; gutter: share of the width right of them; names: whether it holds any.
    """

    steps: int
    low: float
    high: float
    rules: tuple[tuple[float, bool], ...] = ()
    note: str = ""
    field: str = "perplexity"
    log: bool = True
    ticks: tuple[float, ...] = ()
    form: str = "~r"
    shown: Callable[[float | None], str] = quantity
    printed: Callable[[float, bool], str] = lambda value, inferred: quantity(value, 0 if inferred else 2)
    height: int = PLOT_HEIGHT
    gutter: float = GUTTER
    names: bool = True
    across: Across = STEPS

    def pixel(self, value: float) -> float:
        """Distance from the top of the plot."""
        held = min(max(value, self.low), self.high)
        if not self.log:
            return (self.high - held) / (self.high - self.low) * self.height
        return math.log(self.high / held) / math.log(self.high / self.low) * self.height

    def value(self, pixel: float) -> float:
        """The inverse of ``pixel``."""
        share = pixel / self.height
        if not self.log:
            return self.high - share * (self.high - self.low)
        return float(self.high * (self.low / self.high) ** share)


@dataclass(frozen=True)
class Curve:
    """One run: its evaluations so far, and whether it ended by diverging."""

    points: tuple[Point, ...]
    diverged: bool = False


@dataclass(frozen=True)
class Line:
    """One variant: its name, its look, and a curve a seed."""

    name: str
    style: Style
    curves: tuple[Curve, ...]


def line_chart(frame: Frame, lines: Sequence[Line], progress: float = 0.0) -> Spec:
    """The chart of some variants. progress: the share of the work that is done, 0 when nothing is running."""
    curves: list[dict[str, Any]] = []
    ends: list[dict[str, Any]] = []
    for line in lines:
        look = {"name": line.name, "slot": line.style.slot, "dash": line.style.dash}
        for seed, curve in enumerate(line.curves):
            if len(line.curves) > 1 or curve.diverged:
                curves += _rows(
                    frame, curve.points, {**look, "series": f"{line.name} {seed}", "kind": "seed"}
                )
            if curve.diverged and curve.points:
                step, value = curve.points[-1]
                ends.append({**look, frame.across.field: step, frame.field: value, "kind": "cross"})
        mean = mean_curve(line.curves)
        curves += _rows(frame, mean, {**look, "series": line.name, "kind": "mean"})
        if mean:
            head = {frame.across.field: mean[-1][0], frame.field: mean[-1][1]}
            ends.append({**look, **head, "kind": "head"})
    datasets = {
        "curves": curves or [{"kind": ""}],
        "ends": ends or [{"kind": ""}],
        "gutter": (frame.names and _gutter(frame, lines)) or [{"value": ""}],
        "done": [{"from": 0, "to": frame.steps * progress}] if progress else [{"from": None, "to": None}],
        "rules": _rules(frame) or [{"text": ""}],
    }
    return chart(frame.height + BELOW, _layers(frame), datasets)


perplexity_chart = line_chart  # what a frame draws if nothing else is said


def mean_curve(curves: Iterable[Curve]) -> list[Point]:
    """The mean over the seeds that reached a step; diverged ones are left out while others are there."""
    found = [curve for curve in curves if curve.points]
    counted = [curve for curve in found if not curve.diverged] or found
    values: dict[float, list[float]] = {}
    for curve in counted:
        for step, value in curve.points:
            values.setdefault(step, []).append(value)
    return [(step, sum(at) / len(at)) for step, at in sorted(values.items())]


def thinned(points: Sequence[Point]) -> Sequence[Point]:
    """At most 500 of them, evenly, the last one always."""
    if len(points) <= MAX_POINTS:
        return points
    stride = math.ceil((len(points) - 1) / (MAX_POINTS - 1))
    kept = list(points[:-1:stride])
    return [*kept, points[-1]]


def apart(positions: Sequence[float], gap: float, end: float) -> list[float]:
    """Positions moved as little as can be: any two ``gap`` apart, none beyond 0 and ``end``."""
    order = sorted(range(len(positions)), key=lambda i: positions[i])
    blocks: list[tuple[float, list[int]]] = []  # where a row of touching labels starts, and which they are

    def block(members: list[int]) -> tuple[float, list[int]]:
        ideal = sum(positions[m] - gap * rank for rank, m in enumerate(members)) / len(members)
        return max(0.0, min(ideal, end - gap * (len(members) - 1))), members

    for i in order:
        last = block([i])
        while blocks and blocks[-1][0] + gap * len(blocks[-1][1]) > last[0]:
            last = block(blocks.pop()[1] + last[1])
        blocks.append(last)
    moved = [0.0] * len(positions)
    for start, members in blocks:
        for rank, member in enumerate(members):
            moved[member] = start + gap * rank
    return moved


def _rows(frame: Frame, points: Sequence[Point], look: dict[str, Any]) -> list[dict[str, Any]]:
    return [{**look, frame.across.field: step, frame.field: value} for step, value in thinned(points)]


def _gutter(frame: Frame, lines: Sequence[Line]) -> list[dict[str, Any]]:
    """One row a variant that has begun: its value now (a dash when it diverged), its dot, its name."""
    rows, wanted = list[dict[str, Any]](), list[float]()
    for line in lines:
        mean = mean_curve(line.curves)
        if mean:
            lost = all(curve.diverged for curve in line.curves if curve.points)
            value = "–" if lost else frame.shown(mean[-1][1])
            rows.append({"name": line.name, "slot": line.style.slot, "value": value})
            wanted.append(frame.pixel(mean[-1][1]))
    for row, pixel in zip(rows, apart(wanted, LABEL_GAP, frame.height), strict=True):
        row["at"] = frame.value(pixel)
    return rows


def _rules(frame: Frame) -> list[dict[str, Any]]:
    """The chapter's figures; those that lie close share the label of the lowest."""
    groups: list[list[tuple[float, bool]]] = []
    for rule in sorted(frame.rules):
        near = groups and frame.pixel(groups[-1][-1][0]) - frame.pixel(rule[0]) < LABEL_GAP
        if near:
            groups[-1].append(rule)
        else:
            groups.append([rule])
    rows: list[dict[str, Any]] = [{frame.field: value, "text": ""} for value, _ in frame.rules]
    for group in groups:
        inferred = any(guess for _, guess in group)
        named = [frame.printed(rule[0], inferred) for rule in frame.rules if rule in group]
        listed = " and ".join([", ".join(named[:-1]), named[-1]] if len(named) > 1 else named)
        text = f"chapter {'about ' if inferred else ''}{listed}{frame.note}"
        rows.append({frame.field: group[0][0], "text": text})
    return rows


def _layers(frame: Frame) -> list[Spec]:
    across = frame.across
    ticks = list(frame.ticks) or [
        tick
        for tick in (10**decade * lead for decade in range(-1, 7) for lead in (1, 3))
        if frame.low * 1.1 < tick < frame.high
    ]
    x = x_axis(
        across.field,
        frame.steps,
        list(across.ticks) or step_ticks(frame.steps),
        across.title,
        across.first,
        log=across.log,
        gutter=frame.gutter,
        form=across.form,
    )
    scale = {"type": "log"} if frame.log else {}
    y = y_axis(frame.field, {**scale, "domain": [frame.low, frame.high]}, ticks, frame.form)
    place = {"x": x, "y": y, "color": COLOR}
    to_the_end = {"x": {"datum": across.first}, "x2": {"datum": frame.steps}, "y": y}
    chapter = {"type": "rule", "color": GRAY, "strokeDash": [3, 3], "strokeWidth": 1.25}
    note = {"type": "text", "color": GRAY, "align": "right", "dx": -4, "dy": 11, "fontSize": 12}
    seed = {"type": "line", "strokeWidth": 1, "opacity": 0.35, "clip": True}
    mean = {"type": "line", "strokeWidth": 2.25, "clip": True}
    unseen = {"type": "point", "filled": True, "size": 160, "opacity": 0, "clip": True}  # to be pointed at
    head = {"type": "point", "filled": True, "size": 48, "opacity": 1, "clip": True}
    cross = {"type": "point", "shape": "M-1,-1L1,1M-1,1L1,-1", "size": 60, "strokeWidth": 2, "opacity": 1}
    progress = {"type": "rule", "color": INK, "strokeWidth": 3}
    hover = [
        {"field": "name", "title": "model"},
        {"field": across.field, "format": across.form},
        {"field": frame.field, "format": ",.2f" if frame.form == "~r" else frame.form},
    ]
    series = {"field": "series"}
    done = {"x": {**x, "field": "from"}, "x2": {"field": "to"}, "y": {"value": "height"}}
    return [
        *levels(y, across.first, frame.steps),
        layer("rules", chapter, to_the_end),
        layer("rules", note, {"x": {"datum": frame.steps}, "y": y, "text": {"field": "text"}}),
        layer("curves", seed, {**place, "detail": series}, "seed"),
        layer("curves", mean, {**place, "detail": series, "strokeDash": DASH}, "mean"),
        layer("curves", unseen, {**place, "tooltip": hover}, "mean"),
        layer("ends", head, place, "head"),
        layer("ends", cross, place, "cross"),
        *(gutter(y, frame.steps) if frame.names else []),
        layer("done", progress, done),
    ]


def step_ticks(steps: int) -> list[int]:
    """Round steps from 0 to the last, at most seven intervals."""
    rough = steps / 7
    decade = 10 ** math.floor(math.log10(max(rough, 1)))
    interval = next(int(decade * lead) for lead in (1, 2, 5, 10) if decade * lead >= rough)
    return list(range(0, steps + 1, max(1, interval)))
