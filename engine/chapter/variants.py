"""Every model of the chapter's text: its parent plus one changed field. Imports no torch.

To add a variant, add a line to ``VARIANTS``: a parent, the one field that changes, a claim. The models of the
languages have tables of their own, in ``language_variants.py``.
"""

from dataclasses import dataclass, field, replace
from typing import Any

from engine.models.config import ModelConfig
from engine.system.errors import InvalidInput


@dataclass(frozen=True, kw_only=True)
class Variant:
    """One rung.

    id: stable once shipped; lower-case words with hyphens.
    title, short: its name in a table, and in the gutter of a chart.
    parent: the variant of the same table that it changes; None for a root.
    change: the one field of ``ModelConfig`` that differs from the parent, and its value; empty where another
        table gives the parent another name; of a root, all fields that differ from the default.
    claim: what the chapter says this change does, in one line.
    source: the name in ``engine/models`` whose source shows the change.
    config: the whole configuration, the parent's with the change applied; ``table`` fills it in.
    """

    id: str
    title: str
    short: str
    parent: str | None
    change: dict[str, Any]
    claim: str
    source: str
    config: ModelConfig = field(default_factory=ModelConfig)


def table(*rungs: Variant) -> dict[str, Variant]:
    """Variants by id, each with its configuration; a parent stands before its children."""
    found: dict[str, Variant] = {}
    for rung in rungs:
        base = ModelConfig() if rung.parent is None else found[rung.parent].config
        found[rung.id] = replace(rung, config=replace(base, **rung.change))
    return found


def _of_width(width: int) -> Variant:
    return Variant(
        id=f"divided-{width}",
        title=f"divided, d_k {width}",
        short=f"divided, {width}",
        parent="divided-128",
        change={"d_head": width},
        claim="Divided by the square root of its width, a head stays soft at any width.",
        source="mixers.CausalSelfAttention",
    )


def _as_wide(width: int) -> Variant:
    return Variant(
        id=f"divided-{width}-wide",
        title=f"divided, d_k {width}, in a model as wide",
        short=f"divided, {width}",
        parent="head-added",
        change={"d_model": width},
        claim="The ladder's one head, wider with its model: a step of the same rate moves a score further.",
        source="mixers.CausalSelfAttention",
    )


def _placed(scheme: str, source: str, title: str, claim: str) -> Variant:
    return Variant(
        id=scheme,
        title=title,
        short=title,
        parent="learned",
        change={"positions": scheme},
        claim=claim,
        source=f"positions.{source}",
    )


def _undivided(width: str) -> Variant:
    number, _, kind = width.partition("-")
    where = {"": "", "block": ", block", "wide": ", in a model as wide"}[kind]
    return Variant(
        id=f"undivided-{width}",
        title=f"undivided, d_k {number}{where}",
        short=f"undivided, {number}",
        parent=f"divided-{width}",
        change={"score_scale": "none"},
        claim="Without the division the scores of a wide head are large from the start, and grow.",
        source="mixers.CausalSelfAttention",
    )


def _rescaled(variant_id: str, scale: str, name: str, claim: str) -> Variant:
    return Variant(
        id=variant_id,
        title=f"{name}, d_k 1024",
        short=name,
        parent="divided-1024",
        change={"score_scale": scale},
        claim=claim,
        source="mixers.CausalSelfAttention",
    )


# What readers ask next: other ways to keep the scores of a wide head in hand.
_SCALES = (
    ("by-width-1024", "width", "divided by d", "Dividing by the width itself begins nearly uniform."),
    ("learned-scale-1024", "learned", "learned scale", "One learned number a head, begun at the usual one."),
    ("qk-norm-1024", "qk-norm", "QK-norm", "Queries and keys of one length: the scores cannot run away."),
)

# The other schemes, all beside the learned table.
_POSITIONS = (
    ("none", "NoPositions", "no positions", "The mask alone lets a model tell how much lies behind it."),
    ("sinusoidal", "SinusoidalPositions", "sinusoids", "Defined at any length, and not understood there."),
    (
        "rope",
        "RotaryPositions",
        "RoPE",
        "Scores depend on distance only; beyond the window they degrade.",
    ),
    ("alibi", "LinearBiases", "ALiBi", "A penalty on distance: a longer window makes it better."),
)

VARIANTS: dict[str, Variant] = table(
    Variant(
        id="no-context",
        title="no context",
        short="no context",
        parent=None,
        change={},
        claim="Each token predicts the next one alone: the baseline.",
        source="transformer.Transformer",
    ),
    Variant(
        id="average",
        title="average replaces the token",
        short="average replaces",
        parent="no-context",
        change={"mixer": "average"},
        claim="The mean of the past in place of the token is far worse than no past at all.",
        source="mixers.UniformAverage",
    ),
    Variant(
        id="average-positions",
        title="average replaces, with positions",
        short="+ positions",
        parent="average",
        change={"positions": "learned"},
        claim="Positions added before the mean are averaged away with everything else.",
        source="positions.LearnedPositions",
    ),
    Variant(
        id="average-added",
        title="average added to the token",
        short="average added",
        parent="average",
        change={"connection": "add"},
        claim="Keeping the token repairs the damage, and shows that equal weights add nothing.",
        source="block.Add",
    ),
    Variant(
        id="average-added-positions",
        title="average added, with positions",
        short="equal weights",
        parent="average-added",
        change={"positions": "learned"},
        claim="The control for what attention gets to see: positions, but equal weights.",
        source="positions.LearnedPositions",
    ),
    Variant(
        id="head-added",
        title="one head added, with positions",
        short="one head",
        parent="average-added-positions",
        change={"mixer": "attention"},
        claim="Weights that depend on both tokens, in place of equal ones.",
        source="mixers.CausalSelfAttention",
    ),
    Variant(
        id="head-replaces",
        title="one head replaces the token",
        short="head replaces",
        parent="head-added",
        change={"connection": "replace"},
        claim="Attention brings information in; it does not say what a position is.",
        source="block.Replace",
    ),
    Variant(
        id="matrix",
        title="one learned matrix added",
        short="learned matrix",
        parent="average-added-positions",
        change={"mixer": "matrix"},
        claim="Learned weights, the same for every sentence: “four tokens back”, never “the noun”.",
        source="mixers.LearnedMatrix",
    ),
    Variant(
        id="raw",
        title="raw x·x scores added",
        short="raw x·x",
        parent="average-added-positions",
        change={"mixer": "raw"},
        claim="Scores from the tokens themselves: every token looks at itself, and looks are mutual.",
        source="mixers.RawAttention",
    ),
    Variant(
        id="query-key",
        title="+ W_Q, W_K",
        short="+ W_Q, W_K",
        parent="raw",
        change={"mixer": "query-key"},
        claim="Two roles for each token: what it looks for is not what it offers.",
        source="mixers.QueryKeyAttention",
    ),
    Variant(
        id="unmasked",
        title="one head without its mask",
        short="unmasked",
        parent="head-added",
        change={"mixer": "unmasked"},
        claim="Every position sees the token that it should predict: a perplexity that means nothing.",
        source="mixers.UnmaskedSelfAttention",
    ),
    Variant(
        id="head-projected",
        title="one head and W_O",
        short="one head, W_O",
        parent="head-added",
        change={"output_projection": True},
        claim="The head joins through W_O, so that its width is free to choose.",
        source="mixers.CausalSelfAttention",
    ),
    Variant(
        id="divided-128",
        title="divided, d_k 128",
        short="divided, 128",
        parent="head-projected",
        change={},
        claim="A head as wide as the model, added through W_O: the first of the widths.",
        source="mixers.CausalSelfAttention",
    ),
    *(_of_width(width) for width in (256, 1024)),
    *(_as_wide(width) for width in (256, 1024)),
    Variant(
        id="four-heads",
        title="four heads of 32, W_O",
        short="four heads",
        parent="head-projected",
        change={"n_head": 4},
        claim="Four answers to “what matters here” instead of one, for the same width in all.",
        source="mixers.CausalSelfAttention",
    ),
    Variant(
        id="feed-forward",
        title="+ feed-forward",
        short="+ feed-forward",
        parent="four-heads",
        change={"d_ff": 512},
        claim="Attention moves information between positions; this computes within one.",
        source="block.FeedForward",
    ),
    Variant(
        id="block",
        title="+ LayerNorm: a whole block",
        short="+ LayerNorm",
        parent="feed-forward",
        change={"connection": "pre-norm"},
        claim="Each sublayer reads a normalised stream and adds to the one that never is.",
        source="block.PreNorm",
    ),
    Variant(
        id="two-blocks",
        title="two blocks",
        short="two blocks",
        parent="block",
        change={"n_layer": 2},
        claim="Twice the block learns the training text by heart, and is worse on any other.",
        source="transformer.Transformer",
    ),
    Variant(
        id="block-dropout",
        title="a block with dropout 0.1",
        short="dropout 0.1",
        parent="block",
        change={"dropout": 0.1},
        claim="Numbers put to zero at random, in three places: against learning by heart.",
        source="block.Replace",
    ),
    Variant(
        id="pre-norm",
        title="pre-norm, no warmup",
        short="pre-norm",
        parent="block",
        change={"n_layer": 12},
        claim="Twelve blocks, each reading through a norm: the stream itself is never normalised.",
        source="block.PreNorm",
    ),
    Variant(
        id="pre-norm-warmup",
        title="pre-norm, warmup",
        short="pre-norm, warmup",
        parent="pre-norm",
        change={},
        claim="With the norm before each sublayer, a warmup changes nothing.",
        source="block.PreNorm",
    ),
    Variant(
        id="post-norm",
        title="post-norm, no warmup",
        short="post-norm",
        parent="pre-norm",
        change={"connection": "post-norm"},
        claim="The norm on the stream itself, as in 2017: it never leaves the unigram level.",
        source="block.PostNorm",
    ),
    Variant(
        id="post-norm-warmup",
        title="post-norm, warmup",
        short="post-norm, warmup",
        parent="post-norm",
        change={},
        claim="The same with a learning rate that rises slowly is as good as pre-norm.",
        source="block.PostNorm",
    ),
    Variant(
        id="learned",
        title="learned positions",
        short="learned",
        parent="block",
        change={"max_positions": 512},
        claim="A table of positions is best where it was trained, and knows nothing beyond.",
        source="positions.LearnedPositions",
    ),
    *(_placed(*row) for row in _POSITIONS),
    Variant(
        id="divided-32",
        title="divided, d_k 32 (four heads, a whole block)",
        short="divided, 32",
        parent="block",
        change={},
        claim="A narrow head behind a LayerNorm: its scores are small with the division or without.",
        source="mixers.CausalSelfAttention",
    ),
    Variant(
        id="divided-128-block",
        title="divided, d_k 128 (one head, a whole block)",
        short="divided, 128",
        parent="divided-32",
        change={"n_head": 1},
        claim="The same block with one head as wide as the model.",
        source="block.PreNorm",
    ),
    *(_undivided(width) for width in ("32", "128-block", "128", "256", "1024", "256-wide", "1024-wide")),
    *(_rescaled(*row) for row in _SCALES),
)


def variant(variant_id: str) -> Variant:
    """The variant of that id.

    Raises InvalidInput: when there is none; the message lists those there are.
    """
    try:
        return VARIANTS[variant_id]
    except KeyError:
        raise InvalidInput(f"no variant {variant_id!r}; there are: {', '.join(VARIANTS)}.") from None
