"""What gradient each of twelve blocks gets before the first step, pre-norm and post-norm; nothing is trained.

``python -m engine.probes.norms --json`` prints one JSON document: pages measure in that process, so that
theirs never loads torch. It reads the chapter's text, or Python's reference text where that is not there.
Source: chapter, "norm placement"; Xiong et al. 2020.
"""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from engine.chapter.budget import Budget
from engine.chapter.experiments import MAX_SEED, NORM_PLACEMENT, parse_seeds
from engine.chapter.measurements import PLACEMENTS
from engine.data import corpus
from engine.data.corpus import Corpus
from engine.training.loop import PROJECTIONS, Training
from engine.training.tasks import TextTask

BATCH, CONTEXT = 64, 128
MAX_BATCH, MAX_CONTEXT, MAX_SEEDS = 128, 256, 5
# Whose gradient: the ends of the names of a block's parameters.
MEASURES = {"qkv": PROJECTIONS, "W_O": ("W_O.weight",), "block": ("",)}


def gradients(
    text: Corpus, placement: str, seed: int, batch: int = BATCH, context: int = CONTEXT
) -> dict[str, Any]:
    """The gradient norms of the first batch's loss, in every block, first block first.

    placement: one of ``PLACEMENTS``.
    qkv: over W_Q, W_K and W_V together; W_O: over its matrix; block: over all parameters of the block.
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
    return {"placement": placement, "seed": seed, "loss_nats": loss, **found}


def norm(block: nn.Module, ends: tuple[str, ...]) -> float:
    """Norm of the newest gradient of those parameters of a block whose names end so."""
    chosen: list[Tensor] = [
        parameter.grad
        for name, parameter in block.named_parameters()
        if name.endswith(ends) and parameter.grad is not None
    ]
    return torch.nn.utils.get_total_norm(chosen).item()


def measured(measurement_id: str, seed: int) -> list[dict[str, Any]]:
    """The rows of one seed on the chapter's text, on one thread, for the ``Measurement`` of that id.

    Raises CorpusError: when that text cannot be had.
    """
    del measurement_id  # there is one
    torch.set_num_threads(1)
    text = corpus.load(corpus.TINYSHAKESPEARE)
    return [gradients(text, placement, seed) for placement in PLACEMENTS]


def check(seeds: Sequence[int], batch: int, context: int) -> None:
    """Raises ValueError: when one is out of range; the message gives got and allowed."""
    if len(seeds) > MAX_SEEDS:
        raise ValueError(f"{len(seeds)} seeds; allowed: at most {MAX_SEEDS}.")
    for name, value, high in (("batch", batch, MAX_BATCH), ("context", context, MAX_CONTEXT)):
        if not 1 <= value <= high:
            raise ValueError(f"{name} is {value:,}; allowed: 1 to {high:,}.")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and print the figures."""
    parser = argparse.ArgumentParser(prog="python -m engine.probes.norms", description=__doc__)
    parser.add_argument("--json", action="store_true", help="one JSON document (it is printed in any case)")
    parser.add_argument("--seeds", default="0", help=f"from 0 to {MAX_SEED}, separated by commas")
    parser.add_argument("--batch", type=int, default=BATCH)
    parser.add_argument("--context", type=int, default=CONTEXT)
    parser.add_argument("--text", help="id of a text; by default the chapter's, if it is there")
    options = parser.parse_args(arguments)
    began = time.monotonic()
    torch.set_num_threads(1)
    try:
        seeds = parse_seeds(options.seeds)
        check(seeds, options.batch, options.context)
        text = corpus.load(options.text or corpus.present_corpus_id()[0], context_length=options.context)
        rows = [
            gradients(text, placement, seed, options.batch, options.context)
            for seed in seeds
            for placement in PLACEMENTS
        ]
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    document = {
        "rows": rows,
        "text": text.title,
        "corpus": text.id,
        "of_the_chapters_text": text.sha256 == corpus.TINYSHAKESPEARE_SHA256,
        "batch": options.batch,
        "context": options.context,
        "seconds": round(time.monotonic() - began, 2),
    }
    print(json.dumps(document, allow_nan=False))
    return 0


if __name__ == "__main__":
    sys.exit(main())
