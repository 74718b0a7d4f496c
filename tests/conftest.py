"""Shared fixtures. No test may touch the checkout's own data: whatever writes asks for ``home``."""

import os
import random
import shutil
import sqlite3
import subprocess
import sys

import pytest
from filelock import FileLock
from hypothesis import HealthCheck, settings
from streamlit.components.v2 import manifest_scanner

from engine.benchmarks import memory
from engine.chapter import reference
from engine.data import corpus
from engine.probes import address, client
from engine.runs import dispatcher
from engine.runs.store import Store, open_store
from engine.system import device, paths
from lab.shell import export
from tests.browsing import CHROMIUM, browser
from tests.probing import Here
from tests.serving import serve

# A busy machine must not turn a test red, and what was red once must be red again.
settings.register_profile(
    "lab", max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("lab")


# Streamlit looks for components in all installed packages for each AppTest, a quarter of a second.
manifest_scanner.scan_component_manifests = lambda max_workers=None: []


def pytest_collection_modifyitems(items):
    missing = pytest.mark.skip(reason="no Chromium here; CI fails without one")
    if CHROMIUM is None and not os.environ.get("CI"):
        for item in items:
            if item.get_closest_marker("browser"):
                item.add_marker(missing)


@pytest.fixture(scope="module")
def chromium():
    """A browser for all tests of a module; ``opened`` is what they ask for."""
    with browser() as running:
        yield running


@pytest.fixture
def opened(chromium):
    """That browser, without a reader before the test and after it."""
    yield chromium
    for context in chromium.contexts:
        context.close()


@pytest.fixture
def lab(tmp_path):
    """A lab that a browser can open, on a data folder of the test's own."""
    with serve(tmp_path) as served:
        yield served


@pytest.fixture(scope="module")
def one_thread():
    """torch on one thread: the same bits on every machine, and no fight for the cores."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def home(tmp_path, monkeypatch):
    """An empty data folder of the test's own, for this process and for those it starts."""
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setattr(paths, "HOME", folder)
    monkeypatch.setattr(paths, "DATA", folder / "data")
    monkeypatch.setattr(paths, "RUNS", folder / "checkpoints" / "runs")
    monkeypatch.setenv("ATTENTION_LAB_HOME", str(folder))
    yield folder
    address.Address.here().close()


@pytest.fixture
def probes_here(monkeypatch):
    """Probes are answered in this process, without a worker. Returns the ``Here`` that does it."""
    here = Here()
    monkeypatch.setattr(client, "ask", here.ask)
    return here


@pytest.fixture
def no_reference(tmp_path, monkeypatch):
    """The folder of shipped references, empty: as if none were shipped yet."""
    folder = tmp_path / "reference"
    folder.mkdir()
    monkeypatch.setattr(paths, "REFERENCE", folder)
    kept = (reference.load, memory.shipped)
    for read in kept:
        read.cache_clear()
    yield folder
    for read in kept:
        read.cache_clear()


@pytest.fixture(scope="session")
def tiny_text():
    """About 30,000 characters of invented words: enough for a vocabulary of 1024, quickly trained on."""
    draw = random.Random(0)
    words = ["".join(draw.choices("aehilnorstuwy", k=draw.randint(2, 8))) for _ in range(500)]
    return " ".join(draw.choices(words, k=5000)).encode()


@pytest.fixture(scope="session")
def weights(tmp_path_factory):
    """Checkpoints of two blocks and of one, trained for real on a small Winograd language.

    Once for all processes of a run that test side by side.
    """
    from tests.winograd_models import train

    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    made = {name: folder / f"winograd-{name}.safetensors" for name in ("two-blocks", "one-block")}
    with FileLock(folder / "winograd.lock"):
        for name, path in made.items():
            if not path.exists():
                train(name, path)
    return made


@pytest.fixture
def tiny_corpus(home, tiny_text):
    """The id of that text as an upload in ``home``."""
    return corpus.add_upload(tiny_text, "tiny.txt", context_length=16).id


@pytest.fixture
def store(home, monkeypatch):
    """An empty list of runs, on a machine of two cores that a dispatcher serves."""
    here = device.Device("cpu", "CPU, 2 cores", 0, "2.13.0", False)
    monkeypatch.setattr(device, "describe", lambda: here)
    monkeypatch.setattr(dispatcher, "running", lambda root=None: True)
    return open_store()


@pytest.fixture
def full_disk(monkeypatch):
    """Nothing can be queued any more."""

    def full(*_):
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(Store, "submit", full)


@pytest.fixture
def old_runs(home):
    """The ledger and the run folders of two runs of two steps, made by the version of 2026-11-30."""
    shutil.copytree(paths.ROOT / "tests" / "recorded" / "runs", paths.RUNS)
    return paths.RUNS


@pytest.fixture
def text(store, tiny_corpus, no_reference, monkeypatch, probes_here):
    """A small text in place of the chapter's, on that machine; nothing is shipped, no worker is started."""
    monkeypatch.setattr(corpus, "TINYSHAKESPEARE_SHA256", corpus.sha256_of(tiny_corpus))
    monkeypatch.setattr(corpus, "present_corpus_id", lambda: (tiny_corpus, None))
    return tiny_corpus


@pytest.fixture
def taken_away(monkeypatch):
    """Every file that pages drawn from now on offer, by its name; each must be drawn and written."""
    import vl_convert

    files = {}

    def kept(name, chart, rows, draw=export.downloads):
        assert vl_convert.vegalite_to_svg(export.on_paper(chart())).startswith("<svg")
        header, *numbers = rows()
        assert {len(row) for row in numbers} <= {len(header)}
        files[name] = header, numbers
        draw(name, chart, rows)

    monkeypatch.setattr(export, "downloads", kept)
    return files


@pytest.fixture
def python(home):
    """Run ``python ARGUMENTS`` in a process of its own, its data in ``home``. Returns the ended process."""

    def run(*arguments, timeout=120, **options):
        return subprocess.run(
            [sys.executable, *map(str, arguments)],
            cwd=paths.ROOT,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
            **options,
        )

    return run
