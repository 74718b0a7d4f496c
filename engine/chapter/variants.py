"""Every model of the chapter's text: the one before it plus one changed field. Imports no torch.

To add one, give the ``models`` of an experiment another entry, ``BLOCK.then("eight-heads", {"n_head": 8},
title=..., claim=...)``. Here stand those that two experiments share or that code means; those of the
languages are in ``language_variants.py``.
"""

from dataclasses import replace
from typing import Any

from engine.chapter.definitions import GAIN
from engine.chapter.variant import Variant

NO_CONTEXT = Variant(
    id="no-context",
    change={},
    title="no context",
    about="Each token predicts the next one alone: the baseline.",
)
AVERAGE = NO_CONTEXT.then(
    "average",
    {"mixer": "average"},
    title="average replaces the token",
    short="average replaces",
    claim="It is far worse than no past at all.",
)
AVERAGE_POSITIONS = AVERAGE.then(
    "average-positions",
    {"positions": "learned"},
    title="average replaces, with positions",
    short="+ positions",
    about="The mean keeps how many positions there were; in which order is averaged away.",
    claim="They are averaged away with everything else.",
)
AVERAGE_ADDED = AVERAGE.then(
    "average-added",
    {"connection": "add"},
    title="average added to the token",
    short="average added",
    claim="Keeping the token repairs the damage; beside it, equal weights still cost a little.",
)
AVERAGE_ADDED_POSITIONS = AVERAGE_ADDED.then(
    "average-added-positions",
    {"positions": "learned"},
    title="average added, with positions",
    short="equal weights",
    part="positions",
    about="The control for what attention gets to see: positions, but equal weights.",
)
HEAD_ADDED = AVERAGE_ADDED_POSITIONS.then(
    "head-added",
    {"mixer": "attention"},
    title="one head added, with positions",
    short="one head",
    part="learned weights",
    about="Weights that depend on both tokens, in place of equal ones.",
)
HEAD_REPLACES = HEAD_ADDED.then(
    "head-replaces",
    {"connection": "replace"},
    title="one head replaces the token",
    short="head replaces",
    part="the token replaced, not added to",
    about="In place of the token, a head spends most of its weight on the token itself.",
    claim="It loses much: attention brings information in, and does not say what a position holds.",
)
MATRIX = AVERAGE_ADDED_POSITIONS.then(
    "matrix",
    {"mixer": "matrix"},
    title="one learned matrix added",
    short="learned matrix",
    about="Learned weights, the same for every sentence: “four tokens back”, never “the noun”.",
)
RAW = AVERAGE_ADDED_POSITIONS.then(
    "raw",
    {"mixer": "raw"},
    title="raw x·x scores added",
    short="raw x·x",
    about="Scores from the tokens themselves, the same from one to the other as back.",
    claim="They work badly: every token attends to itself first.",
)
QUERY_KEY = RAW.then(
    "query-key",
    {"mixer": "query-key"},
    title="+ W_Q, W_K",
    about="Two roles for each token: what it looks for is not what it offers.",
)
UNMASKED = HEAD_ADDED.then(
    "unmasked",
    {"mixer": "unmasked"},
    title="one head without its mask",
    short="unmasked",
    about="Every position sees the token that it should predict: a perplexity that means nothing.",
)
HEAD_PROJECTED = HEAD_ADDED.then(
    "head-projected",
    {"output_projection": True},
    title="one head and W_O",
    short="one head, W_O",
    part="W_O",
    about="The head joins through W_O, so that its width is free to choose.",
)
FOUR_HEADS = HEAD_PROJECTED.then(
    "four-heads",
    {"n_head": 4},
    title="four heads of 32, W_O",
    short="four heads",
    about="Four answers to “what matters here” instead of one, for the same width in all.",
)
FEED_FORWARD = FOUR_HEADS.then(
    "feed-forward",
    {"d_ff": 512},
    title="+ feed-forward",
    part="the feed-forward",
    spoken="a block without LayerNorm",
    about="Attention moves information between positions; this computes within one.",
)
BLOCK = FEED_FORWARD.then(
    "block",
    {"connection": "pre-norm"},
    title="+ LayerNorm: a whole block",
    short="+ LayerNorm",
    part="LayerNorm",
    spoken="the chapter’s block",
    about="Each sublayer reads a normalised stream and adds to the one that never is.",
)
TWO_BLOCKS = BLOCK.then(
    "two-blocks",
    {"n_layer": 2},
    title="two blocks",
    part="a second block",
    about="Twice the block: ahead when it is stopped in time, behind when it trains on.",
    claim="It overfits: better than one block on the text that it is trained on, worse on any other.",
)
BLOCK_DROPOUT = BLOCK.then(
    "block-dropout",
    {"dropout": 0.1},
    title="a block with dropout 0.1",
    short="dropout 0.1",
    about="Numbers put to zero at random, in three places.",
)
PRE_NORM = BLOCK.then(
    "pre-norm",
    {"n_layer": 12},
    title="pre-norm, no warmup",
    short="pre-norm",
    about="Twelve blocks, each reading through a norm: the stream itself is never normalised.",
    shown_by="block.PreNorm",
)
PRE_NORM_WARMUP = PRE_NORM.then(
    "pre-norm-warmup",
    {},
    title="pre-norm, warmup",
    about="With the norm before each sublayer, a warmup is worth less than a point.",
    claim="A learning rate that rises slowly changes nothing here.",
)
POST_NORM = PRE_NORM.then(
    "post-norm",
    {"connection": "post-norm"},
    title="post-norm, no warmup",
    short="post-norm",
    about="The norm on the stream itself, as in 2017.",
    claim="Without a warmup it never leaves the unigram level.",
)
POST_NORM_WARMUP = POST_NORM.then(
    "post-norm-warmup",
    {},
    title="post-norm, warmup",
    claim="With a learning rate that rises slowly it is as good as pre-norm.",
)
LEARNED = BLOCK.then(
    "learned",
    {"max_positions": 512},
    title="learned positions",
    short="learned",
    about="A table of positions: rows beyond the training length stay the random numbers they began as.",
)
NO_POSITIONS = LEARNED.then(
    "none",
    {"positions": "none"},
    title="no positions",
    about="The mask alone lets a model tell how much lies behind it.",
)
SINUSOIDAL = LEARNED.then(
    "sinusoidal",
    {"positions": "sinusoidal"},
    title="sinusoids",
    about="Defined at any length, but never trained beyond the window.",
    claim="Not understood beyond the training length.",
    judged_by=GAIN,
)
ROPE = LEARNED.then(
    "rope",
    {"positions": "rope"},
    title="RoPE",
    about="Of place, a score depends on the distance only.",
    claim="Beyond the window they degrade.",
    judged_by=GAIN,
)
ALIBI = LEARNED.then(
    "alibi",
    {"positions": "alibi"},
    title="ALiBi",
    about="A penalty on distance.",
    claim="A longer window makes it better.",
    judged_by=GAIN,
)


def _divided(variant_id: str, base: Variant, change: dict[str, Any], about: str, told: str = "") -> Variant:
    d_head = replace(base.config, **change).effective_d_head
    return base.then(
        variant_id,
        change,
        title=f"divided, d_k {d_head}{told}",
        short=f"divided, {d_head}",
        part="divided",
        about=about,
    )


_KEPT = "Divided by the square root of its width, a head keeps the spread of its scores to a few units."
_WIDER = "The ladder's one head, wider with its model: a step of the same rate moves a score further."
DIVIDED_128 = _divided("divided-128", HEAD_PROJECTED, {}, "A head as wide as the model, added through W_O.")
DIVIDED_256 = _divided("divided-256", DIVIDED_128, {"d_head": 256}, _KEPT)
DIVIDED_1024 = _divided("divided-1024", DIVIDED_128, {"d_head": 1024}, _KEPT)
_AS_WIDE = ", in a model as wide"
DIVIDED_256_WIDE = _divided("divided-256-wide", HEAD_ADDED, {"d_model": 256}, _WIDER, _AS_WIDE)
DIVIDED_1024_WIDE = _divided("divided-1024-wide", HEAD_ADDED, {"d_model": 1024}, _WIDER, _AS_WIDE)
DIVIDED_32 = replace(
    _divided(
        "divided-32",
        BLOCK,
        {},
        "Narrow heads behind a LayerNorm: the division is worth little there.",
        " (four heads, a whole block)",
    ),
    shown_by="mixers.CausalSelfAttention",
)
DIVIDED_128_BLOCK = _divided(
    "divided-128-block",
    DIVIDED_32,
    {"n_head": 1},
    "The same block with one head as wide as the model.",
    " (one head, a whole block)",
)
# The other half of each pair, by the id of the divided one.
UNDIVIDED = {
    divided.id: divided.then(
        f"un{divided.id}",
        {"score_scale": "none"},
        title=f"undivided, d_k {divided.config.effective_d_head}{told}",
        short=f"undivided, {divided.config.effective_d_head}",
        part="undivided",
        claim="Its scores are large from the start where the head is wide, and grow.",
        judged_by="score_std",
    )
    for divided, told in (
        (DIVIDED_32, ""),
        (DIVIDED_128_BLOCK, ", block"),
        (DIVIDED_128, ""),
        (DIVIDED_256, ""),
        (DIVIDED_1024, ""),
        (DIVIDED_256_WIDE, _AS_WIDE),
        (DIVIDED_1024_WIDE, _AS_WIDE),
    )
}


def pairs(*divided: Variant) -> tuple[Variant, ...]:
    """Heads that divide their scores, each followed by the same head that does not."""
    return tuple(made for one in divided for made in (one, UNDIVIDED[one.id]))


# What readers ask next: other ways to keep the scores of a wide head in hand.
BY_WIDTH = DIVIDED_1024.then(
    "by-width-1024",
    {"score_scale": "width"},
    title="divided by d, d_k 1024",
    short="divided by d",
    about="Dividing by the width itself begins nearly uniform.",
)
LEARNED_SCALE = DIVIDED_1024.then(
    "learned-scale-1024",
    {"score_scale": "learned"},
    title="learned scale, d_k 1024",
    short="learned scale",
    about="One learned number a head, begun at the usual one.",
)
QK_NORM = DIVIDED_1024.then(
    "qk-norm-1024",
    {"score_scale": "qk-norm"},
    title="QK-norm, d_k 1024",
    short="QK-norm",
    about="q and k behind an RMSNorm each (Gemma 3, Qwen 3), whose learned gains bound every score.",
)
