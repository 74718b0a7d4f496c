"""The page Averages and its bench: settings in the URL, one button, live figures, four columns."""

import math
import shutil
import sqlite3
from types import SimpleNamespace

import pytest

from engine.chapter import reference
from engine.chapter.experiments import AVERAGES
from engine.data import corpus
from engine.probes.results.averages import Comparison
from engine.runs import dispatcher, estimates, launch
from engine.runs.store import Store
from engine.system import paths
from engine.system.errors import InvalidInput
from lab import weights
from lab.bench import Gap, Request, Row, Sweep, button, difference, request
from lab.bench.status import of, seconds_left
from lab.shell import frame
from lab.weights import Weights
from lab.words import plain
from tests import finished
from tests.apptest import charts, open_page, rerun, said, tables

ODD = "$5 and $6 *x* :smile: <b>z</b> [a](b) a.b[1]: it's"
ENDS = {"no-context": 60.1, "average": 249.1, "average-positions": 246.9, "average-added": 61.3}
RANGE = "allowed: whole numbers from 0 to 9223372036854775807"


def opened(**query):
    return open_page("averages", **query)


def datasets(page):
    """The data of the first chart: rows by dataset's name."""
    return charts(page)[0]


def cells(page):
    """The results table as it is shown."""
    return tables(page)[0]


def measure(text, budget="chapter", seeds=(0,), state="done", step=None, **more):
    """Runs of the whole experiment in some state, with curves up to a step. Returns them."""

    def figures(spec):
        return {"validation_perplexity": ENDS[spec.variant] + 0.1 * spec.seed}

    return finished.runs(AVERAGES, text, budget, seeds, state, last=step, figures=figures, **more)


def test_an_empty_page_has_its_frame_and_says_what_to_do(text, monkeypatch):
    monkeypatch.setattr(estimates, "sweep_seconds", lambda specs: 130.0 * len(specs))
    page = opened()
    assert "About 9 min on this machine" in said(page)
    assert [row["text"] for row in datasets(page)["rules"] if row["text"]] == [
        "chapter 59.71 and 60.45, after 3,000 steps",
        "chapter about 248 and 246, after 3,000 steps",
    ]
    assert [row["chapter"] for row in cells(page)] == ["59.71", ":gray[*≈ 248*]", ":gray[*≈ 246*]", "60.45"]


def test_train_queues_a_run_a_model_and_a_second_click_none(text):
    page = opened(seeds="7,9007199254740993")
    page.button(key="averages.train").click()
    rerun(page)
    runs = Store().runs()
    assert [run.spec.seed for run in runs] == [7] * 4 + [9007199254740993] * 4
    assert {run.user for run in runs} == {"local"}
    assert page.button(key="averages.cancel").label == "Cancel"
    assert "Queued, next in turn" in said(page)
    button.train(Sweep.of(AVERAGES, [run.spec for run in runs], Request()))
    assert len(Store().runs()) == 8


def test_a_running_sweep_shows_curves_progress_and_time_left(text):
    measure(text, "chapter", state="running", step=1200)
    page = opened(budget="chapter")
    assert "Running: step 1,200 of 3,000" in said(page)
    assert "left" in said(page)
    data = datasets(page)
    assert {row["name"] for row in data["curves"]} == {
        "no context",
        "average replaces",
        "+ positions",
        "average added",
    }
    assert data["done"] == [{"from": 0, "to": 1200}]
    assert max(row["step"] for row in data["curves"]) == 1200
    assert page.toggle[0].label == "Pause live"
    assert "Your guesses are answered here" in said(page)


def test_pausing_stops_the_clock_and_keeps_the_picture(text):
    measure(text, "chapter", state="running", step=1200)
    page = opened(budget="chapter")
    page.toggle[0].set_value(True)
    rerun(page)
    assert max(row["step"] for row in datasets(page)["curves"]) == 1200


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
    assert "Green: within 3 % of the chapter." in words


def test_the_shipped_reference_is_never_shown_as_the_readers_own(text, monkeypatch):
    row = SimpleNamespace(mean=lambda metric: 60.08, sd=lambda metric: 0.21)
    shipped = SimpleNamespace(device="CPU, 2 cores", date="2026-01-02", rows={"no-context": row})
    with monkeypatch.context() as patch:
        patch.setattr(reference, "load", lambda experiment_id: shipped)
        page = opened(budget="chapter")
    assert cells(page)[0]["reference"] == "60.1 :gray[± 0.2]"
    assert {line["yours"] for line in cells(page)} == {":gray[–]"}
    assert "Reference: shipped runs, CPU, 2 cores, 2026-01-02." in said(page)


def test_a_difference_beyond_the_tolerance_is_called_outside(text, monkeypatch):
    monkeypatch.setitem(ENDS, "average-added", 65.0)
    measure(text)
    assert cells(opened(budget="chapter"))[3]["difference"] == ":red[+4.5 outside]"


def test_a_quick_figure_judges_nothing(text):
    measure(text, "quick")
    page = opened()
    assert cells(page)[1]["difference"] == ":gray[+1.0]"
    assert f"cannot show {AVERAGES.hides}" in said(page)


def test_a_diverged_model_is_a_labelled_result(text):
    measure(text, state="diverged", step=450, reason="diverged at step 450: loss is NaN", only=("average",))
    page = opened(budget="chapter")
    assert "Diverged at step 450: loss is NaN" in said(page)
    assert cells(page)[1]["yours"] == ":red[diverged]"
    ends = datasets(page)["ends"]
    assert [row["step"] for row in ends if row["kind"] == "cross"] == [450]
    assert "Diverged, and left out here: average replaces." in said(page)
    assert len(cells(page)) == 4


def test_only_ones_own_runs_are_resumed_from_the_list_as_it_is_now(text):
    specs, store = launch.specs("averages", "chapter", (0,), text), Store()
    for reader, some in (("10.0.0.9", specs[:1]), ("local", specs[1:])):
        store.submit(some, reader)
    for run in store.runs():
        store.advance(run.id, "queued", "interrupted")
    sweep = Sweep.of(AVERAGES, specs, Request("chapter"))
    others, cancelled, *mine = store.runs()
    store.advance(cancelled.id, "interrupted", "cancelled")  # after the page was drawn
    for _ in range(2):
        button.resume(sweep)
    assert [store.get(run.id).state for run in (others, cancelled)] == ["interrupted", "cancelled"]
    assert [store.get(run.id).state for run in mine] == ["queued", "queued"]
    (new,) = [run for run in store.runs() if run.id > mine[-1].id]
    assert (new.user, new.digest, new.state) == ("local", others.digest, "queued")


def test_a_failure_gives_its_reason_character_for_character(text):
    measure(text, state="failed", step=0, reason=ODD, only=("average",))
    page = opened(budget="chapter")
    assert f"Failed: {ODD} (1 of 4 runs)" in said(page)
    assert any(plain(ODD) in element.value for element in page.markdown)


@pytest.mark.parametrize(
    ("seeds", "complaint"),
    [
        ("abc", f"seeds are 'abc'; {RANGE}"),
        ("-1", f"seeds are '-1'; {RANGE}"),
        ("18446744073709551616", f"seeds are '18446744073709551616'; {RANGE}"),
        ("1,1", "seed 1 is given twice in '1,1'"),
        ("", f"seeds are ''; {RANGE}"),
    ],
)
def test_bad_seeds_are_refused_in_one_sentence(seeds, complaint):
    with pytest.raises(InvalidInput) as refused:
        request.seeds_text(seeds)
    assert complaint in str(refused.value)


def test_odd_and_long_values_of_the_url_are_named_character_for_character(text):
    words = said(opened(budget=ODD, seeds="1," * 400, text="../../etc/passwd"))
    assert f"budget is {ODD!r}" in words
    assert "seeds has 800 characters; allowed: at most 400. Used: 0." in words
    assert "text is '../../etc/passwd'; allowed: " in words


def test_seeds_in_the_url_are_taken_and_shown_exactly(text):
    page = opened(seeds="7,9007199254740993")
    assert page.session_state["averages.seeds"] == "7,9007199254740993"
    labels = next(group for group in page.button_group if group.key == "averages.seeds").options
    assert "seeds 7, 9007199254740993" in labels
    assert "allowed" not in said(page)
    for seeds in ("24", "0", "9223372036854775807"):
        assert request.seeds_text(seeds) == seeds


def test_seeds_in_the_box_are_held_to_the_same_rules(text):
    page = opened(seeds=request.OWN)
    assert "Type your seeds first" in said(page)
    for wrong in ("1,1", "-1", "18446744073709551616", "abc"):
        page.text_input(key="averages.own_seeds").set_value(wrong)
        rerun(page)
        assert "allowed: whole numbers from 0" in said(page)
        assert page.button(key="averages.train").disabled
    page.text_input(key="averages.own_seeds").set_value(" 9007199254740993")
    rerun(page)
    assert page.query_params["seeds"] == "9007199254740993"
    assert not page.button(key="averages.train").disabled


def test_choices_go_to_the_url_and_mend_a_bad_one(text):
    page = opened(budget="huge")
    next(group for group in page.button_group if group.key == "averages.budget").set_value("chapter")
    rerun(page)
    assert page.query_params["budget"] == "chapter"
    assert "allowed" not in said(page)
    next(group for group in page.button_group if group.key == "averages.best").set_value("average")
    rerun(page)
    assert page.query_params["best"] == "average"


def test_a_text_that_cannot_be_used_gets_one_sentence(text):
    page = opened(text=request.UPLOAD)
    assert "Bring a text first" in said(page)
    cases = paths.ROOT / "tests" / "cases"
    page.file_uploader[0].set_value(("cp1252.txt", (cases / "cp1252.txt").read_bytes(), "text/plain"))
    rerun(page)
    assert "0x92 at offset 20008" in said(page)
    page.file_uploader[0].set_value(
        (f"{ODD.replace('/', '')}.txt", (cases / "bom_crlf.txt").read_bytes(), "text/plain")
    )
    rerun(page)
    assert page.session_state["averages.text"].startswith("upload-")
    assert f"{ODD.replace('/', '')}.txt" in page.selectbox[0].options
    assert not page.button(key="averages.train").disabled


def test_a_full_disk_is_told_and_nothing_breaks(text, monkeypatch):
    page = opened()

    def full(*_):
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(Store, "submit", full)
    page.button(key="averages.train").click()
    rerun(page)
    assert "The list of runs cannot be written: database or disk is full." in said(page)


def test_a_text_that_is_gone_is_told(text, home):
    page = opened()
    shutil.rmtree(home / "data" / "uploads")
    rerun(page)
    assert page.button(key="averages.train").disabled


def test_each_rung_shows_its_own_source(text):
    page = opened()
    shown = "\n".join(element.value for element in page.code)
    for name in ("Transformer", "UniformAverage", "LearnedPositions", "Add"):
        assert f"class {name}(" in shown
    with pytest.raises(ValueError, match="NoSuch"):
        frame.class_source("mixers.NoSuch")


def test_dilution_is_one_over_t(text):
    page = opened(t="40")
    assert "1/40 = **2.5 %**" in said(page)
    assert "**51.2 %**" in said(page)
    page.slider(key="averages.t").set_value(1)
    rerun(page)
    assert "**100.0 %**; there is nothing else yet" in said(page)


def comparison(same=True, first=" the", second=" the"):
    return Comparison(
        pieces_a=[" the", " dog"] if same else [" the", ODD],
        pieces_b=[" dog", " the"],
        same_pieces=same,
        average_difference=2.98e-8 if same else 0.31,
        top_a=[(first, 0.05)],
        top_b=[(second, 0.05)],
        probability_difference=0.0,
    )


def compared(probes_here, monkeypatch, answer):
    """Let every probe give that answer, on weights as if they were shipped. Returns what is asked."""
    shipped = Weights(paths.ROOT / "LICENSE", "shipped, seed 0", 0)
    monkeypatch.setattr(weights, "shipped", lambda *_: shipped)
    probes_here.answers["averages"] = lambda **_: answer
    return probes_here.asked


def texts(asked):
    return [(given["text_a"], given["text_b"]) for _, given in asked]


def test_two_orders_of_the_same_words_are_one_summary(text, probes_here, monkeypatch):
    asked = compared(probes_here, monkeypatch, comparison(first=" $5\n"))
    page = opened()
    assert ("the dog bit the man", "the man bit the dog") in texts(asked)
    assert said(page).count("differ by at most **2.98e−08**") == 3  # the paragraph below is there as well
    assert page.table[1].value.iloc[0, 0] == plain("·$5¶")
    page.text_input(key="averages.second").set_value("man dog the the bit")
    rerun(page)
    assert texts(asked)[-1] == ("the dog bit the man", "man dog the the bit")
    assert page.query_params["second"] == "man dog the the bit"


def test_other_pieces_are_named(text, probes_here, monkeypatch):
    compared(probes_here, monkeypatch, comparison(same=False))
    words = said(opened())
    assert f"only the first has “{ODD.replace(' ', '·')}”; only the second has “·dog”" in words


def test_shuffling_loses_no_word(text, probes_here, monkeypatch):
    asked = compared(probes_here, monkeypatch, comparison())
    page = opened()
    page.button(key="averages.shuffle").click()
    rerun(page)
    before, after = texts(asked)[-1]
    assert before != after
    assert sorted(before.split()) == sorted(after.split())


def test_without_trained_weights_the_probe_says_so(text):
    assert said(opened()).count("There is no trained model here. Train it above") == 3


def test_whose_weights_are_opened_is_one_policy_with_a_switch(text, probes_here, monkeypatch):
    """Shipped by default, the reader's own once chosen or trained at the chapter's budget; never a fork."""
    compared(probes_here, monkeypatch, comparison())
    monkeypatch.setattr(corpus, "TINYSHAKESPEARE_SHA256", corpus.sha256_of(text))
    assert said(opened()).count("Weights: shipped, seed 0.") == 3
    (quick,) = (run for run in measure(text, budget="quick") if run.spec.variant == "average")
    path = Store().directory(quick.id) / "checkpoint.safetensors"
    path.touch()
    page = opened()
    assert said(page).count("Weights: shipped, seed 0.") == 3, "a quick model has not learned it yet"
    page.segmented_control(key="averages.paragraph.weights.shipped").set_value("Yours")
    yours = f"Weights: yours, run #{quick.id}, 100 steps, seed 0."
    assert said(rerun(page)).count(yours) == 1
    store = Store()
    (sweep,) = {store.submit([quick.spec.fork(quick.id)], "local")}
    (fork,) = store.runs(sweep=sweep)
    store.directory(fork.id).mkdir()
    (store.directory(fork.id) / "checkpoint.safetensors").touch()
    store.advance(fork.id, "queued", "done", started=1.0, ended=2.0, seconds=1.0)
    assert said(rerun(page)).count(yours) == 1, "a fork is another model"
    (full,) = (run for run in measure(text) if run.spec.variant == "average")
    (Store().directory(full.id) / "checkpoint.safetensors").touch()
    assert f"Weights: yours, run #{full.id}, 3,000 steps, seed 0." in said(opened())


def test_noise_is_under_two_standard_deviations_of_paired_differences():
    def row(*values):
        return Row("average", None, None, dict(enumerate(values)), 0)

    assert difference(row(3.0), row(1.0)) == Gap(2.0, None)
    assert difference(row(), row(1.0)) is None
    assert difference(row(3.0, 3.1), row(1.0, 1.2)).noise is False
    assert difference(row(3.0, 1.0), row(1.0, 3.2)).noise is True


def test_a_clock_set_back_makes_no_negative_time(text):
    runs = measure(text, state="running", step=1200)
    sweep = Sweep.of(AVERAGES, [run.spec for run in runs], Store())
    assert seconds_left(sweep) >= 0
    for run in runs:
        Store().advance(
            run.id, "running", "done", started=run.created, ended=run.created - 3600, seconds=60.0
        )
    done = of(sweep.again()).text
    assert done.startswith("Done in ")
    assert not {"-", "−"} & set(done)


def test_a_perplexity_beyond_numbers_is_no_hole(text):
    measure(text)
    run = next(run for run in Store().runs() if run.spec.variant == "average")
    Store().advance(run.id, "done", "done", measured={"validation_perplexity": None})
    page = opened(budget="chapter")
    assert cells(page)[1]["yours"] == ":red[diverged]"
    assert not any(
        math.isnan(value) for value in datasets(page)["done"][0].values() if isinstance(value, float)
    )
