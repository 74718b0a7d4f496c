"""Every seed that was trained: what its models can do, and when its pair of heads forms."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from engine.chapter.definitions import ACCURACY
from engine.probes.registry import FORMATION
from lab import bench, probes, weights
from lab.bench import Cell, Row, Sweep, Table, tables
from lab.sections.induction import probe
from lab.sections.induction.parts import LEVEL, NEAR, ONE, TWO, percent
from lab.sections.induction.probe import NOTHING, Subject
from lab.settings import Settings
from lab.words import NBSP, quantity

if TYPE_CHECKING:
    from streamlit.delta_generator import DeltaGenerator

Formed = dict[int, int | None]  # the step of formation by seed, None where there is none


def draw(settings: Settings, sweep: Sweep) -> None:
    """The table, a line a seed; the steps of formation once they were looked for."""
    subjects = [one for one in probe.subjects(sweep, TWO, weights.YOURS).values() if one.run]
    with probes.section(
        "Does it always form?",
        "One seed is a single sample. Train five above, and look for the step of formation in each: same "
        "rule, same kept steps.",
        "seeds",
    ):
        seconds = FORMATION.seconds * max(1, len(subjects))
        asked = probes.pressed("Find the steps", settings.key("steps"), subjects, seconds)
        status_slot = bench.status_line()
    probes.outdated(asked, subjects)
    formed = _formed(asked, status_slot) if asked else {}
    if not subjects:
        status_slot.markdown(f":small[{NOTHING}]")
    bench.beside("results-seeds", [_table(sweep, formed)], _words(sweep, formed))


def _formed(subjects: Sequence[Subject], status_slot: "DeltaGenerator") -> Formed:
    """Without those that could not be measured."""
    formed: Formed = {}
    for number, one in enumerate(subjects, start=1):
        busy = f"Seed {one.weights.seed}, {number} of {len(subjects)}"
        found = probes.attempt(status_slot, FORMATION, busy, run=one.run)
        if found is None:  # the line says why
            return formed
        formed[one.weights.seed] = found.formed
    return formed


def _table(sweep: Sweep, formed: Formed) -> Table:
    """One line a seed, then mean and spread."""
    two, one, level = _rows(sweep)
    columns = [(two, percent), (one, percent), (level, percent), (_gap(one, level), _points)]
    rows = list[tuple[str | Cell, ...]]()
    for seed in sweep.request.seeds:
        values = ((row.yours.get(seed), shown) for row, shown in columns)
        step = Cell(formed[seed], _step(formed[seed])) if seed in formed else tables.NO_NUMBER
        rows.append((f"seed {seed}", *(Cell(value, shown(value)) for value, shown in values), step))
    steps = replace(two, yours={seed: step for seed, step in formed.items() if step is not None})
    means = [*columns, (steps, lambda value: quantity(value, 0))]
    cells = (tables.with_spread(row.mean, row.sd, shown, bold=True) for row, shown in means)
    rows.append(("**mean** :gray[± sd]", *cells))
    return Table(
        ("yours", "two layers", "one layer", "its no-context level", "one layer above it", "forms at"),
        rows,
        "No-context level: right tokens where nothing before tells the next.",
    )


def _rows(sweep: Sweep) -> tuple[Row, Row, Row]:
    """Of two layers, of one layer, and of that one's level."""
    return sweep.row(TWO, ACCURACY), sweep.row(ONE, ACCURACY), sweep.row(ONE, LEVEL)


def _gap(one: Row, level: Row) -> Row:
    """How far one layer lies above its level, by seed."""
    both = one.yours.keys() & level.yours.keys()
    return replace(one, yours={seed: one.yours[seed] - level.yours[seed] for seed in sorted(both)})


def _points(gap: float | None) -> str:
    return "–" if gap is None else f"{quantity(100 * gap)}{NBSP}points"


def _step(step: int | None) -> str:
    return ":red[never]" if step is None else f"step{NBSP}{step:,}"


def _words(sweep: Sweep, formed: Formed) -> str:
    """What the seeds agree on."""
    two, one, level = _rows(sweep)
    if not two.yours or not one.yours:
        return "No run of both models has ended yet. Train them above, on five seeds."
    high, gaps = sum(value > 0.95 for value in two.yours.values()), _gap(one, level).yours
    said = [
        f"Two layers name over 95{NBSP}% of the second half on **{high} of {len(two.yours)}** seeds; one "
        f"layer stays within {quantity(100 * NEAR, 0)} points of its no-context level on "
        f"**{sum(gap <= NEAR for gap in gaps.values())} of {len(gaps)}**."
    ]
    steps = [step for step in formed.values() if step is not None]
    if len(steps) > 1:
        said.append(f"The pair forms between step {min(steps):,} and step {max(steps):,}.")
    elif steps:
        said.append(f"The pair forms at step {steps[0]:,}.")
    if len(two.yours) < 2:
        said.append("One seed says nothing about another: choose 5 above.")
    return " ".join(said)
