"""What a dot product of width d does to a softmax, on random vectors; nothing is trained.

``python -m engine.probes.scaling --json`` prints one JSON document: pages measure in that process, so that
theirs never loads torch. Shapes: N pairs or rows, S keys in a row, K width d.
Source: chapter, "why divide by sqrt(d_k)".
"""

import argparse
import json
import math
import sys
import time
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from engine.chapter.measurements import WIDTHS
from engine.training.evaluation import FROZEN

PAIRS, ROWS, KEYS = 20_000, 2_000, 64
MAX_PAIRS, MAX_ROWS, MAX_WIDTH = 50_000, 10_000, 4096
MAX_NUMBERS = 100_000_000  # of one drawing: 400 MB
ROWS_AT_ONCE = 250


def variance(pairs: int = PAIRS, widths: Sequence[int] = WIDTHS, seed: int = 0) -> list[dict[str, float]]:
    """Variance and standard deviation of q.k for standard normal q and k.

    One generator; q is drawn before k, and the widths in the order given: with the defaults, the chapter's
    digits come out.
    """
    draw, found = torch.Generator().manual_seed(seed), []
    for width in widths:
        q = torch.randn(pairs, width, generator=draw)
        products = q.mul_(torch.randn(pairs, width, generator=draw)).sum(dim=1)
        found.append({"d": width, "variance": products.var().item(), "std": products.std().item()})
    return found


def saturation(rows: int = ROWS, widths: Sequence[int] = WIDTHS, seed: int = 0) -> list[dict[str, Any]]:
    """What softmax makes of rows of 64 scores, divided by the square root of d and not.

    Each row is a query of its own over keys of its own.
    """
    draw, found = torch.Generator().manual_seed(seed), []
    gradients = torch.Generator().manual_seed(seed + 1)
    for width in widths:
        scores = random_scores(rows, width, draw)
        arriving = torch.randn(scores.shape, generator=gradients)
        found.append(
            {
                "d": width,
                "divided": row_statistics(scores / math.sqrt(width), arriving),
                "undivided": row_statistics(scores, arriving),
            }
        )
    return found


def measured(measurement_id: str, seed: int) -> list[dict[str, Any]]:
    """The rows of one seed at the chapter's size, on one thread, for the ``Measurement`` of that id."""
    torch.set_num_threads(1)
    return {"scaling-variance": variance, "scaling-saturation": saturation}[measurement_id](seed=seed)


def random_scores(rows: int, width: int, draw: torch.Generator) -> Tensor:
    """q.k of standard normal vectors, undivided. shape: -> (N, S)"""
    queries = torch.randn(rows, width, generator=draw)
    parts = []
    for some in queries.split(ROWS_AT_ONCE):
        keys = torch.randn(len(some), KEYS, width, generator=draw)
        parts.append((keys @ some.unsqueeze(-1)).squeeze(-1))
    return torch.cat(parts)


def row_statistics(scores: Tensor, arriving: Tensor) -> dict[str, float]:
    """What a softmax lets through: means over rows, but for the last.

    shape: (N, S), (N, S) -> numbers
    arriving: a gradient with respect to the weights.
    effective_tokens: exp of a row's entropy. frozen_share: rows with more than 0.99 on one key.
    trace: of the softmax' Jacobian diag(w) - w w^T, the sum of w (1 - w).
    gradient_share: norm of the gradient that reaches the scores, of the norm that arrives at the weights.
    gradient_share_median: half of the rows pass on less; the mean is that of the few that still learn.
    """
    weights = scores.softmax(dim=-1)
    entropy = -torch.special.xlogy(weights, weights).sum(dim=-1)
    reaching = weights * (arriving - (weights * arriving).sum(dim=-1, keepdim=True))
    share = reaching.norm(dim=-1) / arriving.norm(dim=-1)
    return {
        "effective_tokens": entropy.exp().mean().item(),
        "frozen_share": (weights.amax(dim=-1) > FROZEN).float().mean().item(),
        "trace": (weights * (1 - weights)).sum(dim=-1).mean().item(),
        "gradient_share": share.mean().item(),
        "gradient_share_median": share.median().item(),
    }


def check(pairs: int, rows: int, widths: Sequence[int]) -> None:
    """Raises ValueError: when one is out of range; the message gives got and allowed."""
    for name, value, low, high in (("pairs", pairs, 2, MAX_PAIRS), ("rows", rows, 1, MAX_ROWS)):
        if not low <= value <= high:
            raise ValueError(f"{name} is {value:,}; allowed: {low:,} to {high:,}.")
    for width in widths:
        if not 1 <= width <= MAX_WIDTH:
            raise ValueError(f"a width is {width:,}; allowed: 1 to {MAX_WIDTH:,}.")
        if pairs * width > MAX_NUMBERS:
            most = MAX_NUMBERS // width
            raise ValueError(f"{pairs:,} pairs of width {width:,}; allowed: at most {most:,} of that width.")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and print the figures."""
    parser = argparse.ArgumentParser(prog="python -m engine.probes.scaling", description=__doc__)
    parser.add_argument("--json", action="store_true", help="one JSON document (it is printed in any case)")
    parser.add_argument("--pairs", type=int, default=PAIRS)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--widths", default=",".join(map(str, WIDTHS)), help="separated by commas")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    began = time.monotonic()
    try:
        widths = [int(width) for width in options.widths.split(",")]
        check(options.pairs, options.rows, widths)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    torch.set_num_threads(1)
    document = {
        "variance": variance(options.pairs, widths, options.seed),
        "saturation": saturation(options.rows, widths, options.seed),
        "pairs": options.pairs,
        "rows": options.rows,
        "keys": KEYS,
        "seed": options.seed,
        "seconds": round(time.monotonic() - began, 2),
    }
    print(json.dumps(document, allow_nan=False))
    return 0


if __name__ == "__main__":
    sys.exit(main())
