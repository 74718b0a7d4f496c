"""What a run is asked to do, as a value that survives JSON: train, or measure the wall. Imports no torch."""

import hashlib
import json
import re
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar

from engine.chapter.budget import Budget
from engine.memory_wall.plan import Plan
from engine.models.config import ModelConfig
from engine.system.errors import InvalidInput


@dataclass(frozen=True, kw_only=True)
class RunSpec:
    """One training run: a configuration on a budget, a text and a seed.

    experiment, variant: where it belongs; names only, they decide nothing about the result.
    corpus_sha256: of the text; the trainer refuses a text that changed under its id.
    start_from: "RUN:DIGEST" of a finished run of the same ledger, whose weights this one starts with (fresh
        optimiser, step 0); empty for weights drawn from the seed. See ``fork``.

    Raises InvalidInput: when start_from is neither.
    """

    exclusive: ClassVar[bool] = False

    experiment: str
    variant: str
    budget_name: str
    config: ModelConfig
    budget: Budget
    corpus: str
    corpus_sha256: str
    seed: int
    start_from: str = ""

    def __post_init__(self) -> None:
        if self.start_from and not re.fullmatch(r"[0-9]{1,18}:[0-9a-f]{32}", self.start_from):
            raise InvalidInput(
                f"start_from is {self.start_from!r}; allowed: a run's number and digest, as in 17:0123…, or "
                f"nothing."
            )

    @property
    def title(self) -> str:
        """Which run it is among those of its experiment."""
        return f"{self.variant}, seed {self.seed}"

    @property
    def steps(self) -> int:
        """How many steps it takes."""
        return self.budget.steps

    @property
    def start_run(self) -> int | None:
        """The number of the run whose weights this one starts with."""
        return int(self.start_from.partition(":")[0]) if self.start_from else None

    @property
    def start_digest(self) -> str:
        """What that run measured, by its digest: the same weights, whichever run they are read from."""
        return self.start_from.partition(":")[2]

    @property
    def digest(self) -> str:
        """Names the result: equal digests are repeats of one measurement, on whatever device."""
        decisive = {
            "config": self.config.changes(),
            "budget": self.budget.decisive(),
            "corpus_sha256": self.corpus_sha256,
            "seed": self.seed,
        }
        if self.start_from:  # only then: runs from before there was this field keep their digests
            decisive["start_from"] = self.start_digest
        return digest(decisive)

    def fork(self, run_id: int, **changes: Any) -> "RunSpec":
        """The same once more, but from this run's final weights, with some fields changed.

        run_id: the finished run that did what this asks for.
        """
        return replace(self, start_from=f"{run_id}:{self.digest}", **changes)

    def to_json(self) -> str:
        """One line of JSON; ``from_json`` is its inverse."""
        fields = {**vars(self), "config": self.config.to_dict(), "budget": self.budget.to_dict()}
        return json.dumps(fields, sort_keys=True, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> "RunSpec":
        """Raises InvalidInput, TypeError or KeyError: when the text is no run's."""
        fields = json.loads(text)
        config = ModelConfig.from_dict(fields.pop("config"))
        return cls(config=config, budget=Budget(**fields.pop("budget")), **fields)


@dataclass(frozen=True)
class WallSpec:
    """One measurement of the memory wall: no other run starts while it is carried out."""

    kind: ClassVar[str] = "memory-wall"
    experiment: ClassVar[str] = "memory-wall"
    exclusive: ClassVar[bool] = True

    plan: Plan

    @property
    def title(self) -> str:
        """What is measured, in a few words."""
        return self.plan.title

    @property
    def steps(self) -> int:
        """How many rows there are at most: an implementation that is out of memory goes no further."""
        return len(self.plan.tasks)

    @property
    def digest(self) -> str:
        """Names the rows: equal digests are repeats of one measurement."""
        return digest({"kind": self.kind, "plan": asdict(self.plan)})

    def to_json(self) -> str:
        """One line of JSON; ``from_json`` is its inverse."""
        return json.dumps({"kind": self.kind, "plan": asdict(self.plan)}, sort_keys=True, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> "WallSpec":
        """Raises InvalidInput, TypeError or KeyError: when the text is no measurement's."""
        fields = json.loads(text)
        if fields["kind"] != cls.kind:
            raise InvalidInput(f"kind is {fields['kind']!r}; allowed: {cls.kind}.")
        return cls(Plan.from_dict(fields["plan"]))


Spec = RunSpec | WallSpec


def spec_of(text: str) -> Spec:
    """What a run was asked, from its JSON; that of a training names no kind.

    Raises InvalidInput, TypeError or KeyError: when the text is no run's.
    """
    read = WallSpec if "kind" in json.loads(text) else RunSpec
    return read.from_json(text)


def digest(value: Any) -> str:
    """sha256 of the canonical JSON of a value, in hex, cut to 32 digits."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:32]
