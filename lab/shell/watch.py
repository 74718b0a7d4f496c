"""Draw a page again when what it shows has changed, and only then."""

from collections.abc import Callable
from itertools import count

import streamlit as st


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
