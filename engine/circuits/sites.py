"""Where a template's words stand, and the looks between them that a circuit may be made of.

A look is every edge from one group of queries to the words of one name: "the decision looks at the nouns".
Imports no torch.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from engine.circuits.results import Edge

FIRST, SECOND, ADJECTIVE, REST = "first noun", "second noun", "adjective", "rest"
DECISION, RELAYS = "decision", "relays"
NOUNS = (FIRST, SECOND)


@dataclass(frozen=True)
class Sites:
    """The name of every position up to the decision, both of which every sentence shares.

    Raises ValueError: when a noun or the adjective does not stand in exactly one place before the decision,
        or the adjective not behind both nouns.
    """

    names: tuple[str, ...]

    def __post_init__(self) -> None:
        for name in (*NOUNS, ADJECTIVE):
            if (found := self.names[:-1].count(name)) != 1:
                raise ValueError(f"{name!r} names {found} positions before the decision; allowed: exactly 1.")
        if self.at(ADJECTIVE) < max(self.at(FIRST), self.at(SECOND)):
            raise ValueError("the adjective stands before a noun; allowed: behind both.")

    @classmethod
    def of(cls, roles: Mapping[int, str], decision: int) -> "Sites":
        """From a mapping of positions to names; a position without one is "rest".

        Raises ValueError: as the class, and when a position lies outside 0 to the decision.
        """
        if odd := sorted(place for place in roles if not 0 <= place <= decision):
            raise ValueError(f"position {odd[0]} has a name; allowed: 0 to {decision}, the decision.")
        return cls(tuple(roles.get(place, REST) for place in range(decision + 1)))

    @property
    def decision(self) -> int:
        """The position that answers."""
        return len(self.names) - 1

    @property
    def keys(self) -> tuple[str, ...]:
        """The names, each once, in the order in which they first stand."""
        return tuple(dict.fromkeys(self.names))

    def at(self, name: str) -> int:
        """The first position of a name."""
        return self.names.index(name)

    def queries(self, group: str) -> tuple[int, ...]:
        """The positions of "decision", "adjective" or "relays": every other one that sees a noun.

        The later noun is a relay too, for it may gather the earlier one.
        """
        own = {DECISION: self.decision, ADJECTIVE: self.at(ADJECTIVE)}
        if group in own:
            return (own[group],)
        start = min(self.at(FIRST), self.at(SECOND)) + 1
        return tuple(place for place in range(start, self.decision) if place != own[ADJECTIVE])

    def places(self, key: str) -> tuple[int, ...]:
        """The positions that a look may find: those of a name, or the relays' that are no noun."""
        if key == RELAYS:
            return tuple(place for place in self.queries(RELAYS) if self.names[place] not in NOUNS)
        return tuple(place for place, name in enumerate(self.names) if name == key)

    def look(self, query: str, key: str, block: int, head: int | None = None) -> frozenset[Edge]:
        """Its edges in one block, of one head or of all; a word's look at itself is none of them."""
        return frozenset(
            Edge(at, place, block, head)
            for at in self.queries(query)
            for place in self.places(key)
            if place < at
        )

    def looks(self, looks: Iterable[tuple[str, str, int]], head: int | None = None) -> frozenset[Edge]:
        """All the edges of several looks, each a query, a key and a block."""
        return frozenset().union(*(self.look(*look, head) for look in looks))
