"""What is asked before a measurement: guesses, the card and the layer, how far; and the one button."""

import sqlite3
from collections.abc import Callable

import streamlit as st

from engine.memory_wall.plan import Plan
from engine.memory_wall.setting import IMPLEMENTATIONS
from lab import bench
from lab.sections.wall import parts, rows, sentences
from lab.sections.wall.parts import FIRST_GUESSES, MASKS, PASSES, TIME_GUESSES, Choice
from lab.sections.wall.rows import Measurement
from lab.settings import Settings, user
from lab.words import plain

ERROR = "wall.error"


def guesses(settings: Settings) -> None:
    """The two predictions."""
    with st.container(horizontal=True):
        for name, question, options in (
            ("first", "Before you measure: which row is the first that 8 GB cannot hold?", FIRST_GUESSES),
            ("time", "And when a long text doubles, how much time does it take?", TIME_GUESSES),
        ):
            with st.container(width=bench.HALF):
                st.pills(question, list(options), format_func=options.__getitem__, key=settings.key(name))


def layer(settings: Settings) -> None:
    """The card and the layer."""
    offered: tuple[tuple[str, str, tuple[object, ...]], ...] = (
        ("Pretend my card has, GB", "budget", parts.BUDGETS),
        ("Heads", "heads", parts.HEADS),
        ("Width", "width", parts.WIDTHS),
        ("Mask", "mask", tuple(MASKS)),
        ("Pass", "pass", tuple(PASSES)),
    )
    with st.container(horizontal=True, vertical_alignment="bottom", key="instruments-layer"):
        for label, name, options in offered:
            _one_of(settings, label, name, options)
        st.selectbox("Numbers", parts.DTYPES, key=settings.key("dtype"), width=130)


def instrument_row(settings: Settings, choice: Choice, found: Measurement) -> None:
    """What is measured, how far, the one button, and the status line."""
    with st.container(horizontal=True, vertical_alignment="bottom", key="instruments"):
        st.segmented_control(
            "Implementations", list(IMPLEMENTATIONS), selection_mode="multi", key=settings.key("ways")
        )
        _one_of(settings, "Up to", "to", parts.TOKENS)
        button(settings, choice.plan, found, "Measure", "measure")
        status_slot = bench.status_line()
    error = st.session_state.pop(ERROR, None)
    line = f":red[{plain(error)}]" if error else sentences.standing(choice, found)
    status_slot.markdown(f":small[{line}]")


def _one_of(settings: Settings, label: str, name: str, options: tuple[object, ...]) -> None:
    """The usual values, and one that only a URL can choose in its place among them."""
    chosen = st.session_state[settings.key(name)]
    if isinstance(chosen, int):
        offered: list[object] = sorted({*options, chosen}, key=lambda value: int(str(value)))
    else:
        offered = list(dict.fromkeys([*options, chosen]))
    st.segmented_control(label, offered, format_func=_written, key=settings.key(name), required=True)


def _written(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else PASSES.get(str(value), str(value))


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
