"""What stands below a table: whose figures it holds, and how far they can be compared."""

from collections.abc import Sequence

from engine.chapter import reference
from lab.bench import tables
from lab.bench.sweep import Row, Sweep
from lab.words import plain


def remarks(now: Sweep, rows: Sequence[Row] | None = None, *more: str) -> str:
    """All that is to be said below the four columns, beside what counts as reproduced (``tables.compared``).

    rows: those of the table; by default one a variant. more: said between.
    """
    experiment, rows = now.experiment, now.rows() if rows is None else rows
    said = [*general(now, rows), *more]
    if not now.of_the_chapters_text:
        said.append("Yours are of another text, so nothing is compared.")
    elif not now.request.as_the_chapter:
        full, steps = (experiment.budget(name).steps for name in ("chapter", now.request.budget))
        said.append(
            f"Chapter and reference: {full:,} steps; yours: {steps:,}, so grey differences are not "
            f"comparable. The quick budget already shows that {experiment.shows}; it cannot show "
            f"{experiment.hides}."
        )
    elif noise := [experiment.variant(row.variant).short for row in rows if tables.is_noise(row)]:
        said.append(f"Within seed noise (under two standard deviations): {plain(', '.join(noise))}.")
    return " ".join(said)


def general(now: Sweep, rows: Sequence[Row]) -> list[str]:
    """What a table of four columns holds, whatever it compares."""
    seeds = max((len(row.yours) for row in rows), default=0) or len(now.request.seeds)
    shipped = reference.load(now.experiment.id)
    said = [
        f"Mean ± standard deviation over {seeds} seeds."
        if seeds > 1
        else "One seed: no spread, so noise is unknown.",
        f"Reference: shipped runs, {plain(shipped.device)}, {shipped.date}."
        if shipped
        else "No reference is shipped with this copy.",
    ]
    if any(row.chapter and not row.chapter.printed for row in rows):
        said.append("*Italic*: inferred from the chapter’s prose, not printed there.")
    return said
