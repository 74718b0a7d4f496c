"""The Winograd page in a real browser: train, look at two sentences, take out a head, cut an edge."""

import re

import pytest
from playwright.sync_api import expect

from tests.browsing import SECOND, new_page

pytestmark = [pytest.mark.browser, pytest.mark.full]

LEFT = re.compile(r"held-out sentences [\d.]+\s%\swere right and ([\d.]+\s%) still are")


def accuracy(page):
    """What is left, as the last such sentence of the page says."""
    found = page.get_by_text(LEFT).last
    expect(found).to_be_visible(timeout=120 * SECOND)
    return LEFT.search(found.inner_text()).group(1)


def pick(page, label, option):
    box = page.get_by_role("combobox", name=re.compile(label))
    box.click()
    box.fill(option)
    box.press("Enter")
    page.wait_for_timeout(SECOND)


def test_train_two_blocks_see_both_maps_and_take_a_head_out(lab, opened):
    page = new_page(opened, lab.port, "winograd?how=zero&of=1")
    page.get_by_role("button", name="Train four models").click()
    expect(page.get_by_text(re.compile(r"^Done in "))).to_be_visible(timeout=200 * SECOND)
    pick(page, "x, who crosses", "dog")
    pick(page, "y, what is crossed", "road")
    both = page.get_by_text(re.compile(r"^the dog did not cross the road because it was too \w+ , so the"))
    expect(both).to_have_count(2, timeout=120 * SECOND)
    # Of each block both sentences, their difference, all adjectives; the whole maps are folded away.
    expect(page.get_by_test_id("stPlotlyChart")).to_have_count(8, timeout=60 * SECOND)
    assert "x=dog" in page.url

    left = {accuracy(page)}
    for head in "234":
        pick(page, "Head", head)
        left.add(accuracy(page))
        if len(left) > 1:
            break
    assert len(left) > 1, "no head changes the accuracy"

    page.get_by_role("button", name="Find the circuit").click()
    graph = page.locator(".st-key-figure-circuit")
    wide = graph.locator("g.mark-rule line[stroke-width='14']")
    expect(wide.first).to_be_attached(timeout=120 * SECOND)
    cut = page.get_by_text(re.compile(r"^Cut: (head|all heads)"))
    before = cut.inner_text()
    for place in range(wide.count()):  # one of them is what is cut already
        click_near_its_head(page, wide.nth(place))
        page.wait_for_timeout(2 * SECOND)
        if cut.inner_text() != before:
            break
    assert cut.inner_text() != before, "a click on an edge cuts nothing"
    assert page.errors == []


def click_near_its_head(page, line):
    """Four fifths of the way up, where edges from one word are apart."""
    x, y = line.evaluate(
        """line => {
            const at = name => Number(line.getAttribute(name) || 0), share = 0.8;
            const x = at("x1") + (at("x2") - at("x1")) * share, y = at("y1") + (at("y2") - at("y1")) * share;
            line.scrollIntoView({ block: "center" });
            const seen = new DOMPoint(x, y).matrixTransform(line.getScreenCTM());
            return [seen.x, seen.y];
        }"""
    )
    page.mouse.click(x, y)
