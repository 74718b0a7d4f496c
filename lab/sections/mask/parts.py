"""Tables and probes of the page on masks."""

import ast
import inspect
import math
import textwrap
from collections.abc import Callable, Mapping, Sequence

import streamlit as st

from engine.chapter.experiments import MASK
from engine.probes.masks import TOKENS, Mixture, ThreeWays
from engine.probes.registry import LEAK_SAMPLE
from engine.probes.results.leaks import Constant, EmptyRow
from lab import probes, weights
from lab.bench import Cell, Table
from lab.sections.mask.charts import CONSTANTS
from lab.shell.frame import dot
from lab.words import MINUS, NBSP, count, plain, quantity

SIZES = (*(float(lead * 10**power) for power in range(10) for lead in (1, 2, 5)), 1e10)
TYPES = ("float32", "float16", "bfloat16")
WRITING = "Writing 80 tokens, and reading the held-out text"


def differences(found: ThreeWays) -> None:
    """How far each two of the three ways are apart."""
    rows = [
        (f"{a} and {b}", Cell(gap, f"**{probes.tiny(gap)}**")) for (a, b), gap in found.differences.items()
    ]
    Table(("two ways", "largest difference"), rows, alt="Differences between the three ways").draw()


def rows_of(once: Mixture, multiplied: Mixture, times: str) -> None:
    """Row by row: the mixed vector, and over how many tokens it is in effect a mean."""
    columns = [
        "query",
        "mixed vector",
        "softmax, ×1",
        f"softmax, ×{times}",
        "linear, ×1",
        f"linear, ×{times}",
    ]
    kept = [0, 1, 3, 5] if float(times) == 1 else range(6)
    rows = []
    for t in range(TOKENS):
        x, y = (round(float(part), 2) + 0.0 for part in multiplied.mixed[t])  # never −0
        counts = (
            once.effective[t],
            multiplied.effective[t],
            once.linear_effective[t],
            multiplied.linear_effective[t],
        )
        cells = [
            str(t + 1),
            f"({x:.2f}, {y:.2f})".replace("-", MINUS),
            *(Cell(float(tokens), quantity(float(tokens), 2)) for tokens in counts),
        ]
        rows.append([cells[place] for place in kept])
    Table(
        [columns[place] for place in kept],
        rows,
        "Linear: the scores as a layer’s coefficients, each by its share of their absolute sum; none where "
        "all are 0.",
        "Effective tokens, row by row",
    ).draw()


def constant_table(found: Mapping[tuple[str, str], Constant], size: float) -> None:
    """What each mask value becomes in each type, and what leaks past it at one size of the scores."""
    rows = []
    for kind in TYPES:
        for value, (name, look) in CONSTANTS.items():
            one = found[kind, value]
            rows.append(
                (
                    f":{look.slot}[●]{NBSP}{name}",
                    kind,
                    ":red[refused]" if one.filled is None else _number(one.filled),
                    _number(one.cast),
                    _leak(one, size),
                )
            )
    columns = ("mask value", "type", "masked_fill", "cast", "leaks")
    caption = ""
    if refusals := {one.refusal for one in found.values() if one.refusal}:
        said = "; ".join(f"“{plain(refusal)}”" for refusal in refusals)
        caption = f"Refused: masked\\_fill raises {said}, while a cast says nothing and changes the value."
    Table(columns, rows, caption, "What each mask value becomes, and what leaks past it").draw()


def _leak(one: Constant, size: float) -> Cell:
    leak = one.leaks[size]
    if leak is None:
        return Cell(None, ":gray[–]" if one.filled is None else ":red[overflow]")
    return Cell(leak, "0" if leak == 0 else f"**:red[{leak:.3f}]**")


def _number(value: float) -> str:
    if math.isinf(value):
        return f"{MINUS}∞" if value < 0 else "∞"
    return f"{value:,.0f}".replace("-", MINUS)


_LIKE = {
    "nan": ":red[NaN]",
    "bias": ":green[the bias of W_O alone]",
    "mean": ":red[the mean of all six tokens]",
    "other": "something else",
}


def empty_row_table(found: Sequence[EmptyRow]) -> Table:
    """What every way makes of the empty row, and where it leaves NaN behind."""
    rows = [
        (
            plain(one.way),
            _LIKE[one.like].replace("_", "\\_"),
            f":red[{plain(', '.join(one.nan_gradients))}]" if one.nan_gradients else "none",
        )
        for one in found
    ]
    return Table(
        ("attention computed by", "that row’s output", "NaN in the gradient of"),
        rows,
        "torch as it is installed here, one head with the same weights in all six ways.",
        "A row in which everything is masked, in six ways",
    )


def size_label(size: str) -> str:
    """A size of scores for people: "5,000", "1e9"."""
    value = float(size)
    return f"{value:,.0f}" if value < 1e6 else f"{value:.0e}".replace("e+0", "e").replace("e+", "e")


def samples(variants: Sequence[str], prompt: str, seed: int) -> None:
    """What the reader's own newest run of each variant writes, and what it is worth without the answer."""
    with st.container(horizontal=True):
        for name in variants:
            with st.container(width=probes.WIDTH):
                st.markdown(f"{dot(name)} **{plain(MASK.variant(name).title)}**")
                one = weights.own(MASK.variant(name).config, any_text=True)
                if one is None or one.run is None:
                    st.markdown("You have not trained this model yet. Train it above first.")
                    continue
                place, spec = st.empty(), one.run.spec
                arguments = {"weights": one.path, "corpus_id": spec.corpus, "prompt": prompt, "seed": seed}
                if found := probes.attempt(place, LEAK_SAMPLE, WRITING, **arguments):
                    st.code(found.text, language=None, wrap_lines=True)
                    measured = one.run.measured.get("validation_perplexity")
                    st.markdown(
                        f"Held-out perplexity, as measured in training: **{quantity(measured)}**. Of the "
                        f"token after each window, which it cannot see: "
                        f"**{quantity(found.blind_perplexity)}**."
                    )
                tokens = f"{spec.config.vocab_size:,}"
                guess = f"A guess among all {tokens} tokens alike would have {tokens}."
                st.caption(f"Weights: {plain(one.whose)}. {guess}")


def effective(number: float) -> str:
    """Effective tokens in a sentence."""
    return "one token" if round(number, 1) == 1 else f"{quantity(number)} tokens"


def body(function: Callable[..., object]) -> str:
    """The text of a function without its docstring, which a page has said already."""
    text = textwrap.dedent(inspect.getsource(function))
    parsed = ast.parse(text).body[0]
    lines = text.rstrip().splitlines()
    if isinstance(parsed, ast.FunctionDef) and ast.get_docstring(parsed):
        said = parsed.body[0]
        del lines[said.lineno - 1 : said.end_lineno]
    return "\n".join(lines)


def of_six(differ: int) -> str:
    """Some of the six ways, in words."""
    return f"{count(differ)} of the six"
