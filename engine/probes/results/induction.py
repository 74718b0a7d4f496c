"""Induction heads as they form, taken away, and in models of a text. Imports no torch.

Layers and heads count from 0.
Shapes: T query position, S key position, H heads, L blocks.
"""

from dataclasses import dataclass

from engine.circuits.results import Head, HeadScores


@dataclass(frozen=True)
class AllAlike:
    """The scores of a head that looks at all it sees alike."""

    previous_token: float
    prefix_matching: float

    def of(self, kind: str) -> float:
        """That of a kind, by its field's name."""
        return float(getattr(self, kind))


@dataclass(frozen=True)
class Formation:
    """The scores of every head at every kept step.

    pairs: the pair at each step, None where none stands. formed: the step from which on one always stands.
    pair, previous, matching: at the last step, the pair and every head with a role.
    """

    steps: list[int]
    scores: list[HeadScores]
    pairs: list[tuple[Head, Head] | None]
    formed: int | None
    pair: tuple[Head, Head] | None
    previous: list[Head]
    matching: list[Head]
    all_alike: AllAlike
    sequences: int


@dataclass(frozen=True)
class Maps:
    """Every head's attention on one sequence at every kept step.

    weights, scores: by step, layer, head and query, as far as the query sees.
    """

    pieces: list[str]
    steps: list[int]
    weights: list[list[list[list[list[float]]]]]
    scores: list[list[list[list[list[float]]]]]


@dataclass(frozen=True)
class Without:
    """The accuracy that is left when these heads add nothing, or what they add on average."""

    heads: list[Head]
    zero: float
    mean: float


@dataclass(frozen=True)
class Growing:
    """The accuracy that is left when these heads add nothing."""

    heads: list[Head]
    zero: float


@dataclass(frozen=True)
class Ablation:
    """What is left of the accuracy without each head, and without all that share a role or have none.

    sets: by role, where a head has it. growing: the heads of a role one after another, the highest score
    first.
    """

    accuracy: float
    early_accuracy: float
    pair: tuple[Head, Head] | None
    previous: list[Head]
    matching: list[Head]
    scores: HeadScores
    single: list[Without]
    sets: dict[str, Without]
    growing: dict[str, list[Growing]]
    sequences: int


@dataclass(frozen=True)
class Patched:
    """What is left when the senders' path into one input of the receivers carries what it does on average.

    matching: prefix-matching score of each receiver.
    """

    input: str
    senders: list[Head]
    accuracy: float
    matching: list[float]


@dataclass(frozen=True)
class Composition:
    """The paths from an earlier layer's heads into each input of the induction heads, patched.

    pair: None where there is none; then there are no paths. receivers: the induction heads of the layer that
    the pair's lies in. accuracy, matching: as it is, of the second half and of each receiver. paths: from
    the previous-token heads, into each of ``INPUTS``. controls: from all other heads before the receivers.
    """

    pair: tuple[Head, Head] | None
    receivers: list[Head]
    accuracy: float
    matching: list[float]
    paths: list[Patched]
    controls: list[Patched]
    sequences: int


@dataclass(frozen=True)
class InText:
    """One model of a text: its heads' scores on repeated random tokens and on that text, and what a repeat is
    worth to it in nats.
    """

    model: str
    layers: int
    pair: tuple[Head, Head] | None
    random: HeadScores
    text: HeadScores
    gain_random_nats: float
    gain_text_nats: float
    alike_random: AllAlike
    alike_text: AllAlike


@dataclass(frozen=True)
class InTexts:
    """All of them, on so many passages of a text."""

    rows: list[InText]
    text: str
    passages: int
