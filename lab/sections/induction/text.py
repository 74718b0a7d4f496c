"""The same heads looked for in models of Shakespeare: table, and whether any has them."""

from dataclasses import replace
from itertools import islice
from typing import Any

import streamlit as st

from engine.probes.results.induction import InTexts
from lab import bench, weights
from lab.bench import Cell, Table
from lab.bench.tables import NO_NUMBER
from lab.bench.tables import number as cell
from lab.charts.maps.sentences import number
from lab.sections.induction.formation import KINDS, highest, score, score_cells
from lab.weights import Opened
from lab.words import NBSP, plain

COLUMNS = (
    "model, head",
    "previous, random",
    "matching, random",
    "previous, text",
    "matching, text",
    "copying",
)
GAINS = ("model", "layers", "gain, random", "gain, text", "pair")
REMARK = (
    "Random: tokens of the model’s vocabulary, none twice, repeated after 16 to 63 of them. Text: passages "
    "of the held-out part. Bold: it counts. Grey: a head that looks at all it sees alike. Gain: loss "
    "in nats of the same tokens at the same positions behind others, less behind themselves."
)


def models(opened: Opened) -> dict[str, Any] | None:
    """Those that there are, for the probe; None where there are none, which is said."""
    if not opened:
        st.markdown(":small[:gray[No model of Shakespeare with heads is here. Train one on Ladder.]]")
    return {"models": weights.paths(opened)} if opened else None


def draw(found: InTexts, opened: Opened) -> None:
    """Both tables, and what they say."""
    caption = f"{REMARK} {weights.whose(opened)}"
    tables = [gains(found), replace(results(found), caption=caption)]
    bench.beside("results-text", tables, words(found))


def results(found: InTexts) -> Table:
    """Every head of every model, on random tokens that repeat and on text."""
    rows = []
    for row in found.rows:
        for head in row.random.heads:
            previous, matching, copying = score_cells(row.random, head)
            on_text = islice(score_cells(row.text, head), 2)
            rows.append((f"{plain(row.model)}, {head.name}", previous, matching, *on_text, copying))
    first = found.rows[0]
    alike = (at.of(kind) for at in (first.alike_random, first.alike_text) for kind in KINDS)
    rows.append((":gray[all alike]", *(cell(value, score, color="gray") for value in alike), NO_NUMBER))
    return Table(COLUMNS, rows)


def gains(found: InTexts) -> Table:
    """One line a model: what a repeat is worth to it, and the pair, if there is one."""
    rows = []
    for row in found.rows:
        pair = ":gray[none]" if row.pair is None else f"**{' → '.join(head.name for head in row.pair)}**"
        gained = (Cell(value, number(value)) for value in (row.gain_random_nats, row.gain_text_nats))
        rows.append((plain(row.model), Cell(row.layers, str(row.layers)), *gained, pair))
    return Table(GAINS, rows)


def words(found: InTexts) -> str:
    """Which models have a pair, and why the others cannot or do not."""
    rows = found.rows
    having = [(row, row.pair) for row in rows if row.pair]
    shallow = [row for row in rows if row.layers < 2]
    said = []
    for row, (early, late) in having:
        back, after = row.random.of("previous_token", early), row.random.of("prefix_matching", late)
        said.append(
            f"**{plain(row.model)}** has a pair: {early.name} looks one token back with "
            f"{score(back)}, {late.name} is an induction head: it finds what came after with {score(after)} "
            f"and copies with {score(row.random.of('copying', late))}; a repeat of random tokens is worth "
            f"{number(row.gain_random_nats)}{NBSP}nats to it."
        )
    if not having:
        which = f"any of these {len(rows)} models" if len(rows) > 1 else f"*{plain(rows[0].model)}*"
        said.append(f"**No such pair** in {which}.")
    if shallow:
        some = f"{len(shallow)} of {len(rows)} {'has' if len(shallow) == 1 else 'have'}"
        which = "It has" if len(rows) == 1 else some
        said.append(
            f"{which} one layer: there is no later one that could read what a previous-token head wrote, so "
            f"there can be no pair, however it is trained."
        )
    if deep := [row.model for row in rows if row.layers > 1 and not row.pair]:
        named = ", ".join(f"*{plain(name)}*" for name in deep)
        said.append(f"More than one layer, and still no pair: {named}.")
    back, after = (max(highest(row.random, kind) for row in rows) for kind in KINDS)
    said.append(
        f"On random tokens the highest previous-token score of all is {score(back)}, the highest "
        f"prefix-matching score {score(after)}."
    )
    return "\n\n".join(said)
