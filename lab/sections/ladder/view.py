"""What the page Ladder draws of its sweeps and probes: tables, and beside them what they say."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import streamlit as st

from engine.chapter.experiments import LADDER
from engine.probes.results.block import Block
from lab.bench import training
from lab.bench.instruments import Choice
from lab.bench.sweep import Sweep
from lab.charts import drawing
from lab.charts import panels as small_multiples
from lab.sections.ladder import notice, probe
from lab.sections.ladder import parts as ladder_parts
from lab.sections.ladder.own import of_the_ladder

if TYPE_CHECKING:
    from pandas.io.formats.style import Styler


def table(styler: "Styler") -> None:
    """A table as all of the page's are."""
    st.table(styler, border="horizontal", hide_index=True)


def beside(key: str, tables: Sequence[tuple["Styler", str]], words: str, heading: str = "") -> None:
    """Tables at the left, each above its caption; at the right what they say, under its heading."""
    with st.container(horizontal=True, gap="medium", key=key):
        with st.container(width=training.TABLE_WIDTH):
            for styler, caption in tables:
                table(styler)
                st.caption(caption)
        with st.container(width=training.NOTICE_WIDTH):
            if heading:
                st.subheader(heading, anchor=False)
            st.markdown(words)


def results(now: Sweep, choice: Choice, words: str) -> None:
    """The four columns. now: with the reader's own rung, where there is one; words: what to notice."""
    styler = ladder_parts.results_table(now, comparable=choice.budget == "chapter")
    caption = " ".join(_remarks(of_the_ladder(now), choice))
    beside("results", [(styler, caption)], words, "What to notice")


def _remarks(now: Sweep, choice: Choice) -> list[str]:
    said = training.general_remarks(LADDER, now.rows(), choice)
    if not now.of_the_chapters_text:
        said.append("Yours are of another text, so nothing is compared.")
    elif choice.budget != "chapter":
        said.append(
            f"Chapter and reference: {LADDER.budget('chapter').steps:,} steps; yours: "
            f"{LADDER.budget(choice.budget).steps:,}, so a grey difference judges nothing. The quick budget "
            f"already shows that {LADDER.shows}; it cannot show {LADDER.hides}."
        )
    else:
        said.append("Green: within 3 % of the chapter.")
    return said


def worth(now: Sweep, choice: Choice) -> None:
    """What every part buys beside its parent, and the differences that the chapter gives."""
    tables = [
        (
            ladder_parts.bought_table(now),
            "Parameters: more than the parent has. Below zero: it costs points. Grey: within seed noise, "
            "or of the reference. Paired over seeds.",
        ),
        (
            ladder_parts.beside_the_chapter(now, comparable=choice.budget == "chapter"),
            "The chapter’s own comparisons, all inferred from its prose; below zero is better. The added "
            "average here has no positions: which rows of the chapter’s have them is not printed. Green: "
            "within a third of the chapter’s.",
        ),
    ]
    beside("results-worth", tables, notice.apart(now), "One thing at a time")


def by_heart(now: Sweep, choice: Choice) -> None:
    """One block, two, and one with dropout: curves held out and on their own text, and where they end."""
    progress = now.progress if now.unended else 0.0
    panels = ladder_parts.by_heart_parts(now)
    small_multiples.draw(panels, LADDER.budget(choice.budget).steps, "heart", progress)
    styler = ladder_parts.by_heart_table(now, comparable=choice.budget == "chapter")
    caption = (
        f"At the end, on windows of the training text, without dropout; the curves at the right are "
        f"of batches, with it. Dashed rules: the chapter, after "
        f"{LADDER.budget('chapter').steps:,} steps."
    )
    beside("results-heart", [(styler, caption)], notice.by_heart(now), "By heart")


def dropout(now: Sweep, corpus_id: str) -> None:
    """With dropout and without. now: at both budgets; corpus_id: empty where no text is chosen yet."""
    parts = [(name, _of_budget(now, name)) for name in LADDER.budgets]
    few, many = (ladder_parts.bought(part, "block-dropout") for _, part in parts)
    once, often = (
        ladder_parts.times(ladder_parts.passes(LADDER.budget(name), corpus_id)) for name, _ in parts
    )
    caption = (
        "Held-out perplexity; a pass is as many tokens as the training part has, drawn at random "
        "places. Bought: points that dropout takes off, grey within seed noise."
    )
    styler = ladder_parts.dropout_table(parts, corpus_id)
    beside("results-passes", [(styler, caption)], notice.dropout(few, many, (once, often)))


def _of_budget(now: Sweep, name: str) -> Sweep:
    return now.part(lambda spec: spec.budget_name == name)


def linearity(measured: Block) -> None:
    """How far from linear each part of a block is."""
    st.markdown("**One feature of the output, while the input moves along a line** :gray[scaled]")
    drawing.draw(probe.line_chart(measured), key="ladder.line")
    caption = (
        "Length of the difference over the length of the output, biases taken off; four heads, "
        "32 tokens of standard normal numbers, float32."
    )
    tables = [(probe.linear_table(measured), caption)]
    beside("results-linear", tables, probe.linear_notice(measured), "Hence the feed-forward")


def norms(measured: Block) -> None:
    """What LayerNorm promises, kept and broken."""
    tables = [(probe.norms_table(measured), probe.norms_remark(measured))]
    beside("results-norms", tables, probe.norms_notice(measured), "Four promises")
