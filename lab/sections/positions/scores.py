"""What a score knows of place: one query and one key, a fixed distance apart, moved through the window."""

from dataclasses import replace

from engine.chapter.experiments import POSITIONS
from engine.probes.results.positions import Diagonals
from lab import bench, weights
from lab.bench import Cell, Table
from lab.charts import lines as charts
from lab.charts import panels
from lab.charts.drawing import Spec
from lab.charts.lines import Across, Curve, Line, Plot, edge
from lab.probes import small
from lab.sections.positions.parts import TRAINED
from lab.shell.frame import dot
from lab.shell.styles import style
from lab.weights import Opened
from lab.words import NBSP, decimals, plain, visible

variant = POSITIONS.variant

DISTANCES = ("0", "1", "2", "4", "8", "16", "32")
HEADS = tuple(str(head) for head in range(1, variant("rope").config.n_head + 1))
SCORES = (2, 5, 10, 20, 50, 100, 200, 500)  # and that of scores


def diagonals(found: Diagonals, opened: Opened, distance: str, head: str) -> None:
    """Their score at every place, for the chosen distance and head."""
    note = "first block, before the mask"
    spec = _diagonal_chart(found, distance, head)
    panels.figure("positions.diagonals", "Score over the query’s place", note, spec)
    fresh = len(opened) < len(POSITIONS.variants)
    rest = "Fresh ones, seed 0, where none are trained." if fresh else ""
    caption = f"{weights.whose(opened) if opened else 'Weights:'} {rest}".strip()
    table = replace(_diagonal_table(found, distance, head), caption=caption)
    bench.beside("results-diagonals", [table], _diagonal_words(found, distance, head), "")


def _diagonal_chart(found: Diagonals, distance: str, head: str) -> Spec:
    """Their score over the query's place: flat where only the distance counts."""
    at, row = found.distances.index(int(distance)), int(head) - 1
    values = [
        abs(value) for heads in found.models.values() for one in heads for d in one for value in d.scores
    ]
    top = float(next((end for end in SCORES if end >= max(values)), 1000))
    across = Across(field="place", title="place of the query", ticks=(TRAINED, 128, 256, 384, found.length))
    plot = Plot(
        steps=found.length, low=-top, high=top, log=False, ticks=(-top, -top / 2, 0.0, top / 2, top),
        gutter=0.2, across=across, field="score", shown=decimals(2), over=(edge,),
    )  # fmt: skip
    lines = []
    for name in sorted(POSITIONS.variants, key=lambda name: name == "rope"):  # the one it is about on top
        scores = found.models[name][row][at].scores
        points = tuple((found.every * i + int(distance), score) for i, score in enumerate(scores))
        lines.append(Line(variant(name).short, style(name), (Curve(points),)))
    return charts.line_chart(plot, lines, edge=[{"place": TRAINED, "text": "trained up to here"}])


def _diagonal_table(found: Diagonals, distance: str, head: str) -> Table:
    """The spread of each line: its largest score less its smallest."""
    at, row = found.distances.index(int(distance)), int(head) - 1
    rows = []
    for name in POSITIONS.variants:
        one = found.models[name][row][at]
        most = max(d.all for d in found.models[name][row])
        cells = (Cell(value, small(value)) for value in (one.inside, one.all, most))
        rows.append((f"{dot(name)}{NBSP}{plain(variant(name).title)}", *cells))
    columns = ("spread of the score", f"first {TRAINED}", f"all {found.length}", "any distance")
    return Table(columns, rows)


def _diagonal_words(found: Diagonals, distance: str, head: str) -> str:
    """That RoPE's line is flat, in figures."""
    at, row = found.distances.index(int(distance)), int(head) - 1
    rope, waves = (found.models[name][row][at].all for name in ("rope", "sinusoidal"))
    tokens = f"“{plain(visible(found.query))}” looking at “{plain(visible(found.key))}”"
    return (
        f"{tokens}, {distance} back, in head {head}, in 64-bit numbers. Under RoPE the score is the same at "
        f"every place to **{small(rope)}**, the rounding; with sinusoids it moves by **{small(waves)}**. "
        f"Turning two vectors by one angle leaves their product as it was, so of t and i only t − i is left."
    )
