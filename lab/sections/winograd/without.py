"""What is left of the answers without each head, and without the sets of heads that the graph names."""

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import altair as alt
import streamlit as st

from engine.circuits.results import DROPPED, KEPT, Roles
from lab import bench
from lab.bench import Cell, Table, tables
from lab.charts import drawing
from lab.charts.axes import INK, hover, note, rows, x_axis
from lab.charts.bars import dots, named
from lab.charts.drawing import Spec, compiled, fed
from lab.charts.maps.sentences import number
from lab.sections.winograd.graph import SETS, SHORT, roles_of
from lab.sections.winograd.parts import share
from lab.shell import export, frame


def draw(circuit: Roles) -> None:
    """Chart and tables, and whether the sets are what their names say."""
    with st.container(horizontal=True, vertical_alignment="center"):
        st.subheader("Without a head", anchor=False, width="stretch")
        with st.popover("Export", type="tertiary", key="export.winograd.heads"):
            export.downloads("winograd-heads", lambda: chart(circuit), lambda: csv_rows(circuit))
    st.markdown(_words(circuit), width=frame.MEASURE)
    with st.container(horizontal=True, gap="medium"):
        with st.container(width=bench.HALF):
            with st.container(key="figure-heads"):
                drawing.draw(chart(circuit), key="winograd.heads")
            st.caption("Ring: the head to zero. Dot: to its mean. Dashed: 75 % and 95 %.")
        with st.container(width=bench.HALF):
            _table(circuit).draw()
    with st.container(key="results-sets", width=bench.TABLE_WIDTH):
        _sets(circuit).draw()


def chart(found: Roles) -> Spec:
    """Accuracy that is left without each head: a ring for zero, a dot for its mean."""
    roles = roles_of(found, SHORT)
    marks = [
        {"head": role.at.name, "slot": slot, "accuracy": getattr(role, how).accuracy, "kind": how,
         "role": roles.get(role.at, "")}
        for role in found.heads
        for how, slot in (("zero", "gray"), ("mean", "ink"))
    ]  # fmt: skip
    names = tuple(role.at.name for role in found.heads)
    return fed(_heads(names), dots=marks, levels=[{"at": DROPPED}, {"at": KEPT}])


@lru_cache
def _heads(names: tuple[str, ...]) -> Spec:
    title = "right answers left without the head"
    x = x_axis("accuracy", 1, [0, 0.25, 0.5, 0.75, 1], title, form=".0%", gutter=0.35)
    y = named("head", names)
    roles = rows("dots", "mean").encode(x=alt.XDatum(1.02), y=y)
    return compiled(
        28 * len(names) + 60,
        *dots(x, y, "mean", "zero", hover("head", "kind", "accuracy", "role")),
        note(roles, "role", color=INK, align="left", dx=8),
    )


def _table(found: Roles) -> Table:
    """Every head: where it looks on average, what it adds by itself, what is left without it."""
    lines, roles = [], roles_of(found)
    for one in found.heads:
        weights = (one.weights.get(name, 0.0) for name in ("first noun", "second noun", "adjective"))
        zero, mean = (
            tables.number(one.zero.accuracy, share),
            tables.number(one.mean.accuracy, share, bold=True),
        )
        label = f"**{one.at.name}** :gray[{roles.get(one.at, '')}]"
        lines.append((label, *(Cell(weight, number(weight)) for weight in weights), zero, mean))
    caption = "Weights: mean of the deciding position over the held-out sentences."
    return Table(("head", "on x", "on y", "on adj.", "to zero", "to mean"), lines, caption)


def _sets(found: Roles) -> Table:
    """The sets of heads that the graph names, each ablated as a whole."""
    lines = []
    for name, words in SETS.items():
        taken = getattr(found, name)
        heads = ", ".join(head.name for head in taken.heads)
        left = (taken.zero.accuracy, taken.mean.accuracy, taken.mean.wrong) if heads else (None, None, None)
        cells = (tables.number(value, share, bold=at == 1) for at, value in enumerate(left))
        lines.append((f"{words}: {heads or 'no head'}", *cells))
    return Table(("heads", "right, to zero", "right, to mean", "wrong noun"), lines)


def _words(found: Roles) -> str:
    """Whether the sets are what their names say, by the numbers."""
    sets = (found.at_nouns, found.at_adjective, found.rest)
    nouns, adjective, others = (share(one.mean.accuracy) for one in sets)
    if found.holds:
        of_nouns, of_adjective, rest = (len(one.heads) for one in sets)
        return (
            f"The sets hold: without the {of_nouns} whose look at a noun counts {nouns} are right, without "
            f"the {of_adjective} whose look at the adjective counts {adjective}, and without the {rest} "
            f"others {others}. Ablated to means."
        )
    no_nouns, no_adjective, no_others = (one.mean.accuracy for one in sets)
    reasons = {
        f"the whole model is right in {share(found.clean.accuracy)} only": found.clean.accuracy < KEPT,
        f"without the heads at the nouns {nouns} are still right": no_nouns >= DROPPED,
        f"without the heads at the adjective {adjective} are still right": no_adjective >= DROPPED,
        "heads without a look that counts are needed all the same": bool(found.helpers.heads),
        f"without the others only {others} are right": no_others < KEPT,
    }
    why = "; ".join(reason for reason, holds in reasons.items() if holds)
    return f"The sets do not hold in this model: {why or 'a condition fails'}."


def csv_rows(found: Roles) -> Iterator[tuple[Any, ...]]:
    """Ablated heads, for a file."""
    yield "block", "head", "role", "zero_accuracy", "mean_accuracy"
    roles = roles_of(found)
    for one in found.heads:
        yield *one.at, roles.get(one.at, ""), one.zero.accuracy, one.mean.accuracy
