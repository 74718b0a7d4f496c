"""Find my wall: the longest text that fits a card, as asked, as drawn, and a real pair around it."""

import streamlit as st

from engine.memory_wall.plan import Plan
from engine.memory_wall.predictions import Longest
from engine.memory_wall.setting import CARDS_GB, MAX_TOKENS
from engine.probes.registry import MEMORY_WALL
from lab import bench, probes
from lab.charts import drawing
from lab.sections.wall import controls, find, parts, rows
from lab.sections.wall.parts import Choice
from lab.settings import Settings
from lab.shell import frame
from lab.words import plain


def asked(settings: Settings, choice: Choice) -> find.Found | None:
    """Card, guess and button; then what is predicted, once it was asked for."""
    with st.container(horizontal=True, vertical_alignment="bottom", key="instruments-find"):
        st.segmented_control(
            "Card", list(CARDS_GB), format_func=lambda gb: f"{gb} GB", key=settings.key("card"), required=True
        )
        st.number_input(
            "Longest for explicit, tokens",
            min_value=1,
            max_value=MAX_TOKENS,
            step=1,
            key=settings.key("mine"),
            placeholder="Your guess",
            width=240,
        )
        layer = probes.pressed("Predict", settings.key("find"), choice.layer, MEMORY_WALL.seconds)
        status_slot = bench.status_line()
    probes.outdated(layer, choice.layer)
    if layer is None:
        return None
    found = list[Longest]()
    for arguments in find.ASKED:
        answer = probes.attempt(status_slot, MEMORY_WALL, "Predicting …", setting=layer, **arguments)
        if answer is None:
            return None
        found += answer.longest
    status_slot.markdown(f":small[:green[Predicted for {plain(parts.layer_words(layer))}]]")
    return find.longest(found)


def drawn(found: find.Found | None) -> None:
    """The figure and the table of cards."""
    bench.figure_title(
        "Longest text that fits",
        "tokens, over the card’s memory",
        "memory-wall-longest",
        lambda: find.chart(found),
        lambda: find.csv_rows(found),
        key="figure-title-find",
    )
    with st.container(horizontal=True, gap="medium", key="figure-find"):
        with st.container(width=bench.HALF, gap=None):
            drawing.draw(find.chart(found), key="wall.find")
        with st.container(width=bench.HALF):
            st.table(find.cards_table(found), border="horizontal", hide_index=True)
            st.caption("8.125 MB are set aside for cuBLAS, as on the chapter’s card. At most 100,000,000.")


def for_real(settings: Settings, choice: Choice, found: find.Found) -> Plan | None:
    """The reader's guess answered; then the last n that fits a small card, and the next one, measured."""
    card, mine = (st.session_state[settings.key(name)] for name in ("card", "mine"))
    st.markdown(find.answer(found, card, mine, choice.layer), width=frame.MEASURE)
    device = choice.plan.device if choice.plan else "cpu"
    with st.container(horizontal=True, vertical_alignment="bottom", key="instruments-pair"):
        st.segmented_control(
            "Try it for real on, GB", list(find.SMALL_GB), key=settings.key("small"), required=True
        )
        pair = find.pair(found, st.session_state[settings.key("small")], choice.layer, device)
        measured = rows.look(pair)
        controls.button(settings, pair, measured, "Measure both", "pair")
        if pair is None:
            st.markdown(":small[:gray[Not a single token fits such a card]]")
        else:
            st.markdown(f":small[{find.pair_words(pair, measured)}]")
    return pair
