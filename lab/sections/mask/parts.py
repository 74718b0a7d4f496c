"""Tables and probes of the page on masks. What needs torch is computed once a reader asks, and kept."""

import ast
import inspect
import math
import textwrap
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

import streamlit as st

from engine.chapter.experiments import MASK
from engine.probes.masks import TOKENS, Mixture, ThreeWays
from engine.runs.store import Run, open_store
from lab import probes
from lab.bench.tables import Cell, draw_table, words
from lab.sections.mask.charts import CONSTANTS
from lab.shell.frame import dot
from lab.words import MINUS, NBSP, count, plain, quantity

if TYPE_CHECKING:
    from engine.probes.leaks import Constant, EmptyRow, Sample

SIZES = (*(float(lead * 10**power) for power in range(10) for lead in (1, 2, 5)), 1e10)
TYPES = ("float32", "float16", "bfloat16")
LOADING = "Loading torch, a few seconds the first time"


def differences(found: ThreeWays) -> None:
    """How far each two of the three ways are apart."""
    rows = [
        (words(f"{a} and {b}"), (gap, f"**{probes.tiny(gap)}**")) for (a, b), gap in found.differences.items()
    ]
    draw_table(("two ways", "largest difference"), rows, "Differences between the three ways")


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
            words(str(t + 1)),
            words(f"({x:.2f}, {y:.2f})".replace("-", MINUS)),
            *((float(tokens), quantity(float(tokens), 2)) for tokens in counts),
        ]
        rows.append([cells[place] for place in kept])
    draw_table([columns[place] for place in kept], rows, "Effective tokens, row by row")


def constant_table(found: "dict[tuple[str, str], Constant]", size: float) -> None:
    """What each mask value becomes in each type, and what leaks past it at one size of the scores."""
    rows = []
    for kind in TYPES:
        for value, (name, look) in CONSTANTS.items():
            one = found[kind, value]
            rows.append(
                (
                    words(f":{look.slot}[●]{NBSP}{name}"),
                    words(kind),
                    words(":red[refused]" if one.filled is None else _number(one.filled)),
                    words(_number(one.cast)),
                    _leak(one, size),
                )
            )
    columns = ("mask value", "type", "masked_fill", "cast", "leaks")
    draw_table(columns, rows, "What each mask value becomes, and what leaks past it")
    if refusals := {one.refusal for one in found.values() if one.refusal}:
        said = "; ".join(f"“{plain(refusal)}”" for refusal in refusals)
        st.caption(f"Refused: masked\\_fill raises {said}, while a cast says nothing and changes the value.")


def _leak(one: "Constant", size: float) -> Cell:
    leak = one.leaks[size]
    if leak is None:
        return math.nan, ":gray[–]" if one.filled is None else ":red[overflow]"
    return leak, "0" if leak == 0 else f"**:red[{leak:.3f}]**"


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


def empty_row_table(found: "Sequence[EmptyRow]") -> None:
    """What every way makes of the empty row, and where it leaves NaN behind."""
    rows = [
        (
            words(plain(one.way)),
            words(_LIKE[one.like].replace("_", "\\_")),
            words(f":red[{plain(', '.join(one.nan_gradients))}]" if one.nan_gradients else "none"),
        )
        for one in found
    ]
    draw_table(
        ("attention computed by", "that row’s output", "NaN in the gradient of"),
        rows,
        "A row in which everything is masked, in six ways",
    )


@lru_cache(maxsize=1)
def constants() -> "dict[tuple[str, str], Constant]":
    """Measured once in this process."""
    from engine.probes import leaks

    return leaks.constants(SIZES)


@lru_cache(maxsize=1)
def empty_rows() -> "list[EmptyRow]":
    """Measured once in this process."""
    from engine.probes import leaks

    return leaks.empty_rows()


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
                run = newest(name)
                if run is None:
                    st.markdown("No finished run of yours. Train it above first.")
                    continue
                place = st.empty()
                found = probes.attempt(place, LOADING, partial(_sample_of, run, prompt, seed))
                if found is None:
                    continue
                place.code(found.text, language=None, wrap_lines=True)
                measured = run.measured.get("validation_perplexity")
                st.markdown(
                    f"Held-out perplexity, as measured in training: **{quantity(measured)}**. Of the token "
                    f"after each window, which it cannot see: **{quantity(found.blind_perplexity)}**."
                )
                tokens = f"{run.spec.config.vocab_size:,}"
                st.caption(
                    f"Yours, run \\#{run.id}, {run.spec.budget_name} budget, seed {run.spec.seed}. "
                    f"A guess among all {tokens} tokens alike would have {tokens}."
                )


def newest(variant_id: str) -> Run | None:
    """The reader's newest run of a variant that is done and has its weights."""
    store = open_store()
    for run in reversed(store.runs(states=["done"])):
        if (
            run.spec.config == MASK.variant(variant_id).config
            and (store.directory(run.id) / "checkpoint.safetensors").exists()
        ):
            return run
    return None


def _sample_of(run: Run, prompt: str, seed: int) -> "Sample":
    path = open_store().directory(run.id) / "checkpoint.safetensors"
    return _sample(path, path.stat().st_mtime_ns, run.spec.corpus, prompt, seed)


@lru_cache(maxsize=16)
def _sample(path: Path, _changed: int, corpus_id: str, prompt: str, seed: int) -> "Sample":
    from engine.probes import leaks

    return leaks.sample(path, corpus_id, prompt, seed)


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
