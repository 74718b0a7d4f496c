"""What is measured on a block without training it: where it is linear, and what its norms depend on."""

from engine.probes.results.block import Block
from lab import probes
from lab.bench import Cell, Table
from lab.charts import lines
from lab.charts.drawing import Spec
from lab.charts.lines import Across, Curve, Line, Plot
from lab.shell.styles import style
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


def linear_table(measured: Block) -> Table:
    """How far each part is from linear."""
    rows = [
        (
            LAYERS[row.layer],
            Cell(row.bent, f"**{_size(row.bent)}**"),
            "yes" if row.bent < EXACT else ":red[no]",
        )
        for row in measured.linearity.rows
    ]
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
    return Table(("the same tokens", *NORMS.values()), rows, norms_remark(measured))


def _change(value: float, name: str) -> str:
    if name == "running":
        return f":red[{value:,}]" if value else "**0**"
    return "**0**" if value == 0 else probes.tiny(value) if value < EXACT else f":red[{value:.2f}]"


def norms_remark(measured: Block) -> str:
    """Below the table: what was measured, and torch's own words."""
    norms = measured.norms
    refused = next((row.single for row in norms.rows if row.single), "")
    said = f"torch refuses with “{plain(refused)}”. " if refused else ""
    return (
        f"The largest change of any number in the output, of numbers of standard deviation 1. BatchNorm has "
        f"seen {norms.seen} batches of {norms.examples} × {norms.short} tokens. {said}"
        f"torch {plain(measured.torch)}, seed {measured.seed}."
    )


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
