"""What the page on induction shows of one trained model: its heads over the steps, on a sequence, taken away.

Each is drawn of what one probe found.
"""

import streamlit as st

from engine.chapter.definitions import ACCURACY
from engine.circuits.results import Head
from engine.probes.registry import ABLATE_CHOSEN, INDUCTION_MAPS
from engine.probes.results.induction import Ablation, Formation, Without
from lab import bench, probes
from lab.charts import drawing
from lab.charts.maps.panel import labels
from lab.sections.induction import ablation, formation, parts, probe
from lab.sections.induction import maps as induction_maps
from lab.sections.induction.formation import Curves
from lab.sections.induction.probe import FOUND, PERIODS, Subject
from lab.settings import Settings
from lab.shell import export, frame, palette

SCORES_WIDTH, STEP_WIDTH = 464, 624  # px


def over_steps(settings: Settings, measured: Formation, curves: Curves) -> None:
    """Three charts on one axis, the slider under them, and the chosen step in numbers and words."""
    at = _chosen_step(settings, measured)
    rose = parts.rise(curves[ACCURACY])
    specs = formation.stacked(measured, curves, at)
    with st.container(horizontal=True, vertical_alignment="center", key="figure-title-formation"):
        st.markdown(
            "**Loss, and every head’s two scores** :gray[mean attention weights; coloured: has the role]",
            width="stretch",
        )
        with st.popover("Export", type="tertiary"):
            export.downloads(
                "induction-formation",
                lambda: formation.together(formation.stacked(measured, curves, at)),
                lambda: formation.csv_rows(measured),
            )
    for name, spec in specs.items():
        with st.container(key=f"figure-{name}", gap=None):
            st.markdown(f":small[**{formation.TITLES[name]}**]")
            drawing.draw(spec, key=f"induction.{name}")
    st.markdown(formation.formed_words(measured, rose), width=frame.MEASURE)
    st.select_slider(
        "After step",
        measured.steps,
        format_func=lambda step: f"{step:,}",
        key=settings.key("at"),
        width=bench.HALF,
    )
    with st.container(horizontal=True, gap="small", key="results-scores"):
        with st.container(width=SCORES_WIDTH):
            formation.scores_table(measured, at).draw()
        with st.container(width=STEP_WIDTH):
            st.markdown(formation.step_words(measured, curves, at))
            st.markdown(formation.sharing(measured))
            st.caption(
                f"Head 1.3: layer 1, head 3. Over {measured.sequences} unseen sequences. All alike: a "
                "head that gives everything it sees the same weight."
            )


def _chosen_step(settings: Settings, measured: Formation) -> int:
    """The step of the slider: a kept one, at first that of formation."""
    key, steps = settings.key("at"), measured.steps
    at = st.session_state[key]
    if at is None:
        at = measured.formed if measured.formed is not None else steps[-1]
    elif at not in steps:
        nearest = min(steps, key=lambda step: abs(step - at))
        st.markdown(f":orange[No weights were kept at step {at:,}. Used: {nearest:,}.]")
        at = nearest
    st.session_state[key] = at
    return int(at)


def side_by_side(settings: Settings, measured: Formation, subject: Subject) -> None:
    """The maps of two heads on one sequence, at the chosen step."""
    st.subheader("The two heads on one sequence", anchor=False)
    with st.container(horizontal=True, vertical_alignment="bottom", key="instruments-maps"):
        st.segmented_control("Repeats after, tokens", PERIODS, key=settings.key("period"), required=True)
        row_place = st.empty()
        said = bench.status_line()
    period = st.session_state[settings.key("period")]
    maps = probes.attempt(said, INDUCTION_MAPS, run=subject.run, period=period)
    if not maps:
        return
    names, row = labels(maps.pieces), _chosen_row(settings, period)
    key = settings.key("row")
    row_place.selectbox(
        "Row to read out", range(len(names)), format_func=names.__getitem__, key=key, width=160
    )
    look = induction_maps.Look(maps, measured, st.session_state[settings.key("at")], row, palette.current())
    for side in induction_maps.SIDES:
        _chosen_head(settings, side, measured)
    look.key()
    with st.container(horizontal=True):
        for side in induction_maps.SIDES:
            with st.container(width=induction_maps.WIDTH):
                look.draw(side, settings.key(side))
    st.caption(
        "Rows are queries, top to bottom; columns are keys; each row sums to 1. Colour follows the square "
        "root of the weight, fixed from 0 to 1. Grey: masked. The maps follow the step above."
    )


def _chosen_row(settings: Settings, period: int) -> int:
    """The row of the maps that is read out: one of them, at first one of the second half."""
    key, usual = settings.key("row"), period + 3
    row = st.session_state[key]
    if row is not None and row >= 2 * period:
        st.markdown(f":orange[Row {row} is beyond this sequence’s {2 * period} tokens. Used: {usual}.]")
    if row is None or row >= 2 * period:
        st.session_state[key] = usual
    return int(st.session_state[key])


def _chosen_head(settings: Settings, side: str, measured: Formation) -> None:
    """A head of another model than this one is said, and the found one taken."""
    key = settings.key(side)
    if st.session_state[key] not in induction_maps.options(measured):
        st.markdown(f":orange[{side} is {st.session_state[key]}, which this model has not. Used: found.]")
        st.session_state[key] = FOUND


def ablated(settings: Settings, found: Ablation, subject: Subject) -> None:
    """Chart, table and words of what is left without some heads."""
    own = _own_heads(settings, found, subject)
    with st.container(horizontal=True, vertical_alignment="center", key="figure-title-ablation"):
        st.markdown(
            "**Right on the second half without these heads** :gray[dot: zeros; ring: means; dashed: "
            "nothing taken away, and no context]",
            width="stretch",
        )
        with st.popover("Export", type="tertiary"):
            export.downloads(
                "induction-ablation",
                lambda: ablation.chart(found, own),
                lambda: ablation.csv_rows(found, own),
            )
    with st.container(key="figure-ablation"):
        drawing.draw(ablation.chart(found, own), key="induction.ablation")
    bench.beside("results-ablation", [ablation.results(found, own)], ablation.words(found))


def _own_heads(settings: Settings, found: Ablation, subject: Subject) -> Without | None:
    """What is left without the heads that the reader chose, where there are any."""
    key = settings.key("heads")
    there = probe.head_names(found.scores.previous_token)
    if missing := [head for head in st.session_state[key] if head not in there]:
        st.markdown(f":orange[This model has no head {', '.join(missing)}. Left out.]")
        st.session_state[key] = [head for head in st.session_state[key] if head in there]
    st.pills("Take away together", there, selection_mode="multi", key=key)
    heads = [Head(*(int(number) - 1 for number in name.split("."))) for name in sorted(st.session_state[key])]
    if not heads:
        return None
    one = subject.weights
    return probes.attempt(st.empty(), ABLATE_CHOSEN, weights=one.path, heads=heads, seed=one.seed)
