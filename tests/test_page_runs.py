"""The page Runs: what it shows of every state, and that each button does what it says."""

import json
from dataclasses import asdict, replace
from unittest.mock import Mock

import pytest
import streamlit as st

from engine.chapter.budget import Budget
from engine.chapter.experiments import AVERAGES, VARIANTS
from engine.data import corpus
from engine.memory_wall.plan import Plan, Row, doubling
from engine.memory_wall.setting import Setting
from engine.runs import dispatcher
from engine.runs.spec import RunSpec, WallSpec
from engine.runs.store import Store
from engine.system import files
from lab.bench import sweep
from lab.runs import view, wall
from lab.words import plain
from tests.apptest import keys, open_home, rerun, said

ODD = "$5 and $6 *x* :smile: <b>z</b> [a](b) a.b[1]: it's"
SPEC = RunSpec(
    experiment="averages",
    variant="average",
    budget_name="chapter",
    config=VARIANTS["average"].config,
    budget=AVERAGES.budget("chapter"),
    corpus=corpus.TINYSHAKESPEARE,
    corpus_sha256=corpus.TINYSHAKESPEARE_SHA256,
    seed=2,
)
ENVIRONMENT = {"device": "CPU, 2 cores", "threads": 1, "torch": "2.13.0", "python": "3.11.9", "lab": "0.1.0"}


def add(store, state="queued", spec=SPEC, steps=0, **columns):
    """A run in that state, with records up to a step. Returns its id."""
    records = [
        {"step": step, "seconds": step / 5, "tokens_per_s": 9000, "loss_nats": 5.0}
        | (
            {"validation_perplexity": 900.0 - step / 10, "validation_loss_nats": 6.8}
            if step % 100 == 0
            else {}
        )
        for step in range(0, steps + 1, 10)
    ]
    return left(store, state, spec, records, **columns)


def left(store, state, spec, records, **columns):
    """A run in that state with these records. Returns its id."""
    (run,) = store.entries(sweep=store.submit([spec]))
    if state != "queued":
        directory = store.directory(run.id)
        directory.mkdir()
        (directory / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
        store.advance(run.id, "queued", state, **columns)
    return run.id


def save_checkpoint(store, run_id, step):
    """The head of a checkpoint is all that the page reads."""
    header = json.dumps({"__metadata__": {"lab": json.dumps({"step": step})}}).encode()
    path = store.directory(run_id) / "checkpoint.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header)


def opened(**query):
    """The page, through the app's own navigation."""
    page = open_home()
    page.switch_page("../pages/runs.py")
    for name, value in query.items():
        page.query_params[name] = value
    return rerun(page)


def press(page, *names):
    for name in names:
        page.button(key=f"runs.{name}").click()
        rerun(page)
    return page


def shown_ids(page):
    return list(page.dataframe[0].value["run"])


def test_without_runs_it_says_where_to_start(store, monkeypatch):
    monkeypatch.setattr(dispatcher, "running", lambda root=None: False)
    page = opened()
    assert "No runs yet." in said(page)
    assert "New runs will wait" in said(page)
    assert not page.dataframe


def test_the_table_shows_every_state_in_the_order_of_interest(store):
    done = add(store, "done", steps=3000, seconds=600.0, measured={"validation_perplexity": 249.34})
    failed = add(store, "failed", steps=100, reason="out of memory: 9 GB used, 8 GB allowed", seconds=20.0)
    running = add(store, "running", steps=1200)
    waiting = [add(store), add(store)]
    page = opened()
    table = page.dataframe[0].value.set_index("run")
    assert list(table.index) == [running, *waiting, failed, done]
    assert list(table["state"].map(list)) == [["running"], ["queued"], ["queued"], ["failed"], ["done"]]
    assert table["reason"][waiting[1]] == "1 run before it"
    assert table["reason"][failed] == "out of memory: 9 GB used, 8 GB allowed"
    assert table["held-out"][done] == 249.34
    assert table["held-out"][running] == 780.0, "the newest of a run that goes on"
    assert table["progress"][running] == 0.4
    assert "about 6" in table["reason"][running], "1,800 steps at 5 a second"
    assert len(table["curve"][done]) == 31
    assert "Queued runs wait" not in said(page)


def test_the_run_in_the_url_is_ticked_and_explained(store):
    add(store)
    figures = {"validation_perplexity": 249.34, "train_perplexity": 240.1}
    wanted = add(store, "done", steps=3000, seconds=1100.0, measured=figures, environment=ENVIRONMENT)
    page = opened(run=str(wanted))
    assert page.session_state["runs.table"]["selection"]["rows"] == [1]
    assert "Done in 18" in said(page)
    assert "249.34" in said(page)
    card = "\n".join(page.table[0].value.iloc[:, 1])
    for part in ("CPU, 2 cores, 1 thread", "torch 2.13.0", "mixer average", "86c4e6aa…65ed", "3,000"):
        assert plain(part) in card
    command = "python -m engine run averages --budget chapter --seeds 2 --variant average"
    assert command in [code.value for code in page.code]
    add(store), add(store)
    assert rerun(page).session_state["runs.table"]["selection"]["rows"] == [3], "its row has moved"
    assert page.query_params["run"] == str(wanted)


@pytest.mark.parametrize("number", ["../../x", "9" * 30])
def test_a_bad_number_in_the_url_is_named_and_nothing_else_happens(store, number):
    run_id = add(store)
    page = opened(run=number)
    assert "; allowed: the number of a run that is here, 1 to 1. Used: none." in said(page)
    assert shown_ids(page) == [run_id]
    assert store.get(run_id).state == "queued"


def test_filters_narrow_the_list_and_live_in_the_url(store):
    done = add(store, "done", spec=replace(SPEC, variant="no-context", seed=7))
    failed = add(store, "failed", reason="disk full")
    page = opened()
    page.text_input[0].set_value("NO CONTEXT seed 7").run()
    assert shown_ids(page) == [done]
    assert page.query_params["search"] == "NO CONTEXT seed 7"
    page.text_input[0].set_value("").run()
    assert shown_ids(page) == [failed, done]
    assert "search" not in page.query_params
    page.button_group[0].set_value(["failed", "queued"]).run()
    assert shown_ids(page) == [failed]
    assert page.query_params["state"] == "failed,queued"
    assert shown_ids(opened(state="failed,queued", search="disk")) == [failed]
    assert "No run matches these filters; there are 2." in said(opened(search=ODD))


def test_cancel_stops_a_queued_run_at_once_and_asks_a_running_one(store):
    queued, running = add(store), add(store, "running", steps=20)
    page = opened(run=str(queued))
    press(page, "cancel")
    assert store.get(queued).state == "cancelled"
    assert "Cancelled by you" in said(page)
    page = opened(run=str(running))
    press(page, "cancel")
    assert files.stop_requested(store.directory(running), 1) == "cancel"
    assert page.button("runs.cancel").disabled


def test_resume_is_offered_where_a_checkpoint_is(store):
    with_one = add(store, "interrupted", steps=1900, reason="the lab was closed, at step 1,890")
    save_checkpoint(store, with_one, 1800)
    without = add(store, "cancelled", reason="by you, before it started")
    page = opened(run=str(with_one))
    assert "Resume goes on from step 1,800." in said(page)
    press(page, "resume")
    assert (store.get(with_one).state, store.get(with_one).attempt) == ("queued", 2)
    assert "It goes on from step 1,800." in said(page)
    assert "runs.resume" not in keys(opened(run=str(without)))


def test_run_again_queues_the_same_and_goes_there(store):
    odd = replace(SPEC, budget=Budget(steps=7))
    failed = add(store, "failed", spec=odd, reason="out of memory: 9 GB used")
    page = opened(run=str(failed))
    assert "No command repeats it" in said(page), "that budget is nowhere but in this run"
    press(page, "again")
    newest = store.entries()[-1]
    assert (newest.spec, newest.state) == (odd, "queued")
    assert page.query_params["run"] == str(newest.id)
    wall_run = add_wall(store, "queued")
    press(opened(run=str(wall_run)), "cancel", "again")
    states = {run.id: run.state for run in store.entries() if run.spec == WALL}
    assert states == {wall_run: "cancelled", wall_run + 1: "queued"}


@pytest.mark.parametrize("kind", ["training", "measurement"])
def test_delete_asks_first(store, kind):
    kept, gone = add(store, "done", steps=10), (add if kind == "training" else add_wall)(store, "done")
    page = press(opened(run=str(gone)), "delete")
    assert store.get(gone) is not None
    press(page, "delete_no")
    assert "runs.delete_yes" not in keys(page)
    press(page, "delete", "delete_yes")
    assert store.get(gone) is None
    assert not store.directory(gone).exists()
    assert shown_ids(page) == [kept]
    assert "run" not in page.query_params


def test_what_users_wrote_appears_character_for_character(store):
    run_id = add(store, "failed", reason=ODD)
    (store.directory(run_id) / "log.txt").write_text(f"first\n{ODD}\n")
    page = opened(run=str(run_id))
    assert page.dataframe[0].value["reason"][0] == ODD
    assert ODD in said(page)
    assert any(code.value.endswith(ODD) for code in page.code), "the log, as text"


def test_with_many_runs_only_the_newest_are_read(store, monkeypatch):
    store.submit([replace(SPEC, seed=seed) for seed in range(150)])
    for run in store.runs():
        store.advance(run.id, "queued", "done", measured={"validation_perplexity": 1.0})
    read = Mock(wraps=view.recorded)
    monkeypatch.setattr(view, "recorded", read)
    page = opened()
    assert len(shown_ids(page)) == read.call_count == 100
    page.button[-1].click().run()
    assert len(shown_ids(page)) == 150


def test_another_sessions_run_is_seen_and_the_ledger_read_only_when_it_changed(store):
    first = add(store)
    seen = view.opened()[2]
    Store().queue_position(Store().runs()[0].id)
    assert view.opened()[2] is seen, "reading is no change"
    second = add(Store())
    assert [run.id for run in view.opened()[2]] == [first, second]
    store.cancel(first)
    assert view.opened()[2][0].state == "cancelled"


def test_the_card_is_strict_json_and_the_metrics_are_csv(store, monkeypatch):
    made = {}
    monkeypatch.setattr(st, "download_button", lambda label, data, *_, **__: made.update({label: data}))
    run_id = add(store, "diverged", steps=20, reason="x", measured={"validation_perplexity": None})
    opened(run=str(run_id))
    metrics, sheet = (write() for write in made.values())
    card = json.loads(sheet)
    assert card["text"]["sha256"] == corpus.TINYSHAKESPEARE_SHA256
    assert card["measured"] == {"validation_perplexity": None}
    lines = metrics.splitlines()
    assert lines[0].startswith("step,seconds")
    assert lines[2] == "10,2.0,9000,5.0,,"

    run = add_wall(store, "done", EXPLICIT)
    opened(run=str(run))
    sheet = json.loads(list(made.values())[-1]())
    assert sheet["rows"] == [asdict(EXPLICIT)]
    assert (sheet["plan"]["tokens"], sheet["digest"]) == ([128, 256], WALL.digest)
    assert sheet["command"].startswith("python -m engine bench memory --to 256")


@pytest.mark.parametrize("record", [{"step": 3001, "seconds": 5.0}, {"step": 10, "seconds": -3600.0}])
def test_a_clock_set_back_makes_no_negative_time(store, record):
    run = left(store, "running", SPEC, [record])
    page = opened(run=str(run))
    assert "-" not in page.dataframe[0].value["reason"][0]
    assert f"Running: step {record['step']:,} of 3,000" in said(page)


# What measures the memory wall.

WALL = WallSpec(Plan(tokens=(128, 256), implementations=("explicit", "fused"), budget_bytes=2**33))


def add_wall(store, state, *rows, **columns):
    """A measurement in that state, with these rows. Returns its id."""
    records = [{"step": step, "seconds": 5.0, **asdict(row)} for step, row in enumerate(rows)]
    return left(store, state, WALL, records, **columns)


EXPLICIT = Row(n=128, implementation="explicit", state="done", peak_bytes=7, step_ms=2.0)
FUSED = Row(n=128, implementation="fused", state="running")


def test_a_measurement_is_listed_among_the_trainings(store):
    trained = add(store, "done", steps=3000, measured={"validation_perplexity": 249.34})
    running = add_wall(store, "running", EXPLICIT, FUSED)
    waiting = add_wall(store, "queued")
    ended = add_wall(store, "done", EXPLICIT)
    page = opened()
    table = page.dataframe[0].value.set_index("run")
    assert list(table.index) == [running, waiting, ended, trained]
    row = table.loc[running]
    assert (row["experiment"], row["model"]) == ("memory-wall", "explicit, fused to 256 tokens, 8 GB")
    assert (row["progress"], len(row["curve"]), row["took"]) == (0.25, 0, "5\u00a0s")
    assert table["reason"][waiting] == "next"
    assert shown_ids(opened(experiment="memory-wall")) == [running, waiting, ended]
    assert shown_ids(opened(search="fused 256")) == [running, waiting, ended]
    assert "Measuring explicit" not in said(page)
    machine = list(open_home().table[0].value.iloc[:, 1])
    assert plain("2 done, 1 running, 1 queued") in machine


KILLED = "the trainer was killed from outside (SIGKILL)"


@pytest.mark.parametrize(
    ("state", "rows", "columns", "told"),
    [
        ("queued", [], {}, "Queued, next. While it measures, no other run starts."),
        ("running", [], {}, "Starting: it loads torch. No other run starts until it has ended."),
        ("running", [EXPLICIT, FUSED], {},
         "Measuring fused at 128 tokens; 1 of at most 4 rows are measured. No other run starts meanwhile."),
        ("done", [EXPLICIT, replace(FUSED, state="out of memory"), replace(EXPLICIT, n=256, state="failed")],
         {"seconds": 46.0},
         "Done in 46 s: 2 rows. fused ran out of memory at 128 tokens. explicit failed at 256 tokens."),
        ("failed", [], {"reason": KILLED},
         f"Failed: {KILLED}. Nothing else was stopped. Run it again from the start."),
        ("interrupted", [EXPLICIT], {"reason": "its supervisor was killed"},
         "Interrupted: its supervisor was killed. Resume measures the rows that are missing."),
    ],
)  # fmt: skip
def test_what_happened_to_a_measurement_is_told(store, state, rows, columns, told):
    run = add_wall(store, state, *rows, **columns)
    page = opened(run=str(run))
    assert told in said(page)
    assert ("runs.resume" in keys(page)) == (state == "interrupted")


def test_the_card_of_a_measurement_and_its_command(store):
    figures = {"explicit_bytes_exponent": 1.91}
    run = add_wall(store, "done", EXPLICIT, seconds=46.0, measured=figures, environment=ENVIRONMENT)
    page = opened(run=str(run))
    card = dict(zip(*(page.table[0].value.iloc[:, column] for column in (0, 1)), strict=True))
    assert card[":gray[Measured]"] == plain("explicit bytes exponent 1.91")
    assert card[":gray[Tokens]"] == "128 to 256"
    assert card[":gray[Device]"] == plain("CPU, 2 cores, 1 thread")
    command = (
        "python -m engine bench memory --to 256 --implementation explicit,fused --budget-gb 8 --device cpu"
    )
    assert command in [code.value for code in page.code]
    assert any("d_model = 512" in code.value for code in page.code)


@pytest.mark.parametrize(
    ("changes", "options"),
    [
        ({"tokens": doubling(1000)}, "--to 1000 --device cpu"),
        ({"setting": Setting(d_model=64, dtype="bfloat16", backward=True, causal=False)},
         "--to 128 --width 64 --dtype bfloat16 --backward --no-causal --device cpu"),
        ({"threads": 2, "device": "cuda", "budget_bytes": 2**29},
         "--to 128 --budget-gb 0.5 --device cuda --threads 2"),
        ({"tokens": (531, 532), "timed": False}, None),
    ],
)  # fmt: skip
def test_the_command_measures_the_same(changes, options):
    found = wall.command(Plan(**{"tokens": (128,), **changes}))
    assert found.line == (options and f"python -m engine bench memory {options}")
    assert bool(found.why_not) == (options is None)


def test_of_a_run_that_grows_the_newest_state_alone_is_kept(tmp_path, monkeypatch):
    read, file = Mock(wraps=files.records), tmp_path / "metrics.jsonl"
    monkeypatch.setattr(files, "records", read)
    assert sweep.recorded(tmp_path, "loss_nats") == ()
    for step in range(1, 4):
        with file.open("a") as out:
            out.write(json.dumps({"step": step, "loss_nats": 1 / step}) + "\n")
        points = sweep.recorded(tmp_path, "loss_nats")
        assert points == sweep.recorded(tmp_path, "loss_nats")
        assert points[-1] == (step, 1 / step)
    assert read.call_count == 3, "what did not change is not read again"
    assert [len(points) for points in sweep._kept(tmp_path, "loss_nats").values()] == [3]
