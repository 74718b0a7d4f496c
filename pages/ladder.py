"""The ladder: every part of a block on a rung of its own, what it buys and what it costs."""

from collections.abc import Callable
from functools import partial

import streamlit as st

from engine.chapter.experiments import LADDER
from engine.models.config import ModelConfig
from engine.probes.registry import BLOCK, SAMPLES
from engine.probes.results.block import Block
from engine.runs.spec import RunSpec
from engine.runs.store import open_store
from lab import probes, weights
from lab.bench import instruments
from lab.bench import training as bench
from lab.bench.instruments import Choice
from lab.bench.sweep import Sweep
from lab.charts import drawing, lines
from lab.sections.ladder import notice, parts, view
from lab.sections.ladder import own as ladder_own
from lab.sections.ladder import samples as ladder_samples
from lab.sections.ladder.notice import BEST_GUESSES, BUYS_GUESSES
from lab.sections.ladder.own import of_the_ladder, of_the_reader
from lab.sections.ladder.parts import WIDTHS
from lab.sections.ladder.samples import TEMPERATURES
from lab.settings import Settings, as_it_is, one_of
from lab.shell import export, frame
from lab.shell.chapter import section
from lab.words import count, plain

SECTION = section("ladder.py")
WRITING = "Writing 60 tokens with each model"


def guesses() -> None:
    """The two predictions."""
    with st.container(horizontal=True):
        for name, question, options in (
            ("buys", "Before you train: which part buys the most points?", BUYS_GUESSES),
            ("best", "And which rung will be best on text it has not seen?", BEST_GUESSES),
        ):
            with st.container(width=bench.HALF):
                st.pills(question, list(options), format_func=options.__getitem__, key=settings.key(name))


def training(choice: Choice, now: Sweep, refused: str | None) -> None:
    """The ladder: settings, curves, the four columns. now: with the reader's own rung, where there is one."""
    said = bench.instrument_row(LADDER, of_the_ladder(now), settings, choice)
    shape = bench.chart_frame(LADDER, choice.budget, now.of_the_chapters_text)
    paused = False
    with st.container(horizontal=True, vertical_alignment="center", key="figure-title"):
        st.markdown("**Held-out perplexity** :gray[log scale, lower is better]", width="stretch")
        if now.unended:
            paused = st.toggle("Pause live", key="ladder.paused")
        with st.popover("Export", type="tertiary"):
            export.downloads(
                f"{LADDER.id}-{choice.budget}",
                lambda: lines.line_chart(shape, parts.lines(now.again())),
                lambda: now.again().table(),
            )

    def draw(now: Sweep) -> None:
        rungs = of_the_ladder(now)
        moving = rungs if rungs.unended else of_the_reader(now)
        progress = moving.progress if moving.unended else 0.0
        with st.container(key="figure"):
            drawing.draw(lines.line_chart(shape, parts.lines(now), progress), key="ladder.chart")
        buys, best = (st.session_state[settings.key(name)] for name in ("buys", "best"))
        view.results(now, choice, notice.notice(rungs, buys, best))
        worth(rungs, choice)
        by_heart(rungs, choice)

    bench.follow(now, said, draw, refused=refused, paused=paused, told=of_the_ladder)


def worth(now: Sweep, choice: Choice) -> None:
    """What every part buys beside its parent, and what the chapter says of it."""
    st.header("What does each part buy?", anchor=False)
    st.markdown(
        "Every rung is one field away from its parent, so the difference of the two is what that field is "
        "worth: points of held-out perplexity taken off, and points per thousand parameters added.",
        width=frame.MEASURE,
    )
    view.worth(now, choice)


def by_heart(now: Sweep, choice: Choice) -> None:
    """Two blocks: better on their own text, worse on any other."""
    st.header("Why are two blocks worse than one?", anchor=False)
    st.markdown(
        "The second block has seen the same text as often as the first. Follow both, and one block with "
        "dropout, on text that was held out and on the batches that they train on.",
        width=frame.MEASURE,
    )
    view.by_heart(now, choice)


def dropout(choice: Choice, ladder: Sweep) -> Sweep:
    """The same two models after one pass over the text and after many. ladder: at the chosen budget."""
    st.header("Is dropout worth it after one pass, and after many?", anchor=False)
    st.markdown(
        "A block without dropout and one with, at both budgets: the quick one goes over Shakespeare about "
        "once, the chapter’s about sixty times. Steps and learning rate differ between the two, and nothing "
        "but the dropout within each.",
        width=frame.MEASURE,
    )
    specs, refused = list[RunSpec](), None
    for name in LADDER.budgets:
        sweep = ladder
        if name != choice.budget:
            sweep, refused = bench.asked((LADDER,), Choice(name, choice.seeds, choice.corpus_id))
        specs += [spec for spec in sweep.wanted.values() if spec.variant in parts.DROPOUT]
    both = Sweep.of(LADDER, specs, open_store())
    with st.container(horizontal=True, vertical_alignment="bottom", key="instruments-passes"):
        instruments.action(both, settings, "Train at both budgets", "passes-", width=190)
        said = bench.status_line()
    bench.follow(both, said, lambda now: view.dropout(now, choice.corpus_id or ""), refused=refused)
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
            view.table(parts.sizes_table(own))
            st.caption(
                "Counted from the configuration; biases with their matrix. What is not in blocks: token "
                "table, unembedding, final norm, and the position table, which the first rung lacks."
            )
        with st.container(width=bench.NOTICE_WIDTH):
            width = st.select_slider(
                "Width of a block, d_model",
                WIDTHS,
                format_func=lambda digits: f"{int(digits):,}",
                key=settings.key("width"),
            )
            view.table(parts.block_table(int(width)))


def linearity() -> None:
    """With its weights frozen, attention is linear along the features."""
    probe(
        "linear",
        "What can attention not compute?",
        "Freeze the attention weights, those of some other text, and send in two inputs and a sum of both. A "
        "linear map of 2x − 3y is twice the one of x less three times the one of y.",
        view.linearity,
    )


def norms() -> None:
    """LayerNorm's four promises, and BatchNorm's way with them."""
    probe(
        "norms",
        "Why LayerNorm and not BatchNorm?",
        "LayerNorm promises four things: what it makes of a token does not depend on the batch, keeps no "
        "running statistics, is the same in training and inference, and does not care how long the text is.",
        view.norms,
    )


def probe(name: str, title: str, lead: str, draw: Callable[[Block], None]) -> None:
    """A section on one block, and what is drawn of it. name: of its row."""
    with probes.section(title, lead, name):
        opens = weights.chosen(settings.key(name), LADDER.id, ("block",)).get("block")
    if found := probes.attempt(st.empty(), BLOCK, weights=opens.path if opens else None):
        draw(found)
        whose = opens.whose if opens else "as torch draws them, seed 0; no trained block is here yet"
        st.caption(f"Weights: {plain(whose)}.")


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
            view.table(ladder_own.results(own, now))

    bench.follow(everything, said, draw, refused=lacks or known, told=of_the_reader)
    return mine


def samples(own: ModelConfig | None) -> None:
    """What every rung writes after the same words."""
    settings.again("prompt", "temperature")
    prompt, temperature = (str(st.session_state[settings.key(name)]) for name in ("prompt", "temperature"))
    with probes.section(
        "What does each rung write?",
        "The same beginning for all, and the same random numbers. Perplexity is a figure; this is what it "
        "reads like.",
        "write",
    ):
        st.text_input("Begins with", key=settings.key("prompt"), max_chars=200, width=400)
        st.segmented_control(
            "Temperature", TEMPERATURES, key=settings.key("temperature"), required=True, width="content"
        )
        models = ladder_samples.models(settings.key("write"), own)
        now = (ladder_samples.present(models), prompt, float(temperature))
        asked = probes.pressed("Write", settings.key("write"), now, SAMPLES.seconds)
    probes.outdated(asked, now)
    if asked and asked[0]:
        paths, prompt, warmth = asked
        place = st.empty()
        arguments = {"weights": list(paths.values()), "prompt": prompt, "temperature": warmth}
        if texts := probes.attempt(place, SAMPLES, WRITING, **arguments):
            ladder_samples.draw(models, dict(zip(paths, texts, strict=True)))


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
new = own if own and ladder_own.nearest(own)[1] else None  # on no rung of the ladder yet
wanted = ladder_own.specs(own, choice) if own and sweep.wanted else []
joined = Sweep(LADDER, {**sweep.wanted, **{spec.digest: spec for spec in wanted}}, sweep.store)
training(choice, joined, refused)
frame.sources(LADDER.models, f"The code of the {count(len(LADDER.variants))} rungs")
both = dropout(choice, sweep)
sizes(new)
probes.beside(linearity)
probes.beside(norms)
mine = build(own, refusal, choice, joined)
probes.beside(partial(samples, new))
bench.watch(joined, both, mine)
frame.footer(SECTION)
