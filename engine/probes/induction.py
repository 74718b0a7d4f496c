"""Induction heads as they form, taken away, and in models of a text: ``python -m engine.probes.induction
WHAT --json``.

A page measures in that process, so that its own never loads torch. What is measured lies in
``circuits/induction.py``. Layers and heads count from 0 in what is printed, and from 1 in what people type.
Shapes: B sequences, T position, S key position, H heads, L blocks, V vocabulary.
Source: Elhage et al. 2021, "A Mathematical Framework for Transformer Circuits"; Olsson et al. 2022,
"In-context Learning and Induction Heads".
"""

import argparse
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.circuits import capture
from engine.circuits.induction import FOUND, by_position, head_scores, pair_of, partners_of
from engine.circuits.interventions import Intervention, MeanHeads, ZeroHeads
from engine.circuits.results import Head, HeadScores
from engine.data import corpus
from engine.data.languages import shelf
from engine.data.languages.induction import INDUCTION, Repeats
from engine.models.config import WITHOUT_HEADS, ModelConfig
from engine.models.transformer import Transformer
from engine.probes.answering import answer
from engine.runs.spec import RunSpec
from engine.system import files
from engine.training import checkpoint

SCORED = 64  # sequences on which the heads of every kept step are scored
PASSAGES, LONGEST, SHORTEST = 64, 128, 16  # of a text: how many, their tokens, and those before a repeat

Found = dict[str, Any]


def trained_on(run: Path) -> tuple[RunSpec, Repeats]:
    """What a run was asked for, and the language of its sequences.

    Raises ValueError: when the folder holds no run, or one that trained on something else; OSError: when it
        cannot be read.
    """
    try:
        spec = RunSpec.from_json((run / "spec.json").read_text("utf-8"))
    except (TypeError, KeyError) as error:
        raise ValueError(f"{run} holds no run: {error}.") from error
    language = shelf.load(spec.corpus)
    if not isinstance(language, Repeats):
        raise ValueError(f"run #{run.name} trained on {spec.corpus}; allowed: repeated random tokens.")
    return spec, language


def kept_models(run: Path) -> Iterator[tuple[int, Transformer]]:
    """The model at every kept step, from the first to the last.

    Raises ValueError: when there is none, or one is damaged; OSError: when it cannot be read.
    """
    kept = files.kept_weights(run)
    if not kept:
        raise ValueError(f"run #{run.name} has kept no weights of its steps; train it again.")
    for step, path in kept.items():
        yield step, checkpoint.load_model(path)[0]


def formed_at(steps: Sequence[int], scores: Sequence[HeadScores]) -> int | None:
    """The first step from which on, at every kept one, a pair of heads stands (``pair_of``)."""
    found = None
    for step, at in zip(steps, scores, strict=True):
        found = None if pair_of(at) is None else step if found is None else found
    return found


def all_alike(ids: Tensor, vocab_size: int) -> Found:
    """The scores of a head that looks at all it sees alike. shape: (B, T)"""
    config = ModelConfig(vocab_size=vocab_size, d_model=4, n_layer=1, mixer="average", connection="add")
    scores = head_scores(Transformer(config).eval(), ids)
    return {"previous_token": scores.previous_token[0][0], "prefix_matching": scores.prefix_matching[0][0]}


def formation(run: Path) -> Found:
    """Both scores of every head at every kept step, the step from which on a pair stands, and who has a role
    at the end.
    """
    spec, language = trained_on(run)
    ids = _read(language.unseen_rows(spec.seed)[:SCORED])
    steps, scores = list[int](), list[HeadScores]()
    for step, model in kept_models(run):
        steps.append(step)
        scores.append(head_scores(model, ids))
    return {
        "steps": steps,
        "scores": [asdict(at) for at in scores],
        "pairs": [pair_of(at) for at in scores],
        "formed": formed_at(steps, scores),
        **roles(scores[-1]),
        "all_alike": all_alike(ids, len(language.words)),
        "sequences": len(ids),
    }


def roles(scores: HeadScores) -> Found:
    """The pair, and every head with a role; see ``circuits/induction.py``."""
    previous, matching = partners_of(scores)
    return {"pair": pair_of(scores), "previous": previous, "matching": matching, "from": FOUND}


def maps(run: Path, period: int) -> Found:
    """Every head's attention on one sequence, a word said twice, at every kept step.

    weights, scores: by step, layer, head and query, as far as the query sees.
    Raises ValueError: when the period is out of range, and as ``kept_models``.
    """
    spec, language = trained_on(run)
    if not language.shortest <= period <= language.longest:
        allowed = f"{language.shortest} to {language.longest} tokens"
        raise ValueError(f"the period is {period}; allowed: {allowed}.")
    word = language.halved_rows(spec.seed, 1)[:, :period]
    ids = torch.from_numpy(np.concatenate([word, word], axis=1))
    found: Found = {"steps": [], "weights": [], "scores": []}
    for step, model in kept_models(run):
        blocks = capture.run(model, ids).blocks
        found["steps"].append(step)
        found["weights"].append([_seen(block.weights[0], 4) for block in blocks])
        found["scores"].append([_seen(block.scores[0], 3) for block in blocks])
    return {"pieces": [language.words[token] for token in ids[0].tolist()], **found}


def _seen(values: Tensor, decimals: int) -> list[list[list[float]]]:
    """Of every head and query, what lies behind the mask. shape: (H, T, S) -> H lists of T rows"""
    rounded = values.double().numpy().round(decimals)
    return [[row[: t + 1].tolist() for t, row in enumerate(head)] for head in rounded]


class Ablation:
    """One model on unseen sequences, with heads taken away.

    rows: whole sequences, shape (B, T + 1).
    """

    def __init__(self, model: Transformer, language: Repeats, rows: NDArray[np.int64]) -> None:
        self.model, self.rows = model, torch.from_numpy(rows)
        self.ids, self.wanted = self.rows[:, :-1], self.rows[:, 1:]
        self.late, self.early = language.known_all, language.known_nothing
        self.means = capture.head_means(model, self.ids)

    def accuracy(self, positions: slice, changes: Sequence[Intervention] = ()) -> float:
        """The share of right tokens among those that follow these positions."""
        right = [
            capture.run(self.model, ids, changes).logits.argmax(dim=-1) == wanted
            for ids, wanted in zip(capture.batches(self.ids), capture.batches(self.wanted), strict=True)
        ]
        return torch.cat(right)[:, positions].double().mean().item()

    def without(self, heads: Sequence[Head]) -> Found:
        """What is left of the second half when these heads add nothing, or what they add on average."""
        taken = frozenset(heads)
        return {
            "heads": [list(head) for head in heads],
            "zero": self.accuracy(self.late, [ZeroHeads(taken)]),
            "mean": self.accuracy(self.late, [MeanHeads(taken, self.means)]),
        }

    def growing(self, heads: Sequence[Head], scores: list[list[float]]) -> list[Found]:
        """These heads set to zero one after another, the highest score first."""
        order = sorted(heads, key=lambda head: -scores[head.block][head.head])
        firsts = [order[:count] for count in range(1, len(order) + 1)]
        return [
            {
                "heads": [list(head) for head in taken],
                "zero": self.accuracy(self.late, [ZeroHeads(frozenset(taken))]),
            }
            for taken in firsts
        ]


@torch.no_grad()
def ablate(model: Transformer, seed: int, chosen: Sequence[Head] = ()) -> Found:
    """What is left of the accuracy without each head, and without all that share a role or have none.

    seed: of the sequences. chosen: heads of the reader's, in place of all these.
    Raises ValueError: when the model has no such head, or reads another language.
    """
    if len(INDUCTION.words) != model.config.vocab_size:
        words = f"{len(INDUCTION.words)}, of {INDUCTION.kind}"
        raise ValueError(f"the model has {model.config.vocab_size} tokens; allowed: {words}.")
    measured = Ablation(model, INDUCTION, INDUCTION.unseen_rows(seed))
    whole = {"accuracy": measured.accuracy(measured.late)}
    if chosen:
        return {**whole, "chosen": measured.without(chosen)}
    scores = head_scores(model, measured.ids)
    found = roles(scores)
    every = [Head(b, h) for b, row in enumerate(scores.previous_token) for h in range(len(row))]
    idle = [head for head in every if head not in (*found["previous"], *found["matching"])]
    sets = {"previous": found["previous"], "matching": found["matching"], "others": idle}
    return {
        **whole,
        "early_accuracy": measured.accuracy(measured.early),
        **found,
        "scores": asdict(scores),
        "single": [measured.without([head]) for head in every],
        "sets": {name: measured.without(heads) for name, heads in sets.items() if heads},
        "growing": {
            "previous": measured.growing(found["previous"], scores.previous_token),
            "matching": measured.growing(found["matching"], scores.prefix_matching),
        },
        "sequences": len(measured.rows),
    }


@torch.no_grad()
def in_text(model: Transformer, text: corpus.Corpus, seed: int) -> Found:
    """The scores of a model of a text, on random tokens that repeat and on that text's held-out part, and
    what it gains on either by having read the same before (``gain``).

    seed: of the random tokens.
    Raises ValueError: when the model has no heads, or the text is too short.
    """
    if model.config.mixer in WITHOUT_HEADS:
        raise ValueError(f"a model of mixer {model.config.mixer!r} has no heads; needed: some that look.")
    length = min(LONGEST, model.config.max_positions)
    random, passages = repeats(model.config.vocab_size, length, seed), held_out(text, length)
    scores = {"random": head_scores(model, random), "text": head_scores(model, passages)}
    words = repeats(model.config.vocab_size, length, seed, once=True)
    return {
        "layers": model.config.n_layer,
        "pair": pair_of(scores["random"]),
        "from": FOUND,
        **{name: asdict(found) for name, found in scores.items()},
        "gain_random_nats": gain(model, words[:, : length // 2]),
        "gain_text_nats": gain(model, passages[:, : length // 2]),
        "all_alike": {
            name: all_alike(ids, model.config.vocab_size)
            for name, ids in (("random", random), ("text", passages))
        },
    }


def gain(model: Transformer, said: Tensor) -> float:
    """Loss in nats of these tokens behind others of their kind, less behind the very same. shape: (B, T)

    The tokens and their positions are equal in both, so what differs is the repetition alone.
    """
    behind_others, behind_themselves = (
        by_position(model, torch.cat([before, said], dim=1)).losses_nats[said.shape[1] :]
        for before in (said.roll(1, dims=0), said)
    )
    return (sum(behind_others) - sum(behind_themselves)) / len(behind_others)


def repeats(vocab_size: int, length: int, seed: int, *, once: bool = False) -> Tensor:
    """Random tokens, none twice, repeated after a number of them that differs by sequence.

    As those of ``languages/induction.py``, of a larger vocabulary. once: without the repeat.
    shape: -> (B, T)
    Raises ValueError: when there are too few tokens, or a sequence is too short.
    """
    if vocab_size < length or length <= 2 * SHORTEST:
        raise ValueError(
            f"the model has {vocab_size} tokens and reads {length}; needed: as many, over {2 * SHORTEST}."
        )
    draw = torch.Generator().manual_seed(seed)
    words = torch.rand(PASSAGES, vocab_size, generator=draw).argsort(dim=1)
    periods = torch.randint(SHORTEST, length // 2, (PASSAGES, 1), generator=draw)
    return words[:, :length] if once else words.gather(1, torch.arange(length) % periods)


def held_out(text: corpus.Corpus, length: int) -> Tensor:
    """Passages of the held-out part, spread evenly. shape: -> (B, T)

    Raises ValueError: when it has fewer tokens than one passage.
    """
    ids = torch.from_numpy(text.held_out_ids.astype("int64"))
    if len(ids) < length:
        raise ValueError(f"the held-out part has {len(ids)} tokens; needed: {length}.")
    starts = torch.linspace(0, len(ids) - length, PASSAGES).long()
    return ids[starts[:, None] + torch.arange(length)]


def _read(rows: NDArray[np.int64]) -> Tensor:
    """What a model reads of whole sequences: all but the last token. shape: (B, T + 1) -> (B, T)"""
    return torch.from_numpy(rows)[:, :-1]


def heads_in(text: str) -> list[Head]:
    """Heads as people write them: "1.3,2.4", layer and head counted from 1.

    Raises ValueError: when one is not so, or is there twice.
    """
    found = list[Head]()
    for part in text.split(",") if text else []:
        if not re.fullmatch(r"[1-9]\d?\.[1-9]\d?", part, re.ASCII):
            raise ValueError(f"heads have {part[:40]!r}; allowed: LAYER.HEAD, counted from 1, as in 1.3,2.4.")
        layer, _, head = part.partition(".")
        if (named := Head(int(layer) - 1, int(head) - 1)) in found:
            raise ValueError(f"heads have {part} twice; allowed: each once.")
        found.append(named)
    return found


def _measure_formation(options: argparse.Namespace) -> Found:
    return formation(_needed(options.run, "--run"))


def _measure_maps(options: argparse.Namespace) -> Found:
    return maps(_needed(options.run, "--run"), options.period)


def _measure_ablate(options: argparse.Namespace) -> Found:
    model = checkpoint.load_model(_needed(options.weights, "--weights"))[0]
    return ablate(model, options.seed, heads_in(options.heads))


def _measure_text(options: argparse.Namespace) -> Found:
    text, rows = corpus.load(options.text), list[Found]()
    for given in options.model:
        name, equals, path = given.partition("=")
        if not equals:
            raise ValueError(f"a model is {given!r}; allowed: NAME=PATH of a checkpoint.")
        rows.append({"model": name, **in_text(checkpoint.load_model(Path(path))[0], text, options.seed)})
    return {"rows": rows, "text": text.title, "passages": PASSAGES}


def _needed(path: Path | None, name: str) -> Path:
    if path is None:
        raise ValueError(f"{name} is not given; needed: a path.")
    return path


MEASURED: dict[str, Callable[[argparse.Namespace], Found]] = {
    "formation": _measure_formation,
    "maps": _measure_maps,
    "ablate": _measure_ablate,
    "text": _measure_text,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and print the figures. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m engine.probes.induction", description=__doc__)
    parser.add_argument("what", choices=tuple(MEASURED))
    parser.add_argument("--json", action="store_true", help="one JSON document (it is printed in any case)")
    parser.add_argument("--run", type=Path, help="a run's folder, with weights kept over its steps")
    parser.add_argument("--period", type=int, default=12, help="tokens before the repeat, of the maps")
    parser.add_argument("--weights", type=Path, help="a checkpoint")
    parser.add_argument("--seed", type=int, default=0, help="of the sequences")
    parser.add_argument("--heads", default="", help="LAYER.HEAD,... to take away at once")
    parser.add_argument("--model", action="append", default=[], help="NAME=PATH of a checkpoint")
    parser.add_argument("--text", default=corpus.TINYSHAKESPEARE, help="whose held-out part is read")
    options = parser.parse_args(arguments)
    return answer(lambda: MEASURED[options.what](options), options.seed)


if __name__ == "__main__":
    sys.exit(main())
