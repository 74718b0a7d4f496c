"""Induction heads as they form, taken away, and in models of a text.

What is measured lies in ``circuits/induction.py``. Layers and heads count from 0.
Shapes: B sequences, T position, S key position, H heads, L blocks, V vocabulary.
Source: Elhage et al. 2021, "A Mathematical Framework for Transformer Circuits"; Olsson et al. 2022,
"In-context Learning and Induction Heads".
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.circuits import capture
from engine.circuits.induction import head_scores, pair_of, partners_of
from engine.circuits.interventions import Intervention, MeanHeads, ZeroHeads
from engine.circuits.results import Head, HeadScores
from engine.circuits.trials import logits_of_each
from engine.data import corpus
from engine.data.languages import shelf
from engine.data.languages.induction import INDUCTION, Repeats
from engine.models.config import WITHOUT_HEADS, ModelConfig
from engine.models.transformer import Transformer
from engine.probes.models import for_the_reader, held_out, trained
from engine.probes.results import induction as results
from engine.probes.schemes import losses_by_position
from engine.runs.spec import RunSpec
from engine.system import files
from engine.system.errors import InvalidInput
from engine.system.numbers import check_whole

SCORED = 64  # sequences, where every kept step or every path takes a run of them
PASSAGES, LONGEST, SHORTEST = 64, 128, 16  # of a text: how many, their tokens, and those before a repeat


def trained_on(run: Path) -> tuple[RunSpec, Repeats]:
    """What a run was asked for, and the language of its sequences.

    Raises InvalidInput: when the folder holds no run, or one that trained on something else.
    """
    with for_the_reader():
        try:
            spec = RunSpec.from_json((run / "spec.json").read_text("utf-8"))
        except (TypeError, KeyError) as error:
            raise ValueError(f"{run} holds no run: {error}.") from error
        language = shelf.load(spec.corpus)
    if not isinstance(language, Repeats):
        raise InvalidInput(f"run #{run.name} trained on {spec.corpus}; allowed: repeated random tokens.")
    return spec, language


def kept_models(run: Path) -> Iterator[tuple[int, Transformer]]:
    """The model at every kept step, in order. Raises InvalidInput: when there is none, or one is damaged."""
    kept = files.kept_weights(run)
    if not kept:
        raise InvalidInput(f"run #{run.name} has kept no weights of its steps; train it again.")
    for step, path in kept.items():
        yield step, trained(path)


def formed_at(steps: Sequence[int], scores: Sequence[HeadScores]) -> int | None:
    """The first step from which on, at every kept one, a pair of heads stands (``pair_of``)."""
    found = None
    for step, at in zip(steps, scores, strict=True):
        found = None if pair_of(at) is None else step if found is None else found
    return found


def all_alike(ids: Tensor, vocab_size: int) -> results.AllAlike:
    """The scores of a head that looks at all it sees alike. shape: (B, T)"""
    config = ModelConfig(vocab_size=vocab_size, d_model=4, n_layer=1, mixer="average", connection="add")
    scores = head_scores(Transformer(config).eval(), ids)
    return results.AllAlike(scores.previous_token[0][0], scores.prefix_matching[0][0])


def formation(run: Path) -> results.Formation:
    """The scores of every head at every kept step, the step from which on a pair stands, and who has a role
    at the end.
    """
    spec, language = trained_on(run)
    ids = torch.from_numpy(language.unseen_rows(spec.seed)[:SCORED])[:, :-1]  # what a model reads of each
    by_step = {step: head_scores(model, ids) for step, model in kept_models(run)}
    steps, scores = list(by_step), list(by_step.values())
    previous, matching = partners_of(scores[-1])
    return results.Formation(
        steps=steps,
        scores=scores,
        pairs=[pair_of(at) for at in scores],
        formed=formed_at(steps, scores),
        pair=pair_of(scores[-1]),
        previous=previous,
        matching=matching,
        all_alike=all_alike(ids, len(language.words)),
        sequences=len(ids),
    )


def maps(run: Path, period: int) -> results.Maps:
    """Every head's attention on one sequence, a word said twice, at every kept step.

    Raises InvalidInput: when the period is out of range, and as ``kept_models``.
    """
    spec, language = trained_on(run)
    check_whole("the period", period, language.shortest, language.longest)
    word = language.halved_rows(spec.seed, 1)[:, :period]
    ids = torch.from_numpy(np.concatenate([word, word], axis=1))
    found = results.Maps([language.words[token] for token in ids[0].tolist()], [], [], [])
    for step, model in kept_models(run):
        blocks = capture.run(model, ids).blocks
        found.steps.append(step)
        found.weights.append([_seen(block.weights[0], 4) for block in blocks])
        found.scores.append([_seen(block.scores[0], 3) for block in blocks])
    return found


def _seen(values: Tensor, decimals: int) -> list[list[list[float]]]:
    """Of every head and query, what lies behind the mask. shape: (H, T, S) -> H lists of T rows"""
    rounded = values.double().numpy().round(decimals)
    return [[row[: t + 1].tolist() for t, row in enumerate(head)] for head in rounded]


class Continued:
    """One model that continues unseen sequences, with heads taken away.

    rows: whole sequences, shape (B, T + 1). positions: those whose next tokens count.
    """

    def __init__(self, model: Transformer, rows: NDArray[np.int64], positions: slice) -> None:
        self.model, self.ids = model, torch.from_numpy(rows)[:, :-1]
        self.wanted = torch.from_numpy(rows)[:, 1:][:, positions]
        self.places = range(self.ids.shape[1])[positions]
        self.means = capture.head_means(model, self.ids)
        self.captured = [capture.run(model, ids) for ids in capture.batches(self.ids)]

    def accuracy(self, *cases: Sequence[Intervention]) -> list[float]:
        """The share of right tokens in each case."""
        parts = [logits_of_each(self.model, one, self.places, cases).argmax(-1) for one in self.captured]
        right = torch.cat(parts, dim=1) == self.wanted
        return right.flatten(1).double().mean(dim=1).tolist()

    def without(self, *sets: Sequence[Head]) -> list[results.Without]:
        """What is left when these heads add nothing, or what they add on average."""
        taken = [frozenset(heads) for heads in sets]
        with for_the_reader():  # a model has only so many heads
            zero = self.accuracy(*([ZeroHeads(heads)] for heads in taken))
            mean = self.accuracy(*([MeanHeads(heads, self.means)] for heads in taken))
        return [results.Without(list(heads), *left) for heads, *left in zip(sets, zero, mean, strict=True)]

    def growing(self, heads: Sequence[Head], scores: list[list[float]]) -> list[results.Growing]:
        """These heads set to zero one after another, the highest score first."""
        order = sorted(heads, key=lambda head: -scores[head.block][head.head])
        firsts = [order[:count] for count in range(1, len(order) + 1)]
        if not firsts:
            return []
        left = self.accuracy(*([ZeroHeads(frozenset(taken))] for taken in firsts))
        return [results.Growing(taken, share) for taken, share in zip(firsts, left, strict=True)]


def ablate(weights: Path, seed: int = 0) -> results.Ablation:
    """What is left of the accuracy without each head, and without all that share a role or have none.

    seed: of the sequences.
    Raises InvalidInput: when the model reads another language, and as ``trained``.
    """
    model = trained(weights)
    rows = unseen(model, seed)
    late, early = (Continued(model, rows, at) for at in (INDUCTION.known_all, INDUCTION.known_nothing))
    scores = head_scores(model, late.ids)
    previous, matching = partners_of(scores)
    every = scores.heads
    idle = [head for head in every if head not in (*previous, *matching)]
    sets = {"previous": previous, "matching": matching, "others": idle}
    named = {name: heads for name, heads in sets.items() if heads}
    left = late.without(*([head] for head in every), *named.values())
    return results.Ablation(
        accuracy=late.accuracy([])[0],
        early_accuracy=early.accuracy([])[0],
        pair=pair_of(scores),
        previous=previous,
        matching=matching,
        scores=scores,
        single=left[: len(every)],
        sets=dict(zip(named, left[len(every) :], strict=True)),
        growing={
            "previous": late.growing(previous, scores.previous_token),
            "matching": late.growing(matching, scores.prefix_matching),
        },
        sequences=len(rows),
    )


def ablate_chosen(weights: Path, heads: list[Head], seed: int = 0) -> results.Without:
    """What is left without these heads. Raises InvalidInput: as ``ablate``, and when the model lacks one."""
    model = trained(weights)
    return Continued(model, unseen(model, seed), INDUCTION.known_all).without(heads)[0]


def unseen(model: Transformer, seed: int) -> NDArray[np.int64]:
    """Whole sequences that no model of that seed trained on. Raises InvalidInput: of another vocabulary."""
    if len(INDUCTION.words) != model.config.vocab_size:
        words = f"{len(INDUCTION.words)}, of {INDUCTION.kind}"
        raise InvalidInput(f"the model has {model.config.vocab_size} tokens; allowed: {words}.")
    return INDUCTION.unseen_rows(seed)


def in_texts(models: dict[str, Path], text: str = corpus.TINYSHAKESPEARE, seed: int = 0) -> results.InTexts:
    """The scores of models of a text, by a name. Raises InvalidInput: as ``in_text``, ``trained``."""
    with for_the_reader():
        read = corpus.load(text)
        rows = [in_text(name, trained(path), read, seed) for name, path in models.items()]
    return results.InTexts(rows, read.title, PASSAGES)


@torch.no_grad()
def in_text(name: str, model: Transformer, text: corpus.Corpus, seed: int) -> results.InText:
    """The scores of a model of a text, on random tokens that repeat and on that text's held-out part, and
    what it gains on either by having read the same before (``gain``).

    seed: of the random tokens.
    Raises ValueError: when the model has no heads, or the text is too short.
    """
    if model.config.mixer in WITHOUT_HEADS:
        raise ValueError(f"a model of mixer {model.config.mixer!r} has no heads; needed: some that look.")
    length = min(LONGEST, model.config.max_positions)
    random, passages = repeats(model.config.vocab_size, length, seed), passages_of(text, length)
    on_random = head_scores(model, random)
    words = repeats(model.config.vocab_size, length, seed, once=True)
    return results.InText(
        model=name,
        layers=model.config.n_layer,
        pair=pair_of(on_random),
        random=on_random,
        text=head_scores(model, passages),
        gain_random_nats=gain(model, words[:, : length // 2]),
        gain_text_nats=gain(model, passages[:, : length // 2]),
        alike_random=all_alike(random, model.config.vocab_size),
        alike_text=all_alike(passages, model.config.vocab_size),
    )


def gain(model: Transformer, said: Tensor) -> float:
    """Loss in nats of these tokens behind others of their kind, less behind the very same. shape: (B, T)

    The tokens and their positions are equal in both, so what differs is the repetition alone.
    """
    behind_others, behind_themselves = (
        losses_by_position(model, torch.cat([before, said], dim=1))[said.shape[1] :].mean()
        for before in (said.roll(1, dims=0), said)
    )
    return (behind_others - behind_themselves).item()


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


def passages_of(text: corpus.Corpus, length: int) -> Tensor:
    """Passages of the held-out part, spread evenly. shape: -> (B, T)

    Raises ValueError: when it has fewer tokens than one passage.
    """
    ids = held_out(text)
    if len(ids) < length:
        raise ValueError(f"the held-out part has {len(ids)} tokens; needed: {length}.")
    starts = torch.linspace(0, len(ids) - length, PASSAGES).long()
    return ids[starts[:, None] + torch.arange(length)]
