"""Post-norm over warmups and learning rates: where it breaks, and where it diverges.

Every cell of a grid is a run of its own at the quick size; one row or one column is trained at a time, and
what was measured before, by whomever, is drawn as well.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from engine.chapter.experiments import BREAKING, NORM_PLACEMENT, PERPLEXITY
from engine.chapter.variants import POST_NORM
from engine.runs import launch
from engine.runs.spec import RunSpec
from engine.runs.store import Run
from engine.system.errors import LabError
from lab.bench import Request, Sweep, Table
from lab.bench.tables import number
from lab.charts import lines as charts
from lab.charts.drawing import Spec
from lab.charts.lines import Across, Curve, Line, Plot
from lab.sections.norm.blocks import BROKEN, METRIC, power, steepness
from lab.shell.styles import Style
from lab.words import NBSP, plain, quantity

BUDGET = BREAKING.budget("quick")
WARMUPS = (0, 15, 30, 60, 120)
RATES = (0.0003, 0.001, 0.003, 0.01, 1.0)
USUAL = BUDGET.learning_rate
GUESS = POST_NORM.config.vocab_size  # the perplexity when every token is equally likely
OVERS = {"rate": "Learning rates", "warmup": "Warmups"}
LOSS = "loss_nats"
LOW, HIGH = 150, 700
# In the order of the values: red is no warmup, and the rate that is too high.
_SLOTS = {
    "warmup": (Style("red", "dashed"), Style("orange"), Style("violet"), Style("blue"), Style("ink")),
    "rate": (Style("gray"), Style("blue"), Style("violet"), Style("orange"), Style("red")),
}

Cell = tuple[int, float]  # warmup in steps, learning rate


@dataclass(frozen=True)
class Cut:
    """One row or column of the grid.

    over: what is swept; warmup, rate: the cell that the sliders stand at, one of which the cut goes through.
    """

    over: str
    warmup: int
    rate: float

    @property
    def cells(self) -> list[Cell]:
        """What is trained, in order."""
        if self.over == "rate":
            return [(self.warmup, rate) for rate in RATES]
        return [(warmup, self.rate) for warmup in WARMUPS]

    def label(self, cell: Cell) -> str:
        """What tells a cell of the cut from its others."""
        return rate_said(cell[1]) if self.over == "rate" else warmup_said(cell[0])

    def look(self, cell: Cell) -> Style:
        """How that cell's curve is drawn."""
        place = RATES.index(cell[1]) if self.over == "rate" else WARMUPS.index(cell[0])
        return _SLOTS[self.over][place]


@dataclass(frozen=True)
class Preset:
    """A cut that shows something known to go wrong. why: in a sentence, before anything is measured."""

    id: str
    label: str
    cut: Cut
    why: str


PRESETS = (
    Preset(
        "no-warmup",
        "No warmup",
        Cut("rate", 0, USUAL),
        f"Post-norm at the full rate from step 1 on. At {USUAL:g} and above the first blocks soon get a "
        f"hundredth of the last one’s gradient or less, and the model stays near what counting tokens gives.",
    ),
    Preset(
        "too-fast",
        "Rate 0.003",
        Cut("warmup", 60, 0.003),
        "The chapter’s own rate, on batches sixteen times smaller than its. Their gradients are noisier, so "
        "it takes a longer warmup, or a lower rate: a warmup moves the edge, and does not remove it.",
    ),
    Preset(
        "rate-one",
        "Rate 1",
        Cut("warmup", 0, 1.0),
        "AdamW moves every weight by about the rate, so by 1, where the weights are some hundredths. The "
        "loss passes 100 nats, which ends a run as diverged; the curve up to there is kept.",
    ),
)


def rate_said(rate: float) -> str:
    """ "rate 0.003"."""
    return f"rate {rate:g}"


def warmup_said(warmup: int) -> str:
    """ "no warmup", "warmup 60"."""
    return f"warmup {warmup}" if warmup else "no warmup"


def cell_of(spec: RunSpec) -> Cell:
    """Where in the grid a run belongs."""
    return spec.budget.warmup_steps, spec.budget.learning_rate


def grid(request: Request) -> tuple[Sweep, str | None]:
    """All cells with the chosen seeds and text, whatever of them is measured; and why there can be none."""
    nothing = Sweep.of(BREAKING, [], request)
    if request.missing_input or request.corpus_id is None:
        return nothing, f":gray[{request.missing_input}]"
    cells = [(warmup, rate) for warmup in WARMUPS for rate in RATES]
    try:
        specs = launch.breaking(request.seeds, request.corpus_id, cells)
    except LabError as error:
        return nothing, f":red[{plain(str(error))}]"
    return Sweep.of(BREAKING, specs, request), None


def along(sweep: Sweep, cut: Cut) -> Sweep:
    """The runs of a cut."""
    cells = set(cut.cells)
    return sweep.part(lambda spec: cell_of(spec) in cells)


@dataclass(frozen=True)
class Ended:
    """What is measured of a cell: the mean perplexity of the seeds that have one, and how many diverged.

    steepness: the last block's gradient over the first's at the last record, the largest over the seeds.
    """

    perplexity: float | None
    diverged: tuple[Run, ...]
    steepness: float | None

    @property
    def broken(self) -> bool:
        """Whether the first blocks get next to nothing."""
        return self.steepness is not None and self.steepness > BROKEN

    @property
    def senseless(self) -> bool:
        """Whether it ended without diverging, and worse than if all tokens were equally likely."""
        return self.perplexity is not None and self.perplexity > GUESS

    @property
    def good(self) -> bool:
        """Whether nothing of that kind befell it."""
        return not (self.broken or self.senseless or self.diverged)


def ended(sweep: Sweep, cell: Cell) -> Ended | None:
    """What is measured of a cell; None as long as nothing is."""
    runs = [run for digest, run in sweep.measured.items() if cell_of(sweep.wanted[digest]) == cell]
    if not runs:
        return None
    values = [value for run in runs if run.state == "done" and (value := run.measured.get(PERPLEXITY))]
    found = [steepness(norms[METRIC]) for run in runs if (norms := sweep.last(run)).get(METRIC)]
    return Ended(
        perplexity=fmean(values) if values else None,
        diverged=tuple(run for run in runs if run.state == "diverged"),
        steepness=max((value for value in found if value is not None), default=None),
    )


def grid_chart(sweep: Sweep, cut: Cut) -> Spec:
    """Final perplexity over what is swept; one line a value of the other, where two of its cells ended."""
    by_rate = cut.over == "rate"
    across = Across(
        field="learning rate" if by_rate else "warmup",
        title="learning rate, log" if by_rate else f"warmup, of {BUDGET.steps} steps",
        first=RATES[0] if by_rate else WARMUPS[0],
        log=by_rate,
        ticks=RATES if by_rate else WARMUPS,
        form=".6~g" if by_rate else ",d",
    )
    last = int(across.ticks[-1])
    frame = Plot(
        steps=last,
        low=LOW,
        high=HIGH,
        ticks=(200, 300, 400, 600),
        shown=lambda _: "",  # lines end at different places: their last values are not comparable
        across=across,
    )
    lines, crosses = [], []
    other: Sequence[float] = WARMUPS if by_rate else RATES
    for value, look in zip(other, _SLOTS["warmup" if by_rate else "rate"], strict=True):
        one = Cut(cut.over, int(value), 0) if by_rate else Cut(cut.over, 0, value)
        name = warmup_said(int(value)) if by_rate else rate_said(value)
        points = []
        for cell in one.cells:
            found = ended(sweep, cell)
            place = cell[1] if by_rate else cell[0]
            if found and found.perplexity is not None:
                points.append((place, found.perplexity))
            if found and found.diverged:
                crosses.append(
                    {
                        "name": name,
                        "slot": look.slot,
                        "dash": look.dash,
                        across.field: place,
                        frame.field: HIGH,
                        "kind": "cross",
                    }
                )
        lines.append(Line(name, look, (Curve(tuple(points)),) if points else ()))
    spec = charts.line_chart(frame, sorted(lines, key=lambda line: line.style.dash != "solid"))
    spec["datasets"]["ends"] += crosses
    return spec


def curves_chart(sweep: Sweep, cut: Cut, progress: float = 0.0) -> Spec:
    """The training loss of the cut's runs, step by step; a diverged one ends in a cross."""
    frame = Plot(
        steps=BUDGET.steps,
        low=4,
        high=400,
        field="nats",
        ticks=(5, 10, 30, 100, 300),
        across=Across(ticks=(0, BUDGET.steps // 2, BUDGET.steps)),
        gutter=0.52,
    )
    lines = []
    for cell in cut.cells:
        runs = [run for run in sweep.runs if cell_of(sweep.wanted[run.digest]) == cell]
        curves = tuple(curve for run in runs if (curve := sweep.curve(run, LOSS)).points)
        lines.append(Line(cut.label(cell), cut.look(cell), curves))
    return charts.line_chart(frame, lines, progress)


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
        rows.append(
            (
                f"{mark}{NBSP}{cut.label(cell)}",
                number(perplexity, bold=True),
                number(None if perplexity is None else steep, power),
                verdict(found),
            )
        )
    where = warmup_said(cut.warmup) if cut.over == "rate" else rate_said(cut.rate)
    return Table((f"post-norm, {where}", "perplexity", "last / first", "how it ended"), rows)


def notice(sweep: Sweep, cut: Cut) -> str:
    """Where it breaks along the cut, in figures."""
    found = {cell: one for cell in cut.cells if (one := ended(sweep, cell))}
    if not found:
        return "Nothing of this row is trained yet. Which is the first that will break?"
    good = [cell for cell, one in found.items() if one.good]
    broken = [cell for cell, one in found.items() if one.broken and not one.senseless and not one.diverged]
    senseless = [cell for cell, one in found.items() if one.senseless and not one.diverged]
    lost = [cell for cell, one in found.items() if one.diverged]
    said = []
    named = f"With {warmup_said(cut.warmup)}" if cut.over == "rate" else f"At {rate_said(cut.rate)}"
    if good and (bad := [*broken, *senseless, *lost]):
        edge = _edge(cut, good, bad)
        said.append(f"{named} {edge}.")
    elif good:
        said.append(f"{named} post-norm trains wherever you tried.")
    else:
        said.append(f"{named} post-norm trains nowhere that you tried.")
    if broken:
        worst = max(broken, key=lambda cell: found[cell].steepness or 0)
        said.append(
            f"Broken means that the last block’s gradient ends more than {BROKEN:,} times the first’s: "
            f"{power(found[worst].steepness)} times at {cut.label(worst)}, and "
            f"{quantity(found[worst].perplexity)} in perplexity, about what counting tokens gives."
        )
    for cell in senseless:
        said.append(
            f"{cut.label(cell).capitalize()}: it ends at {quantity(found[cell].perplexity)}, above the "
            f"{GUESS:,} of a uniform guess, destabilised in its last steps."
        )
    for cell in lost:
        run = found[cell].diverged[0]
        said.append(f"{cut.label(cell).capitalize()}: {plain(run.reason)}. The others went on.")
    return "\n\n".join(said)


def _edge(cut: Cut, good: Sequence[Cell], bad: Sequence[Cell]) -> str:
    """The two neighbours between which it breaks, where there are two such."""
    if cut.over == "rate":
        highest, lowest = max(cell[1] for cell in good), min(cell[1] for cell in bad)
        if highest < lowest:
            return f"post-norm trains up to {rate_said(highest)} and breaks from **{rate_said(lowest)}** on"
    else:
        shortest, longest = min(cell[0] for cell in good), max(cell[0] for cell in bad)
        if longest < shortest:
            return f"post-norm breaks with {warmup_said(longest)} and trains from **warmup {shortest}** on"
    names = ", ".join(cut.label(cell) for cell in good)
    return f"post-norm trains at {names} and breaks elsewhere"


def preset_of(cut: Cut) -> Preset | None:
    """The preset that a cut is, whichever cell of it the sliders stand at."""
    return next((one for one in PRESETS if one.cut.over == cut.over and one.cut.cells == cut.cells), None)


def size_line() -> str:
    """What every run of the grid trains."""
    full = NORM_PLACEMENT.budget("chapter")
    return (
        f"Each run: post-norm, 12 blocks, {BUDGET.steps} steps of {BUDGET.batch_size} × "
        f"{BUDGET.context_length} tokens, whatever the budget above; the chapter’s are {full.steps:,} of "
        f"{full.batch_size} × {full.context_length}. Runs with the same settings as one above are not "
        f"trained twice."
    )
