"""The perplexity chart: curves that grow inside a frame that never moves.

Its specification depends on the frame alone and the curves are named data beside it, so at a live tick the
browser keeps the drawing and moves the lines.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from lab.controls import quantity
from lab.styles import Style
from lab.vega import COLOR, DASH, GRAY, INK, Spec, chart, gutter, layer, levels, x_axis, y_axis

HEIGHT, PLOT_HEIGHT = 316, 255  # px; the second is what the first leaves for the curves
LABEL_GAP = 18.0  # px between two names in the gutter
MAX_POINTS = 500

Point = tuple[int, float]


@dataclass(frozen=True)
class Frame:
    """All that is known of a chart before a run exists.

    steps: the last step. low, high: bounds of the perplexity axis.
    rules: (value, inferred) of the chapter's figures; note: said after their labels.
    """

    steps: int
    low: float
    high: float
    rules: tuple[tuple[float, bool], ...] = ()
    note: str = ""

    def pixel(self, value: float) -> float:
        """Distance from the top of the plot."""
        share = math.log(self.high / min(max(value, self.low), self.high)) / math.log(self.high / self.low)
        return share * PLOT_HEIGHT

    def value(self, pixel: float) -> float:
        """The inverse of ``pixel``."""
        return float(self.high * (self.low / self.high) ** (pixel / PLOT_HEIGHT))


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


def perplexity_chart(frame: Frame, lines: Sequence[Line], progress: float = 0.0) -> Spec:
    """The chart of some variants. progress: the share of the work that is done, 0 when nothing is running."""
    curves: list[dict[str, Any]] = []
    ends: list[dict[str, Any]] = []
    for line in lines:
        look = {"name": line.name, "slot": line.style.slot, "dash": line.style.dash}
        for seed, curve in enumerate(line.curves):
            if len(line.curves) > 1 or curve.diverged:
                curves += _rows(curve.points, {**look, "series": f"{line.name} {seed}", "kind": "seed"})
            if curve.diverged and curve.points:
                step, value = curve.points[-1]
                ends.append({**look, "step": step, "perplexity": value, "kind": "cross"})
        mean = mean_curve(line.curves)
        curves += _rows(mean, {**look, "series": line.name, "kind": "mean"})
        if mean:
            ends.append({**look, "step": mean[-1][0], "perplexity": mean[-1][1], "kind": "head"})
    datasets = {
        "curves": curves or [{"kind": ""}],
        "ends": ends or [{"kind": ""}],
        "gutter": _gutter(frame, lines) or [{"value": ""}],
        "done": [{"from": 0, "to": frame.steps * progress}] if progress else [{"from": None, "to": None}],
        "rules": _rules(frame) or [{"text": ""}],
    }
    return chart(HEIGHT, _layers(frame), datasets)


def mean_curve(curves: Iterable[Curve]) -> list[Point]:
    """The mean over the seeds that reached a step; diverged ones are left out while others are there."""
    found = [curve for curve in curves if curve.points]
    counted = [curve for curve in found if not curve.diverged] or found
    values: dict[int, list[float]] = {}
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


def _rows(points: Sequence[Point], look: dict[str, Any]) -> list[dict[str, Any]]:
    return [{**look, "step": step, "perplexity": value} for step, value in thinned(points)]


def _gutter(frame: Frame, lines: Sequence[Line]) -> list[dict[str, Any]]:
    """One row a variant that has begun: its value now (a dash when it diverged), its dot, its name."""
    rows, wanted = list[dict[str, Any]](), list[float]()
    for line in lines:
        mean = mean_curve(line.curves)
        if mean:
            lost = all(curve.diverged for curve in line.curves if curve.points)
            value = "–" if lost else quantity(mean[-1][1])
            rows.append({"name": line.name, "slot": line.style.slot, "value": value})
            wanted.append(frame.pixel(mean[-1][1]))
    for row, pixel in zip(rows, apart(wanted, LABEL_GAP, PLOT_HEIGHT), strict=True):
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
    rows = [{"perplexity": value, "text": ""} for value, _ in frame.rules]
    for group in groups:
        inferred = any(guess for _, guess in group)
        named = [quantity(rule[0], 0 if inferred else 2) for rule in frame.rules if rule in group]
        text = f"chapter {'about ' if inferred else ''}{' and '.join(named)}{frame.note}"
        rows.append({"perplexity": group[0][0], "text": text})
    return rows


def _layers(frame: Frame) -> list[Spec]:
    ticks = [10**decade * lead for decade in range(-1, 7) for lead in (1, 3)]
    ticks = [tick for tick in ticks if frame.low * 1.1 < tick < frame.high]
    x = x_axis("step", frame.steps, step_ticks(frame.steps), "training step")
    y = y_axis("perplexity", {"type": "log", "domain": [frame.low, frame.high]}, ticks)
    place = {"x": x, "y": y, "color": COLOR}
    to_the_end = {"x": {"datum": 0}, "x2": {"datum": frame.steps}, "y": y}
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
        {"field": "step", "format": ",d"},
        {"field": "perplexity", "format": ",.2f"},
    ]
    series = {"field": "series"}
    done = {"x": {**x, "field": "from"}, "x2": {"field": "to"}, "y": {"value": "height"}}
    return [
        *levels(y, 0, frame.steps),
        layer("rules", chapter, to_the_end),
        layer("rules", note, {"x": {"datum": frame.steps}, "y": y, "text": {"field": "text"}}),
        layer("curves", seed, {**place, "detail": series}, "seed"),
        layer("curves", mean, {**place, "detail": series, "strokeDash": DASH}, "mean"),
        layer("curves", unseen, {**place, "tooltip": hover}, "mean"),
        layer("ends", head, place, "head"),
        layer("ends", cross, place, "cross"),
        *gutter(y, frame.steps),
        layer("done", progress, done),
    ]


def step_ticks(steps: int) -> list[int]:
    """Round steps from 0 to the last, at most seven intervals."""
    rough = steps / 7
    decade = 10 ** math.floor(math.log10(max(rough, 1)))
    interval = next(int(decade * lead) for lead in (1, 2, 5, 10) if decade * lead >= rough)
    return list(range(0, steps + 1, max(1, interval)))
