"""Scores, patching, attribution and the lens: by hand, and by the identities that they must obey."""

import json
from dataclasses import asdict, replace
from typing import get_args

import pytest
import torch

from engine.circuits import lens
from engine.circuits.attribution import attribution
from engine.circuits.capture import head_means, run
from engine.circuits.edges import CutEdges
from engine.circuits.interventions import MeanHeads, PatchFeedForward, PatchHeads, PatchResidual, ZeroHeads
from engine.circuits.patching import Pairs, patched
from engine.circuits.results import Edge, Head
from engine.circuits.scoring import Questions, outcomes_of
from engine.circuits.trials import Trials
from engine.models.config import Connection, Positions
from tests.circuit_models import (
    CONFIG,
    DECISION,
    OF_SECOND,
    closed_questions,
    felt,
    outcomes,
    route_model,
    sentences,
)

pytestmark = pytest.mark.usefixtures("one_thread")

VARIANTS = {
    **{connection: replace(CONFIG, connection=connection) for connection in get_args(Connection)},
    **{f"{name}, attention only": replace(CONFIG, connection=name, d_ff=0) for name in get_args(Connection)},
    **{scheme: replace(CONFIG, positions=scheme) for scheme in get_args(Positions)},
    "no W_O": replace(CONFIG, output_projection=False),
    "no biases": replace(CONFIG, output_bias=False, unembedding_bias=False),
    "tied": replace(CONFIG, tied=True, unembedding_bias=False),
    "average": replace(CONFIG, mixer="average"),
    "unmasked": replace(CONFIG, mixer="unmasked"),
}
LENGTH, DECIDES = 7, 5


def questions(count=6):
    ids = sentences(count, LENGTH)
    answers = sentences(1, count, seed=2)[0]
    return Questions(ids, DECIDES, answers, (answers + 1 + torch.arange(count)) % 20)


def corrupted(asked, place=2):
    ids = asked.ids.clone()
    ids[:, place] = (ids[:, place] + 3) % 20
    return ids


# Scores


def test_shares_and_logit_difference_by_hand():
    logits = torch.tensor([[3.0, 1, 0], [3, 1, 0], [0, 1, 5], [2, 4, 0]])
    found = outcomes_of(logits, torch.tensor([0, 1, 1, 1]), torch.tensor([1, 0, 0, 2]))
    scored = found.score()
    assert (scored.accuracy, scored.wrong, scored.other, scored.count) == (0.5, 0.25, 0.25, 4)
    assert scored.logit_difference == pytest.approx((2 - 2 + 1 + 4) / 4)
    part = found.score(torch.tensor([True, True, False, False]))
    assert (part.accuracy, part.wrong, part.other, part.count, part.logit_difference) == (0.5, 0.5, 0, 2, 0)
    with pytest.raises(ValueError, match="no question is chosen"):
        found.score(torch.zeros(4, dtype=torch.bool))


def test_a_built_model_is_right_and_a_cut_edge_flips_its_answer():
    built, asked = route_model("nouns, then adjective"), closed_questions()
    assert outcomes(built, asked).score().accuracy == 1
    # Block 2's look at the adjective is what says that the first noun stays.
    found = outcomes(built, asked, [CutEdges(frozenset([Edge(DECISION, 5, 1)]))])
    without = found.score()
    assert (without.accuracy, without.wrong, without.other) == (0.5, 0.5, 0)
    assert torch.equal(found.right, torch.isin(asked.ids[:, 5], torch.tensor(OF_SECOND)))


def test_portions_change_nothing(monkeypatch):
    made, asked = felt(), questions(count=7)
    source = run(made, corrupted(asked))
    changes = [
        ZeroHeads(frozenset([Head(0, 0)])),
        MeanHeads(frozenset([Head(0, 1)]), head_means(made, asked.ids)),
        CutEdges(frozenset([Edge(5, 1, 1)])),
        PatchResidual(1, (3,), source.stream[1]),
        PatchHeads(0, frozenset([2]), source.blocks[0].heads),
        PatchFeedForward(1, source.blocks[1].feed_forward),
    ]

    def computed():
        tried, shares = Trials(made, asked), attribution(made, asked)
        (answered,), layers = tried.outcomes([changes]), lens.layers(tried)
        looked = [layer.score.logit_difference for layer in layers]
        numbers = [*answered.differences.tolist(), *shares.heads[1], shares.rest, *looked]
        return numbers, answered.right.tolist()

    whole, right = computed()
    monkeypatch.setattr("engine.circuits.capture.TOKENS_A_BATCH", 3 * LENGTH)
    assert computed() == (pytest.approx(whole), right)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"ids": torch.zeros(6, dtype=torch.long)}, r"ids have shape \(6,\)"),
        ({"answers": torch.zeros(5, dtype=torch.long)}, r"answers have shape \(5,\); 6 sentences need"),
        ({"decision": 7}, "at position 7; allowed: 0 to 6"),
        ({"decision": -1}, "at position -1; allowed: 0 to 6"),
        ({"others": questions().answers}, "one token as answer and as other"),
    ],
)
def test_questions_that_cannot_be_scored_are_refused(changes, says):
    with pytest.raises(ValueError, match=says):
        replace(questions(), **changes)


# Patching


@pytest.mark.parametrize("name", VARIANTS)
def test_patching_everything_restores_all_and_nothing_none(name):
    made, asked = felt(VARIANTS[name]), questions()
    pairs = Pairs(made, asked, corrupted(asked))
    assert pairs.restored([])[0] == pytest.approx(0, abs=1e-9)
    every = tuple(range(LENGTH))
    for boundary, stream in enumerate(pairs.source.stream):
        assert pairs.restored([PatchResidual(boundary, every, stream)])[0] == pytest.approx(1, abs=1e-9)
    parts = [PatchResidual(0, every, pairs.source.embedding)]
    for number, block in enumerate(pairs.source.blocks):
        parts.append(PatchHeads(number, frozenset(range(block.heads.shape[1])), block.heads))
        if block.feed_forward is not None:
            parts.append(PatchFeedForward(number, block.feed_forward))
    assert pairs.restored(parts)[0] == pytest.approx(1, abs=1e-9)
    own = run(made, corrupted(asked))  # its own values put in again are no change
    itself = [PatchHeads(0, frozenset([0]), own.blocks[0].heads), PatchResidual(1, every, own.stream[1])]
    assert pairs.restored(itself)[0] == pytest.approx(0, abs=1e-9)


def test_the_map_begins_at_the_changed_word_and_ends_at_the_decision():
    made, asked = felt(), questions()
    found = patched(Pairs(made, asked, corrupted(asked, place=2)))
    assert [len(row) for row in found.residual] == [DECIDES + 1] * 5
    assert found.residual[0] == only_at(2, DECIDES)
    assert found.residual[-1] == only_at(DECIDES, DECIDES)
    assert all(row[:2] == pytest.approx([0, 0], abs=1e-9) for row in found.residual)
    assert (len(found.heads), len(found.heads[0]), len(found.feed_forwards)) == (2, 3, 2)
    assert json.loads(json.dumps(asdict(found), allow_nan=False)) == asdict(found)
    bare = felt(replace(CONFIG, d_ff=0))
    assert patched(Pairs(bare, asked, corrupted(asked))).feed_forwards == []


def only_at(place, last):
    return pytest.approx([float(t == place) for t in range(last + 1)], abs=1e-9)


def test_the_map_of_a_built_model_shows_where_its_answer_is_made():
    """Read, then fetch: the adjective's place, then the decision's, and head 0.0 brings it there."""
    built, asked = route_model("adjective, then nouns"), closed_questions()
    one = asked.chosen(torch.arange(len(asked)) == 0)  # x = 0, y = 1, an adjective that means x
    other = one.ids.clone()
    other[0, 5] = OF_SECOND[0]
    found = patched(Pairs(built, one, other))
    assert [found.clean, found.corrupted] == pytest.approx([10, -10])
    assert found.residual[:2] == [only_at(5, DECISION), only_at(DECISION, DECISION)]
    assert found.heads == [pytest.approx([1, 0], abs=1e-9)] * 2


def test_pairs_that_cannot_be_compared_are_refused():
    made, asked = felt(), questions()
    twice = corrupted(replace(asked, ids=corrupted(asked)), place=3)
    for ids, says in (
        (asked.ids[:, :6], r"shape \(6, 6\), the clean ones \(6, 7\)"),
        (asked.ids, "pair 0 differs in 0 words"),
        (twice, "pair 0 differs in 2 words"),
        (corrupted(asked, place=6), "differs in 0 words up to the decision"),
    ):
        with pytest.raises(ValueError, match=says):
            Pairs(made, asked, ids)
    with torch.no_grad():
        made.unembedding.weight.zero_()
    with pytest.raises(ValueError, match="nothing to restore"):
        Pairs(made, asked, corrupted(asked))


# Attribution


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize(("dtype", "near"), [(torch.float32, 1e-4), (torch.float64, 1e-11)])
def test_the_parts_sum_to_the_logit_difference(name, dtype, near):
    made, asked = felt(VARIANTS[name], dtype), questions()
    found = attribution(made, asked)
    assert found.total == pytest.approx(found.logit_difference, abs=near)
    assert found.logit_difference == pytest.approx(outcomes(made, asked).score().logit_difference, abs=near)
    if name.startswith("replace, attention"):
        assert found.embedding == 0
    assert json.loads(json.dumps(asdict(found), allow_nan=False)) == asdict(found)


def test_attribution_by_hand():
    """One sentence, every part's own product, through a final norm whose scale is written out."""
    made, asked = felt(), questions(count=1)
    found, captured = attribution(made, asked), run(made, asked.ids)
    deviation = (captured.residual[0, DECIDES].var(correction=0) + 1e-5).sqrt()
    (answer,), (other,) = asked.answers.tolist(), asked.others.tolist()
    U, bias, norm = made.unembedding.weight, made.unembedding.bias, made.final_norm
    towards = (U[answer] - U[other]).detach()

    def share(part):
        at_decision = part[0, DECIDES] if part.dim() == 3 else part
        scaled = (at_decision - at_decision.mean()) / deviation * norm.weight
        return pytest.approx((scaled @ towards).item())

    assert found.embedding == share(captured.embedding)
    for block, ran in enumerate(captured.blocks):
        assert found.heads[block] == [share(ran.heads[:, head]) for head in range(3)]
        assert found.output_biases[block] == share(ran.output_bias)
        assert found.feed_forwards[block] == share(ran.feed_forward)
    assert found.rest == pytest.approx((bias[answer] - bias[other] + norm.bias @ towards).item())


def test_a_built_model_owes_its_answer_to_the_heads_that_write_it():
    asked = closed_questions()
    found = attribution(route_model("nouns, then adjective"), asked)
    # The carried noun: +10 where it is meant, -10 where it is not. The fetched one: +30 where it is meant.
    assert found.heads == [pytest.approx([0, 0], abs=1e-9), pytest.approx([15, 0])]
    first = asked.chosen(~torch.isin(asked.ids[:, 5], torch.tensor(OF_SECOND)))
    alone = attribution(route_model("nouns, then adjective"), first)
    assert alone.heads == [pytest.approx([10, 0]), pytest.approx([0, 0], abs=1e-9)]
    assert (alone.embedding, alone.rest, alone.output_biases, alone.feed_forwards) == (0, 0, [0, 0], [0, 0])


# The lens


@pytest.mark.parametrize("name", VARIANTS)
def test_the_last_layer_of_the_lens_is_the_model(name):
    made, asked = felt(VARIANTS[name]), questions()
    captured = run(made, asked.ids)
    found = lens.logits(made, captured, DECIDES)
    torch.testing.assert_close(found[-1], captured.logits[:, DECIDES])
    with torch.no_grad():
        first = made.unembedding(made.final_norm(captured.embedding[:, DECIDES]))
    torch.testing.assert_close(found[0], first)
    layers = lens.layers(Trials(made, asked))
    assert asdict(layers[-1].score) == pytest.approx(asdict(outcomes(made, asked).score()))
    assert layers[0].boundary == "embedding"
    assert len(layers) == len(captured.stream)


def test_the_likeliest_tokens_of_each_sentence():
    made, asked = felt(), questions(count=2)
    shares, likeliest = lens.likeliest(made, asked.ids, DECIDES, 3)
    expected = run(made, asked.ids).logits[:, DECIDES].softmax(dim=-1).topk(3)
    assert torch.equal(likeliest[:, -1], expected.indices)
    torch.testing.assert_close(shares[:, -1], expected.values)
    assert lens.likeliest(made, asked.ids, 0, 99)[1].shape == (2, 5, 20)
    with pytest.raises(ValueError, match="position is 7; allowed: 0 to 6"):
        lens.likeliest(made, asked.ids, 7, 3)


def test_the_lens_sees_the_carried_noun_before_the_answer():
    asked = closed_questions()
    found = lens.layers(Trials(route_model("nouns, then adjective"), asked))
    assert [layer.score.accuracy for layer in found] == [0.25, 0.5, 1.0]
    assert [layer.score.wrong for layer in found] == [0.25, 0.5, 0.0]
