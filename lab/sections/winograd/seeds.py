"""Two blocks over many seeds: which route each took, and whether the two-hop circuit formed."""

from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING

import streamlit as st

from engine.probes.registry import SCORE
from engine.probes.results.winograd import Scored
from engine.system.errors import LabError
from lab import bench, probes, weights
from lab.bench import Sweep, Table
from lab.bench.tables import number
from lab.sections.winograd.parts import BLOCKS, share
from lab.sections.winograd.proof import TWO_HOPS
from lab.sections.winograd.setup import WinogradRequest
from lab.sections.winograd.without import GONE
from lab.settings import Setting, Settings
from lab.weights import Weights
from lab.words import plain

if TYPE_CHECKING:
    from streamlit.delta_generator import DeltaGenerator

COUNTS = ("5", "10")
TWO_BLOCKS = BLOCKS[-1]


def show(settings: Settings, request: WinogradRequest, chosen: Setting[str]) -> None:
    """One button that trains what is missing and then scores; the table, a line a seed.

    chosen: how many seeds, of those that the settings were not chosen on.
    """
    count, key = int(chosen.value), settings.key("score")
    label, experiment = f"Score {count} seeds", request.experiment
    specs = []
    if request.language:  # else the training above says why
        with suppress(LabError, OSError):
            specs = request.specs(experiment, experiment.seeds[:count], (TWO_BLOCKS,))
    sweep = Sweep.of(experiment, specs, request)
    digests = tuple(sweep.wanted)
    if not sweep.wanted or sweep.missing or sweep.unended:
        if sweep.unended:
            st.session_state[f"{key}.asked"] = digests  # and go on to score them
        bench.train_also(sweep, settings, "score", label, lambda _: None, widgets=chosen.draw)
        return
    with st.container(horizontal=True, vertical_alignment="bottom", key="instruments-score"):
        chosen.draw()
        asked = probes.pressed(label, key, digests, count * SCORE.seconds)
        said = bench.status_line()
    if asked == digests:
        _score(request, weights.trained(sweep, TWO_BLOCKS), said)
    else:
        said.markdown(":small[:gray[All of them are trained. Scoring takes some seconds a seed]]")


def _score(request: WinogradRequest, found: dict[int, Weights], said: "DeltaGenerator") -> None:
    assert request.language is not None
    scores: dict[int, Scored] = {}
    with st.container(width=bench.TABLE_WIDTH):
        place = st.empty()
    for turn, (seed, one) in enumerate(found.items(), start=1):
        busy = f"Scoring seed {seed}, {turn} of {len(found)}"
        score = probes.attempt(said, SCORE, busy, weights=one.path, language=request.language, seed=one.seed)
        if score is None:
            return
        scores[seed] = score
        place.table(seeds_table(scores).styler, border="horizontal", hide_index=True)
    said.markdown(f":small[:green[Scored {len(scores)} seeds]]")
    st.markdown(seeds_words(scores), width=bench.TABLE_WIDTH)


def seeds_table(scores: dict[int, Scored]) -> Table:
    """A line a seed: its route, its accuracy, what is left without each set of heads (ablated to means)."""
    rows = []
    for seed, one in scores.items():
        roles, name = one.roles, plain(one.route.route)
        left = (
            number(getattr(roles, of).mean.accuracy if roles else None, share)
            for of in ("noun_carriers", "adjective_readers", "rest")
        )
        route = f"{seed}: {f'**{name}**' if one.route.route == TWO_HOPS else name}"
        holds = ":green[hold]" if roles and roles.holds else ":gray[do not]"
        rows.append((route, number(one.route.clean.accuracy, share), *left, holds))
    return Table(("seed: route", "right", "no carriers", "no readers", "no others", "sets"), rows)


def seeds_words(scores: dict[int, Scored]) -> str:
    """How often the circuit of the chapter formed, and what formed otherwise."""
    routes = Counter(one.route.route for one in scores.values())
    formed, count = routes[TWO_HOPS], len(scores)
    often = "always" if formed == count else "never" if not formed else f"in {formed} of {count}"
    others = ", ".join(
        f"{plain(name)} in {times}" for name, times in routes.most_common() if name != TWO_HOPS
    )
    holds = sum(bool(one.roles and one.roles.holds) for one in scores.values())
    second = sum(
        cut.accuracy < GONE
        for one in scores.values()
        for cut in one.route.cuts
        if cut.channels == ["block 2: decision sees adjective"]
    )
    return (
        f"The circuit of two hops, carry the nouns in block 1 and read the adjective in block 2, formed "
        f"**{often}**.{f' Otherwise: {others}.' if others else ''} Block 2 needs its look at the adjective "
        f"in {second} of {count}. The sets of heads hold in {holds} of {count}: without either of the first "
        f"two fewer than {share(GONE, 0)} are right, without the others nearly all."
    )
