"""Pages in a real browser, one lab for all: links, both themes and widths, maps. Nothing is trained."""

import re
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest
from playwright.sync_api import expect

from lab.shell.chapter import SECTIONS
from tests.browsing import SECOND, new_page, open_in
from tests.serving import serve, until

pytestmark = pytest.mark.browser
WIDGETS = re.compile(r"/(ButtonGroup|Selectbox|TextInput)\.[^/]+\.js$")  # the scripts that draw them


@pytest.fixture(scope="module")
def one_lab(tmp_path_factory):
    """A lab for all tests of this file."""
    with serve(tmp_path_factory.mktemp("lab")) as served:
        yield served


@pytest.fixture
def elsewhere(tmp_path):
    """The port of another server on this machine, with an empty page."""
    handler = partial(SimpleHTTPRequestHandler, directory=tmp_path)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


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
        pytest.param("qkv", "?sentence=the+king+is+dead&stages=raw,weights&row=2", marks=pytest.mark.full),
        ("parity", "?precision=float64&mask=none&scale=width&largest=1e-5&wrong=no-scale"),
        pytest.param(
            "mask", "?times=10&causal=none&draw=7&size=5000&best=unmasked&seeds=0,1,2", marks=pytest.mark.full
        ),
        pytest.param(
            "scaling", "?width=256&helps=256&frozen=most&pairs=1000&widest=256", marks=pytest.mark.full
        ),
    ],
)
def test_a_link_shows_the_page_as_it_was_left(one_lab, opened, path, query):
    plain = new_page(opened, one_lab.port, path)
    page = open_in(plain.context, one_lab.port, path + query)
    for each in (plain, page):
        drawn(each)
    until(lambda: chosen(page) != chosen(plain), 20, "the link changes nothing")
    second = new_page(opened, one_lab.port, page.url.split("/")[-1])
    until(lambda: chosen(second) == chosen(page), 60, lambda: f"{chosen(page)}, then {chosen(second)}")
    for each in (plain, page, second):
        assert each.errors == []


SECTIONS_BUILT = tuple(section.path.stem for section in SECTIONS if section.built)
WIDEST = ("", "scaling", "wall", "runs")


@pytest.mark.parametrize(
    "paths", [WIDEST, pytest.param(SECTIONS_BUILT, marks=pytest.mark.full)], ids=["widest", "all"]
)
def test_pages_fit_at_1280_and_800_pixels_in_both_themes(one_lab, opened, paths):
    page = new_page(opened, one_lab.port)
    for path in paths:
        page.goto(f"http://localhost:{one_lab.port}/{path}")
        expect(page.locator("h1")).to_be_visible(timeout=30 * SECOND)
        if path in SECTIONS_BUILT:
            drawn(page)
        for scheme, paper in (("light", "rgb(255, 255, 255)"), ("dark", "rgb(20, 22, 26)")):
            page.emulate_media(color_scheme=scheme)
            expect(page.get_by_test_id("stApp")).to_have_css("background-color", paper)
            for width in (1280, 800):
                page.set_viewport_size({"width": width, "height": 900})
                until(lambda: too_wide(page) <= 0, 10, lambda at=(path, scheme, width): (at, too_wide(page)))
    assert page.foreign == []
    assert page.errors == []


def drawn(page):
    """Wait for its last part, the way on, so that all above is there."""
    expect(page.get_by_text(re.compile("^[←→] |→$")).last).to_be_visible(timeout=60 * SECOND)


def too_wide(page):
    """By how many pixels the page is wider than its window."""
    return page.evaluate("document.documentElement.scrollWidth - window.innerWidth")


def test_a_press_before_the_page_is_all_drawn_loses_no_setting(one_lab, opened):
    link = {"sentence": "the queen loves the king", "head": "2", "heads": "6"}
    page, held = new_page(opened, one_lab.port), []
    page.route(WIDGETS, lambda request: held.append(request))
    page.goto(f"http://localhost:{one_lab.port}/positions?{urlencode(link)}")
    page.get_by_role("button", name="Another order").click()
    expect(page).to_have_url(re.compile("draw="), timeout=60 * SECOND)
    assert len(held) >= 2, "widgets were drawn in time: this test tests nothing"
    for request in held:
        request.continue_()
    field = page.get_by_label("Your sentence")
    expect(field).to_have_value(link["sentence"], timeout=30 * SECOND)
    page.get_by_role("button", name="Another order").click()  # any other press sends what the widgets hold
    page.wait_for_timeout(2 * SECOND)
    expect(field).to_have_value(link["sentence"])
    kept = dict(parse_qsl(urlsplit(page.url).query))
    assert {name: kept.get(name) for name in link} == link


def test_a_map_can_be_pointed_at_and_follows_the_theme(one_lab, opened):
    page = new_page(opened, one_lab.port, "qkv?row=5", color_scheme="light")
    plot = page.locator('[class*="st-key-map"] .js-plotly-plot').first
    label = plot.locator(".ytick text").first
    expect(label).to_have_css("fill", "rgb(21, 24, 28)", timeout=90 * SECOND)
    plot.scroll_into_view_if_needed()
    area = plot.locator(".nsewdrag").bounding_box()
    for across, told in ((0.02, "effective tokens"), (0.95, "masked")):
        page.mouse.move(area["x"] + across * area["width"], area["y"] + 0.4 * area["height"], steps=3)
        expect(plot.locator(".hoverlayer")).to_contain_text(told, timeout=10 * SECOND)
        expect(plot.locator(".hoverlayer")).to_contain_text("·queen (5)")
    page.get_by_test_id("stMainMenu").locator("button").first.click()
    page.get_by_role("menuitemradio", name="Dark").click()
    expect(label).to_have_css("fill", "rgb(230, 232, 235)", timeout=20 * SECOND)
    assert page.errors == []
    assert page.foreign == []


def test_a_page_of_another_host_reaches_nothing(one_lab, opened, elsewhere):
    """``*.localhost`` is this machine to a browser, as a stranger's name may be, and not one of the lab's."""
    page = opened.new_context().new_page()
    answer = page.goto(f"http://stranger.localhost:{one_lab.port}/")
    assert answer.status == 403
    page.goto(f"http://stranger.localhost:{elsewhere}/")
    for host in ("localhost", "127.0.0.1", "stranger.localhost"):
        with page.expect_console_message(lambda said: "WebSocket" in said.text) as said:
            connected = page.evaluate(
                """url => new Promise(done => {
                    const socket = new WebSocket(url, ['streamlit'])
                    socket.onopen = () => done(true)
                    socket.onclose = () => done(false)
                })""",
                f"ws://{host}:{one_lab.port}/_stcore/stream",
            )
        assert not connected
        assert "Unexpected response code: 403" in said.value.text
