"""What trained models write after the same words: ``python -m engine.probes.samples --json PATH...``.

A process of its own, so that the app never loads torch for it.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from engine.data import corpus
from engine.training import checkpoint
from engine.training.generation import check_sampling, continued

TOKENS = 60
MAX_TOKENS, MAX_MODELS = 500, 40


def sample(
    weights: Path, vocabulary: corpus.Vocabulary, prompt: str, *, tokens: int, temperature: float, seed: int
) -> str:
    """The prompt and what one model adds to it. Every model draws from a generator of the same seed.

    Raises ValueError: when the prompt holds no token, or the checkpoint does not fit; OSError: when it
        cannot be read.
    """
    model = checkpoint.load_model(weights)[0]
    ids = vocabulary.encode(prompt) if prompt.strip() else []
    if not ids:
        raise ValueError("The prompt has no token; allowed: at least one.")
    return continued(model, vocabulary, ids, tokens=tokens, temperature=temperature, seed=seed)


def report(
    weights: Sequence[Path], prompt: str, tokens: int, temperature: float, seed: int
) -> dict[str, Any]:
    """One row a checkpoint, with its text, or what is wrong with it."""
    torch.set_num_threads(1)
    vocabulary = corpus.shipped_vocabulary()
    rows = []
    for path in weights:
        row = {"path": str(path), "text": "", "error": ""}
        try:
            row["text"] = sample(path, vocabulary, prompt, tokens=tokens, temperature=temperature, seed=seed)
        except (ValueError, OSError) as error:
            row["error"] = str(error)
        rows.append(row)
    return {"id": "samples", "tokens": tokens, "temperature": temperature, "seed": seed, "rows": rows}


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m engine.probes.samples", description=__doc__)
    parser.add_argument("weights", type=Path, nargs="+", help="checkpoints trained on Tiny Shakespeare")
    parser.add_argument("--prompt", required=True)
    parser.add_argument("--tokens", type=int, default=TOKENS)
    parser.add_argument("--temperature", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--json", action="store_true", help="print one JSON document (the only form there is)"
    )
    options = parser.parse_args(arguments)
    try:
        check_sampling(options.temperature, None, None)
        for name, value, high in (
            ("tokens", options.tokens, MAX_TOKENS),
            ("models", len(options.weights), MAX_MODELS),
        ):
            if not 1 <= value <= high:
                raise ValueError(f"{name} is {value}; allowed: 1 to {high}.")
        if not 0 <= options.seed < 2**63:
            raise ValueError(f"seed is {options.seed}; allowed: 0 to {2**63 - 1}.")
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    document = report(options.weights, options.prompt, options.tokens, options.temperature, options.seed)
    print(json.dumps(document))
    return 0


if __name__ == "__main__":
    sys.exit(main())
