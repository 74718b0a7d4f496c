"""The probe of Winograd models: on models trained for real, against what the model itself computes."""

import json
from dataclasses import replace

import pytest
import torch
from engine.probes.winograd_answers import NAMES, Pair, Subject

from engine.circuits.results import Edge, Head
from engine.data.languages.winograd import ADJECTIVE, DECISION, FIRST, SECOND, Sentence
from engine.probes import winograd, winograd_answers
from engine.training import checkpoint
from tests.winograd_models import SEED, SMALL

pytestmark = pytest.mark.usefixtures("one_thread")

PAIR = Pair("dog", "road", ("tired", "wet"))


@pytest.fixture(scope="module")
def subject(weights):
    return Subject(checkpoint.load_model(weights["two-blocks"])[0], SMALL, SEED)


@pytest.fixture(scope="module")
def single(weights):
    return Subject(checkpoint.load_model(weights["one-block"])[0], SMALL, SEED)


def arguments(models, what, *more, **changes):
    given = {
        "weights": str(models["two-blocks"]), "language": SMALL.to_json(), "seed": "0", "first": "dog",
        "second": "road", "adjectives": "tired,wet", **changes,
    }  # fmt: skip
    return [what, "--json", *(f"--{name}={value}" for name, value in given.items()), *more]


def test_the_questions_are_held_out_each_pair_with_every_adjective(subject):
    questions = subject.questions
    held = set(SMALL.split(SEED).held_out)
    rows = [SMALL.decode(row) for row in questions.ids.tolist()]
    assert {(row[FIRST], row[SECOND]) for row in rows} <= held
    assert len(rows) == len(held) * 4  # 240 would be more than there are
    for row, answer, other in zip(rows, questions.answers.tolist(), questions.others.tolist(), strict=True):
        sentence = Sentence(row[FIRST], row[SECOND], row[ADJECTIVE])
        assert SMALL.decode([answer, other]) == [SMALL.referent(sentence), SMALL.other(sentence)]


def test_at_most_240_sentences_are_asked():
    from engine.data.languages.winograd import CLOSED
    from engine.models.config import ModelConfig
    from engine.models.transformer import Transformer

    config = ModelConfig(vocab_size=len(CLOSED.words), d_model=8, n_layer=1, max_positions=17)
    assert len(Subject(Transformer(config), CLOSED, 3).questions) == 240


def test_answers_are_those_of_the_model_itself(subject):
    ids = torch.tensor([SMALL.encode("the dog did not cross the road because it was too tired , so the")])
    with torch.no_grad():
        shares = subject.model(ids)[0, DECISION].softmax(dim=-1)
    first = winograd_answers.answered(subject, PAIR)[0]
    assert first["answer"] == "dog"
    assert first["other"] == "road"
    assert first["answer_share"] == pytest.approx(float(shares[SMALL.encode("dog")[0]]), abs=1e-6)
    assert first["named"] == SMALL.words[int(shares.argmax())]
    assert [share for _, share in first["likeliest"]] == sorted(
        (share for _, share in first["likeliest"]), reverse=True
    )


@pytest.mark.parametrize("which", ["subject", "single"])
def test_maps_sum_to_one_and_block_1_does_not_move(which, request):
    of = request.getfixturevalue(which)
    found = winograd_answers.maps(of, PAIR)
    assert [len(blocks) for blocks in found["weights"]] == [of.model.config.n_layer] * 2
    for blocks in found["weights"]:
        assert torch.tensor(blocks).sum(dim=-1) == pytest.approx(1, abs=1e-5)
    assert found["adjectives"] == list(SMALL.adjectives)
    assert torch.tensor(found["grid"]).sum(dim=-1) == pytest.approx(1, abs=1e-5)
    assert found["unmoved"]["score_change"] < 1e-6
    assert found["unmoved"]["weight_change"] < 1e-6
    scores = torch.tensor(found["unmoved"]["scores"])[..., ADJECTIVE]
    assert (scores.amax(dim=0) - scores.amin(dim=0)).max() > 0.01  # the adjective's own key does move
    assert [tokens[ADJECTIVE] for tokens in found["tokens"]] == ["tired", "wet"]


def test_the_circuit_costs_what_it_says(subject):
    found = winograd_answers.circuit(subject)
    assert found["clean"]["accuracy"] >= 0.95
    look = min(found["looks"], key=lambda one: one["score"]["accuracy"])
    assert look["part"]
    places = [at for at, name in NAMES.items() if name == look["key"]]
    if look["query"] == "decision":
        edges = [Edge(DECISION, at, look["block"], look["head"]) for at in places]
        assert winograd_answers.cut(subject, PAIR, edges)["after"] == look["score"]
    gone = found["noun_carriers"]
    heads = [Head(*head) for head in gone["heads"]]
    for how in ("zero", "mean"):
        assert winograd_answers.ablated(subject, PAIR, heads, how)["after"] == gone[how]
    assert {(one["block"], one["key"]) for one in found["together"]} == {
        (block, key) for block in (0, 1) for key in ("first noun", "second noun", "adjective")
    }
    json.dumps(found, allow_nan=False)


def test_effects_are_the_answers_of_each_cut(subject):
    found = winograd_answers.effects(subject, PAIR)
    by_look = {(one["block"], one["head"], one["query"], one["key"]): one for one in found["looks"]}
    assert len(by_look) == 2 * 5 * 8
    cut = winograd_answers.cut(subject, PAIR, [Edge(DECISION, ADJECTIVE, 1)])
    assert by_look[1, None, "decision", "adjective"]["answers"] == cut["changed"]
    assert cut["answers"] == found["answers"]


def test_cutting_and_ablating_change_the_accuracy(subject):
    nothing = winograd_answers.cut(subject, PAIR, [])
    assert nothing["before"] == nothing["after"]
    every = [Head(block, head) for block in (0, 1) for head in range(4)]
    gone = winograd_answers.ablated(subject, PAIR, every, "zero")
    assert gone["after"]["accuracy"] < 0.6 < gone["before"]["accuracy"]


def test_proof_keeps_its_identities(subject):
    found = winograd_answers.proof(subject, PAIR)
    patching = found["patching"]
    assert patching["nothing"] == pytest.approx(0, abs=1e-6)
    assert patching["everything"] == pytest.approx(1, abs=1e-6)
    assert patching["residual"][0][ADJECTIVE] == pytest.approx(1, abs=1e-4)  # the only word that differs
    assert patching["residual"][-1][DECISION] == pytest.approx(1, abs=1e-4)
    for one in found["attribution"]:
        assert one["total"] == pytest.approx(one["logit_difference"], abs=1e-4)
    assert found["lens"][-1]["score"] == winograd_answers.circuit(subject)["clean"]
    assert found["readings"][0][-1]["words"][0] == winograd_answers.answered(subject, PAIR)[0]["named"]
    assert found["route"]["clean"]["accuracy"] == found["lens"][-1]["score"]["accuracy"]
    json.dumps(found, allow_nan=False)


def test_one_block_has_a_circuit_of_its_own(single):
    found = winograd_answers.circuit(single)
    assert {one["block"] for one in found["heads"]} == {0}
    assert len(found["together"]) == 3


def test_one_block_has_a_proof_without_a_route(single):
    assert winograd_answers.proof(single, PAIR)["route"] is None


def test_a_model_without_an_answer_has_a_route_and_a_reason(subject):
    torch.manual_seed(1)
    drawn = type(subject.model)(subject.model.config).eval()
    found = winograd_answers.scored(Subject(drawn, SMALL, SEED))
    if found["roles"] is None:
        assert "logit difference" in found["reason"]
    assert found["route"]["route"] == "none found"


def test_the_command_prints_one_document(weights, capsys):
    assert winograd.main(arguments(weights, "cut", "--edge=14:11:1:all", "--edge=14:1:0:2")) == 0
    found = json.loads(capsys.readouterr().out)
    assert {"before", "after", "answers", "changed", "seconds"} == set(found)
    assert winograd.main(arguments(weights, "ablated", "--head=1:2", "--how=mean")) == 0


@pytest.mark.parametrize(
    ("changes", "more", "said"),
    [
        ({"first": "river"}, (), "'river' is no word of this language"),
        ({"second": "dog"}, (), "both nouns are 'dog'"),
        ({"adjectives": "tired"}, (), "adjectives are 'tired'; allowed: two"),
        ({"adjectives": "wet,wet"}, (), "both adjectives are 'wet'"),
        ({"seed": "-1"}, (), "the seed is -1"),
        ({}, ("--edge=14:1:0",), "an edge is '14:1:0'"),
        ({}, ("--edge=1:14:0:all",), "ahead of its query"),
        ({}, ("--edge=14:1:7:all",), "the block is 7; allowed: 0 to 1"),
        ({"language": replace(SMALL, nouns=SMALL.nouns[:4]).to_json()}, (), "the model knows 22 words"),
        ({"language": "{}"}, (), "the kind of the language is None"),
    ],
)
def test_what_cannot_be_asked_is_one_line(weights, capsys, changes, more, said):
    assert winograd.main(arguments(weights, "cut", *more, **changes)) == 2
    error = capsys.readouterr().err
    assert said in error
    assert len(error.strip().splitlines()) == 1


def test_a_missing_checkpoint_is_one_line(weights, capsys, tmp_path):
    assert winograd.main(arguments(weights, "maps", weights=str(tmp_path / "none"))) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1
