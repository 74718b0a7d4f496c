"""How long and how a run trains. Imports no torch."""

from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from engine.system.errors import InvalidInput
from engine.system.numbers import check_whole

BudgetName = Literal["quick", "chapter"]
Precision = Literal["float32", "bfloat16"]
MAX_KEPT = 200  # weights of one run over its steps


@dataclass(frozen=True, kw_only=True)
class Budget:
    """How long and how a run trains. AdamW, torch's defaults but for the learning rate.

    evaluate_every, checkpoint_every: in steps.
    evaluate_early: whether the first evaluations come sooner (see ``training.py``); each of a deep model
        takes as long as fifty of its quick steps.
    warmup_steps: over which the learning rate rises linearly from nothing; 0 is none.
    also_at: context lengths at which the final model is evaluated as well.
    precision: of the products in training; weights, sums of them and evaluations stay float32.
    keep_every: steps between weights that are kept for looking back, the first and the last included; 0 keeps
        none.

    Raises InvalidInput: when a number is out of range; the message gives got and allowed.
    """

    steps: int
    batch_size: int = 64
    context_length: int = 128
    learning_rate: float = 1e-3
    evaluate_every: int = 100
    checkpoint_every: int = 250
    evaluate_early: bool = True
    warmup_steps: int = 0
    also_at: tuple[int, ...] = ()
    precision: Precision = "float32"
    keep_every: int = 0

    def __post_init__(self) -> None:
        for name, low, high in (
            ("steps", 1, 10_000_000),
            ("batch_size", 1, 65_536),
            ("context_length", 1, 1_048_576),
            ("evaluate_every", 1, 10_000_000),
            ("checkpoint_every", 1, 10_000_000),
            ("warmup_steps", 0, 10_000_000),
        ):
            check_whole(name, getattr(self, name), low, high)
        least = -(-self.steps // MAX_KEPT)
        kept = self.keep_every
        if not isinstance(kept, int) or isinstance(kept, bool) or (kept and not least <= kept <= 10_000_000):
            raise InvalidInput(
                f"keep_every is {kept!r}; allowed for {self.steps:,} steps: 0, or a whole number from "
                f"{least:,} to 10,000,000."
            )
        object.__setattr__(self, "also_at", tuple(self.also_at))  # JSON gives a list
        for length in self.also_at:
            if not isinstance(length, int) or isinstance(length, bool) or not 1 <= length <= 1_048_576:
                raise InvalidInput(f"also_at has {length!r}; allowed: whole numbers from 1 to 1,048,576.")
        if not isinstance(self.evaluate_early, bool):
            raise InvalidInput(f"evaluate_early is {self.evaluate_early!r}; allowed: true or false.")
        if self.precision not in get_args(Precision):
            allowed = ", ".join(get_args(Precision))
            raise InvalidInput(f"precision is {self.precision!r}; allowed: {allowed}.")
        rate = self.learning_rate
        if not isinstance(rate, int | float) or isinstance(rate, bool) or not 0 < rate <= 1e9:
            raise InvalidInput(f"learning_rate is {rate!r}; allowed: above 0, at most 1e9.")
        object.__setattr__(self, "learning_rate", float(rate))  # 1 and 1.0 are one budget, with one digest

    def to_dict(self) -> dict[str, Any]:
        """The fields as plain JSON values."""
        return asdict(self)

    def decisive(self) -> dict[str, Any]:
        """The fields that decide what is measured; how often it is looked at does not.

        Without what was added later and is not used, so that older results keep their names.
        """
        watched = ("evaluate_every", "checkpoint_every", "evaluate_early", "keep_every")
        unused = (("warmup_steps", 0), ("also_at", ()), ("precision", "float32"))
        chosen = self.to_dict().items()
        return {name: value for name, value in chosen if name not in watched and (name, value) not in unused}


CHAPTER_BUDGET = Budget(steps=3000)  # what the chapter trains on where it says nothing else
