"""When a pair of heads forms: scores over the kept steps, beside the loss, and what they are at one step."""

from collections.abc import Sequence

import altair as alt

from engine.chapter.definitions import ACCURACY
from engine.circuits.results import Head
from engine.probes.results.induction import Ablation, Formation
from lab.bench import Table
from lab.bench.tables import number
from lab.charts import drawing
from lab.charts import lines as charts
from lab.charts.axes import DASHED, note, rows
from lab.charts.drawing import Rows, Spec
from lab.charts.lines import Across, Curve, Line, Plot, Point
from lab.sections.induction.parts import LOSS, SCORE, Rise, nats, percent
from lab.sections.induction.probe import head_name, head_names
from lab.shell.styles import Style
from lab.words import NBSP, quantity

KINDS = {"previous_token": "previous-token score", "prefix_matching": "prefix-matching score"}
TITLES = {
    "losses": "Loss on the second half, and in-context score :gray[nats]",
    "previous_token": "Previous-token score :gray[weight on the token before]",
    "prefix_matching": "Prefix-matching score :gray[weight on what came after the last time]",
}
ROLES = {"previous": "looks one token back", "matching": "finds what came after"}
ROLE_OF = {"previous_token": "previous", "prefix_matching": "matching"}
SLOTS = {"previous": "blue", "matching": "violet"}  # of heads with a role; the others are gray
NOT_YET = "A pair stands at none of these steps to the end"
LOW_HEIGHT, HIGH_HEIGHT = 110, 150  # px
LABELS = 28  # px for the numbers left of the curves: the three step axes stand over one another

Curves = dict[str, tuple[Point, ...]]  # by metric, of the run that is looked into


def score(value: float | None) -> str:
    """A mean attention weight: two decimals."""
    return quantity(value, 2)


def slot(found: Formation | Ablation, head: Sequence[int]) -> str:
    """The colour of a head: that of its role at the end, gray without one."""
    return next((SLOTS[role] for role in SLOTS if tuple(head) in getattr(found, role)), "gray")


def mark(found: Formation | Ablation, head: Sequence[int]) -> str:
    """A head's dot and name, as Markdown."""
    return f":{slot(found, head)}[●]{NBSP}{head_name(list(head))}"


def stacked(found: Formation, curves: Curves, at: int) -> dict[str, Spec]:
    """Three charts over one another, on one step axis, each with the step of formation and the chosen one."""
    here, formed = [{"step": at}], _formed(found)
    drawn = {"losses": (_losses(found), _loss_lines(curves))}
    drawn |= {kind: (_scores(found, kind), _score_lines(found, kind)) for kind in KINDS}
    return {
        name: charts.line_chart(frame, lines, here=here, formed=formed)
        for name, (frame, lines) in drawn.items()
    }


def _losses(found: Formation) -> Plot:
    return Plot(
        steps=found.steps[-1],
        low=-5,
        high=5,
        field="nats",
        log=False,
        ticks=(-4, -2, 0, 2, 4),
        form="~g",
        shown=nats,
        height=LOW_HEIGHT,
        across=Across(title=""),
        labels=LABELS,
        over=(_forming, charts.here, _named),
    )


def _loss_lines(curves: Curves) -> list[Line]:
    return [
        Line("loss, second half", Style("ink"), (Curve(curves[LOSS]),)),
        Line("in-context score", Style("ink", "dashed"), (Curve(curves[SCORE]),)),
    ]


def _scores(found: Formation, kind: str) -> Plot:
    return Plot(
        steps=found.steps[-1],
        low=-0.02,
        high=1,
        field="score",
        log=False,
        ticks=(0, 0.5, 1),
        form="~g",
        shown=score,
        height=HIGH_HEIGHT,
        across=Across(title="training step" if kind == list(KINDS)[-1] else ""),
        labels=LABELS,
        over=(_forming, charts.here),
    )


def _score_lines(found: Formation, kind: str) -> list[Line]:
    lines = []
    for layer, row in enumerate(found.scores[0].of(kind)):
        for head in range(len(row)):
            values = [at.of(kind)[layer][head] for at in found.scores]
            with_role = Head(layer, head) in getattr(found, ROLE_OF[kind])
            look = Style(SLOTS[ROLE_OF[kind]]) if with_role else Style("gray")
            points = tuple(zip(found.steps, values, strict=True))
            lines.append(Line(head_name([layer, head]), look, (Curve(points),)))
    return sorted(lines, key=lambda line: line.style.slot != "gray")


def _formed(found: Formation) -> Rows:
    step = found.formed
    return [] if step is None else [{"step": step, "text": f"the pair forms: {step:,}"}]


def _forming(frame: Plot) -> list[alt.Chart]:
    return [rows("formed").mark_rule(**DASHED).encode(x=frame.x)]


def _named(frame: Plot) -> list[alt.Chart]:
    layer = rows("formed").encode(x=frame.x, y=alt.value(0))
    return [note(layer, align="right", dx=-4, baseline="top")]


def together(specs: dict[str, Spec]) -> Spec:
    """The three as one chart, for a file."""
    drawn = {}
    for name, spec in specs.items():
        height = LOW_HEIGHT if name == "losses" else HIGH_HEIGHT
        title = {"text": KINDS.get(name, "nats"), "anchor": "start"}
        drawn[name] = {**spec, "height": height, "width": 1000, "title": title}
    return drawing.together(drawn, "vconcat")


def csv_rows(found: Formation) -> list[tuple[object, ...]]:
    """Every score of every head at every kept step; the first row names the columns."""
    rows: list[tuple[object, ...]] = [("step", "head", *KINDS)]
    for step, scores in zip(found.steps, found.scores, strict=True):
        for layer, row in enumerate(scores.previous_token):
            for head, previous in enumerate(row):
                name = head_name([layer, head])
                rows.append((step, name, previous, scores.prefix_matching[layer][head]))
    return rows


def scores_table(found: Formation, at: int) -> Table:
    """Both scores of every head at a step, and those of a head that looks at all it sees alike."""
    scores = found.scores[found.steps.index(at)]
    lines = []
    for layer, row in enumerate(scores.previous_token):
        for head in range(len(row)):
            values = (scores.of(kind)[layer][head] for kind in KINDS)
            cells = (number(value, score, bold=value >= found.threshold) for value in values)
            lines.append((mark(found, (layer, head)), *cells))
    alike = (number(found.all_alike.of(kind), score, color="gray") for kind in KINDS)
    lines.append((":gray[all alike]", *alike))
    return Table((f"head, step {at:,}", "previous token", "prefix matching"), lines)


def first_reached(found: Formation, kind: str) -> int | None:
    """The first kept step at which some head's score of that kind counts as a role."""
    for step, scores in zip(found.steps, found.scores, strict=True):
        if max(value for row in scores.of(kind) for value in row) >= found.threshold:
            return int(step)
    return None


def formed_words(found: Formation, rose: Rise | None) -> str:
    """The step of formation by its rule, and how it lies to the rise of the ability."""
    least = score(found.threshold)
    rule = (
        f"A pair stands where a head has a previous-token score of at least {least} and one of a later layer "
        f"a prefix-matching score of at least {least}."
    )
    if found.formed is None:
        last = found.scores[-1]
        highest = " and ".join(score(max(value for row in last.of(kind) for value in row)) for kind in KINDS)
        why = "" if len(last.previous_token) > 1 else " There is no later layer here, so none can."
        return f"{rule} {NOT_YET}: at the last one the highest scores are {highest}.{why}"
    return f"{rule} From **step {found.formed:,}** on it does, at every kept step. {_beside(found, rose)}"


def _beside(found: Formation, rose: Rise | None) -> str:
    reached = {kind: first_reached(found, kind) for kind in KINDS}
    first = sorted((step, KINDS[kind]) for kind, step in reached.items() if step is not None)
    if first[0][0] == first[-1][0]:
        said = "Both scores reach that at the same kept step."
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
    back, after = scores.previous_token[early[0]][early[1]], scores.prefix_matching[late[0]][late[1]]
    return (
        f"{can}\n\nThe best pair: {mark(found, early)} looks one token back with a mean weight of "
        f"{score(back)}, and {mark(found, late)} at what came after the last time with {score(after)}."
    )


def _value(points: Sequence[Point], at: int) -> float | None:
    """The figure at the newest evaluation up to a step."""
    return next((value for step, value in reversed(points) if step <= at), None)


def sharing(found: Formation) -> str:
    """Who has a role at the end."""
    if not found.previous:
        return ""
    every = len(head_names(found.scores[-1].previous_token))
    counts = {role: len(getattr(found, role)) for role in ROLES}
    told = [
        f"{counts[role]} of {every} heads {ROLES[role].replace('looks', 'look').replace('finds', 'find')}"
        if counts[role] > 1
        else f"one head {ROLES[role]}"
        for role in ROLES
    ]
    return f"At the last step {told[0]} and {told[1]}."
