"""What all pages of the contents have in common, each opened as seldom as that can be seen."""

import json
import re
from types import SimpleNamespace

import pytest
import streamlit as st

from engine.chapter import reference
from engine.chapter.experiments import EXPERIMENTS
from engine.data import corpus
from engine.runs.store import Store, open_store
from engine.system import paths
from lab.shell import palette
from lab.shell.chapter import SECTIONS
from tests import finished
from tests.apptest import charts, keys, link, nodes, open_page, press, rerun, said, sound, tables
from tests.test_contracts import allowed, defaults, notices, recorded

SHIPPED = paths.REFERENCE
URLS = recorded("urls")
BUILT = {section.path.stem: section for section in SECTIONS if section.built}
TRAINED = {
    page: EXPERIMENTS[section.experiments[0]]
    for page, section in BUILT.items()
    if set(section.experiments) & set(EXPERIMENTS)
}
# Its maps are drawn in colours of the lab's own.
THEMED = [
    page
    for page in BUILT
    if any(
        "palette" in path.read_text(encoding="utf-8")
        for path in (
            paths.ROOT / "pages" / f"{page}.py",
            *(paths.ROOT / "lab" / "sections" / page).glob("*.py"),
        )
    )
]


def samples(page, *without):
    """A link in which everything is set to something else, but what names other runs or another text."""
    left_out = {"budget", "seeds", "text", "steps", *without}
    recorded_of = URLS.get(page, {}).items()
    return {name: one["sample"] for name, one in recorded_of if one["sample"] and name not in left_out}


def written(page):
    """Everything that can be read off a page: words, tables, the data of its charts."""
    return said(page), tables(page), charts(page)


def four_columns(page):
    """The lines of all tables that set figures beside the chapter's."""
    return [line for rows in tables(page) for line in rows if {"yours", "difference"} <= set(line)]


def ran(experiment, text, *budget, **more):
    """Runs of it on the text, or on its own language."""
    return finished.runs(experiment, None if experiment.language else text, *budget, **more)


@pytest.mark.parametrize("name", BUILT)
def test_it_opens_empty_and_says_what_to_do(name, text):
    page, section = open_page(name), BUILT[name]
    assert page.title[0].value.endswith("?")
    assert page.caption[0].value == section.caption
    assert re.search(r"(No runs yet\. )?Make your two guesses, then (train|measure|compare)\.", said(page))
    assert not notices(page)
    assert page.code, "what it is about is shown as code"
    for drawn in {node.proto.spec for node in nodes(page) if node.type == "vega_lite_chart"}:
        assert sound(json.loads(drawn)), "compiled without being checked, which takes several times as long"
        assert not re.search(r"#[0-9a-fA-F]{3,8}\b", drawn), "a colour that is not the theme's"
    assert {line["yours"] for line in four_columns(page)} <= {":gray[–]"}
    assert open_store().entries() == []
    if name in TRAINED:
        button = page.button(key=f"{name}.train")
        assert re.fullmatch(r"Train \w+ models", button.label)
        assert not button.disabled
        assert "No reference is shipped with this copy." in said(page)


@pytest.mark.parametrize("name", URLS)
def test_every_parameter_is_taken_as_it_always_was_and_a_bad_one_is_named(name, old_runs, text):
    """By its name, with its default, its allowed values and one of them that is not the default."""
    before, runs = URLS[name], Store().runs()
    used, there = defaults(name, before)
    assert set(before) <= set(there), "what is no setting of the page is told with those that are"
    assert used == {parameter: one["default"] for parameter, one in before.items()}
    for parameter, words in allowed(name, before).items():
        assert _words(before[parameter]["allowed"]) <= _words(words), parameter
    others = {parameter: one["sample"] for parameter, one in before.items() if one["sample"] is not None}
    page = open_page(name, **others)
    assert set(others).isdisjoint(notices(page))
    assert {parameter: link(page, parameter) for parameter in others} == others
    assert Store().runs() == runs, "a link starts nothing"


def _words(allowed_):
    return set((allowed_ or "any text").split(", "))


@pytest.mark.parametrize("name", TRAINED)
def test_one_button_queues_cancels_and_resumes_ones_own_runs(name, text):
    experiment, store = TRAINED[name], Store()
    first, last = experiment.variants[0], experiment.variants[-1]
    (done,) = ran(experiment, text, variants=[first])
    page = open_page(name)
    assert re.search(r"1 of \d+ runs are measured", said(page))
    press(page, f"{name}.train")
    queued = store.runs(states=["queued"])
    assert {run.spec.variant for run in queued} >= set(experiment.variants) - {first}
    assert done.digest not in {run.digest for run in queued}, "only what is missing is trained"
    assert len({run.digest for run in queued}) == len(queued)
    assert {(run.user, run.spec.budget_name, run.spec.seed) for run in queued} == {("local", "quick", 0)}
    assert f"{name}.train" not in keys(page)
    assert "Queued, next in turn" in said(page)

    press(page, f"{name}.cancel")
    assert {run.state for run in store.runs()} == {"done", "cancelled"}
    assert "Cancelled by you before it started" in said(page)
    assert f"{name}.train" in keys(page)

    (others,) = ran(experiment, text, state="running", variants=[last], user="10.0.0.9", last=2, every=1)
    rerun(page)
    assert page.button(key=f"{name}.cancel").disabled, "another reader's runs are watched, not ended"
    assert re.search(r"Running: .*step 2 of", said(page))
    assert "Your guesses are answered here" in said(page) or name == "winograd", "which answers at once"
    done = [row.get("to", 0) for chart in charts(page) for row in chart.get("done", [])]
    assert any(to > 0 for to in done), "the axis is the progress bar"
    store.advance(others.id, "running", "interrupted")
    assert f"{name}.resume" not in keys(rerun(page))

    (mine,) = ran(experiment, text, state="interrupted", variants=[first], last=2, every=1)
    assert "Interrupted. Resume from step 2" in said(rerun(page))
    press(page, f"{name}.resume")
    assert [(run.state, run.attempt) for run in (store.get(mine.id), store.get(others.id))] == [
        ("queued", 2),
        ("interrupted", 1),
    ]
    again = store.runs()[-1]
    assert (again.digest, again.user, again.state) == (others.digest, "local", "queued")


@pytest.mark.parametrize("name", TRAINED)
def test_a_quick_sweep_is_shown_not_judged_taken_away_and_found_again(name, text, taken_away):
    experiment = TRAINED[name]
    ran(experiment, text)
    page = open_page(name, **samples(name, "version"))
    assert len(page.get("download_button")) == 3 * len(taken_away) > 0, "each file has a name of its own"
    assert any(len(rows) >= len(experiment.variants) for _, rows in taken_away.values())
    assert any("**" in cell for rows in tables(page) for line in rows for cell in line.values())
    assert any(row.get("kind") == "mean" for chart in charts(page) for row in chart.get("curves", []))
    lines = four_columns(page)
    assert {line["difference"].partition("[")[0] for line in lines} <= {":gray"}
    if experiment.chapter:
        assert any("**" in line["yours"] for line in lines)
        assert "so grey differences are not comparable" in said(page)
        assert f"cannot show {experiment.hides}" in said(page)

    again = {parameter: link(page, parameter) for parameter in page.query_params}
    assert written(open_page(name, **again)) == written(page)


@pytest.mark.parametrize("name", TRAINED)
def test_the_shipped_reference_is_never_shown_as_the_readers_own(name, text, no_reference):
    finished.ship(no_reference, TRAINED[name])
    page = open_page(name, budget="chapter")
    lines = four_columns(page)
    assert {line["yours"] for line in lines} <= {":gray[–]"}
    if TRAINED[name].chapter:
        assert "Reference: shipped runs, CPU, 2 cores, 2026-01-02." in said(page)
        assert any("±" in line["reference"] for line in lines)


@pytest.mark.parametrize("name", TRAINED)
def test_a_diverged_run_keeps_its_curve_and_another_text_is_compared_with_nothing(name, text, monkeypatch):
    experiment = TRAINED[name]
    lost = experiment.variants[-1]
    at = experiment.budget("chapter", lost).steps // 2
    ran(
        experiment, text, "chapter", state="diverged", only=[lost], last=at,
        reason=f"diverged at step {at:,}: loss is NaN",
    )  # fmt: skip
    if not experiment.language:
        monkeypatch.setattr(corpus, "TINYSHAKESPEARE_SHA256", "0" * 64)
    page = open_page(name, budget="chapter")
    assert f"Diverged at step {at:,}: loss is NaN" in said(page)
    assert any("diverged]" in cell for rows in tables(page) for line in rows for cell in line.values())
    assert any(row.get("kind") == "cross" for chart in charts(page) for row in chart.get("ends", []))
    if not experiment.language:
        assert "of another text, so nothing is compared" in said(page)
        assert {line["difference"] for line in four_columns(page)} <= {":gray[–]"}
        assert not [row for row in charts(page)[0].get("rules", []) if row.get("text")]


@pytest.mark.parametrize("theme", palette.NAMES)
@pytest.mark.parametrize("name", THEMED)
def test_maps_have_the_colours_of_the_theme(name, theme, text, monkeypatch):
    monkeypatch.setattr(paths, "REFERENCE", SHIPPED)
    monkeypatch.setattr(type(st.context), "theme", property(lambda _: SimpleNamespace(type=theme)))
    reference.load.cache_clear()
    maps = [node.proto.spec for node in nodes(open_page(name)) if node.type == "plotly_chart"]
    assert maps or name == "induction", "it has maps of one's own runs only"
    (other,) = set(palette.NAMES) - {theme}
    own, others = (
        {color for _, color in (*found.weights, *found.scores)}
        for found in (palette.palette(theme), palette.palette(other))
    )
    others -= own
    assert all(any(color in one for color in own) for one in maps)
    assert not any(color in one for color in others for one in maps)


def test_no_page_loads_torch_and_all_are_drawn_again_at_once(python):
    """One server for all of them, as for a reader; probes are answered by the worker."""
    opened = {name: samples(name, "version") for name in [*BUILT, "home", "runs"]}
    ended = python("-c", f"pages = {opened!r}\n{SERVER}", timeout=300)
    assert ended.returncode == 0, ended.stderr
    slow = {name: float(seconds) for name, seconds in map(str.split, ended.stdout.splitlines())}
    assert set(slow) == set(opened)
    assert {name: seconds for name, seconds in slow.items() if seconds > 1} == {}


SERVER = """
import sys, time
from streamlit.components.v2 import manifest_scanner
from streamlit.testing.v1 import AppTest
from engine.system import device
device.describe = lambda: device.Device("cpu", "CPU, 2 cores", 0, "2.13.0", False)
manifest_scanner.scan_component_manifests = list  # as conftest does

def run(page, name):
    began = time.process_time()
    page.run()
    assert not page.exception, (name, page.exception)
    assert "torch" not in sys.modules, name
    return time.process_time() - began

for name, others in pages.items():
    page = AppTest.from_file("lab/app.py" if name == "home" else f"pages/{name}.py", default_timeout=100)
    for parameter, value in others.items():
        page.query_params[parameter] = value
    run(page, name)
    print(name, run(page, name))
"""
