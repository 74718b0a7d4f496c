"""Home: the ladder, this machine, the chapter's map."""

from dataclasses import replace

import pytest

from engine.chapter.experiments import AVERAGES, VARIANTS
from engine.data import corpus
from engine.runs import dispatcher, estimates
from engine.system import paths
from lab.sections.home import chart
from lab.sections.home import state as home_state
from lab.shell.chapter import SECTIONS, section
from lab.words import plain
from tests import finished
from tests.apptest import open_home, said, sound
from tests.test_page_runs import SPEC, add

pytestmark = pytest.mark.usefixtures("no_reference")


@pytest.fixture
def shakespeare(monkeypatch):
    """As if Tiny Shakespeare lay on this machine, timed."""
    monkeypatch.setattr(corpus, "is_present", lambda corpus_id: True)
    monkeypatch.setattr(corpus, "sha256_of", lambda corpus_id: corpus.TINYSHAKESPEARE_SHA256)
    monkeypatch.setattr(home_state, "tokens", lambda: 459_792)
    monkeypatch.setattr(estimates, "sweep_seconds", lambda specs: 41.0)


def machine(page):
    return dict(page.table[0].value.itertuples(index=False))


def of(variant, seed=0, **more):
    return replace(SPEC, variant=variant, config=VARIANTS[variant].config, seed=seed, **more)


def test_a_new_machine_is_told_what_it_has(store, shakespeare):
    page = open_home()
    rows = machine(page)
    assert rows[":gray[Device]"] == plain("CPU, 2 cores")
    assert rows[":gray[Tokens]"] == plain("459,792 (the chapter: 459,760)")
    assert rows[":gray[Runs]"] == "none yet"
    assert "The quick budget takes under a minute." in said(page)
    assert not any(":orange[" in element.value for element in page.markdown)


def test_without_the_text_the_page_says_how_to_get_it_and_waits_for_no_network(store, monkeypatch):
    monkeypatch.setattr(corpus, "default_corpus_id", lambda: pytest.fail("that may try the network"))
    page = open_home()
    shown = "\n".join(element.value for element in page.markdown)
    assert plain(corpus.TINYSHAKESPEARE_URL) in shown
    assert plain(str(paths.DATA / "tinyshakespeare.txt")) in shown
    assert machine(page)[":gray[Text]"] == "Python reference"


def test_a_wrong_file_in_the_texts_place_is_named(store):
    paths.DATA.mkdir()
    (paths.DATA / "tinyshakespeare.txt").write_text("something else")
    assert plain("is not Tiny Shakespeare") in machine(open_home())[":gray[Text]"]


def test_without_a_dispatcher_it_says_what_to_do(store, monkeypatch):
    monkeypatch.setattr(dispatcher, "running", lambda root=None: False)
    assert "`python -m lab`" in said(open_home())


def test_the_ladder_shows_whose_figure_is_whose(store, no_reference):
    finished.ship(no_reference, AVERAGES, lambda *_: {chart.METRIC: 61.0}, seeds=(0,))
    for seed, value in enumerate((60.0, 61.0)):
        add(store, "done", of("no-context", seed), measured={chart.METRIC: value})
    quick = of("average", budget_name="quick", budget=AVERAGES.budget("quick"))
    add(store, "done", quick, measured={chart.METRIC: 400.0})
    add(store, "done", of("average-added", corpus_sha256="0" * 64), measured={chart.METRIC: 9.0})
    assert open_home().get("vega_lite_chart")
    spec = chart.spec(chart.rungs(store.runs()))
    marks = {(mark["name"], mark["kind"]): mark["value"] for mark in spec["datasets"]["marks"]}
    assert sound(spec)
    assert marks["no context", "printed"] == 59.71
    assert marks["no context", "chapter"] == 60.5
    assert marks["no context", "reference"] == 61.0
    assert marks["average replaces", "quick"] == 400.0
    assert ("average added", "chapter") not in marks, "another text says nothing about the chapter's figure"
    assert {mark["row"] for mark in spec["datasets"]["marks"]} == set(range(len(chart.rungs([]))))
    legend = chart.legend(chart.rungs(store.runs()))
    assert all(word in legend for word in ("printed", "inferred", "shipped reference", "quick budget"))


def test_the_chapters_map_links_to_what_is_built_only(store):
    page = open_home()
    text = said(page)
    links = [link.proto.label for link in page.get("page_link")]
    for entry in SECTIONS:
        linked = f":primary[{plain(entry.title)}]" in links
        assert linked == entry.built
        assert entry.question in text
    assert text.count("not built yet") == sum(not entry.built for entry in SECTIONS)


def test_a_sections_state_follows_its_runs(store):
    entry = section("averages.py")

    def state():
        return home_state.section_state(entry, store.runs(), store)

    assert state() == "not measured yet"
    add(store, "done", of("no-context", budget_name="quick", budget=AVERAGES.budget("quick")))
    assert state() == "1 of 4 measured, quick"
    add(store, "done", of("no-context"))
    add(store, "diverged", of("average"))
    assert state() == "2 of 4 measured"
    waiting = add(store, spec=of("average", 1))
    assert state() == "queued"
    add(store, "running", of("average", 2), steps=1230)
    assert state() == "running, 20\u00a0%"
    store.cancel(waiting)
    assert state() == "running, 41\u00a0%"
    assert home_state.runs_text(store.runs()) == "2 done, 1 running, 1 cancelled, 1 diverged"
