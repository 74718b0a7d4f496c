"""Whether induction heads read what previous-token heads wrote, and by which of their inputs: paths patched.

Shapes: B sequences, T query position, S key position, H heads, L blocks.
"""

from pathlib import Path

import torch

from engine.circuits.capture import Captured, mean_heads, run
from engine.circuits.composition import patch_path
from engine.circuits.induction import followers, head_scores, pair_of, partners_of
from engine.circuits.results import INPUTS, Head
from engine.data.languages.induction import INDUCTION
from engine.probes.induction import SCORED, unseen
from engine.probes.models import trained
from engine.probes.results.induction import Composition, Patched


def compose(weights: Path, seed: int = 0) -> Composition:
    """The direct paths from earlier heads into queries, keys and values of the induction heads, patched.

    Along a path flows what the senders add on average at each position. seed: of the sequences.
    Raises InvalidInput: as ``induction.ablate``.
    """
    model = trained(weights)
    rows = torch.from_numpy(unseen(model, seed)[:SCORED])
    ids, wanted = rows[:, :-1], rows[:, 1:][:, INDUCTION.known_all]
    captured, scores, after = run(model, ids), head_scores(model, ids), followers(ids)
    pair, (previous, matching) = pair_of(scores), partners_of(scores)
    receivers = [head for head in matching if pair and head.block == pair[1].block]

    def measured(ran: Captured) -> tuple[float, list[float]]:
        right = ran.logits[:, INDUCTION.known_all].argmax(dim=-1) == wanted
        rows = (ran.blocks[head.block].weights[:, head.head] for head in receivers)
        queries = after.any(dim=-1).sum()
        return right.double().mean().item(), [((row * after).sum() / queries).item() for row in rows]

    def patched(senders: list[Head]) -> list[Patched]:
        means = mean_heads([captured])[:, None]
        paths = (patch_path(model, captured, senders, means, receivers, [name]) for name in INPUTS)
        return [
            Patched(name, senders, *measured(run(model, ids, [path])))
            for name, path in zip(INPUTS, paths, strict=True)
        ]

    before = [head for head in scores.heads if pair and head.block < pair[1].block]
    senders, others = ([head for head in before if (head in previous) is role] for role in (True, False))
    accuracy, prefix_matching = measured(captured)
    return Composition(
        pair=pair,
        receivers=receivers,
        accuracy=accuracy,
        matching=prefix_matching,
        paths=patched(senders) if senders else [],
        controls=patched(others) if others else [],
        sequences=len(ids),
    )
