"""The warm worker: fair, joined, private; killed, hung or out of memory it costs one sentence at worst."""

import json
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, answer_challenge, deliver_challenge

import psutil
import pytest

from engine.probes import address, client, worker
from engine.probes.address import Address
from engine.probes.client import ProbeBug, ask
from engine.probes.registry import ORDER, ZOO
from engine.system import paths
from engine.system.errors import LabError
from tests.probe_worker import FAILING, HUNGRY, REFUSING, SLOW
from tests.serving import until
from tests.test_cli import assert_refused, cli

IDLE = 60.0


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A data folder whose worker all tests share that do not end it."""
    made = tmp_path_factory.mktemp("home")
    yield made
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(paths, "HOME", made)
        Address.here().close()


@pytest.fixture
def place(folder, monkeypatch):
    """The address of a worker with probes that fail."""
    monkeypatch.setattr(paths, "HOME", folder)
    monkeypatch.setattr(address, "COMMAND", (sys.executable, "-m", "tests.probe_worker", str(IDLE)))
    client.kept.clear()
    return Address.here()


def waiting(place, probe, reader="", **arguments):
    """Ask in a thread; returns the list into which the answer is put, or the error."""
    found = []

    def run():
        try:
            found.append(ask(probe, reader=reader, **arguments).value)
        except Exception as error:
            found.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return found, thread


def test_it_answers_and_what_was_answered_is_kept(place):
    first = ask(SLOW, note="a")
    assert ask(SLOW, note="a") is first
    assert ask(SLOW, note="b").value != first.value
    assert place.worker().num_threads() >= 1
    assert len(ask(ZOO).value) == 48
    with pytest.raises(LabError, match=r"^This is refused\.$"):
        ask(REFUSING)
    with pytest.raises(LabError, match="Type at least one word"):
        ask(ORDER, sentence=" ")


def test_killed_while_it_works_a_fresh_one_answers(place):
    ask(SLOW)
    old = place.worker()
    found, thread = waiting(place, SLOW, seconds=1.0)
    time.sleep(0.3)
    old.send_signal(signal.SIGKILL)
    thread.join(60)
    assert isinstance(found[0], str)
    assert place.worker().pid != old.pid


def test_killed_again_and_again_it_costs_one_sentence(place):
    ask(SLOW)
    found, thread = waiting(place, SLOW, seconds=2.5)
    killed = set()
    while thread.is_alive():
        if (worker := place.worker()) and worker not in killed:
            killed.add(worker)
            worker.kill()
        time.sleep(0.1)
    assert len(killed) >= 2  # a first one may die before it is asked
    assert str(found[0]) == client.LOST
    assert ask(SLOW, note="after").value


@pytest.mark.parametrize(
    ("probe", "arguments", "error", "sentence"),
    [
        (HUNGRY, {}, LabError, r"^It needed more than 0\.7 GB of memory and was ended\.$"),
        (SLOW, {"seconds": 30.0}, LabError, r"^It took longer than 3 s and was ended\.$"),
        (FAILING, {}, ProbeBug, "ValueError: an oversight"),  # no sentence for the reader
    ],
)
def test_what_takes_too_much_or_fails_says_so_and_the_next_request_works(
    place, probe, arguments, error, sentence
):
    with pytest.raises(error, match=sentence):
        ask(probe, **arguments)
    assert ask(SLOW).value


@pytest.mark.skipif(sys.platform == "win32", reason="Windows stops no process")
@pytest.mark.parametrize("when", ["before", "while it works"])
def test_hung_it_is_replaced(place, monkeypatch, when):
    monkeypatch.setattr(client, "SILENCE_SECONDS", 3.0)
    ask(SLOW)
    old = place.worker()
    if when == "before":
        old.suspend()
    found, thread = waiting(place, SLOW, seconds=1.0, note="hung")
    if when == "while it works":
        time.sleep(0.3)
        old.suspend()
    thread.join(60)
    assert isinstance(found[0], str)
    assert not old.is_running()


def test_ten_readers_at_once_are_all_answered_and_share_one_worker(place):
    asked = [waiting(place, SLOW, reader=str(number), note=str(number)) for number in range(10)]
    for _, thread in asked:
        thread.join(60)
    assert [found[0][0] for found, _ in asked] == [str(number) for number in range(10)]
    living = [p for p in psutil.Process().children() if p.status() != psutil.STATUS_ZOMBIE]
    assert len([p for p in living if "probe_worker" in " ".join(p.cmdline())]) == 1


def test_readers_take_turns_and_equal_requests_are_computed_once(place):
    ask(SLOW)
    blocking = waiting(place, SLOW, reader="x", seconds=1.0)
    time.sleep(0.4)
    greedy = [waiting(place, SLOW, reader="a", seconds=0.1, note=f"a{n}-") for n in range(4)]
    time.sleep(0.3)
    modest = waiting(place, SLOW, reader="b", seconds=0.1, note="b-")
    joined = [waiting(place, SLOW, reader=reader, seconds=0.1, note="same-") for reader in "cde"]
    for _, thread in [blocking, *greedy, modest, *joined]:
        thread.join(60)
    done = [float(found[0].rpartition("-")[2]) for found, _ in greedy]
    assert float(modest[0][0].rpartition("-")[2]) < sorted(done)[2], "behind at most two of the other's four"
    assert len({found[0] for found, _ in joined}) == 1


@pytest.mark.skipif(sys.platform == "win32", reason="no modes of files on Windows")
def test_only_who_knows_the_key_is_answered_and_only_the_owner_can_read_it(place):
    ask(SLOW)
    assert stat.S_IMODE(place.folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((place.folder / "key").stat().st_mode) == 0o600
    assert len(place.at) < 100
    with Client(place.at) as stranger, pytest.raises(AuthenticationError):
        answer_challenge(stranger, b"guessed")
    with Client(place.at) as rude:
        rude.send_bytes(b"\x80\x04\x95garbage")
    with Client(place.at) as known:
        answer_challenge(known, place.key())
        deliver_challenge(known, place.key())
        known.send_bytes(b"\x80\x04K\x01.")  # a pickle is no request
        with pytest.raises(EOFError):
            known.recv_bytes()
    place.folder.chmod(0o755)
    with pytest.raises(LabError, match="open to others"):
        place.start()
    place.folder.chmod(0o700)
    assert ask(SLOW, note="still").value


def test_nothing_is_pickled():
    for name in ("worker", "client", "address", "wire"):
        source = (paths.ROOT / "engine" / "probes" / f"{name}.py").read_text("utf-8")
        for word in ("import pickle", "pickle.", ".recv()", ".send("):
            assert word not in source, (name, word)


def test_another_data_folder_has_another_worker(place, tmp_path, monkeypatch):
    ask(SLOW)
    monkeypatch.setattr(paths, "HOME", tmp_path / "other")
    other = Address.here()
    try:
        assert other.at != place.at
        ask(SLOW, note="other")
        assert other.worker() != place.worker()
    finally:
        other.close()
    assert not other.folder.exists()


def test_it_ends_when_nobody_asks_any_more(place, monkeypatch):
    address.end(place.worker())
    monkeypatch.setattr(address, "COMMAND", (sys.executable, "-m", "tests.probe_worker", "1.0"))
    ask(SLOW)
    process = place.worker()
    until(lambda: not process.is_running() or process.status() == psutil.STATUS_ZOMBIE, 30, "it stays")
    assert not place.folder.exists()
    assert ask(SLOW, note="again").value
    assert worker.IDLE_SECONDS == 600


@pytest.mark.skipif(sys.platform == "win32", reason="kill -9 as Linux and macOS know it")
def test_it_ends_with_the_lab_that_started_it(place):
    address.end(place.worker())
    code = "from engine.probes.address import Address\nimport time\nAddress.here().start()\ntime.sleep(60)"
    environment = {**os.environ, "ATTENTION_LAB_HOME": str(paths.HOME)}
    lab = subprocess.Popen([sys.executable, "-c", code], cwd=paths.ROOT, env=environment)
    try:
        until(lambda: place.worker() is not None, 60, "it does not start")
        process = place.worker()
        assert process.ppid() == lab.pid
    finally:
        lab.kill()
        lab.wait()
    until(lambda: not process.is_running(), 30, "it stays")
    assert not place.folder.exists()


@pytest.mark.skipif(sys.platform == "win32", reason="kill -9 as Linux and macOS know it")
def test_the_folder_of_a_killed_worker_goes_when_another_starts_and_that_of_a_living_one_stays(
    place, folder, tmp_path, monkeypatch
):
    ask(SLOW)
    others = []
    for name in ("killed", "living"):
        monkeypatch.setattr(paths, "HOME", tmp_path / name)
        others.append(Address.here())
        ask(SLOW, note=name)
    monkeypatch.setattr(paths, "HOME", folder)
    killed, living = others
    process = living.worker()
    address.end(killed.worker())
    foreign = place.folder.parent / "no-worker-was-here"
    foreign.mkdir()
    place.close()
    try:
        place.start()
        assert not killed.folder.exists()
        assert foreign.is_dir()
        assert living.worker() == process
        assert (living.folder / "key").is_file()
        (living.folder / "pid.json").write_text('{"pid": 0, "created": 0}')  # as if seen from a container
        place.close()
        place.start()
        assert (living.folder / "key").is_file(), "somebody answers at its socket"
    finally:
        foreign.rmdir()
        address.end(process)
        living.close()


def test_the_command_line_answers_as_the_worker_does(python, place):
    asked = ("-m", "engine", "probe", "positions-order", "--json", '{"sentence": "the dog bit the man"}')
    ended = python(*asked)
    assert ended.stderr == ""
    assert ORDER.read(json.loads(ended.stdout)) == ask(ORDER, sentence="the dog bit the man").value


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("odd",), "no probe 'odd'; there are: averages"),
        (("zoo", "--json", "["), "the arguments are no JSON"),
        (("positions-order", "--json", "{}"), "the probe has nothing; allowed: sentence, seed."),
        (("positions-order", "--json", '{"sentence": ""}'), "Type at least one word."),
    ],
)
def test_a_wrong_request_on_the_command_line_is_one_sentence(one_thread, arguments, says):
    assert_refused(*cli("probe", *arguments), says)
