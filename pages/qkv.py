"""Query, key, value: why matching takes two projections and copying a third, trained and looked into."""

import streamlit as st

from engine.chapter.experiments import QKV
from engine.chapter.variants import AVERAGE_ADDED_POSITIONS, HEAD_ADDED, MATRIX, QUERY_KEY, RAW
from engine.data import corpus
from engine.probes.registry import ATTENTION
from engine.probes.results.attention import Steps, steps
from lab import probes, weights
from lab.bench import training
from lab.bench.sweep import Row, difference
from lab.bench.training import Rows
from lab.charts.maps import view
from lab.charts.maps.panel import labels
from lab.charts.maps.view import STAGES, Side
from lab.settings import Settings, as_it_is, whole
from lab.shell import frame, palette
from lab.shell.chapter import section
from lab.words import plain, quantity

SECTION = section("qkv.py")
SENTENCE = "the king loves the queen, and the queen loves the king"


def notice(rows: Rows) -> str:
    """What each part is worth, read off the reader's own figures."""
    models = (AVERAGE_ADDED_POSITIONS, MATRIX, RAW, QUERY_KEY, HEAD_ADDED)
    equal, matrix, raw, asked, head = (rows[made.id] for made in models)
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
        "Each model is one field away from its parent. *Equal weights* are the average added to the token, "
        "with positions; the matrix, the raw scores and the head each change its `mixer` and nothing else, "
        "and W_Q, W_K change the `mixer` of the raw scores. The head adds W_V to that, again by this one "
        "field.",
        width=frame.MEASURE,
    )


def tokens(sentence: str) -> list[str]:
    """The sentence in tokens, read with a space before it; none where it cannot be read."""
    vocabulary = corpus.shipped_vocabulary()
    try:
        return vocabulary.pieces(vocabulary.encode(f" {sentence.strip()}") if sentence.strip() else [])
    except ValueError:
        return []


def inside() -> None:
    """A trained head and an untrained one on the reader's sentence."""
    st.header("Inside one head", anchor=False)
    st.markdown(
        "Type a sentence and follow it through a trained head and, beside it, the same head before its first "
        "step of training.",
        width=frame.MEASURE,
    )
    settings.again("sentence", "stages", "row")
    with st.container(horizontal=True, vertical_alignment="bottom"):
        st.text_input(
            "Your sentence",
            key=settings.key("sentence"),
            max_chars=300,
            width=training.HALF,
            on_change=_last_row,
        )
    sides = _sides(st.session_state[settings.key("sentence")])
    if sides:
        _three_steps(sides)
        _stages(sides)


def _last_row() -> None:
    """A new sentence is read out at its last token."""
    pieces = tokens(st.session_state[settings.key("sentence")])
    st.session_state[settings.key("row")] = max(len(pieces) - 1, 0)


def _sides(sentence: str) -> list[Side]:
    """The heads that there are: trained, if there are such weights, and untrained."""
    found = weights.chosen(settings.key("look"), QKV.id, ("head-added",)).get("head-added")
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
    import pandas as pd

    st.subheader("Three steps, in numbers", anchor=False)
    measured = [steps(side.caught) for side in sides]
    rows = [
        ("raw x·x", "tokens that score themselves highest", *(f"{s.own_raw} of {s.rows}" for s in measured)),
        ("", "largest difference from the mirror image", *(f"{s.mirror_raw:.2g}" for s in measured)),
        ("", "asymmetry", *(f"{s.asymmetry_raw:.2f}" for s in measured)),
        (
            "+ W_Q, W_K",
            "tokens that score themselves highest",
            *(f"{s.own_score} of {s.rows}" for s in measured),
        ),
        ("", "largest difference from the mirror image", *(quantity(s.mirror_score) for s in measured)),
        ("", "asymmetry", *(f"{s.asymmetry_score:.2f}" for s in measured)),
        ("+ W_V", "rows in which another key gives most", *(f"{s.moved} of {s.rows}" for s in measured)),
        ("", "values as alike as keys", *(quantity(s.likeness, 2) for s in measured)),
    ]
    table = pd.DataFrame(rows, columns=["step", "measured", *(side.name for side in sides)])
    with st.container(horizontal=True, gap="medium"):
        with st.container(width=training.TABLE_WIDTH):
            st.table(table.map(plain), border="horizontal", hide_index=True)
            st.caption(
                "Of the rows that see more than themselves. Asymmetry: 0 when all looks are mutual, 0.71 "
                "when the two directions have nothing in common. Values as alike as keys: the "
                "correlation, over all pairs of tokens, of the cosine of their values with that of their "
                "keys; 1 without W_K and W_V."
            )
        with st.container(width=training.NOTICE_WIDTH):
            st.markdown(_what_to_notice(measured[0], sides[0].name))


def _what_to_notice(found: Steps, name: str) -> str:
    own = f"{found.own_raw} of {found.rows}"
    likeness = "" if found.likeness is None else f": here the correlation is {quantity(found.likeness, 2)}"
    return (
        f"A token’s product with itself is its squared length, so raw scores point at the token itself: "
        f"{own} rows. And looks are mutual: the mirror image differs by {found.mirror_raw:.2g}.\n\n"
        f"With W_Q and W_K the {name} head scores the token itself highest in {found.own_score} of "
        f"{found.rows} rows, and a token may look for what does not look for it.\n\n"
        f"W_V copies something else than was matched: tokens with like keys need not have like "
        f"values{likeness}."
    )


def _stages(sides: list[Side]) -> None:
    """The pipeline small and whole, then the chosen stages large."""
    st.subheader("Stage by stage", anchor=False)
    names = labels(sides[0].caught.pieces)
    key = settings.key("row")
    st.session_state[key] = min(st.session_state[key], len(names) - 1)
    with st.container(horizontal=True, vertical_alignment="bottom", key="instruments_stages"):
        st.segmented_control(
            "Show large",
            list(STAGES),
            selection_mode="multi",
            format_func=lambda stage: STAGES[stage][0],
            key=settings.key("stages"),
        )
        st.selectbox("Row to read out", range(len(names)), format_func=names.__getitem__, key=key, width=190)
        colors = palette.current()
    chosen = [stage for stage in STAGES if stage in st.session_state[settings.key("stages")]]
    view.strips(sides, chosen, colors)
    for stage in chosen:
        view.pair(stage, sides, st.session_state[key], colors)
    st.caption(
        "Rows are queries, top to bottom; columns are keys. Weights run from 0 to 1 in every map, scores are "
        "coloured about 0 and both heads on one scale. Grey: masked. Point at a cell for its numbers."
    )
    st.markdown(
        "**A map is no explanation by itself.** It shows where a head looks, not what that is good for: the "
        "untrained head has a map too. What the looking is worth is the ladder’s to say, above: the same "
        "model with equal weights, with one matrix for all sentences, with raw scores.",
        width=frame.MEASURE,
    )


def _stages_in(text: str) -> list[str]:
    chosen = text.split(",") if text else []
    if wrong := [name for name in chosen if name not in STAGES]:
        raise ValueError(f"stages has {wrong[0]!r}; allowed: {', '.join(STAGES)}, separated by commas.")
    return [stage for stage in STAGES if stage in chosen]


settings = Settings("qkv", (*training.NAMES, "sentence", "stages", "row"))
last = max(len(tokens(settings.seed("sentence", as_it_is, SENTENCE))) - 1, 0)
settings.seed("stages", _stages_in, ["weights"], ",".join)
settings.seed("row", whole("row", 0, last), last)

frame.header(
    SECTION,
    QKV.question,
    "A score that depends on both tokens could be their plain product. Train what is wrong with that, one "
    "part at a time, then look inside a head on a sentence of yours.",
)
training.show(QKV, settings, notice)
steps_of_one_field()
frame.sources(QKV.models, "The code of the five models")
probes.beside(inside)
frame.footer(SECTION)
