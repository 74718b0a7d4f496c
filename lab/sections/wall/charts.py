"""The two figures of the wall: peak memory and time over the number of tokens, both axes logarithmic."""

import math
from collections.abc import Sequence
from typing import Any

import altair as alt

from engine.memory_wall.plan import Row, doubling
from engine.memory_wall.setting import DTYPE_BYTES, IMPLEMENTATIONS, MB, closed_form
from lab.charts import drawing, lines
from lab.charts.axes import COLOR, CROSS, GRAY, INK, dot, note, rows
from lab.charts.drawing import Spec
from lab.charts.lines import Across, Curve, Frame, Line
from lab.sections.wall.parts import TOKENS, Choice, decades, milliseconds, needed_bytes, whole_mb
from lab.sections.wall.rows import Measurement
from lab.shell.styles import style

PLOT_HEIGHT, NAMES = 260, 0.5  # px; the second is the gutter's share of the width
GUIDED = 8  # a slope's guide runs over the last so many times the tokens
EXPORT_WIDTH = 500  # px


def memory_chart(choice: Choice, found: Measurement) -> Spec:
    """Peak MB over n: measured, predicted (dashed), the budget, and a cross at what was refused."""
    tokens = _tokens(choice)
    frame = _frame(
        tokens, "MB", *memory_bounds(choice), shown=lambda value: whole_mb((value or 0) * MB),
        over=(_predicted, _dots, _walls, _guides, _budget),
    )  # fmt: skip
    measured = _points(found.rows, "peak_bytes", MB)
    predicted = _points(found.rows, "predicted_bytes", MB)
    walls = [
        {
            "n": row.n,
            "MB": row.predicted_bytes / MB,
            "slot": style(row.implementation).slot,
            "text": f"would need {whole_mb(needed_bytes(row.predicted_bytes, choice.plan))} MB",
        }
        for row in found.rows
        if row.state == "out of memory" and row.predicted_bytes
    ]
    budget = choice.plan.budget_bytes if choice.plan else None
    return lines.line_chart(
        frame,
        _lines(choice, measured),
        predicted=[
            {"n": n, "MB": value, "name": name, "slot": style(name).slot}
            for name, line in predicted.items()
            for n, value in line
        ],
        walls=walls,
        guides=_slopes(frame, measured, {"explicit": 2}, 1),
        budget=[{"MB": budget / MB, "text": f"budget {whole_mb(budget)} MB"}] if budget else [],
    )


def time_chart(choice: Choice, found: Measurement) -> Spec:
    """Milliseconds over n, and a cross where an implementation ended for want of memory."""
    tokens = _tokens(choice)
    measured = _points(found.rows, "step_ms", 1)
    values = [value for line in measured.values() for _, value in line]
    frame = _frame(
        tokens, "ms", *time_bounds(tokens[-1], values), shown=lambda value: milliseconds(value or 0),
        over=(_dots, _walls, _guides),
    )  # fmt: skip
    walls = []
    for row in found.rows:
        if row.state == "out of memory" and (line := measured.get(row.implementation)):
            n, value = line[-1]
            at = {"n": n, "ms": value, "slot": style(row.implementation).slot}
            walls.append({**at, "text": f"out of memory at {row.n:,}"})
    guides = _slopes(frame, measured, {"projections": 1}, 2)
    return lines.line_chart(frame, _lines(choice, measured), walls=walls, guides=guides)


def together(choice: Choice, found: Measurement) -> Spec:
    """Both, side by side, for a file."""
    parts = {"Peak memory, MB": memory_chart(choice, found), "Time, ms": time_chart(choice, found)}
    titled = {
        title: {**spec, "width": EXPORT_WIDTH, "title": {"text": title, "anchor": "start"}}
        for title, spec in parts.items()
    }
    return drawing.together(titled, "hconcat")


def memory_bounds(choice: Choice) -> tuple[float, float]:
    """Of the memory axis in MB: from below the weights to above explicit's last row and the budget."""
    setting, plan = choice.layer, choice.plan
    low = 4 * DTYPE_BYTES[setting.dtype] * setting.d_model**2 / MB
    most = closed_form(_tokens(choice)[-1], setting) * (3 if setting.backward else 1) / MB
    budget = (plan.budget_bytes or 0) / MB if plan else 0
    return _decade_below(0.9 * low), _nice(1.6 * max(most, budget))


def time_bounds(last: int, values: Sequence[float]) -> tuple[float, float]:
    """Of the time axis in ms: known beforehand, and wider by whole decades where a row does not fit."""
    low, high = 0.1, 1000.0 if last <= 1024 else 10_000.0 if last <= 4096 else 100_000.0
    if values:
        low, high = min(low, _decade_below(min(values))), max(high, _decade_above(max(values)))
    return low, high


def _decade_below(value: float) -> float:
    return float(10.0 ** math.floor(math.log10(value)))


def _decade_above(value: float) -> float:
    return float(10.0 ** math.ceil(math.log10(value)))


def _nice(value: float) -> float:
    """The next of 1, 2, 5, 10, ... above."""
    decade = _decade_below(value)
    return next(decade * lead for lead in (1, 2, 5, 10) if decade * lead >= value)


def _tokens(choice: Choice) -> tuple[int, ...]:
    return choice.plan.tokens if choice.plan else doubling(TOKENS[1])


def _frame(tokens: tuple[int, ...], field: str, low: float, high: float, **look: Any) -> Frame:
    first = tokens[0] if len(tokens) > 1 else tokens[0] / 2
    across = Across(field="n", title="tokens, n", first=first, log=True, ticks=tokens)
    return Frame(
        steps=tokens[-1], low=low, high=high, field=field, ticks=decades(low, high), form=",~g",
        height=PLOT_HEIGHT, gutter=NAMES, across=across, **look,
    )  # fmt: skip


def _points(measured: Sequence[Row], field: str, unit: int) -> dict[str, list[tuple[float, float]]]:
    """By implementation, n and value of the rows that have one, smallest n first."""
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in IMPLEMENTATIONS}
    for row in sorted(measured, key=lambda row: row.n):
        if value := getattr(row, field):
            found[row.implementation].append((row.n, value / unit))
    return found


def _lines(choice: Choice, points: dict[str, list[tuple[float, float]]]) -> list[Line]:
    names = choice.plan.implementations if choice.plan else IMPLEMENTATIONS
    order = sorted(names, key=lambda name: name == "explicit")  # the one it is about on top
    return [Line(name, style(name), (Curve(tuple(points[name])),)) for name in order]


def _slopes(
    frame: Frame, points: dict[str, list[tuple[float, float]]], slopes: dict[str, int], others: int
) -> list[dict[str, Any]]:
    """Guides: each slope below the lowest of the lines that are held against it.

    slopes: of the implementations that are named; others: that of all the rest.
    """
    guides = list[dict[str, Any]]()
    for slope in (1, 2):
        ends = [line[-1] for name, line in points.items() if line and slopes.get(name, others) == slope]
        if not ends:
            continue
        n, value = min(ends, key=lambda end: end[1] / end[0] ** slope)
        end = min(n, frame.steps / 2)  # clear of the names
        top = 0.45 * value * (end / n) ** slope
        start = max(frame.across.first, end / GUIDED, end * (frame.low / top) ** (1 / slope))
        if top <= frame.low or start >= end:
            continue
        for at in (start, end):
            row = {"n": at, frame.field: top * (at / end) ** slope, "slope": f"slope {slope}"}
            guides.append({**row, "text": f"slope {slope}" if at == end else ""})
    return guides


# Layers.


def _predicted(frame: Frame) -> list[alt.Chart]:
    line = rows("predicted").mark_line(strokeWidth=1.5, strokeDash=[5, 4], clip=True)
    return [line.encode(x=frame.x, y=frame.y, color=COLOR, detail=alt.Detail(field="name"))]


def _dots(frame: Frame) -> list[alt.Chart]:
    return [dot(rows("curves", "mean"), 28, clip=True).encode(x=frame.x, y=frame.y, color=COLOR)]


def _walls(frame: Frame) -> list[alt.Chart]:
    layer = rows("walls").encode(x=frame.x, y=frame.y)
    return [
        layer.mark_point(shape=CROSS, size=90, strokeWidth=2.5, opacity=1).encode(color=COLOR),
        note(layer, color=INK, align="right", dx=-10, dy=-6),
    ]


def _guides(frame: Frame) -> list[alt.Chart]:
    layer = rows("guides").encode(x=frame.x, y=frame.y)
    line = layer.mark_line(color=GRAY, strokeWidth=1.25, strokeDash=[1, 3])
    return [line.encode(detail=alt.Detail(field="slope")), note(layer, align="left", dx=5, dy=5)]


def _budget(frame: Frame) -> list[alt.Chart]:
    layer = rows("budget").encode(x=alt.XDatum(frame.across.first), y=frame.y)
    rule = layer.mark_rule(color=INK, strokeWidth=1.5, clip=True)
    return [rule.encode(x2=alt.X2Datum(frame.steps)), note(layer, color=INK, align="left", dx=4, dy=-8)]
