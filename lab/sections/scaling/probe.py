"""Random vectors, nothing trained: how wide scores get, and what a softmax makes of them."""

from collections.abc import Mapping, Sequence

import streamlit as st

from engine.chapter import measurements, reference
from engine.chapter.measurements import SATURATION, VARIANCE
from engine.probes.registry import SCALING
from engine.probes.results.scaling import RandomVectors
from lab import bench, probes
from lab.bench import Cell, Table, tables, untrained
from lab.charts import panels
from lab.charts.lines import Across, Curve, Line
from lab.charts.panels import Panel, Part
from lab.sections.scaling.parts import figure, share
from lab.settings import Setting, Settings
from lab.shell import frame
from lab.shell.styles import Style
from lab.words import MINUS, NBSP, quantity

PAIRS = (100, 1_000, 5_000, 20_000, 50_000)
PAIRS_OF_THE_CHAPTER = 20_000
D_HEADS = (*measurements.D_HEADS, 4096)
SIDES = (("undivided", Style("red")), ("divided", Style("green")))

Numbers = Mapping[str, Mapping[str, float | None]]


def tiny(value: float | None) -> str:
    """Three decimals, or what would be next to nothing with them: "0.021", "1.8e−5"."""
    if value is None or abs(value) >= 0.0005 or value == 0:
        return quantity(value, 3)
    lead, _, power = f"{value:.1e}".partition("e")
    return f"{lead.replace('-', MINUS)}e{MINUS}{abs(int(power))}"


def brief(value: float | None) -> str:
    """At most three decimals, without zeros at the end: "0.96", "0.961"."""
    return tiny(value) if value is None or abs(value) < 0.0005 else f"{round(value, 3):g}".replace("-", MINUS)


PANELS = (
    Panel("effective_tokens", "Effective tokens", "of 64, log", 1, 64, (1, 4, 16, 64), shown=figure),
    Panel("frozen_share", "Rows over 0.99", "share", -0.03, 1.04, (0, 0.5, 1), False, ".0%", shown=share),
    Panel("trace", "Trace of the Jacobian", "Σ w (1 − w)", -0.03, 1.04, (0, 0.5, 1), False, shown=figure),
    Panel(
        "gradient_share_median",
        "Gradient let through",
        "median row, of 1, log",
        1e-6,
        0.1,
        (1e-6, 1e-4, 1e-2),
        shown=tiny,
    ),
)


def draw(pairs: Setting[int], widest: Setting[int], settings: Settings) -> None:
    """Variance, saturation and Jacobian of vectors that nobody trained."""
    frame.heading(
        "Before any training: random vectors",
        "Draw queries and keys from a standard normal distribution. How wide are their products, and what "
        "does a softmax over 64 of them let through, with the division and without?",
    )
    with st.container(horizontal=True, vertical_alignment="bottom", key="instruments-vectors"):
        pairs.draw(width=260)
        widest.draw(width=260)
        d_heads = tuple(d_head for d_head in D_HEADS if d_head <= widest.value)
        now = {"pairs": pairs.value, "d_heads": list(d_heads)}
        asked = probes.pressed("Measure", settings.key("measure"), now, SCALING.seconds)
        status_slot = bench.status_line()
    probes.outdated(asked, now)
    measured = probes.attempt(status_slot, SCALING, **asked) if asked else None
    d_heads = tuple(row.d for row in measured.variance) if measured else d_heads
    st.markdown("**2,000 rows of 64 random scores** :gray[over the width]")
    across = Across(field="d", title="width d", first=d_heads[0], log=True, ticks=d_heads)
    panels.draw(saturation_parts(measured), d_heads[-1], "vectors", across=across)
    made = variance_table(d_heads, measured), saturation_table(d_heads, measured), chapter_table(measured)
    bench.beside("results-vectors", made, notice(measured))


def variance_table(d_heads: Sequence[int], measured: RandomVectors | None) -> Table:
    """Variance and standard deviation of the scores: the chapter's digits, the reference's and yours."""
    yours = {measured.seed: VARIANCE.read(measured.variance)} if measured else {}
    lines = [
        tables.Line(label, untrained.row(VARIANCE, f"d-{d_head}", metric, yours), metric, tiny)
        for d_head in d_heads
        for metric, label in (
            ("variance", f"{d_head:,}, σ²"),
            ("std", f"{d_head:,}, σ :gray[√d = {d_head**0.5:.0f}]"),
        )
    ]
    return tables.compared(lines, "width d", comparable=as_the_chapter(measured))


def as_the_chapter(measured: RandomVectors | None) -> bool:
    """Whether the variances were measured as the chapter's were."""
    return measured is not None and measured.pairs == PAIRS_OF_THE_CHAPTER


def saturation_parts(measured: RandomVectors | None) -> list[Part]:
    """Four panels over d, undivided and divided."""
    rows = measured.saturation if measured else []
    found = []
    for panel in PANELS:
        lines = []
        for side, look in SIDES:
            points = tuple((row.d, getattr(getattr(row, side), panel.metric)) for row in rows)
            lines.append(Line(side, look, (Curve(points),) if points else ()))
        found.append(Part(panel, lines))
    return found


def saturation_table(d_heads: Sequence[int], measured: RandomVectors | None) -> Table:
    """Undivided, then divided, at every d: yours, and in grey the reference."""
    yours: Numbers = SATURATION.read(measured.saturation) if measured else {}
    found = reference.load(SATURATION.id)
    shipped: Numbers = {
        name: {metric: row.mean(metric) for metric in SATURATION.metrics}
        for name, row in (found.rows.items() if found else ())
    }
    rows = []
    for d_head in d_heads:
        names = (f"undivided-{d_head}", f"divided-{d_head}")
        for label, figures, look in (
            (f"{d_head:,}", yours, f"**{{}}**{NBSP}: {{}}"),
            (":gray[reference]", shipped, f":gray[{{}}{NBSP}: {{}}]"),
        ):
            if figures is shipped and names[0] not in shipped:
                continue
            cells = []
            for panel in PANELS:
                undivided, divided = (figures.get(name, {}).get(panel.metric) for name in names)
                both = look.format(panel.shown(undivided), panel.shown(divided))
                cells.append(tables.NO_NUMBER if None in (undivided, divided) else Cell(undivided, both))
            rows.append((label, *cells))
    columns = ("width d, undivided : divided", "effective tokens", "over 0.99", "trace", "gradient")
    return Table(columns, rows)


def chapter_table(measured: RandomVectors | None) -> Table:
    """The chapter's figures on frozen rows, the reference's, and yours where such a d was measured."""
    yours = {measured.seed: SATURATION.read(measured.saturation)} if measured else {}
    listed = (
        ("rows over 0.99, undivided, 1024", "undivided-1024", "frozen_share", share),
        ("effective tokens, undivided, 256", "undivided-256", "effective_tokens", figure),
        *(
            (f"trace, divided, {d_head}", f"divided-{d_head}", "trace", brief)
            for d_head in measurements.D_HEADS
        ),
    )
    lines = [
        tables.Line(label, untrained.row(SATURATION, variant, metric, yours), metric, write)
        for label, variant, metric, write in listed
    ]
    comparable = untrained.comparable(SATURATION, yours)
    return tables.compared(lines, "beside the chapter", remarks(measured), comparable=comparable)


def remarks(measured: RandomVectors | None) -> str:
    """Below the tables: what their columns hold, and how far they can be compared."""
    said = [
        untrained.shipped_line(VARIANCE, SATURATION),
        f"Its variances are of {untrained.seeds_said(VARIANCE.seeds)}, its rows of "
        f"{untrained.seeds_said(SATURATION.seeds)}; yours are of seed 0, so they have no spread.",
    ]
    if measured and not as_the_chapter(measured):
        said.append(
            f"The variances of chapter and reference are of {PAIRS_OF_THE_CHAPTER:,} pairs, yours of "
            f"{measured.pairs:,}, so grey differences are not comparable."
        )
    said.append(
        "*Italic*: inferred from the chapter’s prose; its effective tokens are of one row. A row is frozen "
        "when one weight exceeds 0.99, effective tokens are e to the row’s entropy, the gradient is the "
        "median row’s."
    )
    return " ".join(said)


def notice(measured: RandomVectors | None) -> str:
    """What the random rows say, in figures."""
    if not measured:
        return "Nothing is trained here: vectors are drawn, multiplied and sent through a softmax."
    rows = measured.saturation
    last = rows[-1]
    undivided, divided = last.undivided, last.divided
    through = [tiny(side.gradient_share_median) for side in (undivided, divided)]
    said = [
        f"Each of the d products adds its own variance of 1, so a score’s standard deviation is √d: "
        f"{figure(measured.variance[-1].std)} at d = {last.d:,}. Softmax sees the differences "
        f"between scores, and e to the power of a difference of {figure(measured.variance[-1].std)} is "
        f"as good as all or nothing.",
        f"At d = {last.d:,} an undivided row attends to {figure(undivided.effective_tokens)} of 64 "
        f"tokens, and {share(undivided.frozen_share)} of the rows are frozen; divided, to "
        f"{figure(divided.effective_tokens)}.",
        f"A frozen row passes hardly any gradient on: the median row lets {through[0]} of one through, "
        f"divided {through[1]}.",
    ]
    peak = max(rows, key=lambda row: row.undivided.gradient_share)
    if peak.undivided.gradient_share > 1.1 * peak.divided.gradient_share:
        said.append(
            f"The mean row is another matter: at d = {peak.d:,} undivided rows let "
            f"{tiny(peak.undivided.gradient_share)} through, divided ones "
            f"{tiny(peak.divided.gradient_share)}."
        )
    return "\n\n".join(said)
