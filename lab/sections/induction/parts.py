"""What the page on induction draws and says of its runs: curves, results, guesses, seeds."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from engine.chapter import reference
from engine.chapter.definitions import ACCURACY, ids
from engine.chapter.language_experiments import INDUCTION
from engine.chapter.language_variants import ONE_LAYER, TWO_LAYERS
from lab import bench
from lab.bench import Cell, Figure, Question, Sweep, Table, tables
from lab.charts.lines import Line, Point
from lab.charts.panels import Panel, Part
from lab.shell.frame import dot
from lab.shell.styles import style
from lab.words import NBSP, plain, quantity

ONE, TWO = ids(ONE_LAYER, TWO_LAYERS)
LEVEL, LOSS, SCORE = "early_accuracy", "late_loss_nats", "in_context_nats"
NEAR = 0.1  # of the no-context level: what is within it is no continuing of a repeat
SUDDEN = 0.25  # of the steps: a rise that takes more of them is gradual
TENTH = 0.1  # of a rise, after which it counts as begun, and before the end of it as done


def percent(share: float | None) -> str:
    """A share: "98.2 %"."""
    return "–" if share is None else f"{quantity(100 * share)}{NBSP}%"


def nats(value: float | None) -> str:
    """Two decimals."""
    return quantity(value, 2)


_OF, _LATE = "share of tokens", "nats, late loss minus early loss"
PANELS = (
    Panel(ACCURACY, "Right on the second half", _OF, -0.03, 1.04, (0, 0.5, 1), False, ".0%", percent),
    Panel(LOSS, "Loss on the second half", "nats", 0, 5, (0, 2, 4), False, "~g", nats),
    Panel(SCORE, "In-context score", _LATE, -5, 1, (-4, -2, 0), False, "~g", nats),
)
COLUMNS = ("model", "second half right", "no-context level", "in-context score")


def figure(sweep: Sweep) -> Figure:
    """Three figures over the steps, both models in each."""
    return bench.small_multiples(
        "What two layers learn and one does not",
        "over the steps",
        f"induction-{sweep.request.budget}",
        parts,
        INDUCTION.budget(sweep.request.budget).steps,
        key="induction",
        rows=table_rows,
    )


def parts(sweep: Sweep) -> list[Part]:
    """The three figures over the steps, both models in each."""
    return [
        Part(panel, [Line(v.short, style(v.id), sweep.curves(v.id, panel.metric)) for v in INDUCTION.models])
        for panel in PANELS
    ]


def table_rows(sweep: Sweep) -> list[tuple[object, ...]]:
    """Every figure of every finished run, for a file; the first row names the columns."""
    names = (ACCURACY, LEVEL, LOSS, "early_loss_nats", SCORE)
    rows: list[tuple[object, ...]] = [("model", "seed", "run", "state", *names)]
    for digest, run in sweep.measured.items():
        spec = sweep.wanted[digest]
        rows.append((spec.variant, spec.seed, run.id, run.state, *map(run.measured.get, names)))
    return rows


def results(sweep: Sweep) -> Table:
    """Yours, then the shipped ones, where there are any."""
    shown = {ACCURACY: percent, LEVEL: percent, SCORE: nats}
    rows = list[tuple[str | Cell, ...]]()
    for name in INDUCTION.variants:
        cells = (tables.yours(sweep.row(name, metric), form) for metric, form in shown.items())
        rows.append((f"{_model(name)}, yours", *cells))
    for name in INDUCTION.variants if reference.load(INDUCTION.id) else ():
        cells = (tables.shipped(sweep.row(name, metric), metric, form) for metric, form in shown.items())
        rows.append((f"{_model(name)}, shipped", *cells))
    return Table(COLUMNS, rows)


def _model(name: str) -> str:
    return f"{dot(name)}{NBSP}{plain(INDUCTION.variant(name).short)}"


def caption(sweep: Sweep) -> str:
    """What the columns hold, and whose figures they are."""
    seeds = max(len(sweep.row(name, ACCURACY).yours) for name in INDUCTION.variants)
    shipped = reference.load(INDUCTION.id)
    steps, full = (INDUCTION.budget(name).steps for name in (sweep.request.budget, "chapter"))
    said = [
        "On 256 sequences that are never trained on. No-context level: right tokens where nothing before "
        "tells the next. In-context score: loss on the second half less loss there, in nats.",
        f"Mean ± standard deviation over {seeds} seeds." if seeds > 1 else "One seed: no spread.",
        f"Shipped: {plain(shipped.device)}, {shipped.date}, {full:,} steps."
        if shipped
        else "No reference is shipped with this copy.",
    ]
    if shipped and steps != full:
        said.append(f"Yours: {steps:,} steps.")
    return " ".join(said)


@dataclass(frozen=True)
class Rise:
    """When a figure rose: the steps of the last evaluation under a tenth of all it gains, and of the first
    over nine tenths. total: steps of the run.
    """

    start: float
    end: float
    total: float

    @property
    def share(self) -> float:
        """Of all steps."""
        return (self.end - self.start) / self.total

    @property
    def sudden(self) -> bool:
        """Whether it took less than a quarter of them."""
        return self.share < SUDDEN


def rise(points: Sequence[Point]) -> Rise | None:
    """The rise of an accuracy over the steps; None where it gains less than a half."""
    if not points:
        return None
    first, best = points[0][1], max(value for _, value in points)
    if best - first < 0.5:
        return None
    low, high = first + TENTH * (best - first), best - TENTH * (best - first)
    end = next(step for step, value in points if value >= high)
    start = max((step for step, value in points if step < end and value < low), default=points[0][0])
    return Rise(start, end, points[-1][0])


def repeats(sweep: Sweep) -> str:
    """How much of a repeat one layer continues."""
    one, level, two = sweep.row(ONE, ACCURACY), sweep.row(ONE, LEVEL), sweep.row(TWO, ACCURACY)
    if one.mean is None or two.mean is None or level.mean is None:
        return ""
    gap = one.mean - level.mean
    stays = f"it stays within {quantity(100 * NEAR, 0)} points of that"
    if gap > NEAR:
        stays = f"some of the repeat helps it, and {quantity(100 * (two.mean - one.mean))} points are missing"
    return (
        f"One layer names **{percent(one.mean)}** of the second half, two layers **{percent(two.mean)}**. "
        f"Where nothing can be known one layer names {percent(level.mean)}: {quantity(100 * gap)} points "
        f"less, so {stays}."
    )


def emerges(sweep: Sweep) -> str:
    """How the ability comes in two layers."""
    rises = [rise(curve.points) for curve in sweep.curves(TWO, ACCURACY)]
    found = [one for one in rises if one]
    if not found:
        return "On this budget two layers do **not** gain a half: train longer."
    middle = statistics.median(one.share for one in found)
    if len(found) == 1:
        where = f"between step {found[0].start:,.0f} and step {found[0].end:,.0f}"
    else:
        where = (
            f"within {min(one.end - one.start for one in found):,.0f} to "
            f"{max(one.end - one.start for one in found):,.0f} steps, by seed"
        )
    verdict = "all at once" if all(one.sudden for one in found) else "gradually"
    lost = f" {len(rises) - len(found)} of {len(rises)} seeds gain less than a half." * (found != rises)
    return (
        f"In two layers it comes **{verdict}**: from a tenth to nine tenths of all they gain {where}, which "
        f"is {percent(middle)} of the steps.{lost}"
    )


QUESTIONS = (
    Question(
        "repeat",
        "Before you train: how much of a repeat can one layer continue?",
        {"no": "hardly any of it", "half": "about half", "yes": "nearly all"},
        repeats,
    ),
    Question(
        "how",
        "And how does the ability emerge with two layers?",
        {"gradual": "gradually", "sudden": "all at once", "never": "it does not"},
        emerges,
    ),
)
