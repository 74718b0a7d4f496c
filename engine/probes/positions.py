"""What position schemes do, as one JSON document: ``python -m engine.probes.positions WHAT --json``.

Pages measure in that process, so that theirs never loads torch. What there is to measure is in ``schemes``.
"""

import argparse
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from engine.chapter.experiments import POSITIONS
from engine.data import corpus
from engine.models.transformer import Transformer
from engine.probes import live, schemes
from engine.probes.answering import answer
from engine.probes.schemes import SCHEMES, TRAINED, Found
from engine.system import files
from engine.training import checkpoint

QUERY, KEY = " king", " the"  # the two tokens of the diagonals


def _named_weights(given: Iterable[str]) -> dict[str, Path]:
    """From SCHEME=PATH, each once. Raises ValueError: when one is not so."""
    found: dict[str, Path] = {}
    for text in given:
        name, equals, path = text.partition("=")
        if not equals or name not in SCHEMES or name in found:
            raise ValueError(
                f"weights are {text!r}; allowed: SCHEME=PATH, once each of {', '.join(SCHEMES)}."
            )
        found[name] = Path(path)
    return found


def _load(weights: Mapping[str, Path], needed: Sequence[str] = ()) -> dict[str, Transformer]:
    """Raises ValueError: when one is missing or of another scheme; OSError: when it cannot be read."""
    if missing := [name for name in needed if name not in weights]:
        raise ValueError(f"no weights of {', '.join(missing)} are given.")
    models = {name: checkpoint.load_model(path)[0] for name, path in weights.items()}
    for name, model in models.items():
        if model.config.positions != name:
            raise ValueError(f"the weights given as {name} are of {model.config.positions}.")
    return models


def _seed_of(path: Path) -> int:
    """The seed that a run's folder names; what is shipped is of seed 0."""
    return int((files.read_json(path.parent / "spec.json") or {}).get("seed", 0))


def _held_out(text: str) -> Tensor:
    return torch.from_numpy(corpus.load(text).held_out_ids.astype("int64"))


def _tokens(sentence: str) -> tuple[corpus.Vocabulary, list[int]]:
    """Raises ValueError: when there are fewer than three tokens, or more than a trained window has."""
    vocabulary = corpus.shipped_vocabulary()
    ids = vocabulary.encode(f" {sentence.strip()}") if sentence.strip() else []
    if not 3 <= len(ids) <= TRAINED:
        raise ValueError(f"The sentence has {len(ids)} tokens; allowed: 3 to {TRAINED}.")
    return vocabulary, ids


def _measure_places(options: argparse.Namespace) -> Found:
    return schemes.places(_load(_named_weights(options.weights)), _held_out(options.text))


def _measure_rescaled(options: argparse.Namespace) -> Found:
    models = _load(_named_weights(options.weights), ["rope"])
    return schemes.rescaled(models["rope"], _held_out(options.text))


def _measure_order(options: argparse.Namespace) -> Found:
    vocabulary, ids = _tokens(options.sentence)
    return {**schemes.order(ids, options.seed), "pieces": vocabulary.pieces(ids)}


def _measure_knowledge(options: argparse.Namespace) -> Found:
    return schemes.knowledge(_load(_named_weights(options.weights)), _held_out(options.text), options.seed)


def _measure_diagonals(options: argparse.Namespace) -> Found:
    models = _load(_named_weights(options.weights))
    for scheme in SCHEMES:
        if scheme not in models:
            models[scheme] = live.untrained(POSITIONS.variant(scheme).config)
    vocabulary = corpus.shipped_vocabulary()
    query, key = (vocabulary.encode(text)[0] for text in (QUERY, KEY))
    names = dict(zip(("query", "key"), vocabulary.pieces([query, key]), strict=True))
    return {**schemes.diagonals({name: models[name] for name in SCHEMES}, query, key), **names}


def _measure_table(options: argparse.Namespace) -> Found:
    weights = _named_weights(options.weights)
    models = _load(weights, ["learned"])
    return schemes.rows_of_the_table(models["learned"], _seed_of(weights["learned"]))


MEASURED: dict[str, Callable[[argparse.Namespace], Found]] = {
    "places": _measure_places,
    "rescaled": _measure_rescaled,
    "order": _measure_order,
    "knowledge": _measure_knowledge,
    "diagonals": _measure_diagonals,
    "table": _measure_table,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and print the figures."""
    parser = argparse.ArgumentParser(prog="python -m engine.probes.positions", description=__doc__)
    parser.add_argument("what", choices=tuple(MEASURED))
    parser.add_argument("--json", action="store_true", help="one JSON document (it is printed in any case)")
    parser.add_argument("--weights", action="append", default=[], help="SCHEME=PATH of a checkpoint")
    parser.add_argument("--text", default=corpus.TINYSHAKESPEARE, help="whose held-out part is read")
    parser.add_argument("--sentence", default="", help="what is put into another order")
    parser.add_argument("--seed", type=int, default=0, help="of the order")
    options = parser.parse_args(arguments)
    return answer(lambda: MEASURED[options.what](options), options.seed)


if __name__ == "__main__":
    sys.exit(main())
