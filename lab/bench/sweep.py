"""What was measured of one choice of budget, seeds and text: runs, curves, figures. Reads, never writes.

A result is found by the digest of what was asked, so a page shows whatever was measured of its settings,
by this session, another one, or the command line, and needs to remember nothing.
"""

import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from engine.chapter import reference
from engine.chapter.definitions import DIFFERENCES, paired
from engine.chapter.experiments import PERPLEXITY, ChapterValue, Experiment
from engine.chapter.reference import ReferenceRow
from engine.data import corpus
from engine.runs.spec import RunSpec
from engine.runs.store import ACTIVE, Run, Store, open_store
from engine.system import files
from engine.system.errors import LabError
from lab.bench.request import Request
from lab.charts.lines import Curve
from lab.words import plain, quantity

UNENDED = ("queued", *ACTIVE)
MEASURED = ("done", "diverged")
Listed = Sequence[float | None]
Recorded = tuple[tuple[int, Any], ...]


@dataclass(frozen=True)
class Row:
    """One variant's line in the table. yours: the figure of every seed that ended with one."""

    variant: str
    chapter: ChapterValue | None
    reference: ReferenceRow | None
    yours: dict[int, float]
    diverged: int

    @property
    def mean(self) -> float | None:
        """Mean over the seeds."""
        return statistics.fmean(self.yours.values()) if self.yours else None

    @property
    def sd(self) -> float | None:
        """Standard deviation over the seeds (n - 1), None under two."""
        return statistics.stdev(self.yours.values()) if len(self.yours) > 1 else None


class Sweep:
    """The runs of one choice of settings, as they stand now.

    wanted: what is asked for, by digest; request: by which settings. newest: its newest run, where there is
    one; measured: the newest that ended with a result. runs: the newest ones in order; unended: those that
    wait or are carried out; missing: what none has measured.
    """

    def __init__(
        self,
        experiment: Experiment,
        wanted: dict[str, RunSpec],
        store: Store,
        request: Request,
        known: Sequence[Run] | None = None,
    ) -> None:
        """known: the runs of these digests, oldest first, when they were read already."""
        self.experiment = experiment
        self.wanted = wanted
        self.store = store
        self.request = request
        self.newest: dict[str, Run] = {}
        self.measured: dict[str, Run] = {}
        if known is None:
            known = store.runs(digests=list(wanted)) if wanted else []
        self._known = known
        for run in known:
            self.newest[run.digest] = run
            if run.state in MEASURED:
                self.measured[run.digest] = run
        self.runs = [self.newest[digest] for digest in wanted if digest in self.newest]
        self.unended = [run for run in self.runs if run.state in UNENDED]
        self.missing = [spec for digest, spec in wanted.items() if digest not in self.measured]

    @classmethod
    def of(cls, experiment: Experiment, specs: Iterable[RunSpec], request: Request) -> "Sweep":
        """The sweep of these specs."""
        return cls(experiment, {spec.digest: spec for spec in specs}, open_store(), request)

    def again(self) -> "Sweep":
        """The same choice, read anew."""
        return Sweep(self.experiment, self.wanted, self.store, self.request)

    def part(self, keep: Callable[[RunSpec], bool], experiment: Experiment | None = None) -> "Sweep":
        """What of it was asked for so, as it was read. experiment: whose it is, where a sweep joins two."""
        wanted = {digest: spec for digest, spec in self.wanted.items() if keep(spec)}
        known = [run for run in self._known if run.digest in wanted]
        return Sweep(experiment or self.experiment, wanted, self.store, self.request, known)

    def joined(self, specs: Iterable[RunSpec]) -> "Sweep":
        """This and more runs."""
        return Sweep.of(self.experiment, [*self.wanted.values(), *specs], self.request)

    @property
    def of_the_chapters_text(self) -> bool:
        """Whether the chapter's figures, which are Shakespeare's or its languages', say anything of these."""
        if self.experiment.language:
            return self.request.built_in
        return all(spec.corpus_sha256 == corpus.TINYSHAKESPEARE_SHA256 for spec in self.wanted.values())

    @property
    def has_ended(self) -> bool:
        """Whether every variant has a figure, or diverged."""
        return all(row.mean is not None or row.diverged for row in self.rows())

    @property
    def states(self) -> list[tuple[int, int, str]]:
        """Changes when a run was started, resumed, or ended."""
        return [(run.id, run.attempt, run.state) for run in self.runs]

    def step(self, run: Run) -> int:
        """How far a run is: the step of its newest record."""
        return run.spec.budget.steps if run.state in MEASURED else int(self.last(run).get("step", 0))

    def last(self, run: Run) -> dict[str, Any]:
        """A run's newest record, empty before the first."""
        return files.last_record(self.store.directory(run.id))

    @property
    def progress(self) -> float:
        """The share that is done of all steps queued together with what is under way; 0 while nothing is."""
        queued = {run.sweep for run in self.unended}
        runs = [run for run in self.runs if run.sweep in queued]
        return sum(map(self.step, runs)) / sum(run.spec.budget.steps for run in runs) if runs else 0.0

    def curves(self, variant: str, metric: str = PERPLEXITY) -> tuple[Curve, ...]:
        """One curve a seed that has begun. metric: what is looked at, by its name in the records."""
        found = self._begun(variant, metric)
        return tuple(Curve(points, run.state == "diverged") for run, points in found)

    def lists(self, variant: str, metric: str) -> tuple[dict[int, Listed], ...]:
        """What records hold as a list, one number a block: by step, one dictionary a seed that has begun."""
        return tuple(dict(points) for _, points in self._begun(variant, metric))

    def curve(self, run: Run, metric: str = PERPLEXITY) -> Curve:
        """One run's evaluations so far."""
        return Curve(recorded(self.store.directory(run.id), metric), run.state == "diverged")

    def _begun(self, variant: str, metric: str) -> Iterator[tuple[Run, Recorded]]:
        """A run a seed; one that ended and never recorded this gives way to an earlier one."""
        for run in self.runs:
            if self.wanted[run.digest].variant != variant:  # the run may have been made under another name
                continue
            for one in [run] if run.state in UNENDED else [run, self.measured.get(run.digest, run)]:
                if points := recorded(self.store.directory(one.id), metric):
                    yield one, points
                    break

    def table(self) -> Iterator[tuple[object, ...]]:
        """Every evaluation of every newest run, for a file; the first row names the columns."""
        yield "experiment", "variant", "budget", "text", "seed", "run", "state", "step", "held_out_perplexity"
        titles = dict(corpus.listing())
        for run in self.runs:
            spec = self.wanted[run.digest]
            text = titles.get(spec.corpus, spec.corpus)
            of = (self.experiment.id, spec.variant, spec.budget_name, text, spec.seed, run.id, run.state)
            yield from ((*of, *point) for point in self.curve(run).points)

    def rows(self) -> list[Row]:
        """The table, one row a variant."""
        return [self.row(variant, self.experiment.metric) for variant in self.experiment.variants]

    def differences(self) -> list[tuple[Row, str]]:
        """What the chapter prints of differences between two rows, each with its metric."""
        chapter = self.experiment.chapter
        return [(self.row(*figure), figure[1]) for figure in chapter if figure[1] in DIFFERENCES]

    def row(self, variant: str, metric: str) -> Row:
        """One variant's figure of that name, as its runs ended with it; a difference is paired by seed."""
        if terms := self.experiment.terms(variant, metric):
            first, second = (self.row(*term) for term in terms)
            return replace(
                first,
                chapter=self.experiment.chapter.get((variant, metric)),
                yours=paired(first.yours, second.yours),
                diverged=max(first.diverged, second.diverged),
            )
        shipped = reference.load(self.experiment.id)
        runs = [run for digest, run in self.measured.items() if self.wanted[digest].variant == variant]
        values = {run.spec.seed: run.measured.get(metric) for run in runs if run.state == "done"}
        return Row(
            variant=variant,
            chapter=self.experiment.chapter.get((variant, metric)),
            reference=shipped.rows.get(variant) if shipped else None,
            yours={seed: value for seed, value in values.items() if value is not None},
            diverged=len(runs) - sum(value is not None for value in values.values()),
        )


def requested(request: Request, *experiments: Experiment) -> tuple[Sweep, str | None]:
    """The sweep that a request asks for, and the sentence that says why there can be none.

    experiments: whose runs it is made of, seed by seed; what two of them share is in it once.
    """
    nothing = Sweep.of(experiments[0], [], request)
    if request.refusal:
        return nothing, f":red[{plain(request.refusal)}]"
    if request.missing_input:
        return nothing, f":gray[{request.missing_input}]"
    wanted: dict[str, RunSpec] = {}
    try:
        for seed in request.seeds:
            for experiment in experiments:
                for spec in request.specs(experiment, (seed,)):
                    wanted.setdefault(spec.digest, spec)
    except (LabError, OSError) as error:
        return nothing, f":red[{plain(str(error))}]"
    return Sweep.of(experiments[0], wanted.values(), request), None


@dataclass(frozen=True)
class Gap:
    """How much higher one mean is than another. noise: whether that is within seed noise; None: unknown."""

    points: float
    noise: bool | None

    @property
    def level(self) -> bool:
        """Whether it would be printed as 0.0."""
        return abs(self.points) < 0.05

    def size(self, unit: str = "") -> str:
        """How large it is, whichever way: "3.3 points, within seed noise"."""
        return f"{quantity(abs(self.points))}{unit}{', within seed noise' if self.noise else ''}"


def difference(row: Row, other: Row) -> Gap | None:
    """The gap between two rows, None as long as one has no figure.

    It is within seed noise when it is under two standard deviations of the paired differences; with fewer
    than two seeds in common nobody knows.
    """
    if row.mean is None or other.mean is None:
        return None
    gaps = paired(row.yours, other.yours).values()
    if len(gaps) < 2:
        return Gap(row.mean - other.mean, None)
    gap = statistics.fmean(gaps)
    return Gap(gap, abs(gap) < 2 * statistics.stdev(gaps))


def recorded(directory: Path, metric: str) -> Recorded:
    """(step, figure) of a run so far, where its records hold one; read anew when their file has changed."""
    try:
        status = (directory / "metrics.jsonl").stat()
    except OSError:
        return ()
    kept, stamp = _kept(directory, metric), (status.st_size, status.st_mtime_ns)
    points = kept.get(stamp)
    if points is None:
        points = tuple(
            (int(record["step"]), record[metric])
            for record in files.records(directory, f'"{metric}"'.encode())
            if record.get(metric) is not None
        )
        kept.clear()  # a run that grows has another stamp each second
        kept[stamp] = points
    return points


@lru_cache(maxsize=4096)
def _kept(directory: Path, metric: str) -> dict[tuple[int, int], Recorded]:  # noqa: ARG001 - one for each two
    """What was read last, by the stamp of its file."""
    return {}
