"""A measurement: what is asked before it, two figures, its rows beside the chapter's, and what to notice."""

import streamlit as st

from engine.memory_wall.plan import Plan
from engine.memory_wall.setting import IMPLEMENTATIONS
from lab import bench
from lab.bench import button
from lab.charts import panels
from lab.sections.wall import charts, parts, rows, sentences, tables
from lab.sections.wall.parts import Controls
from lab.sections.wall.rows import Measurement
from lab.settings import Settings
from lab.shell import frame
from lab.shell.reader import user

FIGURE = 552  # px, of one of two
ROWS_WIDTH, CHAPTER_WIDTH = 672, 432  # px


def instruments(chosen: Controls, found: Measurement, settings: Settings) -> None:
    """The card and the layer; what is measured, how far, the one button, and the status line."""
    with st.container(horizontal=True, vertical_alignment="bottom", key="instruments-layer"):
        for part in (chosen.budget, chosen.heads, chosen.width, chosen.mask, chosen.passes):
            part.draw()
        chosen.dtype.draw(width=130)
    with st.container(horizontal=True, vertical_alignment="bottom", key="instruments"):
        names = list(IMPLEMENTATIONS)
        st.segmented_control("Implementations", names, selection_mode="multi", key=chosen.ways.key)
        chosen.to.draw()
        measure(settings.key("measure"), "Measure", chosen.choice.plan, found)
        status_slot = bench.status_line()
    status_slot.markdown(f":small[{button.error() or sentences.standing(chosen.choice, found)}]")


def measure(key: str, label: str, plan: Plan | None, found: Measurement, *, primary: bool = True) -> None:
    """The button of a measurement: Measure, Cancel or Resume, always in the same place."""
    own = found.user == user()
    if plan is not None and found.live:  # another reader's is watched, not ended
        button.writes("Cancel", f"{key}.cancel", rows.cancel, plan, user(), ready=own, primary=False)
    else:
        label = "Resume" if found.state == "interrupted" and own else label
        button.writes(label, key, rows.start, plan, user(), ready=plan is not None, primary=primary)


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
        memory, time = charts.memory_chart(choice, found), charts.time_chart(choice, found)
        panels.titled("wall.memory", "Peak memory", "MB; dashed: predicted", memory, FIGURE)
        panels.titled("wall.time", "Time of a pass", "ms; compare slopes, not machines", time, FIGURE)


def compared(chosen: Controls, found: Measurement, *guesses: str | None) -> None:
    """The rows of one implementation and the chapter's; then exponents, and what there is to notice."""
    choice, of = chosen.choice, chosen.of
    names = choice.implementations
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
            st.code(frame.engine_source("memory_wall/attention.py", way), language="python")
