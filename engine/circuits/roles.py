"""Which heads need their look at a noun or at the adjective: by what it costs to cut it.

Nothing is said of a head by its map alone: a role needs attention and a measured loss without it.
Shapes: N questions, T query position, S key position, H heads, L blocks, C adjectives.
Source: chapter, "Winograd circuits"; Wang et al. 2023, "Interpretability in the Wild".
"""

from collections.abc import Mapping, Sequence, Set

import torch
from torch import Tensor

from engine.circuits.attribution import attribution
from engine.circuits.interventions import MeanHeads, ZeroHeads
from engine.circuits.looks import answer_kinds, head_looks
from engine.circuits.results import DROPPED, KEPT, Head, HeadRole, HeadSet, Roles
from engine.circuits.sites import ADJECTIVE, NOUNS, Sites
from engine.circuits.trials import Trials
from engine.circuits.weights import largest_shift, mean_weights


def find_roles(trials: Trials, names: Mapping[int, str]) -> Roles:
    """Measure every head of a model.

    names: of positions, "first noun", "second noun" and "adjective" among them; the others are "rest".
    Raises ValueError: when one of these is missing or out of place, and as ``head_looks``.
    """
    sites = Sites.of(names, trials.questions.decision)
    clean = trials.whole.score()
    looks = head_looks(trials, sites)
    means = trials.head_means()
    heads = _heads(trials, sites, means)
    part = [look for look in looks if look.part]
    at_nouns = {Head(look.block, look.head) for look in part if look.key in NOUNS}
    at_adjective = {Head(look.block, look.head) for look in part if look.key == ADJECTIVE}
    left = {Head(role.block, role.head): role.mean.logit_difference for role in heads}
    rest, helpers = left.keys() - at_nouns - at_adjective, set[Head]()
    enough = KEPT if clean.accuracy >= KEPT else KEPT * clean.accuracy
    while rest and trials.scores([[MeanHeads(frozenset(rest), means)]])[0].accuracy < enough:
        helpers.add(min(rest, key=lambda head: left[head]))
        rest -= helpers
    names_of_sets = ("at_nouns", "at_adjective", "helpers", "rest")
    found = _ablated(trials, [at_nouns, at_adjective, helpers, rest], means)
    sets = dict(zip(names_of_sets, found, strict=True))
    gone = all(sets[name].mean.accuracy < DROPPED for name in ("at_nouns", "at_adjective"))
    whole = min(clean.accuracy, sets["rest"].mean.accuracy) >= KEPT
    return Roles(clean=clean, heads=heads, looks=looks, **sets, holds=gone and whole and not helpers)


def _ablated(trials: Trials, sets: Sequence[Set[Head]], means: Tensor) -> list[HeadSet]:
    """What is left without each of these sets."""
    names = [frozenset(heads) for heads in sets]
    zero = trials.scores([[ZeroHeads(heads)] for heads in names])
    mean = trials.scores([[MeanHeads(heads, means)] for heads in names])
    return [HeadSet(sorted(heads), *left) for heads, *left in zip(names, zero, mean, strict=True)]


def _heads(trials: Trials, sites: Sites, means: Tensor) -> list[HeadRole]:
    model, questions = trials.model, trials.questions
    words = questions.ids[:, sites.at(ADJECTIVE)]
    by_word = torch.stack(list(mean_weights(trials.captured, words).values()))
    rows = by_word[..., sites.decision, :]  # (C, L, H, S)
    share = words.unique(return_counts=True)[1] / len(words)
    overall, moved = torch.einsum("c,clhs->lhs", share.double(), rows), largest_shift(rows)
    direct = {
        name: attribution(model, questions.chosen(kind)).heads
        for name, kind in answer_kinds(questions, sites).items()
    }
    every = [Head(block, head) for block, head in torch.ones(overall.shape[:2]).nonzero().tolist()]
    found = []
    for (block, head), alone in zip(every, _ablated(trials, [{head} for head in every], means), strict=True):
        found.append(
            HeadRole(
                block=block,
                head=head,
                weights={
                    key: overall[block, head, list(sites.places(key))].sum().item() for key in sites.keys
                },
                moved=moved[block, head].item(),
                direct={name: shares[block][head] for name, shares in direct.items()},
                zero=alone.zero,
                mean=alone.mean,
            )
        )
    return found
