"""Which number stands for "never", and in which type; and a row that has nothing left to see."""

import math
from collections.abc import Mapping, Sequence

import streamlit as st

from engine.probes.results.leaks import Constant, EmptyRow
from lab import bench
from lab.bench import Cell, Table
from lab.charts import drawing
from lab.sections.mask.charts import CONSTANTS, leak_chart
from lab.words import MINUS, NBSP, count, plain

SIZES = (*(float(lead * 10**power) for power in range(10) for lead in (1, 2, 5)), 1e10)
TYPES = ("float32", "float16", "bfloat16")


def size_label(size: float) -> str:
    """A size of scores for people: "5,000", "1e9"."""
    return f"{size:,.0f}" if size < 1e6 else f"{size:.0e}".replace("e+0", "e").replace("e+", "e")


def constants(measured: Sequence[Constant], kind: str, size: float) -> None:
    """What leaks past each mask value in one type, and what all of them become in all types."""
    found = {(one.kind, one.value): one for one in measured}
    with st.container(horizontal=True, gap="medium"):
        with st.container(width=528):
            st.markdown(f"**Weight on what is masked** :gray[{kind}, mean over rows]")
            leaks = {value: found[kind, value].leaks for value in CONSTANTS}
            drawing.draw(leak_chart(leaks, size), key="leaks")
            st.caption(
                "500 grids of 6 × 6 normal scores. A cross ends a curve where scores no longer fit the type."
            )
        with st.container(width=560):
            st.markdown(f"**What becomes of the mask value** :gray[scores of size {size_label(size)}]")
            _constants_table(found, size).draw()


def _constants_table(found: Mapping[tuple[str, str], Constant], size: float) -> Table:
    """What each mask value becomes in each type, and what leaks past it at one size of the scores."""
    rows = []
    for kind in TYPES:
        for value, (name, look) in CONSTANTS.items():
            one = found[kind, value]
            rows.append(
                (
                    f":{look.slot}[●]{NBSP}{name}",
                    kind,
                    ":red[refused]" if one.filled is None else _number(one.filled),
                    _number(one.cast),
                    _leak(one, size),
                )
            )
    columns = ("mask value", "type", "masked_fill", "cast", "leaks")
    caption = ""
    if refusals := {one.refusal for one in found.values() if one.refusal}:
        said = "; ".join(f"“{plain(refusal)}”" for refusal in refusals)
        caption = f"Refused: masked\\_fill raises {said}, while a cast says nothing and changes the value."
    return Table(columns, rows, caption, "What each mask value becomes, and what leaks past it")


def _leak(one: Constant, size: float) -> Cell:
    leak = one.leaks[size]
    if leak is None:
        return Cell(None, ":gray[–]" if one.filled is None else ":red[overflow]")
    return Cell(leak, "0" if leak == 0 else f"**:red[{leak:.3f}]**")


def _number(value: float) -> str:
    if math.isinf(value):
        return f"{MINUS}∞" if value < 0 else "∞"
    return f"{value:,.0f}".replace("-", MINUS)


_LIKE = {
    "nan": ":red[NaN]",
    "bias": ":green[the bias of W_O alone]",
    "mean": ":red[the mean of all six tokens]",
    "other": "something else",
}


def empty_rows(found: Sequence[EmptyRow]) -> None:
    """What every way makes of the empty row, and where it leaves NaN behind."""
    rows = [
        (
            plain(one.way),
            _LIKE[one.like].replace("_", "\\_"),
            f":red[{plain(', '.join(one.nan_gradients))}]" if one.nan_gradients else "none",
        )
        for one in found
    ]
    table = Table(
        ("attention computed by", "that row’s output", "NaN in the gradient of"),
        rows,
        "torch as it is installed here, one head with the same weights in all six ways.",
        "A row in which everything is masked, in six ways",
    )
    bench.beside("results-empty", [table], _remedies(found), "")


def _remedies(found: Sequence[EmptyRow]) -> str:
    poisoned = sum(bool(one.nan_gradients) for one in found)
    said = [
        f"{count(poisoned).capitalize()} of the six leave NaN in a gradient: 0 times NaN is NaN, so "
        f"leaving the row out of the loss does not help."
    ]
    if any(one.like == "mean" for one in found):
        said.append(
            "A finite constant gives no NaN and no warning: all scores are equal then, and the row is a "
            "mean of what it must not see."
        )
    said.append("Set such a row to 0 after the softmax, or let every row see itself.")
    return "\n\n".join(said)
