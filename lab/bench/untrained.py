"""What needs no training, beside the chapter and the shipped reference."""

from collections.abc import Iterable, Mapping

from engine.chapter import reference
from engine.chapter.measurements import Figures, Measurement
from lab.bench.sweep import Row
from lab.words import plain


def row(measurement: Measurement, variant: str, metric: str, yours: Mapping[int, Figures]) -> Row:
    """One figure's line in the table. yours: what the reader measured, by seed."""
    shipped = reference.load(measurement.id)
    return Row(
        variant=variant,
        chapter=measurement.chapter.get((variant, metric)),
        reference=shipped.rows.get(variant) if shipped else None,
        yours={seed: figures[variant][metric] for seed, figures in yours.items() if variant in figures},
        diverged=0,
    )


def comparable(measurement: Measurement, seeds: Iterable[int]) -> bool:
    """Whether these seeds are among the reference's: other ones draw other numbers."""
    return set(seeds) <= set(measurement.seeds)


def shipped_line(*measurements: Measurement) -> str:
    """Where and when the references were measured, in one sentence."""
    found = [one for measurement in measurements if (one := reference.load(measurement.id))]
    if len(found) < len(measurements):
        return "No reference is shipped with this copy."
    where = dict.fromkeys(f"{plain(one.device)}, {one.date}" for one in found)
    return f"Reference: shipped, {'; '.join(where)}."


def seeds_said(seeds: Iterable[int]) -> str:
    """ "seed 0", "seeds 0, 1, 2"."""
    numbers = [str(seed) for seed in seeds]
    return f"seed{'s' if len(numbers) > 1 else ''} {', '.join(numbers)}"
