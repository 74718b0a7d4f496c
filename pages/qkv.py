"""Query, key, value: why matching takes two projections and copying a third, trained and looked into."""

import streamlit as st

from engine.chapter.experiments import QKV
from engine.chapter.variants import AVERAGE_ADDED_POSITIONS, HEAD_ADDED, MATRIX, QUERY_KEY, RAW
from engine.data import corpus
from engine.probes.registry import ATTENTION
from engine.probes.results.attention import Steps, steps
from engine.system.errors import LabError
from lab import bench, probes, weights
from lab.bench import Cell, Row, Sweep, Table, difference
from lab.bench.tables import number
from lab.charts.maps import view
from lab.charts.maps.panel import labels
from lab.charts.maps.view import STAGES, Side
from lab.settings import Settings, whole
from lab.shell import frame, palette
from lab.shell.chapter import section
from lab.words import plain, quantity

SECTION = section("qkv.py")
SENTENCE = "the king loves the queen, and the queen loves the king"


def notice(now: Sweep) -> str:
    """What each part is worth, read off the reader's own figures."""
    models = (AVERAGE_ADDED_POSITIONS, MATRIX, RAW, QUERY_KEY, HEAD_ADDED)
    equal, matrix, raw, asked, head = (now.row(made.id, QKV.metric) for made in models)
    return "\n\n".join(
        (
            f"One matrix for every sentence {_against(matrix, equal)} equal weights: it can learn “four "
            f"tokens back”, never “the noun”.",
            f"Raw scores {_against(raw, equal, 'lose', 'gain', 'are')} equal weights.",
            f"W_Q and W_K {_against(asked, raw, 'lose', 'gain', 'are')} raw scores; W_V "
            f"{_against(head, asked)} copying the token itself.",
        )
    )


def _against(row: Row, other: Row, loses: str = "loses", gains: str = "gains", is_: str = "is") -> str:
    """How a row stands to another, as a verb: "gains 3.2 points on"."""
    gap = difference(row, other)
    if gap is None:
        return "cannot be compared with"
    if gap.level:
        return f"{is_} level with"
    noise = ", within seed noise," if gap.noise else ""
    return f"{loses if gap.points > 0 else gains} {quantity(abs(gap.points))} points{noise} on"


def steps_of_one_field() -> None:
    """What makes the ladder a control: nothing else differs."""
    st.markdown(
        "Each model changes one setting of the one before. *Equal weights* are the average added to the "
        "token, with positions; the matrix, the raw scores and the head each change its `mixer` and nothing "
        "else, and W_Q, W_K change the `mixer` of the raw scores. The head adds W_V to that, again by "
        "this one field.",
        width=frame.MEASURE,
    )


def tokens(sentence: str) -> list[str]:
    """The sentence in tokens, read with a space before it; none where it cannot be read."""
    vocabulary = corpus.shipped_vocabulary()
    try:
        return vocabulary.pieces(vocabulary.encode(f" {sentence.strip()}") if sentence.strip() else [])
    except LabError:
        return []


def inside() -> None:
    """A trained head and an untrained one on the reader's sentence."""
    frame.heading(
        "Inside one head",
        "Type a sentence and follow it through a trained head and, beside it, the same head before its first "
        "step of training.",
    )
    settings.again("row")
    with st.container(horizontal=True, vertical_alignment="bottom"):
        sentence.draw(width=bench.HALF, on_change=_last_row)
    sides = _sides(sentence.value)
    if sides:
        _three_steps(sides)
        _stages(sides)


def _last_row() -> None:
    """A new sentence is read out at its last token."""
    row.value = max(len(tokens(sentence.value)) - 1, 0)


def _sides(sentence: str) -> list[Side]:
    """The heads that there are: trained, if there are such weights, and untrained."""
    found = weights.chosen(settings.key("look"), QKV, ("head-added",)).get("head-added")
    weights.missing(found, "head")
    fresh = probes.attempt(st.empty(), ATTENTION, text=sentence)
    if fresh is None:  # a sentence that does not fit fits neither
        return []
    source = "Weights: as torch draws them, seed 0, before the first step."
    sides = [Side("untrained", ":gray[○] **One head, untrained**", source, fresh)]
    if found and (caught := probes.attempt(st.empty(), ATTENTION, text=sentence, weights=found.path)):
        title = f"{frame.dot('head-added')} **One head, trained**"
        sides.insert(0, Side("trained", title, f"Weights: {plain(found.whose)}.", caught))
    return sides


def _three_steps(sides: list[Side]) -> None:
    """Raw scores, then W_Q and W_K, then W_V: what each changes, in numbers."""
    st.subheader("Three steps, in numbers", anchor=False)
    measured = [steps(side.caught) for side in sides]
    said: list[tuple[str, str, list[Cell]]] = [
        ("raw x·x", "tokens that score themselves highest", [_share(s.own_raw, s) for s in measured]),
        ("", "largest difference from the mirror image", [_short(s.mirror_raw) for s in measured]),
        ("", "asymmetry", [number(s.asymmetry_raw, two) for s in measured]),
        ("+ W_Q, W_K", "tokens that score themselves highest", [_share(s.own_score, s) for s in measured]),
        ("", "largest difference from the mirror image", [number(s.mirror_score) for s in measured]),
        ("", "asymmetry", [number(s.asymmetry_score, two) for s in measured]),
        ("+ W_V", "rows whose largest contribution is not their largest weight",
         [_share(s.moved, s) for s in measured]),
        ("", "values as alike as keys", [number(s.likeness, two) for s in measured]),
    ]  # fmt: skip
    caption = (
        "Of the rows with several visible keys. Asymmetry: 0 when the scores are symmetric, 0.71 when the "
        "two directions have nothing in common. Values as alike as keys: do tokens with similar keys have "
        "similar values? The correlation, over all pairs of tokens, of the cosine of their values with that "
        "of their keys; 1 without W_K and W_V."
    )
    rows = [(plain(step), what, *cells) for step, what, cells in said]
    table = Table(("step", "measured", *(side.name for side in sides)), rows, caption)
    bench.beside("results-steps", [table], _what_to_notice(measured[0], sides[0].name), "")


def _share(some: int, of: Steps) -> Cell:
    return Cell(some, f"{some} of {of.rows}")


def _short(value: float) -> Cell:
    return number(value, lambda value: f"{value:.2g}")


def two(value: float | None) -> str:
    """Two decimals."""
    return quantity(value, 2)


def _what_to_notice(found: Steps, name: str) -> str:
    own = f"{found.own_raw} of {found.rows}"
    likeness = "" if found.likeness is None else f": here the correlation is {quantity(found.likeness, 2)}"
    return (
        f"A token’s product with itself is its squared length, so raw scores point at the token itself: "
        f"{own} rows. And scores are symmetric: the mirror image differs by {found.mirror_raw:.2g}.\n\n"
        f"With W_Q and W_K the {name} head scores the token itself highest in {found.own_score} of "
        f"{found.rows} rows, and a token may look for what does not look for it.\n\n"
        f"W_V copies something else than was matched: tokens with like keys need not have like "
        f"values{likeness}."
    )


def _stages(sides: list[Side]) -> None:
    """The pipeline small and whole, then the chosen stages large."""
    st.subheader("Stage by stage", anchor=False)
    names = labels(sides[0].caught.pieces)
    row.value = min(row.value, len(names) - 1)
    with st.container(horizontal=True, vertical_alignment="bottom", key="instruments_stages"):
        stages.draw()
        st.selectbox(
            "Row to read out", range(len(names)), format_func=names.__getitem__, key=row.key, width=190
        )
        colors = palette.current()
    view.strips(sides, stages.value, colors)
    for stage in stages.value:
        view.pair(stage, sides, row.value, colors)
    st.caption(
        "Rows are queries, top to bottom; columns are keys. Weights run from 0 to 1 in every map, scores are "
        "coloured about 0 and both heads on one scale. Grey: masked. Point at a cell for its numbers."
    )
    st.markdown(
        "**A map is no explanation by itself.** It shows where a head looks, not what that is good for: the "
        "untrained head has a map too. The ladder above measures how much this helps: the same "
        "model with equal weights, with one matrix for all sentences, with raw scores.",
        width=frame.MEASURE,
    )


settings = Settings("qkv")
sentence = settings.text("sentence", "Your sentence", SENTENCE, max_chars=300)
stages = settings.several(
    "stages", "Show large", {name: label for name, (label, *_) in STAGES.items()}, ["weights"]
)
last = max(len(tokens(sentence.value)) - 1, 0)
row = settings.value("row", whole("row", 0, last), last)

frame.header(
    SECTION,
    QKV.question,
    "A score that depends on both tokens could be their plain product. Train five models to see why that is "
    "not enough, then look inside a head on a sentence of yours.",
    settings,
)
bench.train(QKV, settings, questions=bench.best_and_worst(QKV), notice=notice)
steps_of_one_field()
frame.sources(QKV.models, "The code of the five models")
probes.beside(inside)
frame.footer(SECTION, settings)
