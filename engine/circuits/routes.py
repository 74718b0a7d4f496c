"""Which way the answer takes through two blocks, decided by cutting every way there is.

A channel is a look in one block by all heads. A route is taken when the answer is lost without any of its
channels, and kept without the channel that would make it another route. A cut tells where a look is needed,
not whether its score or its value is: every channel is patched as well.
Shapes: N questions.
Source: chapter, "Winograd circuits".
"""

from collections.abc import Mapping, Sequence

from engine.circuits.looks import answer_kinds
from engine.circuits.results import DROPPED, KEPT, Cut, Route, Verdict
from engine.circuits.sites import ADJECTIVE, DECISION, NOUNS, RELAYS, Sites
from engine.circuits.trials import Trials

NOUN = "noun"  # either of the two
# Name: query, what it looks at, block. An answer gets to the decision through some of these, or not at all.
CHANNELS = {
    "block 1: decision sees nouns": (DECISION, NOUN, 0),
    "block 1: decision sees adjective": (DECISION, ADJECTIVE, 0),
    "block 1: adjective sees nouns": (ADJECTIVE, NOUN, 0),
    "block 1: relays see nouns": (RELAYS, NOUN, 0),
    "block 1: relays see adjective": (RELAYS, ADJECTIVE, 0),
    "block 2: decision sees nouns": (DECISION, NOUN, 1),
    "block 2: decision sees adjective": (DECISION, ADJECTIVE, 1),
    "block 2: decision sees relays": (DECISION, RELAYS, 1),
}
NOUNS_1, ADJECTIVE_1, GATHER, RELAY_NOUNS, RELAY_ADJECTIVE, NOUNS_2, ADJECTIVE_2, RELAYS_2 = CHANNELS
# Name: the channels it needs, and those that it must do without.
ROUTES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "nouns, then adjective": ((NOUNS_1, ADJECTIVE_2), (ADJECTIVE_1, GATHER)),
    "adjective, then nouns": ((ADJECTIVE_1, NOUNS_2), (ADJECTIVE_2,)),
    "gather at the adjective": ((GATHER, ADJECTIVE_2), (ADJECTIVE_1, NOUNS_1)),
    "through other words": ((RELAY_NOUNS, RELAYS_2), (NOUNS_1, GATHER)),
    "block 1 alone": ((NOUNS_1, ADJECTIVE_1), (NOUNS_2, ADJECTIVE_2)),
    "block 2 alone": ((NOUNS_2, ADJECTIVE_2), (NOUNS_1, ADJECTIVE_1, RELAYS_2)),
}
SEVERAL, MIXED, NONE_FOUND = "several, each enough", "mixed", "none found"


def find_route(trials: Trials, names: Mapping[int, str]) -> Verdict:
    """Cut every channel, alone and all but a route's.

    names: of positions, "first noun", "second noun" and "adjective" among them; the others are "rest".
    Raises ValueError: when the model has not two blocks, or a name is missing or out of place.
    """
    if (blocks := trials.model.config.n_layer) != 2:
        raise ValueError(f"the model has {blocks} blocks; a route of two hops is looked for in exactly 2.")
    sites = Sites.of(names, trials.questions.decision)
    answer_kinds(trials.questions, sites)  # refuses questions that neither noun answers
    channels = dict(zip(CHANNELS, trials.left([sites.looks(_looks([one])) for one in CHANNELS]), strict=True))
    others = {name: [c for c in CHANNELS if c not in own] for name, (own, _) in ROUTES.items()}
    cuts = trials.scores([trials.change(sites.looks(_looks(those)), "cut") for those in others.values()])
    clean = Cut([], trials.whole.score().accuracy)
    lost = {channel for channel, left in channels.items() if left.cut < DROPPED <= clean.accuracy}
    routes = [
        Route(
            name=name,
            channels=list(own),
            needed=max(channels[channel].cut for channel in own),
            alone=Cut(others[name], alone.accuracy),
            taken=lost.issuperset(own) and lost.isdisjoint(excluded),
        )
        for (name, (own, excluded)), alone in zip(ROUTES.items(), cuts, strict=True)
    ]
    return Verdict(_route(routes, lost), clean, channels, routes)


def _looks(channels: Sequence[str]) -> list[tuple[str, str, int]]:
    return [
        (query, name, block)
        for query, key, block in (CHANNELS[channel] for channel in channels)
        for name in (NOUNS if key == NOUN else (key,))
    ]


def _route(routes: Sequence[Route], lost: set[str]) -> str:
    taken = [route.name for route in routes if route.taken]
    if len(taken) == 1:
        return taken[0]
    if sum(route.alone.accuracy >= KEPT for route in routes) > 1:
        return SEVERAL
    sought = {CHANNELS[channel][1] for channel in lost}
    return MIXED if {NOUN, ADJECTIVE} <= sought else NONE_FOUND
