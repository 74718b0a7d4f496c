"""The tables on √d_k: heads of four widths, divided and not, and other scales. Imports no torch."""

from engine.chapter import variants as v
from engine.chapter.budget import CHAPTER_BUDGET, Budget, BudgetName
from engine.chapter.definitions import GAP, ChapterValue, Experiment, ids, inferred, printed
from engine.chapter.variant import Variant

_SCALING_QUICK = Budget(steps=80, batch_size=8, learning_rate=1e-2, evaluate_every=20, checkpoint_every=80)
_SCALING = Budget(steps=1500, batch_size=32)
_SCALING_BUDGETS: dict[BudgetName, Budget] = {"quick": _SCALING_QUICK, "chapter": _SCALING}
_DIVISION = "Why divide by the square root of d_k"
_BESIDE = "undivided beside divided"

_NARROW_MODEL = (
    "The chapter does not print how wide its model is. Here it stays 128 wide, and the scores run less far; "
    "in scaling-training-wide it is as wide as its head, and there they run about as far as the chapter’s."
)
_ONE_SEED = (
    "Ours is of one seed; on which windows the chapter looked at its scores is not printed, and why ours "
    "differ was not found out."
)


def _of_wide_heads(
    at_256: Variant, at_1024: Variant, spread_gap: str, frozen_gap: str = ""
) -> dict[tuple[str, str], ChapterValue]:
    """What the chapter prints of heads of 256 and 1024. at_256, at_1024: the divided ones."""
    undivided_256, undivided_1024 = ids(v.UNDIVIDED[at_256.id], v.UNDIVIDED[at_1024.id])
    return {
        (undivided_1024, "score_std"): printed(5147, where=_DIVISION, gap=spread_gap),
        (at_1024.id, "score_std"): printed(3.44, where=_DIVISION, gap=spread_gap),
        (undivided_1024, "frozen_share"): printed(0.999, where=_DIVISION, gap=frozen_gap),
        (undivided_256, GAP): printed(18, where=_DIVISION, tolerance=0.5, label=f"d_k 256, {_BESIDE}"),
        (undivided_1024, GAP): printed(17, where=_DIVISION, tolerance=0.5, label=f"d_k 1024, {_BESIDE}"),
    }


SCALING = Experiment(
    id="scaling-training",
    title="Why √d_k",
    question="What collapses when the score is not divided?",
    models=v.pairs(v.DIVIDED_32, v.DIVIDED_128, v.DIVIDED_256, v.DIVIDED_1024),
    budgets=_SCALING_BUDGETS,
    own_budgets={("chapter", name): CHAPTER_BUDGET for name in ids(*v.pairs(v.DIVIDED_32))},
    chapter=_of_wide_heads(v.DIVIDED_256, v.DIVIDED_1024, _NARROW_MODEL, _NARROW_MODEL),
    series=("score_std", "entropy_nats", "frozen_share", "grad_norm_W_Q"),
    shows="at d_k 1024 the undivided head’s scores run away and nearly every row freezes",
    hides="what the division is worth in perplexity, and how little that is for a narrow head",
)

SCALING_LONG = Experiment(
    id="scaling-training-long",
    title="Why √d_k, narrow heads",
    question="Does a narrow head need the division?",
    models=v.pairs(v.DIVIDED_32, v.DIVIDED_128_BLOCK),
    budgets={"quick": _SCALING_QUICK, "chapter": CHAPTER_BUDGET},
    chapter={
        (v.UNDIVIDED[v.DIVIDED_32.id].id, GAP): inferred(
            -1,
            0,
            where=_DIVISION,
            tolerance=0,
            conditions="worth nothing, “slightly ahead” without the division: taken as by up to a point",
            label=f"d_k 32, {_BESIDE}",
            gap="At d_k 32 the undivided heads are behind in both seeds, by 0.88 and 0.67 points. The "
            "chapter has them slightly ahead, and prints neither the figure nor its seeds.",
        )
    },
    shows=SCALING.shows,
    hides=SCALING.hides,
)

# Evaluating a model of this size takes as long as many of its steps: few of both.
_WIDE_QUICK = Budget(steps=20, batch_size=8, evaluate_every=20, checkpoint_every=20)

SCALING_WIDE = Experiment(
    id="scaling-training-wide",
    title="Why √d_k, wide models",
    question="How far do the scores run in a model as wide as its head?",
    models=v.pairs(v.DIVIDED_256_WIDE, v.DIVIDED_1024_WIDE),
    own_seeds=dict.fromkeys(ids(*v.pairs(v.DIVIDED_1024_WIDE)), (0,)),  # 40 minutes each
    budgets={"quick": _WIDE_QUICK, "chapter": _SCALING},
    chapter=_of_wide_heads(v.DIVIDED_256_WIDE, v.DIVIDED_1024_WIDE, _ONE_SEED),
    shows="undivided, the scores run away within the first steps",
    hides="how far they run in the end, and what that costs in perplexity",
)

SCALES = Experiment(
    id="scaling-scales",
    title="Other scales",
    question="What else keeps a wide head soft?",
    models=(*v.pairs(v.DIVIDED_1024), v.BY_WIDTH, v.LEARNED_SCALE, v.QK_NORM),
    budgets=_SCALING_BUDGETS,
    shows="which scales let the scores run away",
    hides="what each is worth in perplexity",
)

# Starts from runs of SCALING, so neither a command nor a reference makes it by itself; see ``launch.rescue``.
RESCUE = Experiment(
    id="scaling-rescue",
    title="The failed rescue",
    question="Does a collapsed head recover once the division is put back?",
    models=(v.DIVIDED_32, v.DIVIDED_128, v.DIVIDED_256, v.DIVIDED_1024, v.DIVIDED_128_BLOCK),
    budgets=_SCALING_BUDGETS,
    shows="where the scores go in the first steps after the division is put back",
    hides="whether the head catches up with one that was divided from the start",
)
