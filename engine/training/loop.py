"""Training as a generator of records: what is watched is what is yielded.

The same configuration, budget, seed and task give the same numbers, and a run that was stopped and
resumed gives the same bits as one that was not (on a CPU with the same number of threads).
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.chapter.budget import Budget
from engine.chapter.definitions import METRICS
from engine.models.config import ModelConfig
from engine.models.transformer import Transformer
from engine.training import checkpoint
from engine.training.evaluation import Stopped, attention_statistics
from engine.training.tasks import Task, finite

RECORD_EVERY = 10  # steps; also how often the device is asked for its losses
DIVERGED_NATS = 100.0  # a uniform guess over a million words costs 14; nothing returns from here
PROJECTIONS = ("W_Q.weight", "W_K.weight", "W_V.weight")

Record = dict[str, Any]
Writer = Callable[[Mapping[str, Tensor], Mapping[str, Any]], None]


@dataclass
class Result:
    """How training ended: a label, the step it ended at, and the final figures by metric."""

    state: Literal["done", "diverged", "stopped"]
    step: int
    reason: str = ""
    seconds: float = 0.0
    measured: dict[str, float | None] = field(default_factory=dict)


@dataclass(kw_only=True)
class Training:
    """One run's training: iterate over ``records()``, then read ``result``.

    task: what is trained on and what is measured, on the same device.
    save: called with tensors and header at every checkpoint; see ``checkpoint.py``.
    keep: called with the weights alone at every step that the budget keeps.
    stop: asked before every step and evaluation batch; when true, training saves and ends.
    """

    config: ModelConfig
    budget: Budget
    seed: int
    task: Task
    device: str = "cpu"
    save: Writer = lambda tensors, header: None
    keep: Writer = lambda tensors, header: None
    stop: Callable[[], object] = lambda: None
    result: Result | None = None

    def __post_init__(self) -> None:
        torch.manual_seed(self.seed)  # weights are drawn on the CPU: the same on every device
        self.model = Transformer(self.config).to(self.device)
        # A scalar for each of many small tensors costs more than the arithmetic: fused where torch has it.
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), lr=self.budget.learning_rate, fused=self.device in ("cpu", "cuda")
        )
        self.batches = torch.Generator().manual_seed(self.seed)
        self.step = 0
        self._seconds_before, self._began = 0.0, time.monotonic()
        self.evaluated: Record = {}  # at the newest evaluation of this process

    def records(self) -> Iterator[Record]:
        """Train from the current step to the budget's last, yielding what is to be written down.

        Every record has step, loss_nats, grad_norm, tokens_per_s and seconds; those at evaluations also
        validation_loss_nats and what the task measures. A value that is no finite number is None.
        """
        self._began = time.monotonic()
        try:
            if self.step == 0:
                self._keep()
                yield self._record(self._evaluate())
            while self.step < self.budget.steps:
                record = self._stretch()
                yield record
                if self.result is not None:
                    return
                if self.step % self.budget.checkpoint_every == 0 and self.step < self.budget.steps:
                    self._save()
            measured = self.task.final(self.model, self.evaluated or self._evaluate(), self.stop)
        except Stopped:
            self._save()
            self.result = Result("stopped", self.step, f"stopped at step {self.step:,}")
        else:
            self._save()
            self.result, decisive = Result("done", self.step, measured=measured), self.task.figures[0]
            if measured[decisive] is None:  # the last step went where no evaluation had been
                self.result.state = "diverged"
                self.result.reason = f"diverged at step {self.step:,}: {METRICS[decisive]} is no number"
        self.result.seconds = self.seconds

    @property
    def seconds(self) -> float:
        """Time spent in ``records()`` by a clock that nobody sets, that of earlier attempts included."""
        return self._seconds_before + time.monotonic() - self._began

    def restore(self, tensors: Mapping[str, Tensor], header: Mapping[str, Any]) -> None:
        """Go on where a checkpoint was made.

        Raises ValueError: when its weights do not fit.
        """
        checkpoint.restore_model(self.model, tensors)
        parameters = dict(self.model.named_parameters())
        for key, tensor in tensors.items():
            kind, _, rest = key.partition(".")
            if kind == "optimizer":
                state, _, name = rest.partition(".")
                parameter = parameters[name]
                home = self.device if state != "step" or self.device == "cuda" else "cpu"
                self.optimizer.state[parameter][state] = tensor.to(home)
        self.batches.set_state(tensors["generator.batches"])
        torch.set_rng_state(tensors["generator.torch"])
        if self.device != "cpu" and "generator.device" in tensors:
            getattr(torch, self.device).set_rng_state(tensors["generator.device"])
        self.step, self._seconds_before = int(header["step"]), float(header["seconds"])

    def _stretch(self) -> Record:
        """Train to the next step that is written down, and describe it."""
        began = time.monotonic()
        first, losses = self.step, list[Tensor]()
        due = min(self.budget.steps, (self.step // RECORD_EVERY + 1) * RECORD_EVERY)
        while self.step < due:
            if self.stop():
                raise Stopped
            losses.append(self.advance())
            self._keep()
        values = torch.stack(losses).tolist()  # the one wait for the device
        elapsed = time.monotonic() - began
        tokens = len(values) * self.budget.batch_size * self.budget.context_length
        record: Record = {
            "loss_nats": finite(sum(values) / len(values)),
            **self._gradient_norms(),
            "tokens_per_s": round(tokens / max(elapsed, 1e-9)),
        }
        for offset, value in enumerate(values, start=1):
            if not value <= DIVERGED_NATS:  # true for NaN as well
                return self._diverge(first + offset, value, record)
        return self._record({**record, **(self._evaluate() if self._evaluation_is_due() else {})})

    def _gradient_norms(self) -> Record:
        """Of the newest step: over all parameters, and over the query projections where there are some."""
        gradients = {name: p.grad for name, p in self.model.named_parameters() if p.grad is not None}
        chosen = {"grad_norm": list(gradients.values())}
        if queries := [grad for name, grad in gradients.items() if name.endswith("W_Q.weight")]:
            chosen["grad_norm_W_Q"] = queries
        norms = {name: torch.nn.utils.get_total_norm(group) for name, group in chosen.items()}
        found: Record = {name: finite(norm.item()) for name, norm in norms.items()}
        if self.config.n_layer > 1:
            found["grad_norm_blocks"] = block_gradient_norms(self.model)
        return found

    def _diverge(self, step: int, loss: float, record: Record) -> Record:
        value = f"{loss:.3g} nats" if math.isfinite(loss) else "NaN" if math.isnan(loss) else "infinite"
        self.result = Result("diverged", step, f"diverged at step {step:,}: loss is {value}", self.seconds)
        self.result.measured = dict.fromkeys(self.task.figures)
        return self._record(record) | {"step": step}

    def _evaluation_is_due(self) -> bool:
        """At the budget's interval, at the end, and early: at 10, 20, 40 steps, where curves fall fastest.

        A budget may do without the early ones.
        """
        early, every = self.step // RECORD_EVERY, self.budget.evaluate_every
        return (
            self.step % every == 0
            or self.step == self.budget.steps
            or (
                self.budget.evaluate_early
                and self.step < every
                and self.step % RECORD_EVERY == 0
                and early & (early - 1) == 0
            )
        )

    def _evaluate(self) -> Record:
        self.evaluated = self.task.evaluate(self.model, self.stop)
        attention = attention_statistics(self.model, self.task.probe)
        if attention is not None:
            self.evaluated |= {name: finite(value) for name, value in vars(attention).items()}
        return self.evaluated

    def advance(self) -> Tensor:
        """One step. Returns its loss, still on the device; the gradients stay until the next step."""
        if self.step < self.budget.warmup_steps:
            for group in self.optimizer.param_groups:
                group["lr"] = (self.step + 1) / self.budget.warmup_steps * self.budget.learning_rate
        self.optimizer.zero_grad(set_to_none=True)
        loss = self._loss(self.task.batch(self.batches, self.budget.batch_size))
        loss.backward()
        self.optimizer.step()
        self.step += 1
        return loss.detach()

    def _loss(self, ids: Tensor) -> Tensor:
        """Mean cross-entropy in nats. (Apart, so that no name keeps the logits alive.)"""
        with torch.autocast(self.device, torch.bfloat16, enabled=self.budget.precision == "bfloat16"):
            logits = self.model(ids[:, :-1]).flatten(0, 1)
        return F.cross_entropy(logits.float(), ids[:, 1:].flatten())

    def _record(self, values: Record) -> Record:
        return {"step": self.step, **values, "seconds": round(self.seconds, 3)}

    def _keep(self) -> None:
        """Hand out the weights of this step, when it is one that the budget keeps: also the last."""
        every = self.budget.keep_every
        if every and (self.step % every == 0 or self.step == self.budget.steps):
            self.keep(
                checkpoint.model_tensors(self.model), {"step": self.step, "config": self.config.to_dict()}
            )

    def _save(self) -> None:
        tensors = checkpoint.model_tensors(self.model)
        for name, parameter in self.model.named_parameters():
            for key, value in self.optimizer.state[parameter].items():
                tensors[f"optimizer.{key}.{name}"] = value
        tensors["generator.batches"] = self.batches.get_state()
        tensors["generator.torch"] = torch.get_rng_state()
        if self.device != "cpu":  # what dropout draws from there
            tensors["generator.device"] = getattr(torch, self.device).get_rng_state()
        self.save(tensors, {"step": self.step, "seconds": self.seconds, "config": self.config.to_dict()})


def block_gradient_norms(model: Transformer) -> list[float | None]:
    """Norm of the newest gradient of each block's W_Q, W_K and W_V together, first block first.

    Empty where the blocks project nothing. Source: chapter, "norm placement"; which of a block's parameters
    it means is not printed, and these come near to its figures.
    """
    norms = []
    for block in model.blocks:
        grads = [p.grad for name, p in block.named_parameters() if name.endswith(PROJECTIONS)]
        if held := [grad for grad in grads if grad is not None]:
            norms.append(torch.nn.utils.get_total_norm(held))
    return [finite(norm) for norm in torch.stack(norms).tolist()] if norms else []
