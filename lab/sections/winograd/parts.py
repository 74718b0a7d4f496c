"""Curves, tables and words of the Winograd models: how often each names the right noun, and what else."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from engine.chapter.definitions import ACCURACY, WRONG_NOUN, ids
from engine.chapter.language_variants import AVERAGE, AVERAGE_ADDED, ONE_BLOCK, TWO_BLOCKS
from lab.bench import tables
from lab.bench.sweep import Row, Sweep
from lab.charts import lines as charts
from lab.charts.axes import step_ticks
from lab.charts.drawing import Spec
from lab.charts.lines import Across, Curve, Frame, Line
from lab.sections.winograd.setup import Choice
from lab.shell.frame import dot
from lab.shell.styles import style
from lab.words import MINUS, NBSP, plain, quantity

if TYPE_CHECKING:
    from pandas.io.formats.style import Styler

OTHER, TRAINED_ON = "other", "train_accuracy"
CHANCE = 0.5
BAG_GUESSES = {"above": "above chance", "at": "at chance, 50 %", "below": "below chance"}
BLOCK_GUESSES = {"first": "in block 1", "second": "in block 2", "both": "in both"}
AVERAGES, BLOCKS = ids(AVERAGE, AVERAGE_ADDED), ids(ONE_BLOCK, TWO_BLOCKS)


def share(value: float | None, decimals: int = 1) -> str:
    """A share as percent: "92.7 %"."""
    return "–" if value is None else f"{quantity(100 * value, decimals)}{NBSP}%"


def steps_an_epoch(choice: Choice) -> float:
    """Steps in which the training sentences are seen once, on average."""
    if choice.language is None:
        return 1.0
    pairs = choice.language.split(choice.seeds[0] if choice.seeds else 0).train
    batch = choice.experiment.budget(choice.budget).batch_size
    return len(pairs) * len(choice.language.adjectives) / batch


def frame(choice: Choice) -> Frame:
    """The chart's frame: accuracy on held-out sentences over epochs of training."""
    each = steps_an_epoch(choice)
    last = max(choice.steps_of(name) for name in choice.experiment.variants)
    epochs = max(1, round(last / each))
    values = [choice.experiment.chapter.get((name, ACCURACY)) for name in choice.experiment.variants]
    return Frame(
        steps=epochs,
        low=-0.03,
        high=1.04,
        rules=tuple((value.middle, False) for value in values if value) if choice.as_the_chapter else (),
        field=ACCURACY,
        log=False,
        ticks=(0, 0.25, 0.5, 0.75, 1),
        form=".0%",
        shown=share,
        printed=lambda value, _: share(value),
        across=Across(
            field="epoch",
            title=f"epochs, {quantity(each, 0 if each >= 10 else 1)} steps each",
            ticks=tuple(step_ticks(epochs)),
            form=",.0f",
        ),
    )


def chart(choice: Choice, shape: Frame, now: Sweep) -> Spec:
    """Four curves, the chapter's figures, and the rule of a coin."""
    each = steps_an_epoch(choice)
    lines = []
    for name in now.experiment.variants:
        curves = tuple(_in_epochs(curve, each) for curve in now.curves(name, ACCURACY))
        lines.append(Line(now.experiment.variant(name).short, style(name), curves))
    made = charts.line_chart(shape, lines, now.progress if now.unended else 0.0)
    rules = [row for row in made["datasets"]["rules"] if ACCURACY in row]
    made["datasets"]["rules"] = [*rules, {ACCURACY: CHANCE, "text": f"chance, 50{NBSP}%"}]
    return made


def _in_epochs(curve: Curve, each: float) -> Curve:
    return replace(curve, points=tuple((step / each, value) for step, value in curve.points))


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


def _model(now: Sweep, name: str) -> str:
    return f"{dot(name)}{NBSP}{plain(now.experiment.variant(name).title)}"


def results(now: Sweep, choice: Choice) -> "Styler":
    """Accuracy and, where the chapter has one, the share of the wrong noun: four columns."""
    figures, cells = [], []
    for name, metric in now.experiment.figures:
        row = now.row(name, metric)
        told = row if choice.as_the_chapter else replace(row, chapter=None, reference=None)
        shipped = told.reference
        mean = shipped.mean(metric) if shipped else None
        gap = row.mean - told.chapter.middle if told.chapter and row.mean is not None else None
        figures.append((told.chapter.middle if told.chapter else None, mean, row.mean, gap))
        cells.append(
            (
                _model(now, name) + ("" if metric == ACCURACY else ", wrong noun"),
                tables.printed(told.chapter, share),
                tables.with_spread(mean, shipped.sd(metric) if shipped else None, shown=share),
                tables.yours(row, share),
                _judged(told, gap, comparable=choice.comparable),
            )
        )
    return tables.cells(("right answers", *tables.COLUMNS[1:]), figures, cells)


def _judged(row: Row, gap: float | None, *, comparable: bool) -> str:
    """A difference in points of a hundred, judged where it can be."""
    if gap is None:
        return ":gray[–]"
    text = f"{'+' if gap >= 0 else MINUS}{quantity(abs(100 * gap))}"
    if not comparable:
        return f":gray[{text}]"
    return f":green[{text}]" if tables.within(row) else f":red[{text}{NBSP}outside]"


def shares(now: Sweep) -> "Styler":
    """What each model names: the right noun, the pair's other, anything else; held out and trained on."""
    columns = (ACCURACY, WRONG_NOUN, OTHER, TRAINED_ON)
    figures, cells = [], []
    for name in now.experiment.variants:
        rows = [now.row(name, metric) for metric in columns]
        figures.append([row.mean for row in rows])
        cells.append((_model(now, name), *(tables.yours(row, share) for row in rows)))
    return tables.cells(
        ("yours, of held-out sentences", "right noun", "wrong noun", "other", "trained on"), figures, cells
    )


def remarks(now: Sweep, choice: Choice) -> str:
    """What the tables hold, and how far they can be compared."""
    seeds = max((len(row.yours) for row in now.rows()), default=0) or len(choice.seeds)
    said = [
        f"Mean ± standard deviation over {seeds} seeds."
        if seeds > 1
        else "One seed: no spread, so noise is unknown.",
        "Difference in points of a hundred.",
    ]
    if not choice.as_the_chapter:
        said.append("The words are yours, so nothing is compared with the chapter.")
    elif not choice.comparable:
        said.append(
            f"Chapter and reference trained longer than yours, so a grey difference judges nothing. The "
            f"quick budget already shows that {now.experiment.shows}; it cannot show {now.experiment.hides}."
        )
    else:
        said.append("Green: within what is said to count as reproduced.")
    return " ".join(said)


def notice(now: Sweep, bag: str | None) -> str:
    """What the four models say about the question; empty while the average has no figure."""
    right, wrong = (now.row("average", metric).mean for metric in (ACCURACY, WRONG_NOUN))
    if right is None or wrong is None:
        return ""
    found = "above" if right > CHANCE + 0.05 else "below" if right < CHANCE - 0.05 else "at"
    said = [
        f"You guessed *{BAG_GUESSES[bag]}*. " if bag else "",
        f"The bag of words is right in **{share(right)}**, {_place(found)}.",
    ]
    if found == "above":
        said.append(" Here the class of a noun gives the answer away, and no order is needed.")
    else:
        said.append(
            f" It names the wrong noun of the pair in **{share(wrong)}** and neither in "
            f"{share(max(0.0, 1 - right - wrong))}: “dog, street, tired” is the same bag whoever crossed."
        )
    return "\n\n".join(["".join(said), *_blocks(now)])


def _place(found: str) -> str:
    return {"above": "above a coin", "at": "as good as a coin", "below": "below a coin"}[found]


def _blocks(now: Sweep) -> Sequence[str]:
    one, two = (now.row(name, ACCURACY) for name in BLOCKS)
    if one.mean is None or two.mean is None:
        return ()
    wrong = now.row("one-block", WRONG_NOUN).mean
    said = f"One block answers {share(one.mean)}, two **{share(two.mean)}**."
    if one.mean < two.mean and wrong is not None:
        said += f" Of what one block misses, {_of_missed(wrong, one.mean)} is the wrong noun of the pair."
    return [said + " How two blocks do it is measured below, on the model that was trained here."]


def _of_missed(wrong: float, right: float) -> str:
    return share(wrong / (1 - right), 0) if right < 1 else "nothing"
