"""Against PyTorch: our attention and theirs, five wrong ones, and the reader's own."""

import streamlit as st

from engine.chapter.experiments import parse_seeds
from engine.chapter.measurements import PARITY, PRECISIONS
from engine.probes import zoo
from engine.probes.registry import PARITY as PARITY_PROBE
from engine.probes.registry import ZOO
from engine.sandbox import judge, process
from engine.system.errors import InvalidInput
from lab import bench, probes
from lab.charts import drawing
from lab.sections.parity import parts
from lab.sections.parity.chart import Comparison, figure
from lab.sections.parity.parts import BETS, MASKS, SCALES, STARTER, TESTS, TITLES
from lab.settings import Settings, hold
from lab.shell import export, frame
from lab.shell.chapter import section
from lab.words import NBSP, plain

SECTION = section("parity.py")
SEEDS = ("0", "0,1,2", "0,1,2,3,4")
MAX_SEEDS = 20


def seeds_of(text: str) -> str:
    """Seeds in the URL, checked and written as the lab writes them."""
    seeds = parse_seeds(text)
    if len(seeds) > MAX_SEEDS:
        raise InvalidInput(f"seeds are {len(seeds)}; allowed: at most {MAX_SEEDS}.")
    return ",".join(map(str, seeds))


def seeds_label(seeds: str) -> str:
    """How many, or which, where the reader's own stand in the URL."""
    return str(len(seeds.split(","))) if seeds in SEEDS else f"seeds {seeds.replace(',', ', ')}"


def instrument_row() -> tuple[list[int], list[int] | None]:
    """Which comparisons are shown, and the button that makes them. Returns the seeds now and as pressed."""
    with st.container(horizontal=True, vertical_alignment="bottom", key="instruments"):
        for setting in (precision, mask, scale, seeds):
            setting.draw()
        now = [int(seed) for seed in seeds.value.split(",")]
        seconds = PARITY_PROBE.seconds * len(now)
        return now, probes.pressed("Compare", settings.key("compare"), now, seconds, primary=True)


def comparing() -> None:
    """Ours against theirs: figure, table, what to notice."""
    now, asked = instrument_row()
    probes.outdated(asked, now)
    chosen = {"mask": mask.value, "scale": scale.value}
    said = st.empty()
    comparison = Comparison()
    title = st.container(horizontal=True, vertical_alignment="center", key="figure-title")
    title.markdown(
        "**Difference, over the mean magnitude** :gray[log scale; a dot a size, seed and pair]",
        width="stretch",
    )
    picture = st.container(key="figure")
    if asked:
        if found := probes.attempt(said, PARITY_PROBE, seeds=asked):
            comparison = Comparison.of(found, tuple(asked))
            said.markdown(f":small[:green[{plain(comparison.standing)}]]")
    else:
        said.markdown(":small[Takes a few seconds, on the CPU]")
    with title, st.popover("Export", type="tertiary"):
        export.downloads(
            f"{PARITY.id}-{chosen['mask']}-{chosen['scale']}",
            lambda: figure(comparison, **chosen),
            lambda: comparison.table(**chosen),
        )
    with picture:
        drawing.draw(figure(comparison, **chosen), key="parity.chart")
    with st.container(horizontal=True, gap="medium", key="comparison"):
        with st.container(width=bench.TABLE_WIDTH):
            parts.beside_the_chapter(comparison, precision.value)
            if comparison.rows:
                parts.comparison_table(comparison, precision.value, **chosen)
        with st.container(width=bench.NOTICE_WIDTH):
            st.subheader("What to notice", anchor=False)
            st.markdown(parts.notice(comparison, *(guess.value for guess in guesses.values())))


def bets() -> None:
    """Five wrong implementations, and which test catches each."""
    st.header("Which test catches which mistake?", anchor=False)
    st.markdown(
        "Parity needs a right answer to compare with, and catches everything. The other tests need none. "
        "Below are five attentions that run and are wrong: bet on one test for each.",
        width=frame.MEASURE,
    )
    with st.container(horizontal=True, vertical_alignment="bottom"):
        for bet in own_bets.values():
            bet.draw(placeholder="Your bet", index=None, width=208)
    with st.expander("What each test asks"):
        st.markdown(parts.tests_explained())
    if probes.pressed("Run the tests", settings.key("zoo"), True, ZOO.seconds):  # the bets come first
        findings = probes.attempt(st.empty(), ZOO)
        if findings is None:
            return
        said = st.empty()
        placed = {name: bet.value for name, bet in own_bets.items()}
        said.markdown(parts.bets_answered(findings, placed))
        parts.matrix(findings, placed)
        closer.draw(width=320)
        parts.exhibit(findings, closer.value)


def own_code() -> None:
    """The reader's own attention, run apart from the app."""
    st.header("Check your own", anchor=False)
    address = st.get_option("server.address")
    if not process.allowed(address):
        st.markdown(
            f"Running pasted code is off: this lab listens beyond this machine (server.address is "
            f"{plain(address or 'not set')}), so whoever opens this page could run code here. If you trust "
            f"them all, start the lab with "
            f"`{process.SWITCH}=1` in its environment.",
            width=frame.MEASURE,
        )
        return
    st.markdown(
        f"A function of q, k and v, each of shape (B, T, d), and of `causal`. It runs in a process of its "
        f"own, with 5{NBSP}s and 1.5{NBSP}GB, on inputs that grow from a single token, and is compared "
        f"with a reference. What stands here has one bug: find it, or paste yours.",
        width=frame.MEASURE,
    )
    key, answered = settings.key("code"), settings.key("verdict")
    hold(key, STARTER)
    with st.container(horizontal=True, gap="medium"):
        with st.container(width=640, key="code"):
            code = st.text_area("Your attention", key=key, height=360, persist_state="session")
        with st.container(width=448):
            pressed = st.button("Check", key=settings.key("check"), width=bench.BUTTON)
            place = st.empty()
            if pressed:
                place.caption("Loading torch, then running it for at most 10 s")
                st.session_state[answered] = (code, judge.check(code))
            of, found = st.session_state.get(answered, (code, None))
            with place.container():
                if found is None:
                    st.caption("Nothing has been checked yet.")
                elif of != code:
                    st.caption("The code has changed since it was checked. Check again.")
                else:
                    parts.verdict(found)


settings = Settings("parity")
precision = settings.choice("precision", "Precision", PRECISIONS, "float32")
mask = settings.choice("mask", "Mask", MASKS, "causal")
scale = settings.choice("scale", "Scores divided by", SCALES, "sqrt")
seeds = settings.choice("seeds", "Seeds", SEEDS, "0", shown=seeds_label, parse=seeds_of)
own_bets = {
    name: settings.choice(name, TITLES[name], {test: TESTS[test] for test in BETS}, None, widget="list")
    for name in zoo.WRONG
}
closer = settings.choice("wrong", "Look closer at", TITLES, "late-mask", widget="list")

frame.header(
    SECTION,
    SECTION.question,
    "The same weights go into our attention and into PyTorch’s. Compare outputs and gradients; then see "
    "which tests would have caught a mistake, and bring your own attention.",
    settings,
)
guesses = bench.ask(parts.QUESTIONS, settings)
probes.beside(comparing)
with st.expander("The code of our attention"):
    for source in ("mixers.QueriesAndKeys", "mixers.CausalSelfAttention"):
        st.code(frame.class_source(source), language="python")
probes.beside(bets)
own_code()
frame.footer(SECTION, settings)
