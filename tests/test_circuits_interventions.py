"""Interventions do what they say, by hand, at one place each, and refuse what is not there."""

from dataclasses import replace
from typing import get_args

import pytest
import torch

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
from engine.models.config import Connection
from tests.circuit_models import CONFIG, felt, sentences

pytestmark = pytest.mark.usefixtures("one_thread")

ALL_HEADS = frozenset(Head(block, head) for block in range(2) for head in range(3))


def cut(*edges):
    return CutEdges(frozenset(edges))


@pytest.fixture
def made():
    return felt()


@pytest.fixture
def ids():
    return sentences()


@pytest.fixture
def plain(made, ids):
    """The run that nothing is done to."""
    return run(made, ids)


@pytest.fixture
def source(made):
    """A run of other sentences."""
    return run(made, sentences(seed=2))


def test_nothing_done_is_nothing_changed(made, ids, plain):
    means = head_means(made, ids)
    for nothing in (Intervention(), ZeroHeads(frozenset()), MeanHeads(frozenset(), means), cut()):
        assert torch.equal(run(made, ids, [nothing]).logits, plain.logits)


def test_a_head_ablated_to_zero_is_one_whose_rows_of_w_o_are_zero(made, ids):
    ablated = run(made, ids, [ZeroHeads(frozenset([Head(0, 1), Head(1, 2)]))])
    assert (ablated.blocks[0].heads[:, 1] == 0).all()
    with torch.no_grad():
        made.blocks[0][0].sublayer.W_O.weight[:, 4:8] = 0
        made.blocks[1][0].sublayer.W_O.weight[:, 8:12] = 0
        torch.testing.assert_close(ablated.logits, made(ids))


def test_without_any_head_each_position_is_alone_with_its_bias(made, ids):
    changed = ids.clone()
    changed[:, 0] = (changed[:, 0] + 1) % 20
    ablated, again = (run(made, some, [ZeroHeads(ALL_HEADS)]) for some in (ids, changed))
    assert torch.equal(ablated.logits[:, 1:], again.logits[:, 1:])
    ran = ablated.blocks[0]
    torch.testing.assert_close(ran.attended, ran.before + made.blocks[0][0].sublayer.W_O.bias.detach())


def test_a_mean_ablated_head_adds_the_mean_of_its_position_in_every_sentence(made, ids, plain):
    ablated = run(made, ids, [MeanHeads(frozenset([Head(1, 0)]), head_means(made, ids))])
    expected = plain.blocks[1].heads.clone()
    expected[:, 0] = sum(plain.blocks[1].heads[n, 0] for n in range(4)) / 4
    torch.testing.assert_close(ablated.blocks[1].heads, expected)
    assert torch.equal(ablated.blocks[0].after, plain.blocks[0].after)
    # Over one sentence alone the mean is what the head adds anyway.
    one = ids[:1]
    same = run(made, one, [MeanHeads(ALL_HEADS, head_means(made, one))])
    torch.testing.assert_close(same.logits, run(made, one).logits)


def test_a_cut_edge_leaves_the_rest_of_its_row_in_proportion(made, ids, plain):
    changed = run(made, ids, [cut(Edge(5, 2, 0, 1))])
    before, after = plain.blocks[0].weights, changed.blocks[0].weights
    assert (after[:, 1, 5, 2] == 0).all()
    expected = before[:, 1, 5].clone()
    expected[:, 2] = 0
    torch.testing.assert_close(after[:, 1, 5], expected / (1 - before[:, 1, 5, 2:3]))
    others = torch.ones_like(before, dtype=torch.bool)
    others[:, 1, 5] = False
    assert torch.equal(before[others], after[others])
    assert torch.equal(plain.blocks[0].scores, changed.blocks[0].scores)  # what was raw stays raw
    assert torch.equal(plain.logits[:, :5], changed.logits[:, :5])
    assert not torch.allclose(plain.logits[:, 5], changed.logits[:, 5])
    # An edge without a head is cut in all of them, however they are given.
    each = [Edge(5, 2, 0, head) for head in range(3)]
    for edges in ([cut(*each)], [*map(cut, each)]):
        assert torch.equal(run(made, ids, edges).logits, run(made, ids, [cut(Edge(5, 2, 0))]).logits)


def of_each(ran, part):
    """What a run has of every block."""
    return tuple(getattr(block, part) for block in ran.blocks)


def test_a_patched_pattern_shares_the_row_out_anew_and_its_values_stay(made, ids, plain, source):
    edges = frozenset([Edge(5, 2, 0, 1)])
    patched = run(made, ids, [PatchPattern(edges, of_each(source, "scores"))]).blocks[0]
    scores = plain.blocks[0].scores[:, 1, 5, :6].clone()
    scores[:, 2] = source.blocks[0].scores[:, 1, 5, 2]
    torch.testing.assert_close(patched.weights[:, 1, 5, :6], scores.softmax(dim=-1))
    assert torch.equal(patched.values, plain.blocks[0].values)
    others = torch.ones_like(patched.weights, dtype=torch.bool)
    others[:, 1, 5] = False
    assert torch.equal(patched.weights[others], plain.blocks[0].weights[others])


def test_a_patched_value_flows_by_the_weights_that_there_are(made, ids, plain, source):
    edges = frozenset([Edge(5, 2, 0, 1)])
    patched = run(made, ids, [PatchValues(edges, of_each(source, "values"))]).blocks[0]
    before = plain.blocks[0]
    assert torch.equal(patched.weights, before.weights)
    moved = (source.blocks[0].values - before.values)[:, 1, 2] * before.weights[:, 1, 5, 2, None]
    W_O = made.blocks[0][0].sublayer.W_O.weight.detach()[:, 4:8]
    torch.testing.assert_close(patched.heads[:, 1, 5] - before.heads[:, 1, 5], moved @ W_O.T)
    kept = [head != 1 or query != 5 for head in range(3) for query in range(7)]
    assert torch.equal(patched.heads.flatten(1, 2)[:, kept], before.heads.flatten(1, 2)[:, kept])


def test_patching_pattern_and_values_of_a_row_is_patching_what_the_head_adds_there(made, ids, source):
    row = frozenset(Edge(5, key, 1, 2) for key in range(6))
    both = [PatchPattern(row, of_each(source, "scores")), PatchValues(row, of_each(source, "values"))]
    for order in (both, both[::-1]):
        found = run(made, ids, order).blocks[1].heads[:, 2, 5]
        torch.testing.assert_close(found, source.blocks[1].heads[:, 2, 5])


def test_patching_a_run_with_itself_changes_nothing(made, ids, plain):
    every = frozenset(
        Edge(query, key, block) for block in range(2) for query in range(7) for key in range(query + 1)
    )
    same = [PatchPattern(every, of_each(plain, "scores")), PatchValues(every, of_each(plain, "values"))]
    assert torch.equal(run(made, ids, same).logits, plain.logits)
    # The mean over one sentence is that sentence.
    one = run(made, ids[:1])
    mean = [PatchPattern(every, mean_of([one], "scores")), PatchValues(every, mean_of([one], "values"))]
    torch.testing.assert_close(run(made, ids[:1], mean).logits, one.logits)


def flows(edges, ran):
    """What flows along some looks of a run in every block, and what they leave to the rest."""
    return tuple(
        zip(*(flow(edges, at, one.weights, one.values) for at, one in enumerate(ran.blocks)), strict=True)
    )


def test_flow_and_rest_of_the_run_itself_change_nothing_and_those_of_another_only_their_rows(
    made, ids, source
):
    edges = frozenset([Edge(5, 2, 0, 1), Edge(5, 3, 0, 1), Edge(6, 2, 1)])
    plain = run(made, ids)
    for own, others in zip(flows(edges, plain), flows(edges, source), strict=True):
        patch = PatchFlow if own[0].ndim == 4 else PatchRest
        torch.testing.assert_close(run(made, ids, [patch(edges, own)]).logits, plain.logits)
        patched = run(made, ids, [patch(edges, others)])
        kept = [head != 1 or query != 5 for head in range(3) for query in range(7)]
        before, after = (one.blocks[0].heads.flatten(1, 2) for one in (plain, patched))
        assert torch.equal(before[:, kept], after[:, kept])
        assert not torch.allclose(before, after)
    assert flows(edges, plain)[1][0][0, 2, 5] == pytest.approx(1)  # a row without such a look is all rest


def test_flow_and_rest_are_all_that_a_changed_word_changes_in_the_first_block(made, ids):
    """Scores of the other keys stay: what the row then adds is that of the run with the other word."""
    changed = ids.clone()
    changed[:, 2] = (changed[:, 2] + 1) % 20
    edges, other = frozenset([Edge(5, 2, 0)]), run(made, changed)
    of_other = flows(edges, other)
    patched = run(made, ids, [PatchFlow(edges, of_other[0]), PatchRest(edges, of_other[1])])
    swapped = run(made, ids, [PatchRest(edges, of_other[1]), PatchFlow(edges, of_other[0])])
    for one in (patched, swapped):
        torch.testing.assert_close(one.blocks[0].heads[:, :, 5], other.blocks[0].heads[:, :, 5])


def test_the_mean_of_scores_and_values_is_over_all_sentences_whatever_the_portions(made, ids, plain):
    parts = [run(made, ids[:1]), run(made, ids[1:])]
    for part in ("scores", "values"):
        expected = [getattr(block, part).mean(dim=0, keepdim=True) for block in plain.blocks]
        torch.testing.assert_close(list(mean_of(parts, part)), expected)


@pytest.mark.parametrize("mixer", ["average", "matrix", "unmasked"])
def test_edges_are_cut_in_every_mixer(mixer):
    made, ids = felt(replace(CONFIG, mixer=mixer)), sentences()
    weights = run(made, ids, [cut(Edge(3, 1, 0))]).blocks[0].weights
    assert (weights[:, :, 3, 1] == 0).all()
    torch.testing.assert_close(weights.sum(dim=-1), torch.ones_like(weights[..., 0]))
    if mixer == "average":
        assert weights[0, 0, 3, :4].tolist() == pytest.approx([1 / 3, 0, 1 / 3, 1 / 3])


def test_a_row_may_not_lose_its_last_edge(made, ids):
    two_of_three = cut(*(Edge(2, key, 0, 1) for key in (0, 1)))
    with pytest.raises(ValueError, match="position 0 would see no key in head 0 of block 1"):
        run(made, ids, [cut(Edge(0, 0, 1))])
    with pytest.raises(ValueError, match="position 2 would see no key in head 1 of block 0"):
        run(made, ids, [two_of_three, cut(Edge(2, 2, 0, 1))])
    run(made, ids, [two_of_three])


@pytest.mark.parametrize("connection", get_args(Connection))
def test_another_run_put_in_everywhere_is_the_other_run(connection):
    made, ids, every = felt(replace(CONFIG, connection=connection)), sentences(), tuple(range(7))
    source = run(made, sentences(seed=2))
    assert not torch.allclose(run(made, ids).logits, source.logits)
    assert len(source.stream) == len(boundaries(made)) == 5
    for boundary, stream in enumerate(source.stream):
        patched = run(made, ids, [PatchResidual(boundary, every, stream)])
        torch.testing.assert_close(patched.logits, source.logits)
    heads = [PatchHeads(n, frozenset(range(3)), block.heads) for n, block in enumerate(source.blocks)]
    outputs = [PatchFeedForward(n, block.feed_forward) for n, block in enumerate(source.blocks)]
    patched = run(made, ids, [PatchResidual(0, every, source.embedding), *heads, *outputs])
    torch.testing.assert_close(patched.logits, source.logits)
    # A patch acts on what stands there, so the weights are those of the patched stream: the other run's too.
    torch.testing.assert_close(patched.blocks[1].weights, source.blocks[1].weights)


def test_a_patch_reaches_its_position_and_what_comes_after_only(made, ids, plain, source):
    patched = run(made, ids, [PatchResidual(1, (3,), source.stream[1])])
    assert torch.equal(patched.blocks[0].attended[:, 3], source.blocks[0].attended[:, 3])
    assert torch.equal(patched.logits[:, :3], plain.logits[:, :3])
    assert not torch.allclose(patched.logits[:, 3:], plain.logits[:, 3:])
    assert torch.equal(patched.embedding, plain.embedding)


def test_patched_heads_and_feed_forwards_add_what_they_added_elsewhere(made, ids, plain, source):
    patched = run(made, ids, [PatchHeads(0, frozenset([0, 2]), source.blocks[0].heads)])
    assert torch.equal(patched.blocks[0].heads[:, [0, 2]], source.blocks[0].heads[:, [0, 2]])
    assert torch.equal(patched.blocks[0].heads[:, 1], plain.blocks[0].heads[:, 1])
    written = source.blocks[1].feed_forward
    patched = run(made, ids, [PatchFeedForward(1, written)])
    assert torch.equal(patched.blocks[1].feed_forward, written)
    torch.testing.assert_close(patched.residual, plain.blocks[1].attended + written, rtol=0, atol=1e-12)


def test_the_last_of_two_at_one_place_is_what_counts(made, ids, source):
    put_in = PatchHeads(0, frozenset([1]), source.blocks[0].heads)
    taken_out = ZeroHeads(frozenset([Head(0, 1)]))
    assert (run(made, ids, [put_in, taken_out]).blocks[0].heads[:, 1] == 0).all()
    found = run(made, ids, [taken_out, put_in]).blocks[0].heads[:, 1]
    assert torch.equal(found, source.blocks[0].heads[:, 1])


STREAM = torch.zeros(4, 7, 12, dtype=torch.float64)
OUTPUTS = torch.zeros(4, 3, 7, 12, dtype=torch.float64)
SCORES = (torch.zeros(4, 3, 7, 7, dtype=torch.float64),) * 2


@pytest.mark.parametrize(
    ("intervention", "says"),
    [
        (ZeroHeads(frozenset([Head(2, 0)])), "block is 2; allowed: 0 to 1"),
        (ZeroHeads(frozenset([Head(0, 3)])), "head is 3; allowed: 0 to 2"),
        (ZeroHeads(frozenset([Head(0, -1)])), "head is -1; allowed: 0 to 2"),
        (MeanHeads(frozenset([Head(0, 0)]), OUTPUTS), r"means has shape \(4, 3, 7, 12\); this run needs"),
        (cut(Edge(7, 0, 0)), "query position is 7; allowed: 0 to 6"),
        (cut(Edge(3, -1, 0)), "key position is -1; allowed: 0 to 6"),
        (cut(Edge(3, 4, 0)), "key position is 4, ahead of its query"),
        (cut(Edge(3, 1, 5)), "block is 5; allowed: 0 to 1"),
        (cut(Edge(3, 1, 0, 3)), "head is 3; allowed: 0 to 2"),
        (PatchPattern(frozenset([Edge(3, 4, 0)]), SCORES), "key position is 4, ahead of its query"),
        (
            PatchPattern(frozenset([Edge(3, 1, 0)]), SCORES[:1]),
            "what PatchPattern is given is of 1 blocks; this run has 2",
        ),
        (
            PatchPattern(frozenset(), (SCORES[0][:2],) * 2),
            r"PatchPattern is given has shape \(2, 3, 7, 7\); this run needs",
        ),
        (PatchValues(frozenset([Edge(3, 1, 0, 3)]), SCORES), "head is 3; allowed: 0 to 2"),
        (PatchFlow(frozenset(), SCORES[:1]), "what PatchFlow is given is of 1 blocks; this run has 2"),
        (
            PatchRest(frozenset(), SCORES),
            r"PatchRest is given has shape \(4, 3, 7, 7\); this run needs \(4, 3, 7\)",
        ),
        (
            PatchValues(frozenset(), (SCORES[0][:, :, :5],) * 2),
            r"PatchValues is given has shape \(4, 3, 5, 7\)",
        ),
        (PatchResidual(5, (0,), STREAM), "boundary is 5; allowed: 0 to 4"),
        (PatchResidual(0, (0, 7), STREAM), "position is 7; allowed: 0 to 6"),
        (PatchResidual(0, (0,), STREAM[:2]), r"stream has shape \(2, 7, 12\); this run needs \(4, 7, 12\)"),
        (PatchHeads(0, frozenset([3]), OUTPUTS), "head is 3; allowed: 0 to 2"),
        (PatchHeads(0, frozenset([0]), OUTPUTS[:, :2]), "outputs has shape"),
        (PatchFeedForward(2, STREAM), "block is 2; allowed: 0 to 1"),
        (PatchFeedForward(0, STREAM[:, :3]), "output has shape"),
    ],
)
def test_what_is_not_there_is_refused(made, ids, intervention, says):
    with pytest.raises(ValueError, match=says):
        run(made, ids, [intervention])


@pytest.mark.parametrize(
    ("change", "intervention", "says"),
    [
        ({"d_ff": 0}, PatchFeedForward(0, STREAM), "d_ff is 0"),
        ({"n_layer": 0}, ZeroHeads(frozenset([Head(0, 0)])), "there are no blocks"),
        ({"mixer": "average"}, ZeroHeads(frozenset([Head(0, 1)])), "head is 1; allowed: 0 to 0"),
    ],
)
def test_a_model_without_the_part_refuses_a_change_of_it(ids, change, intervention, says):
    with pytest.raises(ValueError, match=says):
        run(felt(replace(CONFIG, **change)), ids, [intervention])


def test_without_a_mask_what_is_ahead_can_be_cut(ids):
    unmasked = felt(replace(CONFIG, mixer="unmasked"))
    assert (run(unmasked, ids, [cut(Edge(3, 4, 0))]).blocks[0].weights[:, :, 3, 4] == 0).all()
