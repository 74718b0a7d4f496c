"""Gradients per block while the models train, at one step of the reader's runs."""

from collections.abc import Callable
from dataclasses import replace
from statistics import geometric_mean

import streamlit as st

from engine.chapter.experiments import NORM_PLACEMENT
from engine.system.errors import InvalidInput
from lab import bench
from lab.bench import Sweep, Table
from lab.bench.figures import variant_lines
from lab.bench.sweep import Listed
from lab.bench.tables import NOTHING, Cell, model, number
from lab.charts import lines as charts
from lab.charts import panels
from lab.charts.drawing import Spec
from lab.charts.lines import Across, Curve, Plot
from lab.sections.norm.start import ACROSS, BLOCKS
from lab.settings import Setting
from lab.shell import frame
from lab.words import NBSP

NARROW, WIDE = 464, 640  # px, of the two figures of a row
EVERY = 10  # steps, from one recorded gradient to the next
METRIC = "grad_norm_blocks"
BROKEN = 100  # last block over first; what trains well stays under 40
UNDERFLOW = 1e-45  # stands for nothing: the smallest that float32 can hold
_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def power(value: float | None) -> str:
    """Over many orders of magnitude: "0.014", "5.4 × 10⁻⁷", "71,000"."""
    if value is None:
        return "–"
    if value == 0 or 0.001 <= value < 10_000_000:
        return f"{value:.2g}" if value < 100 else f"{float(f'{value:.2g}'):,.0f}"
    lead, _, exponent = f"{value:.1e}".partition("e")
    return f"{lead}{NBSP}×{NBSP}10{str(int(exponent)).translate(_SUPERSCRIPTS)}"


def checked(last: int) -> Callable[[str], int]:
    """A parser of the scrubbed step: one at which gradients are recorded."""

    def parse(text: str) -> int:
        if text not in {str(step) for step in range(EVERY, last + 1, EVERY)}:
            raise InvalidInput(f"at is {text!r}; allowed: every tenth step from {EVERY} to {last:,}.")
        return int(text)

    return parse


def draw(sweep: Sweep, step: Setting[int]) -> None:
    """The gradients of the reader's own runs, block by block, at one step."""
    frame.heading(
        "While it trains",
        "Every tenth step of your runs above recorded how much gradient reached W_Q, W_K and W_V of each "
        "block. Move the step to where post-norm breaks.",
    )
    last = NORM_PLACEMENT.budget(sweep.request.budget).steps
    if step.value > last:  # of a longer budget
        st.markdown(f":orange[Step {step.value:,} is beyond this budget’s {last:,}. Used: {last:,}.]")
        step.value = last
    at = st.slider("After step", EVERY, last, step=EVERY, key=step.key, width=bench.HALF)
    with st.container(horizontal=True, gap="small", key="figure-blocks"):
        ratio, blocks = ratio_chart(sweep, last, at), blocks_chart(sweep, at)
        note = "ratio of the two norms, log, over the steps"
        panels.titled("norm.ratio", "Last block over first", note, ratio, NARROW)
        panels.titled("norm.blocks", "Gradient norm per block", f"log, after step {at:,}", blocks, WIDE)
    bench.beside("results-blocks", [results(sweep, at)], reading(sweep, at))


def steepness(norms: Listed) -> float | None:
    """The last block's norm over the first's, None where one is no number."""
    first, last = norms[0], norms[-1]
    return None if first is None or last is None else max(last, UNDERFLOW) / max(first, UNDERFLOW)


def ratios(sweep: Sweep, name: str) -> tuple[Curve, ...]:
    """Last over first at every recorded step, one curve a seed."""
    found = [
        tuple((step, value) for step, norms in by_step.items() if (value := steepness(norms)))
        for by_step in sweep.lists(name, METRIC)
    ]
    return tuple(map(Curve, filter(None, found)))


def at_step(sweep: Sweep, name: str, step: int) -> tuple[Curve, ...]:
    """The norm over the block at a step, one curve a seed that has come so far."""
    found = [
        tuple((block, norm) for block, norm in enumerate(by_step.get(step, ()), start=1) if norm)
        for by_step in sweep.lists(name, METRIC)
    ]
    return tuple(map(Curve, filter(None, found)))


def ratio_chart(sweep: Sweep, last: int, at: int) -> Spec:
    """Last block over first, over the steps, and where the reader stands."""
    plot = Plot(
        steps=last, low=1e-3, high=1e12, field="ratio", ticks=(1e-3, 1, 1e3, 1e6, 1e9, 1e12), form=".4~g",
        shown=power, gutter=0.02, names=False, across=Across(ticks=(0, last // 2, last)), over=(charts.here,),
    )  # fmt: skip
    lines = variant_lines(NORM_PLACEMENT, lambda name: ratios(sweep, name))
    return charts.line_chart(plot, lines, here=[{"step": at}])


def blocks_chart(sweep: Sweep, at: int) -> Spec:
    """The norm over the block, at one step."""
    plot = Plot(
        steps=BLOCKS, low=1e-12, high=10, field="norm", ticks=(1e-12, 1e-8, 1e-4, 1), form=".2~g",
        shown=power, gutter=0.56, across=replace(ACROSS, title="block"),
    )  # fmt: skip
    return charts.line_chart(plot, variant_lines(NORM_PLACEMENT, lambda name: at_step(sweep, name, at)))


def broken_from(sweep: Sweep, name: str) -> int | None:
    """The first step from which on the last block's gradient stays a hundred times the first's.

    Of several seeds, the earliest; None as long as none is recorded, or where it never happens.
    """
    found = []
    for curve in ratios(sweep, name):
        start = None
        for step, value in curve.points:
            start = (start or step) if value > BROKEN else None
        if start is not None:
            found.append(int(start))
    return min(found, default=None)


def mean_at(sweep: Sweep, name: str, at: int) -> list[float] | None:
    """The norm of every block at a step, the geometric mean over seeds, None where nobody has come so far."""
    recorded = [by_step.get(at, ()) for by_step in sweep.lists(name, METRIC)]
    held = [norms for norms in recorded if len(norms) == BLOCKS and None not in norms]
    if not held:
        return None
    return [geometric_mean([norm or UNDERFLOW for norm in of_block]) for of_block in zip(*held, strict=True)]


def results(sweep: Sweep, at: int) -> Table:
    """Block 1 and 12 at the step, last over first, and from which step on it stays broken."""
    rows = []
    for name in NORM_PLACEMENT.variants:
        norms, broken = mean_at(sweep, name, at), broken_from(sweep, name)
        picked = (norms[0], norms[-1], norms[-1] / norms[0]) if norms else (None,) * 3
        never = ":gray[never]" if ratios(sweep, name) else NOTHING
        since = Cell(broken, f":red[step{NBSP}{broken:,}]" if broken else never)
        rows.append((model(sweep, name), *(number(value, power, bold=True) for value in picked), since))
    return Table(
        (f"yours, step {at:,}", "block 1", "block 12", "last / first", "broken from"),
        rows,
        "Of the gradient of that step’s batch, before its own update. Over several seeds: the geometric "
        "mean. Broken from: the step from which on the last block’s stays over "
        f"{BROKEN:,} times the first’s.",
    )


def reading(sweep: Sweep, at: int) -> str:
    """The step in words."""
    found = {name: mean_at(sweep, name, at) for name in NORM_PLACEMENT.variants}
    post, pre = found["post-norm"], found["pre-norm"]
    if post is None or pre is None:
        if any(sweep.lists(name, METRIC) for name in found):
            return "Not every model has come to this step, or it has a non-finite gradient."
        return "Nothing is recorded yet. Train the four models above; then move the step."
    passed = (post[-1] / post[0]) ** (1 / (BLOCKS - 1))
    said = [
        f"After step {at:,} without a warmup, block 1 gets {power(pre[0])} in pre-norm and "
        f"**{power(post[0])}** in post-norm."
    ]
    if passed > 1.2:
        said.append(
            f"On its way down post-norm’s gradient shrinks {passed:.1f} times a block, so what reaches the "
            f"first is {power(post[-1] / post[0])} times less than the last one gets."
        )
    starts = {name: broken_from(sweep, name) for name in ("post-norm", "post-norm-warmup")}
    if starts["post-norm"]:
        said.append(
            f"Without a warmup it is broken from step {starts['post-norm']:,} on: hardly anything reaches "
            f"the first blocks."
        )
    if (warmed := found["post-norm-warmup"]) is not None:
        broken = starts["post-norm-warmup"]
        fate = f"breaks at step {broken:,} as well" if broken else "never breaks"
        said.append(
            f"With a warmup it {fate}; here its last block gets {power(warmed[-1] / warmed[0])} times the "
            f"first’s."
        )
    return "\n\n".join(said)
