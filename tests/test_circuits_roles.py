"""Roles and routes: found in circuits built to have them, consistent with ablations in trained ones."""

import json
from dataclasses import asdict, replace
from typing import get_args

import pytest
import torch

from engine.circuits.capture import head_means, mean_of, run
from engine.circuits.edges import CutEdges, PatchPattern, PatchValues
from engine.circuits.first_block import scores_under_change
from engine.circuits.interventions import MeanHeads, ZeroHeads
from engine.circuits.looks import answer_kinds, head_looks
from engine.circuits.results import COST, DROPPED, KEPT, WEIGHT, Edge, Head
from engine.circuits.roles import find_roles
from engine.circuits.routes import CHANNELS, MIXED, NONE_FOUND, ROUTES, SEVERAL, find_route
from engine.circuits.sites import ADJECTIVE, DECISION, FIRST, RELAYS, SECOND, Sites
from engine.circuits.trials import Trials
from engine.circuits.weights import largest_shift, mean_weights
from engine.models.config import Connection, Mixer
from engine.models.transformer import Transformer
from engine.probes.winograd import Subject
from engine.training import checkpoint
from tests.circuit_models import (
    BUILT,
    CONFIG,
    NAMES,
    OF_FIRST,
    SHARP,
    close,
    closed_questions,
    outcomes,
    route_model,
)
from tests.winograd_models import SEED, SMALL

pytestmark = pytest.mark.usefixtures("one_thread")

ASKED = closed_questions()
TRAINED_NAMES_AT = {FIRST: 1, SECOND: 6, ADJECTIVE: 11}
TRAINED_NAMES = {place: name for name, place in TRAINED_NAMES_AT.items()} | dict.fromkeys((0, 5, 14), "the")
READ, GATED = "adjective, then nouns", "nouns, then adjective"
TEMPLATE = Sites.of(TRAINED_NAMES, 14)
ALL_HEADS = {Head(block, head) for block in range(2) for head in range(4)}


@pytest.fixture(scope="module")
def trained(weights):
    """A model that learned a Winograd language, its sentences, and what is found in it."""
    subject = Subject(checkpoint.load_model(weights["two-blocks"])[0], SMALL, SEED)
    model, asked = subject.model, subject.questions
    assert outcomes(model, asked).score().accuracy >= KEPT
    tried = Trials(model, asked)
    return model, asked, find_roles(tried, TRAINED_NAMES), find_route(tried, TRAINED_NAMES)


# Built circuits


CARRIERS_AND_READERS = {
    "nouns, then adjective": ({Head(0, 0), Head(1, 0)}, {Head(1, 0)}),
    "adjective, then nouns": ({Head(1, 0)}, {Head(0, 0)}),
    "gather at the adjective": ({Head(0, 0)}, {Head(1, 0)}),
    "through other words": ({Head(0, 0), Head(1, 1)}, {Head(1, 0)}),
    "block 1 alone": ({Head(0, 0), Head(0, 1)}, {Head(0, 0)}),
    "block 2 alone": ({Head(1, 0), Head(1, 1)}, {Head(1, 0)}),
}


@pytest.mark.parametrize("route", BUILT)
def test_a_built_route_is_found_under_its_name_and_its_heads_have_their_roles(route):
    tried = Trials(route_model(route), ASKED)
    verdict, found = find_route(tried, NAMES), find_roles(tried, NAMES)
    assert (verdict.route, verdict.clean.accuracy) == (route, 1)
    assert [one.name for one in verdict.routes if one.taken] == [route]
    assert json.loads(json.dumps(asdict(verdict), allow_nan=False)) == asdict(verdict)
    carriers, readers = CARRIERS_AND_READERS[route]
    assert set(found.at_nouns.heads) == carriers
    assert set(found.at_adjective.heads) == readers
    assert set(found.rest.heads) == {Head(b, h) for b in (0, 1) for h in (0, 1)} - carriers - readers
    assert found.helpers.heads == []
    assert found.holds
    assert found.rest.zero.accuracy == found.rest.mean.accuracy == 1


def test_the_numbers_of_a_built_route_are_those_it_was_built_with():
    found = find_roles(Trials(route_model("nouns, then adjective"), ASKED), NAMES)
    carried, idle, fetched, _ = found.heads
    nothing = dict.fromkeys(("rest", FIRST, SECOND, ADJECTIVE, "the"), 0)
    assert carried.weights == pytest.approx({**nothing, FIRST: 1}, abs=1e-9)
    assert fetched.weights == pytest.approx({**nothing, SECOND: 0.5, ADJECTIVE: 0.5}, abs=1e-9)
    assert idle.weights == pytest.approx({**dict.fromkeys(nothing, 1 / 8), "rest": 4 / 8})
    assert [carried.moved, fetched.moved] == pytest.approx([0, 1], abs=1e-9)
    assert carried.direct == pytest.approx({FIRST: 10, SECOND: -10})
    assert fetched.direct == pytest.approx({FIRST: 0, SECOND: 30}, abs=1e-9)
    assert (carried.zero.accuracy, fetched.zero.accuracy, idle.zero.accuracy) == (0.5, 0.5, 1)
    edges = {(look.block, look.query, look.key): look for look in found.looks if look.part}
    assert set(edges) == {(0, DECISION, FIRST), (1, DECISION, SECOND), (1, DECISION, ADJECTIVE)}
    reading = edges[1, DECISION, ADJECTIVE]
    # Where the first noun is meant +10 turns into -20, of a mean of 15.
    assert [reading.weight, reading.cost] == pytest.approx([1, 30 / 15])
    assert reading.score.accuracy == 0.5
    # The row's other keys are alike without it: a seventh of the second noun, none of the first.
    assert edges[0, DECISION, FIRST].cost == pytest.approx((10 + 10 / 7) / 15)
    looks = [look for look in found.looks if look.head == 1]
    assert looks, "of idle heads, which no circuit needs"
    assert all(look.weight >= WEIGHT and look.cost == pytest.approx(0) and not look.part for look in looks)


def test_a_built_head_that_reads_is_told_from_one_that_is_gated():
    """One route reads the adjective by its value; in the other the key takes the weight."""
    read, gated = (find_roles(Trials(route_model(one), ASKED), NAMES) for one in (READ, GATED))
    for found, by in ((read, (False, True)), (gated, (True, False))):
        look = next(look for look in found.looks if look.part and look.key == ADJECTIVE)
        assert (look.pattern >= COST, look.values >= COST) == by
    for route, block, counts in ((READ, 1, ("values", "flow")), (GATED, 2, ("pattern", "rest"))):
        verdict = find_route(Trials(route_model(route), ASKED), NAMES)
        left = verdict.channels
        mine, other = (left[f"block {one}: decision sees adjective"] for one in (block, 3 - block))
        assert (mine.counts(1.0), mine.needed(1.0)) == (counts, True)
        assert (other.counts(1.0), other.needed(1.0)) == ((), False)


def test_weights_are_means_over_sentences_however_often_an_adjective_comes():
    uneven = ASKED.chosen((ASKED.ids[:, 5] != OF_FIRST[0]) | (ASKED.ids[:, 1] == 0))
    *_, fetched, _ = find_roles(Trials(route_model("nouns, then adjective"), uneven), NAMES).heads
    assert fetched.weights[ADJECTIVE] == pytest.approx(15 / 39)  # 3 and 12 questions of 3 + 12 + 12 + 12


def test_a_model_with_two_ways_at_once_has_none_that_it_needs():
    """Both routes write the same answer, so cutting either leaves the other."""
    both = route_model("adjective, then nouns")
    gathering = route_model("gather at the adjective")
    with torch.no_grad():
        for block, other in zip(both.blocks, gathering.blocks, strict=True):
            mine, theirs = block[0].sublayer, other[0].sublayer
            size = mine.d_head
            for name in ("W_Q", "W_K", "W_V"):
                getattr(mine, name).weight[size:] = getattr(theirs, name).weight[:size]
            mine.W_O.weight[:, size:] = theirs.W_O.weight[:, :size]
        # Notes of the two would meet in the same slots: the second writes and reads six further on.
        for matrix, axis in ((both.blocks[0][0].sublayer.W_O, 0), (both.blocks[1][0].sublayer.W_V, 1)):
            part = matrix.weight[:, size:] if axis == 0 else matrix.weight[size:]
            noted = part.narrow(axis, 17, 4).clone()
            part.narrow(axis, 17, 4).zero_()
            part.narrow(axis, 21, 4).copy_(noted)
    verdict = find_route(Trials(both, ASKED), NAMES)
    assert verdict.clean.accuracy == 1
    assert verdict.route == SEVERAL
    assert min(left.cut for left in verdict.channels.values()) >= DROPPED
    assert {route.name for route in verdict.routes if route.alone.accuracy == 1} == {
        "adjective, then nouns",
        "gather at the adjective",
    }


# Trained models


def test_the_sets_are_a_partition_and_what_holds_can_be_checked(trained):
    model, asked, found, _ = trained
    roles = set(found.at_nouns.heads) | set(found.at_adjective.heads)
    assert roles | set(found.helpers.heads) | set(found.rest.heads) == ALL_HEADS
    assert not roles & (set(found.helpers.heads) | set(found.rest.heads))
    assert not set(found.helpers.heads) & set(found.rest.heads)
    means = head_means(model, asked.ids)
    for some in (found.at_nouns, found.at_adjective, found.helpers, found.rest):
        names = frozenset(some.heads)
        assert close(some.zero, outcomes(model, asked, [ZeroHeads(names)]).score())
        assert close(some.mean, outcomes(model, asked, [MeanHeads(names, means)]).score())
    assert found.rest.mean.accuracy >= KEPT
    dropped = max(found.at_nouns.mean.accuracy, found.at_adjective.mean.accuracy) < DROPPED
    assert found.holds == (dropped and not found.helpers.heads)
    assert json.loads(json.dumps(asdict(found), allow_nan=False))["clean"]["accuracy"] == found.clean.accuracy


def test_every_role_rests_on_attention_and_on_a_loss(trained):
    model, asked, found, _ = trained
    assert found.at_nouns.heads
    assert found.at_adjective.heads
    first = asked.answers == asked.ids[:, 1]
    whole = outcomes(model, asked).differences
    maps = [block.weights.double() for block in run(model, asked.ids).blocks]
    for look in found.looks:
        key = TRAINED_NAMES_AT[look.key]
        queries = [query for query in TEMPLATE.queries(look.query) if query > key]
        seen = maps[look.block][:, look.head, queries, key]
        looked = max(seen[kind].mean(dim=0).max().item() for kind in (first, ~first))
        assert look.weight == pytest.approx(looked)
        assert look.weight >= WEIGHT
        assert look.part == (look.cost >= COST)
        edges = CutEdges(TEMPLATE.look(look.query, look.key, look.block, look.head))
        lost = (whole - outcomes(model, asked, [edges]).differences).double()
        cost = max(lost[first].mean(), lost[~first].mean()).item() / found.clean.logit_difference
        assert look.cost == pytest.approx(cost, abs=1e-5)


def test_the_row_of_the_decision_is_the_mean_of_its_maps(trained):
    model, asked, found, _ = trained
    rows = torch.stack([block.weights[:, :, 14] for block in run(model, asked.ids).blocks])
    for role in found.heads:
        row = rows[role.block, :, role.head]
        assert sum(role.weights.values()) == pytest.approx(1, abs=1e-5)
        assert role.weights[FIRST] == pytest.approx(row[:, 1].mean().item(), abs=1e-5)
        assert role.weights["the"] == pytest.approx(row[:, [0, 5, 14]].sum(dim=1).mean().item(), abs=1e-5)
        words = asked.ids[:, 11].unique()
        means = torch.stack([row[asked.ids[:, 11] == word].mean(dim=0) for word in words])
        apart = max((a - b).abs().sum().item() / 2 for a in means for b in means)
        assert role.moved == pytest.approx(apart, abs=1e-5)
    by_word = mean_weights(Trials(model, asked).captured, asked.ids[:, 11])
    assert list(by_word) == asked.ids[:, 11].unique().tolist()
    for word, mean in by_word.items():
        chosen = rows[:, asked.ids[:, 11] == word].mean(dim=1).double()
        torch.testing.assert_close(mean[:, :, 14], chosen, rtol=0, atol=1e-5)


def test_the_route_follows_from_the_cuts(trained):
    model, asked, _, verdict = trained
    assert verdict.route in (*ROUTES, SEVERAL, MIXED, NONE_FOUND)
    assert list(verdict.channels) == list(CHANNELS)
    left = {channel: one.cut for channel, one in verdict.channels.items()}
    for route in verdict.routes:
        own, excluded = ROUTES[route.name]
        assert route.needed == max(left[channel] for channel in own)
        lost = all(left[channel] < DROPPED for channel in own)
        assert route.taken == (lost and not any(left[channel] < DROPPED for channel in excluded))
        assert route.alone.channels == [channel for channel in CHANNELS if channel not in own]
    edges = CutEdges(frozenset([Edge(14, 1, 0), Edge(14, 6, 0)]))
    assert left["block 1: decision sees nouns"] == outcomes(model, asked, [edges]).score().accuracy
    edges = CutEdges(frozenset(Edge(14, key, 1) for key in (2, 3, 4, 5, 7, 8, 9, 10, 12, 13)))
    assert left["block 2: decision sees relays"] == outcomes(model, asked, [edges]).score().accuracy
    # Heads look at the adjective in both blocks here: scores and values at their means, one by one and both.
    those = frozenset([Edge(14, 11, 0)])
    runs = [run(model, asked.ids)]
    pattern, values = (
        PatchPattern(those, mean_of(runs, "scores")),
        PatchValues(those, mean_of(runs, "values")),
    )
    found = verdict.channels["block 1: decision sees adjective"]
    changes = [CutEdges(those)], [pattern], [values], [pattern, values]
    accuracies = [outcomes(model, asked, list(change)).score().accuracy for change in changes]
    assert [found.cut, found.pattern, found.values, found.both] == pytest.approx(accuracies)


# What an adjective moves in block 1


def adjectives(asked, count=3):
    """Sentences that differ in the adjective alone, all four of them; several such groups."""
    words = asked.ids[:, 11].unique()
    for row in asked.ids[:: len(asked.ids) // count]:
        group = row.repeat(len(words), 1)
        group[:, 11] = words
        yield group


def test_block_1_scores_every_word_but_the_adjective_alike_whatever_the_adjective(trained):
    model, asked, *_ = trained
    for group in adjectives(asked):
        found = scores_under_change(model, group, 11, 14)
        assert found.score_change < 1e-6
        assert found.weight_change < 1e-6
        scores = torch.tensor(found.scores)
        assert (scores.amax(dim=0) - scores.amin(dim=0))[:, 11].max() > 0.01  # its own key is what changes
        weights = torch.tensor(found.weights)
        torch.testing.assert_close(weights.sum(dim=-1), torch.ones(weights.shape[:2]))
        torch.testing.assert_close(weights[..., 11], torch.tensor(found.own_weights))
        torch.testing.assert_close(scores[..., 11], torch.tensor(found.own_scores))


def test_block_2_scores_the_nouns_by_what_block_1_has_read():
    ids = ASKED.ids[:4]  # one pair of nouns with each adjective
    model = route_model("adjective, then nouns")
    assert scores_under_change(model, ids, 5, 7).score_change == 0
    nouns = run(model, ids).blocks[1].scores[:, 0, 7, [1, 3]]
    assert nouns.tolist() == [[SHARP, 0], [SHARP, 0], [0, SHARP], [0, SHARP]]


@pytest.mark.parametrize("connection", get_args(Connection))
@pytest.mark.parametrize("mixer", [mixer for mixer in get_args(Mixer) if mixer not in ("none", "unmasked")])
def test_so_does_every_first_block_before_training(mixer, connection):
    model = untrained(
        mixer=mixer, connection=connection, output_projection=False, d_ff=32, score_scale="none"
    )
    for group in adjectives(Subject(model, SMALL, SEED).questions):
        found = scores_under_change(model, group, 11, 14)
        assert found.score_change < 1e-6
        assert found.weight_change < 1e-6


def test_sentences_that_prove_nothing_are_refused():
    model = untrained()
    group, *_ = adjectives(Subject(model, SMALL, SEED).questions)
    for changed, decision in ((14, 14), (11, 15), (-1, 14)):
        with pytest.raises(ValueError, match=f"change is at {changed} and the decision at {decision}"):
            scores_under_change(model, group, changed, decision)
    two_changes = group.clone()
    two_changes[0, 6] = group[0, 1]
    for subject, ids, says in (
        (model, group[:1], "1 sentences; needed: at least 2"),
        (model, two_changes, "differ at 6 too; allowed: at 11 alone"),
        (untrained(n_layer=0), group, "no block"),
    ):
        with pytest.raises(ValueError, match=says):
            scores_under_change(subject, ids, 11, 14)


def untrained(**change):
    torch.manual_seed(0)
    config = replace(CONFIG, vocab_size=len(SMALL.words), d_model=16, n_head=4)
    return Transformer(replace(config, **change)).eval()


# Sites and weights


def test_sites_name_positions_and_looks():
    assert TEMPLATE.keys == ("the", FIRST, "rest", SECOND, ADJECTIVE)
    assert (TEMPLATE.queries(DECISION), TEMPLATE.queries(ADJECTIVE)) == ((14,), (11,))
    assert TEMPLATE.queries(RELAYS) == (2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 13)
    assert TEMPLATE.places("the") == (0, 5, 14)
    assert TEMPLATE.places(RELAYS) == (2, 3, 4, 5, 7, 8, 9, 10, 12, 13)
    assert TEMPLATE.look(DECISION, "the", 1, 2) == {Edge(14, 0, 1, 2), Edge(14, 5, 1, 2)}  # not at itself
    assert TEMPLATE.look(RELAYS, ADJECTIVE, 0) == {Edge(12, 11, 0), Edge(13, 11, 0)}
    assert TEMPLATE.look(ADJECTIVE, ADJECTIVE, 0) == frozenset()
    assert TEMPLATE.looks([(DECISION, FIRST, 0), (DECISION, SECOND, 1)]) == {Edge(14, 1, 0), Edge(14, 6, 1)}


@pytest.mark.parametrize(
    ("names", "says"),
    [
        ({1: FIRST, 3: SECOND}, "'adjective' names 0 positions before the decision"),
        ({1: FIRST, 2: FIRST, 3: SECOND, 5: ADJECTIVE}, "'first noun' names 2 positions"),
        ({1: FIRST, 7: SECOND, 5: ADJECTIVE}, "'second noun' names 0 positions before the decision"),
        ({1: FIRST, 5: SECOND, 3: ADJECTIVE}, "the adjective stands before a noun"),
        ({**NAMES, 8: "the"}, "position 8 has a name; allowed: 0 to 7"),
        ({**NAMES, -1: "the"}, "position -1 has a name; allowed: 0 to 7"),
    ],
)
def test_names_that_make_no_template_are_refused(names, says):
    for find in (find_roles, find_route):
        with pytest.raises(ValueError, match=says):
            find(Trials(route_model("adjective, then nouns"), ASKED), names)


def test_models_and_questions_without_an_answer_are_refused():
    model = route_model("adjective, then nouns")
    with pytest.raises(ValueError, match="3 blocks; a route of two hops is looked for in exactly 2"):
        find_route(Trials(Transformer(replace(model.config, n_layer=3)), ASKED), NAMES)
    strange = replace(ASKED, answers=torch.full_like(ASKED.answers, 8))
    for find in (find_roles, find_route):
        with pytest.raises(ValueError, match="not one of its sentence's two nouns"):
            find(Trials(model, strange), NAMES)
    reversed_questions = replace(ASKED, answers=ASKED.others, others=ASKED.answers)
    with pytest.raises(ValueError, match=r"mean logit difference is -10.000; needed: above 0"):
        find_roles(Trials(model, reversed_questions), NAMES)
    assert find_route(Trials(model, reversed_questions), NAMES).route == NONE_FOUND


def test_questions_of_one_kind_alone_can_be_looked_at():
    one_kind = ASKED.chosen(torch.isin(ASKED.ids[:, 5], torch.tensor(OF_FIRST)))
    sites = Sites.of(NAMES, 7)
    assert list(answer_kinds(one_kind, sites)) == [FIRST]
    looks = head_looks(Trials(route_model("adjective, then nouns"), one_kind), sites)
    assert {(look.block, look.key) for look in looks if look.part} == {(0, ADJECTIVE), (1, FIRST)}


def test_mean_weights_by_label_and_the_largest_shift_by_hand(monkeypatch):
    model = untrained()
    asked = Subject(model, SMALL, SEED).questions.chosen(slice(7))
    weights = torch.stack([block.weights for block in run(model, asked.ids).blocks]).double()
    monkeypatch.setattr("engine.circuits.capture.TOKENS_A_BATCH", 30)
    found = mean_weights(Trials(model, asked).captured, torch.tensor([3, 1, 1, 3, 3, 3, 1]))
    assert list(found) == [1, 3]
    torch.testing.assert_close(found[1], weights[:, [1, 2, 6]].mean(dim=1))
    torch.testing.assert_close(found[3], weights[:, [0, 3, 4, 5]].mean(dim=1))
    rows = torch.tensor([[[1.0, 0]], [[0.5, 0.5]], [[0.25, 0.75]]])
    assert largest_shift(rows).tolist() == [0.75]
