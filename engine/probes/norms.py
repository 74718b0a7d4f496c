"""What gradient each of twelve blocks gets before the first step, pre-norm and post-norm; nothing is trained.

Source: chapter, "norm placement"; Xiong et al. 2020.
"""

import torch
from torch import Tensor, nn

from engine.chapter.budget import Budget
from engine.chapter.experiments import MAX_SEED, NORM_PLACEMENT
from engine.chapter.measurements import PLACEMENTS
from engine.data import corpus
from engine.data.corpus import Corpus
from engine.probes.models import for_the_reader
from engine.probes.results.norms import Gradients, Norms
from engine.system.numbers import check_whole
from engine.training.loop import PROJECTIONS, Training
from engine.training.tasks import TextTask

BATCH, CONTEXT = 64, 128
MAX_BATCH, MAX_CONTEXT = 128, 256
# Whose gradient: the ends of the names of a block's parameters.
MEASURES = {"qkv": PROJECTIONS, "W_O": ("W_O.weight",), "block": ("",)}


def gradients(
    text: Corpus, placement: str, seed: int, batch: int = BATCH, context: int = CONTEXT
) -> Gradients:
    """The gradient norms of the first batch's loss in every block. placement: one of ``PLACEMENTS``.

    Raises ValueError: when the text is too short.
    """
    training = Training(
        config=NORM_PLACEMENT.variant(placement).config,
        budget=Budget(steps=1, batch_size=batch, context_length=context),
        seed=seed,
        task=TextTask(
            torch.from_numpy(text.train_ids.astype("int64")),
            torch.from_numpy(text.held_out_ids.astype("int64")),
            context,
        ),
    )
    loss = training.advance().item()  # its gradients are those from before the step
    blocks = training.model.blocks
    found = {name: [norm(block, ends) for block in blocks] for name, ends in MEASURES.items()}
    return Gradients(placement=placement, seed=seed, loss_nats=loss, **found)


def norm(block: nn.Module, ends: tuple[str, ...]) -> float:
    """Norm of the newest gradient of those parameters of a block whose names end so."""
    chosen: list[Tensor] = [
        parameter.grad
        for name, parameter in block.named_parameters()
        if name.endswith(ends) and parameter.grad is not None
    ]
    return torch.nn.utils.get_total_norm(chosen).item()


def measured(measurement_id: str, seed: int) -> list[Gradients]:
    """The rows of one seed on the chapter's text, on one thread, for the ``Measurement`` of that id.

    Raises CorpusError: when that text cannot be had.
    """
    del measurement_id  # there is one
    torch.set_num_threads(1)
    text = corpus.load(corpus.TINYSHAKESPEARE)
    return [gradients(text, placement, seed) for placement in PLACEMENTS]


def norms(corpus_id: str | None = None, seed: int = 0, batch: int = BATCH, context: int = CONTEXT) -> Norms:
    """Both placements at one seed. corpus_id: by default the chapter's text, if it is there, else Python's.

    Raises InvalidInput: when a number is out of range, or the text cannot be had or is too short.
    """
    for name, value, low, high in (
        ("seed", seed, 0, MAX_SEED),
        ("batch", batch, 1, MAX_BATCH),
        ("context", context, 1, MAX_CONTEXT),
    ):
        check_whole(name, value, low, high)
    with for_the_reader():
        text = corpus.load(corpus_id or corpus.present_corpus_id()[0], context_length=context)
    return Norms(
        rows=[gradients(text, placement, seed, batch, context) for placement in PLACEMENTS],
        text=text.title,
        corpus=text.id,
        of_the_chapters_text=text.sha256 == corpus.TINYSHAKESPEARE_SHA256,
        batch=batch,
        context=context,
    )
