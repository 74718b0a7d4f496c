"""What is shown of a model from inside: two sentences side by side, block 1, the circuit, cuts."""

from collections.abc import Mapping, Sequence
from dataclasses import astuple
from typing import Any

import streamlit as st

from engine.circuits.results import Edge, Head
from engine.data.languages.winograd import ANSWER, CLOSED, DECISION, FIRST
from engine.probes.registry import ABLATED, CIRCUIT, CUT, MAPS
from engine.probes.results.winograd import Maps
from lab import bench
from lab.sections.winograd import changed, graph, maps
from lab.sections.winograd.graph import Graph
from lab.sections.winograd.inside import Inside
from lab.settings import Setting, Settings, one_of, whole
from lab.shell import frame
from lab.words import plain

HEADS = ("mean", "1", "2", "3", "4")
HOWS = {"edge": "An edge", "zero": "A head, to zero", "mean": "A head, to its mean"}
PARTS: Mapping[str, str] = {
    "cut": "Cut",
    "pattern": "Pattern",
    "values": "Values",
    "both": "Both",
    "flow": "Flow",
    "rest": "Rest",
}
DONE: Mapping[str, str] = {
    "cut": "Cut",
    "pattern": "Score at its mean",
    "values": "Values at their mean",
    "both": "Both at their mean",
    "flow": "Flow at its mean",
    "rest": "Rest at its mean",
}
SAID = (
    "Cut: the look is not possible, and the rest of its row is renormalised (attention knockout). Pattern: "
    "its score becomes its mean over the held-out sentences, and the row is shared out anew; what flows "
    "stays. Values: what it may bring becomes that mean; the weights stay. Flow, rest: how a score "
    "acts, how much flows along the look and how much weight it leaves to the rest of its row, each at its "
    "mean while the other stays (activation patching)."
)
ALL = "all"
CHAPTERS_MAPS = (
    "In the chapter’s own model the mean of block 1 is the same for tired and wet: 0.70 on the first noun, "
    "0.06 on the second, 0.19 on “the”, 0.05 on the comma. Its block 2 puts 1.00 on “tired”; after wet 0.49 "
    "on the second noun, 0.25 on “the”, 0.20 on “too”, 0.03 on “wet”. Which head does what differs from seed "
    "to seed."
)


def two_sentences(inside: Inside, head: Setting[str]) -> Maps | None:
    """Paired maps and the grid of all adjectives."""
    found = inside.find(MAPS, **inside.subject, pair=inside.pair) if inside.ready() else None
    inside.whose()
    if found:
        maps.both(found)
        if inside.request.language == CLOSED and inside.blocks == 2:
            st.caption(CHAPTERS_MAPS)
        with st.container(horizontal=True, vertical_alignment="bottom", key="instruments-head"):
            st.markdown(
                f"**All {len(found.adjectives)} adjectives** :gray[mean of {found.grid_count} held-out "
                "sentences]",
                width="stretch",
            )
            head.draw()
        maps.grid(found, head.value)
        label = "The whole maps of both sentences"
        with st.expander(label, key="winograd.whole", on_change="rerun") as whole:
            if whole.open:
                maps.whole(found, head.value)
    return found


def block_one(found: Maps | None, head: str) -> None:
    """The scores that cannot move. found: the maps."""
    frame.heading(
        "What an adjective moves in block 1",
        "Change it and look at block 1’s row where the answer is due: the raw scores before the softmax, and "
        "the weights behind it.",
    )
    if found is None:
        st.markdown(":small[:gray[These numbers come with the maps above.]]")
        return
    with st.container(horizontal=True, gap="medium"):
        with st.container(width=bench.TABLE_WIDTH):
            maps.unmoved_table(found, head).draw()
            st.caption(f"{'Mean of the heads' if head == 'mean' else f'Head {head}'}; choose it above.")
        with st.container(width=bench.NOTICE_WIDTH):
            st.markdown(maps.unmoved_words(found))


def circuit(inside: Inside, edge: Setting[str], part: Setting[str]) -> None:
    """The circuit as a graph; one edge changed."""
    if not inside.ready():
        return
    asked = inside.pressed("circuit", "Find the circuit", CIRCUIT, **inside.subject)
    found = inside.find(CIRCUIT, **asked) if asked else None
    if not asked or not found or inside.pair is None:
        return
    tokens = [asked["language"].tokens(sentence)[:ANSWER] for sentence in inside.pair.sentences]
    drawn = graph.joined(found, tokens)
    _graph(edge, part, drawn)
    look = drawn.looks[edge.value]
    arguments = {**asked, "pair": inside.pair, "edges": sorted(look.edges, key=astuple), "part": part.value}
    if done := inside.find(CUT, **arguments):
        st.markdown(changed.cut_words(look, DONE[part.value], done), width=bench.TABLE_WIDTH)
        with st.container(key="results-cut", width=bench.TABLE_WIDTH):
            changed.answers_table(done.answers, done.changed).draw()
        st.caption(SAID)


def _graph(edge: Setting[str], part: Setting[str], found: Graph) -> None:
    if edge.value not in found.looks:
        if edge.value:
            st.markdown(f":orange[This model has no look {plain(edge.value)}. Shown: the costliest.]")
        edge.value = st.query_params["edge"] = graph.costliest(found)
    names = {name: look.said for name, look in found.looks.items()}
    with st.container(horizontal=True, vertical_alignment="bottom", key="instruments-edge"):
        edge.draw(label="Edge", options=list(names), format_func=names.__getitem__, width=bench.HALF)
        part.draw()
    chosen = found.looks[edge.value]
    bench.figure_title(
        "The circuit",
        "looks and their weights; click one",
        "winograd-circuit",
        lambda: graph.spec(found, chosen.id),
        lambda: graph.csv_rows(found),
        key="figure-title-circuit",
    )
    with st.container(key="figure-circuit"):
        graph.draw(found, chosen.id, "winograd.graph", edge.key)
    st.caption(
        "Solid: seen from the deciding position; dashed: from the adjective; dotted: from other words; red: "
        "changed. Grey heads have no look that counts. Lines to the answer: what a head adds to it by itself."
    )


def _box(label: str, key: str, options: Sequence[object]) -> None:
    """A choice that is no longer there becomes the first that is."""
    if st.session_state[key] not in options:
        st.session_state[key] = options[0]
    st.selectbox(label, options, key=key, width=90)


class TakenOut:
    """Any edge by its places, or a whole head: the settings, and what is left without it."""

    def __init__(self, settings: Settings) -> None:
        self._how = settings.choice("how", "Take out", HOWS, "edge")
        self._block = settings.value("block", whole("block", 1, 2), 1, widget=_box)
        self._of = settings.value("of", one_of("of", (ALL, *HEADS[1:])), ALL, widget=_box)
        self._query = settings.whole("query", "Query", 0, DECISION, DECISION)
        self._key = settings.whole("key", "Key", 0, DECISION, FIRST)
        self._part = settings.choice("any", "What of it", PARTS, "cut")

    def draw(self, inside: Inside) -> None:
        """The boxes for an edge or a head, and the answers without it."""
        st.subheader("Any edge, or a whole head", anchor=False)
        with st.container(horizontal=True, vertical_alignment="bottom", key="instruments-any"):
            self._boxes(inside.blocks)
        if not inside.ready():
            return
        how, block = self._how.value, self._block.value - 1
        head = None if self._of.value == ALL else int(self._of.value) - 1
        asked: dict[str, Any] = {**inside.subject, "pair": inside.pair}
        if head is None or how == "edge":
            edges = [Edge(self._query.value, self._key.value, block, head)]
            found = inside.find(CUT, **asked, edges=edges, part=self._part.value)
        else:
            found = inside.find(ABLATED, **asked, heads=[Head(block, head)], how=how)
        if found:
            st.markdown(changed.left_words(found))
            with st.container(key="results-any", width=bench.TABLE_WIDTH):
                changed.answers_table(found.answers, found.changed).draw()

    def _boxes(self, blocks: int) -> None:
        self._how.draw()
        edge = self._how.value == "edge"
        heads = (ALL, *HEADS[1:]) if edge else HEADS[1:]
        self._block.draw(label="Block", options=range(1, blocks + 1))
        self._of.draw(label="Head", options=heads)
        if edge:
            self._query.draw(width=110)
            self._key.draw(width=110)
            self._part.draw()
