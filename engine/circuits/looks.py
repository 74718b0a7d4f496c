"""The looks that a circuit is made of: what a head looks at from where, and what it costs to cut that.

Shapes: N questions, T query position, S key position, H heads, L blocks, C kinds of sentence.
"""

import torch
from torch import Tensor

from engine.circuits.results import COST, WEIGHT, HeadLook
from engine.circuits.scoring import Outcomes, Questions
from engine.circuits.sites import ADJECTIVE, DECISION, FIRST, NOUNS, RELAYS, SECOND, Sites
from engine.circuits.trials import Trials
from engine.circuits.weights import mean_weights

SOUGHT = {DECISION: (*NOUNS, ADJECTIVE), ADJECTIVE: NOUNS, RELAYS: (*NOUNS, ADJECTIVE)}


def head_looks(trials: Trials, sites: Sites) -> list[HeadLook]:
    """Every look of ``SOUGHT`` that reaches ``WEIGHT``, cut; those that do not reach it cannot be part.

    Of those that are part, scores and values are set to their means one at a time as well.

    Raises ValueError: when an answer is neither noun of its sentence, or the mean logit difference is not
        above 0, so that there is no answer to lose.
    """
    questions, whole = trials.questions, trials.whole
    kinds = answer_kinds(questions, sites)
    if (at_stake := whole.score().logit_difference) <= 0:
        raise ValueError(
            f"the mean logit difference is {at_stake:.3f}; needed: above 0, or there is no answer to lose."
        )
    of_first = (questions.ids[:, sites.at(FIRST)] == questions.answers).long()
    by_kind = torch.stack(list(mean_weights(trials.captured, of_first).values()))
    tried = []
    for query, key in ((query, key) for query, keys in SOUGHT.items() for key in keys):
        weights = _largest(by_kind, sites, query, key)
        for block, head in (weights >= WEIGHT).nonzero().tolist():
            tried.append((block, head, query, key, weights[block, head].item()))
    edges = [sites.look(query, key, block, head) for block, head, query, key, _ in tried]
    cuts = trials.outcomes([trials.change(those, "cut") for those in edges])
    costs = [_lost(whole, cut, kinds) / at_stake for cut in cuts]
    of_part = [those for those, cost in zip(edges, costs, strict=True) if cost >= COST]
    patches = [trials.change(those, part) for those in of_part for part in ("pattern", "values")]
    left = iter(_lost(whole, one, kinds) / at_stake for one in trials.outcomes(patches))
    found = []
    for look, cut, cost in zip(tried, cuts, costs, strict=True):
        parts = (next(left), next(left)) if cost >= COST else (None, None)
        found.append(HeadLook(*look, cost, cut.score(), cost >= COST, *parts))
    return sorted(found, key=lambda look: (look.block, look.head))


def answer_kinds(questions: Questions, sites: Sites) -> dict[str, Tensor]:
    """Which questions the first noun answers and which the second; a kind without questions is left out.

    shape: (N,) of booleans each
    Raises ValueError: when an answer is not exactly one of its sentence's nouns.
    """
    kinds = {name: questions.ids[:, sites.at(name)] == questions.answers for name in NOUNS}
    if not (kinds[FIRST] ^ kinds[SECOND]).all():
        raise ValueError("an answer is not one of its sentence's two nouns; allowed: exactly one of them.")
    return {name: kind for name, kind in kinds.items() if kind.any()}


def _largest(by_kind: Tensor, sites: Sites, query: str, key: str) -> Tensor:
    """The largest mean weight on a look over its queries and the kinds. shape: (C, L, H, T, S) -> (L, H)"""
    seen = {at: [place for place in sites.places(key) if place < at] for at in sites.queries(query)}
    masses = [by_kind[..., at, places].sum(dim=-1) for at, places in seen.items()]
    return torch.stack(masses).amax(dim=(0, 1))


def _lost(whole: Outcomes, changed: Outcomes, kinds: dict[str, Tensor]) -> float:
    """What the kind of answer that loses most loses of its mean logit difference, in logits."""
    lost = (whole.differences - changed.differences).double()
    return max(lost[kind].mean().item() for kind in kinds.values())
