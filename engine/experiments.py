"""The chapter's tables as data: what is trained, on which budget, against which printed values.

Read by the pages, the command line and the tests. Imports no torch.
"""

from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

BudgetName = Literal["quick", "chapter"]
MAX_SEED = 2**63 - 1


@dataclass(frozen=True, kw_only=True)
class Budget:
    """How long and how a run trains. AdamW, torch's defaults but for the learning rate.

    evaluate_every, checkpoint_every: in steps; the first evaluations come sooner (see ``training.py``).

    Raises ValueError: when a number is out of range; the message gives got and allowed.
    """

    steps: int
    batch_size: int = 64
    context_length: int = 128
    learning_rate: float = 1e-3
    evaluate_every: int = 100
    checkpoint_every: int = 250

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
        rate = self.learning_rate
        if not isinstance(rate, int | float) or isinstance(rate, bool) or not 0 < rate <= 1e9:
            raise ValueError(f"learning_rate is {rate!r}; allowed: above 0, at most 1e9.")
        object.__setattr__(self, "learning_rate", float(rate))  # 1 and 1.0 are one budget, with one digest

    def to_dict(self) -> dict[str, Any]:
        """The fields as plain JSON values."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class ChapterValue:
    """What the chapter says of one figure.

    low, high: the value, twice, when the chapter prints it; the range that its prose allows when not.
    tolerance: the relative difference that still counts as reproduced.
    printed: whether the digits stand in the chapter, or were inferred from its prose.
    where: the section; conditions: what was not printed and had to be settled.
    """

    low: float
    high: float
    tolerance: float
    printed: bool
    where: str
    conditions: str = ""

    @property
    def middle(self) -> float:
        """The value, or the middle of the range: what a difference is taken from."""
        return (self.low + self.high) / 2


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """One table of the chapter.

    shows, hides: which of its claims the quick budget already shows, and which it cannot.
    chapter: the chapter's figures by (variant, metric).
    """

    id: str
    title: str
    question: str
    variants: tuple[str, ...]
    budgets: dict[BudgetName, Budget]
    seeds: tuple[int, ...]
    metric: str
    unit: str
    chapter: dict[tuple[str, str], ChapterValue]
    shows: str
    hides: str

    def budget(self, name: str) -> Budget:
        """The budget of that name.

        Raises ValueError: when there is none.
        """
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
    metric="validation_perplexity",
    unit="held-out perplexity",
    chapter={
        ("no-context", "validation_perplexity"): replace(_PRINTED, low=59.71, high=59.71),
        ("average", "validation_perplexity"): replace(
            _PRINTED, low=247.9, high=248.2, printed=False, conditions="59.71 + 188; “four times worse”"
        ),
        ("average-positions", "validation_perplexity"): replace(
            _PRINTED, low=245.76, high=246.06, printed=False, conditions="2.14 lower than the row above"
        ),
        ("average-added", "validation_perplexity"): replace(_PRINTED, low=60.45, high=60.45),
    },
    shows="the replaced average is far behind the other two from the first steps on",
    hides="the 2 points that positions buy, and the distance between no context and the added average",
)

EXPERIMENTS: dict[str, Experiment] = {AVERAGES.id: AVERAGES}


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
