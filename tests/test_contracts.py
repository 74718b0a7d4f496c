"""What others rely on is as it was: documents that the version of 2026-11-30 gave, compared with today's.

``recorded/`` holds them. What was recorded must be so still, to the byte; more may stand beside it.
"""

import json
import re
import sqlite3
from contextlib import closing

import pytest

from engine.chapter.definitions import METRICS
from engine.chapter.experiments import EXPERIMENTS
from engine.chapter.measurements import MEASUREMENTS
from engine.runs.spec import RunSpec
from engine.runs.store import Store
from engine.runs.trainer import prepared
from engine.system import files, paths
from tests.apptest import open_page, said
from tests.test_cli import cli, instant, strict  # noqa: F401  (a fixture)
from tests.test_experiments import spec

RECORDED = paths.ROOT / "tests" / "recorded"
BAD = "no such value"


def recorded(name):
    return json.loads((RECORDED / f"{name}.json").read_text(encoding="utf-8"))


def shape(value):
    """A JSON document's field names, and the kinds of its values."""
    if isinstance(value, dict):
        return {name: shape(field) for name, field in value.items()}
    if isinstance(value, list):
        return [shape(value[0])] if value else []
    return "number" if type(value) in (int, float) else type(value).__name__


# Documents: what each function gives is what was recorded


def names():
    """Every id there is, in order."""
    return {
        "experiments": {
            one.id: {
                "variants": list(one.variants),
                "budgets": list(one.budgets),
                "seeds": {name: list(one.seeds_of(name)) for name in one.variants},
                "metrics": [one.metric, *one.also],
                "language": one.language,
            }
            for one in EXPERIMENTS.values()
        },
        "measurements": {
            one.id: {
                **{name: list(getattr(one, name)) for name in ("variants", "metrics", "seeds")},
                "corpus": one.corpus_id,
            }
            for one in MEASUREMENTS.values()
        },
        "metrics": list(METRICS),
    }


def digests():
    """Of every run that an experiment makes, by budget and variant."""
    return {
        one.id: {
            budget: {
                name: spec(config=one.variant(name).config, budget=one.budget(budget, name)).digest
                for name in one.variants
            }
            for budget in one.budgets
        }
        for one in EXPERIMENTS.values()
    }


def shown(known_id):
    """What ``show`` prints, in its three forms."""
    text, markdown = (cli("show", known_id, *form)[1] for form in ([], ["--markdown"]))
    return {"json": strict(cli("show", known_id, "--json")[1]), "text": text, "markdown": markdown}


def exits():
    """The exit code of each wrong command and of each that asks for help."""
    return {words: cli(*words.split())[0] for words in recorded("exits")}


def run_documents(corpus_id):
    """Field names of ``run --json``, of an experiment and of a measurement."""
    trained = cli("run", "averages", "--variant", "average", "--corpus", corpus_id, "--json")
    measured = cli("run", "scaling-saturation", "--variant", "divided-4", "--json")
    return {"trained": shape(strict(trained[1])), "measured": shape(strict(measured[1]))}


def schema(store_file):
    """The ledger's tables and indices, as SQLite keeps them."""
    with closing(sqlite3.connect(store_file)) as db:
        rows = db.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY name").fetchall()
    return [" ".join(row[0].split()) for row in rows if "sqlite_sequence" not in row[0]]


# Parameters of the pages


def notices(page):
    """What a page says is wrong with its URL, by parameter."""
    return dict(re.findall(r":orange\[([\w-]+) (.*)\]", said(page)))


def defaults(page_name, parameters):
    """What is used of each where it is given twice, which none may be; and which there are."""
    told = notices(open_page(page_name, nothing="1", **{name: [BAD, BAD] for name in parameters}))
    there = re.search(r"it has (.*)\. Nothing", told["nothing"])[1].split(", ")
    return {name: re.search(r"Used: (.*)\.$", told[name])[1] for name in parameters}, there


def allowed(page_name, parameters):
    """What the notice of a bad value says is allowed of each; None of one that takes any text."""
    told = notices(open_page(page_name, **dict.fromkeys(parameters, BAD)))
    return {
        name: re.search(r"allowed: (.*?)\.? Used: ", told[name])[1] if name in told else None
        for name in parameters
    }


# Tests


def assert_holds(now, before, where=""):
    """Everything of a recorded document is so still; more names may stand beside."""
    if isinstance(before, dict):
        for name, value in before.items():
            assert name in now, f"{where}/{name}"
            assert_holds(now[name], value, f"{where}/{name}")
    else:
        assert now == before, where


def test_every_id_is_there_still():
    before, now = recorded("names"), names()
    assert set(before.pop("metrics")) <= set(now["metrics"])
    assert_holds(now, before)


def test_every_digest_is_the_same():
    assert_holds(digests(), recorded("digests"))


@pytest.mark.parametrize("known_id", recorded("show"))
def test_show_prints_the_same(known_id):
    assert shown(known_id) == recorded("show")[known_id]


def test_list_prints_the_same():
    lines = cli("list")[1].splitlines()
    assert [line for line in recorded("list") if line not in lines] == []


def test_wrong_names_end_with_two_and_help_with_nothing(home):
    assert exits() == recorded("exits")


def test_a_run_has_the_same_fields(instant, tiny_corpus):  # noqa: F811
    assert run_documents(tiny_corpus) == recorded("run")


def test_a_ledger_made_before_opens_and_is_written_to(old_runs):
    before = recorded("runs")
    assert schema(old_runs / "store.sqlite") == before["schema"]
    store = Store()
    assert schema(old_runs / "store.sqlite") == before["schema"]
    for run, was in zip(store.runs(), before["runs"], strict=True):
        assert run.spec.digest == run.digest == was["digest"]
        assert (run.state, run.measured) == ("done", was["measured"])
        assert RunSpec.from_json(run.spec.to_json()) == run.spec
    store.submit([store.get(1).spec])
    assert [run.digest for run in store.runs()] == [
        one["digest"] for one in [*before["runs"], before["runs"][0]]
    ]
    store.close()


def test_a_run_folder_made_before_is_read_and_goes_on(old_runs):
    store = Store()
    for run in store.runs():
        directory = store.directory(run.id)
        assert RunSpec.from_json((directory / "spec.json").read_text()) == run.spec
        assert files.records(directory)[-1]["step"] == run.spec.budget.steps == 2
        assert files.read_json(directory / "outcome.json")["measured"] == run.measured
    language = store.get(2)
    training = prepared(old_runs / "2", 2, language.spec)
    assert training.step == 2
    assert list(training.records()) == []
    assert training.result.measured == pytest.approx(language.measured)


def test_the_runs_page_shows_runs_made_before(old_runs):
    for run, configuration in (("1", "d_model = 2"), ("2", "d_model = 4")):
        page = open_page("runs", run=run)
        assert "run" not in notices(page)
        assert configuration in "".join(code.value for code in page.code)
