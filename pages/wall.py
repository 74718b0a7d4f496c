"""The n × n wall: time and memory of one layer against the number of tokens, to out of memory."""

from collections.abc import Callable

import streamlit as st

from engine.memory_wall.plan import Plan
from engine.memory_wall.setting import CARDS_GB, IMPLEMENTATIONS, MAX_TOKENS
from lab import probes
from lab.bench import instruments, training
from lab.charts import drawing
from lab.sections.wall import charts, parts
from lab.sections.wall import cost as wall_cost
from lab.sections.wall import find as wall_find
from lab.sections.wall import rows as wall_rows
from lab.sections.wall import tables as wall_tables
from lab.sections.wall.parts import FIRST_GUESSES, MASKS, PASSES, TIME_GUESSES, Choice
from lab.sections.wall.rows import Measurement
from lab.settings import Settings, one_of, user, whole
from lab.shell import export, frame
from lab.shell.chapter import section
from lab.shell.watch import redraw_on_change
from lab.words import plain

SECTION = section("wall.py")
PREDICTING = 10  # seconds, about
FIGURE = 552  # px, of one of two
ROWS_WIDTH, CHAPTER_WIDTH = 672, 432  # px
ERROR = "wall.error"


def guesses() -> None:
    """The two predictions."""
    with st.container(horizontal=True):
        for name, question, options in (
            ("first", "Before you measure: which row is the first that 8 GB cannot hold?", FIRST_GUESSES),
            ("time", "And when a long text doubles, how much time does it take?", TIME_GUESSES),
        ):
            with st.container(width=instruments.HALF):
                st.pills(question, list(options), format_func=options.__getitem__, key=settings.key(name))


def layer_row() -> None:
    """The card and the layer."""
    rows: tuple[tuple[str, str, tuple[object, ...]], ...] = (
        ("Pretend my card has, GB", "budget", parts.BUDGETS),
        ("Heads", "heads", parts.HEADS),
        ("Width", "width", parts.WIDTHS),
        ("Mask", "mask", tuple(MASKS)),
        ("Pass", "pass", tuple(PASSES)),
    )
    with st.container(horizontal=True, vertical_alignment="bottom", key="instruments-layer"):
        for text, name, options in rows:
            chosen = st.session_state[settings.key(name)]
            st.segmented_control(
                text,
                _offered(options, chosen),
                format_func=_written,
                key=settings.key(name),
                required=True,
            )
        st.selectbox("Numbers", parts.DTYPES, key=settings.key("dtype"), width=130)


def _offered(options: tuple[object, ...], chosen: object) -> list[object]:
    """The usual ones, and one that only a URL can choose in its place among them."""
    if isinstance(chosen, int):
        return sorted({*options, chosen}, key=lambda value: int(str(value)))
    return list(dict.fromkeys([*options, chosen]))


def _written(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else PASSES.get(str(value), str(value))


def instrument_row(choice: Choice, found: Measurement) -> None:
    """What is measured, how far, the one button, and the status line."""
    with st.container(horizontal=True, vertical_alignment="bottom", key="instruments"):
        st.segmented_control(
            "Implementations", list(IMPLEMENTATIONS), selection_mode="multi", key=settings.key("ways")
        )
        to = st.session_state[settings.key("to")]
        st.segmented_control(
            "Up to",
            _offered(parts.TOKENS, to),
            format_func=lambda n: f"{n:,}",
            key=settings.key("to"),
            required=True,
        )
        button(choice.plan, found, "Measure", "measure")
        said = training.status_line()
    error = st.session_state.pop(ERROR, None)
    line = f":red[{plain(error)}]" if error else parts.standing(choice, found)
    said.markdown(f":small[{line}]")


def button(plan: Plan | None, found: Measurement, label: str, name: str) -> None:
    """Measure or Cancel, always in the same place."""
    if plan is not None and found.live:
        st.button(
            "Cancel",
            on_click=_attempt,
            args=(wall_rows.cancel, plan),
            disabled=found.user != user(),  # another reader's: watched, not ended
            width=instruments.BUTTON,
            key=settings.key(f"{name}.cancel"),
        )
    else:
        st.button(
            label,
            type="primary" if name == "measure" else "secondary",
            on_click=_attempt,
            args=(wall_rows.start, plan, user()),
            disabled=plan is None,
            width=instruments.BUTTON,
            key=settings.key(name),
        )


def _attempt(act: Callable[..., None], *arguments: object) -> None:
    """A click's deed; where it cannot be done the status line says so."""
    try:
        act(*arguments)
    except OSError as error:
        st.session_state[ERROR] = f"It cannot be started or ended: {error}."


def figures(choice: Choice, found: Measurement) -> None:
    """Memory and time, side by side."""
    with st.container(horizontal=True, vertical_alignment="center", key="figure-title"):
        st.markdown(
            "**Peak memory and time** :gray[log against log: a straight line is a power of n]",
            width="stretch",
        )
        with st.popover("Export", type="tertiary"):
            to = st.session_state[settings.key("to")]
            export.downloads(
                f"memory-wall-{to}",
                lambda: charts.together(choice, _now(choice.plan)),
                lambda: parts.csv_rows(_now(choice.plan)),
            )
    with st.container(horizontal=True, gap="small", key="figure"):
        for title, note, spec, name in (
            ("Peak memory", "MB; dashed: predicted", charts.memory_chart(choice, found), "memory"),
            (
                "Time of a pass",
                "ms; compare slopes, not machines",
                charts.time_chart(choice, found),
                "time",
            ),
        ):
            with st.container(width=FIGURE, gap=None):
                st.markdown(f":small[**{title}** :gray[{note}]]")
                drawing.draw(spec, key=f"wall.{name}")


def _now(plan: Plan | None) -> Measurement:
    return wall_rows.look(plan) if plan else Measurement()


def tables(choice: Choice, found: Measurement) -> None:
    """The rows of one implementation and the chapter's; then exponents, and what there is to notice."""
    names = choice.plan.implementations if choice.plan else IMPLEMENTATIONS
    key = settings.key("of")
    if st.session_state[key] not in names:
        st.session_state[key] = names[0]
    st.segmented_control("Rows of", list(names), key=key, required=True, label_visibility="collapsed")
    name = st.session_state[key]
    with st.container(horizontal=True, gap="small", key="wall-rows"):
        with st.container(width=ROWS_WIDTH):
            st.table(wall_tables.rows_table(choice, found, name), border="horizontal", hide_index=True)
            for line in parts.row_notes(found, choice.plan) if choice.plan else ():
                st.markdown(line)
            st.caption(wall_tables.rows_remark(choice, found))
        with st.container(width=CHAPTER_WIDTH):
            st.table(wall_tables.chapter_table(choice, found), border="horizontal", hide_index=True)
            st.caption(wall_tables.chapter_remark(choice))
    with st.container(horizontal=True, gap="medium", key="wall-words"):
        with st.container(width=instruments.HALF):
            st.table(wall_tables.exponents_table(choice, found), border="horizontal", hide_index=True)
            st.caption(wall_tables.exponents_remark())
        with st.container(width=instruments.HALF):
            st.subheader("What to notice", anchor=False)
            guessed = (st.session_state[settings.key(guess)] for guess in ("first", "time"))
            st.markdown(parts.notice(choice, found, *guessed))


def find(choice: Choice) -> tuple[Plan, Measurement] | None:
    """The longest n that fits, without allocating; then a real pair. Returns that pair's measurement."""
    with probes.section(
        "Find my wall",
        "How long a text fits a card, exactly? The page’s own code runs on tensors that have a size and no "
        "data, and halves its way to the last length that fits. Nothing is allocated. Guess first.",
        "find",
    ):
        st.segmented_control(
            "Card", list(CARDS_GB), format_func=lambda gb: f"{gb} GB", key=settings.key("card"), required=True
        )
        st.number_input(
            "Longest for explicit, tokens",
            min_value=1,
            max_value=MAX_TOKENS,
            step=1,
            key=settings.key("mine"),
            placeholder="Your guess",
            width=240,
        )
        asked = probes.pressed("Predict", settings.key("find"), choice.layer, PREDICTING)
        said = training.status_line()
    probes.outdated(asked, choice.layer)
    found = None
    if asked:
        said.markdown(":small[:primary[Predicting in a process of its own; the first time takes a while]]")
        try:
            found = wall_find.longest(asked)
            said.markdown(f":small[:green[Predicted for {plain(parts.layer_words(asked))}]]")
        except (ValueError, OSError) as error:
            said.markdown(f":small[:red[{plain(str(error))}]]")
    card = st.session_state[settings.key("card")]
    with st.container(horizontal=True, vertical_alignment="center", key="figure-title-find"):
        st.markdown("**Longest text that fits** :gray[tokens, over the card’s memory]", width="stretch")
        with st.popover("Export", type="tertiary"):
            export.downloads(
                "memory-wall-longest", lambda: wall_find.chart(found), lambda: wall_find.csv_rows(found)
            )
    with st.container(horizontal=True, gap="medium", key="figure-find"):
        with st.container(width=instruments.HALF, gap=None):
            drawing.draw(wall_find.chart(found), key="wall.find")
        with st.container(width=instruments.HALF):
            st.table(wall_find.cards_table(found), border="horizontal", hide_index=True)
            st.caption("8.125 MB are set aside for cuBLAS, as on the chapter’s card. At most 100,000,000.")
    if not found:
        return None
    mine = st.session_state[settings.key("mine")]
    st.markdown(wall_find.answer(found, card, mine, choice.layer), width=frame.MEASURE)
    return for_real(choice, found)


def for_real(choice: Choice, found: wall_find.Found) -> tuple[Plan, Measurement] | None:
    """The last n that fits a small card, and the next one, measured."""
    device = choice.plan.device if choice.plan else "cpu"
    with st.container(horizontal=True, vertical_alignment="bottom", key="instruments-pair"):
        st.segmented_control(
            "Try it for real on, GB", list(wall_find.SMALL_GB), key=settings.key("small"), required=True
        )
        pair = wall_find.pair(found, st.session_state[settings.key("small")], choice.layer, device)
        measured = _now(pair)
        button(pair, measured, "Measure both", "pair")
        if pair is None:
            st.markdown(":small[:gray[Not a single token fits such a card]]")
        else:
            st.markdown(f":small[{wall_find.pair_words(pair, measured)}]")
    return (pair, measured) if pair else None


def cost() -> None:
    """Attention's share of a whole model."""
    with probes.section(
        "What it costs in a whole model",
        "A model is more than its attention. In GPT-2’s shapes, how much of the work is attention, and how "
        "much of what a block keeps for the way back, as the text grows?",
        "cost",
    ):
        st.segmented_control(
            "GPT-2",
            list(wall_cost.SHAPES),
            format_func=wall_cost.LABELS.__getitem__,
            key=settings.key("model"),
            required=True,
        )
    shape = st.session_state[settings.key("model")]
    with st.container(horizontal=True, vertical_alignment="center", key="figure-title-cost"):
        st.markdown("**Attention’s share** :gray[where the matrix is stored]", width="stretch")
        with st.popover("Export", type="tertiary"):
            export.downloads(
                f"attention-share-{shape}", lambda: wall_cost.chart(shape), lambda: wall_cost.csv_rows(shape)
            )
    with st.container(key="figure-cost"):
        drawing.draw(wall_cost.chart(shape), key="wall.cost")
    with st.container(horizontal=True, gap="medium", key="wall-cost"):
        with st.container(width=training.TABLE_WIDTH):
            st.table(wall_cost.shares_table(shape), border="horizontal", hide_index=True)
            st.caption(wall_cost.REMARK)
        with st.container(width=training.NOTICE_WIDTH):
            st.subheader("What to notice", anchor=False)
            st.markdown(wall_cost.words(shape))


settings = Settings("wall", (*parts.NAMES, "card", "mine", "small", "model"))
settings.seed("card", parts.listed_card, CARDS_GB[0])
settings.seed("mine", whole("mine", 1, MAX_TOKENS), None)
settings.seed("small", one_of("small", wall_find.SMALL_GB), wall_find.SMALL_GB[0])
settings.seed("model", one_of("model", tuple(wall_cost.SHAPES)), "small")

frame.header(
    SECTION,
    SECTION.question,
    "Attention compares every token with every other. Run one layer at twice the length again and again, "
    "each in a process of its own, until memory truly ends; then without ever storing the matrix.",
)
choice = parts.choose(settings)
found = _now(choice.plan)
settings.show_notices()
guesses()
layer_row()
instrument_row(choice, found)
figures(choice, found)
tables(choice, found)
with st.expander("The code of the four ways"):
    for way in IMPLEMENTATIONS:
        st.code(parts.source(way), language="python")
pair = find(choice)
cost()
drawn = [found, pair[1] if pair else None]
under_way = any(one is not None and one.live for one in drawn)
redraw_on_change(
    lambda: [_now(choice.plan), wall_rows.look(pair[0]) if pair else None],
    drawn,
    1.0 if under_way else training.IDLE_SECONDS,
)
frame.footer(SECTION)
