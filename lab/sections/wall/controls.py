"""What is asked before a measurement: the card and the layer, how far; and the one button."""

import sqlite3
from collections.abc import Callable

import streamlit as st

from engine.memory_wall.plan import Plan
from engine.memory_wall.setting import IMPLEMENTATIONS
from lab import bench
from lab.sections.wall import rows, sentences
from lab.sections.wall.parts import Controls
from lab.sections.wall.rows import Measurement
from lab.settings import Settings, user
from lab.words import plain

ERROR = "wall.error"


def layer(chosen: Controls) -> None:
    """The card and the layer."""
    with st.container(horizontal=True, vertical_alignment="bottom", key="instruments-layer"):
        for part in (chosen.budget, chosen.heads, chosen.width, chosen.mask, chosen.passes):
            part.draw()
        chosen.dtype.draw(width=130)


def instrument_row(settings: Settings, chosen: Controls, found: Measurement) -> None:
    """What is measured, how far, the one button, and the status line."""
    with st.container(horizontal=True, vertical_alignment="bottom", key="instruments"):
        st.segmented_control(
            "Implementations", list(IMPLEMENTATIONS), selection_mode="multi", key=chosen.ways.key
        )
        chosen.to.draw()
        button(settings, chosen.choice.plan, found, "Measure", "measure")
        status_slot = bench.status_line()
    error = st.session_state.pop(ERROR, None)
    line = f":red[{plain(error)}]" if error else sentences.standing(chosen.choice, found)
    status_slot.markdown(f":small[{line}]")


def button(settings: Settings, plan: Plan | None, found: Measurement, label: str, name: str) -> None:
    """Measure, Cancel or Resume, always in the same place."""
    if plan is not None and found.live:
        st.button(
            "Cancel",
            on_click=_attempt,
            args=(rows.cancel, plan, user()),
            disabled=found.user != user(),  # another reader's: watched, not ended
            width=bench.BUTTON,
            key=settings.key(f"{name}.cancel"),
        )
    else:
        st.button(
            "Resume" if found.state == "interrupted" and found.user == user() else label,
            type="primary" if name == "measure" else "secondary",
            on_click=_attempt,
            args=(rows.start, plan, user()),
            disabled=plan is None,
            width=bench.BUTTON,
            key=settings.key(name),
        )


def _attempt(act: Callable[..., None], *arguments: object) -> None:
    """A click's deed; where it cannot be done the status line says so."""
    try:
        act(*arguments)
    except (sqlite3.Error, OSError) as error:
        st.session_state[ERROR] = f"The list of runs cannot be written: {error}."
