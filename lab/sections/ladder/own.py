"""A rung of the reader's own: any part switched on or off, trained and shown beside the ladder."""

from dataclasses import fields
from typing import TYPE_CHECKING, Any, get_args

import streamlit as st

from engine.chapter.experiments import LADDER, PERPLEXITY
from engine.chapter.variants import BLOCK
from engine.models import ledger
from engine.models.config import Connection, Mixer, ModelConfig, Positions
from engine.runs import launch
from engine.runs.launch import OWN
from engine.runs.spec import RunSpec
from lab.bench import tables
from lab.bench.instruments import Choice
from lab.bench.sweep import Sweep
from lab.sections.ladder.parts import named, spoken
from lab.settings import Settings, one_of, whole
from lab.words import plain

if TYPE_CHECKING:
    from pandas.io.formats.style import Styler

MIXERS = tuple(name for name in get_args(Mixer) if name != "unmasked")  # which sees the answer
CONNECTIONS, POSITIONS = get_args(Connection), get_args(Positions)
PROJECTIONS = ("no", "yes")
FEED_FORWARDS = ("0", "128", "256", "512", "1024", "2048")
DROPOUTS = ("0", "0.1", "0.2", "0.3", "0.5")
MOST_HEADS, MOST_LAYERS = 128, 12
NAMES = ("mixer", "connection", "positions", "heads", "projection", "ff", "layers", "dropout")


def seed(settings: Settings) -> None:
    """The settings' values, from the URL or the widgets; they begin as the chapter's block."""
    block = BLOCK.config
    settings.seed("mixer", one_of("mixer", MIXERS), str(block.mixer))
    settings.seed("connection", one_of("connection", CONNECTIONS), str(block.connection))
    settings.seed("positions", one_of("positions", POSITIONS), str(block.positions))
    settings.seed("heads", whole("heads", 1, MOST_HEADS), block.n_head)
    settings.seed("projection", one_of("projection", PROJECTIONS), "yes")
    settings.seed("ff", one_of("ff", FEED_FORWARDS), str(block.d_ff))
    settings.seed("layers", whole("layers", 0, MOST_LAYERS), block.n_layer)
    settings.seed("dropout", one_of("dropout", DROPOUTS), "0")


def toggles(settings: Settings) -> None:
    """The widgets: what the rung is made of, in two rows."""
    with st.container(horizontal=True, vertical_alignment="bottom", key="instruments-parts"):
        for name, label, options, width in (
            ("mixer", "Mixer", MIXERS, 160),
            ("connection", "Connection", CONNECTIONS, 160),
            ("positions", "Positions", POSITIONS, 160),
        ):
            st.selectbox(label, options, key=settings.key(name), width=width)
        for name, label, low, high in (
            ("heads", "Heads", 1, MOST_HEADS),
            ("layers", "Blocks", 0, MOST_LAYERS),
        ):
            st.number_input(label, low, high, step=1, key=settings.key(name), width=140)
    with st.container(horizontal=True, vertical_alignment="bottom", key="instruments-sizes"):
        for name, label, choices in (
            ("projection", "W_O", PROJECTIONS),
            ("ff", "Feed-forward, width", FEED_FORWARDS),
            ("dropout", "Dropout", DROPOUTS),
        ):
            st.segmented_control(label, choices, key=settings.key(name), required=True, width="content")


def built(settings: Settings) -> tuple[ModelConfig | None, str]:
    """The rung as it is set; or none, and the configuration's own sentence on what does not go together."""
    try:
        return _config(settings), ""
    except ValueError as error:
        return None, str(error)


def _config(settings: Settings) -> ModelConfig:
    chosen = {name: st.session_state[settings.key(name)] for name in NAMES}
    return ModelConfig(
        mixer=chosen["mixer"],
        connection=chosen["connection"],
        positions=chosen["positions"],
        n_head=chosen["heads"],
        output_projection=chosen["projection"] == "yes",
        d_ff=int(chosen["ff"]),
        n_layer=chosen["layers"],
        dropout=float(chosen["dropout"]),
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


def specs(own: ModelConfig, choice: Choice) -> list[RunSpec]:
    """Its runs, one a seed; none while a text or seeds are to be given, or where it is a rung already.

    Raises ValueError: when the text cannot be had.
    """
    if choice.corpus_id is None or not nearest(own)[1]:
        return []
    return [launch.own(LADDER.id, own, choice.budget, seed, choice.corpus_id) for seed in choice.seeds]


def of_the_ladder(now: Sweep) -> Sweep:
    """A sweep without the reader's own rung."""
    return now.part(lambda spec: spec.variant != OWN)


def of_the_reader(now: Sweep) -> Sweep:
    """That rung alone."""
    return now.part(lambda spec: spec.variant == OWN)


def results(own: ModelConfig, now: Sweep) -> "Styler":
    """The reader's rung beside the nearest one. now: of the ladder and the rung together."""
    name, changed = nearest(own)
    rows = [now.row(name, PERPLEXITY), *([now.row(OWN, PERPLEXITY)] if changed else [])]
    configs = {name: LADDER.variant(name).config, OWN: own}
    numbers, shown = [], []
    for row in rows:
        size = ledger.total(configs[row.variant])
        mean = row.reference.mean(PERPLEXITY) if row.reference else None
        sd = row.reference.sd(PERPLEXITY) if row.reference else None
        numbers.append((size, mean, row.mean))
        shown.append((named(row.variant), f"{size:,}", tables.with_spread(mean, sd), tables.yours(row)))
    return tables.cells(("model", "parameters", "reference", "yours"), numbers, shown)
