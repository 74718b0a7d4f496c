"""The Induction page in a real browser: train both models, find the pair, go back in time, take it away."""

import re

import pytest
from playwright.sync_api import expect

from tests.browsing import SECOND, new_page

pytestmark = [pytest.mark.browser, pytest.mark.full]


def test_train_find_the_pair_scrub_back_and_take_it_away(lab, opened):
    page = new_page(opened, lab.port, "induction")
    page.get_by_role("button", name="Train two models").click()
    expect(page.get_by_text(re.compile(r"^Done in "))).to_be_visible(timeout=200 * SECOND)

    page.get_by_role("button", name="Find the heads").click()
    expect(page.get_by_text(re.compile(r"^Scored \d+ steps in "))).to_be_visible(timeout=120 * SECOND)
    maps = page.get_by_test_id("stPlotlyChart")
    expect(maps).to_have_count(3, timeout=60 * SECOND)  # a key and two heads
    step = page.get_by_role("slider", name="After step")
    formed = int(step.get_attribute("aria-valuetext").replace(",", ""))
    assert 300 < formed < 700
    expect(page.get_by_role("columnheader", name=f"head, step {formed}")).to_be_visible()
    step.focus()
    page.keyboard.press("Home")
    expect(page.get_by_role("columnheader", name="head, step 0")).to_be_visible(timeout=20 * SECOND)
    expect(page).to_have_url(re.compile(r"\bat=0\b"))

    page.get_by_role("button", name="Ablate").click()
    expect(page.get_by_text(re.compile(r"^Measured in "))).to_be_visible(timeout=120 * SECOND)
    results = page.get_by_test_id("stTable").filter(has_text="taken away").inner_text()
    left = [float(share) for share in re.findall(r"([\d.]+)\s%", results)]
    assert max(left) > 90
    assert min(left) < 50, "no head taken away takes the ability"
    assert page.errors == []
