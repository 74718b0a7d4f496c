"""Whom the lab answers: requests to its own hosts, from pages of its own hosts, and nobody else."""

import http.client
import tomllib
from itertools import product

import pytest

from engine.system import paths
from lab.__main__ import OWN_HOSTS, _hosts
from tests.serving import serve

STCORE = ("health", "host-config", "upload_file/a/b", "stream")
PATHS = ("/", "/averages", *(f"/_stcore/{name}" for name in STCORE))
WEBSOCKET = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
}
STRANGER = "stranger.example"
FOREIGN = (STRANGER, f"localhost.{STRANGER}", f"127.0.0.1.{STRANGER}", "192.168.0.7", "2130706433")


@pytest.fixture(scope="module")
def ask(tmp_path_factory):
    """The status of an answer."""
    with serve(tmp_path_factory.mktemp("lab")) as lab:

        def status(path, *headers, method="GET"):
            connection = http.client.HTTPConnection("127.0.0.1", lab.port, timeout=20)
            connection.putrequest(method, path, skip_host=True)
            for name, value in [*headers, *(WEBSOCKET.items() if path.endswith("stream") else ())]:
                connection.putheader(name, value.replace("PORT", str(lab.port)))
            connection.endheaders()
            try:
                return connection.getresponse().status
            finally:
                connection.close()

        yield status


@pytest.mark.parametrize(
    "host", ["localhost:PORT", "127.0.0.1:PORT", "[::1]:PORT", "LocalHost", "localhost:1"]
)
def test_its_own_hosts_are_answered_at_any_port(ask, host):
    for origin in ([], [("Origin", f"http://{host}")], [("Origin", "http://localhost:9")]):
        for path, expected in {"/": 200, "/_stcore/health": 200, "/_stcore/stream": 101}.items():
            assert ask(path, ("Host", host), *origin) == expected, (path, host, origin)


@pytest.mark.parametrize("path", PATHS)
def test_another_host_is_refused_whatever_is_asked(ask, path):
    for host in (*FOREIGN, "stranger.example:PORT", "localhost@stranger.example", "localhost/", ""):
        for origin in ([], [("Origin", "http://localhost:PORT")], [("Origin", f"http://{host}")]):
            assert ask(path, ("Host", host), *origin) == 403, (host, origin)
    assert ask(path) in (400, 403)
    assert ask(path, ("Host", "localhost:PORT"), ("Host", "stranger.example")) in (400, 403)


@pytest.mark.parametrize("path", PATHS)
def test_a_page_of_another_host_is_refused_at_ours(ask, path):
    names = map("".join, product(("http://", "https://"), FOREIGN, ("", ":PORT")))
    odd = ("null", "file://", "localhost", "http://localhost@stranger.example", "http://[", "")
    for origin in (*names, *odd):
        assert ask(path, ("Host", "localhost:PORT"), ("Origin", origin)) == 403, origin


def test_nothing_can_be_sent_to_it_by_another_host(ask):
    for method in ("POST", "PUT", "DELETE", "OPTIONS", "HEAD"):
        assert ask("/_stcore/upload_file/a/b", ("Host", "stranger.example"), method=method) == 403


def test_the_settings_hold_without_the_command_that_starts_the_lab():
    settings = tomllib.loads((paths.ROOT / "lab" / ".streamlit" / "config.toml").read_text())
    assert settings["server"]["allowedHosts"] == list(OWN_HOSTS)
    assert settings["server"]["address"] == "localhost"
    assert settings["client"]["showErrorDetails"] == "none"


def test_an_address_that_was_asked_for_is_its_own_and_the_environment_may_add_names(monkeypatch):
    monkeypatch.delenv("STREAMLIT_SERVER_ALLOWED_HOSTS", raising=False)
    for everywhere in ("localhost", "127.0.0.1", "::1", "0.0.0.0", "::", ""):
        assert _hosts(everywhere) == list(OWN_HOSTS)
    assert _hosts("192.168.0.7") == [*OWN_HOSTS, "192.168.0.7"]
    monkeypatch.setenv("STREAMLIT_SERVER_ALLOWED_HOSTS", "lab.example localhost")
    assert _hosts("0.0.0.0") == [*OWN_HOSTS, "lab.example"]
