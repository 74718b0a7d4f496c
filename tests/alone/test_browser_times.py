"""The lab in a real browser, against the clock: what takes times runs alone."""

import re
import time
from contextlib import suppress

import psutil
import pytest
from playwright.sync_api import expect

from tests.browsing import SECOND, new_page
from tests.serving import serve, until

pytestmark = pytest.mark.browser


def wall_processes(lab):
    """The sweep that the server started, and its workers."""
    found = []
    for child in psutil.Process(lab.process.pid).children(recursive=True):
        with suppress(psutil.Error):  # one that ended since, or waits to be reaped
            if any("memory_wall" in word for word in child.cmdline()):
                found.append(child)
    return found


def test_the_wall_streams_rows_and_is_cancelled_at_once(lab, opened):
    page = new_page(opened, lab.port, "wall?to=4096&ways=explicit,fused")
    page.get_by_role("button", name="Measure", exact=True).click()
    expect(page.get_by_text(re.compile(r"^Running: (explicit|fused), 512 tokens"))).to_be_visible(
        timeout=90 * SECOND
    )
    expect(page.get_by_test_id("stTable").first).to_contain_text("11.1")  # the peak at 256, in MB
    marks = page.locator("[data-testid=stVegaLiteChart] svg g.mark-symbol path")
    assert marks.count() >= 4, "rows are drawn as they come"
    began = time.monotonic()
    page.get_by_role("button", name="Cancel").click()
    until(lambda: not wall_processes(lab), 10, lambda: wall_processes(lab))
    assert time.monotonic() - began < 2  # the click's way to the server is in it
    expect(page.get_by_text(re.compile(r"^Cancelled after \d+ rows"))).to_be_visible(timeout=10 * SECOND)
    page.reload()
    expect(page.get_by_text(re.compile(r"^Cancelled after \d+ rows"))).to_be_visible(timeout=20 * SECOND)

    page.goto(f"http://localhost:{lab.port}/wall?to=256&ways=fused")
    page.get_by_role("button", name="Measure", exact=True).click()
    expect(page.get_by_text(re.compile("2 rows in"))).to_be_visible(timeout=90 * SECOND)
    assert page.foreign == []
    assert page.errors == []


def test_the_first_page_is_there_within_five_seconds(opened, tmp_path):
    """Warm: after a first start, with a browser that is open already; the better of two."""
    taken = []
    for _cold_then_warm in range(3):
        with serve(tmp_path) as served:
            page = new_page(opened, served.port)
            expect(page.get_by_text("What each part buys").first).to_be_visible(timeout=30 * SECOND)
            taken.append(time.monotonic() - served.started)
    assert min(taken[1:]) < 5.0


def server(lab):
    """Streamlit's process."""
    children = psutil.Process(lab.process.pid).children()
    return next(child for child in children if "streamlit" in " ".join(child.cmdline()))


def loads_torch(process):
    return any("libtorch" in mapped.path for mapped in process.memory_maps())


def test_the_server_stays_small_and_loads_torch_only_when_a_probe_is_asked_for(lab, opened):
    port = lab.port
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
