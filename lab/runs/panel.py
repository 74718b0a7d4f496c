"""The selected run: what happened, what can be done about it, and its reproducibility card."""

import sqlite3
from collections.abc import Callable, Sequence
from typing import TypeVar

import pandas as pd
import streamlit as st

from engine.runs.store import ACTIVE, ENDED, RESUMABLE, Run, Store
from engine.system import files
from lab.bench.status import COLORS
from lab.runs import card, story
from lab.runs.view import model_name, shown_state, step_of
from lab.settings import user
from lab.words import plain

STORY_WIDTH, CARD_WIDTH = 640, 448  # px
ASKED, SAID = "runs.delete_asked", "runs.said"

T = TypeVar("T")
Select = Callable[[int | None], None]


def draw(store: Store, run: Run, queued: Sequence[int], select: Select) -> None:
    """The panel. queued: ids of all that wait; select: chooses another run, or none."""
    record = files.last_record(store.directory(run.id))
    step = step_of(run, record)
    seconds = record.get("seconds") if run.seconds is None else run.seconds
    with st.container(horizontal=True, gap="medium"):
        with st.container(width=STORY_WIDTH):
            state = shown_state(run)
            st.markdown(f"**\\#{run.id} {plain(model_name(run))}** :{COLORS[state]}[{state}]")
            before = queued.index(run.id) if run.id in queued else 0
            st.markdown(plain(story.story(store, run, before)))
            _actions(store, run, step, seconds, select)
            if said := st.session_state.pop(SAID, ""):
                st.markdown(f":orange[{plain(said)}]")
            if run.state == "failed":
                _log(store, run)
        with st.container(width=CARD_WIDTH):
            _card(run, step, seconds)
    command = card.command(run)
    st.caption("The same run from a shell, in the lab’s folder:" if command.line else plain(command.why_not))
    if command.line:
        st.code(command.line, language=None, wrap_lines=True)


def _actions(store: Store, run: Run, step: int, seconds: float | None, select: Select) -> None:
    """One line of buttons by state; deleting asks first, in the same place."""
    saved = story.checkpoint_step(store.directory(run.id)) is not None
    with st.container(horizontal=True, vertical_alignment="center", key="runs-actions"):
        if st.session_state.get(ASKED) == run.id and run.state in ENDED:
            st.markdown(f"Delete \\#{run.id} with its records and checkpoint? This cannot be undone.")
            st.button(f"Delete #{run.id}", key="runs.delete_yes", on_click=_delete, args=(store, run, select))
            st.button("Keep it", key="runs.delete_no", type="tertiary", on_click=_ask, args=(None,))
            return
        if run.state not in ENDED:
            stopping = run.state in ACTIVE and files.stop_requested(store.directory(run.id), run.attempt)
            st.button(
                "Cancel",
                key="runs.cancel",
                type="primary",
                disabled=bool(stopping),
                on_click=_cancel,
                args=(store, run),
            )
        if run.state in RESUMABLE and saved:
            st.button(
                "Resume",
                key="runs.resume",
                type="primary",
                on_click=_resume,
                args=(store, run),
            )
        if run.state in ENDED:
            st.button(
                "Run again",
                key="runs.again",
                type="primary" if run.state in RESUMABLE and not saved else "secondary",
                on_click=_run_again,
                args=(store, run, select),
            )
        with st.popover("Export", key="runs.export"):
            directory = store.directory(run.id)
            # Made when clicked, so that a tick does not pay for a file that nobody wants.
            st.download_button(
                "Metrics as CSV",
                lambda: card.metrics_csv(files.records(directory)),
                file_name=f"run-{run.id}-metrics.csv",
                mime="text/csv",
                on_click="ignore",
                key="runs.csv",
            )
            st.download_button(
                "Reproducibility card as JSON",
                lambda: card.as_json(run, step, seconds),
                file_name=f"run-{run.id}-card.json",
                mime="application/json",
                on_click="ignore",
                key="runs.json",
            )
        if run.state in ENDED:
            st.button("Delete", key="runs.delete", type="tertiary", on_click=_ask, args=(run.id,))


def _card(run: Run, step: int, seconds: float | None) -> None:
    lines = card.lines(run, step, seconds)
    frame = pd.DataFrame(
        {"": [f":gray[{label}]" for label, _ in lines], " ": [plain(text) for _, text in lines]}
    )
    st.table(frame, border="horizontal", hide_index=True, hide_header=True, alt="Reproducibility card")
    with st.expander("Whole configuration"):
        changed = card.changed_fields(run)
        fields = run.spec.config.to_dict()
        names = [*changed, *(name for name in fields if name not in changed)]
        st.code("\n".join(f"{name} = {fields[name]!r}" for name in names), language=None)


def _log(store: Store, run: Run) -> None:
    with st.expander("Last lines of its log"):
        st.code(story.log_tail(store.directory(run.id)) or "It printed nothing.", language=None)


def _ask(run_id: int | None) -> None:
    st.session_state[ASKED] = run_id


def _cancel(store: Store, run: Run) -> None:
    _tried(lambda: store.cancel(run.id))


def _delete(store: Store, run: Run, select: Select) -> None:
    _ask(None)
    if _tried(lambda: store.delete(run.id)):
        select(None)
    else:
        _say(f"#{run.id} was not deleted: only a run that has ended can be.")


def _resume(store: Store, run: Run) -> None:
    if _tried(lambda: store.resume(run.id)) is False:
        _say(f"#{run.id} was not resumed: it is no longer {run.state}.")


def _run_again(store: Store, run: Run, select: Select) -> None:
    sweep = _tried(lambda: store.submit([run.spec], user=user()))
    if sweep is not None:
        select(store.runs(sweep=sweep)[0].id)


def _tried(action: Callable[[], T]) -> T | None:
    """Do it; what the disk or the ledger refuses is said under the buttons."""
    try:
        return action()
    except (sqlite3.OperationalError, OSError) as error:
        _say(f"Nothing was changed: {error}.")
        return None


def _say(text: str) -> None:
    st.session_state.setdefault(SAID, text)
