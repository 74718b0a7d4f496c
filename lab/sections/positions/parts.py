"""Perplexity over the length of the window: its figure, its tables, and what there is to notice."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

import altair as alt
import streamlit as st

from engine.chapter import reference
from engine.chapter.experiments import DIFFERENCES, POSITIONS
from lab import bench
from lab.bench import Cell, Figure, Question, Request, Row, Sweep, Table, difference, figures, tables
from lab.bench.questions import short
from lab.charts import lines as charts
from lab.charts import panels
from lab.charts.axes import DASHED, GRAY, note, rows
from lab.charts.drawing import Spec
from lab.charts.lines import Across, Curve, Plot
from lab.shell.frame import dot
from lab.words import NBSP, decimals, plain, quantity, signed

variant = POSITIONS.variant

CURVES_WIDTH, LENGTHS_WIDTH = 432, 672  # px
TRAINED = POSITIONS.budget("chapter").context_length  # tokens in a window, on both budgets
LENGTHS = POSITIONS.budget("chapter").also_at
LONGER = 256  # the length that the chapter compares at
LOW, HIGH, TICKS = 30.0, 300.0, (30.0, 50.0, 100.0, 200.0, 300.0)  # of perplexity, on the chapter's text
ANY_TEXT = (3.0, 1280.0, (3.0, 10.0, 30.0, 100.0, 300.0, 1000.0))
HEIGHT = 205  # px for the curves of both figures, so that the tables begin above the fold
CLIFF = 1.5  # times as perplexed at 256 as at 64: what the chapter's learned table is at least


def metric(length: int) -> str:
    """What the perplexity at a length is called among a run's figures."""
    return f"perplexity_{length}"


def ratio(sweep: Sweep, name: str) -> Row:
    """How many times as perplexed a scheme is at 256 tokens as at 64, seed by seed."""
    near, far = (sweep.row(name, metric(length)) for length in (TRAINED, LONGER))
    yours = {seed: far.yours[seed] / near.yours[seed] for seed in near.yours if seed in far.yours}
    return replace(near, chapter=None, yours=yours)


def _curves(sweep: Sweep, name: str) -> tuple[Curve, ...]:
    """A scheme's perplexity over the lengths, a curve a seed."""
    runs = [run for digest, run in sweep.measured.items() if sweep.wanted[digest].variant == name]
    found = []
    for run in sorted(runs, key=lambda run: run.spec.seed):
        values = [(length, run.measured.get(metric(length))) for length in LENGTHS]
        found.append(Curve(tuple((length, value) for length, value in values if value is not None)))
    return tuple(curve for curve in found if curve.points)


def chart(sweep: Sweep) -> Spec:
    """Perplexity over the length, with the chapter's two figures of ALiBi as marks of their own."""
    text = sweep.of_the_chapters_text
    marks = [
        {"tokens": length, "perplexity": value.middle, "text": f"chapter {quantity(value.middle, 2)}"}
        for length in LENGTHS
        if text and (value := POSITIONS.chapter.get(("alibi", metric(length))))
    ]
    low, high, ticks = (LOW, HIGH, TICKS) if text else ANY_TEXT
    plot = Plot(
        steps=max(LENGTHS), low=low, high=high, ticks=ticks, gutter=0.36, height=HEIGHT, over=(_chapter,),
        across=Across(field="tokens", title="tokens in the window", first=TRAINED, log=True, ticks=LENGTHS),
    )  # fmt: skip
    lines = figures.variant_lines(POSITIONS, partial(_curves, sweep))
    return charts.line_chart(plot, lines, chapter=marks)


def _chapter(plot: Plot) -> list[alt.Chart]:
    layer = rows("chapter").encode(x=plot.x, y=plot.y)
    return [
        layer.mark_line(**DASHED),
        layer.mark_point(shape="diamond", color=GRAY, size=60, strokeWidth=1.5, opacity=1),
        note(layer, align="left", dx=2, dy=16),
    ]


def numbers(sweep: Sweep) -> Iterator[tuple[object, ...]]:
    """Every figure at every length, for a file; the first row names the columns."""
    yield "scheme", "budget", "seed", "run", "tokens_in_window", "held_out_perplexity"
    for digest, run in sweep.measured.items():
        spec = sweep.wanted[digest]
        for length in LENGTHS:
            value = run.measured.get(metric(length))
            yield spec.variant, spec.budget_name, spec.seed, run.id, length, value


def lengths_table(sweep: Sweep) -> Table:
    """Yours at every length; the reference in grey below."""
    shipped = reference.load(POSITIONS.id)
    rows = list[tuple[str | Cell, ...]]()
    for name in POSITIONS.variants:
        found = [sweep.row(name, metric(length)) for length in LENGTHS]
        rows.append((tables.model(sweep, name), *map(tables.yours, found)))
        if shipped and (row := shipped.rows.get(name)):
            means = (row.mean(metric(length)) for length in LENGTHS)
            rows.append((":gray[reference]", *(tables.number(mean, color="gray") for mean in means)))
    return Table(("perplexity, yours", *(f"at {length}" for length in LENGTHS)), rows)


def _times(row: Row) -> Cell:
    return tables.with_spread(row.mean, row.sd, decimals(2), bold=True)


def beside_the_chapter(sweep: Sweep) -> Table:
    """The four columns of what the chapter prints."""
    lines = [
        tables.Line(
            f"{dot(name)}{NBSP}{plain(variant(name).short)} {value.label}",
            sweep.row(name, figure),
            figure,
            tables.HUNDREDTHS if figure in DIFFERENCES else quantity,
        )
        for (name, figure), value in POSITIONS.chapter.items()
    ]
    return tables.four_columns(sweep, lines, "beside the chapter")


@dataclass(frozen=True)
class Claim:
    """One ordering that the chapter's prose gives, and the reader's figure that decides it.

    holds: None while it cannot be told. noise: whether that figure is within seed noise of the border.
    """

    text: str
    figure: Cell
    holds: bool | None
    noise: bool = False


def claims(sweep: Sweep) -> list[Claim]:
    """What the chapter says in words, and how it is in yours."""
    times = {name: ratio(sweep, name) for name in POSITIONS.variants}
    learned, sinusoidal, rope, alibi = (times[name] for name in ("learned", "sinusoidal", "rope", "alibi"))
    worse = [row.mean for row in (learned, sinusoidal) if row.mean is not None]
    less = None if len(worse) < 2 or rope.mean is None else 1 < rope.mean < min(worse)
    return [
        _best_inside(sweep),
        _claim("learned, 256 : 64, at least 1.5: a cliff", learned, CLIFF, above=True),
        _claim("sinusoids, 256 : 64, over 1: no extrapolation", sinusoidal, 1, above=True),
        Claim("RoPE, 256 : 64, over 1 but under both", _times(rope), less, _near(rope, 1)),
        _claim("ALiBi, 256 : 64, under 1: it improves", alibi, 1, above=False),
    ]


def _claim(text: str, row: Row, border: float, *, above: bool) -> Claim:
    holds = None if row.mean is None else row.mean >= border if above else row.mean < border
    return Claim(text, _times(row), holds, _near(row, border))


def _near(row: Row, border: float) -> bool:
    """Under two standard deviations over seeds from it; of one seed nobody knows."""
    return row.mean is not None and row.sd is not None and abs(row.mean - border) < 2 * row.sd


def _best_inside(sweep: Sweep) -> Claim:
    """Whether the learned table is ahead of every other scheme at the length of training."""
    text = "learned, points ahead of the next best at 64"
    learned, *others = _ranked(sweep, TRAINED, first="learned")
    if learned.mean is None or not others or any(row.mean is None for row in others):
        return Claim(text, tables.NO_NUMBER, None)
    gap = difference(others[0], learned)
    assert gap is not None
    figure = Cell(gap.points, f"**{signed(gap.points)}**{NBSP}:gray[{short(sweep, others[0])}]")
    return Claim(text, figure, gap.points > 0, bool(gap.noise))


def _ranked(sweep: Sweep, length: int, first: str | None = None) -> list[Row]:
    """The schemes by their mean at a length, best first, those without one last; ``first`` before all."""
    rows = [sweep.row(name, metric(length)) for name in POSITIONS.variants]
    return sorted(rows, key=lambda row: (row.variant != first, row.mean is None, row.mean or 0.0))


def claims_table(sweep: Sweep) -> Table:
    """The orderings, one a line."""
    comparable = sweep.request.as_the_chapter and sweep.of_the_chapters_text
    rows = []
    for claim in claims(sweep):
        verdict = tables.NOTHING
        if claim.holds is not None:
            words = f"{'holds' if claim.holds else 'does not hold'}{', in noise' if claim.noise else ''}"
            color = "gray" if not comparable or claim.noise else "green" if claim.holds else "red"
            verdict = f":{color}[{words.replace(' ', NBSP)}]"
        rows.append((claim.text, claim.figure, verdict))
    return Table(("the chapter in words", "yours", "verdict"), rows)


STEPS_DECIDE = (
    "Who is best at 64 tokens is probably a matter of the steps. Learned and RoPE in the reference, seed 0: "
    "56.9 and 51.9 after 500, 43.4 and 40.9 after 1,200, 41.8 and 40.8 after 1,500; seed 1: 57.1 and 51.0 "
    "after 500, 42.8 and 40.8 after 1,200, 40.1 and 40.3 after 1,500. The chapter, whose steps are not "
    "printed, has the learned table ahead."
)


def best_inside(sweep: Sweep) -> str:
    """Who is lowest at the length of training."""
    near = [row for row in _ranked(sweep, TRAINED) if row.mean is not None]
    if len(near) < len(POSITIONS.variants):
        return ""
    gap, second = difference(near[1], near[0]), short(sweep, near[1])
    assert gap is not None
    lead = f"level with {second}" if gap.level else f"{quantity(gap.points)} ahead of {second}"
    noise = ", within seed noise" if gap.noise else ""
    return f"Best at {TRAINED} tokens is **{short(sweep, near[0])}**, {lead}{noise}."


def loses_most(sweep: Sweep) -> str:
    """Who is worst at 256 beside itself at 64."""
    lost = [row for name in POSITIONS.variants if (row := ratio(sweep, name)).mean is not None]
    if len(lost) < len(POSITIONS.variants):
        return ""
    lost.sort(key=lambda row: -(row.mean or 0.0))
    return (
        f"The largest loss at {LONGER}: **{short(sweep, lost[0])}**, {quantity(lost[0].mean, 2)} times as "
        f"perplexed as at {TRAINED}; then {short(sweep, lost[1])}, {quantity(lost[1].mean, 2)}."
    )


_INSIDE = "Before you train: which scheme is best at 64 tokens, the training length?"
_SCHEMES = {name: plain(variant(name).short) for name in POSITIONS.variants}
QUESTIONS = (
    Question("inside", _INSIDE, _SCHEMES, best_inside),
    Question("falls", "And which loses most at 256?", _SCHEMES, loses_most),
)


def notice(sweep: Sweep) -> str:
    """What the lengths teach, read off the reader's own figures."""
    said = []
    near, far = (sweep.row("alibi", metric(length)).mean for length in (TRAINED, LONGER))
    if near is not None and far is not None:
        why = (
            ". In the shipped model nearly all of this is because a longer window has fewer early tokens, "
            "which are the hardest: see below"
        )
        why = why if far < near else ", against what the chapter finds"
        said.append(f"ALiBi goes from {quantity(near)} to {quantity(far)}{why}.")
    learned, sinusoidal = (ratio(sweep, name).mean for name in ("learned", "sinusoidal"))
    if learned is not None and sinusoidal is not None and min(learned, sinusoidal) > 1:
        said.append(
            "Sinusoids have a value at position 200 and the table has a row for it. Neither helps: neither "
            "was seen in training, and the row still holds random numbers, which in the shipped model make "
            "more than half of the rise: see below."
        )
    return "\n\n".join(said)


def figure(sweep: Sweep) -> Figure:
    """The curves of training, and the same weights over the length of the window."""
    text = sweep.of_the_chapters_text
    curves = replace(
        figures.chart_frame(sweep, LOW if text else ANY_TEXT[0]), names=False, gutter=0.02, height=HEIGHT
    )

    def draw(now: Sweep) -> None:
        with st.container(horizontal=True, gap="small", key="figure-positions"):
            made = charts.line_chart(curves, figures.chart_lines(now), now.progress)
            note = f"at {TRAINED} tokens"
            panels.titled("positions.curves", "While training", note, made, CURVES_WIDTH)
            title = "The same weights on longer windows"
            panels.titled("positions.lengths", title, "once trained", chart(now), LENGTHS_WIDTH)

    name = f"{POSITIONS.id}-{sweep.request.budget}"
    return Figure("Held-out perplexity", "log scale, lower is better", name, draw, chart, numbers)


def caption(sweep: Sweep) -> str:
    """What the tables hold, and how far they can be compared."""
    rows = [sweep.row(name, figure) for name, figure in POSITIONS.chapter]
    between = (
        f"{LONGER} : {TRAINED} is how many times as perplexed a scheme is there. The chapter prints two "
        f"figures of ALiBi and gives the others as an order."
    )
    said = bench.remarks(sweep, rows, between)
    return f"{said} {STEPS_DECIDE}" if sweep.of_the_chapters_text else said


def budget_line(request: Request) -> None:
    """What is trained and where it is evaluated, in one line."""
    lengths, trained = ", ".join(map(str, LENGTHS[:-1])), bench.in_words(POSITIONS.budget(request.budget))
    st.caption(
        f"{request.budget.capitalize()}: one block of four heads, {trained}; then all held-out windows of "
        f"{lengths} and {LENGTHS[-1]} tokens."
    )
