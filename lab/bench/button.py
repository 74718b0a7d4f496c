"""The one button of a sweep: Train, Cancel or Resume, always in the same place. It only writes the store."""

import sqlite3
from collections.abc import Callable
from typing import Literal

import streamlit as st

from engine.runs.store import Run
from lab.bench.layout import BUTTON
from lab.bench.sweep import Sweep
from lab.settings import Settings
from lab.shell.reader import user
from lab.words import count, plain

ERROR = "bench.error"


def draw(
    sweep: Sweep, settings: Settings, label: str | None = None, name: str = "", width: int = BUTTON
) -> None:
    """The button. label: instead of "Train four models". name: of the sweep, where a page has several."""
    key = settings.key(f"{name}-" if name else "")
    if sweep.unended:  # another reader's runs are watched, not ended
        own = bool(_own(sweep.unended))
        writes("Cancel", f"{key}cancel", cancel, sweep, ready=own, primary=False, width=width)
    elif _interrupted(sweep):
        writes("Resume", f"{key}resume", resume, sweep, width=width)
    else:
        # A variant that is trained on two budgets is two models.
        models = {(spec.variant, spec.budget.steps) for spec in sweep.wanted.values()}
        label = label or f"Train {count(len(models) or len(sweep.experiment.variants))} models"
        writes(label, f"{key}train", train, sweep, ready=bool(sweep.wanted), width=width)


def writes(
    label: str,
    key: str,
    press: Callable[..., None],
    *arguments: object,
    ready: bool = True,
    primary: bool = True,
    width: int = BUTTON,
) -> None:
    """A button that writes the store; ``error`` says so when that cannot be done.

    press, arguments: what it calls. ready: whether it can be pressed.
    """

    def pressed() -> None:
        try:
            press(*arguments)
        except (sqlite3.Error, OSError) as error:
            st.session_state[ERROR] = f"The list of runs cannot be written: {error}."

    kind: Literal["primary", "secondary"] = "primary" if primary else "secondary"
    st.button(label, key=key, type=kind, on_click=pressed, disabled=not ready, width=width)


def error() -> str:
    """The status line of a press that could not be done, once; empty where there was none."""
    failed = st.session_state.pop(ERROR, "")
    return f":red[{plain(failed)}]" if failed else ""


def train(sweep: Sweep) -> None:
    """Queue what is missing, or all of it once more when nothing is; a second click changes nothing."""
    now = sweep.again()
    if not now.unended:
        now.store.submit(now.missing or now.wanted.values(), user())


def cancel(sweep: Sweep) -> None:
    """End the reader's own runs, the last first, or a slot set free would start a queued one."""
    for run in reversed(_own(sweep.again().unended)):
        sweep.store.cancel(run.id)


def resume(sweep: Sweep) -> None:
    """Go on with the reader's own interrupted runs, as they are now, and queue what no run stands for."""
    now = sweep.again()
    for run in (own := _interrupted(now)):
        now.store.resume(run.id)
    lost = {run.digest for run in now.runs if run.state == "interrupted"} - {run.digest for run in own}
    specs = [spec for digest, spec in now.wanted.items() if digest not in now.newest or digest in lost]
    now.store.submit(specs, user())


def _own(runs: list[Run]) -> list[Run]:
    return [run for run in runs if run.user == user()]


def _interrupted(sweep: Sweep) -> list[Run]:
    """The reader's own: another's goes on when its reader says so, or is trained anew."""
    return _own([run for run in sweep.runs if run.state == "interrupted"])
