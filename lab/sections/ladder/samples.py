"""What every rung writes after the same words, side by side.

Written in a process of its own, so that this one never loads torch.
"""

from collections.abc import Mapping
from pathlib import Path

import streamlit as st

from engine.chapter.experiments import LADDER
from engine.models.config import ModelConfig
from engine.runs.launch import OWN
from lab import probes
from lab.sections.ladder.parts import named
from lab.words import plain

TEMPERATURES = ("0", "0.5", "0.8", "1")
WIDTH = 352  # px

Models = Mapping[str, tuple[Path, str] | None]


def models(own: ModelConfig | None) -> Models:
    """The trained model of every rung, of the reader's own too, and whose it is; None where there is none."""
    found = {name: probes.weights(LADDER.id, name) for name in LADDER.variants}
    return {**found, **({OWN: probes.trained(own)} if own else {})}


def written(found: Models, prompt: str, temperature: str) -> dict[str, str]:
    """By rung: the prompt and what its model adds to it, or what is wrong with that model.

    Raises ValueError: when nothing can be written, or the same is wrong with all of them.
    """
    present = {name: str(model[0]) for name, model in found.items() if model}
    if not present:
        return {}
    arguments = (f"--prompt={prompt}", f"--temperature={temperature}", *present.values())
    rows = probes.measured("engine.probes.samples", *arguments)["rows"]
    errors = {row["error"] for row in rows}
    if len(errors) == 1 and (error := errors.pop()):
        raise ValueError(error)
    return {name: row["text"] or row["error"] for name, row in zip(present, rows, strict=True)}


def draw(found: Models, texts: Mapping[str, str]) -> None:
    """A column a rung."""
    with st.container(horizontal=True, key="samples"):
        for name, model in found.items():
            with st.container(width=WIDTH):
                st.markdown(f"**{named(name)}**")
                if model is None:
                    st.markdown(":gray[No trained model of this rung is here yet. Train it above first.]")
                    continue
                st.code(texts[name], language=None, wrap_lines=True)
                st.caption(f"Weights: {plain(model[1])}.")
