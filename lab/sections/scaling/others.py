"""What is trained beside the sweep: heads in models of their own width, and heads of other scales."""

from collections.abc import Callable, Sequence

import streamlit as st

from engine.chapter.definitions import ids
from engine.chapter.experiments import PERPLEXITY, SCALES, SCALING, SCALING_WIDE, Experiment
from lab import bench
from lab.bench import Request, Sweep, Table, tables
from lab.bench.remarks import general
from lab.charts import panels
from lab.sections.scaling.parts import AS_WIDE, FROZEN, PANELS, SCALES_PANELS, SPREAD, caption, lines, parts
from lab.settings import Settings
from lab.shell import frame
from lab.shell.frame import dot
from lab.words import NBSP, count, plain

# What tells the models of an experiment apart, without what all of them share.
SCALES_LABELS = {made.id: made.part for made in SCALES.models}
AS_WIDE_LABELS = {made.id: made.short for made in SCALING_WIDE.models}
EXTRA = ids(*(made for made in SCALES.models if made.id not in SCALING.variants))


def as_wide(request: Request, settings: Settings) -> None:
    """The heads in models of their own width."""
    frame.heading(
        "In a model as wide as its head",
        "Above, the model stays 128 wide and only the head grows. Here the model grows with it, and each "
        "query and key sums over as many numbers as it has. Figures like the chapter’s come from here. "
        f"{bench.in_words(SCALING_WIDE.budget(request.budget))}.",
    )
    trained, labels = SCALING_WIDE.variants, AS_WIDE_LABELS
    _beside(SCALING_WIDE, request, "wide", trained, labels, PANELS, _wide_tables, settings)


def other_scales(request: Request, settings: Settings) -> None:
    """What else might keep a wide head soft."""
    frame.heading(
        "Divide by something else?",
        "By d_k itself; by a number that the head learns; or by √d_k, with queries and keys brought to one "
        "length first (QK-norm). The three beside the two heads of d_k 1024 above, on the same budget, seeds "
        "and text.",
    )
    _beside(SCALES, request, "scales", EXTRA, SCALES_LABELS, SCALES_PANELS, _scales_tables, settings)


def _beside(
    experiment: Experiment,
    request: Request,
    name: str,
    trained: Sequence[str],
    labels: dict[str, str],
    drawn: Sequence[panels.Panel],
    results: Callable[[Sweep], Sequence[Table]],
    settings: Settings,
) -> None:
    """An experiment beside the sweep: its button, panels, results. trained: what the button trains."""
    sweep, refused = bench.requested(request, experiment)
    extra = sweep.part(lambda spec: spec.variant in trained)
    rules = bool(experiment.chapter) and sweep.of_the_chapters_text

    def draw(now: Sweep) -> None:
        everything = sweep.again()
        made = parts(everything, experiment.variants, labels, drawn, rules=rules)
        panels.draw(made, experiment.budget(request.budget).steps, name, now.progress)
        with st.container(key=f"results-{name}", width=bench.TABLE_WIDTH):
            for table in results(everything):
                table.draw()

    bench.train_also(extra, settings, name, f"Train {count(len(trained))} models", draw, refused=refused)


def _models_table(sweep: Sweep, first: str, labels: dict[str, str], caption: str = "") -> Table:
    """Every model of an experiment: the shipped perplexity, yours, and your scores at the end.

    first: what the column of their labels is called.
    """
    rows = []
    for name, label in labels.items():
        row = sweep.row(name, PERPLEXITY)
        scores = (tables.yours(sweep.row(name, panel.metric), panel.shown) for panel in (SPREAD, FROZEN))
        shipped = tables.shipped(row, PERPLEXITY)
        rows.append((f"{dot(name)}{NBSP}{plain(label)}", shipped, tables.yours(row), *scores))
    columns = (first, "reference", "perplexity, yours", "std of scores", "over 0.99")
    return Table(columns, rows, caption)


def _wide_tables(sweep: Sweep) -> list[Table]:
    """The heads in models of their own width, and the chapter's figures of them."""
    beside = tables.four_columns(sweep, lines(sweep, AS_WIDE), "beside the chapter", caption(sweep, AS_WIDE))
    return [_models_table(sweep, "d_k and d_model", AS_WIDE_LABELS), beside]


def _scales_tables(sweep: Sweep) -> list[Table]:
    """The heads of other scales."""
    said = " ".join(general(sweep, sweep.rows()))
    return [_models_table(sweep, "d_k 1024", SCALES_LABELS, said)]
