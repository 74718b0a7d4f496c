"""What every rung writes after the same words, side by side."""

import streamlit as st

from engine.chapter.experiments import LADDER
from engine.models.config import ModelConfig
from engine.probes.results.samples import Written
from engine.runs.launch import OWN
from lab import weights
from lab.sections.ladder.parts import named
from lab.weights import Opened
from lab.words import plain

TEMPERATURES = ("0", "0.5", "0.8", "1")
WIDTH = 352  # px


def models(key: str, own: ModelConfig | None) -> Opened:
    """The trained models of the rungs, of the reader's own too. key: of the switch that says whose."""
    found = weights.chosen(key, LADDER, LADDER.variants)
    mine = weights.own(own) if own else None
    return {**found, **({OWN: mine} if mine else {})}


def draw(texts: list[Written], opened: Opened, own: ModelConfig | None) -> None:
    """A column a rung."""
    written = dict(zip(opened, texts, strict=True))
    with st.container(horizontal=True, key="samples"):
        for name in (*LADDER.variants, *((OWN,) if own else ())):
            with st.container(width=WIDTH):
                st.markdown(f"**{named(name)}**")
                if name not in written:
                    st.markdown(":gray[No trained model of this rung is here yet. Train it above first.]")
                    continue
                st.code(written[name].text or written[name].error, language=None, wrap_lines=True)
                st.caption(f"Weights: {plain(opened[name].whose)}.")
