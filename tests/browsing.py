"""A real browser, for tests that use the lab as a reader does."""

import shutil
from contextlib import contextmanager

from playwright.sync_api import expect, sync_playwright

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]
SECOND = 1000  # ms


@contextmanager
def browser():
    assert CHROMIUM, "no Chromium on this machine: apt-get install chromium"
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        try:
            yield opened
        finally:
            opened.close()


def new_page(opened, port, path="", **options):
    """A page of a fresh reader; whatever it asks of another host, or complains of, is noted."""
    return open_in(opened.new_context(viewport={"width": 1280, "height": 900}, **options), port, path)


def open_in(context, port, path=""):
    """Another page of the same reader."""
    page = context.new_page()
    page.foreign, page.errors = [], []
    page.on("request", lambda r: page.foreign.append(r.url) if f"localhost:{port}" not in r.url else None)
    page.on("pageerror", lambda error: page.errors.append(str(error)))
    page.goto(f"http://localhost:{port}/{path}")
    expect(page.locator("h1")).to_be_visible(timeout=30 * SECOND)
    return page
