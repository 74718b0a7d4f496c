"""Figures, rows and tables of the ladder: what each part adds, costs and buys."""

import math
import statistics
from dataclasses import replace

from engine.chapter.definitions import ids, paired
from engine.chapter.experiments import LADDER, PERPLEXITY, TRAIN
from engine.chapter.variants import BLOCK, BLOCK_DROPOUT, TWO_BLOCKS
from engine.models import ledger
from engine.models.config import ModelConfig
from engine.runs.launch import OWN
from lab.bench import Gap, Sweep, Table, difference, tables
from lab.bench.tables import Cell
from lab.charts.lines import Curve, Line
from lab.charts.panels import Panel, Part
from lab.shell.frame import dot
from lab.shell.styles import style
from lab.words import NBSP, plain, points, quantity, signed

OWN_TITLE = "your own rung"
PARTS = LADDER.models[1:]  # all but the one that the ladder starts with
BY_HEART = ids(BLOCK, TWO_BLOCKS, BLOCK_DROPOUT)
WIDTHS = {width: f"{int(width):,}" for width in ("64", "128", "256", "768", "2048", "4096", "12288")}
HELD_OUT = Panel(PERPLEXITY, "Held out", "perplexity, log", 6, 1280, (10, 30, 100, 300, 1000))
TRAINED_ON = replace(HELD_OUT, metric=TRAIN, title="On the batches it trains on")


def named(name: str) -> str:
    """A rung in the first column: its colour and title."""
    return f"{dot(name)}{NBSP}{plain(OWN_TITLE if name == OWN else LADDER.variant(name).title)}"


def spoken(name: str) -> str:
    """A rung in a sentence."""
    return LADDER.variant(name).spoken


def shown_rungs(now: Sweep) -> tuple[str, ...]:
    """The rungs of a sweep in the ladder's order, then the reader's own where it is in it."""
    own = any(spec.variant == OWN for spec in now.wanted.values())
    return (*LADDER.variants, *((OWN,) if own else ()))


def lines(now: Sweep) -> list[Line]:
    """One line a rung, those that modify another on top."""
    order = sorted(shown_rungs(now), key=lambda name: (name == OWN, style(name).dash != "solid"))
    shorts = {name: OWN_TITLE if name == OWN else LADDER.variant(name).short for name in order}
    return [Line(shorts[name], style(name), now.curves(name)) for name in order]


def results_table(now: Sweep) -> Table:
    """Held-out perplexity of every rung in four columns."""
    lines = [tables.Line(named(name), now.row(name, PERPLEXITY), PERPLEXITY) for name in shown_rungs(now)]
    return tables.four_columns(now, lines)


def bought(now: Sweep, name: str) -> Gap | None:
    """How many points of held-out perplexity a rung takes off its parent's; negative: it costs some."""
    return difference(now.row(LADDER.variant(name).parent or "", PERPLEXITY), now.row(name, PERPLEXITY))


def shipped_bought(now: Sweep, name: str) -> tuple[float | None, float | None]:
    """The same in the shipped reference, paired over its seeds: mean and standard deviation."""
    mine = now.row(name, PERPLEXITY).reference
    parent = now.row(LADDER.variant(name).parent or "", PERPLEXITY).reference
    if mine is None or parent is None:
        return None, None
    gaps = paired(parent.by_seed(PERPLEXITY), mine.by_seed(PERPLEXITY)).values()
    if not gaps:
        return None, None
    return statistics.fmean(gaps), statistics.stdev(gaps) if len(gaps) > 1 else None


def added(name: str) -> int:
    """Parameters that a rung has more than its parent."""
    rung = LADDER.variant(name)
    return ledger.total(rung.config) - (ledger.total(rung.base.config) if rung.base else 0)


def bought_table(now: Sweep) -> Table:
    """Each part: what it adds to its parent, what that buys, and what a thousand parameters buy."""
    rows = []
    for rung in PARTS:
        name, part = rung.id, rung.part
        more, yours = added(name), bought(now, name)
        mean, sd = shipped_bought(now, name)
        worth = yours.points if yours else mean
        each = 1000 * worth / more if worth is not None and more else None
        rows.append((
            f"{dot(name)}{NBSP}{plain(part)}",
            Cell(more, signed(more, whole_number) if more else "0"),
            tables.with_spread(mean, sd, signed_points),
            tables.points(yours),
            tables.number(each, _per_thousand, color="" if yours else "gray"),
        ))  # fmt: skip
    return Table(
        ("part", "parameters", "reference", "bought, yours", "per 1,000"),
        rows,
        "Parameters: more than the parent has. Below zero: it costs points. Grey: within seed noise, or of "
        "the reference. Paired over seeds.",
    )


def whole_number(value: float | None) -> str:
    """ "477,696"."""
    return quantity(value, 0)


def signed_points(value: float | None) -> str:
    """Points with their sign."""
    return "–" if value is None else signed(value)


def _per_thousand(each: float | None) -> str:
    return signed(each or 0.0, lambda value: quantity(value, 3 if abs(each or 0.0) < 0.1 else 2))


def beside_the_chapter(now: Sweep) -> Table:
    """The differences that the chapter gives, each between the two rows that it takes."""
    caption = (
        "The chapter’s own comparisons; below zero is better. The added average here has no positions: which "
        "rows of the chapter’s have them is not printed."
    )
    return tables.four_columns(now, tables.differences(now, points), "points of perplexity", caption)


def sizes_table(own: ModelConfig | None) -> Table:
    """Where every rung keeps its parameters. own: the reader's rung, where it can be built."""
    rows = []
    configs = {rung.id: rung.config for rung in LADDER.models}
    for name, config in {**configs, **({OWN: own} if own else {})}.items():
        block = ledger.block_parameters(config)
        blocks, share = config.n_layer * sum(block.values()), ledger.feed_forward_share(config)
        sizes = (ledger.total(config), blocks, config.n_layer * block.get("feed-forward", 0))
        cells = (Cell(size, f"{size:,}") for size in sizes)
        rows.append((named(name), *cells, tables.number(share or None, percent, bold=True)))
    return Table(
        ("model", "parameters", "in blocks", "feed-forward", "of the block"),
        rows,
        "Counted from the configuration; biases with their matrix. What is not in blocks: token table, "
        "unembedding, final norm, and the position table, which the first rung lacks.",
    )


def percent(share: float | None) -> str:
    """A share: "66.7 %"."""
    return "–" if share is None else f"{100 * share:.1f}{NBSP}%"


def block_table(width: int) -> Table:
    """The chapter's block at a width, its feed-forward four times as wide, part by part."""
    block = ledger.block_parameters(replace(BLOCK.config, d_model=width, d_ff=4 * width))
    whole = sum(block.values())
    shares = {part: tables.number(size / whole, percent) for part, size in block.items()}
    rows = [(plain(part), Cell(size, f"{size:,}"), shares[part]) for part, size in block.items()]
    return Table(("part", "parameters", "share"), rows)


def by_heart_parts(now: Sweep) -> list[Part]:
    """Two panels, held out and on the text trained on, of the rungs that may learn it by heart."""
    order = sorted(BY_HEART, key=lambda name: style(name).dash != "solid")
    found = []
    for panel in (HELD_OUT, TRAINED_ON):
        curves = {name: now.curves(name) if panel is HELD_OUT else _batches(now, name) for name in order}
        drawn = [Line(LADDER.variant(name).short, style(name), curves[name]) for name in order]
        values = [LADDER.chapter.get((name, panel.metric)) for name in BY_HEART]
        rules = tuple((value.middle, False) for value in values if value)
        found.append(Part(panel, drawn, rules if now.of_the_chapters_text else ()))
    return found


def _batches(now: Sweep, name: str) -> tuple[Curve, ...]:
    """Perplexity of the batches as they are trained on, ten steps at a time."""
    return tuple(
        replace(curve, points=tuple((step, math.exp(min(nats, 30.0))) for step, nats in curve.points))
        for curve in now.curves(name, "loss_nats")
    )


def by_heart_table(now: Sweep) -> Table:
    """Perplexity on the training text in four columns."""
    lines = [tables.Line(named(name), now.row(name, TRAIN), TRAIN) for name in BY_HEART]
    caption = (
        f"At the end, on windows of the training text, without dropout; the curves at the right are of "
        f"batches, with it. Dashed rules: the chapter, after {LADDER.budget('chapter').steps:,} steps."
    )
    return tables.four_columns(now, lines, "on its own text", caption)
