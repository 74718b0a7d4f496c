"""The selected run: what happened, what can be done about it, and its reproducibility card."""

import sqlite3
from collections.abc import Callable, Sequence
from typing import Literal, TypeVar

import pandas as pd
import streamlit as st

from engine.runs.spec import WallSpec
from engine.runs.store import ACTIVE, ENDED, RESUMABLE, Entry, Store, trains
from engine.system import files
from lab.bench.status import COLORS
from lab.runs import card, story, wall
from lab.runs.card import Sheet
from lab.runs.view import model_name, shown_state
from lab.shell.reader import user
from lab.words import plain

STORY_WIDTH, CARD_WIDTH = 640, 448  # px
ASKED, SAID = "runs.delete_asked", "runs.said"

T = TypeVar("T")
Select = Callable[[int | None], None]


def draw(store: Store, run: Entry, queued: Sequence[int], select: Select) -> None:
    """The panel. queued: ids of all that wait; select: chooses another run, or none."""
    before = queued.index(run.id) if run.id in queued else 0
    if isinstance(run.spec, WallSpec):
        sheet = wall.sheet(store, run, run.spec, before)
    else:
        assert trains(run)
        sheet = story.sheet(store, run, before)
    with st.container(horizontal=True, gap="medium"):
        with st.container(width=STORY_WIDTH):
            state = shown_state(run)
            st.markdown(f"**\\#{run.id} {plain(model_name(run))}** :{COLORS[state]}[{state}]")
            st.markdown(plain(sheet.story))
            _actions(store, run, sheet, select)
            if said := st.session_state.pop(SAID, ""):
                st.markdown(f":orange[{plain(said)}]")
            if run.state == "failed":
                with st.expander("Last lines of its log"):
                    log = story.log_tail(store.directory(run.id))
                    st.code(log or "It printed nothing.", language=None)
        with st.container(width=CARD_WIDTH):
            _card(sheet)
    command = sheet.command
    st.caption("The same run from a shell, in the lab’s folder:" if command.line else plain(command.why_not))
    if command.line:
        st.code(command.line, language=None, wrap_lines=True)


def _actions(store: Store, run: Entry, sheet: Sheet, select: Select) -> None:
    """One line of buttons by state; deleting asks first, in the same place."""
    over = run.state in ENDED
    with st.container(horizontal=True, vertical_alignment="center", key="runs-actions"):
        if st.session_state.get(ASKED) == run.id and over:
            st.markdown(f"Delete \\#{run.id} with its records and checkpoint? This cannot be undone.")
            st.button(f"Delete #{run.id}", key="runs.delete_yes", on_click=_delete, args=(store, run, select))
            st.button("Keep it", key="runs.delete_no", type="tertiary", on_click=_ask, args=(None,))
            return
        here, directory = (store, run), store.directory(run.id)
        if not over:
            stops = run.state in ACTIVE and bool(files.stop_requested(directory, run.attempt))
            st.button(
                "Cancel", key="runs.cancel", type="primary", disabled=stops, on_click=_cancel, args=here
            )
        if goes_on := run.state in RESUMABLE and sheet.goes_on:
            st.button("Resume", key="runs.resume", type="primary", on_click=_resume, args=here)
        if over:
            kind: Literal["primary", "secondary"] = (
                "primary" if run.state in RESUMABLE and not goes_on else "secondary"
            )
            st.button("Run again", key="runs.again", type=kind, on_click=_run_again, args=(*here, select))
        with st.popover("Export", key="runs.export"):
            # Made when clicked, so that a tick does not pay for a file that nobody wants.
            for label, made, name, mime in (
                (
                    "Metrics as CSV",
                    lambda: card.metrics_csv(files.records(directory)),
                    "metrics.csv",
                    "text/csv",
                ),
                ("Reproducibility card as JSON", sheet.as_json, "card.json", "application/json"),
            ):
                key = f"runs.{name.rpartition('.')[2]}"
                st.download_button(label, made, f"run-{run.id}-{name}", mime, key=key, on_click="ignore")
        if over:
            st.button("Delete", key="runs.delete", type="tertiary", on_click=_ask, args=(run.id,))


def _card(sheet: Sheet) -> None:
    frame = pd.DataFrame(
        {"": [f":gray[{label}]" for label, _ in sheet.lines], " ": [plain(text) for _, text in sheet.lines]}
    )
    st.table(frame, border="horizontal", hide_index=True, hide_header=True, alt="Reproducibility card")
    with st.expander("Whole configuration"):
        st.code("\n".join(f"{name} = {value!r}" for name, value in sheet.fields), language=None)


def _ask(run_id: int | None) -> None:
    st.session_state[ASKED] = run_id


def _cancel(store: Store, run: Entry) -> None:
    _tried(lambda: store.cancel(run.id))


def _delete(store: Store, run: Entry, select: Select) -> None:
    _ask(None)
    if _tried(lambda: store.delete(run.id)):
        select(None)
    else:
        _say(f"#{run.id} was not deleted: only a run that has ended can be.")


def _resume(store: Store, run: Entry) -> None:
    if _tried(lambda: store.resume(run.id)) is False:
        _say(f"#{run.id} was not resumed: it is no longer {run.state}.")


def _run_again(store: Store, run: Entry, select: Select) -> None:
    sweep = _tried(lambda: store.submit([run.spec], user=user()))
    if sweep is not None:
        select(store.entries(sweep=sweep)[0].id)


def _tried(action: Callable[[], T]) -> T | None:
    """Do it; what the disk or the ledger refuses is said under the buttons."""
    try:
        return action()
    except (sqlite3.OperationalError, OSError) as error:
        _say(f"Nothing was changed: {error}.")
        return None


def _say(text: str) -> None:
    st.session_state.setdefault(SAID, text)
