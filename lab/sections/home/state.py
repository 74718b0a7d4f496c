"""What Home says of this machine and of every section of the chapter. Asks no network, loads no torch."""

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

from engine.chapter import reference
from engine.chapter.experiments import EXPERIMENTS, Experiment
from engine.data import corpus
from engine.runs import estimates, launch
from engine.runs.store import ACTIVE, ENDED, Entry, Run, Store, trains
from engine.system import device, files, paths
from engine.system.errors import LabError
from lab.runs.view import SHOWN_STATES, shown_state, step_of
from lab.shell.chapter import Section
from lab.words import NBSP, about


def section_state(section: Section, runs: Sequence[Entry], store: Store) -> str:
    """ "4 of 4 measured", "reference only", "running, 41 %", "not built yet"."""
    if not section.built:
        return "not built yet"
    known = [EXPERIMENTS[name] for name in section.experiments if name in EXPERIMENTS]
    if not known:
        return "no training needed"
    mine = [run for run in filter(trains, runs) if run.spec.experiment in section.experiments]
    if under_way := _progress(mine, store):
        return under_way
    chapter, quick = (_measured(known, mine, budget) for budget in ("chapter", "quick"))
    total = sum(len(experiment.variants) for experiment in known)
    if quick > chapter:
        return f"{quick} of {total} measured, quick"
    if chapter:
        return f"{chapter} of {total} measured"
    if any(reference.load(experiment.id) for experiment in known):
        return "reference only"
    return "not measured yet"


def _measured(experiments: Sequence[Experiment], runs: Sequence[Run], budget: str) -> int:
    """How many of the variants ended with a result at that budget, whatever the text."""
    found = {
        (run.spec.config, run.spec.budget)
        for run in runs
        if run.state in ("done", "diverged") and not run.spec.start_from
    }
    return sum(
        (known.variant(name).config, known.budget(budget, name)) in found
        for known in experiments
        for name in known.variants
    )


def _progress(runs: Sequence[Run], store: Store) -> str:
    """The share done of the sweeps that train or wait; empty when none does."""
    open_sweeps = {run.sweep for run in runs if run.state not in ENDED}
    if not open_sweeps:
        return ""
    if not any(run.state in ACTIVE for run in runs):
        return "queued"
    together = [run for run in runs if run.sweep in open_sweeps]
    steps = sum(
        run.spec.budget.steps
        if run.state in ENDED
        else step_of(run, files.last_record(store.directory(run.id)))
        for run in together
    )
    total = sum(run.spec.budget.steps for run in together)
    return f"running, {100 * steps / total:.0f}{NBSP}%"


def runs_text(runs: Sequence[Entry]) -> str:
    """ "9 done, 1 running": every state that occurs."""
    counts = Counter(shown_state(run) for run in runs)
    order = ("done", "running", *(state for state in SHOWN_STATES if state not in ("done", "running")))
    return ", ".join(f"{counts[state]:,} {state}" for state in order if counts[state]) or "none yet"


def device_text() -> str:
    """This machine's device, or why torch does not start. Slow the first time (about 2 s)."""
    try:
        return device.describe().title
    except LabError as error:
        return f"torch does not start: {error}"


def text_here() -> str | None:
    """Why there is no Tiny Shakespeare here, or None when there is a file of that name."""
    return None if corpus.is_present(corpus.TINYSHAKESPEARE) else corpus.present_corpus_id()[1]


def tokens() -> int:
    """How many tokens Tiny Shakespeare has here. Slow the first time (about 1 s).

    Raises CorpusError: when the file is another text, or cannot be read.
    """
    return _tokens((paths.DATA / "tinyshakespeare.txt").stat().st_mtime_ns)


@lru_cache(maxsize=2)
def _tokens(stamp: int) -> int:  # noqa: ARG001 - a changed file is another entry
    return corpus.load(corpus.TINYSHAKESPEARE).tokens


def quick_text(experiment: Experiment) -> str:
    """How long its quick budget takes here, from what was timed; empty when nothing was."""
    try:
        specs = launch.specs(experiment.id, "quick", (0,), experiment.language or corpus.TINYSHAKESPEARE)
        seconds = estimates.sweep_seconds(specs)
    except LabError:
        return ""
    if seconds is None:
        return ""
    return f"The quick budget takes {'under a minute' if seconds <= 60 else about(seconds)}."
