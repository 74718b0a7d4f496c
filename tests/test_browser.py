"""The lab in a real browser: train, watch, reload, cancel; two readers; offline; both themes and widths."""

import re
import time

import psutil
import pytest
from playwright.sync_api import expect

from engine.runs import files
from lab.chapter import SECTIONS
from tests.browsing import SECOND, browser, new_page
from tests.serving import serve, until

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def one_lab(tmp_path_factory):
    """A lab for all tests that train nothing."""
    with serve(tmp_path_factory.mktemp("lab")) as served:
        yield served


def curve_points(page):
    """How many points the drawn curves have: line marks in the figure's SVG."""
    paths = page.locator("[data-testid=stVegaLiteChart] svg g.mark-line path").evaluate_all(
        "paths => paths.map(p => (p.getAttribute('d') || '').split('L').length)"
    )
    return sum(paths)


def test_train_watch_reload_cancel_and_two_readers_see_the_same(lab):
    port, store, log = lab.port, lab.store, lab.log
    with browser() as opened:
        page = new_page(opened, port, "averages?budget=chapter")
        page.get_by_role("button", name="Train four models").click()
        expect(page.get_by_role("button", name="Cancel")).to_be_visible(timeout=15 * SECOND)
        folder = store.directory(1)
        until(lambda: files.last_record(folder).get("step", 0) >= 10, 90, lambda: log.read_text())
        until(lambda: curve_points(page) > 0, 20, "no curve was drawn")
        before = curve_points(page)
        until(
            lambda: curve_points(page) > before, 90, lambda: f"the curve does not grow: {curve_points(page)}"
        )

        page.reload()
        expect(page.get_by_role("button", name="Cancel")).to_be_visible(timeout=20 * SECOND)
        until(lambda: curve_points(page) >= before, 20, "the curve is lost after a reload")
        expect(page.get_by_text(re.compile(r"Running: step [\d,]+ of 3,000"))).to_be_visible(
            timeout=20 * SECOND
        )

        other = new_page(opened, port, "runs")
        expect(other.get_by_test_id("stDataFrame")).to_be_visible(timeout=20 * SECOND)
        second = new_page(opened, port, page.url.split("/")[-1])
        expect(second.get_by_role("button", name="Cancel")).to_be_visible(timeout=20 * SECOND)

        page.get_by_role("button", name="Cancel").click()
        expect(page.get_by_text(re.compile("cancelled", re.I)).first).to_be_visible(timeout=15 * SECOND)
        until(lambda: {run.state for run in store.runs()} == {"cancelled"}, 10, lambda: store.runs())
        expect(second.get_by_role("button", name="Train four models")).to_be_visible(timeout=15 * SECOND)
        assert curve_points(page) > 0  # what was measured stays

        for each in (page, other, second):
            assert each.foreign == []
            assert each.errors == []


def test_quick_budget_from_the_first_click_to_the_table(lab):
    port, store = lab.port, lab.store
    with browser() as opened:
        page = new_page(opened, port, "averages")
        for name in ("no context", "average replaces"):
            page.get_by_role("radio", name=name).first.click()
        page.get_by_role("button", name="Train four models").click()
        expect(page.get_by_text(re.compile(r"^Done in "))).to_be_visible(timeout=200 * SECOND)
        runs = store.runs()
        assert [run.state for run in runs] == ["done"] * 4
        table = page.get_by_test_id("stTable")
        for run in runs:
            expect(table).to_contain_text(f"{run.measured['validation_perplexity']:.1f}")
        shot = page.screenshot()
        assert len(shot) > 20_000
        began = time.monotonic()
        page.goto(f"http://localhost:{port}/runs?run={runs[0].id}")
        expect(page.get_by_text(f"#{runs[0].id}").first).to_be_visible(timeout=20 * SECOND)
        assert time.monotonic() - began < 20
        assert page.foreign == []
        assert page.errors == []


def test_the_panels_of_the_sweep_grow_while_heads_train(lab):
    port, store, log = lab.port, lab.store, lab.log
    with browser() as opened:
        page = new_page(opened, port, "scaling?width=32")
        page.get_by_role("button", name=re.compile("^Train .* models$")).first.click()
        until(lambda: curve_points(page) > 0, 120, lambda: log.read_text())
        before = curve_points(page)
        page.evaluate("document.body.dataset.stays = 'yes'")
        until(lambda: curve_points(page) > before, 90, lambda: f"no panel grows: {curve_points(page)}")
        for title in ("Spread of scores", "Entropy", "Rows over 0.99", "Gradient of W_Q", "Perplexity"):
            expect(page.locator("strong", has_text=title).first).to_be_visible()
        assert page.evaluate("document.body.dataset.stays") == "yes", "grown in place, not by a reload"
        page.get_by_role("button", name="Cancel").first.click()
        until(lambda: {run.state for run in store.runs()} <= {"cancelled", "done"}, 15, lambda: store.runs())
        assert curve_points(page) >= before, "what was measured stays"
        assert page.errors == []


def chosen(page):
    """What the controls of a page stand at."""
    return page.evaluate(
        """() => [
            ...[...document.querySelectorAll('[role=radio][aria-checked=true]')].map(e => e.textContent),
            ...[...document.querySelectorAll('[role=slider]')].map(e => e.getAttribute('aria-valuetext')),
            ...[...document.querySelectorAll('input')].map(e => e.value),
        ]"""
    )


@pytest.mark.parametrize(
    ("path", "query"),
    [
        ("mask", "?times=10&causal=none&draw=7&size=5000&best=unmasked&seeds=0,1,2"),
        ("qkv", "?sentence=the+king+is+dead&stages=raw,weights&row=2"),
        ("scaling", "?width=256&helps=256&frozen=most&pairs=1000&widest=256"),
        ("parity", "?precision=float64&mask=none&scale=width&largest=1e-5&wrong=no-scale"),
    ],
)
def test_a_link_shows_the_page_as_it_was_left(one_lab, path, query):
    with browser() as opened:
        plain, page = (new_page(opened, one_lab.port, path + tail) for tail in ("", query))
        for each in (plain, page):  # its last part, so that all above is drawn
            expect(each.get_by_text(re.compile("^[←→] |→$")).last).to_be_visible(timeout=60 * SECOND)
        until(lambda: chosen(page) != chosen(plain), 20, "the link changes nothing")
        second = new_page(opened, one_lab.port, page.url.split("/")[-1])
        until(lambda: chosen(second) == chosen(page), 60, lambda: f"{chosen(page)}, then {chosen(second)}")
        for each in (plain, page, second):
            assert each.errors == []


def server(lab):
    """Streamlit's process."""
    children = psutil.Process(lab.process.pid).children()
    return next(child for child in children if "streamlit" in " ".join(child.cmdline()))


def loads_torch(process):
    return any("libtorch" in mapped.path for mapped in process.memory_maps())


def test_the_server_stays_small_and_loads_torch_only_when_a_probe_is_asked_for(lab):
    port = lab.port
    with browser() as opened:
        page = new_page(opened, port)
        for path in ("runs", "averages"):
            page.goto(f"http://localhost:{port}/{path}")
            expect(page.locator("h1")).to_be_visible(timeout=30 * SECOND)
        expect(page.get_by_test_id("stTable").first).to_be_visible(timeout=30 * SECOND)
        page.get_by_role("radio", name="Chapter").click()
        expect(page).to_have_url(re.compile("budget=chapter"), timeout=20 * SECOND)
        process = server(lab)
        assert not loads_torch(process)
        assert process.memory_info().rss < 250e6

        page.get_by_role("button", name="Compare").click()
        said = page.get_by_text(re.compile("The two averages differ by at most"))
        expect(said.first).to_be_visible(timeout=60 * SECOND)
        page.get_by_role("button", name="Shuffle").click()
        expect(said).to_have_count(3, timeout=30 * SECOND)
        assert loads_torch(process)
        for path in ("", "runs", "averages"):
            page.goto(f"http://localhost:{port}/{path}")
            expect(page.locator("h1")).to_be_visible(timeout=30 * SECOND)
        assert process.memory_info().rss < 600e6
        assert page.errors == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_page_fits_at_1280_and_800_pixels_in_both_themes(one_lab, scheme):
    with browser() as opened:
        page = new_page(opened, one_lab.port, color_scheme=scheme)
        for path in ("", *(section.path.stem for section in SECTIONS if section.built), "runs"):
            page.set_viewport_size({"width": 1280, "height": 900})
            page.goto(f"http://localhost:{one_lab.port}/{path}")
            expect(page.locator("h1")).to_be_visible(timeout=30 * SECOND)
            assert too_wide(page) <= 0, path
            background = page.evaluate(
                "getComputedStyle(document.querySelector('[data-testid=stApp]')).backgroundColor"
            )
            assert background == {"light": "rgb(255, 255, 255)", "dark": "rgb(20, 22, 26)"}[scheme]
            page.set_viewport_size({"width": 800, "height": 900})
            until(lambda: too_wide(page) <= 0, 10, lambda path=path: f"{path} at 800: {too_wide(page)} px")
        assert page.foreign == []
        assert page.errors == []


def too_wide(page):
    """By how many pixels the page is wider than its window."""
    return page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
