"""The lab in a real browser, against the clock: what takes times runs alone."""

import re
import time
from contextlib import suppress

import psutil
import pytest
from playwright.sync_api import expect

from tests.browsing import SECOND, browser, new_page
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


def test_the_wall_streams_rows_and_is_cancelled_at_once(lab):
    with browser() as opened:
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

        page.goto(f"http://localhost:{lab.port}/wall?to=256&ways=explicit,fused")
        page.get_by_role("button", name="Measure", exact=True).click()
        expect(page.get_by_text(re.compile("4 rows in"))).to_be_visible(timeout=90 * SECOND)
        assert page.foreign == []
        assert page.errors == []


def test_the_first_page_is_there_within_five_seconds(tmp_path):
    """Warm: after a first start, with a browser that is open already; the better of two."""
    taken = []
    with browser() as opened:
        for _cold_then_warm in range(3):
            with serve(tmp_path) as served:
                page = new_page(opened, served.port)
                expect(page.get_by_text("What each part buys").first).to_be_visible(timeout=30 * SECOND)
                taken.append(time.monotonic() - served.started)
    assert min(taken[1:]) < 5.0
