"""What ALiBi gains on longer windows: all tokens of them, and the same tokens without a window's start."""

import streamlit as st

from engine.probes.results.positions import AtLength, EarlyTokens
from lab import weights
from lab.charts import lines as charts
from lab.charts import panels
from lab.charts.drawing import Spec
from lab.charts.lines import Across, Curve, Line, Plot
from lab.shell import frame
from lab.shell.styles import Style
from lab.weights import Opened
from lab.words import decimals, quantity, signed

two = decimals(2)
LINES = {
    "whole": ("whole windows", Style("green")),
    "predicted": ("predicted", Style("gray", "dashed")),
    "sliding": ("sliding window", Style("green", "dotted")),
}


def early_tokens(found: EarlyTokens, opened: Opened) -> None:
    """Perplexity over the length of the window, in three ways; then in words."""
    note = "held out; predicted: the start of the trained windows, spread over more tokens"
    panels.figure("positions.start", "ALiBi on longer windows", note, _chart(found))
    st.markdown(_words(found), width=frame.MEASURE)
    st.caption(
        f"Sliding window: its last {found.stride} tokens are scored, the same {found.scored:,} tokens of the "
        f"text at every length. ±: one standard error of that change. {weights.whose(opened)}"
    )


def _chart(found: EarlyTokens) -> Spec:
    values = [getattr(row, name) for row in found.rows for name in LINES]
    low, high = float(int(min(values))), float(int(max(values)) + 1)
    lengths = tuple(row.length for row in found.rows)
    across = Across(field="tokens", title="tokens in the window", first=lengths[0], log=True, ticks=lengths)
    plot = Plot(
        steps=lengths[-1], low=low, high=high, ticks=(low, (low + high) / 2, high), log=False, gutter=0.2,
        across=across, shown=two,
    )  # fmt: skip
    lines = [
        Line(name, style, (Curve(tuple((row.length, getattr(row, of)) for row in found.rows)),))
        for of, (name, style) in LINES.items()
    ]
    return charts.line_chart(plot, lines)


def _words(found: EarlyTokens) -> str:
    """What the start of a window explains, and what is left."""
    short, long = found.rows[0], found.rows[-1]
    return (
        f"In windows of {short.length} tokens the first has perplexity **{quantity(found.first)}**, those "
        f"after the first {found.stride} have **{quantity(found.late)}**. A longer window has fewer early "
        f"tokens. This alone predicts **{two(long.predicted)}** at {long.length}; **{two(long.whole)}** is "
        f"measured there, and {two(short.whole)} at {short.length}. {_left(short, long)}"
    )


def _left(short: AtLength, long: AtLength) -> str:
    """Whether the same tokens are predicted better with more before them."""
    change, error = long.sliding - short.sliding, long.sliding * long.error_nats
    if abs(change) < 2 * error:
        verdict = "which is no change that can be told from none"
    else:
        verdict = f"so a longer past makes them {'easier' if change < 0 else 'harder'} to predict"
    return (
        f"The same tokens, never early in their window, change by **{signed(change, two)}** ± {two(error)} "
        f"points of perplexity, {verdict}; whole windows by {signed(long.whole - short.whole, two)}."
    )
