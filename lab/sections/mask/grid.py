"""A grid of scores that a reader edits: in the session, in the URL, and in words where a cell is no number.

What is typed stays in the editor until the grid changes by another way (a preset, the URL, the way back);
then the editor begins anew from the new numbers.
"""

import re
from typing import Any

import streamlit as st

from engine.probes.masks import TOKENS
from engine.system.errors import InvalidInput, LabError
from lab.settings import Settings
from lab.words import MINUS, plain

Grid = tuple[float, ...]  # row by row

COLUMNS = tuple(f"{s + 1}" for s in range(TOKENS))
MAX_SCORE, DECIMALS = 10_000, 3
ALLOWED = f"allowed: a number from {MINUS}{MAX_SCORE:,} to {MAX_SCORE:,} with at most {DECIMALS} decimals"
PRESETS: dict[str, Grid] = {
    "uniform": (0.0,) * TOKENS**2,
    "example": (
        *(0.4, 0, 0, 0, 0, 0),
        *(0.2, 0.1, 0, 0, 0, 0),
        *(-0.3, 0.5, 0.2, 0, 0, 0),
        *(0.1, -0.2, 0.4, 0.3, 0, 0),
        *(0.5, 0.3, -0.1, 0.2, 0.4, 0),
        *(-0.2, 0.6, 0.1, 0.4, -0.4, 0.3),
    ),
    "nearest": tuple(-abs(t - s) / 2 for t in range(TOKENS) for s in range(TOKENS)),
}
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d{1,3})?", re.ASCII | re.IGNORECASE)


def number(text: str) -> float:
    """A score from a cell's text. Raises InvalidInput: with what is wrong, to be read after "is"."""
    written = text.strip().replace(MINUS, "-")
    if not written:
        raise InvalidInput(f"empty; {ALLOWED}.")
    if not _NUMBER.fullmatch(written) or not abs(value := float(written)) <= MAX_SCORE:
        raise InvalidInput(f"{text[:20]!r}; {ALLOWED}.")
    if round(value, DECIMALS) != value:
        raise InvalidInput(f"{text[:20]!r}; {ALLOWED}.")
    return value + 0.0  # never −0


def shown(value: float) -> str:
    """A score as a cell shows it and as the URL writes it: the shortest text."""
    return f"{value:.{DECIMALS}f}".rstrip("0").rstrip(".") or "0"


def parse(text: str) -> Grid:
    """A grid from the URL: a preset's name, or 36 numbers joined by "_", zeros left out.

    Raises InvalidInput: with what is allowed.
    """
    if text in PRESETS:
        return PRESETS[text]
    parts = text.split("_")
    if len(parts) != TOKENS**2:
        raise InvalidInput(
            f"scores has {len(parts)} numbers; allowed: {TOKENS**2}, row by row, joined by _, or one of "
            f"{', '.join(PRESETS)}."
        )
    found = []
    for place, part in enumerate(parts):
        try:
            found.append(number(part or "0"))
        except LabError as error:
            raise InvalidInput(f"scores, {_named(place)} is {error}") from None
    return tuple(found)


def write(grid: Grid) -> str:
    """The inverse of ``parse``."""
    return preset(grid) or "_".join("" if value == 0 else shown(value) for value in grid)


def preset(grid: Grid) -> str | None:
    """The name of the preset that a grid is, if it is one."""
    return next((name for name, known in PRESETS.items() if known == grid), None)


def accepted(base: Grid, edits: dict[int, dict[str, Any]]) -> tuple[Grid, list[str]]:
    """A grid after what was typed into it, and a sentence for each cell that keeps its number from before.

    edits: what ``st.data_editor`` reports: by row, by column, the cell's text.
    """
    grid, complaints = list(base), []
    for row, cells in sorted(edits.items()):
        for column, text in sorted(cells.items()):
            place = int(row) * TOKENS + COLUMNS.index(column)
            try:
                grid[place] = number(text or "")
            except LabError as error:
                complaints.append(f"{_named(place).capitalize()} is {error} Used: {shown(base[place])}.")
    return tuple(grid), complaints


def _named(place: int) -> str:
    return f"row {place // TOKENS + 1}, key {place % TOKENS + 1}"


def choose(settings: Settings) -> None:
    """The presets, as a segmented control that shows which one the grid is, or none."""
    key = settings.key("preset")
    st.session_state[key] = preset(st.session_state[settings.key("scores")])

    def chosen() -> None:
        if name := st.session_state[key]:
            st.session_state[settings.key("scores")] = PRESETS[name]

    st.segmented_control(
        "Scores", list(PRESETS), format_func=str.capitalize, key=key, on_change=chosen, width="content"
    )


def editor(settings: Settings) -> None:
    """The grid to be edited; below it what is wrong with what was typed."""
    import pandas as pd

    state, here, scores = st.session_state, settings.key("editor"), settings.key("scores")
    base, version = state.get(here, (None, 0))
    edits: dict[int, dict[str, Any]] = {}
    if base is not None:
        edits = state.get(f"{here}.{version}", {}).get("edited_rows", {})
    if base is None or accepted(base, edits)[0] != state[scores]:
        base, version, edits = state[scores], version + 1, {}
        state[here] = (base, version)
    key = f"{here}.{version}"

    def edited() -> None:
        state[scores] = accepted(base, state[key]["edited_rows"])[0]

    cells = [[shown(value) for value in base[t * TOKENS : (t + 1) * TOKENS]] for t in range(TOKENS)]
    frame = pd.DataFrame(cells, columns=list(COLUMNS), index=list(COLUMNS))
    narrow = {name: st.column_config.TextColumn(alignment="right", width=48) for name in COLUMNS}
    st.data_editor(
        frame,
        key=key,
        on_change=edited,
        num_rows="fixed",
        column_config={"_index": st.column_config.TextColumn("query", width=76, disabled=True), **narrow},
        row_height=34,
        alt="Scores, one row a query, one column a key",
    )
    for complaint in accepted(base, edits)[1]:
        st.markdown(f":orange[{plain(complaint)}]")
