"""The experiment bench: guesses, settings, one button, live curves, the results table.

Everything on it follows from an ``Experiment``: a page of one passes that, its colours and its words.
"""

from collections.abc import Callable

import streamlit as st

from engine import reference
from engine.experiments import Experiment
from engine.runs import dispatcher, launch
from engine.runs.store import open_store
from engine.variants import variant
from lab import charts, export, instruments, status, table, vega
from lab.charts import Frame, Line
from lab.controls import NBSP, Settings, one_of, plain, quantity
from lab.instruments import Choice
from lab.measured import Row, Sweep, difference
from lab.styles import style
from lab.watch import redraw_on_change

IDLE_SECONDS = 3.0
NAMES, HALF = instruments.NAMES, instruments.HALF
TABLE_WIDTH, NOTICE_WIDTH, STATUS_WIDTH = 752, 336, 300  # px

Rows = dict[str, Row]
Guesses = dict[str, str | None]


def show(experiment: Experiment, settings: Settings, notice: Callable[[Rows], str]) -> None:
    """The whole bench.

    settings: made by the page with at least ``NAMES``, any of its own seeded before.
    notice: what there is to notice, in Markdown, once there are results.
    """
    guesses: Guesses = {
        name: settings.seed(name, one_of(name, experiment.variants), None) for name in ("best", "worst")
    }
    choice, instead = instruments.choose(experiment, settings)
    settings.show_notices()
    if instead:
        st.markdown(f":orange[{plain(instead)}]")
    instruments.guesses(experiment, settings)
    sweep, refused = _sweep(experiment, choice)
    with st.container(horizontal=True, vertical_alignment="bottom", key="instruments"):
        instruments.row(experiment, settings)
        instruments.action(sweep, settings)
        with st.container(width=STATUS_WIDTH):  # fixed: a longer line must not push the figure down
            said = st.empty()
    instruments.wanting(settings, choice)
    frame = chart_frame(experiment, choice.budget, sweep.of_the_chapters_text)
    paused = _figure_title(experiment, sweep, choice, frame)
    live = bool(sweep.unended) and not paused

    @st.fragment(run_every=1.0 if live else None)
    def results() -> None:
        now = sweep.again()
        if live and not now.unended:
            st.rerun()  # the whole page: its button, its exports and this timer are about runs that ended
        said.markdown(f":small[{refused or _standing(now)}]")
        chart = charts.perplexity_chart(frame, chart_lines(now), now.progress if now.unended else 0.0)
        with st.container(key="figure"):
            vega.draw(chart, key=f"{experiment.id}.chart")
        with st.container(horizontal=True, gap="medium", key="results"):
            with st.container(width=TABLE_WIDTH):
                _table(now, choice)
            with st.container(width=NOTICE_WIDTH):
                _what_to_notice(now, guesses, notice)

    results()
    if not sweep.unended:  # another reader, or the command line, may start or finish the same
        redraw_on_change(lambda: sweep.again().states, sweep.states, IDLE_SECONDS)


def chart_frame(experiment: Experiment, budget_name: str, chapters_text: bool) -> Frame:
    """Where curves will be drawn: between half the chapter's lowest figure and a uniform guess."""
    values = [experiment.chapter.get((name, experiment.metric)) for name in experiment.variants]
    rules = tuple((value.middle, not value.printed) for value in values if value)
    vocabulary = max(variant(name).config.vocab_size for name in experiment.variants)
    steps, full = experiment.budget(budget_name).steps, experiment.budget("chapter").steps
    return Frame(
        steps=steps,
        low=min((value for value, _ in rules), default=20.0) / 2,
        high=1.25 * vocabulary,
        rules=rules if chapters_text else (),
        note="" if steps == full else f", after {full:,} steps",
    )


def chart_lines(sweep: Sweep) -> list[Line]:
    """One line a variant; a dashed one comes last, so that it lies on top of what it modifies."""
    order = sorted(sweep.experiment.variants, key=lambda name: style(name).dash != "solid")
    return [Line(variant(name).short, style(name), sweep.curves(name)) for name in order]


def _sweep(experiment: Experiment, choice: Choice) -> tuple[Sweep, str | None]:
    """The sweep of these settings, and the sentence that says why there can be none."""
    if choice.lacks or choice.corpus_id is None:
        return Sweep(experiment, {}, open_store()), f":gray[{choice.lacks}]"
    try:
        specs = launch.specs(experiment.id, choice.budget, choice.seeds, choice.corpus_id)
    except ValueError as error:
        return Sweep(experiment, {}, open_store()), f":red[{plain(str(error))}]"
    return Sweep.of(experiment, specs, open_store()), None


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
        st.markdown(f"**{experiment.unit.capitalize()}** :gray[log scale, lower is better]", width="stretch")
        if sweep.unended:
            paused = st.toggle("Pause live", key=f"{experiment.id}.paused")
        with st.popover("Export", type="tertiary"):
            export.downloads(
                f"{experiment.id}-{choice.budget}",
                lambda: charts.perplexity_chart(frame, chart_lines(sweep.again())),
                lambda: sweep.again().table(),
            )
    return paused


def _table(sweep: Sweep, choice: Choice) -> None:
    """The four columns, and below them what they hold and how far they can be compared."""
    experiment, rows = sweep.experiment, sweep.rows()
    chapters_text = sweep.of_the_chapters_text
    full = choice.budget == "chapter"
    st.table(
        table.styled(rows, experiment.metric, comparable=full, text=chapters_text),
        border="horizontal",
        hide_index=True,
    )
    st.caption(" ".join(_remarks(experiment, rows, choice, chapters_text)))


def _remarks(experiment: Experiment, rows: list[Row], choice: Choice, chapters_text: bool) -> list[str]:
    seeds = max(len(row.yours) for row in rows) or len(choice.seeds)
    shipped = reference.load(experiment.id)
    said = [
        f"Mean ± standard deviation over {seeds} seeds."
        if seeds > 1
        else "One seed: no spread, so noise is unknown."
    ]
    said.append(
        f"Reference: shipped runs, {plain(shipped.device)}, {shipped.date}."
        if shipped
        else "No reference is shipped with this copy."
    )
    if any(row.chapter and not row.chapter.printed for row in rows):
        said.append("*Italic*: inferred from the chapter’s prose, not printed there.")
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
        if noise := [variant(row.variant).short for row in rows if table.is_noise(row)]:
            said.append(f"Within seed noise (under two standard deviations): {plain(', '.join(noise))}.")
    return said


def _what_to_notice(sweep: Sweep, guesses: Guesses, notice: Callable[[Rows], str]) -> None:
    rows = {row.variant: row for row in sweep.rows()}
    st.subheader("What to notice", anchor=False)
    if all(row.mean is not None or row.diverged for row in rows.values()):
        st.markdown(verdict(rows, guesses))
        st.markdown(notice(rows))
    elif sweep.unended:
        st.markdown("Your guesses are answered here when every model has ended.")
    else:
        st.markdown("No runs yet. Make your two guesses, then train.")


def verdict(rows: Rows, guesses: Guesses) -> str:
    """What was guessed and what is so: the lowest and the highest mean, and by how much."""
    order = sorted((row for row in rows.values() if row.mean is not None), key=lambda row: row.mean or 0.0)
    if len(order) < 2:
        return "Too few models ended with a figure to compare."
    lost = [short(row) for row in rows.values() if row.mean is None]
    said = [f"Diverged, and left out here: {', '.join(lost)}."] if lost else []
    for name, first, second in (("best", order[0], order[1]), ("worst", order[-1], order[-2])):
        guess, gap = guesses[name], difference(first, second)
        lead = f"level with {short(second)}"
        if gap and not gap.level:
            lead = f"by {quantity(abs(gap.points))}{', within seed noise' if gap.noise else ''}"
        guessed = f"You guessed *{short(rows[guess])}*. " if guess else ""
        said.append(f"{guessed}The {name} is **{short(first)}**, {lead}.")
    return " ".join(said)


def short(row: Row) -> str:
    """A variant's short name in a sentence, never broken after its first sign."""
    return plain(variant(row.variant).short.replace("+ ", f"+{NBSP}"))
