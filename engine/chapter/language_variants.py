"""The models that are trained on the languages. Imports no torch."""

from engine.chapter.variant import Variant
from engine.data.languages.induction import INDUCTION
from engine.data.languages.winograd import CLOSED

# Some have the name of a model of the text: these have the vocabulary and the window of the language.
_WINOGRAD = {"vocab_size": len(CLOSED.words), "max_positions": CLOSED.context_length}
_INDUCTION = {"vocab_size": len(INDUCTION.words), "max_positions": INDUCTION.context_length}
_ATTENTION = {
    "mixer": "attention",
    "connection": "pre-norm",
    "positions": "learned",
    "n_head": 4,
    "output_projection": True,
    "d_model": 64,
}

AVERAGE = Variant(
    id="average",
    title="uniform average",
    short="average",
    change={"mixer": "average", "d_model": 64, **_WINOGRAD},
    about="It knows which words are there, and nothing of their order.",
)
AVERAGE_ADDED = AVERAGE.then(
    "average-added",
    {"connection": "add"},
    title="uniform average added to the token",
    short="average added",
    about="The token where the answer is due is the same in every sentence: keeping it tells nothing.",
)
ONE_BLOCK = Variant(
    id="one-block",
    title="one block, four heads",
    short="one block",
    change={**_ATTENTION, "d_ff": 256, **_WINOGRAD},
    about="Its query is the same whatever the adjective was; an adjective takes weight from other words.",
    shown_by="block.PreNorm",
)
TWO_BLOCKS = ONE_BLOCK.then(
    "two-blocks",
    {"n_layer": 2},
    title="two blocks, four heads each",
    short="two blocks",
    about="In nine of ten shipped seeds block 2 needs a query made of what block 1 brought.",
    claim="The second block makes its query of what the first one brought.",
)

# Attention alone shows it best: what a head does is not mixed with what a feed-forward makes of it.
ONE_LAYER = Variant(
    id="one-layer",
    title="one layer of attention",
    short="one layer",
    change={**_ATTENTION, **_INDUCTION},
    about="It names earlier tokens, but attends to what followed a token hardly more than to what preceded.",
)
TWO_LAYERS = ONE_LAYER.then(
    "two-layers",
    {"n_layer": 2},
    title="two layers of attention",
    short="two layers",
    claim="A head of layer 1 marks each token with the one before it; one of layer 2 reads it in its keys.",
)
