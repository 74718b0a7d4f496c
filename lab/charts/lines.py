"""The chart of a figure over training steps: curves that grow inside a frame that never moves.

Its specification depends on the frame alone and the curves are named data beside it, so at a live tick the
browser keeps the drawing and moves the lines.
"""

import dataclasses
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import altair as alt

from lab.charts import axes
from lab.charts.axes import COLOR, INK, dot, note, rows
from lab.charts.drawing import Rows, Spec, compiled, fed
from lab.shell.styles import Style
from lab.words import quantity

HEIGHT, PLOT_HEIGHT = 316, 255  # px; the second is what the first leaves for the curves
BELOW = HEIGHT - PLOT_HEIGHT
MAX_POINTS = 500

Point = tuple[float, float]


@dataclass(frozen=True)
class Across:
    """The horizontal axis, where it is not steps from 0 on.

    ticks: by default a few round ones. form: of their labels; texts: in place of those numbers.
    """

    field: str = "step"
    title: str = "training step"
    first: float = 0
    log: bool = False
    ticks: tuple[float, ...] = ()
    form: str = ",d"
    texts: tuple[str, ...] = ()


STEPS = Across()


@dataclass(frozen=True)
class Plot:
    """All that is known of a chart before a run exists. Equal ones have one specification between them.

    steps: where the horizontal axis ends. low, high: bounds of the vertical one.
    rules: (value, inferred) of the chapter's figures; note: said after their labels.
    field: what is drawn, as the reader is told it when pointing at a curve.
    log, ticks, form: of the vertical axis; its ticks are 1, 3, 10, 30, ... if none are given.
    shown: a value as text; printed: a figure of the chapter's, which may be inferred.
    height: px for the curves; gutter: share of the width right of them; names: whether it holds any.
    labels: px at least for the numbers of the vertical axis.
    over: what makes further layers on top of the curves, over datasets of their own.
    """

    steps: int
    low: float
    high: float
    rules: tuple[tuple[float, bool], ...] = dataclasses.field(default=(), compare=False)
    note: str = dataclasses.field(default="", compare=False)
    field: str = "perplexity"
    log: bool = True
    ticks: tuple[float, ...] = ()
    form: str = "~r"
    shown: Callable[[float | None], str] = dataclasses.field(default=quantity, compare=False)
    printed: Callable[[float, bool], str] = dataclasses.field(
        default=lambda value, inferred: quantity(value, 0 if inferred else 2), compare=False
    )
    height: int = PLOT_HEIGHT
    gutter: float = axes.GUTTER
    names: bool = True
    across: Across = STEPS
    labels: int = 0
    over: tuple["Layers", ...] = ()

    @cached_property
    def x(self) -> alt.X:
        """The horizontal axis."""
        across = self.across
        ticks = across.ticks or tuple(axes.step_ticks(self.steps))
        texts = {"labelExpr": axes.labels(across.texts, f"indexof({list(ticks)}, datum.value)")}
        return axes.x_axis(
            across.field,
            self.steps,
            ticks,
            across.title,
            across.first,
            log=across.log,
            gutter=self.gutter,
            form=across.form,
            **(texts if across.texts else {}),
        )

    @cached_property
    def y(self) -> alt.Y:
        """The vertical axis."""
        ticks = self.ticks or [
            tick
            for tick in (10**decade * lead for decade in range(-1, 7) for lead in (1, 3))
            if self.low * 1.1 < tick < self.high
        ]
        least = {"minExtent": self.labels} if self.labels else {}
        return axes.y_axis(
            self.field, self.low, self.high, ticks, self.form, log=10 if self.log else 0, **least
        )

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


Layers = Callable[[Plot], Sequence[alt.Chart]]


@dataclass(frozen=True)
class Curve:
    """One run: its evaluations so far, and whether it ended by diverging."""

    points: tuple[Point, ...]
    diverged: bool = False


@dataclass(frozen=True)
class Line:
    """One variant: its name, its look, and a curve a seed.

    here: where the reader stands on it, in place of its last point: what the dot and the value are of.
    """

    name: str
    style: Style
    curves: tuple[Curve, ...]
    here: float | None = None

    def head(self, mean: Sequence[Point]) -> Point | None:
        """The point of its mean that its value is of; None where it has none there."""
        if self.here is None:
            return mean[-1] if mean else None
        return next((point for point in mean if point[0] == self.here), None)


def line_chart(plot: Plot, lines: Sequence[Line], progress: float = 0.0, **more: Rows) -> Spec:
    """The chart of some variants. progress: the share of the work that is done, 0 when nothing is running.

    more: rows of the datasets that the frame's further layers are over.
    """
    curves: list[dict[str, Any]] = []
    ends: list[dict[str, Any]] = []
    for line in lines:
        look = {"name": line.name, "slot": line.style.slot, "dash": line.style.dash}
        for seed, curve in enumerate(line.curves):
            if len(line.curves) > 1 or curve.diverged:
                curves += _rows(plot, curve.points, {**look, "series": f"{line.name} {seed}", "kind": "seed"})
            if curve.diverged and curve.points:
                step, value = curve.points[-1]
                ends.append({**look, plot.across.field: step, plot.field: value, "kind": "cross"})
        mean = mean_curve(line.curves)
        curves += _rows(plot, mean, {**look, "series": line.name, "kind": "mean"})
        if head := line.head(mean):
            step, value = head
            ends.append({**look, plot.across.field: step, plot.field: value, "kind": "head"})
    return fed(
        _compiled(plot),
        curves=curves,
        ends=ends,
        gutter=_gutter(plot, lines) if plot.names else [],
        done=[{"from": 0, "to": plot.steps * progress}] if progress else [],
        rules=_rules(plot),
        **more,
    )


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


def _rows(plot: Plot, points: Sequence[Point], look: dict[str, Any]) -> list[dict[str, Any]]:
    return [{**look, plot.across.field: step, plot.field: value} for step, value in thinned(points)]


def _gutter(plot: Plot, lines: Sequence[Line]) -> list[dict[str, Any]]:
    """One row a variant that has begun: its value now (a dash when it diverged), its dot, its name."""
    names, wanted = list[dict[str, Any]](), list[float]()
    for line in lines:
        mean = mean_curve(line.curves)
        if mean:
            lost = line.here is None and all(curve.diverged for curve in line.curves if curve.points)
            head = None if lost else line.head(mean)
            value = plot.shown(head[1]) if head else "–"
            names.append({"name": line.name, "slot": line.style.slot, "value": value})
            wanted.append(plot.pixel(mean[-1][1]))
    for row, pixel in zip(names, axes.apart(wanted, axes.LABEL_GAP, plot.height), strict=True):
        row["at"] = plot.value(pixel)
    return names


def _rules(plot: Plot) -> list[dict[str, Any]]:
    """The chapter's figures; those that lie close share the label of the lowest."""
    groups: list[list[tuple[float, bool]]] = []
    for rule in sorted(plot.rules):
        near = groups and plot.pixel(groups[-1][-1][0]) - plot.pixel(rule[0]) < axes.LABEL_GAP
        if near:
            groups[-1].append(rule)
        else:
            groups.append([rule])
    drawn: list[dict[str, Any]] = [{plot.field: value, "text": ""} for value, _ in plot.rules]
    for group in groups:
        inferred = any(guess for _, guess in group)
        named = [plot.printed(rule[0], inferred) for rule in plot.rules if rule in group]
        listed = " and ".join([", ".join(named[:-1]), named[-1]] if len(named) > 1 else named)
        text = f"chapter {'about ' if inferred else ''}{listed}{plot.note}"
        drawn.append({plot.field: group[0][0], "text": text})
    return drawn


@lru_cache(maxsize=256)
def _compiled(plot: Plot) -> Spec:
    x, y, first, last = plot.x, plot.y, plot.across.first, plot.steps
    rules = rows("rules").encode(y=y)
    seeds, means = (rows("curves", kind).encode(x, y, COLOR) for kind in ("seed", "mean"))
    heads, crosses = (rows("ends", kind).encode(x, y, COLOR) for kind in ("head", "cross"))
    told = [
        alt.Tooltip(field="name", title="model"),
        alt.Tooltip(field=plot.across.field, format=plot.across.form),
        alt.Tooltip(field=plot.field, format=",.2f" if plot.form == "~r" else plot.form),
    ]
    series = alt.Detail(field="series")
    return compiled(
        plot.height + BELOW,
        *axes.levels(y, first, last),
        rules.mark_rule(**axes.DASHED).encode(x=alt.XDatum(first), x2=alt.X2Datum(last)),
        note(rules.encode(x=alt.XDatum(last)), align="right", dx=-4, dy=11),
        seeds.mark_line(strokeWidth=1, opacity=0.35, clip=True).encode(detail=series),
        means.mark_line(strokeWidth=2.25, clip=True).encode(detail=series, strokeDash=axes.DASH),
        dot(means, 160, opacity=0, clip=True).encode(tooltip=told),  # unseen, to be pointed at
        dot(heads, 48, clip=True),
        crosses.mark_point(shape=axes.CROSS, size=60, strokeWidth=2, opacity=1),
        *(axes.gutter(y, last) if plot.names else []),
        rows("done")
        .mark_rule(color=INK, strokeWidth=3)
        .encode(x=axes.of(x, "from"), x2=alt.X2(field="to"), y=alt.value("height")),
        *(layer for layers in plot.over for layer in layers(plot)),
    )


def edge(plot: Plot) -> list[alt.Chart]:
    """A dashed rule down at the places of the dataset "edge", with their text at the top, right of it."""
    layer = rows("edge").encode(x=plot.x)
    return [layer.mark_rule(**axes.DASHED), note(layer.encode(y=alt.value(0)), align="left", dx=5, dy=8)]


def here(plot: Plot) -> list[alt.Chart]:
    """A rule down at the place of the dataset "here", where the reader stands."""
    return [rows("here").mark_rule(color=INK, strokeWidth=1.25).encode(x=plot.x)]
