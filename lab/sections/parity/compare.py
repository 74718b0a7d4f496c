"""Ours against theirs, and the wrong ones against the tests: the settings, and what is drawn by them."""

import streamlit as st

from engine.chapter.experiments import parse_seeds
from engine.chapter.measurements import PARITY, PRECISIONS
from engine.probes import zoo
from engine.probes.registry import PARITY as PARITY_PROBE
from engine.probes.registry import ZOO
from engine.system.errors import InvalidInput
from lab import bench, probes
from lab.charts import drawing
from lab.sections.parity import parts
from lab.sections.parity.chart import Comparison, figure
from lab.sections.parity.parts import BETS, MASKS, SCALES, TESTS, TITLES
from lab.settings import Settings
from lab.words import plain

SEEDS = ("0", "0,1,2", "0,1,2,3,4")
MAX_SEEDS = 20


def _seeds_of(text: str) -> str:
    """Seeds in the URL, checked and written as the lab writes them."""
    seeds = parse_seeds(text)
    if len(seeds) > MAX_SEEDS:
        raise InvalidInput(f"seeds are {len(seeds)}; allowed: at most {MAX_SEEDS}.")
    return ",".join(map(str, seeds))


def _seeds_label(seeds: str) -> str:
    """How many, or which, where the reader's own stand in the URL."""
    return str(len(seeds.split(","))) if seeds in SEEDS else f"seeds {seeds.replace(',', ', ')}"


class Compare:
    """Ours against PyTorch's."""

    def __init__(self, settings: Settings) -> None:
        self._key = settings.key("compare")
        self._precision = settings.choice("precision", "Precision", PRECISIONS, "float32")
        self._mask = settings.choice("mask", "Mask", MASKS, "causal")
        self._scale = settings.choice("scale", "Scores divided by", SCALES, "sqrt")
        self._seeds = settings.choice("seeds", "Seeds", SEEDS, "0", shown=_seeds_label, parse=_seeds_of)

    def draw(self, largest: str | None, coarsest: str | None) -> None:
        """Which comparisons are shown, the button that makes them; figure, tables, what to notice.

        largest, coarsest: the reader's guesses.
        """
        with st.container(horizontal=True, vertical_alignment="bottom", key="instruments"):
            for setting in (self._precision, self._mask, self._scale, self._seeds):
                setting.draw()
            now = [int(seed) for seed in self._seeds.value.split(",")]
            asked = probes.pressed("Compare", self._key, now, PARITY_PROBE.seconds * len(now), primary=True)
        probes.outdated(asked, now)
        status_slot, comparison = st.empty(), Comparison()
        if not asked:
            status_slot.markdown(":small[Takes a few seconds, on the CPU]")
        elif found := probes.attempt(status_slot, PARITY_PROBE, seeds=asked):
            comparison = Comparison.of(found, tuple(asked))
            status_slot.markdown(f":small[:green[{plain(comparison.standing)}]]")
        precision, chosen = self._precision.value, (self._mask.value, self._scale.value)
        bench.figure_title(
            "Difference, over the mean magnitude",
            "log scale; a dot a size, seed and pair",
            f"{PARITY.id}-{'-'.join(chosen)}",
            lambda: figure(comparison, *chosen),
            lambda: comparison.table(*chosen),
        )
        with st.container(key="figure"):
            drawing.draw(figure(comparison, *chosen), key="parity.chart")
        tables = [parts.beside_the_chapter(comparison, precision)]
        if comparison.rows:
            tables.append(parts.comparison_table(comparison, precision, *chosen))
        bench.beside("comparison", tables, parts.notice(comparison, largest, coarsest))


class Bets:
    """Five wrong implementations, and which test catches each."""

    def __init__(self, settings: Settings) -> None:
        self._key = settings.key("zoo")
        self._bets = {
            name: settings.choice(
                name, TITLES[name], {test: TESTS[test] for test in BETS}, None, widget="list"
            )
            for name in zoo.WRONG
        }
        self._closer = settings.choice("wrong", "Look closer at", TITLES, "late-mask", widget="list")

    def draw(self) -> None:
        """The bets, and once the tests have run how they went."""
        with st.container(horizontal=True, vertical_alignment="bottom"):
            for bet in self._bets.values():
                bet.draw(placeholder="Your bet", index=None, width=208)
        with st.expander("What each test asks"):
            st.markdown(parts.tests_explained())
        if probes.pressed("Run the tests", self._key, True, ZOO.seconds):  # the bets come first
            findings = probes.attempt(st.empty(), ZOO)
            if findings is None:
                return
            placed = {name: bet.value for name, bet in self._bets.items()}
            st.markdown(parts.bets_answered(findings, placed))
            parts.matrix(findings, placed).draw()
            self._closer.draw(width=320)
            parts.exhibit(findings, self._closer.value)
