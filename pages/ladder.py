"""The ladder: every part of a block on a rung of its own, what it buys and what it costs."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import streamlit as st

from engine.experiments import LADDER
from engine.models.config import ModelConfig
from engine.runs.launch import OWN
from engine.runs.store import open_store
from lab import (
    bench,
    charts,
    export,
    frame,
    instruments,
    ladder_notice,
    ladder_own,
    ladder_parts,
    ladder_probe,
    probing,
    small_multiples,
    vega,
)
from lab.chapter import section
from lab.controls import Settings, as_it_is, count, one_of, plain
from lab.instruments import Choice
from lab.ladder_notice import BEST_GUESSES, BUYS_GUESSES
from lab.ladder_parts import WIDTHS
from lab.measured import Sweep

if TYPE_CHECKING:
    from pandas.io.formats.style import Styler

SECTION = section("ladder.py")
TEMPERATURES = ("0", "0.5", "0.8", "1")
SAMPLE = 352  # px


def draw_table(styler: "Styler") -> None:
    """A table as all of the page's are."""
    st.table(styler, border="horizontal", hide_index=True)


def guesses() -> None:
    """The two predictions."""
    with st.container(horizontal=True):
        for name, question, options in (
            ("buys", "Before you train: which part buys the most points?", BUYS_GUESSES),
            ("best", "And which rung will be best on text it has not seen?", BEST_GUESSES),
        ):
            with st.container(width=bench.HALF):
                st.pills(question, list(options), format_func=options.__getitem__, key=settings.key(name))


def of_the_ladder(now: Sweep) -> Sweep:
    """A sweep without the reader's own rung."""
    return now.part(lambda spec: spec.variant != OWN)


def of_the_reader(now: Sweep) -> Sweep:
    """That rung alone."""
    return now.part(lambda spec: spec.variant == OWN)


def training(choice: Choice, now: Sweep, refused: str | None) -> None:
    """The ladder: settings, curves, the four columns. now: with the reader's own rung, where there is one."""
    ladder = of_the_ladder(now)
    said = bench.instrument_row(LADDER, ladder, settings, choice)
    shape = bench.chart_frame(LADDER, choice.budget, now.of_the_chapters_text)
    paused = False
    with st.container(horizontal=True, vertical_alignment="center", key="figure-title"):
        st.markdown("**Held-out perplexity** :gray[log scale, lower is better]", width="stretch")
        if now.unended:
            paused = st.toggle("Pause live", key="ladder.paused")
        with st.popover("Export", type="tertiary"):
            export.downloads(
                f"{LADDER.id}-{choice.budget}",
                lambda: charts.perplexity_chart(shape, ladder_parts.lines(now.again())),
                lambda: now.again().table(),
            )

    def draw(now: Sweep) -> None:
        rungs, full = of_the_ladder(now), choice.budget == "chapter"
        moving = rungs if rungs.unended else of_the_reader(now)
        progress = moving.progress if moving.unended else 0.0
        with st.container(key="figure"):
            vega.draw(charts.perplexity_chart(shape, ladder_parts.lines(now), progress), key="ladder.chart")
        with st.container(horizontal=True, gap="medium", key="results"):
            with st.container(width=bench.TABLE_WIDTH):
                draw_table(ladder_parts.results_table(now, comparable=full))
                st.caption(" ".join(_remarks(rungs, choice)))
            with st.container(width=bench.NOTICE_WIDTH):
                st.subheader("What to notice", anchor=False)
                st.markdown(_noticed(rungs))
        worth(rungs, full)
        by_heart(rungs, choice)

    bench.follow(now, said, draw, refused=refused, paused=paused, told=of_the_ladder)


def _noticed(now: Sweep) -> str:
    buys, best = (st.session_state[settings.key(name)] for name in ("buys", "best"))
    if said := ladder_notice.notice(now, buys, best):
        return said
    if now.unended:
        return "Your guesses are answered here when every rung has ended."
    return "No runs yet. Make your two guesses, then train."


def _remarks(now: Sweep, choice: Choice) -> list[str]:
    said = bench.general_remarks(LADDER, now.rows(), choice)
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


def worth(now: Sweep, full: bool) -> None:
    """What every part buys beside its parent, and what the chapter says of it."""
    st.header("What does each part buy?", anchor=False)
    st.markdown(
        "Every rung is one field away from its parent, so the difference of the two is what that field is "
        "worth: points of held-out perplexity taken off, and points per thousand parameters added.",
        width=frame.MEASURE,
    )
    with st.container(horizontal=True, gap="medium", key="results-worth"):
        with st.container(width=bench.TABLE_WIDTH):
            draw_table(ladder_parts.bought_table(now))
            st.caption(
                "Parameters: more than the parent has. Below zero: it costs points. Grey: within seed noise, "
                "or of the reference. Paired over seeds."
            )
            draw_table(ladder_parts.beside_the_chapter(now, comparable=full))
            st.caption(
                "The chapter’s own comparisons, all inferred from its prose; below zero is better. The added "
                "average here has no positions: which rows of the chapter’s have them is not printed. Green: "
                "within a third of the chapter’s."
            )
        with st.container(width=bench.NOTICE_WIDTH):
            st.subheader("One thing at a time", anchor=False)
            st.markdown(ladder_notice.apart(now))


def by_heart(now: Sweep, choice: Choice) -> None:
    """Two blocks: better on their own text, worse on any other."""
    st.header("Why are two blocks worse than one?", anchor=False)
    st.markdown(
        "The second block has seen the same text as often as the first. Follow both, and one block with "
        "dropout, on text that was held out and on the batches that they train on.",
        width=frame.MEASURE,
    )
    budget = LADDER.budget(choice.budget)
    progress = now.progress if now.unended else 0.0
    small_multiples.draw(ladder_parts.by_heart_parts(now), budget.steps, "heart", progress)
    with st.container(horizontal=True, gap="medium", key="results-heart"):
        with st.container(width=bench.TABLE_WIDTH):
            styler = ladder_parts.by_heart_table(now, comparable=choice.budget == "chapter")
            draw_table(styler)
            st.caption(
                f"At the end, on windows of the training text, without dropout; the curves at the right are "
                f"of batches, with it. Dashed rules: the chapter, after "
                f"{LADDER.budget('chapter').steps:,} steps."
            )
        with st.container(width=bench.NOTICE_WIDTH):
            st.subheader("By heart", anchor=False)
            st.markdown(ladder_notice.by_heart(now))


def dropout(choice: Choice, ladder: Sweep) -> Sweep:
    """The same two models after one pass over the text and after many. ladder: at the chosen budget."""
    st.header("Is dropout worth it after one pass, and after many?", anchor=False)
    st.markdown(
        "A block without dropout and one with, at both budgets: the quick one goes over Shakespeare about "
        "once, the chapter’s about sixty times. Steps and learning rate differ between the two, and nothing "
        "but the dropout within each.",
        width=frame.MEASURE,
    )
    sweeps, refused = list[tuple[str, Sweep]](), None
    names = ("block", "block-dropout")
    for name in LADDER.budgets:
        whole = ladder
        if name != choice.budget:
            whole, refused = bench.asked((LADDER,), Choice(name, choice.seeds, choice.corpus_id))
        sweeps.append((name, whole.part(lambda spec: spec.variant in names)))
    both = Sweep(LADDER, {k: v for _, one in sweeps for k, v in one.wanted.items()}, open_store())
    with st.container(horizontal=True, vertical_alignment="bottom", key="instruments-passes"):
        instruments.action(both, settings, "Train at both budgets", "passes-", width=190)
        said = bench.status_line()

    def draw(now: Sweep) -> None:
        parts = [(name, now.part(lambda spec, name=name: spec.budget_name == name)) for name, _ in sweeps]  # type: ignore[misc]
        with st.container(horizontal=True, gap="medium", key="results-passes"):
            with st.container(width=bench.TABLE_WIDTH):
                draw_table(ladder_parts.dropout_table(parts, choice.corpus_id or ""))
                st.caption(
                    "Held-out perplexity; a pass is as many tokens as the training part has, drawn at random "
                    "places. Bought: points that dropout takes off, grey within seed noise."
                )
            with st.container(width=bench.NOTICE_WIDTH):
                gaps = [ladder_parts.bought(part, "block-dropout") for _, part in parts]
                often = [
                    ladder_parts.times(ladder_parts.passes(LADDER.budget(name), choice.corpus_id or ""))
                    for name, _ in parts
                ]
                st.markdown(ladder_notice.dropout(gaps[0], gaps[1], (often[0], often[1])))

    bench.follow(both, said, draw, refused=refused)
    return both


def sizes(own: ModelConfig | None) -> None:
    """Where the parameters are, rung by rung and at any width."""
    st.header("Where are the parameters?", anchor=False)
    st.markdown(
        "Attention has four square matrices and the feed-forward as much as eight, so two thirds of a block "
        "are in the part that looks at one position only. Choose a width: the share stays.",
        width=frame.MEASURE,
    )
    with st.container(horizontal=True, gap="medium", key="results-sizes"):
        with st.container(width=bench.TABLE_WIDTH):
            draw_table(ladder_parts.sizes_table(own))
            st.caption(
                "Counted from the configuration; biases with their matrix. What is not in blocks: token "
                "table, unembedding, final norm, and the position table, which the first rung lacks."
            )
        with st.container(width=bench.NOTICE_WIDTH):
            width = st.select_slider(
                "Width of a block, d_model", WIDTHS, format_func=_thousands, key=settings.key("width")
            )
            draw_table(ladder_parts.block_table(int(width)))


def _thousands(digits: str) -> str:
    return f"{int(digits):,}"


def probe(name: str, draw: Callable[[ladder_probe.Measured], None]) -> None:
    """A button, and what is drawn of the measurement once it was pressed."""
    with st.container(horizontal=True, vertical_alignment="bottom", key=f"instruments-{name}"):
        probing.button("Measure", settings.key(name))
        said = bench.status_line()
    if not probing.asked(settings.key(name)):
        said.markdown(":small[:gray[Takes a few seconds, in a process of its own]]")
        return
    said.markdown(":small[:primary[Measuring in a process of its own, some seconds]]")
    try:
        measured, whose = ladder_probe.measure()
    except (ValueError, OSError) as error:
        said.markdown(f":small[:red[{plain(str(error))}]]")
        return
    of_what = f":gray[; {plain(whose)}]" if name == "linear" else ""  # norms have no weights yet
    said.markdown(f":small[:green[Measured in {measured['seconds']:.1f} s]{of_what}]")
    draw(measured)


def linearity() -> None:
    """With its weights frozen, attention is linear along the features."""
    st.header("What can attention not compute?", anchor=False)
    st.markdown(
        "Freeze the attention weights, those of some other text, and send in two inputs and a sum of both. A "
        "linear map of 2x − 3y is twice the one of x less three times the one of y.",
        width=frame.MEASURE,
    )

    def draw(measured: ladder_probe.Measured) -> None:
        st.markdown("**One feature of the output, while the input moves along a line** :gray[scaled]")
        vega.draw(ladder_probe.line_chart(measured), key="ladder.line")
        with st.container(horizontal=True, gap="medium", key="results-linear"):
            with st.container(width=bench.TABLE_WIDTH):
                draw_table(ladder_probe.linear_table(measured))
                st.caption(
                    "Length of the difference over the length of the output, biases taken off; four heads, "
                    "32 tokens of standard normal numbers, float32."
                )
            with st.container(width=bench.NOTICE_WIDTH):
                st.subheader("Hence the feed-forward", anchor=False)
                st.markdown(ladder_probe.linear_notice(measured))

    probe("linear", draw)


def norms() -> None:
    """LayerNorm's four promises, and BatchNorm's way with them."""
    st.header("Why LayerNorm and not BatchNorm?", anchor=False)
    st.markdown(
        "LayerNorm promises four things: what it makes of a token does not depend on the batch, keeps no "
        "running statistics, is the same in training and inference, and does not care how long the text is.",
        width=frame.MEASURE,
    )

    def draw(measured: ladder_probe.Measured) -> None:
        with st.container(horizontal=True, gap="medium", key="results-norms"):
            with st.container(width=bench.TABLE_WIDTH):
                draw_table(ladder_probe.norms_table(measured))
                st.caption(ladder_probe.norms_remark(measured))
            with st.container(width=bench.NOTICE_WIDTH):
                st.subheader("Four promises", anchor=False)
                st.markdown(ladder_probe.norms_notice(measured))

    probe("norms", draw)


def build(own: ModelConfig | None, refusal: str, choice: Choice, everything: Sweep) -> Sweep:
    """The reader's own rung: parts to toggle, one button, its figure beside the nearest rung.

    everything: the ladder and that rung, where it can be trained.
    """
    st.header("Build a rung of your own", anchor=False)
    st.markdown(
        "It begins as the chapter’s block. Change any part: trained on the budget, seeds and text chosen "
        "above, it joins the curves and the table at the top.",
        width=frame.MEASURE,
    )
    ladder_own.toggles(settings)
    mine = of_the_reader(everything)
    with st.container(horizontal=True, vertical_alignment="bottom", key="instruments-own"):
        instruments.action(mine, settings, "Train my rung", "own-")
        said = bench.status_line()
    if own is None:
        said.markdown(f":small[:red[{plain(refusal[:1].upper() + refusal[1:])}]]")
        return mine
    st.markdown(ladder_own.introduced(own), width=frame.MEASURE)
    known = ":gray[Train it above, with the ladder.]" if not ladder_own.nearest(own)[1] else None
    lacks = f":gray[{choice.lacks}]" if choice.lacks else None

    def draw(now: Sweep) -> None:
        with st.container(key="results-own", width=bench.TABLE_WIDTH):
            draw_table(ladder_own.results(own, now))

    bench.follow(everything, said, draw, refused=lacks or known, told=of_the_reader)
    return mine


def samples(own: ModelConfig | None) -> None:
    """What every rung writes after the same words."""
    st.header("What does each rung write?", anchor=False)
    st.markdown(
        "The same beginning for all, and the same random numbers. Perplexity is a figure; this is what it "
        "reads like.",
        width=frame.MEASURE,
    )
    with st.container(horizontal=True, vertical_alignment="bottom", key="instruments-write"):
        prompt = st.text_input("Begins with", key=settings.key("prompt"), max_chars=200, width=400)
        temperature = st.segmented_control(
            "Temperature", TEMPERATURES, key=settings.key("temperature"), required=True, width="content"
        )
        probing.button("Write", settings.key("write"))
        with st.container(width=bench.STATUS_WIDTH):
            said = st.empty()
    if not probing.asked(settings.key("write")):
        return
    found = {name: probing.weights(LADDER.id, name) for name in LADDER.variants}
    if own and ladder_own.nearest(own)[1]:
        found[OWN] = probing.trained(own)
    present = {name: weights for name, weights in found.items() if weights}
    texts = dict[str, str]()
    if present:
        said.markdown(":small[:primary[Writing in a process of its own, some seconds]]")
        try:
            document = probing.measured(
                "engine.probes.samples",
                f"--prompt={prompt}",
                f"--temperature={temperature}",
                *(str(path) for path, _ in present.values()),
            )
        except (ValueError, OSError) as error:
            said.markdown(f":small[:red[{plain(str(error))}]]")
            return
        rows = dict(zip(present, document["rows"], strict=True))
        if len({row["error"] for row in rows.values()}) == 1 and rows[next(iter(rows))]["error"]:
            said.markdown(f":small[:red[{plain(rows[next(iter(rows))]['error'])}]]")
            return
        texts = {name: row["text"] or row["error"] for name, row in rows.items()}
        said.empty()
    with st.container(horizontal=True, key="samples"):
        for name, weights in found.items():
            with st.container(width=SAMPLE):
                st.markdown(f"**{ladder_parts.named(name)}**")
                if name not in texts or weights is None:
                    st.markdown(":gray[No trained model of this rung is here yet. Train it above first.]")
                    continue
                st.code(texts[name], language=None, wrap_lines=True)
                st.caption(f"Weights: {plain(weights[1])}.")


settings = Settings(
    "ladder", ("budget", "seeds", "text", "buys", "best", "width", *ladder_own.NAMES, "prompt", "temperature")
)
frame.header(
    SECTION,
    LADDER.question,
    "A transformer block is a pile of parts. Add them one by one to the average that started it all, train "
    "every rung, and read off what each is worth.",
)
settings.seed("buys", one_of("buys", tuple(BUYS_GUESSES)), None)
settings.seed("best", one_of("best", tuple(BEST_GUESSES)), None)
settings.seed("width", one_of("width", WIDTHS), "128")
settings.seed("prompt", as_it_is, "ROMEO: I will")
settings.seed("temperature", one_of("temperature", TEMPERATURES), "0.8")
ladder_own.seed(settings)
choice = bench.choose(LADDER, settings)
guesses()
sweep, refused = bench.asked((LADDER,), choice)
own, refusal = ladder_own.built(settings)
wanted = ladder_own.specs(own, choice) if own and sweep.wanted else []
joined = Sweep(LADDER, {**sweep.wanted, **{spec.digest: spec for spec in wanted}}, sweep.store)
training(choice, joined, refused)
frame.sources(LADDER.variants, f"The code of the {count(len(LADDER.variants))} rungs")
both = dropout(choice, sweep)
sizes(own if own and ladder_own.nearest(own)[1] else None)
linearity()
norms()
mine = build(own, refusal, choice, joined)
samples(own)
bench.watch(joined, both, mine)
frame.footer(SECTION)
