"""What a model trained on Winograd sentences does, as JSON: ``python -m engine.probes.winograd WHAT --json``.

A process of its own, so that the app never loads torch. What there is to ask is in ``winograd_answers``.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from engine.circuits.interventions import Edge, Head
from engine.data.languages.winograd import Winograd
from engine.probes import winograd_answers as answers
from engine.probes.answering import answer
from engine.probes.winograd_answers import Found, Pair, Subject
from engine.training import checkpoint

ALL = "all"


def edge_of(text: str) -> Edge:
    """From QUERY:KEY:BLOCK:HEAD, counted from 0; HEAD may be "all". Raises ValueError: when it is not so."""
    parts = text.split(":")
    if len(parts) != 4 or not all(
        _whole(part) for part in (*parts[:3], "0" if parts[3] == ALL else parts[3])
    ):
        raise ValueError(
            f"an edge is {text!r}; allowed: QUERY:KEY:BLOCK:HEAD, whole numbers, HEAD or {ALL!r}."
        )
    query, key, block = map(int, parts[:3])
    return Edge(query, key, block, None if parts[3] == ALL else int(parts[3]))


def head_of(text: str) -> Head:
    """From BLOCK:HEAD, counted from 0. Raises ValueError: when it is not so."""
    parts = text.split(":")
    if len(parts) != 2 or not all(map(_whole, parts)):
        raise ValueError(f"a head is {text!r}; allowed: BLOCK:HEAD, whole numbers.")
    return Head(*map(int, parts))


def _whole(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 10


def _pair(subject: Subject, options: argparse.Namespace) -> Pair:
    """Raises ValueError: when the words are none of the language's."""
    words = tuple(options.adjectives.split(","))
    if len(words) != 2:
        raise ValueError(f"adjectives are {options.adjectives!r}; allowed: two, with a comma between.")
    pair = Pair(options.first, options.second, (words[0], words[1]))
    pair.check(subject.language)
    return pair


def _cut(subject: Subject, options: argparse.Namespace) -> Found:
    return answers.cut(subject, _pair(subject, options), [edge_of(text) for text in options.edge])


def _ablated(subject: Subject, options: argparse.Namespace) -> Found:
    heads = [head_of(text) for text in options.head]
    return answers.ablated(subject, _pair(subject, options), heads, options.how)


ASKED: dict[str, Callable[[Subject, argparse.Namespace], Found]] = {
    "maps": lambda subject, options: answers.maps(subject, _pair(subject, options)),
    "circuit": lambda subject, _: answers.circuit(subject),
    "effects": lambda subject, options: answers.effects(subject, _pair(subject, options)),
    "cut": _cut,
    "ablated": _ablated,
    "proof": lambda subject, options: answers.proof(subject, _pair(subject, options)),
    "score": lambda subject, _: answers.scored(subject),
}


def report(options: argparse.Namespace) -> Found:
    """The answer to what is asked.

    Raises ValueError: when a word, an edge or a head is none there is; OSError: when the checkpoint
        cannot be read.
    """
    language = Winograd.from_json(options.language)
    subject = Subject(checkpoint.load_model(options.weights)[0], language, options.seed)
    return ASKED[options.what](subject, options)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m engine.probes.winograd", description=__doc__)
    parser.add_argument("what", choices=tuple(ASKED))
    parser.add_argument("--json", action="store_true", help="one JSON document (it is printed in any case)")
    parser.add_argument("--weights", type=Path, required=True, help="a checkpoint")
    parser.add_argument("--language", required=True, help="what the model was trained on, as JSON")
    parser.add_argument("--seed", type=int, default=0, help="of the split")
    parser.add_argument("--first", default="", help="the crosser")
    parser.add_argument("--second", default="", help="the crossed")
    parser.add_argument("--adjectives", default="", help="two, with a comma between")
    parser.add_argument("--edge", action="append", default=[], help="QUERY:KEY:BLOCK:HEAD to cut")
    parser.add_argument("--head", action="append", default=[], help="BLOCK:HEAD to ablate")
    parser.add_argument("--how", choices=("zero", "mean"), default="zero", help="what to ablate to")
    options = parser.parse_args(arguments)
    return answer(lambda: report(options), options.seed)


if __name__ == "__main__":
    sys.exit(main())
