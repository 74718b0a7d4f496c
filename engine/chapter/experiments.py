"""The chapter's tables as data: what is trained, on which budget, against which printed values.

Read by the pages, the command line and the tests. Imports no torch.
"""

from dataclasses import replace
from functools import partial

from engine.chapter import variants as v
from engine.chapter.budget import CHAPTER_BUDGET, Budget, BudgetName
from engine.chapter.definitions import (
    DIFFERENCES,
    GAIN,
    GAP,
    IN_POINTS,
    METRICS,
    PERPLEXITY,
    SMALL,
    TRAIN,
    ChapterValue,
    Experiment,
    ids,
    inferred,
    printed,
)
from engine.chapter.language_experiments import INDUCTION, WINOGRAD_CLOSED, WINOGRAD_OPEN
from engine.chapter.norm_experiments import BREAKING, NORM_PLACEMENT
from engine.chapter.scaling_experiments import RESCUE, SCALES, SCALING, SCALING_LONG, SCALING_WIDE
from engine.chapter.variant import Variant
from engine.system.errors import InvalidInput
from engine.system.numbers import whole_number

# What is defined elsewhere and read from here.
__all__ = [
    "DIFFERENCES",
    "GAIN",
    "GAP",
    "IN_POINTS",
    "METRICS",
    "PERPLEXITY",
    "TRAIN",
    "ChapterValue",
    "Experiment",
]
__all__ += ["BREAKING", "NORM_PLACEMENT", "RESCUE", "SCALES", "SCALING", "SCALING_LONG", "SCALING_WIDE"]

MAX_SEED = 2**63 - 1
_QUICK = Budget(steps=100, batch_size=32, learning_rate=1e-2, evaluate_every=20, checkpoint_every=50)
_BUDGETS: dict[BudgetName, Budget] = {"quick": _QUICK, "chapter": CHAPTER_BUDGET}

_AVERAGES = "From averages to attention, first table"

AVERAGES = Experiment(
    id="averages",
    title="Averages",
    question="What does an average of the past know?",
    models=(v.NO_CONTEXT, v.AVERAGE, v.AVERAGE_POSITIONS, v.AVERAGE_ADDED),
    budgets=_BUDGETS,
    seeds=(0, 1, 2),
    chapter={
        (v.NO_CONTEXT.id, PERPLEXITY): printed(59.71, where=_AVERAGES),
        (v.AVERAGE.id, PERPLEXITY): inferred(
            247.9, 248.2, where=_AVERAGES, conditions="59.71 + 188; “four times worse”"
        ),
        (v.AVERAGE_ADDED.id, PERPLEXITY): printed(60.45, where=_AVERAGES),
        (v.AVERAGE_POSITIONS.id, GAP): printed(
            -2.14, where=_AVERAGES, tolerance=0.5, label="positions, beside none"
        ),
        (v.AVERAGE_ADDED.id, GAP): printed(
            0.74,
            where=_AVERAGES,
            tolerance=SMALL,
            conditions="60.45 − 59.71",
            label="average added, beside no context",
        ),
    },
    beside={v.AVERAGE_ADDED.id: v.NO_CONTEXT.id},
    weights=ids(v.AVERAGE, v.AVERAGE_POSITIONS, v.AVERAGE_ADDED),
    shows="the replaced average is far behind the other two from the first steps on",
    hides="the 2 points that positions buy, and the distance between no context and the added average",
)

MASK = Experiment(
    id="mask",
    title="Mask and softmax",
    question="What does the mask keep out?",
    models=(v.HEAD_ADDED, v.UNMASKED),
    budgets=_BUDGETS,
    shows="the unmasked head’s perplexity falls far below the honest one’s",
    hides="how far it falls in the end, which would mean as little",
)

QKV = Experiment(
    id="query-key-value",
    title="Query, key, value",
    question="Why does matching need two projections, and copying a third?",
    models=(v.AVERAGE_ADDED_POSITIONS, v.MATRIX, v.RAW, v.QUERY_KEY, v.HEAD_ADDED),
    budgets=_BUDGETS,
    weights=ids(v.HEAD_ADDED),
    shows="raw scores are no better than equal weights",
    hides="what W_Q, W_K and W_V are worth once trained",
)

_LADDER = "The block, the full ladder"
_bought = partial(inferred, where=_LADDER, tolerance=1 / 3)  # points, by the difference of two rows
_OVERFITS = (
    "Two blocks overfit: their held-out perplexity still rises when training stops, by 0.3 to 0.4 in a "
    "hundred steps, and seeds end between 38.5 and 40.0."
)
_RUNGS = (
    v.AVERAGE_ADDED,
    v.AVERAGE_ADDED_POSITIONS,
    v.HEAD_REPLACES,
    v.HEAD_ADDED,
    v.HEAD_PROJECTED,
    v.FOUR_HEADS,
    v.FEED_FORWARD,
    v.BLOCK,
    v.TWO_BLOCKS,
    v.BLOCK_DROPOUT,
)

LADDER = Experiment(
    id="ladder",
    title="Ladder",
    question="What does each part buy, and what does it cost?",
    models=_RUNGS,
    # Three seeds of the rows that the chapter prints.
    seeds=(0, 1, 2),
    own_seeds={
        **dict.fromkeys(ids(v.AVERAGE_ADDED_POSITIONS, v.HEAD_ADDED), (0, 1)),
        **dict.fromkeys(
            ids(v.HEAD_REPLACES, v.HEAD_PROJECTED, v.FOUR_HEADS, v.FEED_FORWARD, v.BLOCK_DROPOUT), (0,)
        ),
    },
    # Half the batch of the averages: ten models, one of them of two blocks, are to end within a minute.
    budgets={**_BUDGETS, "quick": replace(_QUICK, batch_size=16)},
    chapter={
        (v.AVERAGE_ADDED.id, PERPLEXITY): printed(60.45, where=_LADDER),
        (v.BLOCK.id, PERPLEXITY): printed(38.07, where=_LADDER),
        (v.BLOCK.id, TRAIN): printed(
            18.77,
            where=_LADDER,
            gap="Which training windows its 18.77 is of the chapter does not print; of the first tenth "
            "ours is 19.15.",
        ),
        (v.TWO_BLOCKS.id, PERPLEXITY): printed(
            40.57,
            where=_LADDER,
            gap=_OVERFITS,
        ),
        (v.TWO_BLOCKS.id, TRAIN): printed(14.49, where=_LADDER),
        (v.HEAD_REPLACES.id, GAP): _bought(
            9, conditions="9 worse than the same head added", label="the head replaces, beside added"
        ),
        (v.HEAD_ADDED.id, GAP): _bought(
            -14, conditions="14 better than equal weights", label="one head, beside the added average"
        ),
        (v.FOUR_HEADS.id, GAP): _bought(
            -3,
            conditions="3 better than one head; four heads and W_O come together",
            label="four heads and W_O, beside one head",
        ),
        (v.BLOCK.id, GAP): _bought(-1.8, conditions="LayerNorm buys 1.8", label="LayerNorm, beside none"),
        (v.TWO_BLOCKS.id, GAP): printed(
            2.5,
            where=_LADDER,
            tolerance=0.5,
            conditions="40.57 − 38.07",
            gap=_OVERFITS,
            label="a second block, beside one",
        ),
    },
    beside={v.HEAD_ADDED.id: v.AVERAGE_ADDED.id, v.FOUR_HEADS.id: v.HEAD_ADDED.id},
    weights=ids(*_RUNGS),
    shows="a head that replaces the token is far behind one that is added, and a whole block ahead of both",
    hides="that two blocks overfit, and what each part is worth",
)

_LENGTHS = (64, 128, 256, 512)
_in_positions = partial(printed, where="Positions", conditions="depth, steps and batch are not printed")
_SCHEMES = (v.NO_POSITIONS, v.LEARNED, v.SINUSOIDAL, v.ROPE, v.ALIBI)

POSITIONS = Experiment(
    id="positions",
    title="Positions",
    question="Which scheme survives a longer window?",
    models=_SCHEMES,
    budgets={
        "quick": Budget(
            steps=240,  # of small batches: a table shows its edge only once its rows are used
            batch_size=16,
            context_length=64,
            learning_rate=4e-3,
            evaluate_every=120,
            checkpoint_every=240,
            also_at=_LENGTHS,
        ),
        "chapter": Budget(steps=1500, context_length=64, also_at=_LENGTHS),
    },
    also=tuple(f"perplexity_{length}" for length in _LENGTHS[1:]),
    chapter={
        (v.ALIBI.id, "perplexity_64"): _in_positions(44.95, label="at 64 tokens"),
        (v.ALIBI.id, "perplexity_256"): _in_positions(42.49, label="at 256 tokens"),
        (v.ALIBI.id, GAIN): _in_positions(
            2.46,
            tolerance=0.5,
            conditions="44.95 − 42.49",
            label="gain, 64 to 256",
            gap="ALiBi gains 0.86 and 0.85 points in the two seeds, with the depth, steps and batch chosen "
            "here: the chapter prints none of them. Other steps and depths that were tried are in NOTES.md.",
        ),
    },
    weights=ids(*_SCHEMES),
    all_seeds=ids(v.LEARNED, v.ALIBI),  # what is told of their longer windows is told of both
    shows="a learned table and sinusoids lose far more beyond their window than RoPE and ALiBi",
    hides="which scheme is best inside it, and how deep each falls",
)

EXPERIMENTS: dict[str, Experiment] = {
    known.id: known
    for known in (
        *(AVERAGES, MASK, QKV, SCALING, SCALING_LONG, SCALING_WIDE, SCALES),
        *(LADDER, NORM_PLACEMENT, POSITIONS),
        *(WINOGRAD_OPEN, WINOGRAD_CLOSED, INDUCTION),
    )
}

# The models of the text, and what they change; those of a language may have the same ids.
VARIANTS: dict[str, Variant] = {
    made.id: made
    for known in EXPERIMENTS.values()
    if not known.language
    for model in known.models
    for made in model.lineage
}


def experiment(experiment_id: str) -> Experiment:
    """The experiment of that id.

    Raises InvalidInput: when there is none; the message lists those there are.
    """
    try:
        return EXPERIMENTS[experiment_id]
    except KeyError:
        raise InvalidInput(f"no experiment {experiment_id!r}; there are: {', '.join(EXPERIMENTS)}.") from None


def parse_seeds(text: str) -> tuple[int, ...]:
    """Seeds from text such as ``0,1,2``, exactly as written.

    Raises InvalidInput: when one is no whole number from 0 to 2^63 - 1, is named twice, or none is given.
    """
    allowed = f"allowed: whole numbers from 0 to {MAX_SEED}, separated by commas, each once"
    seeds: list[int] = []
    for part in text.split(","):
        seed = whole_number(part.strip(), 0, MAX_SEED)
        if seed is None:
            raise InvalidInput(f"seeds are {text!r}; {allowed}.")
        if seed in seeds:
            raise InvalidInput(f"seed {seed} is given twice in {text!r}; {allowed}.")
        seeds.append(seed)
    return tuple(seeds)
