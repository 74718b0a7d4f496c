"""Figures, rows and tables of the sweeps over head widths and over ways to scale."""

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import streamlit as st

from engine.experiments import GAP, PERPLEXITY, SCALES, SCALING, SCALING_LONG, Experiment
from engine.variants import variant
from lab import bench, table
from lab.charts import Line
from lab.controls import NBSP, plain, quantity, signed
from lab.frame import dot
from lab.instruments import Choice
from lab.measured import Gap, Row, Sweep, difference
from lab.small_multiples import Panel, Part
from lab.styles import style

if TYPE_CHECKING:
    from pandas.io.formats.style import Styler

KINDS = ("divided", "undivided")
CHAPTER = {**SCALING_LONG.chapter, **SCALING.chapter}


def figure(value: float | None) -> str:
    """A spread or an entropy, three digits: "0.67", "21.4", "5,147"."""
    if value is None:
        return "–"
    return quantity(value, 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2)


def points(value: float | None) -> str:
    """Points of perplexity, with no more digits than the chapter gives: "18", "17.2"."""
    return quantity(value, 0 if value is not None and float(value).is_integer() else 1)


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
class Width:
    """One row of the sweep: two heads of one width that differ in the division only.

    id: what follows "divided-" in its variants' names, and stands in the URL.
    experiment: which of the two that the sweep joins asks for it.
    """

    id: str
    experiment: Experiment

    @property
    def names(self) -> tuple[str, str]:
        """Its two variants, divided and undivided."""
        divided, undivided = (f"{kind}-{self.id}" for kind in KINDS)
        return divided, undivided

    def of(self, sweep: Sweep) -> Sweep:
        """Its runs."""
        return sweep.part(lambda spec: spec.variant in self.names, self.experiment)

    def steps(self, budget: str) -> int:
        """How long it trains on a budget."""
        return self.experiment.budget(budget, self.names[0]).steps

    def label(self, budget: str) -> str:
        """ "d_k 128", with what sets it apart: a whole block around it, or steps of its own."""
        config, steps = variant(self.names[0]).config, self.steps(budget)
        apart = [f"d_k{NBSP}{config.head_width}"]
        if config.d_ff:
            apart.append("in a block")
        if steps != SCALING.budget(budget).steps:
            apart.append(f"{steps:,}{NBSP}steps")
        return ", ".join(apart)

    @property
    def short(self) -> str:
        """The same for a button."""
        config = variant(self.names[0]).config
        return f"{config.head_width}{', block' if config.d_ff else ''}"


def _widths() -> Iterator[Width]:
    """As the chapter has them: first the heads that train longer, then the others."""
    seen = set[str]()
    for experiment in (SCALING_LONG, SCALING):
        for name in experiment.variants:
            row = Width(name.removeprefix("divided-"), experiment)
            if name.startswith("divided-") and row.id not in seen:
                seen.add(row.id)
                yield row


WIDTHS = tuple(_widths())
WIDEST = WIDTHS[-1]


def parts(
    sweep: Sweep, names: Sequence[str], labels: dict[str, str], panels: Sequence[Panel], *, rules: bool
) -> list[Part]:
    """The panels of some variants, the dashed last. rules: whether the chapter's figures are drawn."""
    order = sorted(names, key=lambda name: style(name).dash != "solid")
    found = []
    for panel in panels:
        values = [CHAPTER.get((name, panel.metric)) for name in order] if rules else []
        lines = [Line(labels[name], style(name), sweep.curves(name, panel.metric)) for name in order]
        found.append(Part(panel, lines, tuple((value.middle, False) for value in values if value)))
    return found


def width_parts(sweep: Sweep, row: Width) -> list[Part]:
    """The five panels of one width."""
    labels = dict(zip(row.names, KINDS, strict=True))
    return parts(row.of(sweep), row.names, labels, PANELS, rules=sweep.of_the_chapters_text)


def worth(sweep: Sweep, width: Width) -> Row:
    """How many points of perplexity the division is worth, seed by seed."""
    divided, undivided = pair(sweep, width)
    name = undivided.variant
    return Row(
        variant=name,
        chapter=CHAPTER.get((name, GAP)),
        reference=undivided.reference,
        yours=_minus(undivided.yours, divided.yours),
        diverged=max(divided.diverged, undivided.diverged),
    )


def pair(sweep: Sweep, width: Width, metric: str = PERPLEXITY) -> tuple[Row, Row]:
    """The divided and the undivided row of a width."""
    part = width.of(sweep)
    divided, undivided = (part.row(name, metric) for name in width.names)
    return divided, undivided


def _minus(one: dict[int, float], other: dict[int, float]) -> dict[int, float]:
    return {seed: one[seed] - other[seed] for seed in one if seed in other}


def winner(divided: Row, undivided: Row) -> str | None:
    """Whose perplexity is the lower: "divided", "undivided", "neither"; None while one is missing.

    A difference within seed noise has no winner; of one seed nobody knows its noise.
    """
    gap = difference(undivided, divided)
    if gap is None:
        both = dict(zip(KINDS, (divided, undivided), strict=True))
        stayed = [kind for kind, row in both.items() if row.mean is not None]
        lost = any(row.diverged for row in both.values())
        return stayed[0] if len(stayed) == 1 and lost else None
    if gap.level or gap.noise:
        return "neither"
    return "divided" if gap.points > 0 else "undivided"


def perplexity_table(sweep: Sweep, budget: str) -> "Styler":
    """Yours: per width both perplexities, what the division is worth, and the winner."""
    numbers, shown = [], []
    for row in WIDTHS:
        divided, undivided = pair(sweep, row)
        gap = difference(undivided, divided)
        numbers.append((divided.mean, undivided.mean, gap.points if gap else None, None))
        shown.append(
            (
                row.label(budget),
                table.yours(divided),
                table.yours(undivided),
                _worth(worth(sweep, row)),
                _winner(winner(divided, undivided), gap),
            )
        )
    columns = ("perplexity", "divided", "undivided", "worth", "winner")
    return table.cells(columns, numbers, shown)


def _worth(row: Row) -> str:
    if row.mean is None:
        return ":gray[–]"
    spread = f"{NBSP}:gray[±{NBSP}{quantity(row.sd)}]" if row.sd is not None else ""
    return f"**{signed(row.mean)}**{spread}"


def _winner(name: str | None, gap: Gap | None) -> str:
    match name:
        case None:
            return ":gray[–]"
        case "neither":
            return ":gray[neither: seed noise]" if gap and gap.noise else ":gray[neither]"
    return f"{dot(f'{name}-32')}{NBSP}{name}"


def scores_table(sweep: Sweep, budget: str) -> "Styler":
    """Yours at the end: per width the spread of the scores and the share of rows that froze."""
    numbers, shown = [], []
    for row in WIDTHS:
        cells = [
            (figures, panel.shown) for panel in (SPREAD, FROZEN) for figures in pair(sweep, row, panel.metric)
        ]
        numbers.append([figures.mean for figures, _ in cells])
        shown.append((row.label(budget), *(table.yours(figures, write) for figures, write in cells)))
    columns = ("scores at the end", "std, divided", "std, undivided", "over 0.99, div.", "over 0.99, undiv.")
    return table.cells(columns, numbers, shown)


def beside_the_chapter(sweep: Sweep, budget: str) -> list[table.Line]:
    """The four columns: what the division is worth at each width, and the chapter's three other figures."""
    lines = [table.Line(f"worth, {row.label(budget)}", worth(sweep, row), GAP, points) for row in WIDTHS]
    widest = WIDEST.of(sweep)
    for name, panel, what in (
        ("undivided-1024", SPREAD, "std of scores, undivided"),
        ("undivided-1024", FROZEN, "rows over 0.99, undivided"),
        ("divided-1024", SPREAD, "std of scores, divided"),
    ):
        line = table.Line(f"{what}, d_k{NBSP}1024", widest.row(name, panel.metric), panel.metric, panel.shown)
        lines.append(line)
    return lines


def results(sweep: Sweep, choice: Choice) -> None:
    """The sweep's three tables, and what they hold."""
    for styler in (perplexity_table(sweep, choice.budget), scores_table(sweep, choice.budget)):
        st.table(styler, border="horizontal", hide_index=True)
    lines = beside_the_chapter(sweep, choice.budget)
    comparable, text = choice.budget == "chapter", sweep.of_the_chapters_text
    st.table(
        table.four_columns(
            lines, comparable=comparable, text=text, columns=("beside the chapter", *table.COLUMNS[1:])
        ),
        border="horizontal",
        hide_index=True,
    )
    rows = [line.row for line in lines]
    said = bench.general_remarks(SCALING, rows, choice)
    said.append("Worth: points of perplexity that the undivided head is behind, paired over seeds.")
    if not text:
        said.append("Yours are of another text, so nothing is compared.")
    elif not comparable:
        said.append(
            f"Chapter and reference trained longer than yours, so a grey difference judges nothing. The "
            f"quick budget already shows that {SCALING.shows}; it cannot show {SCALING.hides}."
        )
    else:
        said.append("Green: a worth within half of the chapter’s, another figure within 3 % of it.")
    st.caption(" ".join(said))


def budget_line(choice: Choice) -> str:
    """What the chosen budget trains."""
    budget = SCALING.budget(choice.budget)
    trained = (
        f"{budget.steps:,} steps of {budget.batch_size} × {budget.context_length} tokens at learning rate "
        f"{budget.learning_rate:g}"
    )
    if choice.budget == "quick":
        return f"Quick: {trained}."
    long = SCALING_LONG.budget("chapter")
    return (
        f"Chapter: {trained}, one head added to the token, no norm; in a block: {long.steps:,} steps of "
        f"{long.batch_size} × {long.context_length}."
    )


def ends(part: Sweep, name: str, metric: str) -> tuple[float, float] | None:
    """A figure of a variant at its first evaluation and at its newest, means over seeds."""
    curves = [curve for curve in part.curves(name, metric) if curve.points]
    if not curves:
        return None
    first, last = ([curve.points[end][1] for curve in curves] for end in (0, -1))
    return statistics.fmean(first), statistics.fmean(last)


def late(part: Sweep, name: str, metric: str) -> float | None:
    """A figure that jumps from step to step, over the last five records, mean over seeds."""
    tails = [[value for _, value in curve.points[-5:]] for curve in part.curves(name, metric)]
    return statistics.fmean(value for tail in tails for value in tail) if any(tails) else None


HELPS_GUESSES = {**{str(d): f"d_k {d}" for d in (32, 128, 256, 1024)}, "never": "at none"}
FROZEN_GUESSES = {"few": "under 10 %", "half": "about half", "most": "over 90 %"}


def notice(sweep: Sweep, helps: str | None, frozen: str | None) -> str:
    """What the sweep says, read off the reader's own figures. helps, frozen: the guesses, answered first."""
    said = []
    if (start := helps_from(sweep)) is not None:
        answer = f"from **d_k {start}** on" if start else "at **none** of these widths for certain"
        said.append(f"{_guessed(HELPS_GUESSES, helps)}In perplexity the division helps {answer}.")
    widest = WIDEST.of(sweep)
    share_now = widest.row(WIDEST.names[1], FROZEN.metric).mean
    if share_now is not None:
        said.append(
            f"{_guessed(FROZEN_GUESSES, frozen)}Undivided at d_k 1024, **{share(share_now)}** of the rows "
            f"end with more than 0.99 on one token."
        )
    return "\n\n".join([*said, *_collapse(widest)])


def helps_from(sweep: Sweep) -> int | None:
    """The narrowest head from which on dividing wins in every row; 0: none; None: a row is missing."""
    wins: dict[int, bool] = {}
    for row in WIDTHS:
        if (found := winner(*pair(sweep, row))) is None:
            return None
        width = variant(row.names[0]).config.head_width
        wins[width] = wins.get(width, True) and found == "divided"
    start = 0
    for width in sorted(wins, reverse=True):
        if not wins[width]:
            break
        start = width
    return start


def _guessed(options: dict[str, str], guess: str | None) -> str:
    return f"You guessed *{options[guess]}*. " if guess else ""


def _collapse(widest: Sweep) -> list[str]:
    said = []
    undivided, divided = (ends(widest, name, SPREAD.metric) for name in reversed(WIDEST.names))
    if undivided and divided:
        said.append(
            f"The undivided scores start {quantity(undivided[0] / divided[0], 0)} times as wide, "
            f"√1024{NBSP}={NBSP}32, and go from {figure(undivided[0])} to {figure(undivided[1])}; the "
            f"divided ones from {figure(divided[0])} to {figure(divided[1])}. A larger gap between two "
            f"scores costs the frozen head nothing any more, so nothing holds the scores back."
        )
    pulls = [late(widest, name, GRADIENT.metric) for name in reversed(WIDEST.names)]
    if pulls[0] is not None and pulls[1] is not None:
        fate = "is not even smaller" if pulls[0] > pulls[1] else "is smaller, but not nothing"
        said.append(
            f"The norm of W_Q’s gradient ends at {small(pulls[0])} undivided and {small(pulls[1])} divided: "
            f"as a whole it {fate}. Frozen rows send almost none of it; the few others pull without the "
            f"factor 1/√d_k, and decide for all."
        )
    return said


def scales_table(sweep: Sweep) -> "Styler":
    """Every way to scale: the shipped perplexity, yours, and your scores at the end."""
    numbers, shown = [], []
    for name in SCALES.variants:
        row = sweep.row(name, PERPLEXITY)
        cells = [(sweep.row(name, panel.metric), panel.shown) for panel in (SPREAD, FROZEN)]
        shipped = row.reference
        mean = shipped.mean(PERPLEXITY) if shipped else None
        numbers.append((mean, row.mean, *(figures.mean for figures, _ in cells)))
        shown.append(
            (
                f"{dot(name)}{NBSP}{plain(scale_label(name))}",
                table.with_spread(mean, shipped.sd(PERPLEXITY) if shipped else None),
                table.yours(row),
                *(table.yours(figures, write) for figures, write in cells),
            )
        )
    columns = ("d_k 1024", "reference", "perplexity, yours", "std of scores", "over 0.99")
    return table.cells(columns, numbers, shown)


def scale_label(name: str) -> str:
    """A way to scale, without the width that all share."""
    return variant(name).short.removesuffix(", 1024")
