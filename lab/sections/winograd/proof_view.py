"""The proof of a circuit on the page: ablation, patching, the logit lens, attribution, the route."""

import streamlit as st

from engine.circuits.results import Roles
from engine.probes.registry import CIRCUIT, PROOF
from engine.probes.results.winograd import Proof
from lab import bench
from lab.charts import drawing
from lab.charts.maps import figure, strip
from lab.sections.winograd import proof
from lab.sections.winograd.inside import Inside
from lab.shell import export, frame
from lab.words import plain


def show(inside: Inside) -> None:
    """All of it, of the model and sentences that were set when the button was pressed."""
    frame.heading(
        "Proof",
        "A map is a picture. These are interventions: take a head away, put a value of the other sentence "
        "in, read the stream early, add up what each part wrote.",
    )
    if not inside.ready():
        return
    found = inside.pressed("proof", "Prove it", PROOF, **inside.subject, pair=inside.pair)
    inside.whose()
    if found is None:
        return
    if circuit := inside.find(CIRCUIT, **inside.subject):
        _ablation(circuit.roles)
    _patching(inside, found)
    _lens(found)
    _attribution(found)
    _route(inside, found)


def _ablation(circuit: Roles) -> None:
    with st.container(horizontal=True, vertical_alignment="center"):
        st.subheader("Without a head", anchor=False, width="stretch")
        with st.popover("Export", type="tertiary", key="export.winograd.heads"):
            export.downloads(
                "winograd-heads", lambda: proof.ablation_chart(circuit), lambda: proof.csv_rows(circuit)
            )
    st.markdown(proof.sets_words(circuit), width=frame.MEASURE)
    with st.container(horizontal=True, gap="medium"):
        with st.container(width=bench.HALF):
            with st.container(key="figure-heads"):
                drawing.draw(proof.ablation_chart(circuit), key="winograd.heads")
            st.caption("Ring: the head to zero. Dot: to its mean. Dashed: 75 % and 95 %.")
        with st.container(width=bench.HALF):
            proof.ablation_table(circuit).draw()
    with st.container(key="results-sets", width=bench.TABLE_WIDTH):
        proof.sets_table(circuit).draw()


def _patching(inside: Inside, found: Proof) -> None:
    a, b = (one.adjective for one in found.attribution)
    frame.heading(
        "Patched from the other sentence",
        "Restored logit difference: 0 as in the sentence with the second adjective, 1 as with the first.",
        below=True,
    )
    key = strip.key("scores", 1.0, inside.colors, "restored")
    figure.draw(key, "winograd.key.restored", inside.colors, still=True)
    with st.container(horizontal=True):
        for name, panel in (("residual", proof.residual_panel(found)), ("heads", proof.heads_panel(found))):
            with st.container(width=bench.HALF):
                made = figure.figure(panel, inside.colors, limit=1.0, width=bench.HALF)
                figure.draw(made, f"winograd.patch.{name}", inside.colors, said=f"restored, {name}")
    st.markdown(proof.patching_words(found, a, b), width=frame.MEASURE)


def _lens(found: Proof) -> None:
    st.subheader("If the stream ended here", anchor=False)
    with st.container(width=bench.TABLE_WIDTH):
        proof.lens_table(found).draw()


def _attribution(found: Proof) -> None:
    st.subheader("Who wrote the difference", anchor=False)
    with st.container(key="figure-attribution", width=bench.TABLE_WIDTH):
        drawing.draw(proof.attribution_chart(found), key="winograd.attribution")
        a, b = (plain(one.adjective) for one in found.attribution)
        st.caption(f"Upper bar: too {a}. Lower, grey: too {b}. Held-out sentences with that adjective.")
    st.markdown(proof.attribution_words(found), width=frame.MEASURE)


def _route(inside: Inside, found: Proof) -> None:
    st.subheader("Which route it took", anchor=False)
    if found.route is None:
        st.markdown("One block has no second hop, so there is no route to tell.")
        return
    guess = st.session_state[inside.settings.key("read")]
    st.markdown(proof.route_words(found.route, guess), width=frame.MEASURE)
    with st.container(horizontal=True, gap="medium", key="results-route"):
        for table in (proof.route_table(found.route), proof.alone_table(found.route)):
            with st.container(width=bench.HALF):
                table.draw()
