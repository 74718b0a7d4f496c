"""Curves, tables and words of the Winograd models: how often each names the right noun, and what else."""

from collections.abc import Iterator
from dataclasses import replace

import streamlit as st

from engine.chapter.definitions import ACCURACY, CHANCE, WRONG_NOUN, ids
from engine.chapter.language_variants import AVERAGE, AVERAGE_ADDED, ONE_BLOCK, TWO_BLOCKS
from lab.bench import Figure, Question, Sweep, Table, remarks, tables
from lab.bench.remarks import general
from lab.charts import drawing
from lab.charts import lines as charts
from lab.charts.axes import step_ticks
from lab.charts.drawing import Spec
from lab.charts.lines import Across, Line, Plot
from lab.sections.winograd.setup import WinogradRequest
from lab.shell.styles import style
from lab.words import NBSP, quantity

OTHER, TRAINED_ON = "other", "train_accuracy"
BAG = {"above": "above chance", "at": "at chance, 50 %", "below": "below chance"}
BLOCK_GUESSES = {"first": "in block 1", "second": "in block 2", "both": "in both"}
AVERAGES, BLOCKS = ids(AVERAGE, AVERAGE_ADDED), ids(ONE_BLOCK, TWO_BLOCKS)


def share(value: float | None, decimals: int = 1) -> str:
    """A share as percent: "92.7 %"; never "−0.0 %"."""
    return "–" if value is None else f"{quantity(round(100 * value, decimals) + 0.0, decimals)}{NBSP}%"


def steps_an_epoch(choice: WinogradRequest) -> float:
    """Steps in which the training sentences are seen once, on average."""
    if choice.language is None:
        return 1.0
    pairs = choice.language.split(choice.seeds[0] if choice.seeds else 0).train
    batch = choice.experiment.budget(choice.budget).batch_size
    return len(pairs) * len(choice.language.adjectives) / batch


def figure(sweep: Sweep) -> Figure:
    """Accuracy on held-out sentences over epochs: four curves, the chapter's figures, the rule of a coin."""
    asked, experiment = sweep.request, sweep.experiment
    assert isinstance(asked, WinogradRequest)
    each = steps_an_epoch(asked)
    epochs = max(1, round(max(map(asked.steps_of, experiment.variants)) / each))
    values = [experiment.chapter.get((name, ACCURACY)) for name in experiment.variants]
    title = f"epochs, {quantity(each, 0 if each >= 10 else 1)} steps each"
    shape = Plot(
        steps=epochs, low=-0.03, high=1.04, field=ACCURACY, log=False, ticks=(0, 0.25, 0.5, 0.75, 1),
        form=".0%", shown=share, printed=lambda value, _: share(value),
        rules=tuple((value.middle, False) for value in values if value) if asked.built_in else (),
        across=Across(field="epoch", title=title, ticks=tuple(step_ticks(epochs)), form=",.0f"),
    )  # fmt: skip

    def chart(now: Sweep) -> Spec:
        lines = []
        for name in experiment.variants:
            curves = now.curves(name, ACCURACY)
            points = [tuple((step / each, value) for step, value in curve.points) for curve in curves]
            moved = tuple(replace(curve, points=at) for curve, at in zip(curves, points, strict=True))
            lines.append(Line(experiment.variant(name).short, style(name), moved))
        made = charts.line_chart(shape, lines, now.progress)
        rules = [row for row in made["datasets"]["rules"] if ACCURACY in row]
        made["datasets"]["rules"] = [*rules, {ACCURACY: CHANCE, "text": f"chance, 50{NBSP}%"}]
        return made

    def draw(now: Sweep) -> None:
        with st.container(key="figure"):
            drawing.draw(chart(now), key="winograd.chart")

    name = f"winograd-{asked.version}-{asked.budget}"
    return Figure("Right answers", "held-out sentences, higher is better", name, draw, chart, numbers)


def numbers(now: Sweep) -> Iterator[tuple[object, ...]]:
    """Every evaluation of every newest run, for a file; the first row names the columns."""
    yield "experiment", "variant", "language", "seed", "run", "state", "step", ACCURACY, WRONG_NOUN, OTHER
    for run in now.runs:
        spec = now.wanted[run.digest]
        found = [dict(now.curve(run, metric).points) for metric in (ACCURACY, WRONG_NOUN, OTHER)]
        for step in found[0]:
            yield (
                *(spec.experiment, spec.variant, spec.corpus, spec.seed, run.id, run.state, step),
                *(values.get(step) for values in found),
            )


def results(now: Sweep) -> Table:
    """Accuracy and, where the chapter has one, the share of the wrong noun: four columns."""
    lines = []
    for name, metric in now.experiment.figures:
        row = now.row(name, metric)
        if not now.request.built_in:
            row = replace(row, chapter=None, reference=None)
        label = tables.model(now, name) + ("" if metric == ACCURACY else ", wrong noun")
        lines.append(tables.Line(label, row, metric, share, lambda gap: quantity(100 * (gap or 0.0))))
    return tables.four_columns(now, lines, "right answers")


def shares(now: Sweep) -> Table:
    """What each model names: the right noun, the pair's other, anything else; held out and trained on."""
    metrics = (ACCURACY, WRONG_NOUN, OTHER, TRAINED_ON)
    rows = [
        (tables.model(now, name), *(tables.yours(now.row(name, metric), share) for metric in metrics))
        for name in now.experiment.variants
    ]
    return Table(("yours, of held-out sentences", "right noun", "wrong noun", "other", "trained on"), rows)


def caption(now: Sweep) -> str:
    """What the tables hold, and how far they can be compared."""
    if not now.request.built_in:
        seeds, *_ = general(now, now.rows())
        return f"{seeds} The words are yours, so nothing is compared with the chapter."
    return remarks(now, None, "Difference in percentage points.")


def bag_of_words(now: Sweep) -> str:
    """How good the average is; empty while it has no figure."""
    right, wrong = (now.row("average", metric).mean for metric in (ACCURACY, WRONG_NOUN))
    if right is None or wrong is None:
        return ""
    place = "above" if right > CHANCE + 0.05 else "below" if right < CHANCE - 0.05 else "at"
    lead = f"The bag of words is right in **{share(right)}**, {place} chance."
    if place == "above":
        return f"{lead} Here the class of a noun gives the answer away, and no order is needed."
    return (
        f"{lead} It names the wrong noun of the pair in **{share(wrong)}** and neither in "
        f"{share(max(0.0, 1 - right - wrong))}: “dog, street, tired” is the same bag whoever crossed."
    )


QUESTIONS = (
    Question("bag", "Before you train: one pool of nouns, how good is a bag of words?", BAG, bag_of_words),
    # Answered in the proof, below, of one model.
    Question("read", "And in which block do two blocks need their look at the adjective?", BLOCK_GUESSES),
)


def notice(now: Sweep) -> str:
    """One block beside two; empty while one of them has no figure."""
    one, two = (now.row(name, ACCURACY) for name in BLOCKS)
    if one.mean is None or two.mean is None:
        return ""
    wrong = now.row("one-block", WRONG_NOUN).mean
    said = f"One block answers {share(one.mean)}, two **{share(two.mean)}**."
    if one.mean < two.mean and wrong is not None:
        missed = share(wrong / (1 - one.mean), 0) if one.mean < 1 else "nothing"
        said += f" Of what one block misses, {missed} is the wrong noun of the pair."
    return f"{said} How two blocks do it is measured below, on the model that was trained here."
