"""The experiment bench: guesses, settings, one button, live curves, the results table.

Everything on it follows from an ``Experiment``: a page of one passes that, its colours and its words.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import streamlit as st

from engine.chapter import reference
from engine.chapter.experiments import METRICS, Experiment
from engine.runs import dispatcher, launch
from engine.runs.spec import RunSpec
from engine.runs.store import open_store
from lab.bench import instruments, status, tables
from lab.bench.instruments import Choice
from lab.bench.sweep import Row, Sweep, difference
from lab.charts import drawing, lines
from lab.charts.lines import Frame, Line
from lab.settings import Settings, one_of
from lab.shell import export
from lab.shell.styles import style
from lab.shell.watch import redraw_on_change
from lab.words import NBSP, plain, quantity

if TYPE_CHECKING:
    from streamlit.delta_generator import DeltaGenerator

IDLE_SECONDS = 3.0
NAMES, HALF = instruments.NAMES, instruments.HALF
TABLE_WIDTH, NOTICE_WIDTH, STATUS_WIDTH = 752, 336, 300  # px

Rows = dict[str, Row]
Guesses = dict[str, str | None]


def show(
    experiment: Experiment,
    settings: Settings,
    notice: Callable[[Rows], str],
    low: float | None = None,
    *,
    alone: bool = True,
) -> tuple[Choice, Sweep]:
    """The whole bench. Returns what was chosen, and its sweep as it was drawn.

    settings: made by the page with at least ``NAMES``, any of its own seeded before.
    notice: what there is to notice, in Markdown, once there are results.
    low: where the perplexity axis ends below, for an experiment that falls under what the chapter prints.
    alone: whether it is the only sweep of the page; else the page has to ``watch`` them all.
    """
    guesses: Guesses = {
        name: settings.seed(name, one_of(name, experiment.variants), None) for name in ("best", "worst")
    }
    choice = choose(experiment, settings)
    instruments.guesses(experiment, settings)
    sweep, refused = asked((experiment,), choice)
    said = instrument_row(experiment, sweep, settings, choice)
    frame = chart_frame(experiment, choice.budget, sweep.of_the_chapters_text, low)
    paused = _figure_title(experiment, sweep, choice, frame)

    def draw(now: Sweep) -> None:
        chart = lines.line_chart(frame, chart_lines(now), now.progress if now.unended else 0.0)
        with st.container(key="figure"):
            drawing.draw(chart, key=f"{experiment.id}.chart")
        with st.container(horizontal=True, gap="medium", key="results"):
            with st.container(width=TABLE_WIDTH):
                _table(now, choice)
            with st.container(width=NOTICE_WIDTH):
                _what_to_notice(now, guesses, notice)

    follow(sweep, said, draw, refused=refused, paused=paused)
    if alone:
        watch(sweep)
    return choice, sweep


def choose(experiment: Experiment, settings: Settings) -> Choice:
    """What the reader chose; what was wrong with it in the URL is said here."""
    choice, instead = instruments.choose(experiment, settings)
    settings.show_notices()
    if instead:
        st.markdown(f":orange[{plain(instead)}]")
    return choice


def instrument_row(
    experiment: Experiment, sweep: Sweep, settings: Settings, choice: Choice
) -> "DeltaGenerator":
    """Settings, the one button, and the place for the status line, which is returned."""
    with st.container(horizontal=True, vertical_alignment="bottom", key="instruments"):
        instruments.row(experiment, settings)
        instruments.action(sweep, settings)
        said = status_line()
    instruments.wanting(settings, choice)
    return said


def status_line() -> "DeltaGenerator":
    """The place for a sweep's status, of fixed width: a longer line must not push the figure down."""
    with st.container(width=STATUS_WIDTH):
        return st.empty()


def follow(
    sweep: Sweep,
    said: "DeltaGenerator",
    draw: Callable[[Sweep], None],
    *,
    refused: str | None = None,
    paused: bool = False,
    told: Callable[[Sweep], Sweep] = lambda now: now,
) -> None:
    """Draw a sweep, anew each second while it is under way, with its status line in ``said``.

    refused: the line instead, when there can be no such sweep. told: the part of it that the line is about.
    """
    live = bool(sweep.unended) and not paused

    @st.fragment(run_every=1.0 if live else None)
    def results() -> None:
        now = sweep.again()
        if live and not now.unended:
            st.rerun()  # the whole page: its button, its exports and this timer are about runs that ended
        said.markdown(f":small[{refused or _standing(told(now))}]")
        draw(now)

    results()


def watch(*sweeps: Sweep) -> None:
    """While none is under way: another reader, or the command line, may start or finish the same."""
    if not any(sweep.unended for sweep in sweeps):
        drawn = [sweep.states for sweep in sweeps]
        redraw_on_change(lambda: [sweep.again().states for sweep in sweeps], drawn, IDLE_SECONDS)


def chart_frame(
    experiment: Experiment, budget_name: str, chapters_text: bool, low: float | None = None
) -> Frame:
    """Where curves will be drawn: from ``low``, or half the chapter's lowest figure, to a uniform guess."""
    values = [experiment.chapter.get((name, experiment.metric)) for name in experiment.variants]
    rules = tuple((value.middle, not value.printed) for value in values if value)
    vocabulary = max(experiment.variant(name).config.vocab_size for name in experiment.variants)
    steps, full = experiment.budget(budget_name).steps, experiment.budget("chapter").steps
    return Frame(
        steps=steps,
        low=min((value for value, _ in rules), default=20.0) / 2 if low is None else low,
        high=1.25 * vocabulary,
        rules=rules if chapters_text else (),
        note="" if steps == full else f", after {full:,} steps",
    )


def chart_lines(sweep: Sweep) -> list[Line]:
    """One line a variant; a dashed one comes last, so that it lies on top of what it modifies."""
    order = sorted(sweep.experiment.variants, key=lambda name: style(name).dash != "solid")
    return [Line(sweep.experiment.variant(name).short, style(name), sweep.curves(name)) for name in order]


def asked(experiments: Sequence[Experiment], choice: Choice) -> tuple[Sweep, str | None]:
    """The sweep of these settings, and the sentence that says why there can be none.

    experiments: whose runs it is made of, seed by seed; what two of them share is in it once.
    """
    first, store = experiments[0], open_store()
    if choice.lacks or choice.corpus_id is None:
        return Sweep(first, {}, store), f":gray[{choice.lacks}]"
    wanted: dict[str, RunSpec] = {}
    try:
        for seed in choice.seeds:
            for experiment in experiments:
                for spec in launch.specs(experiment.id, choice.budget, (seed,), choice.corpus_id):
                    wanted.setdefault(spec.digest, spec)
    except ValueError as error:
        return Sweep(first, {}, store), f":red[{plain(str(error))}]"
    return Sweep(first, wanted, store), None


def _standing(sweep: Sweep) -> str:
    """The status line, with what keeps it from moving."""
    if error := st.session_state.pop(instruments.ERROR, None):
        return f":red[{plain(error)}]"
    line = status.of(sweep).markdown
    if sweep.unended and not dispatcher.running():
        line += "  \n:orange[Nothing will start: run `python -m lab`]"
    return line


def _figure_title(experiment: Experiment, sweep: Sweep, choice: Choice, frame: Frame) -> bool:
    """The line above the chart, its exports at the right. Returns whether live drawing is paused."""
    paused = False
    with st.container(horizontal=True, vertical_alignment="center", key="figure-title"):
        what = METRICS[experiment.metric].capitalize()
        st.markdown(f"**{what}** :gray[log scale, lower is better]", width="stretch")
        if sweep.unended:
            paused = st.toggle("Pause live", key=f"{experiment.id}.paused")
        with st.popover("Export", type="tertiary"):
            export.downloads(
                f"{experiment.id}-{choice.budget}",
                lambda: lines.line_chart(frame, chart_lines(sweep.again())),
                lambda: sweep.again().table(),
            )
    return paused


def _table(sweep: Sweep, choice: Choice) -> None:
    """The four columns, and below them what they hold and how far they can be compared."""
    experiment, rows = sweep.experiment, sweep.rows()
    chapters_text = sweep.of_the_chapters_text
    full = choice.budget == "chapter"
    st.table(
        tables.styled(experiment, rows, comparable=full, text=chapters_text),
        border="horizontal",
        hide_index=True,
    )
    st.caption(" ".join(_remarks(experiment, rows, choice, chapters_text)))


def _remarks(experiment: Experiment, rows: list[Row], choice: Choice, chapters_text: bool) -> list[str]:
    said = general_remarks(experiment, rows, choice)
    values = [row.chapter for row in rows if row.chapter]
    if not chapters_text:
        said.append("Yours are of another text, so nothing is compared.")
    elif choice.budget != "chapter":
        said.append(
            f"Chapter and reference: {experiment.budget('chapter').steps:,} steps; "
            f"yours: {experiment.budget(choice.budget).steps:,}, so a grey difference judges nothing. "
            f"The quick budget already shows that {experiment.shows}; it cannot show {experiment.hides}."
        )
    elif values:
        said.append(f"Green: within {100 * max(value.tolerance for value in values):.0f} % of the chapter.")
        if noise := [experiment.variant(row.variant).short for row in rows if tables.is_noise(row)]:
            said.append(f"Within seed noise (under two standard deviations): {plain(', '.join(noise))}.")
    return said


def general_remarks(experiment: Experiment, rows: Sequence[Row], choice: Choice) -> list[str]:
    """What a table of four columns holds, whatever it compares."""
    seeds = max((len(row.yours) for row in rows), default=0) or len(choice.seeds)
    shipped = reference.load(experiment.id)
    said = [
        f"Mean ± standard deviation over {seeds} seeds."
        if seeds > 1
        else "One seed: no spread, so noise is unknown.",
        f"Reference: shipped runs, {plain(shipped.device)}, {shipped.date}."
        if shipped
        else "No reference is shipped with this copy.",
    ]
    if any(row.chapter and not row.chapter.printed for row in rows):
        said.append("*Italic*: inferred from the chapter’s prose, not printed there.")
    return said + list(dict.fromkeys(row.chapter.gap for row in rows if row.chapter and row.chapter.gap))


def _what_to_notice(sweep: Sweep, guesses: Guesses, notice: Callable[[Rows], str]) -> None:
    rows = {row.variant: row for row in sweep.rows()}
    st.subheader("What to notice", anchor=False)
    if all(row.mean is not None or row.diverged for row in rows.values()):
        st.markdown(verdict(sweep.experiment, rows, guesses))
        st.markdown(notice(rows))
    elif sweep.unended:
        st.markdown("Your guesses are answered here when every model has ended.")
    else:
        st.markdown("No runs yet. Make your two guesses, then train.")


def verdict(experiment: Experiment, rows: Rows, guesses: Guesses) -> str:
    """What was guessed and what is so: the lowest and the highest mean, and by how much."""
    order = sorted((row for row in rows.values() if row.mean is not None), key=lambda row: row.mean or 0.0)
    if len(order) < 2:
        return "Too few models ended with a figure to compare."
    lost = [short(experiment, row) for row in rows.values() if row.mean is None]
    said = [f"Diverged, and left out here: {', '.join(lost)}."] if lost else []
    for name, first, second in (("best", order[0], order[1]), ("worst", order[-1], order[-2])):
        guess, gap = guesses[name], difference(first, second)
        lead = f"level with {short(experiment, second)}"
        if gap and not gap.level:
            lead = f"by {quantity(abs(gap.points))}{', within seed noise' if gap.noise else ''}"
        guessed = f"You guessed *{short(experiment, rows[guess])}*. " if guess else ""
        said.append(f"{guessed}The {name} is **{short(experiment, first)}**, {lead}.")
    return " ".join(said)


def short(experiment: Experiment, row: Row) -> str:
    """A variant's short name in a sentence, never broken after its first sign."""
    return plain(experiment.variant(row.variant).short.replace("+ ", f"+{NBSP}"))
