"""Every run: state, progress, reason; cancel, resume, delete; the card that lets others repeat it."""

import streamlit as st

from engine.chapter.experiments import EXPERIMENTS
from engine.runs.store import ACTIVE
from engine.system.errors import InvalidInput
from engine.system.numbers import whole_number
from lab.runs import panel, table, view
from lab.settings import Settings
from lab.shell import frame
from lab.shell.chapter import section
from lab.shell.watch import redraw_on_change

ROWS = "runs.rows"
ROWS_AT_ONCE = 100
LIVE_SECONDS, IDLE_SECONDS = 1.0, 3.0
ALL = "all"

with st.container(key="head"):
    st.title("Runs", anchor=False)
    said = st.container(gap=None)
store, ledger, runs = view.opened()

settings = Settings("runs")
ids = {run.id for run in runs}


def parse_run(text: str) -> int:
    """A run that there is."""
    number = whole_number(text)
    if number in ids:
        return number
    allowed = "none, there are no runs yet"
    if ids:
        allowed = f"the number of a run that is here, {min(ids)} to {max(ids)}"
    raise InvalidInput(f"run is {text!r}; allowed: {allowed}.")


def parse_states(text: str) -> list[str]:
    """States, separated by commas, or all of them."""
    states = [] if text == ALL else text.split(",")
    if any(state not in view.SHOWN_STATES for state in states):
        allowed = f"{ALL}, or some of {', '.join(view.SHOWN_STATES)}, separated by commas"
        raise InvalidInput(f"state is {text!r}; allowed: {allowed}.")
    return list(dict.fromkeys(states))


def select(run_id: int | None) -> None:
    """Choose a run, or none; the URL follows."""
    selected.value = run_id
    if run_id is None:
        st.query_params.pop("run", None)


experiments = sorted({*EXPERIMENTS, *(run.spec.experiment for run in runs)})
no_states = list[str]()
selected = settings.value("run", parse_run, None)
search = settings.value("search", str, "")
states = settings.value("state", parse_states, no_states, lambda states: ",".join(states) or ALL)
experiment = settings.choice("experiment", "Experiment", [ALL, *experiments], ALL, widget="list")
for name, usual in (("search", ""), ("state", ALL), ("experiment", ALL)):
    if st.query_params.get_all(name) == [usual]:
        del st.query_params[name]  # a cleared filter leaves nothing behind
with said:
    settings.show_notices()

queued = [run.id for run in runs if run.state == "queued"]
active = [run.id for run in runs if run.state in ACTIVE]
drawn = view.depends_on(store, active, ledger)
if not drawn[-1]:
    waiting = "Queued runs wait" if queued else "New runs will wait"
    said.markdown(
        f":orange[{waiting}: nothing starts them. Open the lab with `python -m lab`, or `make lab`.]"
    )

with st.container(horizontal=True, vertical_alignment="bottom", key="instruments"):
    st.text_input("Search", key=search.key, placeholder="variant, seed, reason", width=240)
    st.pills("State", view.SHOWN_STATES, selection_mode="multi", key=states.key)
    experiment.draw(width=190)

only = None if experiment.value == ALL else experiment.value
found = view.ordered(view.matching(runs, search.value, states.value, only))
shown = found[: st.session_state.get(ROWS, ROWS_AT_ONCE)]
if not runs:
    st.markdown("No runs yet. Make your two guesses, then train.")
    frame.link(section("averages.py"), ":primary[Averages: train four models]")
elif not shown:
    st.markdown(f"No run matches these filters; there are {len(runs):,}.")
else:
    table.draw(store, shown, queued, selected.value, select)
    if len(found) > len(shown):
        with st.container(horizontal=True, vertical_alignment="center"):
            st.caption(f"{len(shown):,} of {len(found):,} runs, newest first", width="content")
            more = {ROWS: len(shown) + ROWS_AT_ONCE}
            st.button("Show more", type="tertiary", on_click=st.session_state.update, args=(more,))

chosen = next((run for run in runs if run.id == selected.value), None)
if chosen is not None:
    panel.draw(store, chosen, queued, select)
elif shown:
    st.caption("Tick a run to see what happened to it, and what can be done about it.")


# With no run under way it only looks whether another session or a shell has started one.
seconds = LIVE_SECONDS if active or queued else IDLE_SECONDS
redraw_on_change(lambda: view.depends_on(store, active), drawn, seconds)
