"""Mask and softmax: one average three ways, scores to edit, a mask's value, and what leaks without one."""

from collections.abc import Sequence
from functools import partial

from engine.chapter.experiments import MASK
from engine.chapter.variants import HEAD_ADDED, UNMASKED
from engine.probes.registry import CONSTANTS, EMPTY_ROWS
from engine.probes.results.leaks import Constant
from lab import bench, probes
from lab.bench import Sweep
from lab.sections.mask import charts, grid, scores, values, ways, writing
from lab.settings import Settings
from lab.shell import frame
from lab.shell.chapter import section
from lab.words import quantity

SECTION = section("mask.py")


def notice(now: Sweep) -> str:
    """What the two figures say, read off the reader's own."""
    honest, unmasked = (now.row(made.id, MASK.metric).mean for made in (HEAD_ADDED, UNMASKED))
    if honest is None or unmasked is None:
        return "One model diverged, so there is nothing to conclude. Train it again with another seed."
    if unmasked >= honest:
        return "In these steps the unmasked head has not found the answer yet. Give it more."
    return (
        f"Without its mask the head is {quantity(honest / unmasked)} times less perplexed, on text that it "
        f"has never seen: evaluation hands it the answer as training did. Held-out text does not uncover "
        f"such a leak; a figure too good to be true does.\n\n"
        f"A perplexity of {quantity(unmasked, 2)} gives the right token {quantity(100 / unmasked, 0)} % of "
        f"the probability, in the geometric mean."
    )


def type_and_size() -> None:
    """Of the scores that a mask value has to stand beside."""
    number_type.draw(width="content")
    score_size.draw(width=360)


def constants(found: Sequence[Constant], _: object) -> None:
    """What becomes of each mask value in the chosen type."""
    values.constants(found, number_type.value, float(score_size.value))


settings = Settings("mask")
tokens = settings.choice("tokens", "Tokens", ways.LENGTHS, "6")
vectors = settings.random("draw", "Draw other vectors")
typed = settings.value("scores", grid.parse, grid.PRESETS["example"], grid.write)
mask = settings.choice("causal", "Mask", ("causal", "none"), "causal", shown=str.capitalize)
multiplied = settings.choice(
    "times", "Scores multiplied by", charts.TIMES, "1", shown="×{}".format, widget="slider"
)
number_type = settings.choice("type", "Type", values.TYPES, "float32")
sizes = {f"{size:.0f}": values.size_label(size) for size in values.SIZES}
label = "Size of the scores (standard deviation)"
score_size = settings.choice("size", label, sizes, "10000", widget="slider")
prompt = settings.text("prompt", "Begins with", "ROMEO: I will", max_chars=200)

frame.header(
    SECTION,
    MASK.question,
    "It hides the future: every score above the diagonal becomes −∞, so the softmax gives it 0. Turn the "
    "average into attention step by step, then train one model that may look ahead.",
    settings,
)
ways.draw(tokens, vectors)
scores.draw(mask, multiplied, typed, settings)
probes.look(
    "Which value should a mask use?",
    "A mask needs a score that the softmax turns into 0. −∞ does so by definition; a large negative "
    "number does as long as no score comes near it and the type can hold it.",
    settings,
    "values",
    CONSTANTS,
    constants,
    controls=type_and_size,
    arguments=lambda _: {"sizes": list(values.SIZES)},
)
probes.look(
    "A row with nothing to see",
    "When padding stands before a text, a causal mask and a padding mask together can leave a row no key "
    "at all. Its largest score is −∞, softmax takes −∞ from −∞, and that is NaN. Here the third of six "
    "rows is such a row, and the loss leaves it out.",
    settings,
    "empty",
    EMPTY_ROWS,
    lambda found, _: values.empty_rows(found),
    arguments=lambda _: {},
    below=True,
)
frame.heading(
    "How good is a model that sees the answer?",
    "One head with its mask and the same head without. Both predict the next token at every position; "
    "one of them can look it up.",
)
bench.train(
    MASK,
    settings,
    questions=bench.best_and_worst(MASK),
    figure=partial(bench.perplexity, low=1.0),  # under what the chapter prints
    notice=notice,
)
frame.sources(MASK, "The code of the two models")
probes.beside(partial(writing.draw, prompt, settings))
frame.footer(SECTION, settings)
