"""The probe of Winograd models: on models trained for real, against what the model itself computes."""

import json
from dataclasses import replace

import pytest
import torch

from engine.circuits.capture import mean_of, run
from engine.circuits.edges import CutEdges, PatchPattern, PatchValues
from engine.circuits.interventions import Intervention, MeanHeads, ZeroHeads
from engine.circuits.results import Edge, Head
from engine.circuits.trials import Trials
from engine.data.languages.winograd import ADJECTIVE, CLOSED, DECISION, FIRST, SECOND, Sentence
from engine.models.transformer import Transformer
from engine.probes import registry, winograd, wire
from engine.probes.results.winograd import Pair
from engine.probes.winograd import NAMES, Subject
from engine.system.errors import InvalidInput
from engine.training import checkpoint
from tests.circuit_models import close
from tests.trainings import untrained
from tests.winograd_models import SEED, SMALL

pytestmark = pytest.mark.usefixtures("one_thread")

PAIR = Pair("dog", "road", ("tired", "wet"))


@pytest.fixture(scope="module")
def subject(weights):
    return Subject(checkpoint.load_model(weights["two-blocks"])[0], SMALL, SEED)


def test_one_block_has_a_circuit_of_its_own_and_a_proof_without_a_route(weights):
    found = winograd.circuit(weights["one-block"], SMALL, SEED)
    assert {one.block for one in found.roles.heads} == {0}
    assert len(found.together) == 3
    assert winograd.proof(weights["one-block"], SMALL, SEED, PAIR).route is None


def test_the_questions_are_held_out_each_pair_with_every_adjective(subject):
    questions = subject.questions
    held = set(SMALL.split(SEED).held_out)
    rows = [SMALL.decode(row) for row in questions.ids.tolist()]
    assert {(row[FIRST], row[SECOND]) for row in rows} <= held
    assert len(rows) == len(held) * 4  # 240 would be more than there are
    for row, answer, other in zip(rows, questions.answers.tolist(), questions.others.tolist(), strict=True):
        sentence = Sentence(row[FIRST], row[SECOND], row[ADJECTIVE])
        assert SMALL.decode([answer, other]) == [SMALL.referent(sentence), SMALL.other(sentence)]
    config = replace(subject.model.config, vocab_size=len(CLOSED.words))
    assert len(Subject(Transformer(config), CLOSED, 3).questions) == 240


def test_answers_are_those_of_the_model_itself(subject):
    ids = torch.tensor([SMALL.encode("the dog did not cross the road because it was too tired , so the")])
    with torch.no_grad():
        shares = subject.model(ids)[0, DECISION].softmax(dim=-1)
    first = winograd.answered(subject, PAIR, [])[0][0]
    assert (first.answer, first.other) == ("dog", "road")
    assert first.answer_share == pytest.approx(float(shares[SMALL.encode("dog")[0]]), abs=1e-6)
    assert first.named == SMALL.words[int(shares.argmax())]
    likeliest = [share for _, share in first.likeliest]
    assert likeliest == sorted(likeliest, reverse=True)


@pytest.mark.parametrize(("which", "blocks"), [("one-block", 1), ("two-blocks", 2)])
def test_maps_sum_to_one_and_block_1_does_not_move(weights, which, blocks):
    found = winograd.maps(weights[which], SMALL, SEED, PAIR)
    assert [len(of_sentence) for of_sentence in found.weights] == [blocks] * 2
    for of_sentence in found.weights:
        assert torch.tensor(of_sentence).sum(dim=-1) == pytest.approx(1, abs=1e-5)
    assert found.adjectives == list(SMALL.adjectives)
    assert torch.tensor(found.grid).sum(dim=-1) == pytest.approx(1, abs=1e-5)
    assert found.unmoved.score_change < 1e-6
    assert found.unmoved.weight_change < 1e-6
    scores = torch.tensor(found.unmoved.scores)[..., ADJECTIVE]
    assert (scores.amax(dim=0) - scores.amin(dim=0)).max() > 0.01  # the adjective's own key does move
    assert [tokens[ADJECTIVE] for tokens in found.tokens] == ["tired", "wet"]


def test_the_circuit_costs_what_it_says(subject, weights):
    found = winograd.circuit(weights["two-blocks"], SMALL, SEED)
    assert found.roles.clean.accuracy >= 0.95
    look = min(found.roles.looks, key=lambda one: one.score.accuracy)
    assert look.part
    places = [at for at, name in NAMES.items() if name == look.key]
    if look.query == "decision":
        edges = [Edge(DECISION, at, look.block, look.head) for at in places]
        assert close(winograd._changed_by(subject, PAIR, CutEdges(frozenset(edges))).after, look.score)
    gone = found.roles.at_nouns
    names, means = frozenset(gone.heads), Trials(subject.model, subject.questions).head_means()
    for change, left in ((ZeroHeads(names), gone.zero), (MeanHeads(names, means), gone.mean)):
        assert close(winograd._changed_by(subject, PAIR, change).after, left)
    assert {(one.block, one.key) for one in found.together} == {
        (block, key) for block in (0, 1) for key in ("first noun", "second noun", "adjective")
    }
    assert wire.read(type(found), json.loads(wire.dumps(found))) == found


def test_parts_are_what_is_left_without_each_and_weights_are_split_by_the_answer(subject, weights):
    found = winograd.parts(weights["two-blocks"], SMALL, SEED)
    assert [(one.block, one.key) for one in found.looks] == [
        (block, key) for block in (0, 1) for key in ("nouns", "adjective")
    ]
    assert found.clean == subject.trials.whole.score().accuracy
    for one in found.looks:
        keys = [ADJECTIVE] if one.key == "adjective" else [FIRST, SECOND]
        edges = [Edge(DECISION, key, one.block) for key in keys]
        for part in ("cut", "pattern", "values", "both"):
            left = winograd.cut(weights["two-blocks"], SMALL, SEED, PAIR, edges, part).after.accuracy
            assert getattr(one.left, part) == pytest.approx(left)
    questions = subject.questions
    rows = run(subject.model, questions.ids).blocks[1].weights[:, 2, DECISION]
    first = questions.ids[:, FIRST] == questions.answers
    head = next(one for one in found.heads if (one.block, one.head) == (1, 2))
    for those, shown in ((first, head.of_first), (~first, head.of_second)):
        assert rows[those].mean(dim=0)[[FIRST, SECOND, ADJECTIVE]].tolist() == pytest.approx(shown, abs=1e-5)
    assert wire.read(type(found), json.loads(wire.dumps(found))) == found


def test_a_change_says_how_many_cells_of_the_maps_it_changed(subject, weights):
    """As many as differ when the changed cells are given what no run has."""
    edges = [Edge(DECISION, 11, 0), Edge(DECISION, 11, 0, 2), Edge(DECISION, 3, 1, 1)]
    found = winograd.cut(weights["two-blocks"], SMALL, SEED, PAIR, edges, "pattern")
    assert found.cells == 5
    ids = subject.questions.ids[:1]
    whole = run(subject.model, ids)
    other = [block.scores + 1 for block in whole.blocks]
    block = lambda number, edges: PatchPattern(frozenset(edges), tuple(other)).on_scores(  # noqa: E731
        number, whole.blocks[number].scores
    )
    differ = sum(int((block(number, edges) != whole.blocks[number].scores).sum()) for number in (0, 1))
    assert differ == found.cells
    assert winograd.cut(weights["two-blocks"], SMALL, SEED, PAIR, []).cells == 0


def test_the_parts_of_a_look_are_set_to_their_means_over_the_held_out_sentences(subject, weights):
    edges = [Edge(DECISION, ADJECTIVE, block) for block in (0, 1)]
    runs = [ran for _, ran in Trials(subject.model, subject.questions).captured]
    pattern = PatchPattern(frozenset(edges), mean_of(runs, "scores"))
    values = PatchValues(frozenset(edges), mean_of(runs, "values"))
    expected: dict[str, list[Intervention]] = {
        "cut": [CutEdges(frozenset(edges))],
        "pattern": [pattern],
        "values": [values],
        "both": [pattern, values],
    }
    found = {}
    for part, changes in expected.items():
        found[part] = winograd.cut(weights["two-blocks"], SMALL, SEED, PAIR, edges, part).after
        assert close(found[part], winograd._changed_by(subject, PAIR, *changes).after)
    assert len({score.logit_difference for score in found.values()}) == len(expected), "no two are the same"
    with pytest.raises(InvalidInput, match="part is 'half'; allowed: 'cut', 'pattern', 'values', 'both'"):
        registry.CUT.call(asked(weights, edges=edges) | {"part": "half"})


def test_cutting_and_ablating_change_the_accuracy(subject, weights):
    nothing = winograd._changed_by(subject, PAIR, CutEdges(frozenset([])))
    assert close(nothing.before, nothing.after)
    every = [Head(block, head) for block in (0, 1) for head in range(4)]
    gone = winograd._changed_by(subject, PAIR, ZeroHeads(frozenset(every)))
    assert gone.after.accuracy < 0.6 < gone.before.accuracy
    # Asked in JSON it answers as in Python.
    edges = [Edge(14, 11, 1), Edge(14, 1, 0, 2)]
    found = registry.CUT.call(asked(weights, edges=edges))
    assert close(found.after, winograd._changed_by(subject, PAIR, CutEdges(frozenset(edges))).after)
    given = {name: value for name, value in asked(weights).items() if name != "edges"}
    means = Trials(subject.model, subject.questions).head_means()
    without = winograd._changed_by(subject, PAIR, MeanHeads(frozenset(every), means))
    for how, left in (("zero", gone), ("mean", without)):
        found = registry.ABLATED.call({**given, "heads": wire.plain(every), "how": how})
        assert close(found.after, left.after)


def test_proof_keeps_its_identities(subject, weights):
    found = winograd.proof(weights["two-blocks"], SMALL, SEED, PAIR)
    patching = found.patching
    assert found.nothing == pytest.approx(0, abs=1e-6)
    assert found.everything == pytest.approx(1, abs=1e-6)
    assert patching.residual[0][ADJECTIVE] == pytest.approx(1, abs=1e-4)  # the only word that differs
    assert patching.residual[-1][DECISION] == pytest.approx(1, abs=1e-4)
    for one in found.attribution:
        assert one.total == pytest.approx(one.parts.logit_difference, abs=1e-4)
    assert close(found.lens[-1].score, winograd.circuit(weights["two-blocks"], SMALL, SEED).roles.clean)
    assert found.readings[0][-1].words[0] == winograd.answered(subject, PAIR, [])[0][0].named
    assert found.route.clean.accuracy == found.lens[-1].score.accuracy
    assert wire.read(type(found), json.loads(wire.dumps(found))) == found


def test_a_model_without_an_answer_has_a_route_and_a_reason(subject, tmp_path):
    found = winograd.score(untrained(tmp_path / "drawn", subject.model.config, 1), SMALL, SEED)
    if found.roles is None:
        assert "logit difference" in found.reason
    assert found.route.route == "none found"


def asked(weights, /, **changes):
    """The arguments of a cut, as JSON has them."""
    usual = {"weights": weights["two-blocks"], "language": SMALL, "seed": SEED, "pair": PAIR, "edges": []}
    return wire.plain({**usual, **changes})


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"pair": Pair("river", "road", ("tired", "wet"))}, "'river' is no word of this language"),
        ({"pair": Pair("dog", "dog", ("tired", "wet"))}, "both nouns are 'dog'"),
        ({"pair": {"first": "dog", "second": "road", "adjectives": ["tired"]}}, "adjectives has 1 parts"),
        ({"pair": Pair("dog", "road", ("wet", "wet"))}, "both adjectives are 'wet'"),
        ({"seed": -1}, "the seed is -1"),
        ({"edges": [{"query": 14, "key": 1}]}, r"edges\[0\] has query, key; allowed: query, key, block"),
        ({"edges": [Edge(1, 14, 0)]}, "ahead of its query"),
        ({"edges": [Edge(14, 1, 7)]}, "the block is 7; allowed: 0 to 1"),
        ({"language": replace(SMALL, nouns=SMALL.nouns[:4])}, "the model knows 22 words"),
        ({"language": {}}, "language has nothing; allowed: nouns"),
        ({"weights": "/none/such"}, "No such file"),
    ],
)
def test_what_cannot_be_asked_is_one_sentence(weights, changes, said):
    with pytest.raises(InvalidInput, match=said) as refused:
        registry.CUT.call(asked(weights, **changes))
    assert len(str(refused.value).splitlines()) == 1
