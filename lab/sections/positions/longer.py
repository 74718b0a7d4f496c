"""Trained weights beyond the length they were trained on: perplexity by position, and RoPE turned slower."""

import math
from dataclasses import replace
from typing import Any

import streamlit as st

from engine.chapter.experiments import POSITIONS
from engine.probes.results.positions import Places, Rescaled
from lab import bench, weights
from lab.bench import Table
from lab.bench.tables import number
from lab.charts import drawing, panels
from lab.charts import lines as charts
from lab.charts.drawing import Spec
from lab.charts.lines import Across, Curve, Line, Plot, edge
from lab.sections.positions.parts import LENGTHS, LONGER, TRAINED
from lab.shell import frame
from lab.shell.styles import Style, style
from lab.weights import Opened
from lab.words import NBSP, plain, quantity

variant = POSITIONS.variant

# RoPE as it was trained, and its two rescalings.
WAYS = {
    "plain": ("as trained", Style("violet")),
    "linear": ("linear", Style("violet", "dashed")),
    "ntk": ("NTK-aware", Style("violet", "dotted")),
}


def places(found: Places, opened: Opened) -> None:
    """Perplexity per position of a long window."""
    note = "log scale, held out, 16 positions a point"
    panels.figure("positions.places", "Perplexity by position", note, _places_chart(found))
    st.markdown(_places_words(found), width=frame.MEASURE)
    st.caption(f"{found.windows} windows. {weights.whose(opened)}")


def _places_chart(found: Places) -> Spec:
    """Perplexity over the position in a window of 512, a line a scheme."""
    wide, half = found.length, found.bin // 2
    low, high, ticks = bounds(value for one in found.models.values() for value in one.bins)
    across = Across(field="position", title="position in the window", ticks=(TRAINED, 128, 256, 384, wide))
    plot = Plot(steps=wide, low=low, high=high, ticks=ticks, gutter=0.2, across=across, over=(edge,))
    lines = []
    for name in POSITIONS.variants:
        if one := found.models.get(name):
            points = tuple((found.bin * at + half, value) for at, value in enumerate(one.bins))
            lines.append(Line(variant(name).short, style(name), (Curve(points),)))
    return charts.line_chart(plot, lines, edge=[{"position": TRAINED, "text": "trained up to here"}])


def bounds(values: Any) -> tuple[float, float, tuple[float, ...]]:
    """Of an axis of perplexities: the chapter's, or wider ones where something does not fit."""
    held = list(values)
    if min(held) > 30 and max(held) < 300:
        return 30.0, 300.0, (30.0, 50.0, 100.0, 200.0, 300.0)
    return 1.0, 10_000.0, (1.0, 10.0, 100.0, 1000.0, 10_000.0)


def _places_words(found: Places) -> str:
    """Before and behind the edge, read off the bins."""
    inside = TRAINED // found.bin
    said = []
    for name in POSITIONS.variants:
        if one := found.models.get(name):
            near, far = one.bins[inside - 1], one.bins[-1]
            said.append((far / near, f"{plain(variant(name).short)} {quantity(near)} and {quantity(far)}"))
    listed = "; ".join(text for _, text in sorted(said, key=lambda one: -one[0]))
    return (
        f"The last positions that training saw and the last of {found.length}, the largest rise first: "
        f"{listed}. What a line does at the dashed rule is not the text’s doing: all read the same windows."
    )


def rescaled(found: Rescaled, opened: Opened) -> None:
    """RoPE's weights, read with a slower rotation."""
    st.markdown("**RoPE, three ways to turn** :gray[held-out perplexity, log scale]")
    with st.container(horizontal=True, gap="medium", key="results-rescaled"):
        with st.container(width=bench.TABLE_WIDTH):
            with st.container(key="figure-rescaled"):
                drawing.draw(_rescaled_chart(found), key="positions.rescaled")
            replace(_rescaled_table(found), caption=weights.whose(opened)).draw()
        with st.container(width=bench.NOTICE_WIDTH):
            st.subheader("Does it repair 256?", anchor=False)
            st.markdown(_rescaled_words(found))


def _rescaled_chart(found: Rescaled) -> Spec:
    """Perplexity over the length: RoPE as it was trained and with its two rescalings."""
    low, high, ticks = bounds(row.perplexity for row in found.rows)
    if high == 300:  # nothing near it: the three would lie on each other
        high, ticks = 150.0, (30.0, 50.0, 100.0, 150.0)
    across = Across(field="tokens", title="tokens in the window", first=TRAINED, log=True, ticks=LENGTHS)
    plot = Plot(steps=max(LENGTHS), low=low, high=high, ticks=ticks, gutter=0.42, across=across)
    lines = []
    for way, (name, look) in WAYS.items():
        points = tuple((length, _of(found, way, length)) for length in LENGTHS)
        lines.append(Line(name, look, (Curve(points),)))
    return charts.line_chart(plot, lines)


def _of(found: Rescaled, way: str, length: int) -> float:
    """That perplexity; at the length of training the three are one, and measured once."""
    rows = {(row.way, row.length): row.perplexity for row in found.rows}
    value = rows.get((way, length)) or rows["plain", TRAINED]
    return math.inf if value is None else value


def _rescaled_table(found: Rescaled) -> Table:
    """The same as numbers, and how much slower the rotation is."""
    rows = []
    for length in LENGTHS:
        values = [_of(found, way, length) for way in WAYS]
        cells = (number(value, bold=value == min(values)) for value in values)
        rows.append((f"{length} tokens", *cells, number(length / TRAINED, "{:g}".format)))
    return Table(("RoPE at", *(name for name, _ in WAYS.values()), "slower by"), rows)


def _rescaled_words(found: Rescaled) -> str:
    """Whether 256 is repaired: what share of the loss each takes back."""
    start, lost = _of(found, "plain", TRAINED), _of(found, "plain", LONGER)
    said = [
        f"As trained, RoPE goes from {quantity(start)} at {TRAINED} tokens to {quantity(lost)} at {LONGER}."
    ]
    for way in ("linear", "ntk"):
        now = _of(found, way, LONGER)
        name = WAYS[way][0]
        name = f"{name[:1].upper()}{name[1:]} rescaling"
        if lost <= start:
            said.append(f"{name}: {quantity(now)}. There was nothing to repair.")
        elif now < lost:
            share = (lost - now) / (lost - start)
            said.append(
                f"{name} takes back **{quantity(100 * share, 0)}{NBSP}%** of that: {quantity(now)}"
                f"{', a repair' if share > 0.8 else ', a part of the damage'}."
            )
        else:
            said.append(f"{name} makes it worse: **{quantity(now)}**.")
    said.append(
        "Neither was trained for. A linear stretch also crowds neighbours together; the larger base keeps "
        "the fast pairs, and so the neighbours, where they were. That matters: inside 64 tokens, turned four "
        "times slower, the shipped model has 70.6 and 42.3 instead of 40.8. Models that are “extended” are "
        "usually trained on for a while after such a change (Chen et al. 2023)."
    )
    return " ".join(said)
