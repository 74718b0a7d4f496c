"""Live probes: what is computed once the reader asks, in a process of its own or, of a model's words, here.

Only for those words does the app's process load torch, and only after a press of a button.
"""

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import streamlit as st

from engine.chapter import reference
from engine.chapter.experiments import experiment
from engine.data import corpus
from engine.models.config import ModelConfig
from engine.runs.store import open_store
from engine.system import paths
from lab.shell.frame import MEASURE, dot
from lab.words import MINUS, plain, visible

if TYPE_CHECKING:
    from streamlit.delta_generator import DeltaGenerator

    from engine.probes.averages import Comparison

T = TypeVar("T")

WIDTH = 544  # px
TIMEOUT_S = 120


@contextmanager
def section(title: str, lead: str, name: str, *, below: bool = False) -> Iterator[None]:
    """The head of a live section: its question, what is done, and a row for its settings and its button.

    name: of the row among the page's. below: whether the section is a part of the one before.
    """
    (st.subheader if below else st.header)(title, anchor=False)
    st.markdown(lead, width=MEASURE)
    with st.container(horizontal=True, vertical_alignment="bottom", key=f"instruments-{name}"):
        yield


def button(
    label: str, key: str, on_click: Callable[..., None] | None = None, args: Sequence[Any] = ()
) -> bool:
    """A button that asks for a probe; from then on the probe follows every edit. Returns ``asked``."""

    def pressed() -> None:
        st.session_state[f"{key}.asked"] = True
        if on_click:
            on_click(*args)

    st.button(label, key=key, on_click=pressed, width=160)
    return asked(key)


def asked(key: str) -> bool:
    """Whether that button was pressed in this session."""
    return bool(st.session_state.get(f"{key}.asked"))


def attempt(said: "DeltaGenerator", busy: str, measure: Callable[[], T]) -> T | None:
    """What a probe measures; None where it cannot.

    said: the place of the status line, which reads ``busy`` meanwhile, and then what is wrong.
    """
    said.markdown(f":small[:primary[{busy}]]")
    try:
        return measure()
    except (ValueError, OSError) as error:
        said.markdown(f":small[:red[{plain(str(error))}]]")
        return None


@st.cache_data(max_entries=32, show_spinner=False)
def measured(module: str, *arguments: str) -> dict[str, Any]:
    """The document that ``python -m MODULE --json ARGUMENTS`` prints, on one thread of the CPU.

    Raises ValueError: when that process fails; the message is its last line.
    """
    try:
        ended = subprocess.run(
            [sys.executable, "-m", module, "--json", *arguments],
            cwd=paths.ROOT,
            env={**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise ValueError(f"No answer within {TIMEOUT_S} s: this machine is busy. Try again.") from None
    if ended.returncode:
        last = (ended.stderr.strip().splitlines() or [f"exit code {ended.returncode}"])[-1]
        raise ValueError(f"It could not be measured: {last}")
    found: dict[str, Any] = json.loads(ended.stdout)
    return found


def weights(experiment_id: str, variant_id: str) -> tuple[Path, str] | None:
    """A trained model to look into and whose it is: the shipped one, else the newest of the reader's own."""
    if path := reference.weights(experiment_id, variant_id):
        return path, "shipped, seed 0"
    return trained(experiment(experiment_id).variant(variant_id).config)


def trained(config: ModelConfig) -> tuple[Path, str] | None:
    """The newest model of that configuration that the reader trained on Tiny Shakespeare."""
    store = open_store()
    for run in reversed(store.runs(states=["done"])):
        spec = run.spec
        if spec.config == config:
            path = store.directory(run.id) / "checkpoint.safetensors"
            if spec.corpus_sha256 == corpus.TINYSHAKESPEARE_SHA256 and path.exists():
                return path, f"yours, run #{run.id}, {spec.budget_name} budget, seed {spec.seed}"
    return None


def order_blindness(experiment_id: str, variants: Sequence[str], first: str, second: str) -> None:
    """Two texts through each variant: how far their averages differ, and what each says comes next."""
    with st.container(horizontal=True):
        for name in variants:
            with st.container(width=WIDTH):
                st.markdown(f"{dot(name)} **{plain(experiment(experiment_id).variant(name).title)}**")
                found = weights(experiment_id, name)
                if found is None:
                    st.markdown(
                        "No trained model of this kind is shipped with this copy. Train it above first."
                    )
                    continue
                place = st.empty()
                busy = "Loading the trained model, a few seconds the first time"
                comparison = attempt(place, busy, partial(_compare, found[0], first, second))
                if comparison is None:
                    continue
                place.markdown(_said(comparison))
                _next_tokens(comparison)
                st.caption(f"Weights: {found[1]}.")


def _compare(path: Path, first: str, second: str) -> "Comparison":
    from engine.probes import averages

    return averages.compare(path, first, second)


def _said(comparison: "Comparison") -> str:
    gap, moved = tiny(comparison.average_difference), tiny(comparison.probability_difference)
    if not comparison.same_pieces:
        return (
            f"These are not the same tokens in another order: {_unshared(comparison)}. So the averages "
            f"differ, by up to {gap}, and the next-token probabilities by up to {moved}."
        )
    noise = "" if comparison.average_difference == 0 else ", the rounding of sums taken in another order"
    return (
        f"The two averages differ by at most **{gap}**{noise}; the next-token probabilities by at most "
        f"**{moved}**."
    )


def _unshared(comparison: "Comparison") -> str:
    """Which pieces only one of the two texts has."""
    a, b = Counter(comparison.pieces_a), Counter(comparison.pieces_b)
    said = []
    for which, extra in (("first", a - b), ("second", b - a)):
        pieces = ", ".join(f"“{plain(visible(piece))}”" for piece in list(extra.elements())[:8])
        said.append(f"only the {which} has {pieces}" if pieces else f"the {which} has none of its own")
    return "; ".join(said)


def _next_tokens(comparison: "Comparison") -> None:
    """The likeliest next tokens after each text, side by side."""
    import pandas as pd

    rows = [
        (plain(visible(piece_a)), share_a, plain(visible(piece_b)), share_b)
        for (piece_a, share_a), (piece_b, share_b) in zip(comparison.top_a, comparison.top_b, strict=True)
    ]
    table = pd.DataFrame(rows, columns=["after the first", "probability", "after the second", "probability "])
    shown = table.style.format("{:.4f}", subset=["probability", "probability "])
    st.table(shown, border="horizontal", hide_index=True)


def tiny(value: float) -> str:
    """A very small difference: "2.98e−08"."""
    return "0" if value == 0 else f"{value:.2e}".replace("-", MINUS)
