"""A rung of the reader's own: any part switched on or off, trained and shown beside the ladder."""

from dataclasses import fields
from typing import Any, get_args

import streamlit as st

from engine.chapter.experiments import LADDER, PERPLEXITY
from engine.chapter.variants import BLOCK
from engine.models import ledger
from engine.models.config import Connection, Mixer, ModelConfig, Positions
from engine.runs import launch
from engine.runs.launch import OWN
from engine.runs.spec import RunSpec
from engine.system.errors import LabError
from lab.bench import Request, Sweep, Table, tables
from lab.sections.ladder.parts import named, spoken, whole_number
from lab.settings import Settings
from lab.words import plain

MIXERS = tuple(name for name in get_args(Mixer) if name != "unmasked")  # which sees the answer
CONNECTIONS, POSITIONS = get_args(Connection), get_args(Positions)
PROJECTIONS = ("no", "yes")
FEED_FORWARDS = ("0", "128", "256", "512", "1024", "2048")
DROPOUTS = ("0", "0.1", "0.2", "0.3", "0.5")
MOST_HEADS, MOST_LAYERS = 128, 12


class Parts:
    """The settings of a rung: its parts, which begin as the chapter's block has them."""

    def __init__(self, settings: Settings) -> None:
        block = BLOCK.config
        self.mixer = settings.choice("mixer", "Mixer", MIXERS, block.mixer, widget="list")
        self.connection = settings.choice(
            "connection", "Connection", CONNECTIONS, block.connection, widget="list"
        )
        self.positions = settings.choice("positions", "Positions", POSITIONS, block.positions, widget="list")
        self.heads = settings.whole("heads", "Heads", 1, MOST_HEADS, block.n_head)
        self.layers = settings.whole("layers", "Blocks", 0, MOST_LAYERS, block.n_layer)
        self.projection = settings.choice("projection", "W_O", PROJECTIONS, "yes")
        self.feed_forward = settings.choice("ff", "Feed-forward, width", FEED_FORWARDS, str(block.d_ff))
        self.dropout = settings.choice("dropout", "Dropout", DROPOUTS, "0")

    def draw(self) -> None:
        """The widgets: what the rung is made of, in two rows."""
        with st.container(horizontal=True, vertical_alignment="bottom", key="instruments-parts"):
            for listed in (self.mixer, self.connection, self.positions):
                listed.draw(width=160)
            self.heads.draw(width=140)
            self.layers.draw(width=140)
        with st.container(horizontal=True, vertical_alignment="bottom", key="instruments-sizes"):
            for part in (self.projection, self.feed_forward, self.dropout):
                part.draw(width="content")

    def built(self) -> tuple[ModelConfig | None, str]:
        """The rung as it is set; or none, and the configuration's own words on what does not go together."""
        try:
            return self._config(), ""
        except LabError as error:
            return None, str(error)

    def _config(self) -> ModelConfig:
        return ModelConfig(
            mixer=self.mixer.value,
            connection=self.connection.value,
            positions=self.positions.value,
            n_head=self.heads.value,
            output_projection=self.projection.value == "yes",
            d_ff=int(self.feed_forward.value),
            n_layer=self.layers.value,
            dropout=float(self.dropout.value),
        )


def nearest(own: ModelConfig) -> tuple[str, dict[str, Any]]:
    """The rung of the ladder that differs in the fewest fields, and those fields of the reader's."""
    differing = {name: _changed(own, LADDER.variant(name).config) for name in reversed(LADDER.variants)}
    name = min(differing, key=lambda name: len(differing[name]))
    return name, differing[name]


def _changed(own: ModelConfig, other: ModelConfig) -> dict[str, Any]:
    both = ((field.name, getattr(own, field.name)) for field in fields(ModelConfig))
    return {name: value for name, value in both if value != getattr(other, name)}


def introduced(own: ModelConfig) -> str:
    """What the rung is, beside the ladder's, and its size, as Markdown."""
    name, changed = nearest(own)
    size = f"{ledger.total(own):,} parameters"
    if not changed:
        return f"This is *{plain(spoken(name))}* itself, {size}: it is on the ladder already."
    more = ", ".join(f"`{field} = {value!r}`" for field, value in changed.items())
    return f"Nearest on the ladder: *{plain(spoken(name))}*; yours has {more}, {size}."


def specs(own: ModelConfig | None, request: Request) -> list[RunSpec]:
    """Its runs, one a seed; none where there is no such rung, or it is one of the ladder already.

    Raises ValueError: when the text cannot be had.
    """
    if own is None or request.corpus_id is None or not nearest(own)[1]:
        return []
    return [launch.own(LADDER.id, own, request.budget, seed, request.corpus_id) for seed in request.seeds]


def of_the_reader(now: Sweep) -> Sweep:
    """The part of a sweep that is the reader's own rung."""
    return now.part(lambda spec: spec.variant == OWN)


def results(own: ModelConfig, now: Sweep) -> Table:
    """The reader's rung beside the nearest one. now: of the ladder and the rung together."""
    name, changed = nearest(own)
    rows = []
    for config, row in (
        (LADDER.variant(name).config, now.row(name, PERPLEXITY)),
        *(((own, now.row(OWN, PERPLEXITY)),) if changed else ()),
    ):
        size = tables.number(ledger.total(config), whole_number)
        rows.append((named(row.variant), size, tables.shipped(row, PERPLEXITY), tables.yours(row)))
    return Table(("model", "parameters", "reference", "yours"), rows)
