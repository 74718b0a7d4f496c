"""What a change did: both sentences before and after it, and what is left of the right answers."""

from engine.probes.results.winograd import Answer, Changed
from lab.bench import Cell, Table
from lab.sections.winograd.graph import Look
from lab.sections.winograd.parts import share
from lab.words import NBSP, plain, quantity


def answers_table(before: list[Answer], after: list[Answer]) -> Table:
    """Both sentences, before and after a change: what is named, and the two nouns' probabilities."""
    lines = []
    for old, new in zip(before, after, strict=True):
        same = f"{plain(new.named)}{NBSP}:gray[(same)]"
        was, now, other, others = (
            quantity(value, 3)
            for value in (old.answer_share, new.answer_share, old.other_share, new.other_share)
        )
        lines.append((
            f"… too **{plain(old.adjective)}** : {plain(old.answer)}",
            Cell(old.answer_share, was),
            Cell(new.answer_share, f"**{now}**"),
            Cell(new.other_share, f"{other} → {others}"),
            same if old.named == new.named else f":red[{plain(old.named)} → {plain(new.named)}]",
        ))  # fmt: skip
    return Table(("sentence : right noun", "before", "after", "other noun", "names"), lines)


def cut_words(look: Look, done: str, found: Changed) -> str:
    """What changing this edge does to the two answers and the held-out sentences. done: what was done."""
    flipped = [
        f"“too {plain(old.adjective)}” from **{plain(old.named)}** to **{plain(new.named)}**"
        for old, new in zip(found.answers, found.changed, strict=True)
        if old.named != new.named
    ]
    answers = f"The answer flips: {' and '.join(flipped)}." if flipped else "Neither answer flips."
    return f"{done}: {plain(look.said)}. {answers} {left_words(found)}"


def left_words(found: Changed) -> str:
    """What is left of the right answers after a change, and how much was changed."""
    before, after = found.before, found.after
    cells = "" if found.cells is None else f" Changed: {quantity(found.cells, 0)} cells of a sentence’s maps."
    return (
        f"Of {before.count} held-out sentences {share(before.accuracy)} were right and "
        f"**{share(after.accuracy)}** still are; {share(after.wrong)} name the wrong noun of the pair.{cells}"
    )
