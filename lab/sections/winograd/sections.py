"""What is shown of a model from inside: two sentences side by side, block 1, the circuit, cuts."""

from typing import Any

import streamlit as st

from engine.circuits.results import Edge, Head
from engine.data.languages.winograd import CLOSED, DECISION
from engine.probes.registry import ABLATED, CIRCUIT, CUT, EFFECTS, MAPS
from engine.probes.results.winograd import Maps
from lab import bench
from lab.sections.winograd import graph, maps
from lab.sections.winograd.graph import Graph
from lab.sections.winograd.inside import Inside
from lab.sections.winograd.parts import share
from lab.shell import export, frame
from lab.words import plain

HEADS = ("mean", "1", "2", "3", "4")
HOWS = {"edge": "An edge", "zero": "A head, to zero", "mean": "A head, to its mean"}
ALL = "all"
CHAPTERS_MAPS = (
    "In the chapter’s own model the mean of block 1 is the same for tired and wet: 0.70 on the first noun, "
    "0.06 on the second, 0.19 on “the”, 0.05 on the comma. Its block 2 puts 1.00 on “tired”; after wet 0.49 "
    "on the second noun, 0.25 on “the”, 0.20 on “too”, 0.03 on “wet”. Which head does what differs from seed "
    "to seed."
)


def two_sentences(inside: Inside) -> Maps | None:
    """Paired maps and the grid of all adjectives."""
    inside.settings.again("head")
    found = inside.find(MAPS, **inside.subject, pair=inside.pair) if inside.ready() else None
    inside.whose()
    if found:
        maps.both(found, inside.colors)
        if inside.choice.language == CLOSED and inside.blocks == 2:
            st.caption(CHAPTERS_MAPS)
        with st.container(horizontal=True, vertical_alignment="bottom", key="instruments-head"):
            st.markdown(
                f"**All {len(found.adjectives)} adjectives** :gray[mean of {found.grid_count} held-out "
                "sentences]",
                width="stretch",
            )
            st.segmented_control("Head", HEADS, key=inside.settings.key("head"), required=True)
        maps.grid(found, inside.state("head"), inside.colors)
        with st.expander("The whole maps of both sentences"):
            maps.whole(found, inside.state("head"), inside.colors)
    return found


def block_one(inside: Inside, found: Maps | None) -> None:
    """The scores that cannot move. found: the maps."""
    frame.heading(
        "Why block 1 cannot know",
        "Change the adjective and look at block 1’s raw scores where the answer is due, before the softmax.",
    )
    if found is None:
        st.markdown(":small[:gray[These numbers come with the maps above.]]")
        return
    head = inside.state("head")
    with st.container(horizontal=True, gap="medium"):
        with st.container(width=bench.TABLE_WIDTH):
            maps.unmoved_table(found, head).draw()
            st.caption(f"{'Mean of the heads' if head == 'mean' else f'Head {head}'}; choose it above.")
        with st.container(width=bench.NOTICE_WIDTH):
            st.markdown(maps.unmoved_words(found))


def cut(inside: Inside) -> None:
    """The circuit as a graph; one edge cut."""
    frame.heading(
        "Cut one edge",
        "Below the words, above them each block’s heads; a line is a look, as wide as its weight, and in ink "
        "where the answer loses a fifth of its logit difference without it. Click one: it is cut, and the "
        "rest of that row renormalised.",
    )
    inside.settings.again("edge")
    if not inside.ready():
        return
    circuit = inside.pressed("circuit", "Find the circuit", CIRCUIT, **inside.subject)
    inside.whose()
    if circuit and (effects := inside.find(EFFECTS, **inside.subject, pair=inside.pair)):
        _graph(inside, graph.joined(circuit, effects))


def _graph(inside: Inside, found: Graph) -> None:
    each, key = graph.looks(found), inside.settings.key("edge")
    if (wanted := inside.state("edge")) not in each:
        if wanted:
            st.markdown(f":orange[This model has no look {plain(wanted)}. Shown: the costliest.]")
        st.session_state[key] = st.query_params["edge"] = graph.costliest(found)
    names = {name: look.said for name, look in each.items()}
    st.selectbox("Edge to cut", list(names), format_func=names.__getitem__, key=key, width=bench.HALF)
    chosen = each[inside.state("edge")]
    with st.container(horizontal=True, vertical_alignment="center", key="figure-title-circuit"):
        st.markdown("**The circuit** :gray[looks and their weights; click one]", width="stretch")
        with st.popover("Export", type="tertiary", key="export.winograd.circuit"):
            export.downloads(
                "winograd-circuit", lambda: graph.spec(found, chosen.id), lambda: graph.csv_rows(found)
            )
    with st.container(key="figure-circuit"):
        graph.draw(found, chosen.id, "winograd.graph", key)
    st.caption(
        "Solid: seen from the deciding position; dashed: from the adjective; dotted: from other words; red: "
        "cut. Grey heads have no look that counts. Lines to the answer: what a head adds to it by itself."
    )
    st.markdown(graph.cut_words(chosen, found), width=bench.TABLE_WIDTH)
    with st.container(key="results-cut", width=bench.TABLE_WIDTH):
        graph.answers_table(found.answers, chosen.answers).draw()


def cut_any(inside: Inside) -> None:
    """Any edge by its places, or a whole head."""
    st.subheader("Any edge, or a whole head", anchor=False)
    inside.settings.again("how", "block", "of", "query", "key")
    with st.container(horizontal=True, vertical_alignment="bottom", key="instruments-any"):
        _what_to_take_out(inside)
    if not inside.ready():
        return
    how, head, block = inside.state("how"), inside.state("of"), int(inside.state("block")) - 1
    of = None if head == ALL else int(head) - 1
    asked: dict[str, Any] = {**inside.subject, "pair": inside.pair}
    if of is None or how == "edge":
        edge = Edge(int(inside.state("query")), int(inside.state("key")), block, of)
        found = inside.find(CUT, **asked, edges=[edge])
    else:
        found = inside.find(ABLATED, **asked, heads=[Head(block, of)], how=how)
    if found:
        before, after = found.before, found.after
        st.markdown(
            f"Of {before.count} held-out sentences {share(before.accuracy)} were right and "
            f"**{share(after.accuracy)}** still are; {share(after.wrong)} name the wrong noun of the "
            "pair."
        )
        with st.container(key="results-any", width=bench.TABLE_WIDTH):
            graph.answers_table(found.answers, found.changed).draw()


def _what_to_take_out(inside: Inside) -> None:
    """The boxes for an edge or a head; a choice that is no longer there becomes the first that is."""
    key, state = inside.settings.key, st.session_state
    st.segmented_control("Take out", list(HOWS), format_func=HOWS.__getitem__, key=key("how"), required=True)
    edge = inside.state("how") == "edge"
    for name, label, options in (
        ("block", "Block", tuple(range(1, inside.blocks + 1))),
        ("of", "Head", (*((ALL,) if edge else ()), *HEADS[1:])),
    ):
        if state[key(name)] not in options:
            state[key(name)] = options[0]
        st.selectbox(label, options, key=key(name), width=90)
    if edge:
        for name, label in (("query", "Query"), ("key", "Key")):
            st.number_input(label, 0, DECISION, key=key(name), width=110)
