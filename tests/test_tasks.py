"""Tasks: what is drawn for a text is what always was, a language's figures count what they say."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from engine.chapter.experiments import EXPERIMENTS, METRICS
from engine.data.languages import shelf
from engine.data.languages.induction import INDUCTION
from engine.data.languages.winograd import DECISION
from engine.models.transformer import Transformer
from engine.runs import launch
from engine.runs.sources import task_of
from engine.training.evaluation import predictions
from engine.training.tasks import InductionTask, TextTask, WinogradTask, answers, task_of_language
from tests.trainings import BUDGET, OF_SMALL, SMALL, on_language

LANGUAGES = [name for name, shown in EXPERIMENTS.items() if shown.language]
pytestmark = pytest.mark.usefixtures("one_thread")


def never():
    return False


class Always(torch.nn.Module):
    """A model that names the token that ``choose`` gives for each row and position, as sure as it is told."""

    def __init__(self, choose, vocabulary, sure=30.0):
        super().__init__()
        self.choose, self.vocabulary, self.sure = choose, vocabulary, sure

    def forward(self, ids):
        return self.sure * F.one_hot(self.choose(ids), self.vocabulary).float()


# A text


@pytest.mark.parametrize(("seed", "size", "context"), [(0, 64, 128), (7, 3, 16), (2**53 + 1, 1, 1)])
def test_windows_of_a_text_are_drawn_as_they_always_were(seed, size, context):
    """References and resumed runs of earlier versions depend on it, bit for bit."""
    ids = torch.arange(1000)
    task = TextTask(ids[:900], ids[900 - context :], context)
    drawn, again = (torch.Generator().manual_seed(seed) for _ in range(2))
    for _ in range(3):
        starts = torch.randint(900 - context, (size, 1), generator=again)
        assert torch.equal(task.batch(drawn, size), ids[starts + torch.arange(context + 1)])
    assert torch.equal(drawn.get_state(), again.get_state())


def test_a_text_too_short_for_its_window_is_refused():
    with pytest.raises(ValueError, match=r"16 training tokens; a window of 16 needs 17\."):
        TextTask(torch.arange(16), torch.arange(17), 16)


def test_predictions_are_those_of_the_model_position_by_position():
    torch.manual_seed(0)
    model = Transformer(replace(OF_SMALL, dropout=0.5))
    rows = torch.randint(len(SMALL.words), (1000, 18))  # more than one batch of an evaluation
    losses, likeliest = predictions(model, rows)
    assert model.training
    logits = model.eval()(rows[:, :-1])
    expected = F.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten(), reduction="none").view(1000, 17)
    assert torch.allclose(losses, expected, atol=1e-5)
    assert torch.equal(likeliest, logits.argmax(-1))


# A Winograd language


def test_batches_are_sentences_of_training_and_every_one_comes():
    task, split = WinogradTask(SMALL, seed=1), SMALL.split(1)
    drawn = task.batch(torch.Generator().manual_seed(0), 2000)
    assert drawn.shape == (2000, 18)
    trained = SMALL.rows(SMALL.sentences(split.train)).tolist()
    assert sorted(map(tuple, trained)) == sorted({tuple(row) for row in drawn.tolist()})
    held_out = SMALL.rows(SMALL.sentences(split.held_out))
    assert torch.equal(task.held_out, torch.from_numpy(held_out))
    assert task.probe.shape == (16, 17)
    assert {tuple(row) for row in task.probe.tolist()} <= {tuple(row[:-1]) for row in held_out.tolist()}


@pytest.mark.parametrize(
    ("choose", "shares"),
    [
        (lambda ids: ids[:, 1:2].expand_as(ids), (0.5, 0.5, 0.0)),
        (lambda ids: ids[:, 6:7].expand_as(ids), (0.5, 0.5, 0.0)),
        (torch.zeros_like, (0.0, 0.0, 1.0)),
    ],
    ids=["the first noun", "the second noun", "another word"],
)
def test_a_model_without_a_rule_is_scored_by_what_it_names(choose, shares):
    found = WinogradTask(SMALL, seed=0).evaluate(Always(choose, len(SMALL.words)), never)
    assert (found["accuracy"], found["wrong_noun"], found["other"]) == shares


def test_only_the_deciding_position_is_scored():
    task = WinogradTask(SMALL, seed=0)
    right = task.held_out[:, 1:].clone()
    assert answers(task.held_out, right) == {"accuracy": 1.0, "wrong_noun": 0.0, "other": 0.0}
    right[:, DECISION] = 0
    assert answers(task.held_out, right)["accuracy"] == 0
    elsewhere = torch.zeros_like(right)
    elsewhere[:, DECISION] = task.held_out[:, DECISION + 1]
    assert answers(task.held_out, elsewhere)["accuracy"] == 1


def test_a_model_that_is_lost_has_no_shares():
    run = on_language(budget=replace(BUDGET, learning_rate=1e9))
    list(run.records())
    assert run.result.state == "diverged"
    shares = ("accuracy", "wrong_noun", "other", "train_accuracy")
    assert run.result.measured == dict.fromkeys(shares)


# Repeated tokens


def test_a_model_that_looks_up_the_last_time_continues_every_repeat():
    def looked_up(ids):
        found = torch.zeros_like(ids)
        for number, row in enumerate(ids.tolist()):
            for position, token in enumerate(row):
                before = [p for p in range(position) if row[p] == token]
                found[number, position] = row[before[-1] + 1] if before else 0
        return found

    task = InductionTask(INDUCTION, seed=0)
    task.held_out = task.held_out[:40]
    found = task.evaluate(Always(looked_up, 64), never)
    assert found["accuracy"] == 1
    assert found["early_accuracy"] < 0.1
    assert found["late_loss_nats"] == pytest.approx(0, abs=1e-6)
    assert found["in_context_nats"] == pytest.approx(-found["early_loss_nats"], abs=1e-6)
    assert found["late_loss_nats"] < found["validation_loss_nats"] < found["early_loss_nats"]


def test_a_model_that_guesses_has_no_context_to_gain_by():
    model = Always(torch.zeros_like, 64, sure=0.0)
    found = InductionTask(INDUCTION, seed=0).evaluate(model, never)
    assert found["in_context_nats"] == pytest.approx(0, abs=1e-4)
    assert found["early_loss_nats"] == pytest.approx(4.1589, abs=1e-4)  # log 64


# What a run asks for


@pytest.mark.parametrize("name", LANGUAGES)
def test_a_run_trains_on_the_language_that_it_names_split_by_its_seed(name):
    for seed in (4, 5):
        for asked in launch.specs(name, "quick", (seed,), name):
            task, expected = task_of(asked), task_of_language(shelf.load(name), seed)
            assert type(task) is type(expected)
            assert torch.equal(task.train, expected.train)
            assert torch.equal(task.held_out, expected.held_out)
            assert set(task.figures) <= {*METRICS}
            shape = (*task.probe.shape, asked.config.vocab_size)
            assert Transformer(asked.config)(task.probe).shape == shape
    assert not torch.equal(task.held_out, task_of_language(shelf.load(name), 4).held_out)


@pytest.mark.parametrize(
    ("part", "change", "said"),
    [
        ("config", {"vocab_size": 35}, r"vocab_size is 35; allowed for winograd-closed: 36\."),
        ("budget", {"context_length": 16}, r"context_length is 16; allowed for winograd-closed: 17\."),
        (None, {"corpus_sha256": "0" * 64}, r"the language winograd-closed changed since this run was asked"),
    ],
)
def test_a_run_that_does_not_fit_its_language_is_refused(home, part, change, said):
    (asked,) = launch.specs("winograd-closed", "quick", (0,), "winograd-closed", ["average"])
    changes = {part: replace(getattr(asked, part), **change)} if part else change
    with pytest.raises(ValueError, match=said):
        task_of(replace(asked, **changes))


def test_an_edited_language_is_trained_on_after_it_was_kept(home):
    name = shelf.keep(SMALL)
    (asked,) = launch.specs("winograd-closed", "quick", (0,), name, ["average"])
    task = task_of(asked)
    assert task.train.max() < len(SMALL.words) == asked.config.vocab_size
    assert torch.equal(task.train, WinogradTask(SMALL, 0).train)


# Training on them


def test_records_have_what_the_task_measures():
    run = on_language()
    records = list(run.records())
    measured = [r["step"] for r in records if "accuracy" in r]
    assert measured == [r["step"] for r in records if "validation_loss_nats" in r] == [0, 10, 20, 30]
    last = {name: records[-1][name] for name in ("accuracy", "wrong_noun", "other", "score_std")}
    assert last.items() <= run.result.measured.items()
    assert sum(records[-1][name] for name in ("accuracy", "wrong_noun", "other")) == pytest.approx(1)
    assert 0 <= run.result.measured["train_accuracy"] <= 1


def test_shares_need_no_float64_which_apple_silicon_lacks(monkeypatch):
    def refused(*_):
        raise TypeError("Cannot convert a tensor to float64: the device has none.")

    monkeypatch.setattr(torch.Tensor, "double", refused)
    rows = torch.from_numpy(SMALL.rows(SMALL.sentences(SMALL.split(0).held_out)))
    found = answers(rows, rows[:, 1:])
    assert found == {"accuracy": 1.0, "wrong_noun": 0.0, "other": 0.0}
