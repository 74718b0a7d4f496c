"""What W_Q, W_K and W_V are worth, and what each changes inside a head, in numbers."""

from collections.abc import Sequence

from engine.chapter.experiments import QKV
from engine.chapter.variants import AVERAGE_ADDED_POSITIONS, HEAD_ADDED, MATRIX, QUERY_KEY, RAW
from engine.probes.results.attention import Steps, steps
from lab import bench
from lab.bench import Cell, Row, Sweep, Table, difference
from lab.bench.tables import number
from lab.sections.qkv.stages import Side
from lab.words import plain, quantity


def notice(now: Sweep) -> str:
    """What each part is worth, read off the reader's own figures."""
    models = (AVERAGE_ADDED_POSITIONS, MATRIX, RAW, QUERY_KEY, HEAD_ADDED)
    equal, matrix, raw, asked, head = (now.row(made.id, QKV.metric) for made in models)
    return (
        f"One matrix for every sentence {_against(matrix, equal)} equal weights: it can learn “four tokens "
        f"back”, never “the noun”.\n\n"
        f"Raw scores {_against(raw, equal, 'lose', 'gain', 'are')} equal weights.\n\n"
        f"W_Q and W_K {_against(asked, raw, 'lose', 'gain', 'are')} raw scores; W_V {_against(head, asked)} "
        f"copying the token itself."
    )


def _against(row: Row, other: Row, loses: str = "loses", gains: str = "gains", is_: str = "is") -> str:
    """How a row stands to another, as a verb: "gains 3.2 points on"."""
    gap = difference(row, other)
    if gap is None:
        return "cannot be compared with"
    if gap.level:
        return f"{is_} level with"
    noise = ", within seed noise," if gap.noise else ""
    return f"{loses if gap.points > 0 else gains} {quantity(abs(gap.points))} points{noise} on"


def draw(sides: Sequence[Side]) -> None:
    """Raw scores, then W_Q and W_K, then W_V: what each changes in these heads."""
    measured = [steps(side.caught) for side in sides]
    own, mirror = "tokens that score themselves highest", "largest difference from the mirror image"
    moved = "rows whose largest contribution is not their largest weight"
    rows: list[tuple[str, str, list[Cell]]] = [
        ("raw x·x", own, [_share(s.own_raw, s) for s in measured]),
        ("", mirror, [number(s.mirror_raw, lambda value: f"{value:.2g}") for s in measured]),
        ("", "asymmetry", [number(s.asymmetry_raw, _two) for s in measured]),
        ("+ W_Q, W_K", own, [_share(s.own_score, s) for s in measured]),
        ("", mirror, [number(s.mirror_score) for s in measured]),
        ("", "asymmetry", [number(s.asymmetry_score, _two) for s in measured]),
        ("+ W_V", moved, [_share(s.moved, s) for s in measured]),
        ("", "values as alike as keys", [number(s.likeness, _two) for s in measured]),
    ]
    caption = (
        "Of the rows with several visible keys. Asymmetry: 0 when the scores are symmetric, 0.71 when the "
        "two directions have nothing in common. Values as alike as keys: do tokens with similar keys have "
        "similar values? The correlation, over all pairs of tokens, of the cosine of their values with that "
        "of their keys; 1 without W_K and W_V."
    )
    lines = [(plain(step), what, *cells) for step, what, cells in rows]
    table = Table(("step", "measured", *(side.name for side in sides)), lines, caption)
    bench.beside("three-steps", [table], _what_to_notice(measured[0], sides[0].name), "")


def _share(some: int, of: Steps) -> Cell:
    return Cell(some, f"{some} of {of.rows}")


def _two(value: float | None) -> str:
    return quantity(value, 2)


def _what_to_notice(found: Steps, name: str) -> str:
    likeness = "" if found.likeness is None else f": here the correlation is {_two(found.likeness)}"
    return (
        f"A token’s product with itself is its squared length, so raw scores point at the token itself: "
        f"{found.own_raw} of {found.rows} rows. And scores are symmetric: the mirror image differs by "
        f"{found.mirror_raw:.2g}.\n\n"
        f"With W_Q and W_K the {name} head scores the token itself highest in {found.own_score} of "
        f"{found.rows} rows, and a token may look for what does not look for it.\n\n"
        f"W_V copies something else than was matched: tokens with like keys need not have like "
        f"values{likeness}."
    )
