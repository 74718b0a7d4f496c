"""The lab in a real browser, against the clock: what takes times runs alone."""

import re
import subprocess
import sys
import time
from contextlib import suppress

import psutil
import pytest
from playwright.sync_api import expect

from tests.browsing import SECOND, new_page
from tests.serving import free_port, healthy, serve, until

pytestmark = pytest.mark.browser


def wall_processes(lab):
    """The sweep that the server started, and its workers."""
    found = []
    for child in psutil.Process(lab.process.pid).children(recursive=True):
        with suppress(psutil.Error):  # one that ended since, or waits to be reaped
            if any("memory_wall" in word for word in child.cmdline()):
                found.append(child)
    return found


@pytest.mark.full
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


def test_the_first_page_takes_at_most_two_and_a_half_times_as_long_as_an_empty_one(opened, tmp_path):
    """Warm: from the start of the program, with a browser that is open already; the better of two each."""
    taken, empty = [], []
    script = tmp_path / "empty.py"
    script.write_text("import streamlit as st\nst.title('empty')\n")
    for _cold_then_warm in range(3):
        with serve(tmp_path) as served:
            page = new_page(opened, served.port)
            expect(page.get_by_text("What each part buys").first).to_be_visible(timeout=30 * SECOND)
            taken.append(time.monotonic() - served.started)
        port, began = free_port(), time.monotonic()
        options = (f"--server.port={port}", "--server.headless=true", "--browser.gatherUsageStats=false")
        with subprocess.Popen([sys.executable, "-m", "streamlit", "run", script, *options]) as process:
            try:
                until(lambda at=port: healthy(at), 30, "Streamlit does not start")
                new_page(opened, port)
                empty.append(time.monotonic() - began)
            finally:
                process.kill()
    print(f"first page {min(taken[1:]):.1f} s, an empty one {min(empty[1:]):.1f} s", file=sys.stderr)
    assert min(taken[1:]) < 2.5 * min(empty[1:])


def server(lab):
    """Streamlit's process."""
    children = psutil.Process(lab.process.pid).children()
    return next(child for child in children if "streamlit" in " ".join(child.cmdline()))


@pytest.mark.full
def test_the_server_stays_small_and_never_loads_torch(lab, opened):
    page, process = new_page(opened, lab.port), server(lab)
    for path in ("runs", "averages"):
        page.goto(f"http://localhost:{lab.port}/{path}")
        expect(page.locator("h1")).to_be_visible(timeout=30 * SECOND)
    said = page.get_by_text(re.compile("The two averages differ by at most"))
    expect(said.first).to_be_visible(timeout=60 * SECOND)
    page.get_by_role("button", name="Shuffle").click()
    expect(said).to_have_count(3, timeout=30 * SECOND)
    for path in ("", "runs", "averages"):
        page.goto(f"http://localhost:{lab.port}/{path}")
        expect(page.locator("h1")).to_be_visible(timeout=30 * SECOND)
    assert not any("libtorch" in mapped.path for mapped in process.memory_maps())
    assert process.memory_info().rss < 300e6
    assert page.errors == []
