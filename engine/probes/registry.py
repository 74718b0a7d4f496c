"""Every probe there is: a pure function of typed arguments, by name. Imports no torch.

The functions are found once one is called, by a process that may hold torch: the worker, or the command line.
"""

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from engine.memory_wall.predictions import Predictions
from engine.probes import wire
from engine.probes.results import (
    attention,
    averages,
    block,
    induction,
    leaks,
    norms,
    parity,
    positions,
    samples,
    scaling,
    winograd,
)
from engine.probes.zoo import Finding
from engine.system.errors import InvalidInput

R = TypeVar("R")
QUICK_S = 0.5


@dataclass(frozen=True)
class Probe(Generic[R]):
    """One probe.

    function: "module:name", the module in this package unless it is named whole. result: the type of what it
    returns. seconds: what it typically takes in a warm worker on a slow core. limit_s: when it is given up.
    """

    name: str
    function: str
    result: type[R]
    seconds: float
    limit_s: float = 60.0

    @property
    def quick(self) -> bool:
        """Whether it follows its controls without a button."""
        return self.seconds < QUICK_S

    def resolved(self) -> Callable[..., R]:
        """The function; loads torch."""
        module, _, name = self.function.rpartition(":")
        module = module if "." in module else f"engine.probes.{module}"
        found: Callable[..., R] = getattr(importlib.import_module(module), name)
        return found

    def call(self, arguments: Any) -> R:
        """What it finds, of arguments as JSON has them.

        Raises InvalidInput: when an argument is missing, left over or of another type, or the probe cannot be
            answered.
        """
        function = self.resolved()
        if not isinstance(arguments, Mapping):
            raise InvalidInput(f"the arguments are {str(arguments)[:80]}; allowed: one JSON object.")
        try:
            given = wire.read_fields(function, arguments, "the probe")
        except (ValueError, TypeError) as error:
            raise InvalidInput(str(error)) from error
        return function(**given)

    def read(self, value: Any) -> R:
        """A result, from JSON."""
        found: R = wire.read(self.result, value)
        return found


AVERAGES = Probe("averages", "averages:compare", averages.Comparison, 0.05)
ATTENTION = Probe("attention", "attention:capture", attention.Capture, 0.05)
CONSTANTS = Probe("mask-constants", "leaks:constants", list[leaks.Constant], 0.3)
EMPTY_ROWS = Probe("empty-rows", "leaks:empty_rows", list[leaks.EmptyRow], 0.05)
LEAK_SAMPLE = Probe("leak-sample", "leaks:sample", leaks.Sample, 2.0)
BLOCK = Probe("block", "block:claims", block.Block, 0.3)
SAMPLES = Probe("samples", "samples:samples", list[samples.Written], 3.0)
SCALING = Probe("scaling", "scaling:random_vectors", scaling.RandomVectors, 4.0)
NORMS = Probe("norms", "norms:norms", norms.Norms, 8.0, 180.0)
PARITY = Probe("parity", "parity:parity", parity.Parity, 3.0, 120.0)
ZOO = Probe("zoo", "zoo:findings", list[Finding], 0.1)
PLACES = Probe("positions-places", "positions:places", positions.Places, 10.0, 180.0)
RESCALED = Probe("positions-rescaled", "positions:rescaled", positions.Rescaled, 15.0, 180.0)
ORDER = Probe("positions-order", "positions:order", positions.Order, 0.1)
KNOWLEDGE = Probe("positions-knowledge", "positions:knowledge", positions.Knowledge, 8.0, 180.0)
DIAGONALS = Probe("positions-diagonals", "positions:diagonals", positions.Diagonals, 0.4)
TABLE = Probe("positions-table", "positions:table", positions.Table, 0.05)
OTHER_ROWS = Probe("positions-other-rows", "positions:other_rows", positions.OtherRows, 10.0, 180.0)
EARLY_TOKENS = Probe("positions-early-tokens", "positions:early_tokens", positions.EarlyTokens, 15.0, 180.0)
MAPS = Probe("winograd-maps", "winograd:maps", winograd.Maps, 0.1)
CIRCUIT = Probe("winograd-circuit", "winograd:circuit", winograd.Circuit, 0.8)
PARTS = Probe("winograd-parts", "winograd:parts", winograd.Parts, 0.4)
CUT = Probe("winograd-cut", "winograd:cut", winograd.Changed, 0.1)
ABLATED = Probe("winograd-ablated", "winograd:ablated", winograd.Changed, 0.2)
PROOF = Probe("winograd-proof", "winograd:proof", winograd.Proof, 0.8)
SCORE = Probe("winograd-score", "winograd:score", winograd.Scored, 1.2)
FORMATION = Probe("induction-formation", "induction:formation", induction.Formation, 2.0)
INDUCTION_MAPS = Probe("induction-maps", "induction:maps", induction.Maps, 0.3)
ABLATE = Probe("induction-ablate", "induction:ablate", induction.Ablation, 2.0)
COMPOSITION = Probe("induction-composition", "composition:compose", induction.Composition, 0.8)
ABLATE_CHOSEN = Probe("induction-ablate-chosen", "induction:ablate_chosen", induction.Without, 0.4)
IN_TEXTS = Probe("induction-text", "induction:in_texts", induction.InTexts, 8.0, 180.0)
MEMORY_WALL = Probe("memory-wall", "engine.memory_wall.predict:predictions", Predictions, 10.0, 180.0)

PROBES: dict[str, Probe[Any]] = {
    probe.name: probe for probe in list(globals().values()) if isinstance(probe, Probe)
}


def known(name: str) -> Probe[Any]:
    """The probe of that name. Raises InvalidInput: when there is none; the message lists those there are."""
    if name not in PROBES:
        raise InvalidInput(f"no probe {name!r}; there are: {', '.join(PROBES)}.")
    return PROBES[name]
