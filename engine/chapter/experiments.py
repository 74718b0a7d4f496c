"""The chapter's tables as data: what is trained, on which budget, against which printed values.

Read by the pages, the command line and the tests. Imports no torch.
"""

from dataclasses import replace

from engine.chapter.budget import Budget
from engine.chapter.definitions import GAP, IN_POINTS, METRICS, PERPLEXITY, TRAIN, ChapterValue, Experiment
from engine.chapter.language_experiments import INDUCTION, WINOGRAD_CLOSED, WINOGRAD_OPEN
from engine.system.errors import InvalidInput
from engine.system.numbers import whole_number

__all__ = ["GAP", "IN_POINTS", "METRICS", "PERPLEXITY", "TRAIN", "ChapterValue", "Experiment"]

MAX_SEED = 2**63 - 1
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

_NARROW_MODEL = (
    "The chapter does not print how wide its model is. Here it stays 128 wide, and the scores run less far; "
    "in scaling-training-wide it is as wide as its head, and there they run about as far as the chapter’s."
)

SCALING = Experiment(
    id="scaling-training",
    title="Why √d_k",
    question="What collapses when the score is not divided?",
    variants=tuple(f"{kind}-{width}" for width in (32, 128, 256, 1024) for kind in ("divided", "undivided")),
    budgets={"quick": _SCALING_QUICK, "chapter": _SCALING},
    own_budgets={("chapter", name): CHAPTER_BUDGET for name in ("divided-32", "undivided-32")},
    seeds=(0, 1),
    metric=PERPLEXITY,
    chapter={
        ("undivided-1024", "score_std"): replace(_IN_SCALING, low=5147, high=5147, gap=_NARROW_MODEL),
        ("divided-1024", "score_std"): replace(_IN_SCALING, low=3.44, high=3.44, gap=_NARROW_MODEL),
        ("undivided-1024", "frozen_share"): replace(_IN_SCALING, low=0.999, high=0.999, gap=_NARROW_MODEL),
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

_STILL_RISES = (
    "It still rises at the last step, by 5 to 13 % in the last hundred, so it is a matter of the seed and of "
    "where training stops; which windows the chapter looked at is not printed."
)

# Evaluating a model of this size takes as long as many of its steps: few of both.
_WIDE_QUICK = Budget(steps=20, batch_size=8, evaluate_every=20, checkpoint_every=20)

SCALING_WIDE = replace(
    SCALING,
    id="scaling-training-wide",
    title="Why √d_k, wide models",
    question="How far do the scores run in a model as wide as its head?",
    variants=tuple(f"{kind}-{width}-wide" for width in (256, 1024) for kind in ("divided", "undivided")),
    own_seeds={f"{kind}-1024-wide": (0,) for kind in ("divided", "undivided")},  # 40 minutes each
    budgets={"quick": _WIDE_QUICK, "chapter": _SCALING},
    own_budgets={},
    chapter={
        (f"{name}-wide", metric): replace(value, gap=_STILL_RISES if metric == "score_std" else "")
        for (name, metric), value in SCALING.chapter.items()
    },
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

_IN_LADDER = replace(_PRINTED, where="The block, the full ladder")
_BOUGHT = replace(_IN_LADDER, tolerance=1 / 3, printed=False)  # points, by the difference of two rows

LADDER = replace(
    AVERAGES,
    id="ladder",
    title="Ladder",
    question="What does each part buy, and what does it cost?",
    variants=(
        "average-added",
        "average-added-positions",
        "head-replaces",
        "head-added",
        "head-projected",
        "four-heads",
        "feed-forward",
        "block",
        "two-blocks",
        "block-dropout",
    ),
    # Three seeds of the rows that the chapter prints.
    own_seeds={
        "average-added-positions": (0, 1),
        "head-added": (0, 1),
        **dict.fromkeys(
            ("head-replaces", "head-projected", "four-heads", "feed-forward", "block-dropout"), (0,)
        ),
    },
    # Half the batch of the averages: ten models, one of them of two blocks, are to end within a minute.
    budgets={**AVERAGES.budgets, "quick": replace(AVERAGES.budget("quick"), batch_size=16)},
    chapter={
        ("average-added", PERPLEXITY): replace(_IN_LADDER, low=60.45, high=60.45),
        ("block", PERPLEXITY): replace(_IN_LADDER, low=38.07, high=38.07),
        ("block", TRAIN): replace(
            _IN_LADDER,
            low=18.77,
            high=18.77,
            gap="which training windows it is of is not printed; of windows at random places it is 18.8.",
        ),
        ("two-blocks", PERPLEXITY): replace(
            _IN_LADDER,
            low=40.57,
            high=40.57,
            gap="it learns by heart: held-out perplexity rises by about 0.4 a hundred steps when training "
            "stops, and seeds end between 38.5 and 40.0.",
        ),
        ("two-blocks", TRAIN): replace(_IN_LADDER, low=14.49, high=14.49),
        ("head-replaces", GAP): replace(
            _BOUGHT, low=9, high=9, conditions="9 worse than the same head added"
        ),
        ("head-added", GAP): replace(_BOUGHT, low=-14, high=-14, conditions="14 better than equal weights"),
        ("four-heads", GAP): replace(
            _BOUGHT, low=-3, high=-3, conditions="3 better than one head; four heads and W_O come together"
        ),
        ("block", GAP): replace(_BOUGHT, low=-1.8, high=-1.8, conditions="LayerNorm buys 1.8"),
    },
    beside={"head-added": "average-added", "four-heads": "head-added"},
    shows="a head that replaces the token is far behind one that is added, and a whole block ahead of both",
    hides="that learned weights beat equal ones, that two blocks learn by heart, and what each part is worth",
)

_DEEP = Budget(steps=1000, batch_size=32, learning_rate=3e-3)
# At the chapter's rate so small a batch breaks post-norm with a warmup as well.
_DEEP_QUICK = Budget(
    steps=120,
    batch_size=4,
    context_length=64,
    learning_rate=1e-3,
    evaluate_every=60,
    checkpoint_every=120,
    evaluate_early=False,
)
_WARMED = ("pre-norm-warmup", "post-norm-warmup")
_IN_NORM = replace(_PRINTED, where="Norm placement", conditions="the batch of 32 is inferred")

NORM_PLACEMENT = replace(
    AVERAGES,
    id="norm-placement",
    title="Norm placement",
    question="Why does post-norm need a warmup?",
    variants=("pre-norm", "pre-norm-warmup", "post-norm", "post-norm-warmup"),
    budgets={"quick": _DEEP_QUICK, "chapter": _DEEP},
    own_budgets={
        **{("quick", name): replace(_DEEP_QUICK, warmup_steps=60) for name in _WARMED},
        **{("chapter", name): replace(_DEEP, warmup_steps=200) for name in _WARMED},
    },
    seeds=(0, 1),
    chapter={
        ("pre-norm", PERPLEXITY): replace(_IN_NORM, low=37.82, high=37.82),
        ("pre-norm-warmup", PERPLEXITY): replace(_IN_NORM, low=37.62, high=37.62),
        ("post-norm", PERPLEXITY): replace(_IN_NORM, low=308.05, high=308.05),
        ("post-norm-warmup", PERPLEXITY): replace(_IN_NORM, low=37.88, high=37.88),
    },
    shows="post-norm without a warmup is far behind the other three",
    hides="that the other three end level",
)

# Post-norm at other warmups and learning rates, at the quick size; see ``launch.breaking``.
BREAKING = replace(
    NORM_PLACEMENT,
    id="norm-breaking",
    title="Where post-norm breaks",
    question="At which warmup and learning rate does post-norm break?",
    variants=("post-norm",),
    budgets={"quick": replace(_DEEP_QUICK, evaluate_every=_DEEP_QUICK.steps)},
    own_budgets={},
    chapter={},
    shows="that the rate at which post-norm breaks rises with the warmup",
    hides="where it breaks with the chapter's batch",
)

_LENGTHS = (64, 128, 256, 512)
_IN_POSITIONS = replace(_PRINTED, where="Positions", conditions="depth, steps and batch are not printed")

POSITIONS = replace(
    AVERAGES,
    id="positions",
    title="Positions",
    question="Which scheme survives a longer window?",
    variants=("none", "learned", "sinusoidal", "rope", "alibi"),
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
    seeds=(0, 1),
    chapter={
        ("alibi", "perplexity_64"): replace(_IN_POSITIONS, low=44.95, high=44.95),
        ("alibi", "perplexity_256"): replace(_IN_POSITIONS, low=42.49, high=42.49),
    },
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
