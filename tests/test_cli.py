"""The command line: strict JSON on stdout and nothing else, one sentence for what is wrong, honest exits."""

import io
import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from types import SimpleNamespace

import pytest

from engine import __main__, commands
from engine.chapter import reference
from engine.chapter.budget import Budget
from engine.chapter.definitions import PERPLEXITY, Experiment
from engine.chapter.experiments import AVERAGES, EXPERIMENTS, SCALING
from engine.chapter.language_experiments import WINOGRAD_CLOSED
from engine.chapter.measurements import MEASUREMENTS, VARIANCE, Measurement
from engine.chapter.variants import AVERAGE, AVERAGE_ADDED, NO_CONTEXT
from engine.data import corpus
from engine.data.languages import shelf
from engine.data.languages.winograd import CLOSED
from engine.runs import reference_writer, wait
from engine.runs.dispatcher import Dispatcher
from engine.runs.launch import specs
from engine.runs.spec import RunSpec
from engine.runs.store import ENDED, Store
from engine.system import device, files, paths
from tests import finished

SEED = 9007199254740993  # 2^53 + 1: what a float would make ...992 of
RUN = ("run", "averages")
TINY = Budget(steps=10, batch_size=2, context_length=16, evaluate_every=5)


def strict(text):
    """The one JSON document that a text is; NaN and Infinity are none."""

    def refuse(token):
        raise AssertionError(f"{token} is no JSON")

    assert text.endswith("\n")
    assert text.count("\n") == 1
    return json.loads(text, parse_constant=refuse)


def cli(*arguments):
    """Exit code, stdout and stderr of one command, run in this process."""
    out, err = io.StringIO(), io.StringIO()
    code: object = None
    with redirect_stdout(out), redirect_stderr(err):
        try:
            code = __main__.main([str(a) for a in arguments])
        except SystemExit as end:
            code = end.code
    return code, out.getvalue(), err.getvalue()


def assert_refused(code, out, err, *said):
    assert (code, out) == (2, "")
    assert err.endswith("\n")
    assert err.count("\n") == 1, "one sentence"
    assert "usage" not in err
    assert not [words for words in said if words not in err]


class InstantEngine:
    """Ends every run the moment it is launched, as ``outcomes`` says by variant."""

    def __init__(self, outcomes=None):
        self.outcomes, self.launched = outcomes or {}, []

    def capacity(self):
        return 2

    def alive(self, *_):
        return False

    def close(self):
        pass

    def launch(self, run, directory, _):
        self.launched.append(run.id)
        outcome = {"attempt": run.attempt, **self.outcome(run)}
        files.write_json(directory / "outcome.json", outcome)
        files.write_json(directory / f"exit.{run.attempt}.json", {"code": 0, "reason": ""})

    def outcome(self, run):
        done = {"state": "done", "measured": {"validation_perplexity": 60.0 + run.id}, "seconds": 1.0}
        return self.outcomes.get(run.spec.variant, done)


@pytest.fixture
def instant(home, monkeypatch):
    engine = InstantEngine()
    monkeypatch.setattr(wait, "LocalEngine", lambda: engine)
    monkeypatch.setattr(device, "describe", lambda: device.Device("cpu", "a test", 0, "2", False))
    return engine


# What is told without any run


def test_list_names_every_experiment_variant_and_budget():
    code, out, err = cli("list")
    assert (code, err) == (0, "")
    for known in EXPERIMENTS.values():
        for word in (known.id, known.question, *known.variants, *known.budgets):
            assert word in out
    for untrained in MEASUREMENTS.values():
        for word in (untrained.id, untrained.question, *untrained.variants):
            assert word in out
    assert out.count("quick and chapter are the same, nothing is trained") == len(MEASUREMENTS) == 6


def test_commands_work_as_processes_of_their_own(python, home):
    listed, shown = python("-m", "engine", "list"), python("-m", "engine", "show", "averages", "--json")
    assert (listed.returncode, listed.stderr, shown.returncode, shown.stderr) == (0, "", 0, "")
    assert "averages: " in listed.stdout
    assert strict(shown.stdout)["id"] == "averages"
    wrong = python("-m", "engine", *RUN, "--corpus", "python-reference", "--seeds", str(2**64))
    assert_refused(wrong.returncode, wrong.stdout, wrong.stderr, "9223372036854775807")
    assert not any(home.rglob("*"))


def printed(*arguments):
    """What a command that succeeds without a remark prints."""
    code, out, err = cli(*arguments)
    assert (code, err) == (0, "")
    return out


def test_show_gives_the_chapters_figures_before_any_reference_is_shipped(no_reference):
    shown = strict(printed("show", "averages", "--json"))
    assert list(shown) == ["id", "rows"]
    assert [row["chapter"] for row in shown["rows"]] == [59.71, [247.9, 248.2], None, 60.45, -2.14, 0.74]
    assert [row["reference"] for row in shown["rows"]] == [None] * 6
    for form in ([], ["--markdown"]):
        out = printed("show", "averages", *form)
        assert "59.71" in out
        assert "248" in out


def ship(folder, known, perplexities):
    """Write a reference of these figures by variant and seed."""

    def figures(name, seed):
        of_seeds = perplexities[name]
        return {PERPLEXITY: of_seeds[seed]} if seed < len(of_seeds) else None

    finished.ship(folder, known, figures, list(perplexities), (0, 1, 2))


def test_show_sets_the_shipped_reference_beside_the_chapter(no_reference):
    ship(
        no_reference,
        AVERAGES,
        {"no-context": [60.0, 61.0, 62.5], "average": [249.5], "average-added": [None, None]},
    )
    rows = strict(printed("show", "averages", "--json"))["rows"]
    of = {row["variant"]: row["reference"] for row in rows}
    at = {"device": "CPU, 2 cores", "date": "2026-01-02"}
    spread = {"mean": pytest.approx(61.1667, abs=1e-4), "sd": pytest.approx(1.2583, abs=1e-4)}
    assert of["no-context"] == {**spread, "seeds": [0, 1, 2], **at}
    assert of["average"] == {"mean": 249.5, "sd": None, "seeds": [0], **at}
    assert of["average-positions"] is None
    assert of["average-added"] == {"mean": None, "sd": None, "seeds": [0, 1], **at}
    for form in ([], ["--markdown"]):
        out = printed("show", "averages", *form)
        assert not [figure for figure in ("61.17 ± 1.26", "249.50", "diverged") if figure not in out]


def test_show_gives_every_figure_of_the_chapter_and_gaps_paired_by_seed(no_reference):
    figures = {"divided-1024": [50.0, 60.0, None], "undivided-1024": [69.0, 75.0, 80.0]}
    ship(no_reference, SCALING, {**figures, "undivided-256": [70.0]})
    rows = strict(printed("show", "scaling-training", "--json"))["rows"]
    of = {(row["variant"], row["metric"]): row for row in rows}
    assert len(of) == len(rows) == 8 + 5
    assert of["undivided-1024", "score_std"]["chapter"] == 5147
    assert of["divided-1024", "score_std"]["reference"]["mean"] is None
    gap = of["undivided-1024", "perplexity_gap"]
    assert gap["chapter"] == 17
    assert (gap["reference"]["mean"], gap["reference"]["sd"]) == (17.0, pytest.approx(2.8284, abs=1e-4))
    assert of["undivided-256", "perplexity_gap"]["reference"]["mean"] is None, "its parent was not measured"
    figure = "undivided, d_k 1024: points of perplexity above *divided, d_k 1024*"
    line = f"| {figure} | 17.00 | 8.5 | 17.00 ± 2.83 | +0.00 | reproduced |"
    assert line in printed("show", "scaling-training", "--markdown")


# Wrong arguments


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), ["COMMAND"]),
        (("rnu",), ["rnu", "list", "show", "run", "reproduce"]),
        (("show", "avrages"), ["no experiment 'avrages'", "averages", "parity", "scaling-variance"]),
        (("run", "avrages"), ["no experiment 'avrages'", "averages", "parity", "scaling-variance"]),
        ((*RUN, "--budget", "long"), ["no budget 'long'", "quick, chapter"]),
        ((*RUN, "--variant", "averge"), ["no variant 'averge'", "no-context, average, "]),
        ((*RUN, "--variant", "average", "--variant", "average"), ["'average'", "twice", "once"]),
        ((*RUN, "--corpus", "../../etc/passwd"), ["'../../etc/passwd'", "python-reference"]),
        ((*RUN, "--steps", "5"), ["--steps 5"]),
        ((*RUN, "--seeds", "1,1"), ["seed 1 is given twice", "each once"]),
        ((*RUN, "--seeds=-1,2"), ["'-1,2'", "from 0 to 9223372036854775807"]),
        (("run", "parity", "--budget", "long"), ["no budget 'long'", "quick, chapter"]),
        (("run", "parity", "--variant", "d-4"), ["no variant 'd-4' in parity", "module-float32"]),
        (("run", "scaling-variance", *["--variant", "d-4"] * 2), ["'d-4'", "twice", "once"]),
        (("run", "scaling-variance", "--seeds", "1,1"), ["seed 1 is given twice", "each once"]),
        (("run", "scaling-variance", "--corpus", "tinyshakespeare"), ["scaling-variance reads no text"]),
        (("run", "norm-gradients", "--corpus", "python-reference"), ["always reads Tiny Shakespeare"]),
        (("run", "induction", "--corpus", "../../etc/passwd"), ["'../../etc/passwd'", "allowed: induction."]),
        (("run", "winograd-closed", "--corpus", f"winograd-{'0' * 16}"), ["is not on this machine"]),
        (("run", "winograd-closed", "--variant", "block"), ["no variant 'block' in winograd-closed"]),
        ((*RUN, "--corpus", "winograd-closed"), ["is a language; averages trains on a text."]),
    ],
)
def test_a_wrong_argument_is_one_sentence_and_exit_2(home, monkeypatch, arguments, said):
    monkeypatch.setattr(corpus, "default_corpus_id", lambda: pytest.fail("fetched a text first"))
    assert_refused(*cli(*arguments), *said)
    assert not any(home.rglob("*")), "nothing half made"


def test_a_data_folder_that_cannot_be_used_is_told_in_one_sentence(instant, tmp_path, monkeypatch):
    blocked = tmp_path / "a file"
    blocked.write_text("in the way")
    monkeypatch.setattr(paths, "HOME", blocked)
    monkeypatch.setattr(paths, "RUNS", blocked / "checkpoints" / "runs")
    code, out, err = cli(*RUN, "--corpus", "python-reference", "--json")
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert err.startswith(f"the data folder {blocked} cannot be used: ")


# A run, its trainers replaced


def test_run_prints_one_document_and_progress_goes_to_stderr(instant, tiny_corpus):
    code, out, err = cli(*RUN, "--seeds", f"3,{SEED}", "--corpus", tiny_corpus, "--json")
    document = strict(out)
    assert list(document) == ["id", "budget", "precision", "device", "seconds", "rows"]
    assert (code, document["id"], document["budget"], document["device"]) == (
        0,
        "averages",
        "quick",
        "a test",
    )
    assert (code, document["seconds"] >= 0) == (0, True)
    assert [(row["seed"], row["variant"]) for row in document["rows"]] == [
        (seed, variant) for seed in (3, SEED) for variant in AVERAGES.variants
    ]
    for number, row in enumerate(document["rows"], start=1):
        assert (row["state"], row["measured"]) == ("done", {"validation_perplexity": 60.0 + number})
    assert f"#8 average-added, seed {SEED}: done" in err


def test_run_for_people_says_what_was_measured(instant, tiny_corpus):
    reason, lost = "diverged at step 3: loss is NaN", {"validation_perplexity": None}
    instant.outcomes["average"] = {"state": "diverged", "reason": reason, "measured": lost}
    code, out, _ = cli(*RUN, "--corpus", tiny_corpus, "--variant", "average", "--variant", "no-context")
    first, *rows = out.splitlines()
    assert (code, first) == (0, "averages, quick budget, a test")
    assert [row.split("seed 0")[1].strip() for row in rows[:2]] == [reason, "62.00"]


def test_a_failed_run_is_exit_1_with_its_reason_and_the_others_are_printed(instant, tiny_corpus):
    instant.outcomes["average"] = {"state": "failed", "reason": "out of memory: 9 GB asked"}
    code, out, err = cli(*RUN, "--corpus", tiny_corpus, "--json")
    assert code == 1
    assert err.endswith("#2 average, seed 0: failed: out of memory: 9 GB asked\n")
    rows = strict(out)["rows"]
    assert [row["state"] for row in rows] == ["done", "failed", "done", "done"]
    assert (rows[1]["measured"], rows[1]["reason"]) == ({}, "out of memory: 9 GB asked")


def test_while_the_lab_is_open_its_dispatcher_does_the_work(instant, tiny_corpus):
    labs = InstantEngine()
    with Dispatcher(Store(), labs) as lab, ThreadPoolExecutor(1) as pool:
        asked = pool.submit(lambda: cli(*RUN, "--corpus", tiny_corpus, "--json"))
        while not asked.done():
            lab.tick()
            time.sleep(0.02)
    code, out, _ = asked.result()
    assert code == 0
    assert len(strict(out)["rows"]) == len(labs.launched) == 4
    assert instant.launched == []


def test_ctrl_c_asks_runs_to_save_cancels_what_waits_and_is_exit_130(instant, tiny_corpus, monkeypatch):
    def interrupted(run, directory, slot):
        raise KeyboardInterrupt

    monkeypatch.setattr(instant, "launch", interrupted)
    code, out, err = cli(*RUN, "--corpus", tiny_corpus, "--json")
    assert (code, out) == (130, "")
    assert "Traceback" not in err
    store = Store()
    assert [run.state for run in store.runs()] == ["interrupted", *["cancelled"] * 3]
    assert files.stop_requested(store.directory(1), 1) == "stop"


def test_run_in_bfloat16_is_another_run_of_the_same_experiment(instant, tiny_corpus):
    for precision, option in (("float32", ()), ("bfloat16", ("--precision", "bfloat16"))):
        out = cli(*RUN, "--corpus", tiny_corpus, "--variant", "average", *option, "--json")[1]
        assert strict(out)["precision"] == precision
    first, second = Store().runs()
    assert (first.spec.budget.precision, second.spec.budget.precision) == ("float32", "bfloat16")
    assert first.digest != second.digest


def test_a_precision_that_there_is_not_is_refused(instant, tiny_corpus):
    refused = cli("run", "averages", "--corpus", tiny_corpus, "--precision", "float8")
    assert_refused(*refused, "precision is 'float8'; allowed: float32, bfloat16.")
    untrained = cli("run", "scaling-variance", "--precision", "bfloat16")
    assert_refused(*untrained, "scaling-variance trains nothing, so it has no --precision.")


def test_an_experiment_of_a_language_needs_no_text(instant, monkeypatch):
    monkeypatch.setattr(corpus, "default_corpus_id", lambda: pytest.fail("fetched a text"))
    shares = {"accuracy": 0.9275, "wrong_noun": 0.0725}
    instant.outcomes["one-block"] = {"state": "done", "measured": shares}
    names = ("--variant", "one-block", "--variant", "average")
    code, out, _ = cli("run", "winograd-closed", "--seeds", f"0,{SEED}", *names, "--json")
    rows = strict(out)["rows"]
    assert [(row["variant"], row["seed"]) for row in rows[1:3]] == [("average", 0), ("one-block", SEED)]
    assert (code, rows[0]["measured"]) == (0, shares)
    assert {run.spec.corpus for run in Store().runs()} == {"winograd-closed"}
    first = cli("run", "winograd-closed", *names)[1].splitlines()[1]
    assert first.split() == ["one-block", "seed", "0", "0.927"]


def test_an_edited_language_is_run_by_its_id(instant):
    edited = shelf.keep(replace(CLOSED, nouns=CLOSED.nouns[:9]))
    code, out, _ = cli("run", "winograd-closed", "--corpus", edited, "--json")
    assert (code, len(strict(out)["rows"])) == (0, 4)
    assert {run.spec.config.vocab_size for run in Store().runs()} == {12 + 9 + 8}
    assert_refused(*cli("run", "winograd-open", "--corpus", edited))


def test_show_gives_the_shares_that_the_chapter_prints(no_reference):
    shares = printed("show", "winograd-closed", "--markdown")
    assert "| uniform average | 0.279 | 6 points | – | – | – |" in shares
    assert "| uniform average: share that names the wrong noun of the pair | 0.500 | 6 points |" in shares


def test_without_the_chapters_text_run_says_so_and_goes_on(instant, monkeypatch):
    notice = "Tiny Shakespeare could not be fetched: …"
    monkeypatch.setattr(corpus, "default_corpus_id", lambda: (corpus.PYTHON_REFERENCE, notice))
    code, out, err = cli(*RUN, "--json", "--variant", "average")
    assert code == 0
    assert err.startswith(f"{notice}\n")
    assert len(strict(out)["rows"]) == 1
    assert Store().get(1).spec.corpus == corpus.PYTHON_REFERENCE


def only(patch, *known):
    """Nothing but these is there to reproduce."""
    for everything, kind in ((EXPERIMENTS, Experiment), (MEASUREMENTS, Measurement)):
        for name in reversed(list(everything)):  # so that they come back in their order
            patch.delitem(everything, name)
        for one in known:
            if isinstance(one, kind):
                patch.setitem(everything, one.id, one)


def test_reproduce_measures_what_is_missing_and_resumes_what_stopped(instant, tiny_corpus, monkeypatch):
    monkeypatch.setattr(commands, "corpus", SimpleNamespace(TINYSHAKESPEARE=tiny_corpus))
    only(monkeypatch, replace(AVERAGES, seeds=(0, 1)))
    instant.outcomes["average"] = {"state": "failed", "reason": "disk full"}
    code, out, err = cli("reproduce")
    assert (code, out) == (1, "")
    assert err.endswith("#2 average, seed 0: failed: disk full\n#6 average, seed 1: failed: disk full\n")
    assert instant.launched == list(range(1, 9))

    instant.outcomes.clear()
    assert cli("reproduce")[0] == 0
    assert sorted(instant.launched[8:]) == [2, 6], "the same runs, gone on with"
    assert [run.attempt for run in Store().runs()] == [1, 2, 1, 1, 1, 2, 1, 1]

    assert cli("reproduce")[0] == 0
    assert len(instant.launched) == 10


def test_reproduce_goes_on_with_what_a_killed_process_left_running(instant, tiny_corpus, monkeypatch):
    monkeypatch.setattr(commands, "corpus", SimpleNamespace(TINYSHAKESPEARE=tiny_corpus))
    only(monkeypatch, replace(AVERAGES, seeds=(0,)))
    store = Store()
    store.submit(specs("averages", "chapter", (0,), tiny_corpus))
    assert store.advance(2, "queued", "running")  # and nobody wrote down how it ended
    assert cli("reproduce")[:2] == (0, "")
    assert [(run.state, run.attempt) for run in store.runs()] == [("done", 1 + (n == 1)) for n in range(4)]


# What needs no training


@pytest.mark.parametrize(
    "known",
    [known for known in MEASUREMENTS.values() if not known.corpus_id],  # a text would have to be fetched
    ids=lambda known: known.id,
)
def test_a_measurement_prints_the_same_document_as_a_training(home, one_thread, known):
    names = (known.variants[-1], known.variants[0])
    chosen = [word for name in names for word in ("--variant", name)]
    code, out, err = cli("run", known.id, "--seeds", f"0,{SEED}", "--budget", "chapter", *chosen, "--json")
    assert (code, err) == (0, f"{known.id}, seed 0: done\n{known.id}, seed {SEED}: done\n")
    document = strict(out)
    assert list(document) == ["id", "budget", "device", "seconds", "rows"]
    assert (document["id"], document["budget"]) == (known.id, "chapter")
    assert document["device"].startswith("CPU, ")
    rows = document["rows"]
    assert [(row["seed"], row["variant"]) for row in rows] == [(s, name) for s in (0, SEED) for name in names]
    for row in rows:
        assert list(row) == ["variant", "seed", "state", "measured"]
        assert (row["state"], list(row["measured"])) == ("done", list(known.metrics))
    assert rows[0]["measured"] != rows[2]["measured"], "another seed draws anew"
    assert not any(home.rglob("*")), "nothing is kept"


def test_a_measurement_for_people_and_what_this_cpu_cannot_compute(monkeypatch):
    found = {name: {"variance": 4.0, "std": 2e-7} for name in VARIANCE.variants[1:]}
    monkeypatch.setattr(Measurement, "measure", lambda *_: found)
    code, out, _ = cli("run", "scaling-variance")
    lines = out.splitlines()
    assert (code, len(lines)) == (0, 7)
    assert lines[1].split() == ["d-4", "seed", "0", "unsupported"]
    assert lines[2].endswith("variance 4.000, std 2.00e-07")
    rows = strict(cli("run", "scaling-variance", "--json")[1])["rows"]
    assert (rows[0]["state"], rows[0]["measured"]) == ("unsupported", {})


def test_reproduce_measures_what_needs_no_training_for_the_reference(no_reference, home, monkeypatch):
    only(monkeypatch, VARIANCE)
    assert cli("reproduce")[0] == 0
    assert list(no_reference.iterdir()) == []
    code, out, err = cli("reproduce", "--write-reference")
    assert (code, out, err) == (0, "", "scaling-variance: wrote scaling-variance.json\n")
    shown = strict(printed("show", "scaling-variance", "--json"))
    assert [row["metric"] for row in shown["rows"]] == ["variance", "std"] * 5
    for row in shown["rows"]:
        assert row["reference"]["mean"] == pytest.approx(row["chapter"], abs=0.0005)
        assert (row["reference"]["sd"], row["reference"]["seeds"]) == (None, [0])
        assert row["reference"]["device"].startswith("CPU, ")
    table = printed("show", "scaling-variance", "--markdown")
    assert "| d-4: variance of q·k | 3.975 | 0.0005 | 3.975 | +0.0 % | reproduced in one seed |" in table
    assert "Seed 0; CPU, " in table


def test_show_writes_what_is_tiny_as_a_power_of_ten():
    lines = [line.split() for line in printed("show", "parity").splitlines()]
    (line,) = (line for line in lines if line[:2] == ["module-float32", "difference"])
    assert line[2] == "1.79e-07"
    assert line[3:5] == ["100", "%"]
    assert line[5].endswith("e-07")


def test_show_without_a_name_prints_everything_with_its_verdict():
    out = printed("show")
    for name in (*EXPERIMENTS, *MEASUREMENTS):
        assert f"{name}: " in out
    assert "not reproduced: ALiBi gains 0.86 and 0.85 points" in out
    assert [one["id"] for one in strict(printed("show", "--json"))] == [*EXPERIMENTS, *MEASUREMENTS]


# A run, in earnest


@pytest.fixture(scope="module")
def story(tmp_path_factory, tiny_text):
    """Two real runs, one with an absurd learning rate, then ``reproduce`` twice. What each printed."""
    folder = tmp_path_factory.mktemp("story")
    with pytest.MonkeyPatch.context() as patch:
        for name in ("HOME", "DATA", "RUNS", "REFERENCE"):
            patch.setattr(paths, name, folder if name == "HOME" else folder / name.lower())
        patch.setenv("ATTENTION_LAB_SLOTS", "2")
        device.describe.cache_clear()
        text = corpus.add_upload(tiny_text, "tiny.txt", context_length=16)
        patch.setattr(commands, "corpus", SimpleNamespace(TINYSHAKESPEARE=text.id))
        budgets = {"quick": TINY, "chapter": TINY}
        tiny = replace(AVERAGES, weights=(), chapter={}, budgets=budgets, seeds=(SEED,))
        only(patch, replace(tiny, models=(NO_CONTEXT, AVERAGE_ADDED)))
        sound = commands.specs

        def absurd(*arguments):
            first, second = sound(*arguments)
            return [first, replace(second, budget=replace(TINY, learning_rate=1e6))]

        patch.setattr(commands, "specs", absurd)
        told = {"run": cli(*RUN, "--seeds", SEED, "--corpus", text.id, "--json")}
        told["runs"] = Store().runs()
        patch.setattr(commands, "specs", sound)
        patch.setitem(EXPERIMENTS, "averages", replace(tiny, models=(NO_CONTEXT, AVERAGE)))
        told["reproduce"] = cli("reproduce", "--write-reference")
        told["again"] = cli("reproduce")
        told["all runs"] = Store().runs()
        told["show"] = cli("show", "averages", "--json")
        told["device"] = device.describe()
        yield told, Store()
    device.describe.cache_clear()
    reference.load.cache_clear()


def test_run_trains_and_prints_strict_json(story):
    told, store = story
    code, out, err = told["run"]
    assert code == 0
    assert "Traceback" not in err
    document = strict(out)
    assert document["device"] == told["device"].title
    assert document["seconds"] > 0
    assert [row["variant"] for row in document["rows"]] == ["no-context", "average-added"]
    sound = document["rows"][0]
    assert (sound["state"], sound["seed"]) == ("done", SEED)
    assert all(1 < sound["measured"][name] < 5000 for name in ("validation_perplexity", "train_perplexity"))
    first = told["runs"][0]
    asked = RunSpec.from_json((store.directory(first.id) / "spec.json").read_text())
    assert asked.seed == SEED, "recorded exactly"
    assert first.environment["device"] == told["device"].title
    assert [r["step"] for r in files.records(store.directory(first.id))] == [0, 10]


def test_a_diverged_run_is_a_labelled_row_and_no_failure(story):
    told, store = story
    row = strict(told["run"][1])["rows"][1]
    assert row["state"] == "diverged"
    assert row["reason"].startswith("diverged at step 2: loss is ")
    assert row["measured"] == {"validation_perplexity": None, "train_perplexity": None}
    assert told["runs"][1].state == "diverged"
    for run in told["runs"]:
        for line in (store.directory(run.id) / "metrics.jsonl").read_text().splitlines(keepends=True):
            strict(line)


def test_reproduce_trains_only_what_is_missing_and_then_nothing(story):
    told, _ = story
    assert told["reproduce"][:2] == (0, "")
    assert told["again"] == (0, "", "")
    assert [run.spec.variant for run in told["all runs"]] == ["no-context", "average-added", "average"]
    assert all(run.attempt == 1 and run.state in ENDED for run in told["all runs"])


def test_reproduce_writes_the_reference_that_show_prints(story):
    told, _ = story
    measured = {run.spec.variant: run.measured["validation_perplexity"] for run in told["all runs"]}
    for row in strict(told["show"][1])["rows"]:
        shown = {key: row["reference"][key] for key in ("mean", "sd", "seeds", "device")}
        mean = measured[row["variant"]]
        assert shown == {"mean": mean, "sd": None, "seeds": [SEED], "device": told["device"].title}


def test_who_has_read_enough_is_no_error(home):
    command, pipe = [sys.executable, "-m", "engine", "show", "parity"], subprocess.PIPE
    listing = subprocess.Popen(command, cwd=paths.ROOT, stdout=pipe, stderr=pipe, text=True)
    listing.stdout.close()
    assert listing.communicate()[1] == ""


def test_a_language_is_trained_in_earnest_and_its_reference_is_shown(home, no_reference, monkeypatch):
    monkeypatch.setenv("ATTENTION_LAB_SLOTS", "2")
    device.describe.cache_clear()
    tiny = replace(TINY, context_length=17)
    only(monkeypatch, replace(
        WINOGRAD_CLOSED,
        models=tuple(map(WINOGRAD_CLOSED.variant, ("average", "one-block"))),
        weights=("one-block",), chapter={}, budgets={"quick": tiny, "chapter": tiny}, own_budgets={},
        seeds=(SEED,),
    ))  # fmt: skip
    code, out, err = cli("reproduce", "--write-reference")
    device.describe.cache_clear()
    assert (code, out) == (0, "")
    assert err.endswith("winograd-closed: wrote winograd-closed.json\n")
    runs, shipped = Store().runs(), reference.load("winograd-closed")
    assert [run.spec.variant for run in runs] == ["average", "one-block"]
    assert shipped.corpus_sha256 == CLOSED.sha256
    for run in runs:
        assert (run.state, run.spec.seed) == ("done", SEED)
        row, measured = shipped.rows[run.spec.variant], run.measured
        assert row.measured == {str(SEED): measured}
        first, last = row.curves[str(SEED)]
        assert (first[0], last) == (0, [10, pytest.approx(measured["accuracy"], abs=1e-3)])
        losses = reference_writer.first_losses(run.spec.config, "winograd-closed")
        assert row.losses == pytest.approx(losses, abs=1e-3)
        shares = [measured[name] or 0 for name in ("accuracy", "wrong_noun", "other")]
        assert sum(shares) == pytest.approx(1)
    rows = strict(printed("show", "winograd-closed", "--json"))["rows"]
    assert rows[0]["reference"]["mean"] == runs[0].measured["accuracy"]
    assert cli("reproduce")[:2] == (0, "")
    assert len(Store().runs()) == 2, "measured already"
