"""The page Induction: curves, guesses, formation over kept steps, maps, ablation, seeds, models of a text.

Most of it on stand-ins for what the probes find; one test trains two tiny models and asks the real ones.
"""

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from engine.chapter.definitions import ACCURACY
from engine.chapter.language_experiments import INDUCTION
from engine.circuits.results import Head
from engine.probes.results.induction import Without
from engine.runs import estimates
from engine.runs.store import Store
from engine.system import device
from engine.system.errors import Unavailable
from lab.sections.induction import probe as induction_probe
from lab.sections.induction.parts import LOSS, SCORE, rise
from lab.weights import Weights
from tests import finished
from tests.apptest import cells, charts, choose, lines, means, open_page, press, rerun, said, widget
from tests.induction_runs import (
    ENDS,
    LAST,
    NO_ROLES,
    STEPS,
    ablation,
    at_step,
    composition,
    formation,
    in_text,
    maps,
    measure,
)

opened = partial(open_page, "induction")


def pressed(page, *names):
    for name in names:
        page = press(page, f"induction.{name}")
    return page


@pytest.fixture
def probe(probes_here):
    """What the page asked its probes, answered by stand-ins."""
    probes_here.answers |= {
        "induction-formation": lambda **_: formation(),
        "induction-maps": lambda period, **_: maps(period),
        "induction-ablate": lambda **_: ablation(),
        "induction-ablate-chosen": lambda heads, **_: Without(heads, 0.5, 0.55),
        "induction-composition": lambda **_: composition(),
        "induction-text": lambda models: in_text(list(models)),
    }
    return probes_here


# Before and while it trains.


def test_an_empty_page_has_its_frame_and_says_what_to_do(text, probe):
    page = opened()
    words = said(page)
    assert "The chapter only points here" in words
    assert "Elhage et al. 2021 and Olsson et al. 2022" in words
    assert words.count("Train the two models above first") == 4
    assert len(charts(page)) == 3
    assert any("class CausalSelfAttention" in block.value for block in page.code)
    assert "No model of Shakespeare with heads is here." in words
    assert not probe.asked


def test_finished_models_answer_the_guesses(text, probe):
    measure(seeds=(0, 1))
    page = opened(seeds="0,1", repeat="yes", how="gradual")
    for drawn, metric in zip(charts(page), (ACCURACY, LOSS, SCORE), strict=True):
        assert {name: len(values) > 1 for name, values in means(drawn, metric).items()} == {
            "one layer": True, "two layers": True
        }  # fmt: skip
        assert {row["slot"] for row in drawn["curves"]} == {"green", "ink"}
    rows = lines(page, "model")
    assert rows["one layer, yours"]["second half right"].startswith("**6.5 %** :gray[±")
    assert rows["two layers, yours"]["in-context score"].startswith("**−4.10**")
    words = said(page)
    assert "You guessed *nearly all*. One layer names **6.5 %** of the second half" in words
    assert "two layers **98.5 %**" in words
    assert "names 1.0 %: 5.5 points less, so it stays within 10 points of that" in words
    assert "You guessed *gradually*. In two layers it comes **all at once**" in words
    assert "within 60 to 60 steps, by seed" in words
    assert "Mean ± standard deviation over 2 seeds." in words


def test_a_layer_beyond_its_level_and_a_slow_rise_are_said_as_they_are(text, monkeypatch, probe):
    monkeypatch.setitem(ENDS, "one-layer", (0.4, 0.01, 2.0, -1.0))
    measure()
    page = opened()
    assert "39.0 points less, so some of the repeat helps it, and 59.0 points are missing" in said(page)
    slow = tuple((float(step), step / LAST) for step in STEPS)
    found = rise(slow)
    assert (found.start, found.end, found.sudden) == (60, 640, False)
    assert rise(()) is None
    assert rise(((0.0, 0.01), (10.0, 0.3))) is None


def test_shipped_figures_and_weights_stand_where_the_reader_has_none(text, probe, no_reference):
    finished.ship(no_reference, INDUCTION, lambda name, _seed: at_step(name, LAST))
    (no_reference / "induction").mkdir()
    (no_reference / "induction" / "two-layers.safetensors").touch()
    page = opened()
    assert lines(page, "model")["two layers, shipped"]["second half right"].startswith("99.0 %")
    words = said(page)
    assert f"Shipped: CPU, 2 cores, 2026-01-02, 800 steps. Yours: {LAST} steps." in words
    assert "The next three sections are about this model: shipped, 800 steps, seed 0." in words
    assert "Of this model only the final weights are available." in words
    page = pressed(page, "ablate")
    weights = no_reference / "induction" / "two-layers.safetensors"
    assert probe.asked == [("induction-ablate", {"weights": weights, "seed": 0})]
    assert "Without all that look one token back **5.0 %** are left of 99.0 %" in said(page)


# When does it form?


def test_the_step_of_formation_is_found_and_marked_on_one_axis_with_the_loss(text, probe):
    measure()
    page = pressed(opened(), "find")
    folder = Store().directory(next(r.id for r in Store().runs() if r.spec.variant == "two-layers"))
    assert probe.asked[0] == ("induction-formation", {"run": folder})
    words = said(page)
    assert "From **step 300** on it does, at every kept step." in words
    assert "Both attention scores reach that at the same kept step." in words
    assert "a prefix-matching score of at least 0.20 and a copying score of at least 0.50" in words
    assert "between step 280 and step 340: the pair forms **during** it" in words
    assert "Of the 8 heads, at the last step 2 look one token back and 1 is an induction head." in words
    losses, previous, matching, copying = charts(page)[3:7]
    for chart in (losses, previous, matching, copying):
        assert chart["here"] == [{"step": 300}]
        assert [row["step"] for row in chart["formed"]] == [300]
    assert losses["formed"][0]["text"] == "the pair forms: 300"
    assert {row["name"] for row in losses["curves"]} == {"loss, second half", "in-context score"}
    looks = {row["name"]: row["slot"] for row in previous["curves"]}
    assert len(looks) == 8
    assert [name for name, slot in looks.items() if slot == "blue"] == ["1.1", "1.2"]
    for chart in (matching, copying):
        assert {row["name"] for row in chart["curves"] if row["slot"] == "violet"} == {"2.2"}


def test_scrubbing_takes_scores_maps_and_words_along(text, probe):
    measure()
    page = pressed(opened(), "find")
    assert page.select_slider(key="induction.at").value == 300
    table = lines(page, "head, step 300")
    assert table["1.1"]["previous token"] == "**0.60**"
    assert table["2.2"]["prefix matching"] == "**0.90**"
    assert (table["2.2"]["copying"], table["2.1"]["copying"]) == ("**0.95**", "−0.60")
    assert table[":gray[all alike]"]["previous token"] == ":gray[0.06]"
    assert "1.1 looks one token back with a mean weight of 0.60" in said(page)
    assert "The token before it gets **0.90**" in said(page)
    choose(page, "induction.at", 200)
    assert page.query_params["at"] == "200"
    assert lines(page, "head, step 200")["1.1"]["previous token"] == "0.06"
    words = said(page)
    assert "After step 200 the model names **1.0 %** of the second half" in words
    assert "No pair stands at this step." in words
    assert "The token before it gets **0.90**" not in words
    assert charts(page)[3]["here"] == [{"step": 200}]
    choose(page, "induction.at", LAST)
    assert "The token before it gets **0.90**" in said(page)


def test_the_two_maps_stand_side_by_side_with_sentence_and_table(text, probe):
    measure()
    page = pressed(opened(row="15", period="12"), "find")
    assert page.selectbox(key="induction.left").value == "found"
    words = said(page)
    assert ":blue[●] 1.1 :gray[step 300]" in words
    assert ":violet[●] 2.2 :gray[step 300]" in words
    assert "At **bo (15)** the head puts 0.90 on bi (14)" in words
    assert "what came after *bo* the first time, bu (4), gets **0.00**" in words
    tables = [cells(page, "key", place) for place in (0, 1)]
    assert tables[0][0]["key"] == "bi (14)"
    assert len(tables[1]) == 5
    choose(page, "induction.period", 11)
    assert [given["period"] for name, given in probe.asked if name == "induction-maps"] == [12, 11]
    assert "what came after *bu* the first time, da (5), gets **0.00**" in said(page)
    choose(page, "induction.left", "2.4")
    assert page.query_params["left"] == "2.4"
    assert ":gray[●] 2.4 :gray[step 300]" in said(page)
    choose(page, "induction.right", "2.4")  # one head on both sides
    assert said(page).count(":gray[●] 2.4 :gray[step 300]") == 2


def test_a_model_without_a_pair_says_why(text, probe):
    low = {"previous_token": [[0.3, 0.1]], "prefix_matching": [[0.05, 0.06]], "copying": [[0.9, 1.0]]}
    without_pairs = {"scores": [low] * len(STEPS), "pairs": [None] * len(STEPS)}
    probe.answers["induction-formation"] = lambda **_: formation(None, **NO_ROLES, **without_pairs)
    probe.answers["induction-ablate"] = lambda **_: ablation(**NO_ROLES, sets={})
    probe.answers["induction-composition"] = lambda **_: composition(
        pair=None, receivers=[], matching=[], paths=[], controls=[]
    )
    measure()
    words = said(pressed(opened(), "find", "ablate", "compose"))
    assert "There is no later layer here, so none can." in words
    assert "the highest scores are 0.30, 0.06 and, of copying, 1.00" in words
    assert "No pair stands in this model, so there is no path to patch." in words
    assert f":gray[●] 1.1 :gray[step {LAST}]" in words
    assert f":gray[●] 1.2 :gray[step {LAST}]" in words
    assert "No pair stands in this model" in words


def test_the_reader_chooses_whom_to_look_into(text, probe):
    measure(seeds=(0, 1))
    page = opened(seeds="0,1", seed="1", of="one-layer")
    assert f"{LAST} steps, seed 1." in said(page)
    run = next(r for r in Store().runs() if r.spec.variant == "one-layer" and r.spec.seed == 1)
    pressed(page, "find")
    assert probe.asked[0] == ("induction-formation", {"run": Store().directory(run.id)})
    page = opened(seeds="0", seed="1")
    assert "There is no model of seed 1 here, only of 0. Used: 0." in said(page)
    rerun(page)
    assert page.query_params["seed"] == "0"


def test_what_a_link_names_and_the_model_has_not_is_said(text, probe):
    measure()
    page = pressed(opened(at="310", left="3.1", row="27", heads="1.1,4.4"), "find")
    words = said(page)
    assert "No weights were kept at step 310. Used: 300." in words
    assert "left is 3.1, which this model has not. Used: found." in words
    assert "Row 27 is beyond this sequence’s 24 tokens. Used: 15." in words
    page = pressed(page, "ablate")
    assert "This model has no head 4.4. Left out." in said(page)
    assert page.session_state["induction.at"] == 300
    assert page.session_state["induction.left"] == "found"
    assert page.session_state["induction.heads"] == ["1.1"]


def test_a_run_without_kept_weights_has_no_steps_to_show(text, probe):
    measure(kept=())
    page = opened()
    only_the_end = "Of this model only the final weights are available. Train it above for its steps."
    assert only_the_end in said(page)
    assert not probe.asked


def test_what_cannot_be_measured_is_told(text, probes_here):
    def refused(**_):
        raise Unavailable("It could not be measured: no room")

    measure()
    asked = ("induction-formation", "induction-ablate", "induction-composition")
    probes_here.answers |= dict.fromkeys(asked, refused)
    page = opened()
    page = pressed(page, "find", "ablate", "compose", "steps")
    assert said(page).count("It could not be measured: no room") == 4


# Ablation, seeds, text.


def test_ablation_names_what_is_left_and_who_shares_the_work(text, probe):
    measure()
    page = opened()
    assert widget(page, "induction.ablate").help == "Takes about 2 s."
    page = pressed(page, "ablate")
    rows = lines(page, "taken away")
    assert rows["nothing taken away"]["zero"] == "**99.0 %**"
    assert rows["all that look one token back: 1.1 and 1.2"]["zero"] == ":red[5.0 %]"
    assert rows["all induction heads: 2.2"]["mean"] == ":red[4.0 %]"
    assert (rows["2.2"]["copying"], rows["2.1"]["copying"]) == ("**0.95**", "−0.60")
    assert rows["1.2"]["zero"] == "95.0 %"
    words = said(page)
    assert "Without the one that matters most, :blue[●] 1.1, **60.0 %** are left: it does more than" in words
    assert "than any other, and not all." in words
    assert "One after another, the highest score first: 60.0 %, 5.0 %." in words
    assert "It is one head, :violet[●] 2.2." in words
    assert "Without all others **98.5 %** are left" in words
    dots = charts(page)[-1]
    assert len(dots["dots"]) == 2 * (3 + 8)
    assert [row["at"] for row in dots["levels"]] == [0.99, 0.01]


def test_one_head_that_does_nearly_all_is_said_to(text, probe):
    most = ablation()
    most.single[0] = replace(most.single[0], zero=0.1)
    probe.answers["induction-ablate"] = lambda **_: most
    measure()
    assert "**10.0 %** are left: it does more than any other, and nearly all." in said(
        pressed(opened(), "ablate")
    )


def test_paths_into_the_later_head_are_patched_one_input_at_a_time(text, probe):
    measure()
    page = pressed(opened(), "compose")
    ((name, given),) = probe.asked
    assert (name, given["seed"]) == ("induction-composition", 0)
    rows = lines(page, "path into their")
    assert [row["right"] for row in rows.values()] == ["**99.0 %**", "98.0 %", ":red[6.0 %]", "98.5 %"]
    assert rows["keys"]["prefix matching"] == "0.04"
    assert rows["keys"]["right, others"] == "98.5 %"
    words = said(page)
    assert "With the path from 1.1 and 1.2 into the **keys** of 2.2 patched, **6.0 %** are left of" in words
    assert "their prefix-matching score falls from 0.91 to 0.04" in words
    assert "Only the keys need that path: it is **K-composition**." in words
    assert "The same paths from 1.3 and 1.4 cost at most 0.5 percentage points." in words


@pytest.mark.parametrize(
    ("left", "says"),
    [
        ((0.3, 0.06, 0.98), "The path is needed into the queries and the keys: not K-composition alone."),
        ((0.98, 0.97, 0.95), "None of the three paths is needed alone."),
    ],
)
def test_other_ways_of_composing_are_said_as_they_are(text, probe, left, says):
    found = composition(controls=[])
    paths = [replace(path, accuracy=share) for path, share in zip(found.paths, left, strict=True)]
    probe.answers["induction-composition"] = lambda **_: replace(found, paths=paths)
    measure()
    page = pressed(opened(), "compose")
    assert says in said(page)
    assert "The same paths from" not in said(page)
    assert lines(page, "path into their")["keys"]["right, others"] == ":gray[–]"


def test_heads_of_the_readers_are_taken_away_together_and_figures_as_files(text, probe, taken_away):
    measure()
    page = pressed(opened(), "find", "ablate")
    assert len(taken_away["induction-formation"][1]) == 8 * len(STEPS)
    assert len(taken_away["induction-ablation"][1]) == 1 + 3 + 8
    choose(page, "induction.heads", ["1.2", "2.4"])
    assert page.query_params["heads"] == "1.2,2.4"
    assert probe.asked[-1][1]["heads"] == [Head(0, 1), Head(1, 3)]
    (own,) = (row for row in cells(page, "taken away") if "yours: 1.2 and 2.4" in row["taken away"])
    assert own["zero"] == ":red[50.0 %]"
    assert {row["slot"] for row in charts(page)[-1]["dots"]} == {"blue", "violet", "gray", "sky"}


@pytest.mark.parametrize(
    ("layer", "words"),
    [(False, "the two share the work, and none is needed alone"), (True, "They are all of layer 1")],
)
def test_shared_work_and_a_whole_layer_are_said(text, probe, layer, words):
    shared = ablation()
    shared.single[0] = replace(shared.single[0], zero=0.98)
    if layer:
        shared.sets["previous"] = replace(shared.sets["previous"], heads=[Head(0, h) for h in range(4)])
        shared.growing["previous"] *= 2
    probe.answers["induction-ablate"] = lambda **_: shared
    measure()
    assert words in said(pressed(opened(), "ablate"))


def test_seeds_stand_in_a_table_and_the_steps_are_looked_for_when_asked(text, probe):
    measure(seeds=(0, 1, 2))
    page = opened(seeds="0,1,2")
    rows = cells(page, "yours")
    assert [row["forms at"] for row in rows] == [":gray[–]"] * 4
    assert rows[1]["one layer above it"] == "5.0 points"
    assert "over 95 % of the second half on **3 of 3** seeds" in said(page)
    page = pressed(page, "steps")
    assert probe.names == ["induction-formation"] * 3
    rows = cells(page, "yours")
    assert [row["forms at"] for row in rows[:3]] == ["step 300"] * 3
    assert rows[3]["two layers"].startswith("**98.0 %** :gray[± 1.0 %]")
    assert rows[3]["forms at"] == "**300** :gray[± 0]"
    assert "The pair forms between step 300 and step 300." in said(page)


def test_models_of_shakespeare_are_asked_and_none_with_a_pair_is_said_plainly(text, probe, monkeypatch):
    there = {"a head": Weights(Path("/a"), "shipped, seed 0", 0)}
    monkeypatch.setattr(induction_probe, "text_models", lambda _: there)
    page = pressed(opened(), "text")
    assert probe.asked == [("induction-text", {"models": {"a head": Path("/a")}})]
    words = said(page)
    assert "**No such pair** in *a head*." in words
    assert "It has one layer: there is no later one" in words
    assert "highest previous-token score of all is 0.21, the highest prefix-matching score 0.01" in words
    assert "Weights: shipped, seed 0." in words
    row = cells(page, "model, head")[0]
    assert (row["previous, random"], row["copying"]) == ("**0.21**", "**0.80**")


PAIR = "**a** has a pair: 1.1 looks one token back with 0.70, 2.1 is an induction head: it finds"


@pytest.mark.parametrize(
    ("pair", "words"),
    [([[0, 0], [1, 0]], PAIR), (None, "More than one layer, and still no pair: *a*.")],
)
def test_of_models_of_a_text_each_with_a_pair_is_named(text, probe, monkeypatch, pair, words):
    there = {name: Weights(Path(f"/{name}"), "shipped, seed 0", 0) for name in "ab"}
    monkeypatch.setattr(induction_probe, "text_models", lambda _: there)
    heads = {"previous_token": [[0.7], [0.0]], "prefix_matching": [[0.0], [0.8]], "copying": [[0.0], [0.9]]}
    deep = {"layers": 2, "random": heads, "text": heads}
    probe.answers["induction-text"] = lambda **_: in_text(["a", "b"], **deep, pair=pair)
    page = said(pressed(opened(), "text"))
    assert words in page
    assert "1 of 2 has one layer" in page


def test_shipped_models_of_a_text_are_asked_and_those_without_heads_left_out(store, probe):
    words = said(pressed(opened(), "text"))
    ((_, arguments),) = probe.asked
    models = arguments["models"]
    assert "one head added, with positions" in models
    assert all(path.exists() for path in models.values())
    assert not any("average" in name for name in models)
    assert f"**No such pair** in any of these {len(models)} models." in words


# Files, links, one real run.


def test_two_tiny_models_are_trained_and_looked_into(text, monkeypatch):
    """From the press of Train to every section, with the real trainer and the real probe."""
    tiny = replace(INDUCTION.budgets["quick"], steps=30, batch_size=4, evaluate_every=10, keep_every=15)
    monkeypatch.setitem(INDUCTION.budgets, "quick", tiny)
    monkeypatch.setattr(device, "probe", device.describe)
    monkeypatch.setattr(estimates, "remember", lambda *_: None)
    pressed(opened(), "train")
    finished.carry_out()
    page = opened()
    assert "do **not** gain a half: train longer" in said(page)
    page = pressed(page, "find", "ablate", "compose", "steps")
    words = said(page)
    assert "there is no path to patch" in words
    assert "A pair stands at none of these steps to the end" in words
    assert "No pair stands in this model" in words
    assert [row["forms at"] for row in cells(page, "yours")] == [":red[never]", ":gray[–]"]
    assert len(cells(page, "head, step 30")) == 9
    assert len(lines(page, "taken away")) == 1 + 1 + 8
    choose(page, "induction.at", 15)
    assert len(cells(page, "head, step 15")) == 9
