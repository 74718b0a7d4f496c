"""Averages: four models that know the past only as its mean, or not at all."""

from functools import partial

from engine.chapter.experiments import AVERAGES
from engine.chapter.variants import AVERAGE, AVERAGE_ADDED, AVERAGE_POSITIONS, NO_CONTEXT
from lab import bench, probes
from lab.bench import Sweep, difference
from lab.sections.averages import dilution, order
from lab.settings import Settings
from lab.shell import frame
from lab.shell.chapter import section
from lab.words import quantity

SECTION = section("averages.py")


def notice(now: Sweep) -> str:
    """What the four figures say, read off the reader's own."""
    rows = {row.variant: row for row in now.rows()}
    models = (NO_CONTEXT, AVERAGE, AVERAGE_POSITIONS, AVERAGE_ADDED)
    alone, replaced, placed, added = (rows[made.id] for made in models)
    if alone.mean is None or replaced.mean is None:
        return "One model diverged, so there is nothing to conclude. Train it again with another seed."
    said = [
        f"Every earlier token counts equally, so the mean cannot tell which one matters. In place of the "
        f"token it multiplies the perplexity by {quantity(replaced.mean / alone.mean)}"
    ]
    if (gap := difference(added, alone)) is not None:
        said[0] += f"; added to it, it {'costs' if gap.points > 0 else 'gains'} {gap.size(' points')}."
    if (gap := difference(replaced, placed)) is not None:
        much = f"{'take off' if gap.points > 0 else 'add'} {gap.size(' points')}"
        effect = "change nothing" if gap.level else much
        said.append(
            f"Positions {effect}. They are added before the mean is taken, and the sum of a window’s "
            f"positions is the same for every order of its words."
        )
    return "\n\n".join(said)


settings = Settings("averages")
first = settings.text("first", "One sentence", "the dog bit the man", max_chars=300)
second = settings.text("second", "The same words in another order", "the man bit the dog", max_chars=300)
position = settings.whole("t", "Position t", 1, dilution.CONTEXT, 100, slider=True)

frame.header(
    SECTION,
    AVERAGES.question,
    "The simplest way to use context is to average it. Train four small language models on Shakespeare, "
    "and see what the average is worth and what it destroys.",
    settings,
)
bench.train(AVERAGES, settings, questions=bench.best_and_worst(AVERAGES), notice=notice)
frame.sources(AVERAGES, "The code of the four models")
probes.beside(partial(order.sentences, first, second, settings))
probes.beside(partial(order.paragraph, settings))
dilution.draw(position)
frame.footer(SECTION, settings)
