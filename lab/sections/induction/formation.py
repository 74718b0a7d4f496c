"""When a pair of heads forms: scores over the kept steps, beside the loss, and what they are at one step."""

from collections.abc import Iterator, Sequence
from typing import Any

import altair as alt

from engine.chapter.definitions import ACCURACY
from engine.circuits.results import COPIES, FOUND, Head, HeadScores
from engine.probes.results.induction import Ablation, Formation
from lab.bench import Cell, Table
from lab.bench.tables import NO_NUMBER, number
from lab.charts import drawing
from lab.charts import lines as charts
from lab.charts.axes import DASHED, note, rows
from lab.charts.drawing import Spec
from lab.charts.lines import Across, Curve, Line, Plot, Point
from lab.sections.induction.parts import LOSS, SCORE, Rise, nats, percent
from lab.shell.styles import Style
from lab.words import NBSP, quantity

KINDS = {"previous_token": "previous-token score", "prefix_matching": "prefix-matching score"}
SCORES = {**KINDS, "copying": "copying score"}  # that one is of a head’s weights, not of its attention
COLUMNS = ("previous token", "prefix matching", "copying")
TITLES = {
    "losses": "Loss on the second half, and in-context score :gray[nats]",
    "previous_token": "Previous-token score :gray[weight on the token before]",
    "prefix_matching": "Prefix-matching score :gray[weight on what followed the previous occurrence]",
    "copying": "Copying score :gray[1: it raises the logits of what it attends to, −1: it lowers them]",
}
ROLE_OF = {"previous_token": "previous", "prefix_matching": "matching", "copying": "matching"}
SLOTS = {"previous": "blue", "matching": "violet"}  # of heads with a role; the others are gray
NOT_YET = "A pair stands at none of these steps to the end"
LOW_HEIGHT, HIGH_HEIGHT = 110, 150  # px
LABELS = 28  # px for the numbers left of the curves: the three step axes stand over one another

Curves = dict[str, tuple[Point, ...]]  # by metric, of the run that is looked into


def score(value: float | None) -> str:
    """Two decimals."""
    return quantity(value, 2)


def slot(found: Formation | Ablation, head: Head) -> str:
    """The colour of a head: that of its role at the end, gray without one."""
    return next((SLOTS[role] for role in SLOTS if head in getattr(found, role)), "gray")


def mark(found: Formation | Ablation, head: Head) -> str:
    """A head's dot and name, as Markdown."""
    return f":{slot(found, head)}[●]{NBSP}{head.name}"


def stacked(found: Formation, curves: Curves, at: int) -> dict[str, Spec]:
    """Four charts over one another, on one step axis, each with the step of formation and the chosen one."""
    last = found.steps[-1]
    shared: dict[str, Any] = {"steps": last, "log": False, "form": "~g", "labels": LABELS}
    frame = Plot(
        low=-5, high=5, field="nats", ticks=(-4, -2, 0, 2, 4), shown=nats, height=LOW_HEIGHT,
        across=Across(title=""), over=(_forming, charts.here, _named), **shared,
    )  # fmt: skip
    losses = [
        Line("loss, second half", Style("ink"), (Curve(curves[LOSS]),)),
        Line("in-context score", Style("ink", "dashed"), (Curve(curves[SCORE]),)),
    ]
    drawn = {"losses": (frame, losses)}
    for kind in SCORES:
        low, ticks = (-1.04, (-1, 0, 1)) if kind == "copying" else (-0.02, (0, 0.5, 1))
        frame = Plot(
            low=low, high=1.04, field="score", ticks=ticks, shown=score, height=HIGH_HEIGHT,
            across=Across(title="training step" if kind == "copying" else ""), over=(_forming, charts.here),
            **shared,
        )  # fmt: skip
        drawn[kind] = frame, _score_lines(found, kind)
    formed = [] if (step := found.formed) is None else [{"step": step, "text": f"the pair forms: {step:,}"}]
    return {
        name: charts.line_chart(frame, lines, here=[{"step": at}], formed=formed)
        for name, (frame, lines) in drawn.items()
    }


def _score_lines(found: Formation, kind: str) -> list[Line]:
    role, lines = ROLE_OF[kind], []
    for head in found.scores[0].heads:
        look = Style(SLOTS[role] if head in getattr(found, role) else "gray")
        values = (scores.of(kind, head) for scores in found.scores)
        lines.append(Line(head.name, look, (Curve(tuple(zip(found.steps, values, strict=True))),)))
    return sorted(lines, key=lambda line: line.style.slot != "gray")


def _forming(frame: Plot) -> list[alt.Chart]:
    return [rows("formed").mark_rule(**DASHED).encode(x=frame.x)]


def _named(frame: Plot) -> list[alt.Chart]:
    return [note(rows("formed").encode(x=frame.x, y=alt.value(0)), align="right", dx=-4, baseline="top")]


def together(specs: dict[str, Spec]) -> Spec:
    """All of them as one chart, for a file."""
    drawn = {}
    for name, spec in specs.items():
        height = LOW_HEIGHT if name == "losses" else HIGH_HEIGHT
        title = {"text": SCORES.get(name, "nats"), "anchor": "start"}
        drawn[name] = {**spec, "height": height, "width": 1000, "title": title}
    return drawing.together(drawn, "vconcat")


def csv_rows(found: Formation) -> Iterator[tuple[object, ...]]:
    """Every score of every head at every kept step; the first row names the columns."""
    yield "step", "head", *SCORES
    for step, scores in zip(found.steps, found.scores, strict=True):
        for head in scores.heads:
            yield step, head.name, *(scores.of(kind, head) for kind in SCORES)


def scores_table(found: Formation, at: int) -> Table:
    """The scores of every head at a step, and those of a head that looks at all it sees alike."""
    scores = found.scores[found.steps.index(at)]
    lines = []
    for head in scores.heads:
        lines.append((mark(found, head), *score_cells(scores, head)))
    alike = (number(found.all_alike.of(kind), score, color="gray") for kind in KINDS)
    lines.append((":gray[all alike]", *alike, NO_NUMBER))
    return Table((f"head, step {at:,}", *COLUMNS), lines)


def score_cells(scores: HeadScores, head: Head) -> Iterator[Cell]:
    """One head's scores, those bold that count."""
    return (number(scores.of(kind, head), score, bold=scores.has(kind, head)) for kind in SCORES)


def highest(scores: HeadScores, kind: str) -> float:
    """The highest score of a kind."""
    return scores.of(kind, scores.best(kind))


def formed_words(found: Formation, rose: Rise | None) -> str:
    """The step of formation by its rule, and how it lies to the rise of the ability."""
    least = score(FOUND)
    rule = (
        f"A pair stands where a head has a previous-token score of at least {least} and one of a later layer "
        f"is an induction head: it has a prefix-matching score of at least {least} and a copying score of at "
        f"least {score(COPIES)}."
    )
    if found.formed is None:
        last = found.scores[-1]
        back, after, copied = (score(highest(last, kind)) for kind in SCORES)
        most = f"{back}, {after} and, of copying, {copied}"
        why = "" if len(last.previous_token) > 1 else " There is no later layer here, so none can."
        return f"{rule} {NOT_YET}: at the last one the highest scores are {most}.{why}"
    return f"{rule} From **step {found.formed:,}** on it does, at every kept step. {_beside(found, rose)}"


def _beside(found: Formation, rose: Rise | None) -> str:
    kept = list(zip(found.steps, found.scores, strict=True))
    first = sorted(
        next((step, name) for step, at in kept if highest(at, kind) >= FOUND) for kind, name in KINDS.items()
    )
    if first[0][0] == first[-1][0]:
        said = "Both attention scores reach that at the same kept step."
    else:
        said = f"The {first[0][1]} is there first, at step {first[0][0]:,}; the other at {first[1][0]:,}."
    at = found.formed
    if rose is None or at is None:
        return said
    when = "before" if at < rose.start else "during" if at <= rose.end else "after"
    return (
        f"{said} The accuracy goes from a tenth to nine tenths of its rise between step {rose.start:,.0f} "
        f"and step {rose.end:,.0f}: the pair forms **{when}** it."
    )


def step_words(found: Formation, curves: Curves, at: int) -> str:
    """One step in words: what the model can do there, and its best pair."""
    figures = {metric: _value(points, at) for metric, points in curves.items()}
    pair = found.pairs[found.steps.index(at)]
    can = (
        f"After step {at:,} the model names **{percent(figures[ACCURACY])}** of the second half, at a loss "
        f"of {nats(figures[LOSS])} nats; the in-context score is {nats(figures[SCORE])}."
    )
    if pair is None:
        return f"{can}\n\nNo pair stands at this step."
    scores, (early, late) = found.scores[found.steps.index(at)], pair
    back, after = scores.of("previous_token", early), scores.of("prefix_matching", late)
    return (
        f"{can}\n\nThe best pair: {mark(found, early)} looks one token back with a mean weight of "
        f"{score(back)}, and {mark(found, late)} at the token that followed the previous occurrence with "
        f"{score(after)}; its copying score is {score(scores.of('copying', late))}."
    )


def _value(points: Sequence[Point], at: int) -> float | None:
    """The figure at the newest evaluation up to a step."""
    return next((value for step, value in reversed(points) if step <= at), None)


def sharing(found: Formation) -> str:
    """Who has a role at the end."""
    if not found.previous:
        return ""
    every, looking, inducing = len(found.scores[-1].heads), len(found.previous), len(found.matching)
    looks = "1 looks" if looking == 1 else f"{looking} look"
    are = "1 is an induction head" if inducing == 1 else f"{inducing} are induction heads"
    return f"Of the {every} heads, at the last step {looks} one token back and {are}."
