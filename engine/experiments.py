"""The chapter's tables as data: what is trained, on which budget, against which printed values.

Read by the pages, the command line and the tests. Imports no torch.
"""

from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

BudgetName = Literal["quick", "chapter"]
PERPLEXITY, GAP = "validation_perplexity", "perplexity_gap"
# What each figure is called where it stands beside others of another kind.
METRICS = {
    PERPLEXITY: "held-out perplexity",
    GAP: "points of perplexity above its parent",
    "score_std": "standard deviation of the scores",
    "frozen_share": "share of rows over 0.99",
}
MAX_SEED = 2**63 - 1


@dataclass(frozen=True, kw_only=True)
class Budget:
    """How long and how a run trains. AdamW, torch's defaults but for the learning rate.

    evaluate_every, checkpoint_every: in steps; the first evaluations come sooner (see ``training.py``).
    warmup_steps: over which the learning rate rises linearly from nothing; 0 is none.
    also_at: context lengths at which the final model is evaluated as well.

    Raises ValueError: when a number is out of range; the message gives got and allowed.
    """

    steps: int
    batch_size: int = 64
    context_length: int = 128
    learning_rate: float = 1e-3
    evaluate_every: int = 100
    checkpoint_every: int = 250
    warmup_steps: int = 0
    also_at: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        for name, high in (
            ("steps", 10_000_000),
            ("batch_size", 65_536),
            ("context_length", 1_048_576),
            ("evaluate_every", 10_000_000),
            ("checkpoint_every", 10_000_000),
        ):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= high:
                raise ValueError(f"{name} is {value!r}; allowed: a whole number from 1 to {high:,}.")
        if isinstance(self.warmup_steps, bool) or self.warmup_steps not in range(10_000_001):
            got = repr(self.warmup_steps)
            raise ValueError(f"warmup_steps is {got}; allowed: a whole number from 0 to 10,000,000.")
        object.__setattr__(self, "also_at", tuple(self.also_at))  # JSON gives a list
        for length in self.also_at:
            if not isinstance(length, int) or isinstance(length, bool) or not 1 <= length <= 1_048_576:
                raise ValueError(f"also_at has {length!r}; allowed: whole numbers from 1 to 1,048,576.")
        rate = self.learning_rate
        if not isinstance(rate, int | float) or isinstance(rate, bool) or not 0 < rate <= 1e9:
            raise ValueError(f"learning_rate is {rate!r}; allowed: above 0, at most 1e9.")
        object.__setattr__(self, "learning_rate", float(rate))  # 1 and 1.0 are one budget, with one digest

    def to_dict(self) -> dict[str, Any]:
        """The fields as plain JSON values."""
        return asdict(self)

    def decisive(self) -> dict[str, Any]:
        """The fields that decide what is measured; how often it is looked at does not.

        Without what was added later and is not used, so that older results keep their names.
        """
        watched = ("evaluate_every", "checkpoint_every")
        unused = (("warmup_steps", 0), ("also_at", ()))
        chosen = self.to_dict().items()
        return {name: value for name, value in chosen if name not in watched and (name, value) not in unused}


@dataclass(frozen=True, kw_only=True)
class ChapterValue:
    """What the chapter says of one figure.

    low, high: the value, twice, when the chapter prints it; the range that its prose allows when not.
    tolerance: the relative difference that still counts as reproduced.
    printed: whether the digits stand in the chapter, or were inferred from its prose.
    where: the section; conditions: what was not printed and had to be settled.
    gap: why what is shipped lies outside, where it does.
    """

    low: float
    high: float
    tolerance: float
    printed: bool
    where: str
    conditions: str = ""
    gap: str = ""

    def allows(self, figure: float) -> bool:
        """Whether that counts as reproduced."""
        low, high = self.low - abs(self.low) * self.tolerance, self.high + abs(self.high) * self.tolerance
        return low <= figure <= high

    @property
    def middle(self) -> float:
        """The value, or the middle of the range: what a difference is taken from."""
        return (self.low + self.high) / 2


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """One table of the chapter.

    shows, hides: which of its claims the quick budget already shows, and which it cannot.
    chapter: the chapter's figures by (variant, metric).
    own_budgets: chapter budgets of variants that the chapter trained for another time than the rest.
    """

    id: str
    title: str
    question: str
    variants: tuple[str, ...]
    budgets: dict[BudgetName, Budget]
    seeds: tuple[int, ...]
    metric: str
    chapter: dict[tuple[str, str], ChapterValue]
    shows: str
    hides: str
    own_budgets: dict[str, Budget] = field(default_factory=dict)

    @property
    def figures(self) -> tuple[tuple[str, str], ...]:
        """What is shown beside the chapter, as (variant, metric): what was measured of all, then the rest."""
        return tuple(dict.fromkeys([*((name, self.metric) for name in self.variants), *self.chapter]))

    def budget(self, name: str, variant_id: str | None = None) -> Budget:
        """The budget of that name, for a variant that may have one of its own.

        Raises ValueError: when there is none.
        """
        if name == "chapter" and variant_id in self.own_budgets:
            return self.own_budgets[variant_id]
        for known, budget in self.budgets.items():
            if known == name:
                return budget
        raise ValueError(f"no budget {name!r}; there are: {', '.join(self.budgets)}.")


CHAPTER_BUDGET = Budget(steps=3000)

_WHERE = "From averages to attention, first table"
_PRINTED = ChapterValue(low=0, high=0, tolerance=0.03, printed=True, where=_WHERE)

AVERAGES = Experiment(
    id="averages",
    title="Averages",
    question="What does an average of the past know?",
    variants=("no-context", "average", "average-positions", "average-added"),
    budgets={
        "quick": Budget(steps=100, batch_size=32, learning_rate=1e-2, evaluate_every=20, checkpoint_every=50),
        "chapter": CHAPTER_BUDGET,
    },
    seeds=(0, 1, 2),
    metric=PERPLEXITY,
    chapter={
        ("no-context", PERPLEXITY): replace(_PRINTED, low=59.71, high=59.71),
        ("average", PERPLEXITY): replace(
            _PRINTED, low=247.9, high=248.2, printed=False, conditions="59.71 + 188; “four times worse”"
        ),
        ("average-positions", PERPLEXITY): replace(
            _PRINTED, low=245.76, high=246.06, printed=False, conditions="2.14 lower than the row above"
        ),
        ("average-added", PERPLEXITY): replace(_PRINTED, low=60.45, high=60.45),
    },
    shows="the replaced average is far behind the other two from the first steps on",
    hides="the 2 points that positions buy, and the distance between no context and the added average",
)

_SCALING_QUICK = Budget(steps=80, batch_size=8, learning_rate=1e-2, evaluate_every=20, checkpoint_every=80)
_SCALING = Budget(steps=1500, batch_size=32)
_IN_SCALING = replace(_PRINTED, where="Why divide by the square root of d_k")

SCALING = Experiment(
    id="scaling-training",
    title="Why √d_k",
    question="What collapses when the score is not divided?",
    variants=tuple(f"{kind}-{width}" for width in (32, 128, 256, 1024) for kind in ("divided", "undivided")),
    budgets={"quick": _SCALING_QUICK, "chapter": _SCALING},
    own_budgets={"divided-32": CHAPTER_BUDGET, "undivided-32": CHAPTER_BUDGET},
    seeds=(0, 1),
    metric=PERPLEXITY,
    chapter={
        ("undivided-1024", "score_std"): replace(_IN_SCALING, low=5147, high=5147),
        ("divided-1024", "score_std"): replace(_IN_SCALING, low=3.44, high=3.44),
        ("undivided-1024", "frozen_share"): replace(_IN_SCALING, low=0.999, high=0.999),
        ("undivided-256", GAP): replace(_IN_SCALING, low=18, high=18, tolerance=0.5),
        ("undivided-1024", GAP): replace(_IN_SCALING, low=17, high=17, tolerance=0.5),
    },
    shows="at d_k 1024 the undivided head’s scores run away and nearly every row freezes",
    hides="what the division is worth in perplexity, and that a narrow head does not need it",
)

SCALING_LONG = replace(
    SCALING,
    id="scaling-training-long",
    title="Why √d_k, narrow heads",
    question="Does a narrow head need the division?",
    variants=("divided-32", "undivided-32", "divided-128-block", "undivided-128-block"),
    budgets={"quick": _SCALING_QUICK, "chapter": CHAPTER_BUDGET},
    own_budgets={},
    chapter={
        ("undivided-32", GAP): replace(
            _IN_SCALING,
            low=-1,
            high=1,
            printed=False,
            conditions="the division is worth nothing, “slightly ahead” without it: taken as within a point",
        )
    },
)

# Evaluating a model of this size takes as long as many of its steps: few of both.
_WIDE_QUICK = Budget(steps=20, batch_size=8, evaluate_every=20, checkpoint_every=20)

SCALING_WIDE = replace(
    SCALING,
    id="scaling-training-wide",
    title="Why √d_k, wide models",
    question="How far do the scores run in a model as wide as its head?",
    variants=tuple(f"{kind}-{width}-wide" for width in (256, 1024) for kind in ("divided", "undivided")),
    budgets={"quick": _WIDE_QUICK, "chapter": _SCALING},
    own_budgets={},
    chapter={(f"{name}-wide", metric): value for (name, metric), value in SCALING.chapter.items()},
    shows="undivided, the scores run away within the first steps",
    hides="how far they run in the end, and what that costs in perplexity",
)

SCALES = replace(
    SCALING,
    id="scaling-scales",
    title="Other scales",
    question="What else keeps a wide head soft?",
    variants=("divided-1024", "undivided-1024", "by-width-1024", "learned-scale-1024", "qk-norm-1024"),
    own_budgets={},
    chapter={},
    shows="which scales let the scores run away",
    hides="what each is worth in perplexity",
)

# Starts from runs of SCALING, so neither a command nor a reference makes it by itself; see ``launch.rescue``.
RESCUE = replace(
    SCALING,
    id="scaling-rescue",
    title="The failed rescue",
    question="Does a collapsed head recover once the division is put back?",
    variants=tuple(
        name
        for name in dict.fromkeys((*SCALING.variants, *SCALING_LONG.variants))
        if name.startswith("divided")
    ),
    own_budgets={},
    chapter={},
    shows="where the scores go in the first steps after the division is put back",
    hides="whether the head catches up with one that was divided from the start",
)

MASK = replace(
    AVERAGES,
    id="mask",
    title="Mask and softmax",
    question="What does the mask keep out?",
    variants=("head-added", "unmasked"),
    seeds=(0, 1),
    chapter={},
    shows="the unmasked head’s perplexity falls far below the honest one’s",
    hides="how far it falls in the end, which would mean as little",
)

QKV = replace(
    AVERAGES,
    id="query-key-value",
    title="Query, key, value",
    question="Why does matching need two projections, and copying a third?",
    variants=("average-added-positions", "matrix", "raw", "query-key", "head-added"),
    seeds=(0, 1),
    chapter={},
    shows="raw scores are no better than equal weights",
    hides="what W_Q, W_K and W_V are worth once trained",
)

EXPERIMENTS: dict[str, Experiment] = {
    known.id: known for known in (AVERAGES, MASK, QKV, SCALING, SCALING_LONG, SCALING_WIDE, SCALES)
}


def experiment(experiment_id: str) -> Experiment:
    """The experiment of that id.

    Raises ValueError: when there is none; the message lists those there are.
    """
    try:
        return EXPERIMENTS[experiment_id]
    except KeyError:
        raise ValueError(f"no experiment {experiment_id!r}; there are: {', '.join(EXPERIMENTS)}.") from None


def parse_seeds(text: str) -> tuple[int, ...]:
    """Seeds from text such as ``0,1,2``, exactly as written.

    Raises ValueError: when one is no whole number from 0 to 2^63 - 1, is named twice, or none is given.
    """
    allowed = f"allowed: whole numbers from 0 to {MAX_SEED}, separated by commas, each once"
    seeds: list[int] = []
    for part in text.split(","):
        digits = part.strip()
        if not (digits.isascii() and digits.isdigit() and len(digits) <= 19 and int(digits) <= MAX_SEED):
            raise ValueError(f"seeds are {text!r}; {allowed}.")
        if int(digits) in seeds:
            raise ValueError(f"seed {int(digits)} is given twice in {text!r}; {allowed}.")
        seeds.append(int(digits))
    return tuple(seeds)
