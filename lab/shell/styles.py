"""One colour a variant, the same in every curve, table and map of the lab.

Grammar: gray is nothing or a control; red is what the chapter warns of; green the standard form; sky the
reader's own; dashed a modified parent. Slots are names in the theme's categorical palette.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Style:
    """How one variant is drawn: a slot of the palette and a dash."""

    slot: str
    dash: str = "solid"


WIDTHS = ("32", "128", "128-block", "256", "1024")
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
    **{f"divided-{width}": Style("green") for width in WIDTHS},
    **{f"undivided-{width}": Style("red") for width in WIDTHS},
    "divided-256-wide": Style("green", "dashed"),
    "undivided-256-wide": Style("red", "dashed"),
    "divided-1024-wide": Style("green"),
    "undivided-1024-wide": Style("red"),
    "four-heads": Style("blue"),
    "feed-forward": Style("gray"),
    "block": Style("green"),
    "block-dropout": Style("green", "dashed"),
    "own": Style("sky"),
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
