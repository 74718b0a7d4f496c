"""What a measurement draws: two figures, its rows beside the chapter's, exponents, and what to notice."""

import streamlit as st

from engine.memory_wall.setting import IMPLEMENTATIONS
from lab import bench
from lab.charts import drawing
from lab.sections.wall import charts, parts, rows, sentences, tables
from lab.sections.wall.parts import Choice
from lab.sections.wall.rows import Measurement
from lab.settings import Settings

FIGURE = 552  # px, of one of two
ROWS_WIDTH, CHAPTER_WIDTH = 672, 432  # px


def figures(settings: Settings, choice: Choice, found: Measurement) -> None:
    """Memory and time, side by side."""
    bench.figure_title(
        "Peak memory and time",
        "log against log: a straight line is a power of n",
        f"memory-wall-{st.session_state[settings.key('to')]}",
        lambda: charts.together(choice, rows.look(choice.plan)),
        lambda: parts.csv_rows(rows.look(choice.plan)),
    )
    with st.container(horizontal=True, gap="small", key="figure"):
        for title, note, spec, name in (
            ("Peak memory", "MB; dashed: predicted", charts.memory_chart(choice, found), "memory"),
            (
                "Time of a pass",
                "ms; compare slopes, not machines",
                charts.time_chart(choice, found),
                "time",
            ),
        ):
            with st.container(width=FIGURE, gap=None):
                st.markdown(f":small[**{title}** :gray[{note}]]")
                drawing.draw(spec, key=f"wall.{name}")


def compared(settings: Settings, choice: Choice, found: Measurement) -> None:
    """The rows of one implementation and the chapter's; then exponents, and what there is to notice."""
    names = choice.plan.implementations if choice.plan else IMPLEMENTATIONS
    key = settings.key("of")
    if st.session_state[key] not in names:
        st.session_state[key] = names[0]
    st.segmented_control("Rows of", list(names), key=key, required=True, label_visibility="collapsed")
    name = st.session_state[key]
    with st.container(horizontal=True, gap="small", key="wall-rows"):
        with st.container(width=ROWS_WIDTH):
            st.table(tables.rows_table(choice, found, name), border="horizontal", hide_index=True)
            for line in sentences.row_notes(found, choice.plan) if choice.plan else ():
                st.markdown(line)
            st.caption(tables.rows_remark(choice, found))
        with st.container(width=CHAPTER_WIDTH):
            st.table(tables.chapter_table(choice, found), border="horizontal", hide_index=True)
            st.caption(tables.chapter_remark(choice))
    with st.container(horizontal=True, gap="medium", key="wall-words"):
        with st.container(width=bench.HALF):
            st.table(tables.exponents_table(choice, found), border="horizontal", hide_index=True)
            st.caption(tables.exponents_remark())
        with st.container(width=bench.HALF):
            st.subheader("What to notice", anchor=False)
            guessed = (st.session_state[settings.key(guess)] for guess in ("first", "time"))
            st.markdown(sentences.notice(choice, found, *guessed))


def code() -> None:
    """The functions that are measured, as they are."""
    with st.expander("The code of the four ways"):
        for way in IMPLEMENTATIONS:
            st.code(parts.source(way), language="python")
