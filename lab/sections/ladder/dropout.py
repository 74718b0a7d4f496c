"""Dropout after half a pass over a text and after many passes: the same two models at both budgets."""

from collections.abc import Mapping
from functools import lru_cache

from engine.chapter.budget import Budget
from engine.chapter.definitions import ids
from engine.chapter.experiments import LADDER, PERPLEXITY
from engine.chapter.variants import BLOCK, BLOCK_DROPOUT
from engine.data import corpus
from engine.system.errors import LabError
from lab import bench
from lab.bench import Cell, Gap, Request, Sweep, Table, difference, tables
from lab.sections.ladder.notice import effect
from lab.sections.ladder.parts import bought, shipped_bought, signed_points
from lab.settings import Settings
from lab.words import NBSP, quantity

DROPOUT = ids(BLOCK, BLOCK_DROPOUT)


def train(request: Request, settings: Settings) -> None:
    """The button that trains both models at both budgets, and what came of it. request: with any budget."""
    found = [bench.requested(request.with_budget(name), LADDER) for name in LADDER.budgets]
    specs = [spec for each, _ in found for spec in each.wanted.values() if spec.variant in DROPOUT]
    both, (_, refused) = Sweep.of(LADDER, specs, request), found[0]
    bench.train_also(both, settings, "passes", "Train at both budgets", _draw, refused=refused, width=190)


def _draw(now: Sweep) -> None:
    """The table, and what it says."""

    def at(budget: str) -> Sweep:
        return now.part(lambda spec: spec.budget_name == budget)

    by_budget = {str(name): at(name) for name in LADDER.budgets}
    corpus_id = now.request.corpus_id or ""
    passed = {name: times(passes(LADDER.budget(name), corpus_id)) for name in by_budget}
    worth = {name: bought(part, "block-dropout") for name, part in by_budget.items()}
    bench.beside("results-passes", [_table(by_budget, passed)], _words(worth, passed), "")


def passes(budget: Budget, corpus_id: str) -> float | None:
    """How often a budget goes over a text's training part; None where the text cannot be read."""
    try:
        return budget.steps * budget.batch_size * budget.context_length / _training_tokens(corpus_id)
    except (LabError, OSError):
        return None


@lru_cache(maxsize=8)
def _training_tokens(corpus_id: str) -> int:
    return len(corpus.load(corpus_id).train_ids)


def times(count: float | None) -> str:
    """Passes over a text: "59 passes", "0.99 passes"."""
    if count is None:
        return "unknown passes"
    return f"{quantity(count, 0 if count >= 9.5 else 2)}{NBSP}pass{'' if count == 1 else 'es'}"


def _table(sweeps: Mapping[str, Sweep], passed: Mapping[str, str]) -> Table:
    """With dropout and without, a line a budget: half a pass over the text, and many."""
    rows = list[tuple[str | Cell, ...]]()
    for budget_name, now in sweeps.items():
        without, with_ = (now.row(name, PERPLEXITY) for name in DROPOUT)
        label = f"{budget_name}, {LADDER.budget(budget_name).steps:,} steps, {passed[budget_name]}"
        worth = tables.points(difference(without, with_))
        rows.append((label.capitalize(), tables.yours(without), tables.yours(with_), worth))
        if budget_name == "chapter" and without.reference and with_.reference:
            shipped = (tables.shipped(row, PERPLEXITY) for row in (without, with_))
            worth = tables.with_spread(*shipped_bought(now, "block-dropout"), signed_points)
            rows.append((":gray[reference]", *shipped, worth))
    return Table(
        ("budget", "no dropout", "dropout 0.1", "bought"),
        rows,
        "Held-out perplexity; a pass is as many tokens as the training part has, drawn at random places. "
        "Bought: points that dropout takes off, grey within seed noise.",
    )


def _words(worth: Mapping[str, Gap | None], passed: Mapping[str, str]) -> str:
    """What it buys at each budget."""
    if not any(worth.values()):
        return (
            "The chapter: a model that sees each token once cannot overfit, so it needs no dropout. What "
            "each budget says of that stands here once it is trained."
        )
    said = [f"After {passed[name]} dropout {effect(gap)}." for name, gap in worth.items() if gap]
    few, many = worth.values()
    if few and many:
        said.append("The chapter: dropout pays only where a text is read many times.")
    return "\n\n".join(said)
