"""Two blocks over many seeds: which route each took, and whether the two-hop circuit formed."""

from collections import Counter
from typing import TYPE_CHECKING

import streamlit as st

from engine.probes.registry import SCORE
from engine.probes.results.winograd import Scored
from engine.runs.store import open_store
from lab import probes
from lab.bench import instruments, tables, training
from lab.bench.sweep import Sweep
from lab.sections.winograd.parts import BLOCKS, share
from lab.sections.winograd.probe import trained
from lab.sections.winograd.proof import GONE, TWO_HOPS
from lab.sections.winograd.setup import Choice, specs
from lab.settings import Settings
from lab.weights import Weights
from lab.words import plain

if TYPE_CHECKING:
    from pandas.io.formats.style import Styler
    from streamlit.delta_generator import DeltaGenerator

COUNTS = ("5", "10")
TWO_BLOCKS = BLOCKS[-1]


def sweep_of(choice: Choice, count: int) -> Sweep:
    """The two-block runs of the seeds that the settings were not chosen on."""
    seeds = choice.experiment.seeds[:count]
    try:
        wanted = specs(choice, seeds, (TWO_BLOCKS,))
    except (ValueError, OSError):  # no such language: the training above says why
        wanted = []
    return Sweep.of(choice.experiment, wanted, open_store())


def show(settings: Settings, choice: Choice, sweep: Sweep, count: int) -> None:
    """One button that trains what is missing and then scores; the table, a line a seed."""
    key, asked, digests = settings.key("score"), None, tuple(sweep.wanted)
    with st.container(horizontal=True, vertical_alignment="bottom", key="instruments-score"):
        st.segmented_control("Seeds", COUNTS, key=settings.key("count"), required=True)
        trained_yet = sweep.wanted and not sweep.missing and not sweep.unended
        if not trained_yet:
            instruments.action(sweep, settings, f"Score {count} seeds", "score-")
            if sweep.unended:
                st.session_state[f"{key}.asked"] = digests  # and go on to score them
        else:
            asked = probes.pressed(f"Score {count} seeds", key, digests, count * SCORE.seconds)
        said = training.status_line()
    if not trained_yet:
        training.follow(sweep, said, lambda _: None)
    elif asked == digests:
        _score(choice, trained(sweep, TWO_BLOCKS), said)
    else:
        said.markdown(":small[:gray[All of them are trained. Scoring takes some seconds a seed]]")


def _score(choice: Choice, found: dict[int, Weights], said: "DeltaGenerator") -> None:
    assert choice.language is not None
    scores: dict[int, Scored] = {}
    with st.container(width=training.TABLE_WIDTH):
        place = st.empty()
    for number, (seed, one) in enumerate(sorted(found.items()), start=1):
        busy = f"Scoring seed {seed}, {number} of {len(found)}"
        score = probes.attempt(said, SCORE, busy, weights=one.path, language=choice.language, seed=one.seed)
        if score is None:
            return
        scores[seed] = score
        place.table(seeds_table(scores), border="horizontal", hide_index=True)
    said.markdown(f":small[:green[Scored {len(scores)} seeds]]")
    st.markdown(seeds_words(scores), width=training.TABLE_WIDTH)


def seeds_table(scores: dict[int, Scored]) -> "Styler":
    """A line a seed: its route, its accuracy, what is left without each set of heads (ablated to means)."""
    figures, shown = [], []
    for seed, one in scores.items():
        roles = one.roles
        left = [
            getattr(roles, name).mean.accuracy if roles else None
            for name in ("noun_carriers", "adjective_readers", "rest")
        ]
        route = one.route
        figures.append((route.clean.accuracy, *left, None))
        name = plain(route.route)
        holds = ":green[hold]" if roles and roles.holds else ":gray[do not]"
        shown.append(
            (
                f"{seed}: {f'**{name}**' if route.route == TWO_HOPS else name}",
                share(route.clean.accuracy),
                *map(share, left),
                holds,
            )
        )
    columns = ("seed: route", "right", "no carriers", "no readers", "no others", "sets")
    return tables.cells(columns, figures, shown)


def seeds_words(scores: dict[int, Scored]) -> str:
    """How often the circuit of the chapter formed, and what formed otherwise."""
    routes = Counter(one.route.route for one in scores.values())
    formed, count = routes[TWO_HOPS], len(scores)
    often = "always" if formed == count else "never" if not formed else f"in {formed} of {count}"
    others = ", ".join(
        f"{plain(name)} in {number}" for name, number in routes.most_common() if name != TWO_HOPS
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
