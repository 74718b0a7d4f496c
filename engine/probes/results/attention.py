"""One attention layer on a sentence, step by step. Imports no torch.

Shapes: T query position, S key position, D d_model, H heads, K d_head.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Capture:
    """The stages of one layer, in the order in which they are computed.

    pieces: the tokens as text. x: what the layer reads, (T, D). raw: x x^T, (T, S): not computed by the
    model, but what scores would be without W_Q and W_K.
    products: Q K^T, (H, T, S). scaled: the scores, position bias included. masked: what may not be seen,
    (T, S). weights: after the softmax. values: V, (H, S, K). mixed: weights V, (H, T, K). keys: (H, S, K).
    """

    pieces: tuple[str, ...]
    x: Array
    raw: Array
    products: Array
    scaled: Array
    masked: NDArray[np.bool_]
    weights: Array
    keys: Array
    values: Array
    mixed: Array


@dataclass(frozen=True)
class Steps:
    """What W_Q, W_K and W_V change, in numbers, for one head.

    rows: the queries that see more than themselves; own_raw, own_score: in how many of them the token's
    own score is the highest, for x x^T and for Q K^T.
    mirror_raw, mirror_score: the largest difference between a score and the one with the roles swapped.
    asymmetry_raw, asymmetry_score: ||S - S^T|| / 2||S||: 0 when looks are mutual, 0.71 when unrelated.
    moved: in how many rows the heaviest key is not the one that gives most, by weight times length of v.
    likeness: correlation over pairs of tokens of how alike their keys are with how alike their values
    are (cosines); None where there are no differences, as under three tokens.
    """

    rows: int
    own_raw: int
    own_score: int
    mirror_raw: float
    mirror_score: float
    asymmetry_raw: float
    asymmetry_score: float
    moved: int
    likeness: float | None


def steps(caught: Capture, head: int = 0) -> Steps:
    """What the three projections change on this sentence."""
    weights, products = caught.weights[head], caught.products[head]
    given = weights * np.linalg.norm(caught.values[head], axis=-1)
    choices = (~caught.masked).sum(axis=-1) > 1
    return Steps(
        rows=int(choices.sum()),
        own_raw=_own_first(caught.raw, caught.masked, choices),
        own_score=_own_first(products, caught.masked, choices),
        mirror_raw=float(np.abs(caught.raw - caught.raw.T).max()),
        mirror_score=float(np.abs(products - products.T).max()),
        asymmetry_raw=_asymmetry(caught.raw),
        asymmetry_score=_asymmetry(products),
        moved=int((given.argmax(axis=-1) != weights.argmax(axis=-1))[choices].sum()),
        likeness=_likeness(caught.keys[head], caught.values[head]),
    )


def _own_first(scores: Array, masked: NDArray[np.bool_], rows: NDArray[np.bool_]) -> int:
    best = np.where(masked, -np.inf, scores).argmax(axis=-1)
    return int((best == np.arange(len(best)))[rows].sum())


def _asymmetry(scores: Array) -> float:
    size = float(np.linalg.norm(scores))
    return float(np.linalg.norm(scores - scores.T)) / (2 * size) if size else 0.0


def _likeness(keys: Array, values: Array) -> float | None:
    if len(keys) < 3:
        return None
    pairs = np.triu_indices(len(keys), 1)
    of_keys, of_values = _cosines(keys)[pairs], _cosines(values)[pairs]
    if min(of_keys.std(), of_values.std()) < 1e-6:
        return None
    return float(np.corrcoef(of_keys, of_values)[0, 1])


def _cosines(vectors: Array) -> Array:
    unit = vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-12)
    cosines: Array = unit @ unit.T
    return cosines
