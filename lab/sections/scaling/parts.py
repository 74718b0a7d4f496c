"""Figures, rows and tables of the sweeps over head widths and over ways to scale."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import streamlit as st

from engine.chapter.experiments import GAP, PERPLEXITY, SCALING, SCALING_LONG, SCALING_WIDE, Experiment
from engine.chapter.variant import Variant
from engine.chapter.variants import UNDIVIDED
from lab import bench
from lab.bench import Figure, Request, Row, Sweep, Table, difference, tables
from lab.charts.lines import Line
from lab.charts.panels import Panel, Part
from lab.settings import Setting
from lab.shell.frame import dot
from lab.shell.styles import dashed_last, style
from lab.words import NBSP, points, quantity, signed

KINDS = ("divided", "undivided")
CHAPTER = {**SCALING_LONG.chapter, **SCALING.chapter, **SCALING_WIDE.chapter}


def figure(value: float | None) -> str:
    """A spread or an entropy, three digits: "0.67", "21.4", "5,147"."""
    if value is None:
        return "–"
    return quantity(value, 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2)


def small(value: float | None) -> str:
    """A figure that may be near nothing: "0.017"."""
    return quantity(value, 3) if value is not None and abs(value) < 1 else figure(value)


def share(value: float | None) -> str:
    """A share as percent: "99.9 %"."""
    return "–" if value is None else f"{quantity(100 * value)}{NBSP}%"


SPREAD = Panel("score_std", "Spread of scores", "std, log", 0.3, 10_000, (1, 10, 100, 1000), shown=figure)
ENTROPY = Panel("entropy_nats", "Entropy", "nats, log", 0.001, 6, (0.001, 0.01, 0.1, 1), shown=small)
FROZEN = Panel("frozen_share", "Rows over 0.99", "share", -0.03, 1.04, (0, 0.5, 1), False, ".0%", shown=share)
GRADIENT = Panel("grad_norm_W_Q", "Gradient of W_Q", "norm, log", 0.01, 10, (0.01, 0.1, 1, 10), shown=small)
LOSS = Panel(PERPLEXITY, "Perplexity", "held out, log, lower is better", 25, 1280, (30, 100, 300, 1000))
PANELS = (SPREAD, ENTROPY, FROZEN, GRADIENT, LOSS)
# Other scales make scores smaller as well.
SCALES_PANELS = (
    replace(SPREAD, low=0.003, ticks=(0.01, 1, 100)),
    ENTROPY,
    FROZEN,
    replace(GRADIENT, low=1e-4, ticks=(0.0001, 0.01, 1)),
    LOSS,
)


@dataclass(frozen=True)
class Pair:
    """One row of the sweep: two heads of one d_head that differ in the division only.

    divided: the one that divides. experiment: which of the two that the sweep joins asks for it.
    """

    divided: Variant
    experiment: Experiment

    @property
    def id(self) -> str:
        """Its name in the URL: "1024", "128-block"."""
        config = self.divided.config
        return f"{config.effective_d_head}{'-block' if config.d_ff and config.n_head == 1 else ''}"

    @property
    def names(self) -> tuple[str, str]:
        """Its two variants, divided and undivided."""
        return self.divided.id, UNDIVIDED[self.divided.id].id

    def of(self, sweep: Sweep) -> Sweep:
        """Its runs."""
        return sweep.part(lambda spec: spec.variant in self.names, self.experiment)

    def steps(self, budget: str) -> int:
        """How long it trains on a budget."""
        return self.experiment.budget(budget, self.names[0]).steps

    def label(self, budget: str) -> str:
        """ "d_k 128", with what sets it apart: a whole block around it, or steps of its own."""
        config, steps = self.divided.config, self.steps(budget)
        apart = [f"d_k{NBSP}{config.effective_d_head}"]
        if config.d_ff:
            apart.append("in a block")
        if self.experiment is SCALING_WIDE:
            apart.append("model as wide")
        if steps != SCALING.budget(budget).steps:
            apart.append(f"{steps:,}{NBSP}steps")
        return ", ".join(apart)

    @property
    def short(self) -> str:
        """The same for a button."""
        config = self.divided.config
        return f"{config.effective_d_head}{', block' if config.d_ff else ''}"


def _pairs(experiment: Experiment) -> dict[str, Pair]:
    return {made.id: Pair(made, experiment) for made in experiment.models if made.id in UNDIVIDED}


# As the chapter has them: first the heads that train longer, then the others.
PAIRS = tuple((_pairs(SCALING_LONG) | _pairs(SCALING) | _pairs(SCALING_LONG)).values())
WIDEST = PAIRS[-1]
AS_WIDE = tuple(_pairs(SCALING_WIDE).values())


def parts(
    sweep: Sweep, names: Sequence[str], labels: dict[str, str], panels: Sequence[Panel], *, rules: bool
) -> list[Part]:
    """The panels of some variants, the dashed last. rules: whether the chapter's figures are drawn."""
    order = dashed_last(names)
    found = []
    for panel in panels:
        values = [CHAPTER.get((name, panel.metric)) for name in order if rules]
        lines = [Line(labels[name], style(name), sweep.curves(name, panel.metric)) for name in order]
        found.append(Part(panel, lines, tuple((value.middle, False) for value in values if value)))
    return found


def width_parts(sweep: Sweep, row: Pair) -> list[Part]:
    """The five panels of one width."""
    labels = dict(zip(row.names, KINDS, strict=True))
    return parts(row.of(sweep), row.names, labels, PANELS, rules=sweep.of_the_chapters_text)


def worth(sweep: Sweep, width: Pair) -> Row:
    """How many points of perplexity the division is worth, seed by seed."""
    return width.of(sweep).row(width.names[1], GAP)


def pair(sweep: Sweep, width: Pair, metric: str = PERPLEXITY) -> tuple[Row, Row]:
    """The divided and the undivided row of a width."""
    part = width.of(sweep)
    divided, undivided = (part.row(name, metric) for name in width.names)
    return divided, undivided


def winner(divided: Row, undivided: Row) -> str | None:
    """Whose perplexity is the lower: "divided", "undivided", "neither"; None while one is missing.

    A difference within seed noise has no winner; of one seed nobody knows its noise.
    """
    gap = difference(undivided, divided)
    if gap is None:
        stayed = "undivided" if divided.mean is None else "divided"
        alone = (divided.mean is None) != (undivided.mean is None)
        return stayed if alone and (divided.diverged or undivided.diverged) else None
    if gap.level or gap.noise:
        return "neither"
    return "divided" if gap.points > 0 else "undivided"


def perplexity_table(sweep: Sweep) -> Table:
    """Yours: per width both perplexities, what the division is worth, and the winner."""
    rows = []
    for row in PAIRS:
        divided, undivided = pair(sweep, row)
        gain, gap = worth(sweep, row), difference(undivided, divided)
        saved = tables.with_spread(gain.mean, gain.sd, lambda value: signed(value or 0.0), bold=True)
        won = winner(divided, undivided)
        if won in KINDS:
            won = f"{dot(WIDEST.names[KINDS.index(won)])}{NBSP}{won}"
        elif won:
            won = f":gray[tie{', within seed noise' if gap and gap.noise else ''}]"
        both = tables.yours(divided), tables.yours(undivided)
        rows.append((row.label(sweep.request.budget), *both, saved, won or tables.NOTHING))
    return Table(("perplexity", "divided", "undivided", "points saved", "winner"), rows)


def scores_table(sweep: Sweep) -> Table:
    """Yours at the end: per width the spread of the scores and the share of rows that froze."""
    rows = []
    for row in PAIRS:
        cells = (
            tables.yours(figures, panel.shown)
            for panel in (SPREAD, FROZEN)
            for figures in pair(sweep, row, panel.metric)
        )
        rows.append((row.label(sweep.request.budget), *cells))
    columns = ("scores at the end", "std, divided", "std, undivided", "over 0.99, div.", "over 0.99, undiv.")
    return Table(columns, rows)


def beside_the_chapter(sweep: Sweep) -> Table:
    """The four columns of the sweep over widths."""
    return tables.four_columns(sweep, lines(sweep, PAIRS), "beside the chapter")


def lines(sweep: Sweep, widths: Sequence[Pair]) -> list[tables.Line]:
    """What the division is worth at each width, and the chapter's figures of the last."""
    budget = sweep.request.budget
    found = [tables.Line(f"worth, {row.label(budget)}", worth(sweep, row), GAP, points) for row in widths]
    widest = widths[-1].of(sweep)
    divided, undivided = widths[-1].names
    for name, panel, what in (
        (undivided, SPREAD, "std of scores, undivided"),
        (undivided, FROZEN, "rows over 0.99, undivided"),
        (divided, SPREAD, "std of scores, divided"),
    ):
        label = f"{what}, d_k{NBSP}1024"
        found.append(tables.Line(label, widest.row(name, panel.metric), panel.metric, panel.shown))
    return found


def caption(sweep: Sweep, widths: Sequence[Pair] = PAIRS) -> str:
    """Below the four columns: what they hold, and how far they can be compared."""
    return bench.remarks(
        sweep,
        [line.row for line in lines(sweep, widths)],
        "Worth: points of perplexity that the undivided head is behind, paired over seeds.",
    )


def budget_line(request: Request) -> None:
    """What the chosen budget trains."""
    said = f"{request.budget.capitalize()}: {bench.in_words(SCALING.budget(request.budget))}"
    if request.budget == "chapter":
        long = SCALING_LONG.budget("chapter")
        said += (
            f", one head added to the token, no norm; in a block: {long.steps:,} steps of "
            f"{long.batch_size} × {long.context_length}"
        )
    st.caption(f"{said}.")


def widths_figure(sweep: Sweep, width: Setting[str]) -> Figure:
    """The five panels of the width that is chosen above them."""
    row = next(row for row in PAIRS if row.id == width.value)
    budget = sweep.request.budget
    found = bench.small_multiples(
        "One head while it trains",
        row.label(budget),
        f"{SCALING.id}-{budget}-{row.id}",
        lambda now: width_parts(now, row),
        row.steps(budget),
        key="widths",
        widgets=lambda: width.draw(label_visibility="collapsed"),
        progress=lambda now: row.of(now).progress,
    )

    def draw(now: Sweep) -> None:
        found.draw(now)
        st.caption(
            "Scores, weights and rows of 16 held-out windows at each evaluation; the gradient at every tenth "
            f"step. Dashed rules: the chapter, after {row.steps('chapter'):,} steps."
        )

    return replace(found, draw=draw)
