"""The table of runs. Rows move while runs start and end; the tick stays with its run."""

from collections.abc import Callable, Sequence

import streamlit as st

from engine.runs.store import Entry, Store
from lab.bench.status import COLORS
from lab.runs import view

TABLE = "runs.table"
ROW_HEIGHT, ROWS_SEEN = 34, 12


def draw(
    store: Store,
    shown: Sequence[Entry],
    queued: Sequence[int],
    selected: int | None,
    select: Callable[[int | None], None],
) -> None:
    """shown: the runs, in their order; selected: the one to tick, if it is among them."""
    ids = [run.id for run in shown]
    rows = [ids.index(selected)] if selected in ids else []
    before = st.session_state.get(TABLE)
    if before is None or list(before["selection"]["rows"]) != rows:
        st.session_state[TABLE] = {"selection": {"rows": rows, "columns": [], "cells": []}}

    def chosen() -> None:
        # The order that was clicked in is the one drawn here, whatever the ledger says by now.
        ticked = st.session_state[TABLE]["selection"]["rows"]
        select(ids[ticked[0]] if ticked and ticked[0] < len(ids) else None)

    column = st.column_config
    st.dataframe(
        view.table(store, shown, queued),
        height=ROW_HEIGHT * (1 + min(len(shown), ROWS_SEEN)) + 2,
        hide_index=True,
        row_height=ROW_HEIGHT,
        placeholder="–",
        key=TABLE,
        on_select=chosen,
        selection_mode="single-row",
        alt="Runs",
        column_config={
            "state": column.MultiselectColumn(
                width=104, options=view.SHOWN_STATES, color=[COLORS[state] for state in view.SHOWN_STATES]
            ),
            "run": column.NumberColumn(width=52, format="#%d", alignment="left"),
            "experiment": column.TextColumn(width=122),
            "model": column.TextColumn(width=180),
            "progress": column.ProgressColumn(width=112, format="percent", min_value=0, max_value=1),
            "curve": column.LineChartColumn(width=88, help="Held-out loss in nats, one point an evaluation"),
            "held-out": column.NumberColumn(
                width=70, format="%.1f", help="Held-out perplexity; of a run that has not ended, its newest"
            ),
            "took": column.TextColumn(width=88),
            "reason": column.TextColumn(width=270),
        },
    )
