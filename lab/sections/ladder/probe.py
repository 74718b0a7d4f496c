"""What is measured on a block without training it: where it is linear, and what its norms depend on."""

from typing import Any

import streamlit as st

from engine.probes.results.block import Block
from lab import bench, probes
from lab.bench import Cell, Table
from lab.charts import drawing, lines
from lab.charts.drawing import Spec
from lab.charts.lines import Across, Curve, Line, Plot
from lab.shell.styles import style
from lab.weights import Opened
from lab.words import NBSP, plain, quantity

LAYERS = {
    "frozen": "attention, its weights frozen",
    "frozen-twice": "the same twice over",
    "attention": "attention, its weights its own",
    "feed-forward": "feed-forward",
    "without-gelu": "feed-forward without its GELU",
}
NORMS = {
    "layer-norm": "LayerNorm",
    "batch-norm": "BatchNorm, training",
    "batch-norm-inference": "BatchNorm, inference",
}
EXACT = 1e-5  # below it, a change is rounding
HEIGHT = 200  # px


def linearity(measured: Block, opened: Opened) -> None:
    """How far from linear each part of a block is."""
    st.markdown("**One feature of the output, while the input moves along a line** :gray[scaled]")
    drawing.draw(line_chart(measured), key="ladder.line")
    table, words = linear_table(measured), linear_notice(measured)
    bench.beside("results-linear", [table], words, "Hence the feed-forward")
    _whose(opened)


def norms(measured: Block, opened: Opened) -> None:
    """What LayerNorm promises, kept and broken."""
    bench.beside("results-norms", [norms_table(measured)], norms_notice(measured), "Four promises")
    _whose(opened)


def block(opened: Opened) -> dict[str, Any]:
    """The block that is measured, for the probe: a trained one, or a fresh one."""
    return {"weights": opened["block"].path if opened else None}


def _whose(opened: Opened) -> None:
    fresh = "as torch draws them, seed 0; no trained block is here yet"
    st.caption(f"Weights: {plain(opened['block'].whose if opened else fresh)}.")


def linear_table(measured: Block) -> Table:
    """How far each part is from linear."""
    rows = []
    for row in measured.linearity.rows:
        off, linear = Cell(row.bent, f"**{_size(row.bent)}**"), row.bent < EXACT
        rows.append((LAYERS[row.layer], off, "yes" if linear else ":red[no]"))
    return Table(
        ("part", "off by", "linear"),
        rows,
        "Length of the difference over the length of the output, biases taken off; four heads, 32 tokens of "
        "standard normal numbers, float32.",
    )


def _size(value: float) -> str:
    """An error relative to the output: "4.1e−07", "110 %"."""
    return probes.tiny(value) if value < EXACT else f"{quantity(100 * value, 0)}{NBSP}%"


def line_chart(measured: Block) -> Spec:
    """One feature of the output while the input moves along a line."""
    line = measured.linearity.line
    frame = Plot(
        steps=3, low=-1.15, high=1.15, field="out", log=False, ticks=(-1, 0, 1), form="~g",
        shown=lambda _: "", height=HEIGHT - lines.BELOW,
        across=Across("t", "t, in x + t·y", -3, ticks=tuple(range(-3, 4))),
    )  # fmt: skip
    drawn = (("frozen", "frozen attention", "four-heads"), ("feed-forward", "feed-forward", "feed-forward"))
    curves = [
        Line(label, style(look), (Curve(tuple(zip(line["t"], line[name], strict=True))),))
        for name, label, look in drawn
    ]
    return lines.line_chart(frame, curves)


def linear_notice(measured: Block) -> str:
    """What the table says, in words."""
    off = {row.layer: row.bent for row in measured.linearity.rows}
    if off["frozen"] > EXACT:
        return "Even with frozen weights the attention is not linear here: its weights are out of range."
    return (
        f"With frozen weights, attention of a sum is the sum of attentions, to {_size(off['frozen'])} of the "
        f"output: rounding. So are two such layers, one on the other: they could be one. Whatever attention "
        f"bends, it bends in its softmax, by which it chooses where to look; to what it finds there it does "
        f"nothing that a matrix could not.\n\n"
        f"The feed-forward is off by {_size(off['feed-forward'])}. Take its GELU away, and it is one matrix."
    )


PROMISES = (
    ("batch", "alone, or among {examples} examples"),
    ("running", "numbers kept from earlier batches"),
    ("mode", "in training, or in inference"),
    ("length", "in {short} tokens, or in {long}"),
)


def norms_table(measured: Block) -> Table:
    """The four promises: what the output of the same tokens changes by."""
    norms = measured.norms
    found = {row.norm: row for row in norms.rows}
    rows: list[tuple[str | Cell, ...]] = []
    for name, label in PROMISES:
        values = (getattr(found[norm], name) for norm in NORMS)
        rows.append((label.format(**vars(norms)), *(Cell(value, _change(value, name)) for value in values)))
    words = (":red[refused]" if found[norm].single else "computed" for norm in NORMS)
    rows.append(("one token, one example", *words))
    refused = next((row.single for row in norms.rows if row.single), "")
    refusal = f"torch refuses with “{plain(refused)}”. " if refused else ""
    caption = (  # what was measured, and torch's own words
        f"The largest change of any number in the output, of numbers of standard deviation 1. BatchNorm has "
        f"seen {norms.seen} batches of {norms.examples} × {norms.short} tokens. {refusal}"
        f"torch {plain(measured.torch)}, seed {measured.seed}."
    )
    return Table(("the same tokens", *NORMS.values()), rows, caption)


def _change(value: float, name: str) -> str:
    if name == "running":
        return f":red[{value:,}]" if value else "**0**"
    return "**0**" if value == 0 else probes.tiny(value) if value < EXACT else f":red[{value:.2f}]"


def norms_notice(measured: Block) -> str:
    """What the four promises are for."""
    rows = {row.norm: row for row in measured.norms.rows}
    kept = all(getattr(rows["layer-norm"], name) < EXACT for name, _ in PROMISES)
    return (
        f"LayerNorm {'keeps all four' if kept else 'does not keep all four here'}: it looks at one token’s "
        f"features and at nothing else.\n\n"
        f"BatchNorm in training breaks the first and the last, since its mean is everybody’s. In inference "
        f"it uses {rows['batch-norm'].running} stored numbers instead, and then computes something else "
        f"than it did in training, by up to {rows['batch-norm'].mode:.2f} here. A model that writes for "
        f"one reader, one token at a time, has neither a batch nor a length to rely on."
    )
