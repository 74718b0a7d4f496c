"""The tables on where the norm stands in a deep model. Imports no torch."""

from dataclasses import replace
from functools import partial

from engine.chapter import variants as v
from engine.chapter.budget import Budget
from engine.chapter.definitions import GAP, PERPLEXITY, SMALL, Experiment, ids, printed

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
_WARMED = ids(v.PRE_NORM_WARMUP, v.POST_NORM_WARMUP)
_in_norm = partial(printed, where="Norm placement", conditions="the batch of 32 is inferred")

NORM_PLACEMENT = Experiment(
    id="norm-placement",
    title="Norm placement",
    question="Why does post-norm need a warmup?",
    models=(v.PRE_NORM, v.PRE_NORM_WARMUP, v.POST_NORM, v.POST_NORM_WARMUP),
    budgets={"quick": _DEEP_QUICK, "chapter": _DEEP},
    own_budgets={
        **{("quick", name): replace(_DEEP_QUICK, warmup_steps=60) for name in _WARMED},
        **{("chapter", name): replace(_DEEP, warmup_steps=200) for name in _WARMED},
    },
    chapter={
        (v.PRE_NORM.id, PERPLEXITY): _in_norm(37.82),
        (v.PRE_NORM_WARMUP.id, PERPLEXITY): _in_norm(37.62),
        (v.POST_NORM.id, PERPLEXITY): _in_norm(308.05),
        (v.POST_NORM_WARMUP.id, PERPLEXITY): _in_norm(37.88),
        (v.PRE_NORM_WARMUP.id, GAP): _in_norm(
            -0.20, tolerance=SMALL, conditions="37.62 − 37.82", label="pre-norm: warmup, beside none"
        ),
        (v.POST_NORM_WARMUP.id, GAP): _in_norm(
            0.26, tolerance=SMALL, conditions="37.88 − 37.62", label="warmup: post-norm, beside pre-norm"
        ),
    },
    beside={v.POST_NORM_WARMUP.id: v.PRE_NORM_WARMUP.id},
    shows="post-norm without a warmup is far behind the other three",
    hides="that the other three end level",
)

# Post-norm at other warmups and learning rates, at the quick size; see ``launch.breaking``.
BREAKING = Experiment(
    id="norm-breaking",
    title="Where post-norm breaks",
    question="At which warmup and learning rate does post-norm break?",
    models=(v.POST_NORM,),
    budgets={"quick": replace(_DEEP_QUICK, evaluate_every=_DEEP_QUICK.steps)},
    shows="at which of these warmups and rates post-norm breaks at the quick size",
    hides="where it breaks with the chapter's batch",
)
