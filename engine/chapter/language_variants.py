"""The models that are trained on the languages: their own tables of ``Variant``. Imports no torch."""

from engine.chapter.variants import Variant, table
from engine.data.languages.induction import INDUCTION as REPEATS
from engine.data.languages.winograd import CLOSED

# Some have the name of a model of the text: these have the vocabulary and the window of the language.
WINOGRAD: dict[str, Variant] = table(
    Variant(
        id="average",
        title="uniform average",
        short="average",
        parent=None,
        change={
            "mixer": "average",
            "d_model": 64,
            "vocab_size": len(CLOSED.words),
            "max_positions": CLOSED.context_length,
        },
        claim="It knows which words are there, and nothing of their order.",
        source="mixers.UniformAverage",
    ),
    Variant(
        id="average-added",
        title="uniform average added to the token",
        short="average added",
        parent="average",
        change={"connection": "add"},
        claim="The token where the answer is due is the same in every sentence: keeping it adds nothing.",
        source="block.Add",
    ),
    Variant(
        id="one-block",
        title="one block, four heads",
        short="one block",
        parent=None,
        change={
            "mixer": "attention",
            "connection": "pre-norm",
            "positions": "learned",
            "n_head": 4,
            "output_projection": True,
            "d_model": 64,
            "d_ff": 256,
            "vocab_size": len(CLOSED.words),
            "max_positions": CLOSED.context_length,
        },
        claim="Its query is the same whatever the adjective was: it fetches, and cannot choose what.",
        source="block.PreNorm",
    ),
    Variant(
        id="two-blocks",
        title="two blocks, four heads each",
        short="two blocks",
        parent="one-block",
        change={"n_layer": 2},
        claim="The second block reads what the first one fetched, and chooses by the adjective.",
        source="transformer.Transformer",
    ),
)

# Attention alone shows it best: what a head does is not mixed with what a feed-forward makes of it.
INDUCTION: dict[str, Variant] = table(
    Variant(
        id="one-layer",
        title="one layer of attention",
        short="one layer",
        parent=None,
        change={
            "mixer": "attention",
            "connection": "pre-norm",
            "positions": "learned",
            "n_head": 4,
            "output_projection": True,
            "d_model": 64,
            "vocab_size": len(REPEATS.words),
            "max_positions": REPEATS.context_length,
        },
        claim="It finds the token that it stands on, not the one that came after.",
        source="mixers.CausalSelfAttention",
    ),
    Variant(
        id="two-layers",
        title="two layers of attention",
        short="two layers",
        parent="one-layer",
        change={"n_layer": 2},
        claim="One head marks every token with the one before it; a later one looks for that mark.",
        source="transformer.Transformer",
    ),
)
