"""Scores, patching, attribution and the lens: by hand, and by the identities that they must obey."""

import json
import math
from dataclasses import asdict, replace
from typing import get_args

import pytest
import torch

from engine.circuits import lens
from engine.circuits.attribution import attribution
from engine.circuits.capture import head_means, run
from engine.circuits.interventions import (
    CutEdges,
    MeanHeads,
    PatchFeedForward,
    PatchHeads,
    PatchResidual,
    ZeroHeads,
)
from engine.circuits.patching import Pairs, patched
from engine.circuits.results import Edge, Head
from engine.circuits.scoring import Questions, outcomes_of
from engine.circuits.trials import Trials
from engine.models.config import Connection, Positions
from engine.models.transformer import Transformer
from tests.circuit_models import CONFIG, DECISION, OF_SECOND, closed_questions, outcomes, route_model

pytestmark = pytest.mark.usefixtures("one_thread")

VARIANTS = {
    **{connection: replace(CONFIG, connection=connection) for connection in get_args(Connection)},
    **{
        f"{connection}, attention only": replace(CONFIG, connection=connection, d_ff=0)
        for connection in get_args(Connection)
    },
    **{scheme: replace(CONFIG, positions=scheme) for scheme in get_args(Positions)},
    "no W_O": replace(CONFIG, output_projection=False),
    "no biases": replace(CONFIG, output_bias=False, unembedding_bias=False),
    "tied": replace(CONFIG, tied=True, unembedding_bias=False),
    "average": replace(CONFIG, mixer="average"),
    "unmasked": replace(CONFIG, mixer="unmasked"),
}
LENGTH, DECIDES = 7, 5


def model(config=CONFIG, dtype=torch.float64, seed=0):
    torch.manual_seed(seed)
    made = Transformer(config).to(dtype).eval()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return made


def questions(count=6, seed=1, decision=DECIDES):
    draw = torch.Generator().manual_seed(seed)
    ids = torch.randint(20, (count, LENGTH), generator=draw)
    answers = torch.randint(20, (count,), generator=draw)
    return Questions(ids, decision, answers, (answers + 1 + torch.arange(count)) % 20)


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
    built, asked = route_model("carry, then read"), closed_questions()
    assert outcomes(built, asked).score().accuracy == 1
    # Block 2's look at the adjective is what says that the first noun stays.
    without = outcomes(built, asked, [CutEdges(frozenset([Edge(DECISION, 5, 1)]))]).score()
    assert (without.accuracy, without.wrong, without.other) == (0.5, 0.5, 0)
    meant = torch.isin(asked.ids[:, 5], torch.tensor(OF_SECOND))
    assert torch.equal(outcomes(built, asked, [CutEdges(frozenset([Edge(DECISION, 5, 1)]))]).right, meant)


def interventions(made, asked):
    source = run(made, corrupted(asked))
    return [
        ZeroHeads(frozenset([Head(0, 0)])),
        MeanHeads(frozenset([Head(0, 1)]), head_means(made, asked.ids)),
        CutEdges(frozenset([Edge(5, 1, 1)])),
        PatchResidual(1, (3,), source.stream[1]),
        PatchHeads(0, frozenset([2]), source.blocks[0].heads),
        PatchFeedForward(1, source.blocks[1].feed_forward),
    ]


def test_portions_change_nothing(monkeypatch):
    made, asked = model(), questions(count=7)
    changes = interventions(made, asked)
    tried, shares = Trials(made, asked), attribution(made, asked)
    whole = tried.outcomes([changes])[0]
    looked = lens.layers(tried)
    monkeypatch.setattr("engine.circuits.capture.TOKENS_A_BATCH", 3 * LENGTH)
    parts = Trials(made, asked).outcomes([changes])[0]
    torch.testing.assert_close(whole.differences, parts.differences)
    assert torch.equal(whole.right, parts.right)
    again = attribution(made, asked)
    assert again.rest == pytest.approx(shares.rest)
    assert again.heads[1] == pytest.approx(shares.heads[1])
    for first, second in zip(looked, lens.layers(Trials(made, asked)), strict=True):
        assert first.score.logit_difference == pytest.approx(second.score.logit_difference)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"ids": torch.zeros(6, dtype=torch.long)}, r"ids have shape \(6,\)"),
        (
            {"answers": torch.zeros(5, dtype=torch.long)},
            r"answers have shape \(5,\); 6 sentences need \(6,\)",
        ),
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
    made, asked = model(VARIANTS[name]), questions()
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
    made, asked = model(), questions()
    found = patched(Pairs(made, asked, corrupted(asked, place=2)))
    assert [len(row) for row in found.residual] == [DECIDES + 1] * 5
    for row, place in ((found.residual[0], 2), (found.residual[-1], DECIDES)):
        assert row == pytest.approx([float(at == place) for at in range(DECIDES + 1)], abs=1e-9)
    assert all(row[:2] == pytest.approx([0, 0], abs=1e-9) for row in found.residual)
    assert (len(found.heads), len(found.heads[0]), len(found.feed_forwards)) == (2, 3, 2)
    assert json.loads(json.dumps(asdict(found), allow_nan=False)) == asdict(found)
    bare = model(replace(CONFIG, d_ff=0))
    assert patched(Pairs(bare, asked, corrupted(asked))).feed_forwards == []


def test_the_map_of_a_built_model_shows_where_its_answer_is_made():
    """Read, then fetch: the adjective's place, then the decision's, and head 0.0 brings it there."""
    built, asked = route_model("read, then fetch"), closed_questions()
    one = asked.chosen(torch.arange(len(asked)) == 0)  # x = 0, y = 1, an adjective that means x
    other = one.ids.clone()
    other[0, 5] = OF_SECOND[0]
    found = patched(Pairs(built, one, other))
    assert found.clean == pytest.approx(10)
    assert found.corrupted == pytest.approx(-10)
    at = lambda place: [float(t == place) for t in range(DECISION + 1)]  # noqa: E731
    assert found.residual[0] == pytest.approx(at(5), abs=1e-9)
    assert found.residual[1] == pytest.approx(at(DECISION), abs=1e-9)
    assert found.heads == [pytest.approx([1, 0], abs=1e-9), pytest.approx([1, 0], abs=1e-9)]


def test_pairs_that_cannot_be_compared_are_refused():
    made, asked = model(), questions()
    with pytest.raises(ValueError, match=r"shape \(6, 6\), the clean ones \(6, 7\)"):
        Pairs(made, asked, asked.ids[:, :6])
    with pytest.raises(ValueError, match="pair 0 differs in 0 words"):
        Pairs(made, asked, asked.ids)
    twice = corrupted(replace(asked, ids=corrupted(asked)), place=3)
    with pytest.raises(ValueError, match="pair 0 differs in 2 words"):
        Pairs(made, asked, twice)
    with pytest.raises(ValueError, match="differs in 0 words up to the decision"):
        Pairs(made, asked, corrupted(asked, place=6))
    with torch.no_grad():
        made.unembedding.weight.zero_()
    with pytest.raises(ValueError, match="nothing to restore"):
        Pairs(made, asked, corrupted(asked))


# Attribution


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize(("dtype", "near"), [(torch.float32, 1e-4), (torch.float64, 1e-11)])
def test_the_parts_sum_to_the_logit_difference(name, dtype, near):
    made, asked = model(VARIANTS[name], dtype), questions()
    found = attribution(made, asked)
    assert found.total == pytest.approx(found.logit_difference, abs=near)
    assert found.logit_difference == pytest.approx(outcomes(made, asked).score().logit_difference, abs=near)
    if name.startswith("replace, attention"):
        assert found.embedding == 0
    assert json.loads(json.dumps(asdict(found), allow_nan=False)) == asdict(found)


def test_attribution_by_hand():
    """One sentence, every part's own product, through a final norm whose scale is written out."""
    made = model()
    asked = questions(count=1)
    found, captured = attribution(made, asked), run(made, asked.ids)
    x = captured.residual[0, DECIDES].tolist()
    mean = sum(x) / 12
    deviation = math.sqrt(sum((number - mean) ** 2 for number in x) / 12 + 1e-5)
    answer, other = int(asked.answers[0]), int(asked.others[0])
    U, gain = made.unembedding.weight.tolist(), made.final_norm.weight.tolist()
    towards = [U[answer][d] - U[other][d] for d in range(12)]

    def share(part):
        part = part.tolist()
        middle = sum(part) / 12
        return sum((part[d] - middle) / deviation * gain[d] * towards[d] for d in range(12))

    assert found.embedding == pytest.approx(share(captured.embedding[0, DECIDES]))
    for block, ran in enumerate(captured.blocks):
        heads = [share(ran.heads[0, head, DECIDES]) for head in range(3)]
        assert found.heads[block] == pytest.approx(heads)
        assert found.output_biases[block] == pytest.approx(share(ran.output_bias))
        assert found.feed_forwards[block] == pytest.approx(share(ran.feed_forward[0, DECIDES]))
    bias, of_norm = made.unembedding.bias.tolist(), made.final_norm.bias.tolist()
    rest = bias[answer] - bias[other] + sum(of_norm[d] * towards[d] for d in range(12))
    assert found.rest == pytest.approx(rest)


def test_a_built_model_owes_its_answer_to_the_heads_that_write_it():
    asked = closed_questions()
    found = attribution(route_model("carry, then read"), asked)
    # The carried noun: +10 where it is meant, -10 where it is not. The fetched one: +30 where it is meant.
    assert found.heads == [pytest.approx([0, 0], abs=1e-9), pytest.approx([15, 0])]
    first = asked.chosen(~torch.isin(asked.ids[:, 5], torch.tensor(OF_SECOND)))
    alone = attribution(route_model("carry, then read"), first)
    assert alone.heads == [pytest.approx([10, 0]), pytest.approx([0, 0], abs=1e-9)]
    assert (alone.embedding, alone.rest, alone.output_biases, alone.feed_forwards) == (0, 0, [0, 0], [0, 0])


# The lens


@pytest.mark.parametrize("name", VARIANTS)
def test_the_last_layer_of_the_lens_is_the_model(name):
    made, asked = model(VARIANTS[name]), questions()
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
    made, asked = model(), questions(count=2)
    shares, likeliest = lens.likeliest(made, asked.ids, DECIDES, 3)
    expected = run(made, asked.ids).logits[:, DECIDES].softmax(dim=-1).topk(3)
    assert torch.equal(likeliest[:, -1], expected.indices)
    torch.testing.assert_close(shares[:, -1], expected.values)
    assert lens.likeliest(made, asked.ids, 0, 99)[1].shape == (2, 5, 20)
    with pytest.raises(ValueError, match="position is 7; allowed: 0 to 6"):
        lens.likeliest(made, asked.ids, 7, 3)


def test_the_lens_sees_the_carried_noun_before_the_answer():
    asked = closed_questions()
    found = lens.layers(Trials(route_model("carry, then read"), asked))
    assert [layer.score.accuracy for layer in found] == [0.25, 0.5, 1.0]
    assert [layer.score.wrong for layer in found] == [0.25, 0.5, 0.0]
