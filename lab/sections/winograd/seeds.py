"""One model over many seeds: how each seed answers, and what of its looks counts."""

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import streamlit as st

from engine.circuits.results import DROPPED
from engine.probes.registry import PARTS, SCORE, Probe
from engine.probes.results.winograd import Parts, Scored
from engine.system.errors import LabError
from lab import bench, probes, weights
from lab.bench import Sweep, Table
from lab.bench.tables import number
from lab.sections.winograd.parts import BLOCKS, share
from lab.sections.winograd.proof import ADJECTIVE, CHAPTERS
from lab.sections.winograd.setup import WinogradRequest
from lab.sections.winograd.which_part import LEFT, left_cells, what_counts
from lab.settings import Setting, Settings
from lab.weights import SHIPPED, Weights
from lab.words import plain

if TYPE_CHECKING:
    from streamlit.delta_generator import DeltaGenerator

COUNTS = ("5", "10")


@dataclass(frozen=True)
class Over:
    """What is found of every seed of a model, and how it is told: a table, and words below it."""

    name: str
    variant: str
    probe: Probe[Any]
    table: Callable[[dict[int, Any]], Table]
    words: Callable[[dict[int, Any]], str]


def show(settings: Settings, request: WinogradRequest, chosen: Setting[str], over: Over) -> None:
    """One button that trains what is missing and then scores; the table, a line a seed.

    chosen: how many seeds, of those that the settings were not chosen on.
    """
    count, key = int(chosen.value), settings.key(over.name)
    label, experiment = f"Score {count} seeds", request.experiment
    ready = weights.shipped_by_seed(experiment.id, over.variant) if request.built_in else {}
    specs = []
    if request.language:  # else the training above says why
        with suppress(LabError, OSError):
            specs = request.specs(experiment, experiment.seeds[:count], (over.variant,))
    sweep = Sweep.of(experiment, specs, request)
    own = weights.trained(sweep, over.variant)
    usual = weights.usual(ready, list(own.values()))

    def controls() -> None:
        chosen.draw()
        if ready:
            weights.switch(key, usual)

    shipped = bool(ready) and weights.switched(key, usual) == SHIPPED
    now = tuple(sweep.wanted)
    if not shipped and (not sweep.wanted or sweep.missing or sweep.unended):
        if sweep.unended:
            st.session_state[f"{key}.asked"] = now  # and go on to score them
        bench.train_also(sweep, settings, over.name, label, lambda _: None, widgets=controls)
        return
    found = dict(sorted((ready if shipped else own).items())[:count])
    now = tuple(one.whose for one in found.values()) if shipped else now
    with st.container(horizontal=True, vertical_alignment="bottom", key=f"instruments-{over.name}"):
        controls()
        asked = probes.pressed(label, key, now, count * over.probe.seconds)
        said = bench.status_line()
    if asked == now:
        _score(request, found, over, said)
    else:
        said.markdown(":small[:gray[All of them are trained. Scoring takes some seconds]]")


def _score(request: WinogradRequest, found: dict[int, Weights], over: Over, said: "DeltaGenerator") -> None:
    assert request.language is not None
    scores: dict[int, Any] = {}
    with st.container(width=bench.TABLE_WIDTH):
        place = st.empty()
    for turn, (seed, one) in enumerate(found.items(), start=1):
        busy = f"Scoring seed {seed}, {turn} of {len(found)}"
        score = probes.attempt(
            said, over.probe, busy, weights=one.path, language=request.language, seed=one.seed
        )
        if score is None:
            return
        scores[seed] = score
        place.table(over.table(scores).styler, border="horizontal", hide_index=True)
    said.markdown(f":small[:green[Scored {len(scores)} seeds]]")
    st.markdown(over.words(scores), width=bench.TABLE_WIDTH)


def parts_table(scores: dict[int, Parts]) -> Table:
    """A line a seed of one block: what is left without the parts of its look at the adjective."""
    rows = []
    for seed, one in scores.items():
        left = next(look.left for look in one.looks if look.key == "adjective")
        rows.append((str(seed), number(one.clean, share, bold=True), *left_cells(left, one.clean)))
    return Table(("seed", "right", *LEFT), rows)


def parts_words(scores: dict[int, Parts]) -> str:
    """How far one block comes, and by which part of its look."""
    ends = [one.clean for one in scores.values()]
    looks = [
        (one.clean, look.left) for one in scores.values() for look in one.looks if look.key == "adjective"
    ]
    counted = Counter(what_counts(left, clean) for clean, left in looks)
    listed = ", ".join(f"{plain(name)} in {times}" for name, times in counted.most_common())
    whole = sum(one == 1 for one in ends)
    most = max(abs(clean - left.values) for clean, left in looks)
    return (
        f"One block is right in {share(min(ends), 0)} to {share(max(ends), 0)}; {whole} of {len(ends)} seeds "
        f"answer all of these sentences. What counts of its look at the adjective: {listed}. With the "
        f"adjective’s value at its mean the right answers change by at most {share(most)}."
    )


def seeds_table(scores: dict[int, Scored]) -> Table:
    """A line a seed: its route, what of its look at the adjective counts, what is left without its heads."""
    rows = []
    for seed, one in scores.items():
        roles, name = one.roles, plain(one.route.route)
        left = (
            number(getattr(roles, of).mean.accuracy if roles else None, share)
            for of in ("at_nouns", "at_adjective", "rest")
        )
        route = f"{seed}: {f'**{name}**' if one.route.route == CHAPTERS else name}"
        rows.append((route, number(one.route.clean.accuracy, share), by(one), *left))
    columns = (
        "seed: route",
        "right",
        "adjective",
        "without noun heads",
        "without adjective heads",
        "without others",
    )
    return Table(columns, rows)


def by(one: Scored) -> str:
    """In which block the adjective is needed, and what of it counts: "block 1, the score"."""
    channels, clean = one.route.channels, one.route.clean.accuracy
    found = [
        f"block {block}: {what_counts(channels[channel], clean)}"
        for block, channel in enumerate(ADJECTIVE.values(), start=1)
        if channels[channel].cut < DROPPED
    ]
    return ", ".join(found) or "no single block"


def seeds_words(scores: dict[int, Scored]) -> str:
    """How often the circuit of the chapter formed, and what formed otherwise."""
    routes, parts = (Counter(map(of, scores.values())) for of in (lambda one: one.route.route, by))
    formed, count = routes.pop(CHAPTERS, 0), len(scores)
    often = "always" if formed == count else "never" if not formed else f"in {formed} of {count}"
    others, told = (
        ", ".join(f"{plain(name)} in {times}" for name, times in found.most_common())
        for found in (routes, parts)
    )
    return (
        f"The chapter’s circuit, the nouns in block 1 and the adjective in block 2, formed **{often}**."
        f"{f' Otherwise: {others}.' if others else ''} Where the adjective is needed, and what of its look "
        f"counts: {told}."
    )


ONE_BLOCK = Over("one", BLOCKS[0], PARTS, parts_table, parts_words)
TWO_BLOCKS = Over("score", BLOCKS[-1], SCORE, seeds_table, seeds_words)
