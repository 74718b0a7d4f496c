"""One trained model's heads over the steps at which its weights were kept, and two of them at one step."""

import streamlit as st

from engine.chapter.definitions import ACCURACY
from engine.probes.results.induction import Formation
from lab import bench
from lab.bench import Sweep
from lab.charts import drawing
from lab.sections.induction import formation, parts
from lab.sections.induction.maps import SideBySide
from lab.sections.induction.parts import LOSS, SCORE
from lab.settings import Settings, whole
from lab.shell import frame
from lab.weights import Opened

SCORES_WIDTH, STEP_WIDTH = 528, 560  # px


class OverSteps:
    """The settings of what is found over the steps: one of them, and those of the maps."""

    def __init__(self, settings: Settings) -> None:
        self._at = settings.value("at", whole("at", 0, 10_000_000), None, widget=st.select_slider)
        self._maps = SideBySide(settings)

    def draw(self, found: Formation, opened: Opened, sweep: Sweep) -> None:
        """Three charts on one axis, the slider under them, the chosen step in numbers, words and maps."""
        (one,) = opened.values()
        assert one.run is not None  # or it had kept none
        curves = {metric: sweep.curve(one.run, metric).points for metric in (ACCURACY, LOSS, SCORE)}
        at = self._chosen_step(found)
        specs = formation.stacked(found, curves, at)
        bench.figure_title(
            "Loss, and every head’s three scores",
            "coloured: has the role",
            "induction-formation",
            lambda: formation.together(specs),
            lambda: formation.csv_rows(found),
            key="figure-title-formation",
        )
        for name, spec in specs.items():
            with st.container(key=f"figure-{name}", gap=None):
                st.markdown(f":small[**{formation.TITLES[name]}**]")
                drawing.draw(spec, key=f"induction.{name}")
        st.markdown(formation.formed_words(found, parts.rise(curves[ACCURACY])), width=frame.MEASURE)
        self._at.draw(
            label="After step", options=found.steps, format_func=lambda step: f"{step:,}", width=bench.HALF
        )
        with st.container(horizontal=True, gap="small", key="results-scores"):
            with st.container(width=SCORES_WIDTH):
                formation.scores_table(found, at).draw()
            with st.container(width=STEP_WIDTH):
                st.markdown(formation.step_words(found, curves, at))
                st.markdown(formation.sharing(found))
                st.caption(
                    f"Head 1.3: layer 1, head 3. Over {found.sequences} unseen sequences. Bold: it "
                    "counts. All alike: a head that gives everything it sees the same weight. Copying "
                    "(Elhage et al. 2021): of the eigenvalues of W_U W_O W_V W_E, their sum over the sum of "
                    "their sizes."
                )
        self._maps.draw(found, one.path.parent, at)

    def _chosen_step(self, found: Formation) -> int:
        """The step of the slider: a kept one, at first that of formation."""
        at = self._at.value
        if at is None:
            at = found.formed if found.formed is not None else found.steps[-1]
        elif at not in found.steps:
            nearest = min(found.steps, key=lambda step: abs(step - (at or 0)))
            st.markdown(f":orange[No weights were kept at step {at:,}. Used: {nearest:,}.]")
            at = nearest
        self._at.value = at
        return at
