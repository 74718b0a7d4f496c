"""One colour a variant, the same in every curve, table and map of the lab.

Grammar: gray is nothing or a control; red is what the chapter warns of; green the standard form; sky the
reader's own; dashed a modified parent. Slots are names in the theme's categorical palette.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from engine.chapter.variants import DIVIDED_256_WIDE, UNDIVIDED
from engine.runs.launch import OWN


@dataclass(frozen=True)
class Style:
    """How one variant is drawn: a slot of the palette and a dash."""

    slot: str
    dash: str = "solid"


_AS_WIDE = {DIVIDED_256_WIDE.id: "dashed"}  # one panel shows both models that are as wide as their heads
_STYLES = {
    "no-context": Style("gray"),
    "average": Style("red"),
    "average-positions": Style("violet", "dashed"),
    "average-added": Style("orange"),
    "average-added-positions": Style("orange", "dashed"),
    "head-added": Style("violet"),
    "head-replaces": Style("red"),
    "head-projected": Style("violet", "dashed"),
    "unmasked": Style("red"),
    "matrix": Style("gray"),
    "raw": Style("red"),
    "query-key": Style("blue"),
    **{divided: Style("green", _AS_WIDE.get(divided, "solid")) for divided in UNDIVIDED},
    **{made.id: Style("red", _AS_WIDE.get(made.parent or "", "solid")) for made in UNDIVIDED.values()},
    "four-heads": Style("blue"),
    "feed-forward": Style("gray"),
    "block": Style("green"),
    "block-dropout": Style("green", "dashed"),
    OWN: Style("sky"),
    "pre-norm": Style("green", "dashed"),
    "pre-norm-warmup": Style("green"),
    "post-norm": Style("red", "dashed"),
    "post-norm-warmup": Style("red"),
    "by-width-1024": Style("orange"),
    "learned-scale-1024": Style("violet"),
    "qk-norm-1024": Style("blue"),
    "none": Style("gray"),
    "learned": Style("blue"),
    "sinusoidal": Style("orange"),
    "rope": Style("violet"),
    "alibi": Style("green"),
    "explicit": Style("red"),
    "fused": Style("green"),
    "chunked": Style("blue"),
    "projections": Style("gray"),
    "one-block": Style("green"),
    "one-layer": Style("green"),
    "two-layers": Style("ink"),
}


def style(variant_id: str) -> Style:
    """A variant's style; ink for one that has none of its own."""
    return _STYLES.get(variant_id, Style("ink"))


def dashed_last(names: Iterable[str]) -> list[str]:
    """Variants in the order of drawing: what modifies another lies on top of it."""
    return sorted(names, key=lambda name: style(name).dash != "solid")
