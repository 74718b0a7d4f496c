"""Changed runs computed from one run as it is equal runs that are changed from their start, one by one."""

from dataclasses import replace

import pytest
import torch

from engine.circuits import trials
from engine.circuits.capture import boundaries, head_means, mean_of, run
from engine.circuits.edges import CutEdges, PatchFlow, PatchPattern, PatchRest, PatchValues, flow
from engine.circuits.interventions import (
    Intervention,
    MeanHeads,
    PatchFeedForward,
    PatchHeads,
    PatchResidual,
    ZeroHeads,
)
from engine.circuits.results import Edge, Head
from engine.circuits.scoring import Questions
from engine.circuits.trials import Trials, logits_of_each
from engine.models.transformer import Transformer
from tests.circuit_models import CONFIG, outcomes, sentences

pytestmark = pytest.mark.usefixtures("one_thread")

PLACES = (3, 6)
MODELS = {
    "pre-norm": {},
    "post-norm": {"connection": "post-norm"},
    "rope, no feed-forward": {"positions": "rope", "d_ff": 0},
    "alibi, three blocks": {"positions": "alibi", "n_layer": 3},
    "average": {"mixer": "average", "connection": "add", "d_ff": 0},
    "unmasked": {"mixer": "unmasked"},
}


def made(change):
    torch.manual_seed(0)
    config = replace(CONFIG, vocab_size=11, d_model=16, n_head=2, d_ff=32, max_positions=8)
    return Transformer(replace(config, **change)).eval()


def cases_of(model, ids):
    """One of every kind of change, at every block and boundary, alone and together."""
    other = run(model, ids.flip(0))
    heads = 1 if model.config.mixer == "average" else 2
    found: list[list[Intervention]] = [[]]
    for block in range(model.config.n_layer):
        zero = ZeroHeads(frozenset([Head(block, heads - 1)]))
        cut = CutEdges(frozenset([Edge(3, 1, block), Edge(6, 2, block, 0)]))
        found += [[zero], [cut], [cut, zero], [MeanHeads(zero.heads, head_means(model, ids))]]
        found.append([PatchHeads(block, frozenset([0]), other.blocks[block].heads)])
        if model.config.d_ff:
            found.append([PatchFeedForward(block, other.blocks[block].feed_forward)])
        pattern, values = (
            patch(cut.edges, tuple(getattr(one, part) for one in other.blocks))
            for patch, part in ((PatchPattern, "scores"), (PatchValues, "values"))
        )
        mean = PatchValues(cut.edges, mean_of([other], "values"))
        found += [[values], [mean], [values, zero]]
        of_blocks = [flow(cut.edges, at, one.weights, one.values) for at, one in enumerate(other.blocks)]
        flows, rests = (tuple(part) for part in zip(*of_blocks, strict=True))
        found += [[PatchFlow(cut.edges, flows)], [PatchRest(cut.edges, rests), zero]]
        if model.config.mixer != "average":  # its scores are the same in every run
            found += [[pattern], [pattern, values], [cut, pattern]]
    for boundary in range(len(boundaries(model))):
        found.append([PatchResidual(boundary, (2, 6), other.stream[boundary])])
    every = [change for case in found[1:] for change in case]
    return [*found, every]


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("at_once", [1, 100_000])
def test_many_at_once_equal_one_by_one(name, at_once, monkeypatch):
    monkeypatch.setattr(trials, "TOKENS_AT_ONCE", at_once)
    model, ids = made(MODELS[name]), sentences(5, vocab_size=11)
    cases = cases_of(model, ids)
    together = logits_of_each(model, run(model, ids), PLACES, cases)
    assert together.shape == (len(cases), 5, len(PLACES), 11)
    for case, found in zip(cases, together, strict=True):
        alone = run(model, ids, case).logits[:, list(PLACES)]
        torch.testing.assert_close(found, alone, rtol=1e-5, atol=1e-5)
    apart = (together[1:] - together[0]).abs().flatten(1).amax(dim=1)
    assert (apart > 1e-4).all(), "every case changes something, or it would prove nothing"


def test_answers_in_portions_equal_those_of_the_whole(monkeypatch):
    model, ids = made({}), sentences(9, vocab_size=10) + 1
    asked = Questions(ids, 6, torch.zeros(9, dtype=torch.long), torch.ones(9, dtype=torch.long))
    monkeypatch.setattr("engine.circuits.capture.TOKENS_A_BATCH", 21)
    cases = cases_of(model, ids)
    tried = Trials(model, asked)
    assert len(tried.captured) == 3
    for case, found in zip(cases, tried.outcomes(cases), strict=True):
        alone = outcomes(model, asked, case)
        torch.testing.assert_close(found.differences, alone.differences, rtol=1e-5, atol=1e-5)
    nothing, whole = tried.scores([[]])[0], tried.whole.score()
    assert nothing.logit_difference == pytest.approx(whole.logit_difference, abs=1e-5)
    assert nothing.accuracy == whole.accuracy
    torch.testing.assert_close(tried.head_means(), head_means(model, ids))


def test_what_no_run_allows_is_refused_for_all_of_them():
    model, ids = made({}), torch.zeros(1, 7, dtype=torch.long)
    for wrong, says in (
        (ZeroHeads(frozenset([Head(2, 0)])), "the block is 2; allowed: 0 to 1"),
        (CutEdges(frozenset([Edge(0, 0, 0, 1)])), "position 0 would see no key in head 1 of block 0"),
    ):
        with pytest.raises(ValueError, match=says):
            logits_of_each(model, run(model, ids), PLACES, [[], [wrong]])
