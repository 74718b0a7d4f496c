"""What is left of the ability when heads are taken away: table, chart, and what it says of sharing."""

from collections.abc import Iterator
from functools import lru_cache

import altair as alt
import streamlit as st

from engine.circuits.results import COPIES, FOUND, Head
from engine.probes.registry import ABLATE_CHOSEN
from engine.probes.results.induction import Ablation, Without
from lab import bench, probes
from lab.bench import Cell, Table
from lab.charts import drawing
from lab.charts.axes import x_axis
from lab.charts.bars import dots, named
from lab.charts.drawing import Spec, compiled, fed
from lab.sections.induction.formation import COLUMNS, SLOTS, mark, score, score_cells
from lab.sections.induction.parts import percent
from lab.sections.induction.probe import heads_in, listed
from lab.settings import Settings
from lab.weights import Opened, Weights
from lab.words import NBSP, count

SETS = {"previous": "all that look one token back", "matching": "all induction heads"}
OTHERS = "all others"
NEEDED = 0.1  # of the accuracy: what costs no more of it to take away is not needed
ROW = 22  # px


def _lines(found: Ablation, own: Without | None) -> list[tuple[str, str, Without]]:
    """Everything that was taken away: its words, its name in the chart, and what is left."""
    lines = []
    for role, words in {**SETS, "others": OTHERS}.items():
        if taken := found.sets.get(role):
            lines.append((f":{SLOTS.get(role, 'gray')}[●]{NBSP}{words}: {listed(taken.heads)}", words, taken))
    if own:
        yours = f"yours: {listed(own.heads)}"
        lines.append((f":blue[○]{NBSP}{yours}", yours, own))
    singles = ((taken.heads[0], taken) for taken in found.single)
    return lines + [(mark(found, head), head.name, taken) for head, taken in singles]


def results(found: Ablation, own: Without | None) -> Table:
    """What is left of the second half, with zeros and with means in place of what is taken away."""
    whole, empty = Cell(found.accuracy, f"**{percent(found.accuracy)}**"), Cell(None, "")
    rows: list[tuple[str | Cell, ...]] = [("nothing taken away", whole, whole, *[empty] * len(COLUMNS))]
    for label, _, taken in _lines(found, own):
        scores = [empty] * len(COLUMNS)
        if len(taken.heads) == 1:
            scores = list(score_cells(found.scores, taken.heads[0]))
        rows.append((label, *(Cell(left, _left(left, found)) for left in (taken.zero, taken.mean)), *scores))
    return Table(
        ("taken away", "zero", "mean", *COLUMNS),
        rows,
        f"Over {found.sequences} unseen sequences. Red: costs more than a tenth of all tokens. An induction "
        f"head matches prefixes with at least {score(FOUND)} and copies with at least {score(COPIES)}; a "
        f"head that looks one token back does so with at least {score(FOUND)}. Either counts only with a "
        "partner in another layer.",
    )


def _left(share: float, found: Ablation) -> str:
    """Red where the ability is gone by more than what does not matter."""
    return f":red[{percent(share)}]" if found.accuracy - share > NEEDED else percent(share)


def chart(found: Ablation, own: Without | None) -> Spec:
    """A dot a thing taken away: zeros filled, means a ring; dashed rules: nothing taken, nothing known."""
    lines = _lines(found, own)
    marks = []
    for label, name, taken in lines:
        slot = "sky" if name.startswith("yours") else label.removeprefix(":").partition("[")[0]
        marks += [
            {"name": name, "slot": slot, "kind": way, "left": getattr(taken, way)} for way in ("zero", "mean")
        ]
    levels = [{"at": found.accuracy}, {"at": found.early_accuracy}]
    return fed(_plot(tuple(name for _, name, _ in lines)), dots=marks, levels=levels)


@lru_cache
def _plot(names: tuple[str, ...]) -> Spec:
    x = x_axis("left", 1, [0, 0.25, 0.5, 0.75, 1], "right on the second half", form=".0%", gutter=0.03)
    told = [
        alt.Tooltip(field="name", title="taken away"),
        alt.Tooltip(field="kind", title="instead"),
        alt.Tooltip(field="left", title="right", format=".1%"),
    ]
    y = named("name", names, grid=True, gridOpacity=0.2)
    return compiled(ROW * len(names) + 50, *dots(x, y, "zero", "mean", told))


def csv_rows(found: Ablation, own: Without | None) -> Iterator[tuple[object, ...]]:
    """The table, for a file."""
    yield "taken_away", "heads", "zero", "mean"
    yield "nothing", "", found.accuracy, found.accuracy
    for _, name, taken in _lines(found, own):
        yield name, " ".join(head.name for head in taken.heads), taken.zero, taken.mean


def words(found: Ablation) -> str:
    """What goes with which heads, and whether several share the work."""
    if not found.previous:
        return (
            f"No pair stands in this model, so no set is named: it is at {percent(found.accuracy)} as it "
            f"is. What a single head is worth to it stands in the table."
        )
    said = [_role(found, role) for role in SETS]
    if others := found.sets.get("others"):
        costs = found.accuracy - others.zero
        verdict = "the model does not need them" if costs <= NEEDED else "they matter as well"
        said.append(f"Without {OTHERS} **{percent(others.zero)}** are left: {verdict}.")
    return "\n\n".join(said)


def _role(found: Ablation, role: str) -> str:
    """One set: what is left without it, and without the one head of it that matters most."""
    taken, whole = found.sets[role], found.accuracy
    one = {single.heads[0]: single.zero for single in found.single}
    worst = min(taken.heads, key=one.__getitem__)
    gone = "the ability is gone" if taken.zero < whole / 2 else "much of it stays"
    lead = f"Without {SETS[role]} **{percent(taken.zero)}** are left of {percent(whole)}: {gone}."
    if len(taken.heads) == 1:
        return f"{lead} It is one head, {mark(found, worst)}."
    lead += _whole_layer(found, taken.heads)
    most = f"Without the one that matters most, {mark(found, worst)}, **{percent(one[worst])}** are left"
    if whole - one[worst] <= NEEDED:
        said = f"{most}: the {count(len(taken.heads))} share the work, and none is needed alone."
    else:
        said = f"{most}: it does more than any other"
        said += ", and not all." if one[worst] - taken.zero > NEEDED else ", and nearly all."
    growing = ", ".join(percent(step.zero) for step in found.growing[role])
    return f"{lead} {said} One after another, the highest score first: {growing}."


def _whole_layer(found: Ablation, heads: list[Head]) -> str:
    """Said where a set is all of a layer: then nothing of that layer is left to compare with."""
    layer = heads[0].block
    if sorted(heads) != [head for head in found.scores.heads if head.block == layer]:
        return ""
    return f" They are all of layer {layer + 1}, so what is taken away is that layer."


class OwnHeads:
    """What is left without some heads, a set of the reader's among them: its setting, and the section."""

    def __init__(self, settings: Settings) -> None:
        self._chosen = settings.value("heads", heads_in, list[str](), ",".join, widget=st.pills)

    def draw(self, found: Ablation, opened: Opened) -> None:
        """Chart, table and words."""
        (one,) = opened.values()
        own = self._without(found, one)
        bench.figure_title(
            "Right on the second half without these heads",
            "dot: zeros; ring: means; dashed: nothing taken away, and no context",
            "induction-ablation",
            lambda: chart(found, own),
            lambda: csv_rows(found, own),
            key="figure-title-ablation",
        )
        with st.container(key="figure-ablation"):
            drawing.draw(chart(found, own), key="induction.ablation")
        bench.beside("results-ablation", [results(found, own)], words(found))

    def _without(self, found: Ablation, one: Weights) -> Without | None:
        """What is left without the heads that the reader chose, where there are any."""
        there, chosen = {head.name: head for head in found.scores.heads}, self._chosen.value
        if missing := [name for name in chosen if name not in there]:
            st.markdown(f":orange[This model has no head {', '.join(missing)}. Left out.]")
            self._chosen.value = chosen = [name for name in chosen if name in there]
        self._chosen.draw(label="Take away together", options=list(there), selection_mode="multi")
        if not chosen:
            return None
        heads = [there[name] for name in sorted(chosen)]
        return probes.attempt(st.empty(), ABLATE_CHOSEN, weights=one.path, heads=heads, seed=one.seed)
