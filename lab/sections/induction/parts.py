"""What the page on induction draws and says of its runs: curves, results, guesses, seeds."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.chapter import reference
from engine.chapter.definitions import ACCURACY, ids
from engine.chapter.language_experiments import INDUCTION
from engine.chapter.language_variants import ONE_LAYER, TWO_LAYERS
from lab.bench import tables
from lab.bench.sweep import Row, Sweep
from lab.charts.lines import Line, Point
from lab.charts.panels import Panel, Part
from lab.shell.frame import dot
from lab.shell.styles import style
from lab.words import NBSP, plain, quantity

if TYPE_CHECKING:
    from pandas.io.formats.style import Styler

ONE, TWO = ids(ONE_LAYER, TWO_LAYERS)
LEVEL, LOSS, SCORE = "early_accuracy", "late_loss_nats", "in_context_nats"
REPEAT_GUESSES = {"no": "Hardly any of it", "half": "About half", "yes": "Nearly all"}
HOW_GUESSES = {"gradual": "Gradually", "sudden": "All at once", "never": "It does not"}
NEAR = 0.1  # of the no-context level: what is within it is no continuing of a repeat
SUDDEN = 0.25  # of the steps: a rise that takes more of them is gradual
TENTH = 0.1  # of a rise, after which it counts as begun, and before the end of it as done


def percent(share: float | None) -> str:
    """A share: "98.2 %"."""
    return "–" if share is None else f"{quantity(100 * share)}{NBSP}%"


def nats(value: float | None) -> str:
    """Two decimals."""
    return quantity(value, 2)


PANELS = (
    Panel(
        ACCURACY,
        "Right on the second half",
        "share of tokens",
        -0.03,
        1.04,
        (0, 0.5, 1),
        False,
        ".0%",
        percent,
    ),
    Panel(LOSS, "Loss on the second half", "nats", 0, 5, (0, 2, 4), False, "~g", nats),
    Panel(SCORE, "In-context score", "nats, loss late less early", -5, 1, (-4, -2, 0), False, "~g", nats),
)
COLUMNS = ("model", "second half right", "no-context level", "in-context score")


def parts(sweep: Sweep) -> list[Part]:
    """The three figures over the steps, both models in each."""
    return [
        Part(
            panel,
            [
                Line(INDUCTION.variant(name).short, style(name), sweep.curves(name, panel.metric))
                for name in INDUCTION.variants
            ],
        )
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


def results(sweep: Sweep) -> "Styler":
    """Yours, then the shipped ones, where there are any."""
    shipped = reference.load(INDUCTION.id)
    numbers, shown = [], []
    for name in INDUCTION.variants:
        rows = [sweep.row(name, metric) for metric in (ACCURACY, LEVEL, SCORE)]
        numbers.append([row.mean for row in rows])
        written = [tables.yours(row, form) for row, form in zip(rows, (percent, percent, nats), strict=True)]
        shown.append((f"{_model(name)}, yours", *written))
    for name in INDUCTION.variants if shipped else ():
        row = shipped.rows[name] if shipped else None
        means = [row.mean(metric) if row else None for metric in (ACCURACY, LEVEL, SCORE)]
        spreads = [row.sd(metric) if row else None for metric in (ACCURACY, LEVEL, SCORE)]
        numbers.append(means)
        written = [
            tables.with_spread(mean, sd, shown=form)
            for mean, sd, form in zip(means, spreads, (percent, percent, nats), strict=True)
        ]
        shown.append((f"{_model(name)}, shipped", *written))
    return tables.cells(COLUMNS, numbers, shown)


def _model(name: str) -> str:
    return f"{dot(name)}{NBSP}{plain(INDUCTION.variant(name).short)}"


def remarks(sweep: Sweep, budget: str) -> str:
    """What the columns hold, and whose figures they are."""
    seeds = max(len(sweep.row(name, ACCURACY).yours) for name in INDUCTION.variants)
    shipped = reference.load(INDUCTION.id)
    steps, full = (INDUCTION.budget(name).steps for name in (budget, "chapter"))
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


def notice(sweep: Sweep, repeat: str | None, how: str | None) -> str:
    """The two guesses answered, and what else there is to notice; of the reader's own runs."""
    one, level, two = sweep.row(ONE, ACCURACY), sweep.row(ONE, LEVEL), sweep.row(TWO, ACCURACY)
    if one.mean is None or two.mean is None or level.mean is None:
        return "A model ended without a figure: it diverged."
    gap = one.mean - level.mean
    stays = f"it stays within {quantity(100 * NEAR, 0)} points of that"
    if gap > NEAR:
        stays = f"some of the repeat helps it, and {quantity(100 * (two.mean - one.mean))} points are missing"
    return "\n\n".join(
        (
            f"{_guessed(REPEAT_GUESSES, repeat)}One layer names **{percent(one.mean)}** of the second half, "
            f"two layers **{percent(two.mean)}**. Where nothing can be known one layer names "
            f"{percent(level.mean)}: {quantity(100 * gap)} points less, so {stays}.",
            f"{_guessed(HOW_GUESSES, how)}{_how(sweep)}",
        )
    )


def _guessed(options: Mapping[str, str], guess: str | None) -> str:
    return f"You guessed *{options[guess].lower()}*. " if guess else ""


def _how(sweep: Sweep) -> str:
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


def seeds_table(sweep: Sweep, seeds: Sequence[int], formed: Mapping[int, int | None]) -> "Styler":
    """One line a seed, then mean and spread. formed: the step by seed, as far as it was looked for."""
    rows = [sweep.row(TWO, ACCURACY), sweep.row(ONE, ACCURACY), sweep.row(ONE, LEVEL)]
    numbers, shown = [], []
    for seed in seeds:
        two, one, level = (row.yours.get(seed) for row in rows)
        gap = one - level if one is not None and level is not None else None
        numbers.append([two, one, level, gap, formed.get(seed)])
        step = _step(formed[seed]) if seed in formed else ":gray[–]"
        shown.append((f"seed {seed}", *map(percent, (two, one, level)), _points(gap), step))
    gaps = _gaps(rows[1], rows[2])
    steps = [float(step) for step in formed.values() if step is not None]
    numbers.append([row.mean for row in rows] + [_mean(gaps), _mean(steps)])
    shown.append(
        (
            "**mean** :gray[± sd]",
            *(tables.with_spread(row.mean, row.sd, bold=True, shown=percent) for row in rows),
            tables.with_spread(_mean(gaps), _sd(gaps), bold=True, shown=_points),
            tables.with_spread(_mean(steps), _sd(steps), bold=True, shown=lambda x: quantity(x, 0)),
        )
    )
    columns = ("yours", "two layers", "one layer", "its no-context level", "one layer above it", "forms at")
    return tables.cells(columns, numbers, shown)


def _gaps(one: Row, level: Row) -> list[float]:
    return [one.yours[seed] - level.yours[seed] for seed in one.yours if seed in level.yours]


def _mean(values: Sequence[float]) -> float | None:
    return statistics.fmean(values) if values else None


def _sd(values: Sequence[float]) -> float | None:
    return statistics.stdev(values) if len(values) > 1 else None


def _points(gap: float | None) -> str:
    return "–" if gap is None else f"{quantity(100 * gap)}{NBSP}points"


def _step(step: int | None) -> str:
    return ":red[never]" if step is None else f"step{NBSP}{step:,}"


def seeds_words(sweep: Sweep, formed: Mapping[int, int | None]) -> str:
    """What the seeds agree on."""
    one, level, two = sweep.row(ONE, ACCURACY), sweep.row(ONE, LEVEL), sweep.row(TWO, ACCURACY)
    if not two.yours or not one.yours:
        return "No run of both models has ended yet. Train them above, on five seeds."
    high = sum(value > 0.95 for value in two.yours.values())
    gaps = _gaps(one, level)
    near = sum(gap <= NEAR for gap in gaps)
    said = [
        f"Two layers name over 95{NBSP}% of the second half on **{high} of {len(two.yours)}** seeds; one "
        f"layer stays within {quantity(100 * NEAR, 0)} points of its no-context level on "
        f"**{near} of {len(gaps)}**."
    ]
    steps = [step for step in formed.values() if step is not None]
    if steps:
        said.append(
            f"The pair forms between step {min(steps):,} and step {max(steps):,}."
            if len(steps) > 1
            else f"The pair forms at step {steps[0]:,}."
        )
    if len(two.yours) < 2:
        said.append("One seed says nothing about another: choose 5 above.")
    return " ".join(said)
