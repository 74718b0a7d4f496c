"""Every model of the chapter: its parent plus one changed field. Imports no torch.

To add a variant, add a line to ``VARIANTS``: a parent, the one field that changes, a claim.
"""

from dataclasses import dataclass, replace
from typing import Any

from engine.models.config import ModelConfig


@dataclass(frozen=True, kw_only=True)
class Variant:
    """One rung.

    id: stable once shipped; lower-case words with hyphens.
    title, short: its name in a table, and in the gutter of a chart.
    parent: the variant it changes; None for the root.
    change: the one field of ``ModelConfig`` that differs from the parent, and its value.
    claim: what the chapter says this change does, in one line.
    source: the name in ``engine/models`` whose source shows the change.
    """

    id: str
    title: str
    short: str
    parent: str | None
    change: dict[str, Any]
    claim: str
    source: str

    @property
    def config(self) -> ModelConfig:
        """The whole configuration: the parent's with the change applied."""
        if self.parent is None:
            return ModelConfig(**self.change)
        return replace(VARIANTS[self.parent].config, **self.change)


VARIANTS: dict[str, Variant] = {
    variant.id: variant
    for variant in (
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
    )
}


def variant(variant_id: str) -> Variant:
    """The variant of that id.

    Raises ValueError: when there is none; the message lists those there are.
    """
    try:
        return VARIANTS[variant_id]
    except KeyError:
        raise ValueError(f"no variant {variant_id!r}; there are: {', '.join(VARIANTS)}.") from None
