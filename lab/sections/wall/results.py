"""What a measurement draws: two figures, its rows beside the chapter's, exponents, and what to notice."""

import streamlit as st

from engine.memory_wall.setting import IMPLEMENTATIONS
from lab import bench
from lab.charts import drawing
from lab.sections.wall import charts, parts, rows, sentences, tables
from lab.sections.wall.parts import Controls
from lab.sections.wall.rows import Measurement

FIGURE = 552  # px, of one of two
ROWS_WIDTH, CHAPTER_WIDTH = 672, 432  # px


def figures(chosen: Controls, found: Measurement) -> None:
    """Memory and time, side by side."""
    choice = chosen.choice
    bench.figure_title(
        "Peak memory and time",
        "log against log: a straight line is a power of n",
        f"memory-wall-{chosen.to.value}",
        lambda: charts.together(choice, rows.look(choice.plan)),
        lambda: parts.csv_rows(rows.look(choice.plan)),
    )
    with st.container(horizontal=True, gap="small", key="figure"):
        for title, note, spec, name in (
            ("Peak memory", "MB; dashed: predicted", charts.memory_chart(choice, found), "memory"),
            ("Time of a pass", "ms; compare slopes, not machines", charts.time_chart(choice, found), "time"),
        ):
            with st.container(width=FIGURE, gap=None):
                st.markdown(f":small[**{title}** :gray[{note}]]")
                drawing.draw(spec, key=f"wall.{name}")


def compared(chosen: Controls, found: Measurement, *guesses: str | None) -> None:
    """The rows of one implementation and the chapter's; then exponents, and what there is to notice."""
    choice, of = chosen.choice, chosen.of
    names = choice.plan.implementations if choice.plan else IMPLEMENTATIONS
    if of.value not in names:
        of.value = names[0]
    st.segmented_control("Rows of", list(names), key=of.key, required=True, label_visibility="collapsed")
    with st.container(horizontal=True, gap="small", key="wall-rows"):
        with st.container(width=ROWS_WIDTH):
            tables.rows_table(choice, found, of.value).draw()
            for line in sentences.row_notes(found, choice.plan) if choice.plan else ():
                st.markdown(line)
            st.caption(tables.rows_remark(choice, found))
        with st.container(width=CHAPTER_WIDTH):
            tables.chapter_table(choice, found).draw()
    with st.container(horizontal=True, gap="medium", key="wall-words"):
        with st.container(width=bench.HALF):
            tables.exponents_table(choice, found).draw()
        with st.container(width=bench.HALF):
            st.subheader("What to notice", anchor=False)
            st.markdown(sentences.notice(choice, found, *guesses))


def code() -> None:
    """The functions that are measured, as they are."""
    with st.expander("The code of the four ways"):
        for way in IMPLEMENTATIONS:
            st.code(parts.source(way), language="python")
