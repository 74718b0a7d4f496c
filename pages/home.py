"""Home: the whole ladder at a glance, this machine, and the chapter's map."""

import pandas as pd
import streamlit as st

from engine.chapter.experiments import AVERAGES
from engine.data import corpus
from engine.runs.store import ACTIVE, trains
from lab.runs import view
from lab.sections.home import chart, state
from lab.shell.chapter import SECTIONS, section
from lab.shell.frame import MEASURE
from lab.shell.watch import redraw_on_change
from lab.words import plain

CHART_WIDTH, ASIDE_WIDTH = 752, 336  # px
GROUP, LINK, STATE = 128, 190, 176  # px
LIVE_SECONDS, IDLE_SECONDS = 2.0, 5.0

with st.container(key="head"):
    st.title("Attention, measured", anchor=False)
    st.markdown(
        "One textbook chapter builds the transformer block from an average. Here you train each step of "
        "that argument on your own machine, and set your numbers beside the chapter’s.",
        width=MEASURE,
    )
store, ledger, runs = view.opened()
active = [run.id for run in runs if run.state in ACTIVE]
drawn = view.depends_on(store, active, ledger)
notice = state.text_here()
if notice:
    st.markdown(f":orange[{plain(notice)}]", width=MEASURE)
if not drawn[-1]:
    st.markdown(":orange[Nothing carries runs out: open the lab with `python -m lab`, or `make lab`.]")

lines = {
    "Device": "…",
    "Text": "Python reference" if notice else "Tiny Shakespeare",
    "Tokens": "counted when it is first used" if notice else "…",
    "Runs": state.runs_text(runs),
}


def show_machine() -> None:
    """The table of this machine, in the place kept for it."""
    rows = [(f":gray[{name}]", plain(text)) for name, text in lines.items()]
    frame = pd.DataFrame(rows, columns=["", " "])
    machine.table(frame, border="horizontal", hide_index=True, hide_header=True, alt="This machine")


with st.container(horizontal=True, gap="medium", key="home"):
    with st.container(width=CHART_WIDTH):
        rows = chart.rungs(list(filter(trains, runs)))
        st.markdown("**What each part buys** :gray[held-out perplexity, lower is better]")
        st.vega_lite_chart(chart.spec(rows), height=chart.height(rows), key="home.ladder")
        st.caption(chart.legend(rows))
    with st.container(width=ASIDE_WIDTH):
        st.markdown("**This machine**")
        machine = st.empty()
        show_machine()
        st.markdown("**Start here**")
        st.page_link(section("averages.py").path, label=":primary[Averages: train four models]")
        quick = st.empty()
        quick.caption("\u00a0")

st.header("The chapter", anchor=False)
with st.container(gap=None, key="contents"):
    group = ""
    for entry in SECTIONS:
        with st.container(horizontal=True, wrap=False, vertical_alignment="center"):
            st.caption(entry.group if entry.group != group else "\u00a0", width=GROUP)
            with st.container(width=LINK):
                if entry.built:
                    st.page_link(entry.path, label=f":primary[{plain(entry.title)}]")
                else:
                    st.markdown(f":small[{plain(entry.title)}]")
            st.markdown(f":small[{plain(entry.question)}]", width="stretch")
            st.caption(state.section_state(entry, runs, store), width=STATE)
        group = entry.group

# Last, because on a new machine these take a second or two, and the page is there meanwhile.
lines["Device"] = state.device_text()
if not notice:
    try:
        lines["Tokens"] = f"{state.tokens():,} (the chapter: {corpus.CHAPTER_TOKENS:,})"
    except (corpus.CorpusError, OSError) as error:
        lines["Text"] = str(error)
    quick.caption(state.quick_text(AVERAGES) or "\u00a0")
show_machine()
redraw_on_change(lambda: view.depends_on(store, active), drawn, LIVE_SECONDS if active else IDLE_SECONDS)
