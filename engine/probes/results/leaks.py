"""What leaks through a mask. Imports no torch."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Constant:
    """One mask value in one type.

    kind: the type. value: the mask value's name.
    filled: what ``masked_fill`` leaves, or None when it refuses; refusal: what it says then.
    cast: what a conversion from float32 gives.
    leaks: by size of the scores, the mean weight on what is ahead; None from where the scores, or the
        constant, do not fit the type.
    """

    kind: str
    value: str
    filled: float | None
    refusal: str
    cast: float
    leaks: dict[float, float | None]


@dataclass(frozen=True)
class EmptyRow:
    """One way to compute attention, given a row in which everything is masked.

    output: what comes out at that row, after W_O and its bias.
    like: "nan", "bias" (the row is W_O's bias: nothing was read) or "mean" (the mean of all six tokens, those
        ahead included), or "other".
    nan_gradients: which of W_Q, W_K, W_V, W_O get a gradient with NaN although the loss leaves the row out.
    """

    way: str
    output: list[float]
    like: str
    nan_gradients: list[str]


@dataclass(frozen=True)
class Sample:
    """What a trained model makes of text that does not go on yet.

    text: the prompt and what the model adds to it.
    blind_perplexity: held-out perplexity of the token that follows a window, which no position can see.
    """

    text: str
    blind_perplexity: float | None
