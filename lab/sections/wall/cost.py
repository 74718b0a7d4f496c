"""What attention costs in a whole model as its text grows: arithmetic over GPT-2's shapes, nothing is run."""

import streamlit as st

from engine.models import ledger
from engine.models.config import ModelConfig
from lab import bench
from lab.bench import Table
from lab.bench.tables import number
from lab.charts import drawing
from lab.charts import lines as charts
from lab.charts.drawing import Spec
from lab.charts.lines import Across, Curve, Line, Plot
from lab.settings import Setting
from lab.shell.styles import Style
from lab.words import NBSP, quantity

SHAPES = {"small": (768, 12, 12), "medium": (1024, 24, 16), "large": (1280, 36, 20), "xl": (1600, 48, 25)}
LABELS = {"small": "small", "medium": "medium", "large": "large", "xl": "XL"}
TOKENS = (128, 1024, 4096, 16_384, 131_072, 1_048_576)
CURVE = tuple(2**power for power in range(7, 21))
# Numbers a token and unit of width that a block keeps for the way back, the matrices apart: the inputs of its
# two norms, their outputs, q, k and v, the heads' mixture, and the feed-forward's hidden layer twice.
# Source: Korthikanti et al. 2022, section 4.1, without dropout: their 34 bytes less two masks, at 2 each.
KEPT = 16

REMARK = (
    "Arithmetic, nothing is run. Multiplications: of one token with the whole window in sight, as the ledger "
    "counts them. Kept numbers: of one block, 16 n d beside the weights, H n², without dropout (Korthikanti "
    "et al. 2022). The last column: all attention weights of a forward pass, kept in float32."
)


def draw(shape: Setting[str]) -> None:
    """The choice of a shape; attention's shares in it as a figure, as a table and in words."""
    with st.container(horizontal=True, vertical_alignment="bottom", key="instruments-cost"):
        shape.draw()
    name = shape.value
    bench.figure_title(
        "Attention’s share",
        "where the matrix is stored",
        f"attention-share-{name}",
        lambda: chart(name),
        lambda: csv_rows(name),
        key="figure-title-cost",
    )
    with st.container(key="figure-cost"):
        drawing.draw(chart(name), key="wall.cost")
    bench.beside("wall-cost", [shares_table(name)], words(name))


def config(shape: str) -> ModelConfig:
    """GPT-2 of that size; its vocabulary is 50,257."""
    width, layers, heads = SHAPES[shape]
    return ModelConfig(
        vocab_size=50_257, d_model=width, n_layer=layers, n_head=heads, d_ff=4 * width, mixer="attention",
        connection="pre-norm", positions="learned", max_positions=1024, output_projection=True, tied=True,
        qkv_bias=True, unembedding_bias=False,
    )  # fmt: skip


def work_share(shape: str, n: int) -> float:
    """Of a forward pass's multiplications: those of scores and mixtures, which alone grow with n."""
    model = config(shape)
    return 1 - ledger.multiplications(model, 0) / ledger.multiplications(model, n)


def work_half_at(shape: str) -> int:
    """The first n at which attention is half of the multiplications."""
    model = config(shape)
    fixed = ledger.multiplications(model, 0)
    return -(-fixed // (ledger.multiplications(model, 1) - fixed))


def kept_share(shape: str, n: int) -> float:
    """Of the numbers that a block keeps for the way back: its stored attention weights, H n^2.

    H n^2 / (H n^2 + 16 n D), so one half at n = 16 D / H
    """
    width, _, heads = SHAPES[shape]
    return heads * n / (heads * n + KEPT * width)


def matrices_gb(shape: str, n: int) -> float:
    """Attention weights of all blocks, kept at once in float32."""
    _, layers, heads = SHAPES[shape]
    return 4 * layers * heads * n * n / 2**30


def chart(shape: str) -> Spec:
    """Both shares over n."""
    ticks = tuple(n for n in TOKENS if n != 4096)
    plot = Plot(
        steps=CURVE[-1], low=0, high=1, log=False, field="share", ticks=(0, 0.25, 0.5, 0.75, 1.0), form=".0%",
        height=200, gutter=0.3, shown=lambda value: f"{value or 0:.0%}",
        across=Across(field="n", title="tokens, n", first=CURVE[0], log=True, ticks=ticks),
    )  # fmt: skip
    shares = (("multiplications", "ink", work_share), ("kept numbers", "red", kept_share))
    lines = [
        Line(name, Style(slot), (Curve(tuple((n, share(shape, n)) for n in CURVE)),))
        for name, slot, share in shares
    ]
    return charts.line_chart(plot, lines)


def shares_table(shape: str) -> Table:
    """The same as numbers, and the bytes of what one block would store."""
    rows = [
        (
            f"{n:,}",
            number(work_share(shape, n), percent),
            number(kept_share(shape, n), percent),
            number(matrices_gb(shape, n), gigabytes),
        )
        for n in TOKENS
    ]
    columns = ("tokens", "of multiplications", "of kept numbers", "weights of all blocks")
    return Table(columns, rows, REMARK)


def percent(share: float | None) -> str:
    """ "4.8 %"."""
    return f"{quantity(100 * (share or 0), 1)}{NBSP}%"


def gigabytes(size: float | None) -> str:
    """ "0.01 GB", "1,536 GB"."""
    return f"{quantity(size, 2 if (size or 0) < 10 else 0)}{NBSP}GB"


def csv_rows(shape: str) -> list[tuple[object, ...]]:
    """Every point that is drawn; the first row names the columns."""
    names = ("model", "n", "share_of_multiplications", "share_of_kept_numbers", "weights_gb")
    rows = [(shape, n, work_share(shape, n), kept_share(shape, n), matrices_gb(shape, n)) for n in CURVE]
    return [names, *rows]


def words(shape: str) -> str:
    """Where the two lines cross one half."""
    width, _, heads = SHAPES[shape]
    return (
        f"At GPT-2’s own 1,024 tokens attention is {percent(work_share(shape, 1024))} of the "
        f"multiplications, but, stored, already {percent(kept_share(shape, 1024))} of what a block "
        f"keeps for the way back. "
        f"Memory reaches one half at **{KEPT * width // heads:,}** tokens (16 × {width:,} / {heads}), work "
        f"at **{work_half_at(shape):,}**. So memory is the first wall, and it is the one that fused and "
        f"chunked take away; the work stays."
    )
