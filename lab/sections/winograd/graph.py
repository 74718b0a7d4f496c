"""The circuit of one model as a graph to be cut: words below, heads above, an edge for every look.

Everything in it was measured: a look's width is its weight, and it is drawn in ink where cutting it costs the
answer at least a fifth of its logit difference.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import altair as alt
import streamlit as st

from engine.circuits.results import COST, Edge, Head, HeadLook, Roles
from engine.circuits.sites import Sites
from engine.data.languages.winograd import DECISION
from engine.probes.results.winograd import BlockLook, Circuit
from lab.charts import drawing
from lab.charts.axes import COLOR, DASH, GRAY, INK, NOTE, TEXT, dot, hover, note, rows
from lab.charts.drawing import Spec, compiled, fed
from lab.sections.winograd.parts import share

DASHES = {"decision": "solid", "adjective": "dashed", "relays": "dotted"}
SEEN_FROM = {
    "decision": "the deciding position",
    "adjective": "the adjective’s position",
    "relays": "other positions",
}
WIDEST, HEIGHT_A_ROW, CLICK = 7.0, 112, 14  # px
SETS = {
    "at_nouns": "needs a noun",
    "at_adjective": "needs the adjective",
    "helpers": "helps",
    "rest": "not needed",
}
SHORT = {"at_nouns": "noun", "at_adjective": "adjective", "helpers": "helps"}
KEYS = {"first noun": "x", "second noun": "y", "adjective": "adj."}
EDGE = "edge"
# By whether the score costs that much by itself, and whether what flows does.
BY = {(True, False): "score", (False, True): "value", (True, True): "both", (False, False): "either"}
PAPER = {"stroke": alt.ExprRef("background"), "strokeWidth": 5, "strokeJoin": "round"}  # around letters
_MIDDLE = DECISION / 2


@dataclass(frozen=True)
class Look:
    """One edge that can be cut: where from, at what, by which head; all of the block where it is None.

    weight, cost: of one head's look. part: whether it is part of the circuit; by: then by its score, by what
    flows along it, or by both. left: the accuracy without it. edges: that it is made of.
    """

    block: int
    head: int | None
    query: str
    key: str
    left: float
    edges: frozenset[Edge]
    weight: float | None = None
    cost: float | None = None
    part: bool = False
    by: str = ""

    @property
    def id(self) -> str:
        """Its name in the URL: "1.2-decision-first-noun"."""
        return f"{self.of}-{self.query}-{self.key.replace(' ', '-')}"

    @property
    def of(self) -> str:
        """Its head, counted from 1: "1.2"."""
        return f"{self.block + 1}.all" if self.head is None else Head(self.block, self.head).name

    @property
    def said(self) -> str:
        """What it is, in words."""
        whose = f"all heads of block {self.block + 1}" if self.head is None else f"head {self.of}"
        seen = "" if self.query == "decision" else f" from {SEEN_FROM[self.query]}"
        weight = "" if self.weight is None else f", {self.weight:.2f}"
        return f"{whose} → {self.key}{seen}{weight}"


@dataclass(frozen=True)
class Graph:
    """A circuit as it is drawn.

    looks: by id, the deciding position's, others that count, then whole blocks. names: of the positions.
    words: that stand there, of both sentences.
    """

    roles: Roles
    names: list[str]
    looks: dict[str, Look]
    words: list[str]

    @property
    def blocks(self) -> int:
        """How many the model has."""
        return 1 + max(role.block for role in self.roles.heads)


def joined(circuit: Circuit, tokens: list[list[str]]) -> Graph:
    """What was measured of a model as what is drawn. tokens: of the two sentences."""
    sites = Sites(tuple(circuit.names))
    looks = [
        *map(partial(_of_head, sites), circuit.roles.looks),
        *map(partial(_of_block, sites), circuit.together),
    ]
    words = [a if a == b else f"{a} / {b}" for a, b in zip(*tokens, strict=True)]
    shown = {look.id: look for look in looks if look.part or look.query == "decision"}
    return Graph(circuit.roles, circuit.names, shown, words)


def _of_head(sites: Sites, one: HeadLook) -> Look:
    edges = sites.look(one.query, one.key, one.block, one.head)
    where = one.block, one.head, one.query, one.key
    return Look(*where, one.score.accuracy, edges, one.weight, one.cost, one.part, told_by(one))


def _of_block(sites: Sites, one: BlockLook) -> Look:
    where = one.block, None, one.query, one.key
    return Look(*where, one.left, sites.look(one.query, one.key, one.block))


def told_by(look: HeadLook) -> str:
    """Which part of a look of the circuit costs the answer as much as makes it one: see ``BY``."""
    if look.pattern is None or look.values is None:
        return ""
    return BY[look.pattern >= COST, look.values >= COST]


def costliest(found: Graph) -> str:
    """The edge whose cut leaves the fewest right answers."""
    return min(found.looks.values(), key=lambda look: look.left).id


def roles_of(found: Roles, names: Mapping[str, str] = SETS) -> dict[Head, str]:
    """What each head does, in words. names: of the sets."""
    words: dict[Head, list[str]] = {}
    for name, role in names.items():
        for head in getattr(found, name).heads:
            words.setdefault(head, []).append(role)
    return {head: ", ".join(roles) for head, roles in words.items()}


def spec(found: Graph, chosen: str) -> Spec:
    """The graph. chosen: the edge that is cut."""
    return fed(_graph(found.blocks), **_rows(found, chosen))


@cache
def _graph(blocks: int) -> Spec:
    def within(low: float, high: float) -> dict[str, Any]:
        return {"type": "quantitative", "axis": None, "scale": alt.Scale(domain=[low, high], nice=False)}

    def as_it_is(channel: Any, field: str) -> Any:
        return channel(field=field, type="quantitative", scale=None, legend=None)

    x = alt.X(field="x", **within(-0.6, 14.9))
    y = alt.Y(field="y", **within(-0.45, blocks + 1.35))
    x2, y2 = alt.X2(field="x2"), alt.Y2(field="y2")
    writes, edges, heads, words = (rows(name).encode(x, y) for name in ("writes", "edges", "heads", "words"))
    width, pale = as_it_is(alt.StrokeWidth, "width"), as_it_is(alt.Opacity, "opacity")
    wide = edges.mark_rule(strokeWidth=CLICK, opacity=0)  # unseen, to be pointed at and pressed
    click = alt.selection_point(name=EDGE, fields=["id"], toggle=False)
    beside: dict[str, Any] = {"align": "left", "dx": 22}
    labels: tuple[tuple[str, dict[str, Any]], ...] = (
        ("head", {"color": INK, "fontSize": 14, "fontWeight": 600, "dy": -26}),
        ("role", {"color": INK, "fontSize": TEXT, "dy": -7, **beside}),
        ("weights", {"color": GRAY, "fontSize": NOTE, "dy": 9, **beside}),
    )
    return compiled(
        HEIGHT_A_ROW * (blocks + 1) + 60,
        writes.mark_rule(color=GRAY, opacity=0.25).encode(x2, y2, width),
        edges.mark_rule().encode(x2, y2, width, COLOR, DASH, pale),
        wide.encode(x2, y2, tooltip=hover("edge", "weight", "accuracy without it", "what counts"))
        .add_params(click)
        .properties(name="looks"),
        dot(heads, 700).encode(color=COLOR),
        # On paper of their own: looks pass under them.
        *(note(heads, field, **text, **paper) for field, text in labels for paper in (PAPER, {})),
        note(words, "word", color=INK, fontSize=TEXT, dy=12),
        note(words, "index", dy=28),
    )


def _rows(found: Graph, chosen: str) -> dict[str, list[dict[str, Any]]]:
    step = DECISION / (2 + max(role.head for role in found.roles.heads))
    x = {role.at: step * (role.head + 1) for role in found.roles.heads}  # where each head stands
    edges = [
        _edge(found, look, x[head], cut=look.id == chosen)
        for look in found.looks.values()
        for head in x
        if head.block == look.block and (look.head == head.head or (look.head is None and look.id == chosen))
    ]  # a whole block's look is drawn when it is the one that is cut
    # What each head adds to the logit difference by itself, of the answer that gets more.
    direct = {role.at: max(0.0, *role.direct.values()) for role in found.roles.heads}
    most = max(direct.values()) or 1.0
    end = {"x2": _MIDDLE, "y2": found.blocks + 0.98}
    return {
        "edges": sorted(edges, key=lambda edge: edge["opacity"]),
        "writes": [
            {"x": x[head], "y": head.block + 1.14, **end, "width": 0.5 + WIDEST * adds / most}
            for head, adds in direct.items()
        ],
        "heads": [_head(found, head, x[head]) for head in x],
        "words": [
            *({"x": at, "y": 0.0, "word": word, "index": str(at)} for at, word in enumerate(found.words)),
            {"x": _MIDDLE, "y": found.blocks + 1.24, "word": "answer", "index": ""},
        ],
    }


def _head(found: Graph, head: Head, x: float) -> dict[str, Any]:
    """A head, its role in short, and the weights of its looks that count."""
    parts = [look for look in found.looks.values() if look.part and (look.block, look.head) == head]
    weights = ", ".join(f"{KEYS[look.key]} {look.weight:.2f}" for look in parts)
    role, slot = roles_of(found.roles, SHORT).get(head, ""), "ink" if parts else "gray"
    return {"x": x, "y": head.block + 1, "head": head.name, "role": role, "weights": weights, "slot": slot}


def _edge(found: Graph, look: Look, x: float, *, cut: bool) -> dict[str, Any]:
    weight = 0.5 if look.weight is None else look.weight
    return {
        "x": found.names.index(look.key),
        "y": 0.0,
        "x2": x,
        "y2": look.block + 0.86,
        "width": 1 + weight * WIDEST,
        "slot": "red" if cut else "ink" if look.part else "gray",
        "dash": DASHES["adjective"] if cut else DASHES[look.query],
        "opacity": 1.0 if cut else 0.8 if look.part else 0.4,
        "id": look.id,
        "edge": look.said,
        "weight": "" if look.head is None else f"{weight:.2f}",
        "accuracy without it": share(look.left),
        "what counts": look.by or "–",
    }


def draw(found: Graph, chosen: str, key: str, target: str) -> None:
    """The graph on the page; a click on an edge makes it the value of the setting ``target``."""

    def clicked() -> None:
        picked = st.session_state[key].selection.get(EDGE) or []
        if picked and picked[0].get("id"):
            st.session_state[target] = picked[0]["id"]

    drawing.draw(spec(found, chosen), key, on_select=clicked)


def csv_rows(found: Graph) -> Iterator[tuple[Any, ...]]:
    """Every look of the graph, for a file."""
    yield "block", "head", "query", "key", "weight", "cost", "accuracy_without", "part", "told_by"
    for look in found.looks.values():
        head = "all" if look.head is None else look.head + 1
        what = look.block + 1, head, look.query, look.key
        yield *what, look.weight, look.cost, look.left, look.part, look.by
