"""The ledger, a run's files, fair dispatch: nothing lost, one winner of each race, nobody waits for ever."""

import json
import random
import re
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.chapter.budget import Budget
from engine.chapter.experiments import VARIANTS
from engine.memory_wall.plan import Plan
from engine.runs import dispatcher as dispatching
from engine.runs.dispatcher import Dispatcher, verdict
from engine.runs.spec import RunSpec, WallSpec, spec_of
from engine.runs.store import ACTIVE, ENDED, RESUMABLE, STATES, Store
from engine.system import files, paths
from tests.serving import until


def spec(seed=0):
    return RunSpec(
        experiment="averages",
        variant="average",
        budget_name="quick",
        config=VARIANTS["average"].config,
        budget=Budget(steps=100),
        corpus="tinyshakespeare",
        corpus_sha256="0" * 64,
        seed=seed,
    )


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "runs")


def submit(store, count=1, user="local"):
    sweep = store.submit([spec(seed) for seed in range(count)], user=user)
    return [run.id for run in store.runs(sweep=sweep)]


@pytest.fixture
def run_id(store):
    """The id of one queued run."""
    return submit(store)[0]


def put_in(store, run_id, state):
    run = store.get(run_id)
    assert run.state == state or store.advance(run_id, run.state, state)


class FakeEngine:
    """Carries runs out in memory: what is launched lives until it is ended."""

    def __init__(self, slots=2):
        self.slots, self.living, self.launched, self.refused = slots, {}, [], {}

    def capacity(self):
        return self.slots

    def launch(self, run, directory, slot):
        if run.id in self.refused:
            raise self.refused[run.id]
        assert slot not in self.living.values()
        assert (directory / "spec.json").exists()
        self.launched.append(run.id)
        self.living[run.id, run.attempt] = slot
        files.write_json(directory / f"pid.{run.attempt}.json", {"supervisor": 0, "trainer": 0})

    def alive(self, run, _):
        return (run.id, run.attempt) in self.living

    def close(self):
        pass

    def end(self, store, run_id, *, code=0, reason="", **outcome):
        run, directory = store.get(run_id), store.directory(run_id)
        del self.living[run.id, run.attempt]
        if outcome:
            files.write_json(directory / "outcome.json", {"attempt": run.attempt, **outcome})
        ended = {"code": code, "signal": None, "reason": reason}
        files.write_json(directory / f"exit.{run.attempt}.json", ended)


@pytest.fixture
def engine():
    return FakeEngine()


@pytest.fixture
def dispatcher(store, engine):
    with Dispatcher(store, engine) as opened:
        yield opened


@pytest.fixture
def ticked(store, engine, dispatcher):
    """Let these runs end, and the dispatcher look once. Returns the runs launched so far."""

    def tick(*ended, state="done"):
        for run_id in ended:
            engine.end(store, run_id, state=state)
        dispatcher.tick()
        return engine.launched

    return tick


def together(work, count):
    """Call ``work(n)`` from ``count`` threads that start at one moment. Returns what they returned."""
    barrier = threading.Barrier(count)

    def start(number):
        barrier.wait()
        return work(number)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(start, range(count)))


def processes(tmp_path, count, code):
    """Run ``code``, which has ``root`` and ``number``, in processes that start at one moment.

    Returns what each prints.
    """
    start = (
        "import sys, pathlib\n"
        "root, number = pathlib.Path(sys.argv[1]), int(sys.argv[2])\n"
        "from engine.runs.store import Store\n"
        "from engine.runs.spec import RunSpec\n"
        "print('ready', flush=True); sys.stdin.readline()\n"
    )
    command, pipe = [sys.executable, "-c", start + code, str(tmp_path / "runs")], subprocess.PIPE
    children = [
        subprocess.Popen([*command, str(n)], cwd=paths.ROOT, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
        for n in range(count)
    ]
    assert [child.stdout.readline() for child in children] == ["ready\n"] * count
    for child in children:
        child.stdin.write("go\n")
        child.stdin.flush()
    ended = [child.communicate(timeout=60) for child in children]
    assert [error for _, error in ended] == [""] * count
    return [output.strip() for output, _ in ended]


# Compare-and-set


def test_of_many_threads_exactly_one_wins_a_change_of_state(store):
    for run_id in submit(store, 8):
        won = together(lambda n, run_id=run_id: store.advance(run_id, "queued", "starting", slot=n), 6)
        assert won.count(True) == 1
        run = store.get(run_id)
        assert (run.state, run.slot) == ("starting", won.index(True))


def test_of_many_processes_exactly_one_wins_each_run(store, tmp_path):
    ids = submit(store, 40)
    code = (
        "store = Store(root)\n"
        "print([r.id for r in store.runs() if store.advance(r.id, 'queued', 'starting', slot=number)])\n"
    )
    won = [json.loads(text) for text in processes(tmp_path, 4, code)]
    assert sorted(run_id for own in won for run_id in own) == ids
    assert all(store.get(run_id).slot == number for number, own in enumerate(won) for run_id in own)


def test_a_late_writer_changes_nothing(store, run_id):
    put_in(store, run_id, "cancelled")
    before = store.get(run_id)
    assert not store.advance(run_id, "queued", "starting", slot=3, started=time.time())
    assert not store.advance(run_id + 1, "queued", "starting")
    assert store.get(run_id) == before


def test_of_two_at_once_one_wins_and_the_other_changes_nothing(store):
    for run_id in submit(store, 12):  # cancelled against started
        together(lambda n, i=run_id: store.advance(i, "queued", "starting") if n else store.cancel(i), 2)
        run, asked = store.get(run_id), files.stop_requested(store.directory(run_id), 1)
        assert (run.state, asked) in [("cancelled", None), ("starting", "cancel")]
    for run_id in submit(store, 8):  # two clicks on Resume
        put_in(store, run_id, "failed")
        assert together(lambda n, i=run_id: store.resume(i), 4).count(True) == 1
        assert store.get(run_id).attempt == 2
    for run_id in submit(store, 8):  # resumed against deleted
        put_in(store, run_id, "interrupted")
        resumed, deleted = together(lambda n, i=run_id: store.delete(i) if n else store.resume(i), 2)
        assert resumed != deleted
        assert (store.get(run_id) is None) == deleted


# Submitting


def test_submits_from_many_processes_into_a_new_folder_lose_nothing(tmp_path):
    code = (
        f"store, spec = Store(root), RunSpec.from_json({spec().to_json()!r})\n"
        "for n in range(12): store.submit([spec, spec, spec], user=f'{number}', sweep=f'{number}-{n}')\n"
    )
    processes(tmp_path, 6, code)
    store = Store(tmp_path / "runs")
    runs = store.runs()
    assert [run.id for run in runs] == list(range(1, 6 * 12 * 3 + 1))
    assert Counter(run.user for run in runs) == {str(n): 36 for n in range(6)}
    assert len({run.sweep for run in runs}) == 72
    assert all(len({run.sweep for run in runs[n : n + 3]}) == 1 for n in range(0, 216, 3)), "in one piece"
    assert counters(store.root) == [("runs", 216)]


def counters(root):
    with sqlite3.connect(root / "store.sqlite") as db:
        return db.execute("SELECT name, seq FROM sqlite_sequence").fetchall()


def test_threads_that_open_a_new_folder_at_once_all_can(tmp_path):
    for n in range(30):
        together(lambda _, root=tmp_path / str(n): Store(root).close(), 12)
        assert counters(tmp_path / str(n)) == [("runs", 0)]


def test_a_submitted_run_is_what_was_asked_for(store):
    big = spec(seed=9007199254740993)
    store.submit([big], user="ann", sweep="s")
    (run,) = store.runs(sweep="s")
    assert (run.spec, run.digest, run.user) == (big, big.digest, "ann")
    assert (run.state, run.attempt, run.slot, run.reason) == ("queued", 1, None, "")
    assert (run.started, run.ended, run.seconds, run.measured, run.environment) == (None, None, None, {}, {})
    assert store.get(run.id) == run
    assert store.get(run.id + 1) is None
    # A row of another version is passed over, and the others go on.
    (other,) = submit(store)
    with store._connect() as db:
        db.execute("UPDATE runs SET spec = json_set(spec, '$.config.unheard_of', 1) WHERE id = 1")
    assert [run.id for run in store.runs()] == [other]
    assert store.get(run.id) is None


def test_a_sweep_is_submitted_whole_or_not_at_all(store):
    def specs():
        yield spec(0)
        raise ValueError("the second is bad")

    with pytest.raises(ValueError, match="the second is bad"):
        store.submit(specs())
    assert store.runs() == []


def test_runs_are_found_by_every_argument(store):
    first, second = submit(store, 2), submit(store, 2)
    put_in(store, second[0], "done")
    digests, both = [spec(1).digest], [first[1], second[1]]
    for which, ids in (
        ({}, first + second),
        ({"states": ("done",)}, [second[0]]),
        ({"digests": digests}, both),
        ({"states": ("queued",), "digests": digests}, both),
        ({"states": ()}, []),
        ({"digests": ()}, []),
        ({"sweep": "none such"}, []),
    ):
        assert [run.id for run in store.runs(**which)] == ids


def test_figures_survive_the_ledger(store, run_id):
    measured = {"validation_perplexity": 60.45, "train_perplexity": None}
    assert store.advance(run_id, "queued", "done", measured=measured, environment={"threads": 1}, seconds=2.5)
    run = store.get(run_id)
    assert (run.measured, run.environment, run.seconds) == (measured, {"threads": 1}, 2.5)
    with pytest.raises(ValueError, match="not JSON compliant"):
        store.advance(run_id, "done", "failed", measured={"validation_perplexity": float("nan")})
    assert store.get(run_id) == run


# Cancel, resume, delete


def test_a_queued_run_is_cancelled_at_once_and_leaves_no_folder(store):
    first, second = submit(store, 2)
    store.cancel(first)
    run = store.get(first)
    assert (run.state, run.reason) == ("cancelled", "by you, before it started")
    assert run.ended is not None
    assert not store.directory(first).exists()
    assert store.get(second).state == "queued"


@pytest.mark.parametrize("state", [*ACTIVE, *ENDED])
def test_an_active_run_is_asked_to_end_and_an_ended_one_is_left_alone(store, run_id, state):
    put_in(store, run_id, state)
    before = store.get(run_id)
    store.cancel(run_id)
    store.cancel(run_id + 1)
    assert store.get(run_id) == before
    asked = [files.stop_requested(store.directory(run_id), attempt) for attempt in (1, 2)]
    assert asked == ["cancel" if state in ACTIVE else None, None]
    assert store.directory(run_id).exists() == (state in ACTIVE)


@pytest.mark.parametrize("state", STATES)
def test_only_what_can_go_on_is_resumed_as_a_new_attempt(store, run_id, state):
    put_in(store, run_id, state)
    assert store.resume(run_id) == (state in RESUMABLE)
    run = store.get(run_id)
    expected = ("queued", 2, "", None) if state in RESUMABLE else (state, 1, "", None)
    assert (run.state, run.attempt, run.reason, run.ended) == expected
    assert not store.resume(run_id + 1)


@pytest.mark.parametrize("state", STATES)
def test_only_an_ended_run_is_deleted_with_its_files(store, state):
    kept, run_id = submit(store, 2)
    put_in(store, run_id, state)
    for each in (kept, run_id):
        store.directory(each).mkdir()
        files.write_json(store.directory(each) / "outcome.json", {})
    assert store.delete(run_id) == (state in ENDED)
    assert (store.get(run_id) is None) == (state in ENDED)
    assert store.directory(run_id).exists() == (state not in ENDED)
    assert store.directory(kept).exists()
    assert not store.delete(999)


# Ids


def test_an_id_is_never_given_twice(store):
    first = submit(store, 3)
    for run_id in first:
        store.cancel(run_id)
        assert store.delete(run_id)
    assert submit(store, 2) == [4, 5]
    assert [run.id for run in Store(store.root).runs()] == [4, 5]


@pytest.mark.parametrize("rows", [0, 3])
def test_an_id_is_not_given_again_though_the_ledger_was_lost(store, rows):
    for run_id in submit(store, 5):
        store.directory(run_id).mkdir()
    (store.root / "notes").mkdir()
    for file in store.root.glob("store.sqlite*"):
        file.unlink()
    again = Store(store.root)
    assert again.runs() == []
    assert submit(again, 1 + rows) == list(range(6, 7 + rows))
    shutil.rmtree(again.root / "5")
    assert submit(Store(again.root)) == [7 + rows]
    with sqlite3.connect(again.root / "store.sqlite") as db:
        db.execute("DELETE FROM sqlite_sequence")
    again.directory(17).mkdir()
    assert submit(Store(again.root)) == [18]


def test_the_place_in_the_queue_counts_older_queued_runs(store):
    ids = submit(store, 5)
    assert [store.queue_position(run_id) for run_id in ids] == [0, 1, 2, 3, 4]
    put_in(store, ids[0], "running")
    store.cancel(ids[2])
    assert [store.queue_position(run_id) for run_id in (ids[1], ids[3], ids[4])] == [0, 1, 2]


# Files of a run


def test_records_leave_a_torn_line_for_the_next_call_and_pass_over_what_is_none(tmp_path):
    metrics = tmp_path / "metrics.jsonl"
    assert (files.records(tmp_path), files.last_record(tmp_path)) == ([], {})
    whole = b"".join(b'{"step": %d, "loss_nats": 0.5}\n' % n for n in range(3))
    for end in range(len(whole) + 1):
        metrics.write_bytes(whole[:end])
        complete = whole[:end].count(b"\n")
        assert [r["step"] for r in files.records(tmp_path)] == list(range(complete))
        assert files.last_record(tmp_path).get("step", -1) == complete - 1
    metrics.write_bytes(b'{"step": 1}\n\xff\x00{{\n{"step": 2}\n{"step": 3, "lo\n')
    assert files.records(tmp_path) == [{"step": 1}, {"step": 2}]
    assert files.last_record(tmp_path) == {"step": 2}


def test_the_last_record_of_a_big_file_is_found_without_reading_it(tmp_path):
    metrics = tmp_path / "metrics.jsonl"
    lines = [json.dumps({"step": n, "note": "é" * 30}) + "\n" for n in range(100_000)]
    metrics.write_text("".join(lines) + '{"step": 100000, "no')
    assert metrics.stat().st_size > 10e6
    began = time.perf_counter()
    for _ in range(20):
        assert files.last_record(tmp_path)["step"] == 99_999
    assert time.perf_counter() - began < 1


def test_a_reader_sees_the_old_json_or_the_new_never_half(tmp_path):
    path, stop = tmp_path / "pid.1.json", threading.Event()
    files.write_json(path, {"n": 0, "fill": "x" * 20_000})

    def write():
        for n in range(1, 60):
            files.write_json(path, {"n": n, "fill": "x" * (20_000 if n % 2 else 10)})
        stop.set()

    writer = threading.Thread(target=write)
    writer.start()
    seen = []
    while not stop.is_set():
        value = files.read_json(path)
        assert value is not None, "a torn file"
        seen.append(value["n"])
    writer.join()
    assert seen == sorted(seen)
    assert len(set(seen)) > 1
    assert [p.name for p in tmp_path.iterdir()] == ["pid.1.json"]


def test_what_cannot_be_written_leaves_the_old_file_and_no_other(tmp_path):
    path = tmp_path / "outcome.json"
    files.write_json(path, {"n": 1})
    with pytest.raises(ValueError, match="not JSON compliant"):
        files.write_json(path, {"n": float("inf")})
    with pytest.raises(TypeError):
        files.write_json(path, {"n": object()})
    assert files.read_json(path) == {"n": 1}
    assert list(tmp_path.iterdir()) == [path]


@given(st.binary(max_size=40))
def test_no_bytes_make_reading_raise(tmp_path_factory, content):
    folder = tmp_path_factory.mktemp("any")
    for name in ("outcome.json", "metrics.jsonl", "cancel.1"):
        (folder / name).write_bytes(content)
    value = files.read_json(folder / "outcome.json")
    assert value is None or isinstance(value, dict)
    assert isinstance(files.last_record(folder), dict)
    assert isinstance(files.records(folder), list)
    assert files.stop_requested(folder, 1) in ("cancel", "stop")


def test_a_request_to_end_is_for_one_attempt(tmp_path):
    folder = tmp_path / "7"
    assert files.stop_requested(folder, 1) is None
    files.request_stop(folder, 1, "stop")
    files.request_stop(folder, 2, "cancel")
    assert [files.stop_requested(folder, n) for n in (1, 2, 3)] == ["stop", "cancel", None]
    (folder / "cancel.3").touch()
    assert files.stop_requested(folder, 3) == "cancel", "made, but not yet written"


# Dispatch


def test_a_single_run_is_next_though_another_user_queued_twenty(store, ticked):
    mine = submit(store, 20, user="ann")
    assert ticked() == mine[:2]
    (hers,) = submit(store, user="bob")
    assert ticked() == mine[:2], "the slots are taken"
    assert ticked(mine[0])[2:] == [hers]
    assert ticked(mine[1])[3:] == [mine[2]]


@pytest.mark.parametrize("seed", range(3))
def test_never_above_capacity_and_everything_ends(store, seed, dispatcher, engine):
    draw, waiting = random.Random(seed), 30
    while waiting or store.runs(states=("queued", *ACTIVE)):
        if waiting and draw.random() < 0.5:
            count = min(waiting, draw.randint(1, 6))
            submit(store, count, user=draw.choice("abc"))
            waiting -= count
        dispatcher.tick()
        active = store.runs(states=ACTIVE)
        assert len(active) <= engine.slots
        assert len({run.slot for run in active}) == len(active) == len(engine.living)
        assert all(run.slot is not None and run.slot < engine.slots for run in active)
        if not store.runs(states=("queued",)) or len(active) == engine.slots:
            for run in active:
                if draw.random() < 0.6:
                    engine.end(store, run.id, state="done", measured={"m": 1.0}, seconds=1.0)
    assert sorted(engine.launched) == list(range(1, 31)), "each once"
    assert {run.state for run in store.runs()} == {"done"}


WALL = WallSpec(Plan(tokens=(128, 256)))


def submit_wall(store, user="local"):
    (run,) = store.entries(sweep=store.submit([WALL], user=user))
    return run.id


def test_nothing_starts_beside_an_exclusive_run_and_what_is_under_way_goes_on(store, ticked):
    (before,) = submit(store)
    ticked()
    first, second = submit_wall(store), submit_wall(store)
    after, last = submit(store, 2)
    assert ticked() == [before, first]
    assert ticked(before) == [before, first], "though there is a slot"
    assert ticked(first) == [before, first, second], "two of them queue"
    assert ticked(second, state="cancelled") == [before, first, second, after, last]


def test_an_exclusive_run_waits_its_turn_but_for_no_slot(store, ticked):
    mine = submit(store, 5, user="me")
    assert ticked() == mine[:2]
    late = submit_wall(store, user="me")
    assert ticked() == mine[:2], "older runs of the same user come first"
    others = submit_wall(store, user="somebody")
    assert ticked() == [*mine[:2], others], "who has none under way is next"
    ended = others
    for run_id in mine[:3]:
        assert late not in ticked(ended)
        ended = run_id
    assert ticked(ended) == [*mine[:2], others, *mine[2:], late]


def test_an_exclusive_run_does_not_start_while_the_engine_is_not_ready(store, engine, ticked):
    engine.slots = 0
    wall = submit_wall(store)
    assert ticked() == []
    engine.slots = 1
    assert ticked() == [wall]


def test_a_measurement_of_the_wall_is_an_entry_and_no_training(store, run_id):
    asked = WallSpec(Plan(tokens=(256, 128), implementations=("fused",), budget_bytes=2**33))
    assert WallSpec.from_json(asked.to_json()) == spec_of(asked.to_json()) == asked
    assert json.loads(asked.to_json())["kind"] == "memory-wall"
    assert "kind" not in json.loads(spec().to_json())
    assert WALL.digest == "50b7de425ae805f5a246b8d2c0bd5d4a" != asked.digest
    assert (asked.title, asked.steps) == ("fused to 256 tokens, 8 GB", 2)
    (wall,) = store.entries(sweep=store.submit([asked], user="me"))
    assert store.get(wall.id) == wall
    assert (wall.spec, wall.digest, wall.user, wall.state) == (asked, asked.digest, "me", "queued")
    assert [run.id for run in store.entries()] == [run_id, wall.id]
    assert [run.id for run in store.runs()] == [run_id]
    assert [run.id for run in store.entries(digests=[asked.digest])] == [wall.id]
    for wrong in ('{"kind": "other"}', '{"kind": "memory-wall"}', "[]", "7"):
        with pytest.raises((ValueError, TypeError, KeyError)):
            spec_of(wrong)


def test_fewer_slots_than_adopted_runs_start_nothing_until_there_is_room(store, engine):
    ids, engine.slots = submit(store, 6), 4
    with Dispatcher(store, engine) as before:
        before.tick()
        before.tick()
    engine.end(store, ids[0], state="done")
    engine.slots = 2  # the next dispatcher was started with fewer
    with Dispatcher(store, engine) as after:
        for run_id in ids[1:3]:
            after.tick()
            assert engine.launched == ids[:4], "three of four still run, two may"
            engine.end(store, run_id, state="done")
        after.tick()
        assert engine.launched == ids[:5]
        assert len(store.runs(states=ACTIVE)) == 2


def test_the_next_dispatcher_adopts_what_the_last_one_started(store, engine):
    ids = [*submit(store, 2), submit_wall(store)]
    with Dispatcher(store, engine) as first:
        first.tick()
    (waiting,) = submit(store)
    with Dispatcher(store, engine) as second:
        second.tick()
        assert engine.launched == ids
        assert [run.state for run in store.entries()] == ["running"] * 3 + ["queued"]
        for run_id in ids:
            engine.end(store, run_id, state="done")
        second.tick()
    assert engine.launched == [*ids, waiting]
    assert store.get(ids[0]).state == "done"


def test_a_run_becomes_running_when_its_trainer_has_a_process(store, run_id, dispatcher):
    dispatcher.tick()
    (store.directory(run_id) / "pid.1.json").unlink()
    dispatcher.tick()
    run = store.get(run_id)
    assert (run.state, run.slot) == ("starting", 0)
    assert run.started is not None
    files.write_json(store.directory(run_id) / "pid.1.json", {"supervisor": 1, "trainer": 2})
    dispatcher.tick()
    assert store.get(run_id).state == "running"
    assert RunSpec.from_json((store.directory(run_id) / "spec.json").read_text()) == run.spec


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        ((11, "Resource temporarily unavailable"), "file error: Resource temporarily unavailable"),
        ((28, "No space left on device", "/x/spec.json"), "disk full: No space left on device (spec.json)"),
    ],
)
def test_what_cannot_be_launched_fails_with_its_reason_and_the_next_one_starts(
    store, engine, ticked, error, reason
):
    engine.slots = 1
    first, second = submit(store, 2)
    engine.refused[first] = OSError(*error)
    ticked()
    assert ticked() == [second]
    run = store.get(first)
    assert (run.state, run.reason) == ("failed", reason)
    assert run.ended is not None
    del engine.refused[first]
    assert store.resume(first)
    assert ticked(second) == [second, first]


def test_a_folder_that_cannot_be_made_fails_its_run_alone(store, ticked):
    first, second = submit(store, 2)
    store.directory(first).write_text("a file where the folder should be")
    assert ticked() == [second]
    assert store.get(first).state == "failed"
    assert store.get(first).reason.startswith("file error: ")


def test_a_run_cancelled_in_the_last_moment_is_not_launched(store, run_id, ticked, monkeypatch):
    read = store.entries

    def entries(**which):
        found = read(**which)
        if which.get("states") == ("queued",):
            store.cancel(run_id)
        return found

    monkeypatch.setattr(store, "entries", entries)
    assert ticked() == []
    assert store.get(run_id).state == "cancelled"


WENT = {"attempt": 1, "seconds": 3.0}
DONE = {**WENT, "state": "done", "measured": {"m": 2.0}}
DIVERGED = {**WENT, "state": "diverged", "reason": "at step 3"}
FAILED = {**WENT, "state": "failed", "reason": "out of memory: x"}
CANCELLED = {**WENT, "state": "cancelled", "reason": "by you, at step 40"}
CLOSED = {**WENT, "state": "interrupted", "reason": "the lab was closed"}
CLEAN, BAD = {"code": 0, "reason": ""}, {"code": 1, "reason": "exited with code 1"}
KILLED = {"code": None, "signal": "SIGKILL", "reason": "killed from outside"}


@pytest.mark.parametrize(
    ("outcome", "ended", "word", "state", "reason"),
    [
        (DONE, CLEAN, None, "done", ""),
        (DIVERGED, CLEAN, None, "diverged", "at step 3"),
        (FAILED, BAD, None, "failed", "out of memory: x"),
        (CANCELLED, CLEAN, "cancel", "cancelled", "by you, at step 40"),
        (CLOSED, CLEAN, "stop", "interrupted", "the lab was closed"),
        (None, KILLED, None, "failed", "killed from outside"),
        (None, KILLED, "cancel", "cancelled", "by you, at step 40"),
        (None, KILLED, "stop", "interrupted", "the lab was closed"),
        (None, None, None, "interrupted", "its supervisor was killed"),
        (None, None, "cancel", "cancelled", "by you, at step 40"),
        (None, CLEAN, None, "failed", "the trainer ended without a word"),
        ({**DONE, "attempt": 0}, KILLED, None, "failed", "killed from outside"),
        (DONE, None, None, "done", ""),
    ],
)
def test_how_a_run_ended_is_told_from_its_folder(tmp_path, outcome, ended, word, state, reason):
    (tmp_path / "metrics.jsonl").write_text('{"step": 40, "seconds": 2.5}\n')
    for name, document in (("outcome", outcome), ("exit.1", ended)):
        if document:
            files.write_json(tmp_path / f"{name}.json", document)
    if word:
        files.request_stop(tmp_path, 1, word)
    told, changes = verdict(tmp_path, 1)
    assert (told, changes.get("reason", "")) == (state, reason)
    current = outcome if outcome and outcome["attempt"] == 1 else {"seconds": 2.5}
    assert changes["seconds"] == current["seconds"]
    assert changes.get("measured", {}) == current.get("measured", {})


def test_a_second_dispatcher_process_says_so_and_ends(home, python):
    with Dispatcher(Store(), FakeEngine()) as first:
        ended = python("-m", "engine.runs.dispatcher")
        submit(Store())
        first.tick()
        assert len(first.engine.launched) == 1
    assert ended.returncode == 3
    assert re.fullmatch(rf"another dispatcher already serves {paths.RUNS}; one is enough.*\.\n", ended.stderr)


def test_whether_a_dispatcher_runs_is_known_whatever_becomes_of_it(store, engine, home, monkeypatch):
    assert not dispatching.running(store.root)
    assert not dispatching.running(store.root / "none" / "such")
    with Dispatcher(store, engine), monkeypatch.context() as patch:
        assert dispatching.running(store.root)
        known = psutil.Process.create_time
        # The clock is set back: psutil counts a process's age from a boot time that is derived from it.
        patch.setattr(psutil.Process, "create_time", lambda self: known(self) - 3600)
        assert dispatching.running(store.root)
    assert not dispatching.running(store.root)
    server = subprocess.Popen([sys.executable, "-m", "engine.runs.dispatcher"], cwd=paths.ROOT)
    try:
        until(dispatching.running, 20, "it never ran")
    finally:
        server.kill()
        server.wait()
    assert not dispatching.running()


def test_asking_whether_a_dispatcher_runs_never_keeps_one_from_starting(store, engine):
    stop = threading.Event()

    def ask():
        while not stop.wait(0.005):
            dispatching.running(store.root)

    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(ask)
        try:
            for _ in range(50):
                with Dispatcher(store, engine):
                    pass
        finally:
            stop.set()
    asking.result()


def test_a_clock_set_back_makes_nothing_negative_and_stops_nothing(store, engine, ticked, monkeypatch):
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now)
    first, second = submit(store, 2)
    ticked()
    ticked()
    monkeypatch.setattr(time, "time", lambda: now - 3600)
    (third,) = submit(store)
    assert store.queue_position(third) == 0
    assert ticked(first) == [first, second, third], "in the order of asking, whatever the clock says"
    assert store.get(first).state == "done"
    store.cancel(second)
    assert files.stop_requested(store.directory(second), 1) == "cancel"
    engine.end(store, third, reason="the trainer exited with code 3")
    ticked(second, state="cancelled")
    for run in store.runs():
        assert run.state in ENDED
        assert run.seconds is None or run.seconds >= 0
        assert run.created <= run.started <= run.ended, "a page subtracts them"
