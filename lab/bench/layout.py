"""Where things stand on a page: widths, the line above a figure, results beside what they say."""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import streamlit as st

from lab.shell import export

if TYPE_CHECKING:
    from streamlit.delta_generator import DeltaGenerator

    from lab.bench.tables import Table

TABLE_WIDTH, NOTICE_WIDTH, STATUS_WIDTH = 752, 336, 300  # px
HALF, BUTTON = 544, 160  # px

Rows = Iterable[Sequence[object]]


def status_line(width: int = STATUS_WIDTH) -> "DeltaGenerator":
    """The place for a status line, of fixed width: a longer line must not push the figure down."""
    with st.container(width=width):
        return st.empty()


def figure_title(
    title: str,
    note: str,
    name: str,
    chart: Callable[[], dict[str, Any]],
    rows: Callable[[], Rows],
    *,
    key: str = "figure-title",
    widgets: Callable[[], None] = lambda: None,
) -> None:
    """The line above a figure, with its exports at the right.

    name: of the files. chart, rows: what they hold, made once a reader asks. widgets: drawn between.
    """
    with st.container(horizontal=True, vertical_alignment="center", key=key):
        st.markdown(f"**{title}** :gray[{note}]", width="stretch")
        widgets()
        with st.popover("Export", type="tertiary", key=f"export.{name}"):
            export.downloads(name, chart, rows)


def beside(key: str, tables: Sequence["Table"], words: str, heading: str = "What to notice") -> None:
    """Tables at the left, each above its caption; at the right what they say, under its heading."""
    with st.container(horizontal=True, gap="medium", key=key):
        with st.container(width=TABLE_WIDTH):
            for table in tables:
                table.draw()
        with st.container(width=NOTICE_WIDTH):
            if heading:
                st.subheader(heading, anchor=False)
            st.markdown(words)
