"""The page Averages: seeds, texts and choices as every bench takes them, results, and its probes."""

import math
import shutil
from dataclasses import replace
from functools import partial

import pytest

from engine.chapter.experiments import AVERAGES
from engine.probes.results.averages import Comparison
from engine.runs import dispatcher, estimates
from engine.runs.store import Store
from engine.system import paths
from lab import weights
from lab.bench import request
from lab.weights import Weights
from lab.words import plain
from tests import finished
from tests.apptest import charts, choose, open_page, press, rerun, said, tables, widget

ODD = "$5 and $6 *x* :smile: <b>z</b> [a](b) a.b[1]: it's"
ENDS = {"no-context": 60.1, "average": 249.1, "average-positions": 246.9, "average-added": 61.3}
RANGE = "allowed: whole numbers from 0 to 9223372036854775807"
opened = partial(open_page, "averages")


def cells(page):
    """The results table as it is shown."""
    return tables(page)[0]


def measure(text, budget="chapter", seeds=(0,), state="done", **more):
    """Runs of the whole experiment in some state. Returns them."""

    def figures(variant, seed):
        return {"validation_perplexity": ENDS[variant] + 0.1 * seed}

    return finished.runs(AVERAGES, text, budget, seeds, state, figures=figures, **more)


def test_an_empty_page_says_how_long_it_takes_and_what_the_chapter_found(text, monkeypatch):
    monkeypatch.setattr(estimates, "sweep_seconds", lambda specs: 130.0 * len(specs))
    page = opened()
    assert "About 9 min on this machine" in said(page)
    assert said(page).count("There is no trained model here. Train it above") == 3
    assert [row["text"] for row in charts(page)[0]["rules"] if row["text"]] == [
        "chapter 59.71 and 60.45, after 3,000 steps",
        "chapter about 248, after 3,000 steps",
    ]
    assert [row["chapter"] for row in cells(page)] == [
        "59.71", ":gray[*≈ 248*]", ":gray[–]", "60.45", "−2.14", "0.74",
    ]  # fmt: skip
    shown = "\n".join(element.value for element in page.code)
    for name in ("Transformer", "UniformAverage", "LearnedPositions", "Add"):
        assert f"class {name}(" in shown


def test_train_queues_a_run_a_model_and_seed_and_a_second_click_none(text):
    page, other = (opened(seeds="7,9007199254740993") for _ in range(2))
    assert page.session_state["averages.seeds"] == "7,9007199254740993"
    assert "seeds 7, 9007199254740993" in widget(page, "averages.seeds").options
    for pressed in (page, other):
        press(pressed, "averages.train")
    assert [run.spec.seed for run in Store().runs()] == [7] * 4 + [9007199254740993] * 4


def test_a_running_sweep_shows_curves_and_time_left_and_stands_still_when_paused(text):
    measure(text, state="running", last=1200)
    page = opened(budget="chapter")
    words = said(page)
    assert "Running: step 1,200 of 3,000" in words
    assert "left" in words
    assert "Your guesses are answered here" in words
    drawn = charts(page)[0]
    names = {row["name"] for row in drawn["curves"]}
    assert names == {"no context", "average replaces", "+ positions", "average added"}
    assert drawn["done"] == [{"from": 0, "to": 1200}]
    page = choose(page, "averages.paused", True)
    assert max(row["step"] for row in charts(page)[0]["curves"]) == 1200


def test_without_a_dispatcher_the_page_says_that_nothing_moves(text, monkeypatch):
    monkeypatch.setattr(dispatcher, "running", lambda root=None: False)
    measure(text, "quick", state="queued")
    assert "python -m lab" in said(opened())


def test_results_stand_in_four_columns_and_answer_the_guesses(text):
    measure(text, seeds=(0, 1, 2))
    page = opened(budget="chapter", seeds="0,1,2", best="average-added", worst="average")
    first = cells(page)[0]
    assert first["yours"] == "**60.2** :gray[± 0.1]"
    assert first["difference"] == ":green[+0.5]"
    assert first["reference"] == ":gray[–]"
    words = said(page)
    assert "Done in 18 min 20 s" in words
    assert "You guessed *average added*. The best is **no context**, by 1.2." in words
    assert "You guessed *average replaces*. The worst is **average replaces**, by 2.2." in words
    assert "multiplies the perplexity by 4.1" in words
    assert "Mean ± standard deviation over 3 seeds." in words
    reproduced = (
        "Reproduced, green: a mean within 3 % of the chapter’s; positions, beside none: 1.07; average"
    )
    assert reproduced in words
    assert "average added, beside no context: 0.74." in words


def test_a_difference_beyond_the_tolerance_is_called_outside(text, monkeypatch):
    monkeypatch.setitem(ENDS, "average-added", 65.0)
    measure(text)
    assert cells(opened(budget="chapter"))[3]["difference"] == ":red[+4.5 outside]"


def test_only_ones_own_runs_are_resumed_from_the_list_as_it_is_now(text):
    store = Store()
    (other,) = measure(text, state="interrupted", variants=["no-context"], user="10.0.0.9")
    cancelled, *mine = measure(text, state="interrupted", variants=list(ENDS)[1:])
    page = opened(budget="chapter")
    store.advance(cancelled.id, "interrupted", "cancelled")  # after the page was drawn
    press(page, "averages.resume")
    assert [store.get(run.id).state for run in (other, cancelled)] == ["interrupted", "cancelled"]
    assert [store.get(run.id).state for run in mine] == ["queued", "queued"]
    (new,) = [run for run in store.runs() if run.id > mine[-1].id]
    assert (new.user, new.digest, new.state) == ("local", other.digest, "queued")


def test_a_failure_gives_its_reason_character_for_character(text):
    measure(text, state="failed", last=0, reason=ODD, only=("average",))
    page = opened(budget="chapter")
    assert f"Failed: {ODD} (1 of 4 runs)" in said(page)
    assert any(plain(ODD) in element.value for element in page.markdown)


def test_odd_and_long_values_of_the_url_are_named_character_for_character(text):
    words = said(opened(budget=ODD, seeds="1," * 400, text="../../etc/passwd"))
    assert f"budget is {ODD!r}" in words
    assert "seeds has 800 characters; allowed: at most 400. Used: 0." in words
    assert "text is '../../etc/passwd'; allowed: " in words


def test_seeds_in_the_box_are_held_to_rules_and_taken_exactly(text):
    page = opened(seeds=request.OWN)
    assert "Type your seeds first" in said(page)
    for wrong in ("1,1", "-1", "18446744073709551616", "abc"):
        page = choose(page, "averages.own_seeds", wrong)
        complaint = "seed 1 is given twice in '1,1'" if wrong == "1,1" else f"seeds are '{wrong}'; {RANGE}"
        assert complaint in said(page)
        assert page.button(key="averages.train").disabled
    for right in (" 9007199254740993", "9223372036854775807", "0"):
        page = choose(opened(seeds=request.OWN), "averages.own_seeds", right)
        assert page.query_params["seeds"] == right.strip()
        assert not page.button(key="averages.train").disabled


def test_choices_go_to_the_url_and_mend_a_bad_one(text):
    page = choose(opened(budget="huge"), "averages.budget", "chapter")
    assert page.query_params["budget"] == "chapter"
    assert "allowed" not in said(page)
    assert choose(page, "averages.best", "average").query_params["best"] == "average"


def test_a_text_that_cannot_be_used_gets_one_sentence(text):
    page = opened(text=request.UPLOAD)
    assert "Bring a text first" in said(page)

    def upload(case, name):
        content = (paths.ROOT / "tests" / "cases" / case).read_bytes()
        page.file_uploader[0].set_value((name, content, "text/plain"))
        return said(rerun(page))

    assert "0x92 at offset 20008" in upload("cp1252.txt", "cp1252.txt")
    upload("bom_crlf.txt", name := f"{ODD.replace('/', '')}.txt")
    assert page.session_state["averages.text"].startswith("upload-")
    assert name in page.selectbox[0].options
    assert not page.button(key="averages.train").disabled


def test_a_full_disk_is_told_and_nothing_breaks(text, full_disk):
    page = press(opened(), "averages.train")
    assert "The list of runs cannot be written: database or disk is full." in said(page)


def test_a_text_that_is_gone_is_told(text, home):
    page = opened()
    shutil.rmtree(home / "data" / "uploads")
    rerun(page)
    assert page.button(key="averages.train").disabled


def test_dilution_is_one_over_t(text):
    page = opened(t="40")
    assert "1/40 = **2.5 %**" in said(page)
    assert "**51.2 %**" in said(page)
    page = choose(page, "averages.t", 1)
    assert "**100.0 %**; there is nothing else yet" in said(page)


COMPARISON = Comparison(
    pieces_a=[" the", " dog"], pieces_b=[" dog", " the"], same_pieces=True, average_difference=2.98e-8,
    top_a=[(" $5\n", 0.05)], top_b=[(" the", 0.05)], probability_difference=0.0,
)  # fmt: skip


@pytest.fixture
def asked(text, probes_here, monkeypatch):
    """The pairs of texts asked about; each gets that answer, on weights as if they were shipped."""
    shipped, pairs = Weights(paths.ROOT / "LICENSE", "shipped, seed 0", 0), []
    monkeypatch.setattr(weights, "shipped", lambda *_: shipped)

    def answer(text_a, text_b, **_):
        pairs.append((text_a, text_b))
        return COMPARISON

    probes_here.answers["averages"] = answer
    return pairs


def test_two_orders_of_the_same_words_are_one_summary(asked):
    page = opened()
    assert ("the dog bit the man", "the man bit the dog") in asked
    assert said(page).count("differ by at most **2.98e−08**") == 3  # the paragraph below is there as well
    assert page.table[1].value.iloc[0, 0] == plain("·$5¶")
    page = choose(page, "averages.second", "man dog the the bit")
    assert asked[-1] == ("the dog bit the man", "man dog the the bit")
    assert page.query_params["second"] == "man dog the the bit"
    press(page, "averages.shuffle")
    before, after = asked[-1]
    assert before != after
    assert sorted(before.split()) == sorted(after.split())


def test_other_pieces_are_named(asked, probes_here):
    other = replace(COMPARISON, pieces_a=[" the", ODD], same_pieces=False, average_difference=0.31)
    probes_here.answers["averages"] = lambda **_: other
    words = said(opened())
    assert f"only the first has “{ODD.replace(' ', '·')}”; only the second has “·dog”" in words


def test_whose_weights_are_opened_is_one_policy_with_a_switch(text, asked):
    """Shipped by default, the reader's own once chosen or trained at the chapter's budget; never a fork."""
    store = Store()

    def with_weights(runs):
        run = next(run for run in runs if run.spec.variant == "average")
        (store.directory(run.id) / "checkpoint.safetensors").touch()
        return run

    assert said(opened()).count("Weights: shipped, seed 0.") == 3
    quick = with_weights(measure(text, budget="quick"))
    page = opened()
    assert said(page).count("Weights: shipped, seed 0.") == 3, "a quick model has not learned it yet"
    page = choose(page, "averages.paragraph.weights.shipped", "Yours")
    yours = f"Weights: yours, run #{quick.id}, 100 steps, seed 0."
    assert said(page).count(yours) == 1
    with_weights(finished.runs(AVERAGES, specs=[quick.spec.fork(quick.id)]))
    assert said(rerun(page)).count(yours) == 1, "a fork is another model"
    full = with_weights(measure(text))
    assert f"Weights: yours, run #{full.id}, 3,000 steps, seed 0." in said(opened())


def test_a_clock_set_back_makes_no_negative_time(text):
    runs = measure(text, state="running", last=1200)
    assert "left" in said(opened(budget="chapter"))
    for run in runs:
        Store().advance(
            run.id, "running", "done", started=run.created, ended=run.created - 3600, seconds=60.0
        )
    done = next(line for line in said(opened(budget="chapter")).splitlines() if "Done in " in line)
    assert not {"-", "−"} & set(done)


def test_a_perplexity_beyond_numbers_is_no_hole(text):
    run = measure(text)[1]
    Store().advance(run.id, "done", "done", measured={"validation_perplexity": None})
    page = opened(budget="chapter")
    assert cells(page)[1]["yours"] == ":red[diverged]"
    assert "Diverged, and left out here: average replaces." in said(page)
    numbers = [value for value in charts(page)[0]["done"][0].values() if isinstance(value, float)]
    assert not any(map(math.isnan, numbers))
