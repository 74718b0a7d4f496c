"""The theme's colours for what cannot follow a theme switch by itself: Plotly's maps.

A switch between light and dark runs nothing again, so a small script in the page watches for it.
"""

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import streamlit as st
from streamlit.components.v2 import component

CONFIG = Path(__file__).resolve().parent.parent / ".streamlit" / "config.toml"
NAMES = ("light", "dark")
MASK_OPACITY = 0.18

Scale = list[tuple[float, str]]

_WATCH = """
export default function ({ parentElement, data, setStateValue }) {
  const host = parentElement.host ?? parentElement;
  let last = data.background;
  const look = () => {
    const now = getComputedStyle(host).getPropertyValue("--st-background-color").trim().toLowerCase();
    if (now && now !== last) { last = now; setStateValue("background", now); }
  };
  const timer = setInterval(look, 300);
  look();
  return () => clearInterval(timer);
}
"""


@dataclass(frozen=True)
class Palette:
    """One theme. weights: the scale of what lies between 0 and 1; scores: that of what is about 0."""

    name: str
    paper: str
    ink: str
    gray: str
    border: str
    weights: tuple[tuple[float, str], ...]
    scores: tuple[tuple[float, str], ...]


@cache
def palette(name: str) -> Palette:
    """The colours of the light or the dark theme, out of ``config.toml``."""
    theme = tomllib.loads(CONFIG.read_text(encoding="utf-8"))["theme"][name]
    diverging = theme["chartDivergingColors"]
    half = len(diverging) // 2  # the paper goes between the halves: 0 must not look like the mask's grey
    return Palette(
        name=name,
        paper=theme["backgroundColor"],
        ink=theme["textColor"],
        gray=theme["grayTextColor"],
        border=theme["borderColor"],
        weights=_evenly(theme["chartSequentialColors"]),
        scores=_evenly([*diverging[:half], theme["backgroundColor"], *diverging[half:]]),
    )


def _evenly(colors: list[str]) -> tuple[tuple[float, str], ...]:
    return tuple((at / (len(colors) - 1), color) for at, color in enumerate(colors))


def current() -> Palette:
    """The palette of the theme that the reader sees, on a page that calls ``follow``."""
    named = next((name for name in NAMES if palette(name).paper.lower() == _seen()), None)
    return palette(named or ("dark" if st.context.theme.type == "dark" else "light"))


def _seen() -> Any:
    state: Any = st.session_state.get("palette") or {}
    return state.get("background")


def follow() -> None:
    """Run the page, or the fragment that this stands in, again when its reader changes the theme.

    Call it once a page, where an element without height does no harm.
    """
    watch = component("attention_lab.palette", js=_WATCH)
    background = _seen() or current().paper.lower()
    watch(key="palette", data={"background": background}, on_background_change=lambda: None)
