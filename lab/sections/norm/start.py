"""Gradients before the first step: twelve blocks, pre-norm and post-norm, nothing trained."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING

from engine.chapter import reference
from engine.chapter.measurements import NORM_GRADIENTS, PLACEMENTS, Figures, first_and_last
from engine.probes.registry import NORMS
from engine.probes.results.norms import Gradients, Norms
from lab import probes
from lab.bench import Row, Table, tables, untrained
from lab.bench.tables import number
from lab.charts import lines as charts
from lab.charts.drawing import Spec
from lab.charts.lines import Across, Curve, Line, Plot
from lab.shell.frame import dot
from lab.shell.styles import Style, style
from lab.words import NBSP, quantity

if TYPE_CHECKING:
    from streamlit.delta_generator import DeltaGenerator

BLOCKS = 12
MEASURES = {"qkv": "W_Q, W_K, W_V", "W_O": "W_O", "block": "Whole block"}
# Where the axis ends, and its ticks: twice what was measured on Shakespeare.
_AXES = {
    "qkv": (0.3, (0.0, 0.1, 0.2, 0.3)),
    "W_O": (0.3, (0.0, 0.1, 0.2, 0.3)),
    "block": (0.6, (0.0, 0.2, 0.4, 0.6)),
}
ACROSS = Across(field="block", title="block (1 is nearest the input)", first=1, ticks=tuple(range(1, 13)))


def norm(value: float | None) -> str:
    """A gradient norm with the chapter's four decimals."""
    return quantity(value, 4)


def ratio(value: float | None) -> str:
    """Two decimals."""
    return quantity(value, 2)


@dataclass(frozen=True)
class Measured:
    """What was measured, by seed in the order asked for."""

    by_seed: dict[int, Norms]

    @property
    def seeds(self) -> tuple[int, ...]:
        """In the order asked for."""
        return tuple(self.by_seed)

    @property
    def text(self) -> str:
        """The title of the text it was measured on."""
        return next(iter(self.by_seed.values())).text

    @property
    def of_the_chapters_text(self) -> bool:
        """Whether the chapter's figures say anything about these."""
        return all(found.of_the_chapters_text for found in self.by_seed.values())

    @property
    def rows(self) -> list[Gradients]:
        """Every placement of every seed."""
        return [row for found in self.by_seed.values() for row in found.rows]

    def norms(self, placement: str, measure: str) -> list[list[float]]:
        """Of every seed, block by block."""
        return [getattr(row, measure) for row in self.rows if row.placement == placement]

    def figures(self, measure: str) -> dict[int, Figures]:
        """First block, last block and ratio, by seed and placement."""
        return {
            seed: {row.placement: first_and_last(getattr(row, measure)) for row in found.rows}
            for seed, found in self.by_seed.items()
        }


def measured(place: "DeltaGenerator", seeds: Sequence[int], corpus_id: str) -> Measured | None:
    """What is measured, seed by seed, so that one more seed measures only itself; None where it cannot be.

    place: of the status line.
    """
    found = {}
    for nth, seed in enumerate(seeds, start=1):
        busy = f"Measuring seed {seed}, {nth} of {len(seeds)}"
        if (one := probes.attempt(place, NORMS, busy, corpus_id=corpus_id, seed=seed)) is None:
            return None
        found[seed] = one
    return Measured(found)


def chart(measured: Measured | None, which: str, *, chapters_text: bool) -> Spec:
    """The norm over the block. chapters_text: whether the chapter's two blocks are drawn beside."""
    high, ticks = _AXES[which]
    frame = Plot(
        steps=BLOCKS,
        low=0,
        high=high,
        field="norm",
        log=False,
        ticks=ticks,
        form=".2f",
        shown=lambda value: quantity(value, 3),
        across=ACROSS,
    )
    lines = []
    for placement in PLACEMENTS:
        norms = measured.norms(placement, which) if measured else []
        curves = tuple(Curve(tuple(enumerate(of_seed, start=1))) for of_seed in norms)
        lines.append(Line(placement, Style(style(placement).slot), curves))
        if which == "qkv" and chapters_text:
            ends = [NORM_GRADIENTS.chapter[placement, end].low for end in ("first", "last")]
            curve = Curve(((1, ends[0]), (BLOCKS, ends[1])))
            lines.append(Line(f"chapter, {placement}", Style("gray", "dashed"), (curve,)))
    return charts.line_chart(frame, lines)


def results(measured: Measured | None, which: str) -> Table:
    """First block, last block and their ratio: the chapter, the reference, yours, the difference."""
    yours = measured.figures(which) if measured else {}
    lines = []
    for placement in PLACEMENTS:
        for metric, what, shown in (
            ("first", "block 1", norm),
            ("last", "block 12", norm),
            ("ratio", "last over first", ratio),
        ):
            row = untrained.row(NORM_GRADIENTS, placement, metric, yours)
            if which != "qkv":
                row = Row(placement, None, None, row.yours, 0)
            lines.append(tables.Line(f"{mark(placement)}{NBSP}{placement}, {what}", row, metric, shown))
    return tables.compared(
        lines,
        "gradient norm",
        remarks(measured),
        comparable=measured is not None and untrained.comparable(NORM_GRADIENTS, measured.seeds),
        text=measured is None or measured.of_the_chapters_text,
    )


def mark(placement: str) -> str:
    """A placement's colour as Markdown."""
    return dot({"pre-norm": "pre-norm-warmup", "post-norm": "post-norm-warmup"}[placement])


def every_block(measured: Measured, which: str) -> Table:
    """All twelve, means over the seeds."""
    pre, post = (
        [fmean(at) for at in zip(*measured.norms(placement, which), strict=True)] for placement in PLACEMENTS
    )
    found = [
        (str(block), number(one, norm), number(other, norm), number(other / one, ratio))
        for block, (one, other) in enumerate(zip(pre, post, strict=True), start=1)
    ]
    return Table(("block", *PLACEMENTS, "post over pre"), found)


def rows(measured: Measured | None) -> Iterator[tuple[object, ...]]:
    """Every norm that was measured, for a file; the first row names the columns."""
    yield "placement", "seed", "text", "block", *MEASURES
    for row in measured.rows if measured else ():
        for place in range(BLOCKS):
            norms = (getattr(row, measure)[place] for measure in MEASURES)
            yield row.placement, row.seed, measured.text if measured else "", place + 1, *norms


def remarks(measured: Measured | None) -> str:
    """Below the table: what its columns hold, and how far they can be compared."""
    said = ["Norm of the gradient of the first batch’s loss, 64 × 128 tokens, before any step."]
    if measured:
        spread = "mean ± standard deviation over them" if len(measured.seeds) > 1 else "no spread"
        said.append(f"Yours: {measured.text}, {untrained.seeds_said(measured.seeds)}, {spread}.")
    if reference.load(NORM_GRADIENTS.id):
        said.append(f"Of {untrained.seeds_said(NORM_GRADIENTS.seeds)}.")
    said.append(untrained.shipped_line(NORM_GRADIENTS))
    if measured and not measured.of_the_chapters_text:
        said.append("The chapter’s are of Tiny Shakespeare, so nothing is compared.")
    elif measured and not untrained.comparable(NORM_GRADIENTS, measured.seeds):
        said.append("Other seeds draw other weights, so grey differences are not comparable.")
    said.append(
        "Green: a norm within 15 % of the chapter’s, a ratio within 20 %, as far as seeds differ. It does "
        "not print which of a block’s parameters it means; W_Q, W_K and W_V together come nearest."
    )
    return " ".join(said)


def notice(measured: Measured | None, which: str) -> str:
    """What the twelve blocks say, in figures."""
    if not measured:
        return (
            "Two untrained models, one batch, one backward pass each. Guess first: how much larger is the "
            "gradient of the last block than that of the first?"
        )
    means = {
        placement: {
            metric: fmean(figures[placement][metric] for figures in measured.figures(which).values())
            for metric in NORM_GRADIENTS.metrics
        }
        for placement in PLACEMENTS
    }
    pre, post = means["pre-norm"], means["post-norm"]
    steeper = post["ratio"] > pre["ratio"]
    return "\n\n".join(
        (
            f"From block 1 to block 12 the gradient grows {ratio(pre['ratio'])} times in pre-norm and "
            f"**{ratio(post['ratio'])} times** in post-norm: {'steeper' if steeper else 'no steeper'}, "
            f"because every norm on the stream rescales what flows back through it.",
            f"Post-norm’s are {ratio(post['first'] / pre['first'])} times pre-norm’s in block 1 and "
            f"{ratio(post['last'] / pre['last'])} times in block 12. Neither is extreme: no block is starved "
            f"yet. What the first steps make of it is the next figure.",
        )
    )
