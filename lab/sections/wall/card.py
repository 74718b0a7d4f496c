"""Find my wall: the longest text that fits a card, as asked, as drawn, and a real pair around it."""

import streamlit as st

from engine.memory_wall.plan import Plan
from engine.memory_wall.predictions import Longest
from engine.probes.registry import MEMORY_WALL
from lab import bench, probes
from lab.charts import drawing
from lab.sections.wall import controls, find, parts, rows
from lab.sections.wall.parts import Controls
from lab.settings import Setting, Settings
from lab.shell import frame
from lab.words import plain


def asked(settings: Settings, chosen: Controls) -> find.Found | None:
    """Card, guess and button; then what is predicted, once it was asked for."""
    choice = chosen.choice
    with st.container(horizontal=True, vertical_alignment="bottom", key="instruments-find"):
        chosen.card.draw()
        chosen.mine.draw(placeholder="Your guess", width=240)
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
            find.cards_table(found).draw()


def for_real(settings: Settings, chosen: Controls, small: Setting[str], found: find.Found) -> Plan | None:
    """The reader's guess answered; then the last n that fits a small card, and the next one, measured."""
    choice = chosen.choice
    answer = find.answer(found, chosen.card.value, chosen.mine.value, choice.layer)
    st.markdown(answer, width=frame.MEASURE)
    device = choice.plan.device if choice.plan else "cpu"
    with st.container(horizontal=True, vertical_alignment="bottom", key="instruments-pair"):
        small.draw()
        pair = find.pair(found, small.value, choice.layer, device)
        measured = rows.look(pair)
        controls.button(settings, pair, measured, "Measure both", "pair")
        if pair is None:
            st.markdown(":small[:gray[Not a single token fits such a card]]")
        else:
            st.markdown(f":small[{find.pair_words(pair, measured)}]")
    return pair
