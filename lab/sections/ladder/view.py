"""What the page Ladder draws of its sweeps and probes: tables, and beside them what they say."""

import streamlit as st

from engine.chapter.experiments import LADDER
from engine.probes.results.block import Block
from lab import bench
from lab.bench import Sweep
from lab.charts import drawing
from lab.charts import panels as small_multiples
from lab.sections.ladder import notice, parts, probe


def worth(now: Sweep) -> None:
    """What every part buys beside its parent, and the differences that the chapter gives."""
    tables = [parts.bought_table(now), parts.beside_the_chapter(now)]
    bench.beside("results-worth", tables, notice.apart(now), "One thing at a time")


def by_heart(now: Sweep) -> None:
    """One block, two, and one with dropout: curves held out and on their own text, and where they end."""
    panels = parts.by_heart_parts(now)
    small_multiples.draw(panels, LADDER.budget(now.request.budget).steps, "heart", now.progress)
    bench.beside("results-heart", [parts.by_heart_table(now)], notice.by_heart(now), "By heart")


def dropout(now: Sweep) -> None:
    """With dropout and without. now: at both budgets."""
    corpus_id = now.request.corpus_id or ""
    by_budget = [(name, _of_budget(now, name)) for name in LADDER.budgets]
    few, many = (parts.bought(part, "block-dropout") for _, part in by_budget)
    once, often = (parts.times(parts.passes(LADDER.budget(name), corpus_id)) for name, _ in by_budget)
    table = parts.dropout_table(by_budget, corpus_id)
    bench.beside("results-passes", [table], notice.dropout(few, many, (once, often)), "")


def _of_budget(now: Sweep, name: str) -> Sweep:
    return now.part(lambda spec: spec.budget_name == name)


def linearity(measured: Block) -> None:
    """How far from linear each part of a block is."""
    st.markdown("**One feature of the output, while the input moves along a line** :gray[scaled]")
    drawing.draw(probe.line_chart(measured), key="ladder.line")
    words = probe.linear_notice(measured)
    bench.beside("results-linear", [probe.linear_table(measured)], words, "Hence the feed-forward")


def norms(measured: Block) -> None:
    """What LayerNorm promises, kept and broken."""
    words = probe.norms_notice(measured)
    bench.beside("results-norms", [probe.norms_table(measured)], words, "Four promises")
