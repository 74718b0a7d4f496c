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

import importlib.util
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path
from statistics import median
from types import ModuleType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from engine import device, ledger
from engine.benchmarks import check_whole, count, table
from engine.budget import Budget, Precision
from engine.models.config import MAX_LAYERS, ModelConfig
from engine.models.linear import by_torch_alone
from engine.models.transformer import Transformer
from engine.runs.local import usable_cores
from engine.tasks import TextTask
from engine.training import Training
from engine.variants import variant

CONTEXT_LENGTH = 128
TEXT_TOKENS = 65_536
SEED = 0
LEARNING_RATE = 1e-3  # torch's default, for every candidate
WARM_UP_ROUNDS = 2
STEPS_A_TURN = 10  # on an accelerator: it works through a queue that every look at the clock drains
BATCHES, ROUNDS = (1, 65_536), (1, 10_000)  # allowed
CPU_BFLOAT16 = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")  # of torch.cpu; names may go

Step = Callable[[], object]


@dataclass(frozen=True, kw_only=True)
class Task:
    """What every candidate trains: a model's sizes, windows a batch, the text, and where."""

    config: ModelConfig
    batch_size: int
    ids: Tensor
    device: str

    @property
    def tokens(self) -> int:
        """Trained on in one step."""
        return self.batch_size * CONTEXT_LENGTH

    @property
    def steps_a_turn(self) -> int:
        return 1 if self.device == "cpu" else STEPS_A_TURN


@dataclass
class Candidate:
    """One that takes turns. seconds: of a step, one value a round; reason: why it takes none."""

    implementation: str
    dtype: str
    step: Step
    seconds: list[float] = field(default_factory=list)
    reason: str | None = None

    def times_slower_than(self, other: "Candidate | None") -> float | None:
        """Median over rounds of this one's seconds over the other's; None where either has none."""
        if other is None or not self.seconds or not other.seconds:
            return None
        return median(mine / its for mine, its in zip(self.seconds, other.seconds, strict=True))


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
    Raises ValueError: when a number is out of range, or the folder holds no model that can be trained.
    """
    threads = usable_cores() if threads is None else threads
    check_whole("batch", batch_size, *BATCHES)
    check_whole("threads", threads, 1, usable_cores())
    check_whole("rounds", rounds, *ROUNDS)
    here = device.probe()
    refusal = bfloat16_refusal(here.kind)
    dtypes: tuple[Precision, ...] = ("float32",) if refusal else ("float32", "bfloat16")
    rows, gemm = list[dict[str, Any]](), list[dict[str, Any]]()
    block = variant("block").config
    drawn = torch.Generator().manual_seed(SEED)
    ids = torch.randint(block.vocab_size, (TEXT_TOKENS,), generator=drawn)
    with _threads(threads), redirect_stdout(sys.stderr):  # what a peer prints is not part of the document
        code = None if peer is None else load_peer(peer)
        for n_layer in layers:
            config = replace(block, n_layer=n_layer)
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

    Raises ValueError: when one is no whole number from 1 to 1,000, is given twice, or none is given.
    """
    allowed = f"allowed: whole numbers from 1 to {MAX_LAYERS:,}, separated by commas, each once"
    parts = [part.strip() for part in written.split(",")]
    if not all(part.isascii() and part.isdigit() and len(part) <= 4 for part in parts):
        raise ValueError(f"layers are {written!r}; {allowed}.")
    layers = tuple(map(int, parts))
    if len(set(layers)) < len(layers) or not all(1 <= n_layer <= MAX_LAYERS for n_layer in layers):
        raise ValueError(f"layers are {written!r}; {allowed}.")
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


# The candidates.


def _candidates(
    task: Task, dtypes: Sequence[Precision], rounds: int, peer: "Peer | None", *, compile_plain: bool
) -> list[Candidate]:
    found = [Candidate("ours", dtype, our_step(task, dtype, rounds)) for dtype in dtypes]
    found.append(Candidate("plain", "float32", plain_step(task)))
    if compile_plain:
        found.append(_compiled(task))
    if peer is not None:
        found.append(Candidate("nanogpt", "float32", peer_step(task, peer)))
    return found


def our_step(task: Task, dtype: Precision, rounds: int) -> Step:
    """The engine's."""
    training = Training(
        config=task.config,
        budget=Budget(
            steps=(WARM_UP_ROUNDS + rounds) * task.steps_a_turn,
            batch_size=task.batch_size,
            context_length=CONTEXT_LENGTH,
            learning_rate=LEARNING_RATE,
            precision=dtype,
        ),
        seed=SEED,
        task=TextTask(task.ids, task.ids[: 10 * CONTEXT_LENGTH], CONTEXT_LENGTH, device=task.device),
        device=task.device,
    )
    return training.advance


def bfloat16_refusal(kind: str) -> str | None:
    """Why bfloat16 is not offered on a device of this kind, or None where it is.

    Without instructions for it torch converts to float32 and back, which is slower than float32.
    """
    asked = [getattr(torch.cpu, name) for name in CPU_BFLOAT16 if hasattr(torch.cpu, name)]
    if kind == "cpu" and not any(ask() for ask in asked):
        return "bfloat16 is not offered: this CPU has neither avx512_bf16 nor AMX."
    if kind == "cuda" and not torch.cuda.is_bf16_supported(including_emulation=False):
        return "bfloat16 is not offered: this card has no instructions for it."
    if kind not in ("cpu", "cuda"):
        return f"bfloat16 is not offered: of {kind} it is not known whether it gains."
    return None


def plain_step(task: Task, *, compiled: bool = False) -> Step:
    """What a textbook writes, with torch's defaults throughout: its own linear layers, too."""
    torch.manual_seed(SEED)
    model: nn.Module = Transformer(task.config).to(task.device)
    by_torch_alone(model)
    if compiled:
        model = torch.compile(model)  # type: ignore[assignment]
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE)
    batch = slices(task)

    def step() -> None:
        x, y = batch()
        optimizer.zero_grad()
        logits = model(x)
        loss = F.cross_entropy(logits.view(-1, logits.shape[-1]), y.view(-1))
        loss.backward()
        optimizer.step()

    return step


def _compiled(task: Task) -> Candidate:
    """The plain loop, compiled, if this machine can; its first step is what compiles."""
    torch.compiler.reset()  # else a model of another depth is the same code once more, which has a limit
    candidate = Candidate("compiled", "float32", lambda: None)
    try:
        candidate.step = plain_step(task, compiled=True)
        candidate.step()
    except Exception as error:  # a missing compiler, an unsupported Python: each raises a type of its own
        candidate.reason = (
            f"compiled with {count(task.config.n_layer, 'layer')} does not run: {_first_line(error)}."
        )
    return candidate


def slices(task: Task) -> Callable[[], tuple[Tensor, Tensor]]:
    """Batches as nanoGPT and textbooks cut them: slices of a text in main memory, stacked, then sent over.

    shape: -> (B, T), (B, T), the second one token ahead
    """
    drawn = torch.Generator().manual_seed(SEED)

    def batch() -> tuple[Tensor, Tensor]:
        starts = torch.randint(len(task.ids) - CONTEXT_LENGTH, (task.batch_size,), generator=drawn)
        x = torch.stack([task.ids[i : i + CONTEXT_LENGTH] for i in starts])
        y = torch.stack([task.ids[i + 1 : i + 1 + CONTEXT_LENGTH] for i in starts])
        if task.device == "cuda":
            x, y = x.pin_memory(), y.pin_memory()
        return x.to(task.device, non_blocking=True), y.to(task.device, non_blocking=True)

    return batch


@dataclass(frozen=True)
class Peer:
    """A nanoGPT: the file it came from, its two classes."""

    path: Path
    model: Callable[[Any], nn.Module]
    config: Callable[..., Any]


def load_peer(directory: Path) -> Peer:
    """The classes of a checkout's model.py, imported by its path, so that no name of ours is hidden.

    Raises ValueError: when there is no such folder or file, or it does not define them.
    """
    path, wanted = directory / "model.py", "allowed: a checkout of nanoGPT, with a model.py"
    if not directory.is_dir():
        raise ValueError(f"peer is {str(directory)!r}, which is no folder; {wanted}.")
    if not path.is_file():
        raise ValueError(f"peer is {str(directory)!r}, which has no model.py; {wanted}.")
    try:
        module = _module(path)
    except Exception as error:  # it is other people's code
        raise ValueError(f"{path} cannot be imported: {_first_line(error)}.") from error
    if missing := [name for name in ("GPT", "GPTConfig") if not callable(getattr(module, name, None))]:
        raise ValueError(f"{path} defines no {' and no '.join(missing)}; {wanted}, as nanoGPT's is.")
    return Peer(path, module.GPT, module.GPTConfig)


def _module(path: Path) -> ModuleType:
    name = "attention_lab_peer"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up there
    spec.loader.exec_module(module)
    return module


def peer_step(task: Task, peer: Peer) -> Step:
    """nanoGPT's own: its model, its optimiser, gradients clipped at 1, as in its train.py. Tried once.

    Raises ValueError: when it does not take these sizes, or its step fails.
    """
    config = task.config
    sizes = {
        "block_size": CONTEXT_LENGTH,
        "vocab_size": config.vocab_size,
        "n_layer": config.n_layer,
        "n_head": config.n_head,
        "n_embd": config.d_model,
        "dropout": 0.0,
        "bias": True,
    }
    torch.manual_seed(SEED)
    try:
        model = peer.model(peer.config(**sizes)).to(task.device)
        step = _peer_loop(task, model, _peer_optimizer(task, model))
        step()
    except Exception as error:  # it is other people's code
        given = ", ".join(f"{name}={value}" for name, value in sizes.items())
        raise ValueError(f"{peer.path} does not train with {given}: {_first_line(error)}.") from error
    return step


def _peer_optimizer(task: Task, model: nn.Module) -> torch.optim.Optimizer:
    """As its train.py asks the model for it; of a model that makes none, AdamW with the same betas."""
    betas = (0.9, 0.95)
    make: Callable[..., torch.optim.Optimizer] | None = getattr(model, "configure_optimizers", None)
    if make is not None:
        return make(0.1, LEARNING_RATE, betas, task.device)
    return torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, betas=betas)


def _peer_loop(task: Task, model: nn.Module, optimizer: torch.optim.Optimizer) -> Step:
    batch = slices(task)

    def step() -> None:
        x, y = batch()
        _, loss = model(x, y)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


# The machine's rate for the products of a step.


def linear_layers(config: ModelConfig) -> list[tuple[int, int]]:
    """Input and output width of every linear layer of a model of whole blocks, in order."""
    width, joined = config.d_model, config.n_head * config.head_width
    block = [(width, joined)] * 3 + [(joined, width), (width, config.d_ff), (config.d_ff, width)]
    return block * config.n_layer + [(width, config.vocab_size)]


def products_step(task: Task, dtype: str) -> Step:
    """Every product of a step and nothing else, into tensors that lie ready.

    Layers of one size share theirs, so a small machine's cache serves them better than it does a step.
    """
    layers = linear_layers(task.config)
    ready = {sizes: _operands(task, *sizes, getattr(torch, dtype)) for sizes in set(layers)}

    def step() -> None:
        for sizes in layers:
            x, weight, y, x_grad, weight_grad, y_grad = ready[sizes]
            torch.mm(x, weight.t(), out=y)
            torch.mm(y_grad, weight, out=x_grad)
            torch.mm(y_grad.t(), x, out=weight_grad)

    return step


def _operands(task: Task, n_in: int, n_out: int, dtype: torch.dtype) -> tuple[Tensor, ...]:
    """x, weight, y and their gradients. shape: (N, in), (out, in), (N, out), and these once more"""
    shapes = ((task.tokens, n_in), (n_out, n_in), (task.tokens, n_out)) * 2
    drawn = torch.Generator().manual_seed(SEED)
    return tuple(torch.randn(shape, generator=drawn).to(task.device, dtype) for shape in shapes)


def step_flop(task: Task) -> int:
    """Floating-point operations of a step; see the top."""
    return 3 * 2 * ledger.multiplications(task.config, CONTEXT_LENGTH) * task.tokens


def products_flop(task: Task) -> int:
    """The same of its linear layers alone."""
    return 3 * 2 * sum(n_in * n_out for n_in, n_out in linear_layers(task.config)) * task.tokens


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


def _first_line(error: Exception) -> str:
    words = (str(error).strip().splitlines() or [""])[0].rstrip(".:")
    return f"{type(error).__name__}: {words}" if words else type(error).__name__


@contextmanager
def _threads(number: int) -> Iterator[None]:
    """torch on so many threads, and then on as many as before."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)
