"""The shipped Winograd models, taken apart: what the pages and the README say of them."""

import pytest
import torch

from engine.chapter import reference
from engine.chapter.language_experiments import WINOGRAD_CLOSED
from engine.circuits.first_block import scores_under_change
from engine.circuits.results import Edge
from engine.data.languages.winograd import ADJECTIVE, CLOSED, DECISION, FIRST, Sentence
from engine.probes.results.winograd import Pair
from engine.probes.winograd import Subject, cut, maps, proof, score
from engine.training import checkpoint

pytestmark = pytest.mark.usefixtures("one_thread")

X, Y = CLOSED.nouns[:2]


def shipped(variant):
    return reference.weights("winograd-closed", variant), CLOSED, WINOGRAD_CLOSED.seeds[0]


@pytest.mark.parametrize("variant", ["one-block", "two-blocks"])
def test_block_1_scores_all_words_but_the_adjective_alike_under_all_eight_and_identities_hold(variant):
    path, language, seed = shipped(variant)
    subject = Subject(checkpoint.load_model(path)[0], language, seed)
    sentences = [Sentence(X, Y, adjective) for adjective in CLOSED.adjectives]
    found = scores_under_change(subject.model, subject.asked(sentences).ids, ADJECTIVE, DECISION)
    assert len(found.scores) == 8
    assert max(found.score_change, found.weight_change) < 1e-6
    own = torch.tensor(found.own_scores)
    assert (own.amax(dim=0) - own.amin(dim=0)).max() > 0.1
    proved = proof(path, language, seed, Pair(X, Y, ("tired", "wet")))
    assert [proved.nothing, proved.everything] == pytest.approx([0, 1], abs=1e-6)
    for one in proved.attribution:
        assert one.total == pytest.approx(one.parts.logit_difference, abs=1e-4)


def test_block_1_does_not_read_the_adjective_it_is_gated_by_it():
    """Audited: 45 % without the look, 51.7 % with its mean score, 100 % with its mean value."""
    path, language, seed = shipped("two-blocks")
    look = [Edge(DECISION, ADJECTIVE, 0)]
    pair = Pair(X, Y, ("tired", "wet"))
    right = {
        part: cut(path, language, seed, pair, look, part).after.accuracy
        for part in ("look", "pattern", "values")
    }
    assert right == pytest.approx({"look": 0.450, "pattern": 0.517, "values": 1.0}, abs=0.01)
    found = maps(path, language, seed, pair)
    weights = torch.tensor(found.unmoved.weights)[:, 1, FIRST]  # head 1.2 on the first noun, by adjective
    of_x = torch.tensor([adjective in CLOSED.crosser for adjective in found.adjectives])
    assert weights[of_x].min() > 0.4
    assert weights[~of_x].max() < 0.001


def test_two_blocks_need_both_sets_of_heads_and_no_other():
    found = score(*shipped("two-blocks"))
    assert found.route.route == "read, then fetch"  # as the README's table says of this seed
    roles = found.roles
    assert max(roles.noun_carriers.mean.accuracy, roles.adjective_readers.mean.accuracy) < 0.75
    assert roles.rest.mean.accuracy > 0.95
