"""Whether the induction heads read what the previous-token heads wrote, by paths patched: table and words."""

from statistics import fmean

from engine.probes.results.induction import Composition, Patched
from lab import bench
from lab.bench import Cell, Table
from lab.bench.tables import NO_NUMBER, number
from lab.sections.induction.ablation import NEEDED
from lab.sections.induction.formation import score
from lab.sections.induction.parts import percent
from lab.sections.induction.probe import listed
from lab.weights import Opened
from lab.words import NBSP, quantity

COLUMNS = ("path into their", "right", "prefix matching", "right, others", "matching, others")


def draw(found: Composition, _: Opened) -> None:
    """Table and words; without a pair the words alone."""
    bench.beside("results-composition", [results(found)] if found.pair else [], words(found))


def results(found: Composition) -> Table:
    """What is left with the path into each input patched, from previous-token heads and from all others."""
    whole = Cell(found.accuracy, f"**{percent(found.accuracy)}**"), _matching(found.matching)
    rows: list[tuple[str | Cell, ...]] = [("nothing patched", *whole, *whole)]
    controls = {patched.input: patched for patched in found.controls}
    for patched in found.paths:
        both = (_left(one, found) for one in (patched, controls.get(patched.input)))
        rows.append((patched.input, *(cell for cells in both for cell in cells)))
    return Table(
        COLUMNS,
        rows,
        f"Over {found.sequences} unseen sequences; right: of the second half. Others: paths from all other "
        "heads of earlier layers. Red: costs more than a tenth of all tokens. Prefix matching: mean over the "
        "induction heads.",
    )


def _left(patched: Patched | None, found: Composition) -> tuple[Cell, Cell]:
    if patched is None:
        return NO_NUMBER, NO_NUMBER
    shown = percent(patched.accuracy)
    red = found.accuracy - patched.accuracy > NEEDED
    return Cell(patched.accuracy, f":red[{shown}]" if red else shown), _matching(patched.matching)


def _matching(scores: list[float]) -> Cell:
    return number(fmean(scores), score)


def words(found: Composition) -> str:
    """Which inputs of the induction heads need what the previous-token heads wrote."""
    if not found.pair:
        return "No pair stands in this model, so there is no path to patch."
    left = {patched.input: patched for patched in found.paths}
    senders, receivers = listed(found.paths[0].senders), listed(found.receivers)
    said = [
        f"With the path from {senders} into the **keys** of {receivers} patched, "
        f"**{percent(left['keys'].accuracy)}** are left of {percent(found.accuracy)}, and their "
        f"prefix-matching score falls from {score(fmean(found.matching))} to "
        f"{score(fmean(left['keys'].matching))}. Into their queries: {percent(left['queries'].accuracy)} "
        f"are left; into their values: {percent(left['values'].accuracy)}."
    ]
    needed = [name for name, one in left.items() if found.accuracy - one.accuracy > NEEDED]
    if needed == ["keys"]:
        said.append("Only the keys need that path: it is **K-composition**.")
    elif needed:
        said.append(f"The path is needed into the {' and the '.join(needed)}: not K-composition alone.")
    else:
        said.append("None of the three paths is needed alone.")
    if found.controls:
        cost = max(found.accuracy - one.accuracy for one in found.controls)
        others = listed(found.controls[0].senders)
        said.append(
            f"The same paths from {others} cost at most {quantity(100 * max(0.0, cost))}{NBSP}percentage "
            "points."
        )
    return "\n\n".join(said)
