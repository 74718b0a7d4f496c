"""Post-norm over warmups and learning rates: where it breaks, and where it diverges.

Every cell of a grid is a run of its own at the quick size; one row or one column is trained at a time, and
what was measured before, by whomever, is drawn as well.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import fmean

from engine.chapter.experiments import BREAKING, PERPLEXITY
from engine.chapter.variants import POST_NORM
from engine.runs import launch
from engine.runs.spec import RunSpec
from engine.runs.store import Run
from engine.system.errors import LabError
from lab.bench import Request, Sweep
from lab.sections.norm.blocks import BROKEN, METRIC, steepness
from lab.shell.styles import Style
from lab.words import plain

BUDGET = BREAKING.budget("quick")
WARMUPS = (0, 15, 30, 60, 120)
RATES = (0.0003, 0.001, 0.003, 0.01, 1.0)
USUAL = BUDGET.learning_rate
GUESS = POST_NORM.config.vocab_size  # the perplexity when every token is equally likely
OVERS = {"rate": "Learning rates", "warmup": "Warmups"}
# In the order of the values: red is no warmup, and the rate that is too high.
_STYLES = {
    "warmup": (Style("red", "dashed"), *map(Style, ("orange", "violet", "blue", "ink"))),
    "rate": tuple(map(Style, ("gray", "blue", "violet", "orange", "red"))),
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
    def by_rate(self) -> bool:
        """Whether learning rates are swept."""
        return self.over == "rate"

    @property
    def cells(self) -> list[Cell]:
        """What is trained, in order."""
        if self.by_rate:
            return [(self.warmup, rate) for rate in RATES]
        return [(warmup, self.rate) for warmup in WARMUPS]

    @property
    def title(self) -> str:
        """What all of its cells have in common: "warmup 60"."""
        return warmup_said(self.warmup) if self.by_rate else rate_said(self.rate)

    def place(self, cell: Cell) -> float:
        """Where a cell stands along it."""
        return cell[1] if self.by_rate else cell[0]

    def label(self, cell: Cell) -> str:
        """What tells a cell of the cut from its others."""
        return rate_said(cell[1]) if self.by_rate else warmup_said(cell[0])

    def look(self, cell: Cell) -> Style:
        """How that cell's curve is drawn."""
        return _STYLES[self.over][self.cells.index(cell)]

    def beside(self) -> Iterator[tuple["Cut", Style]]:
        """All cuts in the same direction, and how the line of each is drawn."""
        if self.by_rate:
            cuts = [Cut(self.over, warmup, self.rate) for warmup in WARMUPS]
        else:
            cuts = [Cut(self.over, self.warmup, rate) for rate in RATES]
        return zip(cuts, _STYLES["warmup" if self.by_rate else "rate"], strict=True)


@dataclass(frozen=True)
class Preset:
    """A cut worth trying. why: in a sentence, before anything is measured."""

    id: str
    label: str
    cut: Cut
    why: str


PRESETS = (
    Preset(
        "no-warmup",
        "No warmup",
        Cut("rate", 0, USUAL),
        "Post-norm at the full rate from step 1 on. From which rate on does it break?",
    ),
    Preset(
        "too-fast",
        "Rate 0.003",
        Cut("warmup", 60, 0.003),
        "The chapter’s own rate, on batches sixteen times smaller. From which warmup on does it train?",
    ),
    Preset(
        "rate-one",
        "Rate 1",
        Cut("warmup", 0, 1.0),
        "Without a warmup AdamW’s first step moves every weight of a block by 1, where its matrices begin "
        "under 0.1. A loss over 100 nats ends a run as diverged; the curve up to there is kept.",
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


def preset_of(cut: Cut) -> Preset | None:
    """The preset that a cut is, whichever cell of it the sliders stand at."""
    same = (one for one in PRESETS if (one.cut.over, one.cut.cells) == (cut.over, cut.cells))
    return next(same, None)
