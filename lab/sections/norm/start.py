"""Gradients before the first step: twelve blocks, pre-norm and post-norm, nothing trained."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import TYPE_CHECKING, Any

import streamlit as st

from engine.chapter import reference
from engine.chapter.measurements import NORM_GRADIENTS, PLACEMENTS, Figures, first_and_last
from engine.probes.registry import NORMS
from engine.probes.results.norms import Gradients, Norms
from lab import bench, probes
from lab.bench import Request, Table, tables, untrained
from lab.bench.tables import number
from lab.charts import drawing
from lab.charts import lines as charts
from lab.charts.drawing import Spec
from lab.charts.lines import Across, Curve, Line, Plot
from lab.settings import Setting, Settings
from lab.shell.frame import dot
from lab.shell.styles import Style, style
from lab.words import NBSP, decimals

if TYPE_CHECKING:
    from streamlit.delta_generator import DeltaGenerator

BLOCKS = 12
MEASURES = {"qkv": "W_Q, W_K, W_V", "W_O": "W_O", "block": "Whole block"}
# Where the axis ends, and its ticks: twice what was measured on Shakespeare.
_TICKS = {"qkv": (0.0, 0.1, 0.2, 0.3), "W_O": (0.0, 0.1, 0.2, 0.3), "block": (0.0, 0.2, 0.4, 0.6)}
ACROSS = Across(field="block", title="block (1 is nearest the input)", first=1, ticks=tuple(range(1, 13)))
norm, ratio = decimals(4), decimals(2)  # a gradient norm has the chapter's four


@dataclass(frozen=True)
class Measured:
    """What was measured, by seed in the order asked for; nothing yet where it is empty."""

    by_seed: dict[int, Norms]

    @property
    def text(self) -> str:
        """The title of the text it was measured on."""
        return next((found.text for found in self.by_seed.values()), "")

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


def draw(request: Request, gradient_of: Setting[str], settings: Settings) -> None:
    """The gradients of two untrained models."""
    with probes.section(
        "Before the first step",
        "The usual explanation (Xiong et al. 2020) looks at the very beginning: put a norm on the stream, "
        "and the gradient that flows back through twelve of them comes out badly scaled. How badly is soon "
        "measured.",
        "start",
    ):
        gradient_of.draw()
        asked: Any = None
        now = (request.seeds, request.corpus_id)
        if not request.missing_input:
            key, seconds = settings.key("measure"), NORMS.seconds * max(1, len(request.seeds))
            asked = probes.pressed("Measure gradients", key, now, seconds)
        status_slot = bench.status_line()
    measured = Measured({})
    if request.missing_input:
        status_slot.markdown(f":small[:gray[{request.missing_input}]]")
    elif asked:
        probes.outdated(asked, now)
        measured = _measured(status_slot, *asked)
    which = gradient_of.value
    bench.figure_title(
        f"Gradient norm of {MEASURES[which]}",
        "per block, untrained",
        f"norm-gradients-{which}",
        lambda: chart(measured, which),
        lambda: rows(measured),
        key="figure-title-start",
    )
    with st.container(key="figure-start"):
        drawing.draw(chart(measured, which), key="norm.start")
    bench.beside("results-start", [results(measured, which)], notice(measured, which))
    if measured.by_seed:
        with st.expander("All twelve blocks"):
            every_block(measured, which).draw()


def _measured(place: "DeltaGenerator", seeds: Sequence[int], corpus_id: str) -> Measured:
    """Seed by seed, so that one more seed measures only itself; nothing where one cannot be had.

    place: of the status line.
    """
    found = {}
    for nth, seed in enumerate(seeds, start=1):
        busy = f"Measuring seed {seed}, {nth} of {len(seeds)}"
        if (one := probes.attempt(place, NORMS, busy, corpus_id=corpus_id, seed=seed)) is None:
            return Measured({})
        found[seed] = one
    return Measured(found)


def chart(measured: Measured, which: str) -> Spec:
    """The norm over the block; for W_Q, W_K and W_V the chapter's two blocks beside."""
    ticks = _TICKS[which]
    plot = Plot(
        steps=BLOCKS, low=0, high=ticks[-1], field="norm", log=False, ticks=ticks, form=".2f",
        shown=decimals(3), across=ACROSS,
    )  # fmt: skip
    lines = []
    for placement in PLACEMENTS:
        curves = tuple(Curve(tuple(enumerate(norms, start=1))) for norms in measured.norms(placement, which))
        lines.append(Line(placement, Style(style(placement).slot), curves))
        if which == "qkv" and measured.of_the_chapters_text:
            first, last = (NORM_GRADIENTS.chapter[placement, end].low for end in ("first", "last"))
            curve = Curve(((1, first), (BLOCKS, last)))
            lines.append(Line(f"chapter, {placement}", Style("gray", "dashed"), (curve,)))
    return charts.line_chart(plot, lines)


def results(measured: Measured, which: str) -> Table:
    """First block, last block and their ratio: the chapter, the reference, yours, the difference."""
    yours = measured.figures(which)
    lines = []
    for placement in PLACEMENTS:
        mark = dot(f"{placement}-warmup")
        for metric, what, shown in (
            ("first", "block 1", norm),
            ("last", "block 12", norm),
            ("ratio", "last over first", ratio),
        ):
            row = untrained.row(NORM_GRADIENTS, placement, metric, yours)
            if which != "qkv":  # the chapter's and the reference's are of these
                row = replace(row, chapter=None, reference=None)
            lines.append(tables.Line(f"{mark}{NBSP}{placement}, {what}", row, metric, shown))
    return tables.compared(
        lines,
        "gradient norm",
        remarks(measured),
        comparable=untrained.comparable(NORM_GRADIENTS, yours),
        text=measured.of_the_chapters_text,
    )


def every_block(measured: Measured, which: str) -> Table:
    """All twelve, means over the seeds."""
    means = ([fmean(at) for at in zip(*measured.norms(name, which), strict=True)] for name in PLACEMENTS)
    lines = [
        (str(block), number(pre, norm), number(post, norm), number(post / pre, ratio))
        for block, (pre, post) in enumerate(zip(*means, strict=True), start=1)
    ]
    return Table(("block", *PLACEMENTS, "post over pre"), lines)


def rows(measured: Measured) -> Iterator[tuple[object, ...]]:
    """Every norm that was measured, for a file; the first row names the columns."""
    yield "placement", "seed", "text", "block", *MEASURES
    for row in measured.rows:
        for block, norms in enumerate(zip(row.qkv, row.W_O, row.block, strict=True), start=1):
            yield row.placement, row.seed, measured.text, block, *norms


def remarks(measured: Measured) -> str:
    """Below the table: what its columns hold, and how far they can be compared."""
    said = ["Norm of the gradient of the first batch’s loss, 64 × 128 tokens, before any step."]
    if seeds := measured.by_seed:
        spread = "mean ± standard deviation over them" if len(seeds) > 1 else "no spread"
        said.append(f"Yours: {measured.text}, {untrained.seeds_said(seeds)}, {spread}.")
    if reference.load(NORM_GRADIENTS.id):
        said.append(f"Of {untrained.seeds_said(NORM_GRADIENTS.seeds)}.")
    said.append(untrained.shipped_line(NORM_GRADIENTS))
    if not measured.of_the_chapters_text:
        said.append("The chapter’s are of Tiny Shakespeare, so nothing is compared.")
    elif not untrained.comparable(NORM_GRADIENTS, seeds):
        said.append("Other seeds draw other weights, so grey differences are not comparable.")
    said.append(
        "The chapter does not print which of a block’s parameters it means; those of W_Q, W_K and W_V "
        "come near, W_O’s too."
    )
    return " ".join(said)


def notice(measured: Measured, which: str) -> str:
    """What the twelve blocks say, in figures."""
    if not measured.by_seed:
        return (
            "Two untrained models, one batch, one backward pass each. Guess first: how much larger is the "
            "gradient of the last block than that of the first?"
        )
    found = measured.figures(which).values()
    pre, post = (
        {metric: fmean(figures[name][metric] for figures in found) for metric in NORM_GRADIENTS.metrics}
        for name in ("pre-norm", "post-norm")
    )
    return (
        f"From block 1 to block 12 the gradient grows {ratio(pre['ratio'])} times in pre-norm and "
        f"**{ratio(post['ratio'])} times** in post-norm. {over_seeds()}\n\n"
        f"Post-norm’s are {ratio(post['first'] / pre['first'])} times pre-norm’s in block 1 and "
        f"{ratio(post['last'] / pre['last'])} times in block 12. Neither is extreme: no block is starved "
        f"yet. What the first steps make of it is the next figure."
    )


def over_seeds() -> str:
    """How far the ratios of the shipped seeds are apart, and how far each moves from seed to seed."""
    found = reference.load(NORM_GRADIENTS.id)
    if not found:
        return ""
    rows = [found.rows[name] for name in PLACEMENTS]
    gaps = [post - pre for pre, post in zip(*(row.values("ratio") for row in rows), strict=True)]
    spread = " and ".join(ratio(row.sd("ratio")) for row in rows)
    return (
        f"Of the reference’s {len(gaps)} seeds post-norm’s ratio is the larger one in "
        f"{sum(gap > 0 for gap in gaps)}, by {ratio(min(gaps))} to {ratio(max(gaps))}; from seed to seed "
        f"each moves as far (standard deviations {spread}), so look at several."
    )
