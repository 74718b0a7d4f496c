"""Attention maps on the page, in the theme's colours, with title, exports and numbers; the key above them."""

import streamlit as st

from lab.bench.tables import Cell, Table
from lab.charts.maps import figure, strip
from lab.charts.maps.panel import Kind, Panel
from lab.charts.maps.sentences import Table as Numbers
from lab.charts.maps.sentences import number, row_table
from lab.charts.maps.twin import numbers, twin
from lab.shell import export, palette
from lab.words import plain


def draw(
    panel: Panel,
    element: str,
    title: str,
    words: str,
    *,
    file: str,
    heading: str = "",
    marked: int | None = None,
    limit: float | None = None,
    width: int = figure.WIDTH,
) -> None:
    """One map under its title.

    element: its key. title: Markdown. words: what it shows, for those who do not see it. file: the name of
    its files; heading: in them. marked, limit, width: as in ``figure``.
    """
    with st.container(horizontal=True, horizontal_alignment="distribute", vertical_alignment="center"):
        st.markdown(title, width="content")
        with st.popover("Export", type="tertiary", key=f"export.{element}"):
            export.downloads(
                file,
                lambda: twin(panel, heading or file, marked=marked, limit=limit),
                lambda: numbers(panel),
            )
    colors = palette.current()
    made = figure.figure(panel, colors, marked=marked, limit=limit, width=width)
    figure.draw(made, element, colors, said=words)


def key(kind: Kind = "weights", name: str = "weight", limit: float = 1.0) -> None:
    """What the colours mean. kind, limit, name: as in ``strip.key``."""
    st.html(strip.key(kind, limit, palette.current(), name), width="content")


def draw_numbers(panel: Panel, row: int, decimals: int = 3, table: Numbers | None = None) -> None:
    """The row's highest keys as a table. table: in place of that."""
    head, *rows = table or row_table(panel, row)
    cells = [
        (plain(str(label)), *(Cell(float(value), number(float(value), decimals)) for value in values))
        for label, *values in rows
    ]
    Table([str(name) for name in head], cells).draw()
