"""What the page on induction measures: on a circuit built by hand, a trained model, models of a text."""

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from engine.chapter.language_experiments import INDUCTION as TABLE
from engine.circuits.capture import run as run_open
from engine.circuits.induction import head_scores, partners_of
from engine.circuits.results import Head, HeadScores
from engine.data.languages.induction import INDUCTION, Repeats
from engine.models.config import ModelConfig
from engine.models.transformer import Transformer
from engine.probes import composition, induction, wire
from engine.runs import launch, trainer
from engine.system.errors import InvalidInput
from engine.training import checkpoint
from engine.training.loop import Training
from engine.training.tasks import task_of_language
from tests import circuit_models
from tests.circuit_models import CONFIG, HALF, LETTERS, induction_model
from tests.trainings import folder, on_this_cpu, untrained

pytestmark = pytest.mark.usefixtures("one_thread")

# The built circuit has nine letters and twelve places; this language is as large, and its halves as long.
SMALL = Repeats(vocab_size=LETTERS, shortest=3, length=2 * HALF)
STRONG, WEAK, LOUD = (
    HeadScores([[0.9], [0.0]], [[0.0], [after]], [[1.0], [copied]])
    for after, copied in ((0.9, 0.9), (0.1, 0.9), (0.9, 0.1))
)
STEPS = 240


def of_two_layers(vocab_size=64, max_positions=63):
    torch.manual_seed(0)
    config = replace(CONFIG, vocab_size=vocab_size, max_positions=max_positions)
    return Transformer(replace(config, d_model=16, n_head=2, d_ff=0)).eval()


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The folder of a short run of two layers, and what it ended with."""
    (spec,) = launch.specs("induction", "quick", (3,), "induction", ["two-layers"])
    budget = replace(spec.budget, steps=STEPS, keep_every=80, evaluate_every=STEPS, checkpoint_every=STEPS)
    directory = folder(tmp_path_factory.mktemp("run") / "7", replace(spec, budget=budget))
    with pytest.MonkeyPatch.context() as patch:
        on_this_cpu(patch)
        return directory, trainer.run(directory, 1)["measured"]


def test_a_pair_forms_at_the_step_from_which_on_it_stays():
    steps = [0, 10, 20, 30]
    assert induction.formed_at(steps, [WEAK, STRONG, STRONG, STRONG]) == 10
    assert induction.formed_at(steps, [STRONG, WEAK, STRONG, STRONG]) == 20, "it was lost once"
    assert induction.formed_at(steps, [STRONG, STRONG, STRONG, WEAK]) is None
    assert induction.formed_at(steps, [STRONG] * 4) == 0
    assert induction.formed_at(steps, [WEAK, LOUD, LOUD, STRONG]) == 30, "it must copy what it finds"


def test_heads_are_taken_away_one_after_another_the_strongest_first():
    measured = induction.Continued(induction_model(), SMALL.unseen_rows(0), SMALL.known_all)
    grown = measured.growing([Head(0, 0), Head(0, 1)], [[0.3, 0.4], [0, 0]])
    assert [step.heads for step in grown] == [[Head(0, 1)], [Head(0, 1), Head(0, 0)]], "the strongest first"
    assert grown[0].zero == 1
    assert grown[1].zero < 0.5


def test_a_trained_model_forms_its_pair_and_is_scored_at_every_kept_step(trained):
    folder, _ = trained
    found = induction.formation(folder)
    assert found.steps == [0, 80, 160, 240]
    assert len(found.scores) == len(found.pairs) == 4
    assert found.sequences == induction.SCORED
    first = found.scores[0]
    assert first.previous_token[0] == pytest.approx([found.all_alike.previous_token] * 4, abs=0.01)
    assert found.pairs[0] is None
    assert wire.read(type(found), json.loads(wire.dumps(found))) == found


def test_without_any_head_nothing_is_left_and_the_whole_is_what_the_run_ended_with(trained):
    directory, measured = trained
    weights = directory / "checkpoint.safetensors"
    everything = [Head(b, h) for b in range(2) for h in range(4)]
    found = induction.ablate(weights, 3)
    assert found.accuracy == pytest.approx(measured["accuracy"])
    assert found.early_accuracy == pytest.approx(measured["early_accuracy"])
    assert [one.heads for one in found.single] == [[head] for head in everything]
    own = induction.ablate_chosen(weights, everything, 3)
    assert own.heads == everything
    assert max(own.zero, own.mean) < 0.1


def test_paths_are_patched_where_there_is_a_pair_and_only_there(trained):
    found = composition.compose(trained[0] / "checkpoint.safetensors", 3)
    assert found.sequences == induction.SCORED
    assert found.accuracy == pytest.approx(trained[1]["accuracy"], abs=0.03)
    assert (found.pair, found.receivers, found.matching, found.paths, found.controls) == (
        None,
        [],
        [],
        [],
        [],
    )


def test_with_one_period_a_single_layer_counts_back_and_its_heads_score_as_induction_heads():
    """So prefix matching and copying do not prove that two heads compose."""
    language = Repeats(shortest=15, length=32)
    assert language.longest == 15
    config = TABLE.variant("one-layer").config
    with torch.random.fork_rng(devices=[]):
        task = task_of_language(language, seed=0)
        training = Training(config=config, budget=TABLE.budget("chapter"), seed=0, task=task)
        for _ in range(200):
            training.advance()
    continued = induction.Continued(training.model.eval(), language.unseen_rows(0), language.known_all)
    assert continued.accuracy([])[0] > 0.99
    scores = head_scores(training.model, continued.ids)
    assert min(scores.prefix_matching[0]) > 0.8
    assert min(scores.copying[0]) > 0.9
    assert partners_of(scores) == ([], []), "no later head, no pair"


def test_heads_and_models_that_are_not_there_or_of_other_words_are_refused(trained, tmp_path):
    weights = trained[0] / "checkpoint.safetensors"
    with pytest.raises(InvalidInput, match="head is 5; allowed: 0 to 3"):
        induction.ablate_chosen(weights, [Head(0, 5)])
    with pytest.raises(InvalidInput, match="No such file"):
        induction.ablate(weights.with_name("none"))
    with pytest.raises(ValueError, match="the model has 9 tokens; allowed: 64, of induction"):
        induction.ablate(untrained(tmp_path / "other", replace(CONFIG, vocab_size=LETTERS)))


def test_maps_are_the_models_own_weights_as_far_as_each_query_sees(trained):
    folder, _ = trained
    found = induction.maps(folder, 11)
    assert found.steps == [0, 80, 160, 240]
    assert len(found.pieces) == 22
    assert found.pieces[:11] == found.pieces[11:]
    assert len(set(found.pieces)) == 11
    model = checkpoint.load_model(folder / "weights" / "160.safetensors")[0]
    ids = torch.tensor([[INDUCTION.words.index(piece) for piece in found.pieces]])
    block = run_open(model, ids).blocks[1]
    for t in (0, 12):
        assert found.weights[2][1][3][t] == pytest.approx(block.weights[0, 3, t, : t + 1].tolist(), abs=1e-4)
        assert found.scores[2][1][3][t] == pytest.approx(block.scores[0, 3, t, : t + 1].tolist(), abs=1e-2)
    for rows in found.weights[3][0]:
        assert [len(row) for row in rows] == list(range(1, 23))
        assert [sum(row) for row in rows] == pytest.approx([1] * 22, abs=2e-3)
    with pytest.raises(ValueError, match="the period is 7; allowed: a whole number from 11 to 31"):
        induction.maps(folder, 7)


def test_a_run_of_something_else_or_without_kept_weights_is_refused(tmp_path, trained):
    (other,) = launch.specs("winograd-closed", "quick", (0,), "winograd-closed", ["one-block"])
    bare = tmp_path / "8"
    bare.mkdir()
    for text, says in (
        ((trained[0] / "spec.json").read_text(), "run #8 has kept no weights of its steps; train it again"),
        (other.to_json(), "trained on winograd-closed; allowed: repeated random tokens"),
        ("{}", "holds no run"),
    ):
        (bare / "spec.json").write_text(text)
        with pytest.raises(ValueError, match=says):
            induction.formation(bare)


# Models of a text.


@pytest.fixture
def a_text():
    """A text's held-out part, of 64 tokens."""
    ids = np.random.default_rng(0).integers(0, 64, 4000, dtype=np.uint16)
    return SimpleNamespace(held_out_ids=ids)


def test_random_tokens_repeat_after_as_many_as_the_sequence_says():
    ids = induction.repeats(100, 64, 0)
    assert ids.shape == (induction.PASSAGES, 64)
    for row in ids.tolist():
        period = next(p for p in range(1, 64) if row[p] == row[0])
        assert induction.SHORTEST <= period < 32
        assert row == (row[:period] * 4)[:64]
    once = induction.repeats(100, 64, 0, once=True)
    assert all(len(set(row)) == 64 for row in once.tolist())
    with pytest.raises(ValueError, match="the model has 30 tokens and reads 64; needed: as many, over 32"):
        induction.repeats(30, 64, 0)


def test_a_repeat_is_worth_much_to_the_built_circuit_and_nothing_to_a_fresh_model():
    said = circuit_models.repeated(20)[:, :HALF]
    assert induction.gain(induction_model(), said) > 1
    assert abs(induction.gain(of_two_layers(LETTERS, 2 * HALF), said)) < 0.1


def test_a_model_of_a_text_is_scored_on_random_tokens_and_on_the_text(a_text):
    found = induction.in_text("a", of_two_layers(), a_text, 0)
    assert found.layers == 2
    assert found.pair is None
    for where in ("random", "text"):
        scores, alike = getattr(found, where), getattr(found, f"alike_{where}")
        assert len(scores.prefix_matching) == 2
        assert scores.previous_token[0][0] == pytest.approx(alike.previous_token, abs=0.02)
    assert abs(found.gain_random_nats) < 0.1
    assert wire.read(type(found), json.loads(wire.dumps(found))) == found


def test_a_text_too_short_or_a_model_without_heads_is_refused(a_text):
    short = SimpleNamespace(held_out_ids=a_text.held_out_ids[:20])
    with pytest.raises(ValueError, match="the held-out part has 20 tokens; needed: 63"):
        induction.in_text("a", of_two_layers(), short, 0)
    average = Transformer(ModelConfig(vocab_size=64, d_model=8, n_layer=1, mixer="average", connection="add"))
    with pytest.raises(ValueError, match="a model of mixer 'average' has no heads"):
        induction.in_text("a", average.eval(), a_text, 0)
