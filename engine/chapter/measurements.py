"""What the chapter measures without training, as data, like the tables in ``experiments.py``.

Imports no torch. A measurement has one size only, the chapter's, so the names of both budgets mean the same.
"""

import importlib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from engine.chapter.definitions import METRICS, ChapterValue, Experiment, inferred, printed
from engine.chapter.experiments import EXPERIMENTS, POSITIONS
from engine.data.corpus import TINYSHAKESPEARE
from engine.system.errors import InvalidInput

Rows = Sequence[Any]  # dataclasses of ``engine.probes.results``
Figures = dict[str, dict[str, float]]
D_HEADS = (4, 16, 64, 256, 1024)
SIDES = ("undivided", "divided")
PRECISIONS = ("bfloat16", "float16", "float32", "float64")
# PyTorch's own attention, by the word that stands for it in a variant's name.
THEIRS = {"module": "nn.MultiheadAttention", "function": "F.scaled_dot_product_attention"}
PLACEMENTS = ("pre-norm", "post-norm")  # of the norm, in twelve blocks


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """One measurement of the chapter.

    variants: what is measured apart. metrics: what of each, and what that is called.
    chapter: the chapter's figures by (variant, metric).
    probe: the module whose ``measured(id, seed)`` gives the rows of one seed; importing it loads torch.
    read: makes of such rows the figures by variant and metric.
    corpus_id: the text it reads, where it reads one.
    """

    id: str
    title: str
    question: str
    variants: tuple[str, ...]
    metrics: dict[str, str]
    seeds: tuple[int, ...]
    chapter: dict[tuple[str, str], ChapterValue]
    probe: str
    read: Callable[[Rows], Figures]
    corpus_id: str = ""

    @property
    def figures(self) -> tuple[tuple[str, str], ...]:
        """What is shown beside the chapter, as (variant, metric)."""
        return tuple((name, metric) for name in self.variants for metric in self.metrics)

    def measure(self, seed: int) -> Figures:
        """The figures of one seed, on one thread; a variant that this CPU cannot compute has none.

        Raises CorpusError: when it reads a text that cannot be had.
        """
        rows: Rows = importlib.import_module(self.probe).measured(self.id, seed)
        return self.read(rows)


def variance_figures(rows: Rows) -> Figures:
    """By ``d-WIDTH``, of the rows of ``scaling.variance``."""
    return {f"d-{row.d}": {name: getattr(row, name) for name in VARIANCE.metrics} for row in rows}


def saturation_figures(rows: Rows) -> Figures:
    """By ``divided-WIDTH`` and ``undivided-WIDTH``, of the rows of ``scaling.saturation``."""
    return {f"{side}-{row.d}": asdict(getattr(row, side)) for row in rows for side in SIDES}


def parity_figures(rows: Rows) -> Figures:
    """Of the rows of parity that are causal and divided by the square root of d, the largest of each kind.

    They differ in size and in which of our two ways computed them.
    """
    counted = [row for row in rows if (row.mask, row.scale, row.state) == ("causal", "sqrt", "done")]
    found: Figures = {}
    for word, theirs in THEIRS.items():
        for precision in PRECISIONS:
            if alike := [row for row in counted if (row.theirs, row.precision) == (theirs, precision)]:
                found[f"{word}-{precision}"] = {
                    name: max(getattr(row, name) for row in alike) for name in PARITY.metrics
                }
    return found


def norm_figures(rows: Rows) -> Figures:
    """By placement, of the rows of ``norms.gradients``: the first block, the last, and their ratio."""
    return {row.placement: first_and_last(row.qkv) for row in rows}


def first_and_last(norms: Sequence[float]) -> dict[str, float]:
    """The norm of the first block and of the last, and how many times as large the last one is."""
    return {"first": norms[0], "last": norms[-1], "ratio": norms[-1] / norms[0]}


def context_figures(rows: Rows) -> Figures:
    """By ``alibi-LENGTH``, of the rows of ``positions.early_tokens``."""
    return {f"alibi-{row.length}": {name: getattr(row, name) for name in CONTEXT.metrics} for row in rows}


def rows_figures(rows: Rows) -> Figures:
    """By what stands in the table's untrained rows, of those of ``positions.other_rows``."""
    found: Figures = {}
    for row in rows:
        found.setdefault(row.way, {})[f"perplexity_{row.length}"] = row.perplexity
    return found


_DIVISION = "Why divide by the square root of d_k"


def _to_the_digit(value: float) -> ChapterValue:
    """A figure that is printed with three decimals and comes out so; the 51 leaves room for its float."""
    return printed(
        value,
        tolerance=0.00051 / value,
        where=_DIVISION,
        conditions="20,000 pairs, seed 0, q before k, widths in order",
    )


VARIANCE = Measurement(
    id="scaling-variance",
    title="Why √d_k, the variance of a score",
    question="How does the variance of q·k grow with the width?",
    variants=tuple(f"d-{width}" for width in D_HEADS),
    metrics={"variance": "variance of q·k", "std": "standard deviation of q·k"},
    seeds=(0,),  # the chapter's digits are those of this seed
    chapter={
        (f"d-{width}", metric): _to_the_digit(value)
        for width, variance, std in (
            (4, 3.975, 1.994),
            (16, 16.071, 4.009),
            (64, 64.249, 8.016),
            (256, 253.065, 15.908),
            (1024, 1015.562, 31.868),
        )
        for metric, value in (("variance", variance), ("std", std))
    },
    probe="engine.probes.scaling",
    read=variance_figures,
)

# Of 2,000 rows of 64 random scores.
_TRACE = inferred(
    0.96,
    tolerance=0.01 / 0.96,
    where=_DIVISION,
    conditions="that 0.96 is the trace of the softmax’ Jacobian is inferred",
)

SATURATION = Measurement(
    id="scaling-saturation",
    title="Why √d_k, frozen rows",
    question="What does a softmax over 64 random scores let through?",
    variants=tuple(f"{side}-{width}" for side in SIDES for width in D_HEADS),
    metrics={
        "effective_tokens": "effective tokens of 64",
        "frozen_share": "share of rows over 0.99",
        "trace": "trace of the softmax’ Jacobian",
        "gradient_share": "share of a gradient let through, mean row",
        "gradient_share_median": "share of a gradient let through, median row",
    },
    seeds=(0, 1, 2),
    chapter={
        ("undivided-1024", "frozen_share"): printed(
            0.7, tolerance=0.03 / 0.7, where=_DIVISION, conditions="seven in ten"
        ),
        ("undivided-256", "effective_tokens"): inferred(
            1, 1.5, tolerance=0, where=_DIVISION, conditions="“exactly one”, of one drawn row"
        ),
        **{(f"divided-{width}", "trace"): _TRACE for width in D_HEADS},
    },
    probe="engine.probes.scaling",
    read=saturation_figures,
)

_of_parity = partial(printed, where="Against PyTorch", conditions="size and seed are not printed")
MEAN_OUTPUT = _of_parity(0.159)
LARGEST_DIFFERENCE = _of_parity(1.79e-7, tolerance=1.0)  # rounding, of one draw: twice it is no other result

PARITY = Measurement(
    id="parity",
    title="Against PyTorch",
    question="How far are our attention and PyTorch’s apart, weights copied?",
    variants=tuple(f"{word}-{precision}" for word in THEIRS for precision in PRECISIONS),
    metrics={
        "magnitude": "mean absolute output",
        "difference": "largest absolute difference",
        "relative": "the same over the mean absolute output",
        "gradient_difference": "largest absolute difference of gradients",
        "gradient_relative": "the same over the mean absolute gradient",
    },
    seeds=(0, 1, 2, 3, 4),
    chapter={
        (f"{word}-float32", metric): value
        for word in THEIRS
        for metric, value in (("magnitude", MEAN_OUTPUT), ("difference", LARGEST_DIFFERENCE))
    },
    probe="engine.probes.parity",
    read=parity_figures,
)

NORM_GRADIENTS = Measurement(
    id="norm-gradients",
    title="Norm placement, before the first step",
    question="How large is the gradient of each of twelve blocks at initialisation?",
    variants=PLACEMENTS,
    metrics={
        "first": "gradient norm of W_Q, W_K and W_V, block 1",
        "last": "the same, block 12",
        "ratio": "last over first",
    },
    seeds=tuple(range(10)),
    chapter={
        (placement, metric): printed(
            value,
            tolerance=0.1,  # as far as seeds differ: these are of one
            null=1.0 if metric == "ratio" else 0.0,
            where="Norm placement",
            conditions="over W_Q, W_K and W_V; parameters, batch and seed are not printed",
        )
        for placement, values in (("pre-norm", (0.0498, 0.0657, 1.32)), ("post-norm", (0.0977, 0.1613, 1.65)))
        for metric, value in zip(("first", "last", "ratio"), values, strict=True)
    },
    probe="engine.probes.norms",
    read=norm_figures,
    corpus_id=TINYSHAKESPEARE,
)

# Of shipped weights, on windows longer than those of training: no figures of the chapter's.
CONTEXT = Measurement(
    id="positions-context",
    title="Positions, at equal context",
    question="What is left of ALiBi’s gain when no token stands early in its window?",
    variants=tuple(f"alibi-{length}" for length in (64, 128, 256)),
    metrics={
        "whole": "perplexity of whole windows",
        "predicted": "what the early tokens alone would make of it",
        "sliding": "perplexity of the same tokens in a sliding window",
    },
    seeds=POSITIONS.seeds,
    chapter={},
    probe="engine.probes.positions",
    read=context_figures,
    corpus_id=TINYSHAKESPEARE,
)
ROWS = Measurement(
    id="positions-rows",
    title="Positions, the rows that nobody trained",
    question="How much of the learned table’s cliff do its random rows make?",
    variants=("random", "scaled", "zero", "last"),
    metrics={f"perplexity_{length}": METRICS[f"perplexity_{length}"] for length in (128, 256, 512)},
    seeds=POSITIONS.seeds,
    chapter={},
    probe="engine.probes.positions",
    read=rows_figures,
    corpus_id=TINYSHAKESPEARE,
)

MEASUREMENTS: dict[str, Measurement] = {
    known.id: known for known in (VARIANCE, SATURATION, PARITY, NORM_GRADIENTS, CONTEXT, ROWS)
}


def known(known_id: str) -> Experiment | Measurement:
    """The experiment or measurement of that id.

    Raises InvalidInput: when there is none; the message lists those there are.
    """
    everything: dict[str, Experiment | Measurement] = {**EXPERIMENTS, **MEASUREMENTS}
    if known_id not in everything:
        raise InvalidInput(f"no experiment {known_id!r}; there are: {', '.join(everything)}.")
    return everything[known_id]
