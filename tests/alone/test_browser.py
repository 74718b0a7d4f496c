"""The lab in a real browser: train, watch, reload, cancel; two readers; nothing asked of another host."""

import re
import time

import pytest
from playwright.sync_api import expect

from engine.system import files
from tests.browsing import SECOND, new_page
from tests.serving import until

pytestmark = pytest.mark.browser


def curve_points(page):
    """How many points the drawn curves have: line marks in the figure's SVG."""
    paths = page.locator("[data-testid=stVegaLiteChart] svg g.mark-line path").evaluate_all(
        "paths => paths.map(p => (p.getAttribute('d') || '').split('L').length)"
    )
    return sum(paths)


def test_train_watch_reload_cancel_and_two_readers_see_the_same(lab, opened):
    port, store, log = lab.port, lab.store, lab.log
    page = new_page(opened, port, "averages?budget=chapter")
    page.get_by_role("button", name="Train four models").click()
    expect(page.get_by_role("button", name="Cancel")).to_be_visible(timeout=15 * SECOND)
    folder = store.directory(1)
    until(lambda: files.last_record(folder).get("step", 0) >= 10, 90, lambda: log.read_text())
    until(lambda: curve_points(page) > 0, 20, "no curve was drawn")
    before = curve_points(page)
    until(lambda: curve_points(page) > before, 90, lambda: f"the curve does not grow: {curve_points(page)}")

    page.reload()
    expect(page.get_by_role("button", name="Cancel")).to_be_visible(timeout=20 * SECOND)
    until(lambda: curve_points(page) >= before, 20, "the curve is lost after a reload")
    expect(page.get_by_text(re.compile(r"Running: step [\d,]+ of 3,000"))).to_be_visible(timeout=20 * SECOND)

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


def test_quick_budget_from_the_first_click_to_the_table(lab, opened):
    port, store = lab.port, lab.store
    page = new_page(opened, port, "averages")
    for name in ("no context", "average replaces"):
        page.get_by_role("radio", name=name).first.click()
    page.get_by_role("button", name="Train four models").click()
    expect(page.get_by_text(re.compile(r"^Done in "))).to_be_visible(timeout=200 * SECOND)
    runs = store.runs()
    assert [run.state for run in runs] == ["done"] * 4
    table = page.get_by_test_id("stTable").first
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


@pytest.mark.full
def test_the_panels_of_the_sweep_grow_while_heads_train(lab, opened):
    port, store, log = lab.port, lab.store, lab.log
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
