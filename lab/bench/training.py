"""The training page as one call: questions, settings, one button, live figure, tables, what to notice."""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import streamlit as st

from engine.chapter.experiments import Experiment
from engine.runs import dispatcher
from engine.runs.spec import RunSpec
from lab.bench import button, status
from lab.bench.figures import Figure, perplexity
from lab.bench.layout import BUTTON, beside, figure_title, status_line
from lab.bench.questions import NOTHING_YET, WAITING, Question, ask, left_out
from lab.bench.remarks import remarks
from lab.bench.request import Request, Setup
from lab.bench.sweep import Sweep, requested
from lab.bench.tables import Table, results
from lab.settings import Settings
from lab.shell.watch import IDLE_SECONDS, Watched

if TYPE_CHECKING:
    from streamlit.delta_generator import DeltaGenerator


def train(
    experiment: Experiment,
    settings: Settings,
    *,
    questions: Sequence[Question],
    notice: Callable[[Sweep], str] = lambda now: "",
    figure: Callable[[Sweep], Figure] = perplexity,
    tables: Sequence[Callable[[Sweep], Table]] = (results,),
    caption: Callable[[Sweep], str] = remarks,
    also: Sequence[Experiment] = (),
    extra: Callable[[Request], Iterable[RunSpec]] = lambda request: (),
    setup: Setup | None = None,
    under: Callable[[Request], None] = lambda request: None,
    below: Sequence[Callable[[Sweep], None]] = (),
    waits: bool = True,
) -> Sweep:
    """All that a page which trains has, in the order of its reader. Returns the sweep that it shows.

    notice: what there is to notice, in Markdown; empty while there is nothing. waits: whether it and the
    answers come only once every model has ended. caption: below the last of the tables.
    also: experiments whose runs are trained with these. extra: runs that are shown with them, not trained.
    setup: the settings, where they are more than budget, seeds and text. under: draws below their row.
    below: draws more of the same sweep, below its tables.
    """
    setup = setup or Setup(experiment, settings)
    guesses = ask(questions, settings)
    trained, refused = requested(setup.request, experiment, *also)
    sweep = trained.joined(extra(setup.request)) if trained.wanted else trained
    with st.container(horizontal=True, vertical_alignment="bottom", key="instruments"):
        setup.draw()
        button.draw(trained, settings)
        status_slot = status_line()
    setup.draw_missing()
    under(setup.request)
    drawn = figure(sweep)
    paused = _title(drawn, sweep, settings)

    def words(now: Sweep) -> str:
        said = []
        if now.has_ended or not waits:
            answers = (question.answered(now, guesses[question.name].value) for question in questions)
            said = [left_out(now) if waits else "", *answers, notice(now)]
        return "\n\n".join(filter(None, said)) or (WAITING if now.unended else NOTHING_YET)

    def draw(now: Sweep) -> None:
        drawn.draw(now)
        made = [table(now) for table in tables]
        beside("results", [*made[:-1], made[-1].with_caption(caption(now))], words(now))
        for section in below:
            section(now)

    follow(sweep, status_slot, draw, settings, refused=refused, paused=paused, about=trained)
    return sweep


def train_also(
    sweep: Sweep,
    settings: Settings,
    name: str,
    label: str | None,
    draw: Callable[[Sweep], None],
    *,
    widgets: Callable[[], None] = lambda: None,
    refused: str | None = None,
    width: int = BUTTON,
) -> None:
    """Another sweep of the page: a row with its widgets, button and status, and what is drawn of it.

    name: of the row among the page's. label: of its button.
    """
    with st.container(horizontal=True, vertical_alignment="bottom", key=f"instruments-{name}"):
        widgets()
        button.draw(sweep, settings, label, name, width)
        status_slot = status_line()
    follow(sweep, status_slot, draw, settings, refused=refused)


def follow(
    sweep: Sweep,
    status_slot: "DeltaGenerator",
    draw: Callable[[Sweep], None],
    settings: Settings,
    *,
    refused: str | None = None,
    paused: bool = False,
    about: Sweep | None = None,
) -> None:
    """Draw a sweep, anew each second while it is under way, with its status line in ``status_slot``.

    refused: the line instead, when there can be no such sweep. about: the part of it that the line is about.
    """
    seconds = None if sweep.unended else IDLE_SECONDS
    settings.watched.append(Watched(lambda: sweep.again().states, sweep.states, seconds))
    live = bool(sweep.unended) and not paused
    of = (about or sweep).wanted

    @st.fragment(run_every=1.0 if live else None)
    def drawn() -> None:
        now = sweep.again()
        if live and not now.unended:
            st.rerun()  # the whole page: its button, its exports and this timer are about runs that ended
        part = now if len(of) == len(now.wanted) else now.part(lambda spec: spec.digest in of)
        status_slot.markdown(f":small[{refused or _standing(part)}]")
        draw(now)

    drawn()


def _title(drawn: Figure, sweep: Sweep, settings: Settings) -> bool:
    """The line above the figure. Returns whether live drawing is paused."""
    paused = False

    def widgets() -> None:
        nonlocal paused
        drawn.widgets()
        if sweep.unended:
            paused = st.toggle("Pause live", key=settings.key("paused"))

    figure_title(
        drawn.title,
        drawn.note,
        drawn.name,
        lambda: drawn.chart(sweep.again()),
        lambda: drawn.rows(sweep.again()),
        widgets=widgets,
    )
    return paused


def _standing(sweep: Sweep) -> str:
    """The status line, with what keeps it from moving."""
    if failed := button.error():
        return failed
    line = status.of(sweep).markdown
    if sweep.unended and not dispatcher.running():
        line += "  \n:orange[Nothing will start: run `python -m lab`]"
    return line
