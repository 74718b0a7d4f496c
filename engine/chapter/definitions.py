"""What a table of the chapter is: its figures, and the experiment that measures them. Imports no torch."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeVar

from engine.chapter.budget import Budget, BudgetName
from engine.chapter.variant import Variant
from engine.system.errors import InvalidInput

PERPLEXITY, GAP, TRAIN = "validation_perplexity", "perplexity_gap", "train_perplexity"
GAIN = "gain_256"
ACCURACY, WRONG_NOUN = "accuracy", "wrong_noun"
# What each figure is called where it stands beside others of another kind.
METRICS = {
    PERPLEXITY: "held-out perplexity",
    GAP: "points of perplexity above its counterpart",
    GAIN: "points of perplexity saved by 256 tokens in place of 64",
    TRAIN: "perplexity on the text it was trained on",
    **{f"perplexity_{length}": f"perplexity at {length} tokens" for length in (64, 128, 256, 512)},
    "score_std": "standard deviation of the scores",
    "frozen_share": "share of rows over 0.99",
    ACCURACY: "share of right answers",
    WRONG_NOUN: "share that names the wrong noun of the pair",
    "other": "share that names neither noun",
    "train_accuracy": "share of right answers on sentences it was trained on",
    "early_accuracy": "share of right tokens where nothing can be known",
    "late_loss_nats": "loss in nats on the second half",
    "early_loss_nats": "loss in nats where nothing can be known",
    "in_context_nats": "in-context score, loss late minus loss early",
}
DIFFERENCES = (GAP, GAIN)  # derived from two figures, seed by seed; see ``Experiment.terms``
IN_POINTS = (ACCURACY, WRONG_NOUN, "frozen_share")  # shares whose differences are told in points of a hundred
# Tolerance of differences under a point, which seeds move by tenths: the sign, and at most twice the size.
SMALL = 1.0
CHANCE = 0.5  # of a right answer between two nouns


Verdict = Literal["reproduced", "in the mean", "in one seed", "outside"]


@dataclass(frozen=True, kw_only=True)
class ChapterValue:
    """What the chapter says of one figure, and what counts as the same.

    No tolerance is wider than the effect that it judges: the range that counts as reproduced never reaches
    beyond ``null``, and where the ranges of two levels that the chapter tells apart overlap, the difference
    between them is a figure of its own.

    low, high: the value, twice, when the chapter prints it; the range that its prose allows when not.
    tolerance: the relative difference that still counts as reproduced.
    null: what the figure is where there is no effect: 0, but chance of right answers and 1 of a ratio.
    printed: whether the digits stand in the chapter, or are of two that do; inferred from its prose if not.
    where: the section; conditions: what was not printed and had to be settled.
    gap: why what is shipped lies outside, where it does.
    label: what it is called among other figures of the chapter, where its variant alone does not tell.
    """

    low: float
    high: float
    printed: bool
    where: str
    tolerance: float = 0.03
    null: float = 0.0
    conditions: str = ""
    gap: str = ""
    label: str = ""

    @property
    def allowed(self) -> tuple[float, float]:
        """The lowest and the highest figure that count as reproduced."""
        return self.low - abs(self.low) * self.tolerance, self.high + abs(self.high) * self.tolerance

    @property
    def margin(self) -> float:
        """How far from its middle a figure still counts as reproduced."""
        low, high = self.allowed
        return (high - low) / 2

    def allows(self, figure: float) -> bool:
        """Whether that counts as reproduced."""
        low, high = self.allowed
        return low <= figure <= high

    def verdict(self, mean: float, sd: float | None) -> Verdict:
        """What is said of a mean over seeds and their standard deviation, None of one seed.

        A mean that is not allowed is *outside*. One that is, is *reproduced* if the deviation is within the
        margin as well. If it is larger, a single seed says nothing: the figure is reproduced *in the mean*.
        """
        if not self.allows(mean):
            return "outside"
        if sd is None:
            return "in one seed"
        return "reproduced" if sd <= self.margin else "in the mean"

    @property
    def middle(self) -> float:
        """The value, or the middle of the range: what a difference is taken from."""
        return (self.low + self.high) / 2


def printed(
    value: float, *, where: str, tolerance: float = 0.03, null: float = 0.0, **words: str
) -> ChapterValue:
    """A figure whose digits stand in the chapter. words: what else there is to say of it."""
    return ChapterValue(
        low=value, high=value, tolerance=tolerance, null=null, printed=True, where=where, **words
    )


def inferred(
    low: float,
    high: float | None = None,
    *,
    where: str,
    conditions: str,
    tolerance: float = 0.03,
    null: float = 0.0,
    **words: str,
) -> ChapterValue:
    """A figure that follows from the chapter's prose, and how; a range where its words leave one."""
    high = low if high is None else high
    return ChapterValue(
        low=low,
        high=high,
        tolerance=tolerance,
        null=null,
        printed=False,
        where=where,
        conditions=conditions,
        **words,
    )


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """One table of the chapter, on a text that the reader chooses or on a language of its own.

    models: what is trained, in the order of its rows; ids are their own within one experiment only.
    shows, hides: which of its claims the quick budget already shows, and which it cannot.
    chapter: the chapter's figures by (variant, metric).
    also: metrics that are told of every variant beside its own, though the chapter prints none of them.
    own_budgets: budgets of variants that are trained in another way than the rest, by name and variant.
    seeds: what a reference is of; own_seeds: of variants whose reference is of fewer.
    beside: the row that a variant's gap is taken from, where that is not its parent.
    weights: the variants whose weights are shipped, since pages look into them: of the first seed; all_seeds:
    of those that are shipped in every seed; typical: the seed that is opened first, where not the first.
    series: further metrics whose curves are shipped, of the variants whose runs recorded them.
    language: the id of the built-in language that is trained on in place of a text; see ``languages``.
    """

    id: str
    title: str
    question: str
    models: tuple[Variant, ...]
    budgets: dict[BudgetName, Budget]
    shows: str
    hides: str
    seeds: tuple[int, ...] = (0, 1)
    metric: str = PERPLEXITY
    chapter: dict[tuple[str, str], ChapterValue] = field(default_factory=dict)
    own_budgets: dict[tuple[BudgetName, str], Budget] = field(default_factory=dict)
    own_seeds: dict[str, tuple[int, ...]] = field(default_factory=dict)
    also: tuple[str, ...] = ()
    beside: dict[str, str] = field(default_factory=dict)
    weights: tuple[str, ...] = ()
    all_seeds: tuple[str, ...] = ()
    typical: dict[str, int] = field(default_factory=dict)
    series: tuple[str, ...] = ()
    language: str = ""

    @property
    def variants(self) -> tuple[str, ...]:
        """The ids of its models."""
        return ids(*self.models)

    @property
    def figures(self) -> tuple[tuple[str, str], ...]:
        """What is shown beside the chapter, as (variant, metric): what was measured of all, then the rest."""
        of_all = ((name, metric) for metric in (self.metric, *self.also) for name in self.variants)
        return tuple(dict.fromkeys([*of_all, *self.chapter]))

    def variant(self, variant_id: str) -> Variant:
        """The variant of that id in this table.

        Raises InvalidInput: when it is none of the table's; the message lists those there are.
        """
        for made in self.models:
            if made.id == variant_id:
                return made
        raise InvalidInput(f"no variant {variant_id!r} in {self.id}; there are: {', '.join(self.variants)}.")

    def counterpart(self, variant_id: str) -> str | None:
        """The id of the row that a variant's gap is taken from; None of a root."""
        return self.beside.get(variant_id) or self.variant(variant_id).parent

    def terms(self, variant_id: str, metric: str) -> tuple[tuple[str, str], tuple[str, str]] | None:
        """The two figures, as (variant, metric), that one of ``DIFFERENCES`` is the difference of.

        None of any other metric, and of the gap of a root.
        """
        if metric == GAIN:
            return (variant_id, "perplexity_64"), (variant_id, "perplexity_256")
        if metric == GAP and (other := self.counterpart(variant_id)):
            return (variant_id, PERPLEXITY), (other, PERPLEXITY)
        return None

    def called(self, variant_id: str, metric: str) -> str:
        """What a figure of a variant is called; a gap by what it is from."""
        if metric == GAP:
            return f"points of perplexity above *{self.variant(self.counterpart(variant_id) or '').title}*"
        return METRICS[metric]

    def seeds_of(self, variant_id: str) -> tuple[int, ...]:
        """The seeds that the reference of a variant is of."""
        return self.own_seeds.get(variant_id, self.seeds)

    def shipped_seeds(self, variant_id: str) -> tuple[int, ...]:
        """The seeds whose weights are shipped of a variant; none where none are."""
        if variant_id not in self.weights:
            return ()
        return self.seeds_of(variant_id) if variant_id in self.all_seeds else self.seeds[:1]

    def budget(self, name: str, variant_id: str | None = None) -> Budget:
        """The budget of that name, for a variant that may have one of its own.

        Raises InvalidInput: when there is none.
        """
        for known, budget in self.budgets.items():
            if known == name:
                return self.own_budgets.get((known, variant_id or ""), budget)
        raise InvalidInput(f"no budget {name!r}; there are: {', '.join(self.budgets)}.")


Seed = TypeVar("Seed")


def paired(first: Mapping[Seed, float | None], second: Mapping[Seed, float | None]) -> dict[Seed, float]:
    """The difference of two figures in every seed that has both, so that what seeds share falls out."""
    both = {seed: (one, second.get(seed)) for seed, one in first.items()}
    return {seed: one - two for seed, (one, two) in both.items() if one is not None and two is not None}


def ids(*models: Variant) -> tuple[str, ...]:
    """The names of some variants."""
    return tuple(made.id for made in models)
