"""What every rung writes after the same words, side by side."""

from collections.abc import Mapping
from pathlib import Path

import streamlit as st

from engine.chapter.experiments import LADDER
from engine.models.config import ModelConfig
from engine.probes.results.samples import Written
from engine.runs.launch import OWN
from lab import weights
from lab.sections.ladder.parts import named
from lab.weights import Weights
from lab.words import plain

TEMPERATURES = ("0", "0.5", "0.8", "1")
WIDTH = 352  # px

Models = Mapping[str, Weights | None]


def models(key: str, own: ModelConfig | None) -> Models:
    """The trained model of every rung, of the reader's own too; None where there is none.

    key: of the switch that says whose.
    """
    found = weights.chosen(key, LADDER, LADDER.variants)
    mine = {OWN: weights.own(own)} if own else {}
    return {**{name: found.get(name) for name in LADDER.variants}, **mine}


def present(found: Models) -> dict[str, Path]:
    """The checkpoints that there are."""
    return {name: one.path for name, one in found.items() if one}


def draw(found: Models, texts: Mapping[str, Written]) -> None:
    """A column a rung."""
    with st.container(horizontal=True, key="samples"):
        for name, model in found.items():
            with st.container(width=WIDTH):
                st.markdown(f"**{named(name)}**")
                if model is None or name not in texts:
                    st.markdown(":gray[No trained model of this rung is here yet. Train it above first.]")
                    continue
                st.code(texts[name].text or texts[name].error, language=None, wrap_lines=True)
                st.caption(f"Weights: {plain(model.whose)}.")
