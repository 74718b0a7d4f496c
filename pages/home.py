"""Home: the whole ladder at a glance, this machine, and the chapter's map."""

import pandas as pd
import streamlit as st

from engine import corpus
from engine.experiments import AVERAGES
from engine.runs import dispatcher
from engine.runs.store import ACTIVE
from lab import home_chart, home_state, runs_view
from lab.chapter import SECTIONS, section
from lab.controls import plain
from lab.frame import MEASURE
from lab.watch import redraw_on_change

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
store, ledger, runs = runs_view.opened()
is_served = dispatcher.running(store.root)
active = [run.id for run in runs if run.state in ACTIVE]
drawn = (ledger, runs_view.records_stamp(store, active), is_served)
notice = home_state.text_here()
if notice:
    st.markdown(f":orange[{plain(notice)}]", width=MEASURE)
if not is_served:
    st.markdown(":orange[Nothing carries runs out: open the lab with `python -m lab`, or `make lab`.]")

lines = {
    "Device": "…",
    "Text": "Python reference" if notice else "Tiny Shakespeare",
    "Tokens": "counted when it is first used" if notice else "…",
    "Runs": home_state.runs_text(runs),
}


def show_machine() -> None:
    """The table of this machine, in the place kept for it."""
    rows = [(f":gray[{name}]", plain(text)) for name, text in lines.items()]
    frame = pd.DataFrame(rows, columns=["", " "])
    machine.table(frame, border="horizontal", hide_index=True, hide_header=True, alt="This machine")


with st.container(horizontal=True, gap="medium", key="home"):
    with st.container(width=CHART_WIDTH):
        rows = home_chart.rungs(runs)
        st.markdown("**What each part buys** :gray[held-out perplexity, lower is better]")
        st.vega_lite_chart(home_chart.spec(rows), height=home_chart.height(rows), key="home.ladder")
        st.caption(home_chart.legend(rows))
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
            st.caption(home_state.section_state(entry, runs, store), width=STATE)
        group = entry.group

# Last, because on a new machine these take a second or two, and the page is there meanwhile.
lines["Device"] = home_state.device_text()
if not notice:
    try:
        lines["Tokens"] = f"{home_state.tokens():,} (the chapter: {corpus.CHAPTER_TOKENS:,})"
    except (corpus.CorpusError, OSError) as error:
        lines["Text"] = str(error)
    quick.caption(home_state.quick_text(AVERAGES) or "\u00a0")
show_machine()


def look() -> object:
    """What this page depends on, now."""
    records = runs_view.records_stamp(store, active)
    return runs_view.ledger_stamp(store), records, dispatcher.running(store.root)


redraw_on_change(look, drawn, LIVE_SECONDS if active else IDLE_SECONDS)
