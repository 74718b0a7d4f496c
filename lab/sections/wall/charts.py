"""The two figures of the wall: peak memory and time over the number of tokens, both axes logarithmic."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import altair as alt

from engine.memory_wall.plan import Row
from engine.memory_wall.setting import DTYPE_BYTES, IMPLEMENTATIONS, MB, closed_form
from lab.charts import drawing, lines
from lab.charts.axes import COLOR, CROSS, GRAY, INK, dot, note, rows
from lab.charts.drawing import Spec
from lab.charts.lines import Across, Curve, Line, Plot, Point
from lab.sections.wall.parts import LayerPlan, decades, milliseconds, needed_bytes, whole_mb
from lab.sections.wall.rows import Measurement
from lab.shell.styles import style

PLOT_HEIGHT, NAMES = 260, 0.5  # px; the second is the gutter's share of the width
GUIDED = 8  # a slope's guide runs over the last so many times the tokens
EXPORT_WIDTH = 500  # px

Points = dict[str, list[Point]]  # n and value by implementation, smallest n first


def memory_chart(choice: LayerPlan, found: Measurement) -> Spec:
    """Peak MB over n: measured, predicted (dashed), the budget, and a cross at what was refused."""
    plot = _plot(
        choice, "MB", *memory_bounds(choice), shown=lambda value: whole_mb((value or 0) * MB),
        over=(_predicted, _dots, _walls, _guides, _budget),
    )  # fmt: skip
    measured = _points(found.rows, "peak_bytes", MB)
    budget = choice.plan.budget_bytes if choice.plan else None
    return lines.line_chart(
        plot,
        _lines(choice, measured),
        predicted=[
            {"n": n, "MB": value, "name": name, "slot": style(name).slot}
            for name, line in _points(found.rows, "predicted_bytes", MB).items()
            for n, value in line
        ],
        walls=[
            {
                **_at(row, "MB", row.n, row.predicted_bytes / MB),
                "text": f"would need {whole_mb(needed_bytes(row.predicted_bytes, choice.plan))} MB",
            }
            for row in found.rows
            if row.state == "out of memory" and row.predicted_bytes
        ],
        guides=_slopes(plot, measured, {"explicit": 2}, 1),
        budget=[{"MB": budget / MB, "text": f"budget {whole_mb(budget)} MB"}] if budget else [],
    )


def time_chart(choice: LayerPlan, found: Measurement) -> Spec:
    """Milliseconds over n, and a cross where an implementation ended for want of memory."""
    measured = _points(found.rows, "step_ms", 1)
    bounds = time_bounds(choice.tokens[-1], [value for line in measured.values() for _, value in line])
    plot = _plot(choice, "ms", *bounds, shown=milliseconds, over=(_dots, _walls, _guides))
    walls = [
        {**_at(row, "ms", *measured[row.implementation][-1]), "text": f"out of memory at {row.n:,}"}
        for row in found.rows
        if row.state == "out of memory" and measured[row.implementation]
    ]
    guides = _slopes(plot, measured, {"projections": 1}, 2)
    return lines.line_chart(plot, _lines(choice, measured), walls=walls, guides=guides)


def together(choice: LayerPlan, found: Measurement) -> Spec:
    """Both, side by side, for a file."""
    both = {"Peak memory, MB": memory_chart(choice, found), "Time, ms": time_chart(choice, found)}
    titled = {
        title: {**spec, "width": EXPORT_WIDTH, "title": {"text": title, "anchor": "start"}}
        for title, spec in both.items()
    }
    return drawing.together(titled, "hconcat")


def memory_bounds(choice: LayerPlan) -> tuple[float, float]:
    """Of the memory axis in MB: from below the weights to above explicit's last row and the budget."""
    layer, plan = choice.layer, choice.plan
    low = 4 * DTYPE_BYTES[layer.dtype] * layer.d_model**2 / MB
    most = closed_form(choice.tokens[-1], layer) * (3 if layer.backward else 1) / MB
    budget = (plan.budget_bytes or 0) / MB if plan else 0
    top = 1.6 * max(most, budget)
    decade = _decade(top, math.floor)
    nice = next(decade * lead for lead in (1, 2, 5, 10) if decade * lead >= top)
    return _decade(0.9 * low, math.floor), nice


def time_bounds(last: int, values: Sequence[float]) -> tuple[float, float]:
    """Of the time axis in ms: known beforehand, and wider by whole decades where a row does not fit."""
    low, high = 0.1, 1000.0 if last <= 1024 else 10_000.0 if last <= 4096 else 100_000.0
    if values:
        low, high = min(low, _decade(min(values), math.floor)), max(high, _decade(max(values), math.ceil))
    return low, high


def _decade(value: float, rounded: Callable[[float], int]) -> float:
    return float(10.0 ** rounded(math.log10(value)))


def _plot(choice: LayerPlan, field: str, low: float, high: float, **more: Any) -> Plot:
    tokens = choice.tokens
    first = tokens[0] if len(tokens) > 1 else tokens[0] / 2
    across = Across(field="n", title="tokens, n", first=first, log=True, ticks=tokens)
    return Plot(
        steps=tokens[-1], low=low, high=high, field=field, ticks=decades(low, high), form=",~g",
        height=PLOT_HEIGHT, gutter=NAMES, across=across, **more,
    )  # fmt: skip


def _at(row: Row, field: str, n: float, value: float) -> dict[str, Any]:
    return {"n": n, field: value, "slot": style(row.implementation).slot}


def _points(measured: Sequence[Row], field: str, unit: int) -> Points:
    found: Points = {name: [] for name in IMPLEMENTATIONS}
    for row in sorted(measured, key=lambda row: row.n):
        if value := getattr(row, field):
            found[row.implementation].append((row.n, value / unit))
    return found


def _lines(choice: LayerPlan, points: Points) -> list[Line]:
    order = sorted(choice.implementations, key=lambda name: name == "explicit")  # what it is about on top
    return [Line(name, style(name), (Curve(tuple(points[name])),)) for name in order]


def _slopes(plot: Plot, points: Points, slopes: dict[str, int], others: int) -> list[dict[str, Any]]:
    """Guides: each slope below the lowest of the lines that are held against it.

    slopes: of the implementations that are named; others: that of all the rest.
    """
    guides = list[dict[str, Any]]()
    for slope in (1, 2):
        ends = [line[-1] for name, line in points.items() if line and slopes.get(name, others) == slope]
        if not ends:
            continue
        n, value = min(ends, key=lambda end: end[1] / end[0] ** slope)
        end = min(n, plot.steps / 2)  # clear of the names
        top = 0.45 * value * (end / n) ** slope
        start = max(plot.across.first, end / GUIDED, end * (plot.low / top) ** (1 / slope))
        if top > plot.low and start < end:
            for at, text in ((start, ""), (end, f"slope {slope}")):
                height = top * (at / end) ** slope
                guides.append({"n": at, plot.field: height, "slope": f"slope {slope}", "text": text})
    return guides


# Layers.


def _predicted(plot: Plot) -> list[alt.Chart]:
    line = rows("predicted").mark_line(strokeWidth=1.5, strokeDash=[5, 4], clip=True)
    return [line.encode(x=plot.x, y=plot.y, color=COLOR, detail=alt.Detail(field="name"))]


def _dots(plot: Plot) -> list[alt.Chart]:
    return [dot(rows("curves", "mean"), 28, clip=True).encode(x=plot.x, y=plot.y, color=COLOR)]


def _walls(plot: Plot) -> list[alt.Chart]:
    layer = rows("walls").encode(x=plot.x, y=plot.y)
    return [
        layer.mark_point(shape=CROSS, size=90, strokeWidth=2.5, opacity=1).encode(color=COLOR),
        note(layer, color=INK, align="right", dx=-10, dy=-6),
    ]


def _guides(plot: Plot) -> list[alt.Chart]:
    layer = rows("guides").encode(x=plot.x, y=plot.y)
    line = layer.mark_line(color=GRAY, strokeWidth=1.25, strokeDash=[1, 3])
    return [line.encode(detail=alt.Detail(field="slope")), note(layer, align="left", dx=5, dy=5)]


def _budget(plot: Plot) -> list[alt.Chart]:
    layer = rows("budget").encode(x=alt.XDatum(plot.across.first), y=plot.y)
    rule = layer.mark_rule(color=INK, strokeWidth=1.5, clip=True)
    return [rule.encode(x2=alt.X2Datum(plot.steps)), note(layer, color=INK, align="left", dx=4, dy=-8)]
