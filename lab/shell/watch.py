"""Draw a page again when what it shows has changed, and only then."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count

import streamlit as st

IDLE_SECONDS = 3.0


@dataclass(frozen=True)
class Watched:
    """A thing that a page is drawn of. look: its state now. drawn: what that was before the page read it.

    seconds: how often to look; None where the page follows it by itself.
    """

    look: Callable[[], object]
    drawn: object
    seconds: float | None = IDLE_SECONDS


def together(watched: Sequence[Watched]) -> None:
    """While the page follows none by itself: others, or the command line, may start or finish one of them."""
    seconds = [one.seconds for one in watched if one.seconds]
    if watched and len(seconds) == len(watched):
        drawn = [one.drawn for one in watched]
        redraw_on_change(lambda: [one.look() for one in watched], drawn, min(seconds))


def redraw_on_change(look: Callable[[], object], drawn: object, seconds: float) -> None:
    """Look every few seconds; the page runs again when ``look()`` no longer equals ``drawn``.

    drawn: what ``look()`` gave before the page read what it shows. Nothing is drawn by a tick itself.
    """
    turns = count()

    @st.fragment(run_every=seconds)
    def watch() -> None:
        # The first turn belongs to the drawing itself: what changed meanwhile waits for the next.
        if next(turns) and look() != drawn:
            st.rerun()

    watch()
