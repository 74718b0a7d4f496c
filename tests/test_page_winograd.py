"""The page Winograd: training on a reader's own sentences, and what its sections say of what was trained."""

from functools import partial

import pytest

from engine.circuits.results import Score
from engine.data.languages import shelf
from engine.probes.results.winograd import Answer, Changed
from engine.runs.store import Store
from engine.system import device
from lab.sections.winograd import changed
from lab.sections.winograd import graph as winograd_graph
from tests import finished
from tests.apptest import cells, charts, choose, link, open_page, press, rerun, said
from tests.winograd_models import SMALL, WORDS, measured

VARIANTS = ("average", "average-added", "one-block", "two-blocks")
SHARES = {
    "average": (0.28, 0.5, 0.22),
    "average-added": (0.29, 0.49, 0.22),
    "one-block": (0.93, 0.06, 0.01),
    "two-blocks": (1.0, 0.0, 0.0),
}


@pytest.fixture(autouse=True)
def machine(store, no_reference, monkeypatch, one_thread):
    """Nothing shipped, nothing run yet, and a dispatcher."""
    monkeypatch.setattr(device, "probe", device.describe)


@pytest.fixture
def small(weights):
    """The four models of the small language, trained."""
    return measured(shelf.keep(SMALL), weights, SHARES)


opened = partial(open_page, "winograd")


# The bench.


def test_an_empty_page_has_its_frame_and_says_what_to_do():
    page = opened()
    words = said(page)
    assert words.count("There is no such model here.") == 5
    assert "36 words; 960 sentences to train on and 960 held out" in words
    rules = [row["text"] for row in charts(page)[0]["rules"] if row["text"]]
    rules = [rule.replace("\u00a0", " ") for rule in rules]
    assert rules == ["chapter 27.9 %", "chapter 92.7 % and 100.0 %", "chance, 50 %"]
    table = cells(page, "right answers")
    assert [row["chapter"] for row in table] == ["27.9 %", ":gray[–]", "92.7 %", "100.0 %", "50.0 %"]
    assert {row["yours"] for row in table} == {":gray[–]"}


def test_results_answer_the_guess_over_epochs():
    measured("winograd-closed", {}, SHARES)
    page = opened(bag="above")
    words = said(page)
    assert "You guessed *above chance*. The bag of words is right in **28.0 %**, below chance." in words
    assert "It names the wrong noun of the pair in **50.0 %** and neither in 22.0 %" in words
    assert "One block answers 93.0 %, two **100.0 %**." in words
    chart = charts(page)[0]
    ends = {row["name"]: row["epoch"] for row in chart["curves"]}  # the last of each
    run = next(run for run in Store().runs() if run.spec.variant == "two-blocks")
    assert ends["two blocks"] == pytest.approx(run.spec.budget.steps * 64 / 960)
    slots = {row["name"]: row["slot"] for row in chart["curves"]}
    assert slots == {"average": "red", "average added": "orange", "one block": "green", "two blocks": "ink"}
    table = cells(page, "right answers")
    assert table[0]["difference"] == ":gray[+0.1]"  # of the quick budget: it judges nothing
    shares = cells(page, "yours, of held-out")
    assert [row["wrong noun"] for row in shares] == ["**50.0 %**", "**49.0 %**", "**6.0 %**", "**0.0 %**"]


def test_figures_of_the_chapters_budget_are_judged_in_points():
    measured("winograd-closed", {}, {**SHARES, "two-blocks": (0.9, 0.1, 0.0)}, budget="chapter")
    table = cells(opened(budget="chapter"), "right answers")
    differences = [row["difference"] for row in table]
    assert differences == [":green[+0.1]", ":gray[–]", ":green[+0.3]", ":red[−10.0 outside]", ":green[+0.0]"]


def test_the_open_version_says_that_its_words_give_it_away():
    shares = {**SHARES, "average": (1.0, 0.0, 0.0)}
    measured("winograd-open", {}, shares, experiment="winograd-open")
    words = said(opened(version="open"))
    assert "right in **100.0 %**, above chance. Here the class of a noun gives the answer away" in words


# The reader's own language.


def test_a_link_holds_the_readers_words(small, probes_here):
    page = opened(**WORDS, x="cat", y="hill", a="slow", b="steep")
    words = said(page)
    assert ":orange[" not in words.replace(":orange[●]", "")
    assert "Done in" in words  # its runs were found by these words
    assert {name: link(page, name) for name in WORDS} == WORDS
    assert page.selectbox(key="winograd.x").value == "cat"
    assert page.text_area(key="winograd.nouns").value == WORDS["nouns"]
    assert "The words are yours, so nothing is compared with the chapter." in words
    run = next(run for run in Store().runs() if run.spec.variant == "two-blocks")
    assert f"Weights: yours, run #{run.id}, {run.spec.budget.steps:,} steps, seed 0" in words


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"nouns": "dog dog cat cow"}, "The word 'dog' stands twice"),
        ({"nouns": "dog road cat"}, "3 nouns; allowed: 4 to 64."),
        ({"nouns": "dog road cat the"}, "The template has the word 'the' already"),
        ({"nouns": "dog road cat c0w"}, "The word 'c0w' has '0'; allowed: small letters"),
        ({"nouns": "dog road cat tired"}, "The word 'tired' stands twice"),
        ({"crosser": "tired"}, "1 adjectives of the crosser and 2 of the crossed"),
        ({"crosser": "", "crossed": ""}, "0 adjectives of the crosser and 0 of the crossed"),
        ({"places": "bank"}, "1 places; allowed: 2 to 64."),
    ],
)
def test_a_bad_list_of_words_is_one_sentence_and_trains_nothing(changes, sentence):
    page = opened(**{**WORDS, **changes})
    assert sentence in said(page)
    assert page.button(key="winograd.train").disabled
    assert not (shelf.paths.DATA / "languages").exists()


def test_edited_words_are_another_language_with_its_own_runs(small, probes_here):
    page = opened(**WORDS)
    assert "Done in" in said(page)
    page = choose(page, "winograd.nouns", f"{WORDS['nouns']} fox")
    assert "Done in" not in said(page)
    assert link(page, "nouns") == f"{WORDS['nouns']} fox"
    assert "fox" in page.selectbox(key="winograd.x").options
    page = press(page, "winograd.train")
    specs = [run.spec for run in Store().runs(states=["queued"])]
    assert {spec.config.vocab_size for spec in specs} == {len(SMALL.words) + 1}
    assert shelf.load(specs[0].corpus).nouns == (*SMALL.nouns, "fox")


def test_a_word_that_is_gone_is_not_looked_at_any_more(small, probes_here):
    page = opened(**WORDS, x="path")
    page = choose(page, "winograd.nouns", "dog road cat hill cow")
    assert page.selectbox(key="winograd.x").value == "dog"


def test_steps_are_those_that_were_asked_for():
    page = press(opened(steps="40"), "winograd.train")
    assert {run.spec.budget.steps for run in Store().runs()} == {40}
    assert {run.spec.budget.evaluate_every for run in Store().runs()} == {4, 5}  # averages and blocks
    assert link(page, "steps") == "40"


def test_a_typed_sentence_fills_the_boxes_and_a_wrong_one_is_explained():
    page = opened()
    choose(page, "winograd.typed", "The cow did not cross the HILL because it was too steep")
    boxes = {name: page.selectbox(key=f"winograd.{name}").value for name in "xyab"}
    assert boxes == {"x": "cow", "y": "hill", "a": "steep", "b": "wet"}
    choose(page, "winograd.typed", "the cow did not cross the cow because it was too wet")
    assert "both nouns are 'cow'; allowed: two that differ." in said(page)
    choose(page, "winograd.typed", "the cow ate")
    assert "'ate' is no word of this language" in said(page)


# A whole run.


def test_from_the_click_to_the_maps_with_real_training(monkeypatch):
    page = press(opened(**WORDS, steps="20"), "winograd.train")
    assert len(Store().runs(states=["queued"])) == 4
    finished.carry_out()
    page = rerun(page)
    words = said(page)
    assert "Done in" in words
    assert "The bag of words is right in **" in words
    assert all(row["yours"].startswith("**") for row in cells(page, "right answers"))
    assert "Weights: yours, run #4, 20 steps, seed 0." in words  # answered by the worker, as for a reader
    assert "too **tired** , so the …" in words
    other = opened(**WORDS, steps="20")  # another reader, the same link
    assert cells(other, "right answers") == cells(page, "right answers")


# What is inside.


def test_every_section_after_its_press_and_after_edits(small, probes_here):
    page = opened(**WORDS, read="second")
    quick = ["winograd-cut", "winograd-maps", "winograd-parts"]
    assert probes_here.names == quick  # the quick ones are there at once
    words = said(page)
    assert "**Block 2**" in words
    assert "Mean: " in words
    assert "All 4 adjectives" in words
    assert "in one proportion: renormalised without it they differ by at most **" in words
    rows = cells(page, "key")
    assert len(rows) == 15
    moved = [row["key"] for row in rows if row["change"].startswith("**")]
    assert moved == ["**adj. (11)**"]

    page = press(page, "winograd.circuit")
    assert probes_here.names == sorted([*quick, "winograd-circuit", "winograd-cut"])
    graph = next(chart for chart in charts(page) if "edges" in chart)
    assert {row["head"] for row in graph["heads"]} == {f"{b}.{h}" for b in (1, 2) for h in (1, 2, 3, 4)}
    costliest = page.selectbox(key="winograd.edge").value
    assert {row["id"] for row in graph["edges"] if row["slot"] == "red"} == {costliest}
    assert "held-out sentences 100.0 % were right and **" in said(page)

    page = choose(page, "winograd.edge", page.selectbox(key="winograd.edge").options[0])
    page = choose(page, "winograd.part", "values")
    assert [name for name, _ in probes_here.asked[5:]] == ["winograd-cut"] * 2  # a change is one quick probe
    assert "Values at their mean: " in said(page)
    assert "cells of a sentence’s maps" in said(page)
    page = choose(page, "winograd.a", "slow")
    again = sorted(name for name, _ in probes_here.asked[7:])
    assert again == ["winograd-cut", "winograd-cut", "winograd-maps"]  # what depends on the sentence
    rows = cells(page, "look")
    assert [row["look"] for row in rows] == [
        f"block {block} → {key}" for block in (1, 2) for key in ("the nouns", "the adjective")
    ]
    assert len(cells(page, "weights of")) == 8

    page = press(page, "winograd.proof")
    words = said(page)
    assert "Patching nothing restores 0.0 %, everything 100.0 %." in words
    assert "This model’s route: **" in words
    assert "You guessed *in block 2*." in words
    assert "the parts sum to" in words
    assert len(cells(page, "channel")) == len(cells(page, "head")) == 8
    assert len(cells(page, "stream ends after")) == 5


def test_taking_heads_out_changes_the_accuracy(small, probes_here):
    page = opened(**WORDS)
    before = said(page)
    page = choose(page, "winograd.how", "zero")
    read = [before, *(said(choose(page, "winograd.of", head)) for head in "1234")]
    assert probes_here.names.count("winograd-ablated") == 4
    shares = {line for words in read for line in words.splitlines() if line.startswith("Of 60 held-out")}
    assert len(shares) > 1


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ({"x": "dog", "y": "dog"}, "Both nouns are 'dog'; choose two that differ."),
        ({"query": "3", "key": "9"}, "The key position is 9, ahead of its query"),
    ],
)
def test_what_cannot_be_looked_at_is_one_sentence(small, probes_here, query, sentence):
    assert sentence in said(opened(**WORDS, **query))


def test_an_edge_of_another_model_is_named_and_replaced(small, probes_here):
    page = press(opened(**WORDS, edge="9.9-decision-adjective"), "winograd.circuit")
    assert "This model has no look 9.9-decision-adjective." in said(page)


def test_one_block_has_no_second_hop(small, probes_here):
    page = press(opened(**WORDS, model="one-block"), "winograd.proof")
    words = said(page)
    assert "One block has no second hop, so there is no route to tell." in words
    assert "**Block 2**" not in words
    assert page.selectbox(key="winograd.block").options == ["1"]


def test_a_shipped_model_is_looked_into_when_none_is_trained(no_reference, weights, probes_here):
    folder = no_reference / "winograd-closed"
    folder.mkdir()
    (folder / "two-blocks.safetensors").write_bytes(weights["two-blocks"].read_bytes())
    assert "Weights: shipped, 1,500 steps, seed 10." in said(opened())
    assert "Weights: shipped" not in said(opened(**WORDS))


def test_an_answer_that_names_another_noun_without_the_edge_is_flipped():
    answers = [Answer("tired", "dog", "road", 1.0, 0.0, named, []) for named in ("dog", "road", "dog", "dog")]
    score = Score(1.0, 0.0, 0.0, 1.0, 1)
    look = winograd_graph.Look(0, 1, "decision", "adjective", 0.5, frozenset())
    words = changed.cut_words(look, "Cut", Changed(score, score, answers[:2], answers[2:], 1))
    assert "The answer flips: “too tired” from **road** to **dog**." in words


# Over seeds.


def test_seeds_are_trained_and_then_scored(weights, probes_here):
    page = press(opened(**WORDS), "winograd.score-train")
    runs = Store().runs()
    assert [run.spec.seed for run in runs] == [10, 11, 12, 13, 14]
    assert {run.spec.variant for run in runs} == {"two-blocks"}
    for run in runs:
        Store().cancel(run.id)
    seeds = (10, 11, 12, 13, 14)
    measured(shelf.keep(SMALL), weights, SHARES, seeds=seeds, variants=("two-blocks",))
    page = rerun(page)  # it was asked for in this session: it goes on by itself
    assert probes_here.names.count("winograd-score") == 5
    rows = cells(page, "seed: route")
    assert [row["seed: route"].partition(":")[0] for row in rows] == ["10", "11", "12", "13", "14"]
    words = said(page)
    assert "The chapter’s circuit, the nouns in block 1 and the adjective in block 2" in words
    assert "Scored 5 seeds" in words
    other = opened(**WORDS)
    assert other.button(key="winograd.score").label == "Score 5 seeds"
