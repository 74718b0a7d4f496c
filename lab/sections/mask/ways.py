"""One average three ways: a loop, a matrix product and a softmax of equal scores."""

import ast
import inspect
import textwrap
from collections.abc import Callable

import numpy as np
import streamlit as st

from engine.probes import masks
from lab import probes
from lab.bench import Cell, Table
from lab.charts import drawing
from lab.sections.mask import charts
from lab.settings import Setting
from lab.shell import frame

LENGTHS = ("6", "16", "64", "128")
WIDE, NARROW = 640, 448  # px


def draw(tokens: Setting[str], vectors: Setting[int]) -> None:
    """The three as code, how far they are apart on vectors that are drawn, and the matrix."""
    frame.heading(
        "Three ways to one average",
        "The mean of everything up to t looks like a loop. It is one product with a triangle whose rows sum "
        "to 1, and that triangle is the softmax of equal scores with −∞ above the diagonal.",
    )
    with st.container(horizontal=True, vertical_alignment="bottom", key="instruments-ways"):
        tokens.draw(width="content")
        vectors.draw()
        st.caption(f"Standard normal, {masks.WIDTH} wide, float32, seed {vectors.value}")
    found = masks.three_ways(int(tokens.value), vectors.value)
    with st.container(horizontal=True, gap="medium"):
        with st.container(width=WIDE):
            ways = (masks.loop, masks.matrix_product, masks.softmax_of_zeros)
            st.code("\n\n".join(body(way) for way in ways), language="python")
            gaps = found.differences.items()
            rows = [(f"{a} and {b}", Cell(gap, f"**{probes.tiny(gap)}**")) for (a, b), gap in gaps]
            alt = "Differences between the three ways"
            Table(("two ways", "largest difference"), rows, _about(found), alt).draw()
        with st.container(width=NARROW):
            st.markdown("**The averaging matrix** :gray[each row sums to 1, grey: masked]")
            zeros = np.zeros((masks.TOKENS, masks.TOKENS))
            drawing.draw(charts.weights_map(masks.mix(zeros).weights, zeros, causal=True), key="averaging")


def _about(found: masks.ThreeWays) -> str:
    magnitude = f"Mean absolute value of the averages: {found.magnitude:.2f}"
    if not any(found.differences.values()):
        return f"{magnitude}; here the three agree to the last bit."
    return f"{magnitude}; what differs is the rounding of sums taken in another order."


def body(function: Callable[..., object]) -> str:
    """The text of a function without its docstring, which a page has said already."""
    text = textwrap.dedent(inspect.getsource(function))
    parsed = ast.parse(text).body[0]
    lines = text.rstrip().splitlines()
    if isinstance(parsed, ast.FunctionDef) and ast.get_docstring(parsed):
        said = parsed.body[0]
        del lines[said.lineno - 1 : said.end_lineno]
    return "\n".join(lines)
