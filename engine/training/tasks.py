"""What a model is trained on, and what is measured of it: a text, or sentences of a language.

Shapes: B windows or sentences, T context_length.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from engine.data.languages import shelf
from engine.data.languages.induction import Repeats
from engine.data.languages.winograd import ANSWER, DECISION, FIRST, SECOND, Winograd
from engine.system.errors import InvalidInput
from engine.training.evaluation import mean_loss, perplexity, predictions, windows

PROBE_WINDOWS = 16  # held-out windows, spread evenly, on which attention is looked at

Figures = dict[str, float | None]
Stop = Callable[[], object]


class Task(ABC):
    """What ``Training`` is about.

    figures: the final figures that a model that diverged has not got; the first decides whether it did.
    probe: the windows on which attention is looked at. shape: (B, T)
    """

    figures: tuple[str, ...]
    probe: Tensor

    @abstractmethod
    def batch(self, generator: torch.Generator, size: int) -> Tensor:
        """Windows drawn at random, each with the token that follows. shape: -> (B, T + 1)"""

    @abstractmethod
    def evaluate(self, model: nn.Module, stop: Stop) -> Figures:
        """What is recorded at an evaluation; a value that is no finite number is None.

        Raises Stopped: when ``stop()`` is true between two batches.
        """

    def final(self, model: nn.Module, evaluated: Mapping[str, float | None], stop: Stop) -> Figures:
        """The figures that a run ends with. evaluated: what the last evaluation recorded.

        Raises Stopped: when ``stop()`` is true between two batches.
        """
        del model, stop
        return dict(evaluated)


class TextTask(Task):
    """The next token of a text.

    train_ids, held_out_ids: token ids, shape (N,).
    also_at: other context lengths at which the final model is evaluated.

    Raises InvalidInput: when either text is shorter than a window that it is read in.
    """

    figures = ("validation_perplexity", "train_perplexity")

    def __init__(
        self,
        train_ids: Tensor,
        held_out_ids: Tensor,
        context_length: int,
        also_at: Sequence[int] = (),
        device: str = "cpu",
    ) -> None:
        held_out = held_out_ids.to(device)
        self.context_length, self.device = context_length, device
        self.train_ids = train_ids.to(device)
        self.held_out = windows(held_out, context_length)
        self.also = {length: windows(held_out, length) for length in also_at}  # now: it may raise
        self.probe = _spread(self.held_out)
        self.places = len(self.train_ids) - context_length
        if self.places < 1:
            raise InvalidInput(
                f"{len(self.train_ids)} training tokens; a window of {context_length} needs "
                f"{context_length + 1}."
            )
        self.offsets = torch.arange(context_length + 1, device=device)

    def batch(self, generator: torch.Generator, size: int) -> Tensor:
        starts = torch.randint(self.places, (size, 1), generator=generator)
        return self.train_ids[starts.to(self.device) + self.offsets]

    def evaluate(self, model: nn.Module, stop: Stop) -> Figures:
        """Loss and perplexity over all windows of the held-out text."""
        loss = mean_loss(model, self.held_out, stop)
        return {"validation_loss_nats": finite(loss), "validation_perplexity": perplexity(loss)}

    def final(self, model: nn.Module, evaluated: Mapping[str, float | None], stop: Stop) -> Figures:
        """Perplexity of all held-out windows, and of as many training windows, spread evenly."""
        train = windows(self.train_ids, self.context_length)
        chosen = torch.linspace(0, len(train) - 1, min(len(train), len(self.held_out))).long()
        train_loss = mean_loss(model, train[chosen.to(self.device)], stop)
        figures = {
            **{name: value for name, value in evaluated.items() if name != "validation_loss_nats"},
            "train_perplexity": perplexity(train_loss),
        }
        for length, longer in self.also.items():
            figures[f"perplexity_{length}"] = (
                evaluated["validation_perplexity"]
                if length == self.context_length
                else perplexity(mean_loss(model, longer, stop))
            )
        return figures


class RowsTask(Task):
    """The next token of sentences, all of one length, one sentence a window.

    train, held_out: token ids, shape (N, T + 1).
    """

    def __init__(self, train: NDArray[np.int64], held_out: NDArray[np.int64], device: str = "cpu") -> None:
        self.device = device
        self.train = torch.from_numpy(train).to(device)
        self.held_out = torch.from_numpy(held_out).to(device)
        self.probe = _spread(self.held_out)

    def batch(self, generator: torch.Generator, size: int) -> Tensor:
        return self.train[torch.randint(len(self.train), (size,), generator=generator).to(self.device)]


class WinogradTask(RowsTask):
    """Sentences of a Winograd language; pairs of nouns are held out, and one position is scored.

    Source: chapter, "circuits".
    """

    figures = ("accuracy", "wrong_noun", "other", "train_accuracy")

    def __init__(self, language: Winograd, seed: int, device: str = "cpu") -> None:
        """seed: of the split."""
        split = language.split(seed)
        train, held_out = (
            language.rows(language.sentences(pairs)) for pairs in (split.train, split.held_out)
        )
        super().__init__(train, held_out, device)

    def evaluate(self, model: nn.Module, stop: Stop) -> Figures:
        """Of the held-out pairs: the shares of right answers, of the pair's other noun, of anything else."""
        losses, likeliest = predictions(model, self.held_out, stop)
        loss, shares = losses.mean().item(), answers(self.held_out, likeliest)
        known = shares if math.isfinite(loss) else dict.fromkeys(shares)
        return {"validation_loss_nats": finite(loss), **known}

    def final(self, model: nn.Module, evaluated: Mapping[str, float | None], stop: Stop) -> Figures:
        """The same, and the share of right answers on the sentences that were trained on."""
        losses, likeliest = predictions(model, self.train, stop)
        right = answers(self.train, likeliest)["accuracy"]
        return {**evaluated, "train_accuracy": right if losses.isfinite().all() else None}


def answers(rows: Tensor, likeliest: Tensor) -> dict[str, float]:
    """What a model names at the deciding position, as shares of the sentences.

    rows: sentences, shape (B, T + 1). likeliest: its choice at every position, shape (B, T).
    """
    named, right = likeliest[:, DECISION], rows[:, ANSWER]
    wrong = torch.where(rows[:, FIRST] == right, rows[:, SECOND], rows[:, FIRST])
    return {
        "accuracy": _share(named == right),
        "wrong_noun": _share(named == wrong),
        "other": _share((named != right) & (named != wrong)),
    }


def _share(held: Tensor) -> float:
    """Of a mask of any shape, the share that holds. Counted: some devices have no float64 for a mean."""
    return int(held.sum()) / held.numel()


class InductionTask(RowsTask):
    """Repeated random tokens: whether a model continues what it saw once.

    Source: Olsson et al. 2022; theirs is the score, loss late minus loss early.
    """

    figures = ("accuracy", "early_accuracy", "late_loss_nats", "early_loss_nats", "in_context_nats")

    def __init__(self, language: Repeats, seed: int, device: str = "cpu") -> None:
        """seed: of the sequences."""
        self.early, self.late = language.known_nothing, language.known_all
        super().__init__(language.train_rows(seed), language.unseen_rows(seed), device)

    def evaluate(self, model: nn.Module, stop: Stop) -> Figures:
        """Of unseen sequences: where the second half is due, and where nothing can be known yet (early)."""
        losses, likeliest = predictions(model, self.held_out, stop)
        right = likeliest == self.held_out[:, 1:]
        late, early = losses[:, self.late].mean().item(), losses[:, self.early].mean().item()
        found = {
            "validation_loss_nats": losses.mean().item(),
            "accuracy": _share(right[:, self.late]),
            "early_accuracy": _share(right[:, self.early]),
            "late_loss_nats": late,
            "early_loss_nats": early,
            "in_context_nats": late - early,
        }
        return {name: value if losses.isfinite().all() else None for name, value in found.items()}


def task_of_language(language: shelf.Language, seed: int, device: str = "cpu") -> Task:
    """The task of a language's sentences. seed: of their split, or of their drawing."""
    if isinstance(language, Winograd):
        return WinogradTask(language, seed, device)
    return InductionTask(language, seed, device)


def _spread(held_out: Tensor) -> Tensor:
    """Some windows, spread evenly, without the tokens that follow them. shape: (B, T + 1) -> (B, T)"""
    return held_out[:: max(1, len(held_out) // PROBE_WINDOWS)][:PROBE_WINDOWS, :-1]


def finite(value: float) -> float | None:
    """The value, or None when it is NaN or infinite: what JSON can say."""
    return value if math.isfinite(value) else None
