"""What a run is asked to do, as a value that survives JSON. Imports no torch."""

import hashlib
import json
from dataclasses import dataclass
from typing import Any

from engine.experiments import Budget
from engine.models.config import ModelConfig


@dataclass(frozen=True, kw_only=True)
class RunSpec:
    """One training run: a configuration on a budget, a text and a seed.

    experiment, variant: where it belongs; names only, they decide nothing about the result.
    corpus_sha256: of the text; the trainer refuses a text that changed under its id.
    """

    experiment: str
    variant: str
    budget_name: str
    config: ModelConfig
    budget: Budget
    corpus: str
    corpus_sha256: str
    seed: int

    @property
    def digest(self) -> str:
        """Names the result: equal digests are repeats of one measurement, on whatever device."""
        return digest(
            {
                "config": self.config.to_dict(),
                "budget": {
                    k: v
                    for k, v in self.budget.to_dict().items()
                    if k not in ("evaluate_every", "checkpoint_every")
                },
                "corpus_sha256": self.corpus_sha256,
                "seed": self.seed,
            }
        )

    def to_json(self) -> str:
        """One line of JSON; ``from_json`` is its inverse."""
        fields = {**vars(self), "config": self.config.to_dict(), "budget": self.budget.to_dict()}
        return json.dumps(fields, sort_keys=True, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> "RunSpec":
        """Raises ValueError, TypeError or KeyError: when the text is no run's."""
        fields = json.loads(text)
        config = ModelConfig.from_dict(fields.pop("config"))
        return cls(config=config, budget=Budget(**fields.pop("budget")), **fields)


def digest(value: Any) -> str:
    """sha256 of the canonical JSON of a value, in hex, cut to 32 digits."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:32]
