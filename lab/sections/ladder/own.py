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
from lab import bench
from lab.bench import Request, Sweep, Table, tables
from lab.sections.ladder.parts import named, spoken, whole_number
from lab.settings import Settings
from lab.shell import frame
from lab.words import plain

MIXERS = tuple(name for name in get_args(Mixer) if name != "unmasked")  # which sees the answer
CONNECTIONS, POSITIONS = get_args(Connection), get_args(Positions)
PROJECTIONS = ("no", "yes")
FEED_FORWARDS = ("0", "128", "256", "512", "1024", "2048")
DROPOUTS = ("0", "0.1", "0.2", "0.3", "0.5")
MOST_HEADS, MOST_LAYERS = 128, 12


class Rung:
    """The reader's rung: its parts, which begin as the chapter's block has them.

    config: None where they do not go together. new: unless it is one of the ladder's already.
    """

    def __init__(self, settings: Settings) -> None:
        block = BLOCK.config
        self._mixer = settings.choice("mixer", "Mixer", MIXERS, block.mixer, widget="list")
        self._connection = settings.choice(
            "connection", "Connection", CONNECTIONS, block.connection, widget="list"
        )
        self._positions = settings.choice("positions", "Positions", POSITIONS, block.positions, widget="list")
        self._heads = settings.whole("heads", "Heads", 1, MOST_HEADS, block.n_head)
        self._layers = settings.whole("layers", "Blocks", 0, MOST_LAYERS, block.n_layer)
        self._projection = settings.choice("projection", "W_O", PROJECTIONS, "yes")
        self._feed_forward = settings.choice("ff", "Feed-forward, width", FEED_FORWARDS, str(block.d_ff))
        self._dropout = settings.choice("dropout", "Dropout", DROPOUTS, "0")
        self.config, self._refusal = self._built()
        self.new = self.config if self.config and nearest(self.config)[1] else None

    def _built(self) -> tuple[ModelConfig | None, str]:
        """The rung as it is set; or none, and the configuration's own words on what does not go together."""
        try:
            return ModelConfig(
                mixer=self._mixer.value,
                connection=self._connection.value,
                positions=self._positions.value,
                n_head=self._heads.value,
                output_projection=self._projection.value == "yes",
                d_ff=int(self._feed_forward.value),
                n_layer=self._layers.value,
                dropout=float(self._dropout.value),
            ), ""
        except LabError as error:
            return None, str(error)

    def draw(self) -> None:
        """The widgets: what the rung is made of, in two rows."""
        with st.container(horizontal=True, vertical_alignment="bottom", key="instruments-parts"):
            for listed in (self._mixer, self._connection, self._positions):
                listed.draw(width=160)
            self._heads.draw(width=140)
            self._layers.draw(width=140)
        with st.container(horizontal=True, vertical_alignment="bottom", key="instruments-sizes"):
            for part in (self._projection, self._feed_forward, self._dropout):
                part.draw(width="content")

    def specs(self, request: Request) -> list[RunSpec]:
        """The runs of a new one, one a seed. Raises ValueError: when the text cannot be had."""
        if self.new is None or (text := request.corpus_id) is None:
            return []
        return [launch.own(LADDER.id, self.new, request.budget, seed, text) for seed in request.seeds]

    def train(self, ladder: Sweep, settings: Settings) -> None:
        """One button, and its figure beside the nearest rung's."""
        refused, own = None, self.config
        if own is None:
            refused = f":red[{plain(self._refusal[:1].upper() + self._refusal[1:])}]"
        elif self.new is None:
            refused = ":gray[Train it above, with the ladder.]"
        elif missing := ladder.request.missing_input:
            refused = f":gray[{missing}]"

        def draw(_: Sweep) -> None:
            if own:
                st.markdown(introduced(own), width=frame.MEASURE)
                with st.container(key="results-own", width=bench.TABLE_WIDTH):
                    results(own, ladder.again()).draw()

        mine = ladder.part(lambda spec: spec.variant == OWN)
        bench.train_also(mine, settings, "own", "Train my rung", draw, refused=refused)


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


def results(own: ModelConfig, now: Sweep) -> Table:
    """The reader's rung beside the nearest one. now: of the ladder and the rung together."""
    name, changed = nearest(own)
    configs, rows = {name: LADDER.variant(name).config, **({OWN: own} if changed else {})}, []
    for rung, config in configs.items():
        row, size = now.row(rung, PERPLEXITY), tables.number(ledger.total(config), whole_number)
        rows.append((named(rung), size, tables.shipped(row, PERPLEXITY), tables.yours(row)))
    return Table(("model", "parameters", "reference", "yours"), rows)
