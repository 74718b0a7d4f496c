"""What a model of the chapter is: the one before it plus one changed field. Imports no torch."""

from dataclasses import dataclass, field, replace
from typing import Any

from engine.models.config import ModelConfig

# The class in ``engine/models`` that shows a changed field; where its value decides, by the value.
_HEAD = "mixers.CausalSelfAttention"
_SOURCES: dict[str, str | dict[str, str]] = {
    "mixer": {
        "average": "mixers.UniformAverage",
        "matrix": "mixers.LearnedMatrix",
        "raw": "mixers.RawAttention",
        "query-key": "mixers.QueryKeyAttention",
        "attention": _HEAD,
        "unmasked": "mixers.UnmaskedSelfAttention",
    },
    "connection": {
        "replace": "block.Replace",
        "add": "block.Add",
        "pre-norm": "block.PreNorm",
        "post-norm": "block.PostNorm",
    },
    "positions": {
        "none": "positions.NoPositions",
        "learned": "positions.LearnedPositions",
        "sinusoidal": "positions.SinusoidalPositions",
        "rope": "positions.RotaryPositions",
        "alibi": "positions.LinearBiases",
    },
    "max_positions": "positions.LearnedPositions",
    "n_layer": "transformer.Transformer",
    "d_ff": "block.FeedForward",
    "dropout": "block.Replace",
}


@dataclass(frozen=True, kw_only=True)
class Variant:
    """One rung.

    id: stable once shipped; lower-case words with hyphens. Its own within an experiment only.
    title, short: its name in a table, and in the gutter of a chart.
    change: the one field of ``ModelConfig`` that differs from the base, and its value; empty where another
        table gives the base another name; of a root, all fields that differ from the default.
    about: what it is, in one line: true by its definition, or by a test.
    claim: what the chapter says that this change does, in our words; never said but as the chapter's.
    judged_by: the figure that decides the claim, where that is not what its table measures.
    base: the variant that it changes; None for a root.
    part: what the change brings, as a row among others: "W_O". Its short name by default.
    spoken: its name in a sentence. Its title by default.
    shown_by: the name in ``engine/models`` whose source shows the change, where the field does not tell.
    config: the whole configuration, the base's with the change applied.

    Raises ValueError: when the change makes no configuration.
    """

    id: str
    title: str
    short: str = ""
    change: dict[str, Any]
    about: str = ""
    claim: str = ""
    judged_by: str = ""
    base: "Variant | None" = None
    part: str = ""
    spoken: str = ""
    shown_by: str = ""
    config: ModelConfig = field(init=False)

    def __post_init__(self) -> None:
        config = self.base.config if self.base else ModelConfig()
        object.__setattr__(self, "config", replace(config, **self.change))
        short = self.short or self.title
        for name, default in (("short", short), ("part", short), ("spoken", self.title)):
            object.__setattr__(self, name, getattr(self, name) or default)

    def then(self, variant_id: str, change: dict[str, Any], **words: str) -> "Variant":
        """The next rung: this one with a field changed. words: its title, its claim and other names."""
        return Variant(id=variant_id, change=change, base=self, **words)

    @property
    def parent(self) -> str | None:
        """The id of its base."""
        return self.base.id if self.base else None

    @property
    def lineage(self) -> tuple["Variant", ...]:
        """From the root to this one."""
        return (*(self.base.lineage if self.base else ()), self)

    @property
    def source(self) -> str:
        """The class in ``engine/models`` that shows the change, as "module.Class"."""
        if self.shown_by:
            return self.shown_by
        for name, value in self.change.items():
            shown = _SOURCES.get(name, _HEAD)
            return shown if isinstance(shown, str) else shown[value]
        return self.base.source if self.base else "transformer.Transformer"
