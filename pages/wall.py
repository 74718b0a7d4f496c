"""The n × n wall: time and memory of one layer against the number of tokens, to out of memory."""

import streamlit as st

from lab import bench
from lab.charts import drawing
from lab.sections.wall import card, controls, cost, find, parts, results, rows
from lab.settings import Settings
from lab.shell import frame
from lab.shell.chapter import section
from lab.shell.watch import IDLE_SECONDS, redraw_on_change

SECTION = section("wall.py")

settings = Settings("wall")
chosen = parts.Controls(settings)
small = settings.choice("small", "Try it for real on, GB", find.SMALL_GB, find.SMALL_GB[0])
shape = settings.choice("model", "GPT-2", cost.LABELS, "small")

frame.header(
    SECTION,
    SECTION.question,
    "Attention compares every token with every other. Run one layer at twice the length again and again, "
    "each in a process of its own, until it runs out of memory; then without ever storing the matrix.",
    settings,
)
choice = chosen.choice
found = rows.look(choice.plan)
first, time = bench.ask(parts.QUESTIONS, settings).values()
controls.layer(chosen)
controls.instrument_row(settings, chosen, found)
results.figures(chosen, found)
results.compared(chosen, found, first.value, time.value)
results.code()

frame.heading(
    "Find my wall",
    "How long a text fits a card, exactly? The page’s own code runs on tensors that have a size and no data, "
    "and halves its way to the last length that fits. Nothing is allocated. Guess first.",
)
predicted = card.asked(settings, chosen)
card.drawn(predicted)
pair = card.for_real(settings, chosen, small, predicted) if predicted else None
around = rows.look(pair)

frame.heading(
    "What it costs in a whole model",
    "A model is more than its attention. In GPT-2’s shapes, how much of the work is attention, and how much "
    "of what a block stores for the backward pass, as the text grows?",
)
with st.container(horizontal=True, vertical_alignment="bottom", key="instruments-cost"):
    shape.draw()
bench.figure_title(
    "Attention’s share",
    "where the matrix is stored",
    f"attention-share-{shape.value}",
    lambda: cost.chart(shape.value),
    lambda: cost.csv_rows(shape.value),
    key="figure-title-cost",
)
with st.container(key="figure-cost"):
    drawing.draw(cost.chart(shape.value), key="wall.cost")
bench.beside("wall-cost", [cost.shares_table(shape.value)], cost.words(shape.value))

redraw_on_change(
    lambda: [rows.look(choice.plan), rows.look(pair)],
    [found, around],
    1.0 if found.live or around.live else IDLE_SECONDS,
)
frame.footer(SECTION, settings)
