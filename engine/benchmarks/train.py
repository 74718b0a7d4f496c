"""How fast a training step is, beside others that do the same: ``python -m engine bench train``.

All candidates take turns in one process, on the same model sizes, batch and threads:

ours      the step of ``training.py``, in float32 and, where the hardware multiplies it, in bfloat16
plain     the loop that a textbook writes, eager, around the same model with torch's own linear layers
compiled  the plain loop around ``torch.compile`` of its model; only when asked for
nanogpt   the model of a nanoGPT checkout with the step of its ``train.py``; only when its folder is given

Each has one turn a round. The order is turned by one place from round to round and read backwards in every
other one, so that none always finds the machine as the same other one left it. What is printed is the median
over rounds; a ratio is the median of the ratios within a round, so that a machine that slows down for a while
slows both sides.

``gemm_share`` sets the step against the machine: (FLOP of the step / its seconds) over (FLOP of its matrix
products / the seconds of these alone). The FLOP of a step are 3 * 2 * multiplications(config, context) *
tokens (``ledger.py``; the gradient takes two products for each of the forward pass, and a product is a
multiplication and an addition). The products alone are every linear layer's forward, its gradient to the
input and its gradient to the weight, in the step's number and sizes, of the step's dtype, on tensors that lie
ready; they take their turns like any candidate. Attention counts in the first, unmasked, and not in the
second, so that a step that did nothing but its products, and attention at their rate, has a share of 1.

The process has the allocator's settings of a trainer (``keep_freed_memory``), for all alike.
"""

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import replace
from datetime import date
from pathlib import Path
from statistics import median
from typing import Any

import torch

from engine.benchmarks import count, table
from engine.benchmarks.products import products_flop, products_step, step_flop
from engine.benchmarks.steps import (
    SEED,
    WARM_UP_ROUNDS,
    Candidate,
    Peer,
    Step,
    Task,
    bfloat16_refusal,
    compiled_candidate,
    load_peer,
    our_step,
    peer_step,
    plain_step,
)
from engine.chapter.budget import Precision
from engine.chapter.variants import BLOCK
from engine.models.config import MAX_LAYERS
from engine.system import device
from engine.system.cores import usable_cores
from engine.system.errors import InvalidInput
from engine.system.numbers import check_whole, whole_number

TEXT_TOKENS = 65_536
BATCHES, ROUNDS = (1, 65_536), (1, 10_000)  # allowed


def bench(
    *,
    layers: Sequence[int],
    batch_size: int,
    threads: int | None,
    rounds: int,
    peer: Path | None,
    compile_plain: bool,
) -> dict[str, Any]:
    """Measure. Returns what ``bench train --json`` prints; ratios are the other's seconds over the row's.

    threads: all usable cores when None.
    peer: the folder of a nanoGPT checkout.
    Raises InvalidInput: when a number is out of range, or the folder holds no model that can be trained.
    """
    threads = usable_cores() if threads is None else threads
    check_whole("batch", batch_size, *BATCHES)
    check_whole("threads", threads, 1, usable_cores())
    check_whole("rounds", rounds, *ROUNDS)
    here = device.probe()
    refusal = bfloat16_refusal(here.kind)
    dtypes: tuple[Precision, ...] = ("float32",) if refusal else ("float32", "bfloat16")
    rows, gemm = list[dict[str, Any]](), list[dict[str, Any]]()
    drawn = torch.Generator().manual_seed(SEED)
    ids = torch.randint(BLOCK.config.vocab_size, (TEXT_TOKENS,), generator=drawn)
    with _threads(threads), redirect_stdout(sys.stderr):  # what a peer prints is not part of the document
        code = None if peer is None else load_peer(peer)
        for n_layer in layers:
            config = replace(BLOCK.config, n_layer=n_layer)
            task = Task(config=config, batch_size=batch_size, ids=ids, device=here.kind)
            candidates = _candidates(task, dtypes, rounds, code, compile_plain=compile_plain)
            products = [Candidate("gemm", dtype, products_step(task, dtype)) for dtype in dtypes]
            _say(n_layer, rounds, candidates)
            take_turns([*candidates, *products], rounds, task)
            rows += [_row(task, one, candidates, products) for one in candidates]
            gemm += [_gemm_row(task, one) for one in products]
    return {
        "bench": "train",
        "device": here.title,
        "threads": threads,
        "torch": torch.__version__,
        "date": date.today().isoformat(),
        "rows": rows,
        "gemm": gemm,
        "notes": [refusal] if refusal else [],
    }


def text(document: dict[str, Any]) -> str:
    """``bench`` for people."""
    where = f"{document['device']}, {count(document['threads'], 'thread')}, torch {document['torch']}"
    columns = {
        "implementation": "implementation",
        "n_layer": "layers",
        "dtype": "dtype",
        "step_ms": "step ms",
        "tokens_per_s": "tokens/s",
        "gemm_share": "gemm share",
        "ratio_to_plain": "ratio to plain",
        "ratio_to_peer": "ratio to peer",
    }
    rates = (
        f"products, {count(row['n_layer'], 'layer')}, {row['dtype']}: {row['gflop_per_s']:,.1f} GFLOP/s"
        for row in document["gemm"]
    )
    reasons = (row["reason"] for row in document["rows"] if row["reason"])
    title = f"training step, {where}, {document['date']}"
    return "\n".join([title, *table(columns, document["rows"]), *rates, *reasons, *document["notes"]])


def parse_layers(written: str) -> tuple[int, ...]:
    """Numbers of blocks from text such as ``1,12``.

    Raises InvalidInput: when one is no whole number from 1 to 1,000, is given twice, or none is given.
    """
    allowed = f"allowed: whole numbers from 1 to {MAX_LAYERS:,}, separated by commas, each once"
    parsed = [whole_number(part.strip(), 1, MAX_LAYERS) for part in written.split(",")]
    layers = tuple(n_layer for n_layer in parsed if n_layer is not None)
    if len(set(layers)) < len(parsed):
        raise InvalidInput(f"layers are {written!r}; {allowed}.")
    return layers


def take_turns(candidates: Sequence[Candidate], rounds: int, task: Task) -> None:
    """Warm up, then let all that can be measured take one turn a round, and keep their seconds a step."""
    able = [one for one in candidates if one.reason is None]
    for _ in range(WARM_UP_ROUNDS):
        for one in able:
            _turn_seconds(one.step, task)
    for number in range(rounds):
        for one in turn_order(able, number):
            one.seconds.append(_turn_seconds(one.step, task))


def turn_order(candidates: Sequence[Candidate], number: int) -> list[Candidate]:
    """All of them, beginning at another one each round, backwards in every other round."""
    start = number % len(candidates)
    order = [*candidates[start:], *candidates[:start]]
    return order[::-1] if number % 2 else order


def _turn_seconds(step: Step, task: Task) -> float:
    _synchronise(task.device)
    began = time.perf_counter()
    for _ in range(task.steps_a_turn):
        step()
    _synchronise(task.device)
    return (time.perf_counter() - began) / task.steps_a_turn


def _synchronise(kind: str) -> None:
    """Wait until an accelerator has done all it was given."""
    if kind != "cpu":
        getattr(torch, kind).synchronize()


def _candidates(
    task: Task, dtypes: Sequence[Precision], rounds: int, peer: Peer | None, *, compile_plain: bool
) -> list[Candidate]:
    found = [Candidate("ours", dtype, our_step(task, dtype, rounds)) for dtype in dtypes]
    found.append(Candidate("plain", "float32", plain_step(task)))
    if compile_plain:
        found.append(compiled_candidate(task))
    if peer is not None:
        found.append(Candidate("nanogpt", "float32", peer_step(task, peer)))
    return found


# Rows and sentences.


def _row(
    task: Task, one: Candidate, candidates: Sequence[Candidate], products: Sequence[Candidate]
) -> dict[str, Any]:
    named = {other.implementation: other for other in candidates if other.dtype == "float32"}
    gemm = next(other for other in products if other.dtype == one.dtype)
    share = gemm.times_slower_than(one)
    seconds = median(one.seconds) if one.seconds else None
    return {
        "implementation": one.implementation,
        "n_layer": task.config.n_layer,
        "dtype": one.dtype,
        "step_ms": None if seconds is None else round(1000 * seconds, 3),
        "tokens_per_s": None if seconds is None else round(task.tokens / seconds),
        "gemm_share": None if share is None else round(share * step_flop(task) / products_flop(task), 4),
        "ratio_to_plain": _ratio(named["plain"], one),
        "ratio_to_peer": _ratio(named["nanogpt"], one) if "nanogpt" in named else None,
        "reason": one.reason,
    }


def _ratio(other: Candidate, one: Candidate) -> float | None:
    ratio = other.times_slower_than(one)
    return None if ratio is None else round(ratio, 4)


def _gemm_row(task: Task, one: Candidate) -> dict[str, Any]:
    rate = products_flop(task) / median(one.seconds) / 1e9
    return {"n_layer": task.config.n_layer, "dtype": one.dtype, "gflop_per_s": round(rate, 2)}


def _say(n_layer: int, rounds: int, candidates: Sequence[Candidate]) -> None:
    names = ", ".join(f"{one.implementation} {one.dtype}" for one in candidates if one.reason is None)
    print(f"{count(n_layer, 'layer')}: {count(rounds, 'round')} of {names}", file=sys.stderr, flush=True)


@contextmanager
def _threads(number: int) -> Iterator[None]:
    """torch on so many threads, and then on as many as before."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)
