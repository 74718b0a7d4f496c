"""The n × n wall: time and memory of one layer against the number of tokens, to out of memory."""

from lab import bench
from lab.sections.wall import cost, find, parts, results, rows
from lab.settings import Settings
from lab.shell import frame
from lab.shell.chapter import section

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
found = rows.followed(chosen.choice.plan, settings)
first, time = bench.ask(parts.QUESTIONS, settings).values()
results.instruments(chosen, found, settings)
results.figures(chosen, found)
results.compared(chosen, found, first.value, time.value)
results.code()

frame.heading(
    "Find my wall",
    "How long a text fits a card, exactly? The page’s own code runs on tensors that have a size and no data, "
    "and halves its way to the last length that fits. Nothing is allocated. Guess first.",
)
find.draw(chosen, small, settings)

frame.heading(
    "What it costs in a whole model",
    "A model is more than its attention. In GPT-2’s shapes, how much of the work is attention, and how much "
    "of what a block stores for the backward pass, as the text grows?",
)
cost.draw(shape)
frame.footer(SECTION, settings)
