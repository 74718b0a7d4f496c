"""The two figures of the wall: peak memory and time over the number of tokens, both axes logarithmic."""

import math
from collections.abc import Sequence
from typing import Any

from engine.memory_wall.plan import Row, doubling
from engine.memory_wall.setting import DTYPE_BYTES, IMPLEMENTATIONS, MB, closed_form
from lab.charts import lines, vega
from lab.charts.lines import Across, Curve, Frame, Line
from lab.charts.vega import COLOR, GRAY, INK, Spec, layer
from lab.sections.wall.parts import TOKENS, Choice, decades, milliseconds, needed_bytes, whole_mb
from lab.sections.wall.rows import Measurement
from lab.shell.styles import style

PLOT_HEIGHT, NAMES = 260, 0.5  # px; the second is the gutter's share of the width
GUIDED = 8  # a slope's guide runs over the last so many times the tokens
CROSS = "M-1,-1L1,1M-1,1L1,-1"
EXPORT_WIDTH = 500  # px


def memory_chart(choice: Choice, found: Measurement) -> Spec:
    """Peak MB over n: measured, predicted (dashed), the budget, and a cross at what was refused."""
    tokens = _tokens(choice)
    frame = _frame(tokens, "MB", *memory_bounds(choice), shown=lambda value: whole_mb((value or 0) * MB))
    measured = _points(found.rows, "peak_bytes", MB)
    spec = lines.line_chart(frame, _lines(choice, measured))
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
    ends = [(line[-1], 2 if name == "explicit" else 1) for name, line in measured.items() if line]
    _add(spec, frame, "predicted", _dashed(predicted, "MB"), _predicted(frame))
    spec["layer"] += _dots(frame)
    _add(spec, frame, "walls", walls, _walls(frame))
    _add(spec, frame, "guides", _guides(frame, ends), _guide(frame))
    budget = choice.plan.budget_bytes if choice.plan else None
    rule = [{"MB": budget / MB, "text": f"budget {whole_mb(budget)} MB"}] if budget else []
    _add(spec, frame, "budget", rule, _budget(frame))
    return spec


def time_chart(choice: Choice, found: Measurement) -> Spec:
    """Milliseconds over n, and a cross where an implementation ended for want of memory."""
    tokens = _tokens(choice)
    measured = _points(found.rows, "step_ms", 1)
    values = [value for line in measured.values() for _, value in line]
    frame = _frame(tokens, "ms", *time_bounds(tokens[-1], values), shown=lambda v: milliseconds(v or 0))
    spec = lines.line_chart(frame, _lines(choice, measured))
    walls = []
    for row in found.rows:
        if row.state == "out of memory" and (line := measured.get(row.implementation)):
            n, value = line[-1]
            at = {"n": n, "ms": value, "slot": style(row.implementation).slot}
            walls.append({**at, "text": f"out of memory at {row.n:,}"})
    ends = [(line[-1], 1 if name == "projections" else 2) for name, line in measured.items() if line]
    spec["layer"] += _dots(frame)
    _add(spec, frame, "walls", walls, _walls(frame))
    _add(spec, frame, "guides", _guides(frame, ends), _guide(frame))
    return spec


def together(choice: Choice, found: Measurement) -> Spec:
    """Both, side by side, for a file."""
    parts, datasets, config = list[Spec](), dict[str, Any](), Spec()
    for title, spec in (
        ("Peak memory, MB", memory_chart(choice, found)),
        ("Time, ms", time_chart(choice, found)),
    ):
        config = spec.pop("config")
        for name, rows in spec.pop("datasets").items():
            datasets[f"{title} {name}"] = rows
        for one in spec["layer"]:
            if name := one["data"].get("name"):
                one["data"] = {"name": f"{title} {name}"}
        parts.append({**spec, "width": EXPORT_WIDTH, "title": {"text": title, "anchor": "start"}})
    resolve = {"scale": {"color": "shared", "strokeDash": "shared"}}
    return {"hconcat": parts, "resolve": resolve, "config": config, "datasets": datasets}


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


def _points(rows: Sequence[Row], field: str, unit: int) -> dict[str, list[tuple[float, float]]]:
    """By implementation, n and value of the rows that have one, smallest n first."""
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in IMPLEMENTATIONS}
    for row in sorted(rows, key=lambda row: row.n):
        if value := getattr(row, field):
            found[row.implementation].append((row.n, value / unit))
    return found


def _lines(choice: Choice, points: dict[str, list[tuple[float, float]]]) -> list[Line]:
    names = choice.plan.implementations if choice.plan else IMPLEMENTATIONS
    order = sorted(names, key=lambda name: name == "explicit")  # the one it is about on top
    return [Line(name, style(name), (Curve(tuple(points[name])),)) for name in order]


def _dashed(points: dict[str, list[tuple[float, float]]], field: str) -> list[Spec]:
    return [
        {"n": n, field: value, "name": name, "slot": style(name).slot, "dash": "dashed"}
        for name, line in points.items()
        for n, value in line
    ]


def _guides(frame: Frame, ends: Sequence[tuple[tuple[float, float], int]]) -> list[Spec]:
    """Each slope below the lowest of the lines that are held against it. ends: a last point and its slope."""
    rows = list[Spec]()
    for slope in (1, 2):
        of = [end for end, kind in ends if kind == slope]
        if not of:
            continue
        n, value = min(of, key=lambda end: end[1] / end[0] ** slope)
        end = min(n, frame.steps / 2)  # clear of the names
        top = 0.45 * value * (end / n) ** slope
        start = max(frame.across.first, end / GUIDED, end * (frame.low / top) ** (1 / slope))
        if top <= frame.low or start >= end:
            continue
        for at in (start, end):
            row = {"n": at, frame.field: top * (at / end) ** slope, "slope": f"slope {slope}"}
            rows.append({**row, "text": f"slope {slope}" if at == end else ""})
    return rows


# Layers.


def _add(spec: Spec, frame: Frame, name: str, rows: list[Spec], layers: list[Spec]) -> None:
    """A dataset and its layers; always the same layers, so that new rows redraw nothing else."""
    spec["layer"] += layers
    empty = {
        "n": None,
        frame.field: None,
        "slot": "red",
        "dash": "dashed",
        "text": "",
        "slope": "",
        "name": "",
    }
    spec["datasets"][name] = rows or [empty]


def _place(frame: Frame) -> Spec:
    across = frame.across
    x = vega.x_axis(
        "n", frame.steps, list(across.ticks), across.title, across.first,
        log=True, gutter=frame.gutter, form=across.form,
    )  # fmt: skip
    scale = {"type": "log", "domain": [frame.low, frame.high]}
    return {"x": x, "y": vega.y_axis(frame.field, scale, list(frame.ticks), frame.form)}


def _predicted(frame: Frame) -> list[Spec]:
    line = {"type": "line", "strokeWidth": 1.5, "strokeDash": [5, 4], "clip": True}
    return [layer("predicted", line, {**_place(frame), "color": COLOR, "detail": {"field": "name"}})]


def _dots(frame: Frame) -> list[Spec]:
    dots = {"type": "point", "filled": True, "size": 28, "opacity": 1, "clip": True}
    return [layer("curves", dots, {**_place(frame), "color": COLOR}, "mean")]


def _walls(frame: Frame) -> list[Spec]:
    cross = {"type": "point", "shape": CROSS, "size": 90, "strokeWidth": 2.5, "opacity": 1}
    note = {"type": "text", "color": INK, "align": "right", "dx": -10, "dy": -6, "fontSize": 12}
    place = _place(frame)
    return [
        layer("walls", cross, {**place, "color": COLOR}),
        layer("walls", note, {**place, "text": {"field": "text"}}),
    ]


def _guide(frame: Frame) -> list[Spec]:
    line = {"type": "line", "color": GRAY, "strokeWidth": 1.25, "strokeDash": [1, 3]}
    note = {"type": "text", "color": GRAY, "align": "left", "dx": 5, "dy": 5, "fontSize": 12}
    place = _place(frame)
    return [
        layer("guides", line, {**place, "detail": {"field": "slope"}}),
        layer("guides", note, {**place, "text": {"field": "text"}}),
    ]


def _budget(frame: Frame) -> list[Spec]:
    place = _place(frame)
    span = {"x": {"datum": frame.across.first}, "x2": {"datum": frame.steps}, "y": place["y"]}
    note = {"type": "text", "color": INK, "align": "left", "dx": 4, "dy": -8, "fontSize": 12}
    return [
        layer("budget", {"type": "rule", "color": INK, "strokeWidth": 1.5, "clip": True}, span),
        layer("budget", note, {"x": span["x"], "y": place["y"], "text": {"field": "text"}}),
    ]
