"""Where post-norm breaks: a row of the grid to train, its figures, and what there is to notice."""

from collections.abc import Sequence

import streamlit as st

from engine.chapter.experiments import NORM_PLACEMENT
from lab import bench
from lab.bench import Request, Sweep, Table
from lab.bench.tables import number
from lab.charts import lines as charts
from lab.charts import panels
from lab.charts.drawing import Spec
from lab.charts.lines import Across, Curve, Line, Plot
from lab.sections.norm import breaking
from lab.sections.norm.blocks import BROKEN, NARROW, WIDE, power
from lab.sections.norm.breaking import (
    BUDGET,
    GUESS,
    OVERS,
    PRESETS,
    RATES,
    WARMUPS,
    Cell,
    Cut,
    Ended,
    cell_of,
    ended,
)
from lab.settings import Setting, Settings
from lab.shell import frame
from lab.words import NBSP, count, plain, quantity

LOSS = "loss_nats"
LOW, HIGH = 150, 700  # of perplexity


def draw(
    request: Request, over: Setting[str], warmup: Setting[int], rate: Setting[float], settings: Settings
) -> None:
    """Post-norm over learning rates or warmups."""
    frame.heading(
        "Where does post-norm break?",
        "Train post-norm at one warmup over five learning rates, or at one rate over five warmups. Each such "
        "row adds a line to the first figure.",
    )
    cut = Cut(over.value, warmup.value, rate.value)
    key, shown, known = settings.key("preset"), breaking.preset_of(cut), {one.id: one for one in PRESETS}
    st.session_state[key] = shown.id if shown else None

    def chosen() -> None:
        if name := st.session_state[key]:
            there = known[name].cut
            over.value, warmup.value, rate.value = there.over, there.warmup, there.rate

    st.pills("Try", list(known), format_func=lambda name: known[name].label, key=key, on_change=chosen)
    own = "A row of your own. The pills lead to three others."
    st.markdown(shown.why if shown else own, width=frame.MEASURE)
    everything, refused = breaking.grid(request)
    cells = set(cut.cells)
    row = everything.part(lambda spec: cell_of(spec) in cells)

    def drawn(now: Sweep) -> None:
        grid = everything.again()
        st.caption(size_line())
        with st.container(horizontal=True, gap="small", key="figure-breaking"):
            note = f"held out, log, over {OVERS[cut.over].lower()}; ✕ diverged"
            panels.titled(f"norm.grid.{cut.over}", "Final perplexity", note, grid_chart(grid, cut), WIDE)
            curves = curves_chart(now, cut, now.progress)
            note = "nats, log, over the steps"
            panels.titled("norm.curves", "Training loss of this row", note, curves, NARROW)
        bench.beside("results-breaking", [results(grid, cut)], notice(grid, cut))

    def widgets() -> None:
        over.draw()
        (warmup if cut.by_rate else rate).draw(width=240)

    missing = len({cell_of(spec) for spec in row.missing}) or len(cut.cells)
    label = f"Train {count(missing)} model{'s' if missing > 1 else ''}"
    bench.train_also(row, settings, "breaking", label, drawn, widgets=widgets, refused=refused)


def grid_chart(sweep: Sweep, cut: Cut) -> Spec:
    """Final perplexity over what is swept; one line a value of the other, where two of its cells ended."""
    if cut.by_rate:
        across = Across("learning rate", "learning rate, log", RATES[0], log=True, ticks=RATES, form=".6~g")
    else:
        across = Across("warmup", f"warmup, of {BUDGET.steps} steps", ticks=WARMUPS)
    plot = Plot(
        steps=int(across.ticks[-1]), low=LOW, high=HIGH, ticks=(200, 300, 400, 600), across=across,
        shown=lambda _: "",  # lines end at different places: their last values are not comparable
    )  # fmt: skip
    lines, crosses = [], []
    for one, look in cut.beside():
        known = [(cut.place(cell), found) for cell in one.cells if (found := ended(sweep, cell))]
        points = tuple((place, found.perplexity) for place, found in known if found.perplexity is not None)
        mark = {"name": one.title, "slot": look.slot, "dash": look.dash, plot.field: HIGH, "kind": "cross"}
        crosses += [{**mark, across.field: place} for place, found in known if found.diverged]
        lines.append(Line(one.title, look, (Curve(points),) if points else ()))
    spec = charts.line_chart(plot, sorted(lines, key=lambda line: line.style.dash != "solid"))
    spec["datasets"]["ends"] += crosses
    return spec


def curves_chart(sweep: Sweep, cut: Cut, progress: float = 0.0) -> Spec:
    """The training loss of the cut's runs, step by step; a diverged one ends in a cross."""
    plot = Plot(
        steps=BUDGET.steps, low=4, high=400, field="nats", ticks=(5, 10, 30, 100, 300), gutter=0.52,
        across=Across(ticks=(0, BUDGET.steps // 2, BUDGET.steps)),
    )  # fmt: skip
    lines = []
    for cell in cut.cells:
        runs = [run for run in sweep.runs if cell_of(sweep.wanted[run.digest]) == cell]
        curves = tuple(curve for run in runs if (curve := sweep.curve(run, LOSS)).points)
        lines.append(Line(cut.label(cell), cut.look(cell), curves))
    return charts.line_chart(plot, lines, progress)


def verdict(found: Ended | None) -> str:
    """One word on a cell, coloured."""
    if found is None:
        return ":gray[–]"
    if found.diverged:
        reason = found.diverged[0].reason.partition(":")[0] or "diverged"
        return f":red[{plain(reason)}]"
    if found.senseless:
        return ":red[worse than a guess]"
    if found.steepness is None:
        return ":gray[–]"
    return ":red[broken]" if found.broken else ":green[trains]"


def results(sweep: Sweep, cut: Cut) -> Table:
    """A line a cell of the cut."""
    rows = []
    for cell in cut.cells:
        found = ended(sweep, cell)
        perplexity, steep = (found.perplexity, found.steepness) if found else (None, None)
        color = cut.look(cell).slot
        mark = f":{color}[●]" if color != "ink" else "●"
        cells = number(perplexity, bold=True), number(None if perplexity is None else steep, power)
        rows.append((f"{mark}{NBSP}{cut.label(cell)}", *cells, verdict(found)))
    return Table((f"post-norm, {cut.title}", "perplexity", "last / first", "how it ended"), rows)


def notice(sweep: Sweep, cut: Cut) -> str:
    """Where it breaks along the cut, in figures."""
    found = {cell: one for cell in cut.cells if (one := ended(sweep, cell))}
    if not found:
        return "Nothing of this row is trained yet. Which is the first that will break?"
    good = [cell for cell, one in found.items() if one.good]
    broken = [cell for cell, one in found.items() if one.broken and not one.senseless and not one.diverged]
    senseless = [cell for cell, one in found.items() if one.senseless and not one.diverged]
    lost = [cell for cell, one in found.items() if one.diverged]
    said = [
        f"{'With' if cut.by_rate else 'At'} {cut.title} {_edge(cut, good, [*broken, *senseless, *lost])}."
    ]
    if broken:
        worst = max(broken, key=lambda cell: found[cell].steepness or 0)
        said.append(
            f"Broken means that the last block’s gradient ends more than {BROKEN:,} times the first’s: "
            f"{power(found[worst].steepness)} times at {cut.label(worst)}, and "
            f"{quantity(found[worst].perplexity)} in perplexity."
        )
    for cell in senseless:
        said.append(
            f"{cut.label(cell).capitalize()}: it ends at {quantity(found[cell].perplexity)}, above the "
            f"{GUESS:,} of a uniform guess."
        )
    for cell in lost:
        run = found[cell].diverged[0]
        said.append(f"{cut.label(cell).capitalize()}: {plain(run.reason)}. The others went on.")
    return "\n\n".join(said)


def _edge(cut: Cut, good: Sequence[Cell], bad: Sequence[Cell]) -> str:
    """The two neighbours between which it breaks, where there are two such."""
    if not good:
        return "post-norm trains nowhere that you tried"
    if not bad:
        return "post-norm trains wherever you tried"
    last, first = max(good, key=cut.place), min(bad, key=cut.place)
    if cut.by_rate and cut.place(last) < cut.place(first):
        return f"post-norm trains up to {cut.label(last)} and breaks from **{cut.label(first)}** on"
    shortest, longest = min(good, key=cut.place), max(bad, key=cut.place)
    if not cut.by_rate and cut.place(longest) < cut.place(shortest):
        return f"post-norm breaks with {cut.label(longest)} and trains from **{cut.label(shortest)}** on"
    names = ", ".join(cut.label(cell) for cell in good)
    return f"post-norm trains at {names} and breaks elsewhere"


def size_line() -> str:
    """What every run of the grid trains."""
    full = NORM_PLACEMENT.budget("chapter")
    return (
        f"Each run: post-norm, 12 blocks, {BUDGET.steps} steps of {BUDGET.batch_size} × "
        f"{BUDGET.context_length} tokens, whatever the budget above; the chapter’s are {full.steps:,} of "
        f"{full.batch_size} × {full.context_length}. Runs with the same settings as one above are not "
        f"trained twice."
    )
