"""The page of the n x n wall: settings, streaming rows, every way to end, predictions, exports.

What a run would record is written by the tests; one, tiny, is for real.
"""

import json
from dataclasses import asdict, replace
from functools import partial

import pytest

from engine.memory_wall.plan import Plan, Row, doubling
from engine.memory_wall.predictions import Longest, Predictions
from engine.memory_wall.setting import CHAPTER, GB, MB, WORKSPACE_BYTES, Setting, closed_form
from engine.runs import dispatcher, wait
from engine.runs.spec import WallSpec
from engine.system import device, files
from engine.system.errors import Unavailable
from tests.apptest import cells, charts, choose, means, open_page, press, rerun, said

BASE = {"to": "512", "budget": "none"}
MEASURE, CANCEL = "wall.measure", "wall.measure.cancel"
opened = partial(open_page, "wall")


def plan(**changes):
    return Plan(**{"tokens": (128, 256, 512), "device": "cpu", **changes})


def record(store, run, *rows):
    """Add rows to what a run recorded."""
    folder = store.directory(run)
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "metrics.jsonl").open("a") as out:
        out.writelines(json.dumps(asdict(row)) + "\n" for row in rows)


def start(store, run):
    assert store.advance(run, "queued", "running")


def end(store, run, state="done", **columns):
    assert store.advance(run, "running", state, **{"seconds": 46.0, **columns})


def started(store):
    """The page with a measurement that runs, and the number of its run."""
    page = press(opened(**BASE), MEASURE)
    start(store, newest(store).id)
    return rerun(page), newest(store).id


def measured(store, of, rows):
    """A run of a plan that has ended with these rows, as ``sweep.measure`` would have recorded it."""
    (run,) = store.entries(sweep=store.submit([WallSpec(of)], "local"))
    start(store, run.id)
    record(store, run.id, *rows)
    end(store, run.id)
    return run.id


def newest(store):
    return store.entries()[-1]


def row(n, name, state="done", **more):
    peak = 10**6 * 8 + n * 4096 + (64 * n * n if name == "explicit" else 0)
    return Row(n=n, implementation=name, state=state, **{"predicted_bytes": peak, **more})


def rows_of(of, **failing):
    """Every row, with explicit out of memory where it does not fit the budget.

    failing: what the rows of an implementation hold instead.
    """
    beyond = set()
    for n, name in of.tasks:
        if name in beyond:
            continue
        done = row(n, name)
        peak = done.predicted_bytes
        yield replace(done, state="running")
        if name in failing:
            yield replace(done, **failing[name])
        elif of.budget_bytes and peak > of.budget_bytes:
            beyond.add(name)
            yield replace(done, state="out of memory", needed_bytes=peak, reason="It needs more.")
        else:
            ms = n * n / 65_536 if name == "explicit" else n / 128
            backend = "flash (CPU)" if name == "fused" else None
            yield replace(done, peak_bytes=peak, step_ms=ms, backend=backend)


@pytest.fixture
def cards(probes_here):
    """Predictions from formulas, at once; what was asked."""
    longest = {"explicit": 11_338, "fused": 750_000, "chunked": 700_000}

    def answer(cards_gb, implementations, **_):
        pairs = [(float(gb), name) for gb in cards_gb for name in implementations]
        fits = (Longest(gb, name, int(longest[name] * (gb / 8) ** 0.5)) for gb, name in pairs)
        return Predictions(longest=tuple(fits))

    probes_here.answers["memory-wall"] = answer
    return probes_here


# Before anything is measured.


def test_an_empty_page_says_what_to_do(store):
    page = opened()
    assert "Takes about" in said(page)
    assert [row["tokens"] for row in cells(page, "tokens")] == [
        "128",
        "256",
        "512",
        "1,024",
        "2,048",
        "4,096",
    ]
    chapter = cells(page, "chapter")
    assert chapter[6] == {
        "chapter": "8,192", "ms ×": "3.69", "peak MB": "4,300.1", "MB ×": "3.91", "yours": ":gray[–]"
    }  # fmt: skip
    assert chapter[7]["peak MB"] == "out of memory"
    assert charts(page)[0]["budget"] == [{"MB": 8192.0, "text": "budget 8,192 MB"}]
    assert any("def chunked(x: Tensor" in element.value for element in page.code)


def test_another_layer_is_told_in_words_and_one_that_cannot_be_is_refused(store):
    layer = {"heads": "4", "width": "256", "dtype": "bfloat16", "mask": "none", "pass": "backward"}
    words = said(opened(**layer))
    assert "width 256, 4 heads, bfloat16, without a mask, forward and back" in words
    assert "Yours is another." in words
    page = opened(heads="7")
    assert "Heads are 7; allowed: a divisor of the width, 512." in said(page)
    assert page.button(key=MEASURE).disabled


def test_implementations_are_chosen_one_or_more(store):
    page = choose(opened(), "wall.ways", ["fused"])
    assert page.query_params["ways"] == "fused"
    names = [row["exponent of n"] for row in cells(page, "exponent")]
    assert names == [":green[●] fused", "shipped, explicit", "chapter, explicit"]
    page = choose(page, "wall.ways", [])
    assert "No implementation is chosen" in said(page)
    assert page.button(key=MEASURE).disabled


def test_without_torch_the_page_stands_and_says_so(store, monkeypatch):
    def broken():
        raise Unavailable("no module named torch")

    monkeypatch.setattr(device, "describe", broken)
    assert "torch does not start: no module named torch" in said(opened())


# Rows as they come.


def test_a_press_queues_a_run_that_waits_its_turn(store, monkeypatch):
    page = press(opened(**BASE), MEASURE)
    run = newest(store)
    assert (run.spec, run.state, run.user) == (WallSpec(plan()), "queued", "local")
    assert "Queued, next in turn" in said(page)
    other = press(opened(**BASE, heads="4"), MEASURE)
    assert "Queued, one run before it" in said(other)
    assert "Cancelled after 0 rows" in said(press(other, CANCEL))
    assert [run.state for run in store.entries()] == ["queued", "cancelled"]
    monkeypatch.setattr(dispatcher, "running", lambda root=None: False)
    assert "Nothing will start: run `python -m lab`" in said(rerun(page))


def test_a_whole_measurement_fills_figures_tables_and_answers_for_every_reader(store, taken_away):
    run = measured(store, plan(), rows_of(plan()))
    path = store.directory(run) / "metrics.jsonl"
    path.write_text(path.read_text() + '[1]\n{"n": 5}\nnonsense\n{"n": 128, "impl')  # as after a crash
    page = opened(**BASE, first="4096", time="8")
    assert "12 rows in 46 s" in said(page)
    assert cells(page, "tokens")[2] == {
        "tokens": "512", "ms": "**4.00**", "ms ×": "4.00", "projections": "4.00", "matrix MB": "8.0",
        "peak MB": "**25.6**", "MB ×": "2.03", "predicted": "25.6",
    }  # fmt: skip
    words = said(page)
    assert "You guessed *4,096*. Explicit had room for all rows up to 512." in words
    assert "You guessed *eight times*. From 256 to 512 tokens explicit takes **4.00 times** as long" in words
    assert "its four projections alone 2.00" in words
    assert "Fused ran the kernel flash (CPU)." in words
    assert cells(page, "exponent")[0]["time"] == "2.00"
    memory, time_of = charts(page)[:2]
    assert [row["n"] for row in memory["curves"] if row["slot"] == "red"] == [128, 256, 512]
    assert {row["slot"] for row in memory["curves"]} == {"red", "green", "blue", "gray"}
    guides = {row["slope"] for row in (*memory["guides"], *time_of["guides"])}
    assert guides == {"slope 1", "slope 2"}
    assert "n" not in memory["walls"][0]
    header, rows = taken_away["memory-wall-512"]
    assert header[:4] == ("implementation", "n", "state", "step_ms")
    assert len(rows) == 12

    assert "Nothing is measured yet" in said(opened(**BASE, heads="4"))
    assert store.delete(run)
    assert "Nothing is measured yet" in said(rerun(page))


def test_rows_stream_and_a_cancel_is_asked_for(store):
    page, run = started(store)
    assert "Running: loading torch" in said(page)
    first = row(128, "explicit", step_ms=0.25)
    record(store, run, replace(first, state="running"), first, row(128, "fused", "running"))
    page = rerun(page)
    assert "Running: fused, 128 tokens" in said(page)
    assert cells(page, "tokens")[0]["ms"] == "**0.25**"
    assert "Your guesses are answered here when the last row has ended." in said(page)
    page = press(page, CANCEL)
    assert files.stop_requested(store.directory(run), 1) == "cancel"
    record(store, run, row(128, "fused", "cancelled", reason="It was cancelled."))
    end(store, run, "cancelled", reason="by you, after 1 row")
    page = rerun(page)
    assert "Cancelled after 1 row" in said(page)
    assert "fused, 128 tokens: cancelled." in said(page)
    press(page, MEASURE)
    assert newest(store).id != run, "measured anew"


def test_the_newest_whole_one_is_shown_though_a_later_one_was_cancelled(store):
    measured(store, plan(), rows_of(plan()))
    page, run = started(store)
    assert "Running" in said(page)
    end(store, run, "cancelled")
    words = said(rerun(page))
    assert "12 rows in" in words
    assert "The one after it was cancelled" in words


def test_what_was_interrupted_goes_on_where_it_was(store):
    page, run = started(store)
    record(store, run, row(128, "explicit", step_ms=0.25))
    end(store, run, "interrupted", reason="its supervisor was killed")
    assert "Interrupted after 1 row. Resume measures the others" in said(rerun(page))
    assert page.button(key=MEASURE).label == "Resume"
    press(page, MEASURE)
    assert [(run.state, run.attempt) for run in store.entries()] == [("queued", 2)]


def test_another_readers_measurement_is_watched_not_ended(store):
    idle = opened(**BASE)
    (run,) = store.entries(sweep=store.submit([WallSpec(plan())], "somebody"))
    start(store, run.id)
    assert press(idle, MEASURE).button(key=CANCEL).disabled
    assert len(store.entries()) == 1, "a press on a page drawn before starts no second one"
    end(store, run.id, "interrupted")
    page = rerun(idle)
    assert page.button(key=MEASURE).label == "Measure"
    press(page, MEASURE)
    assert [run.user for run in store.entries()] == ["somebody", "local"]


def test_out_of_memory_stays_with_what_it_would_have_needed(store):
    wide = plan(tokens=doubling(8192), budget_bytes=GB)
    measured(store, wide, rows_of(wide))
    page = opened(budget="1", to="8192", first="8192")
    assert "27 rows in" in said(page)
    line = cells(page, "tokens")[5]
    assert (line["tokens"], line["ms"], line["peak MB"]) == ("4,096", ":red[out of memory]", ":gray[–]")
    assert line["predicted"] == "1,047.6"
    words = said(page)
    assert "explicit, 4,096 tokens: :red[out of memory:] 1,056 MB needed, 1,024 allowed." in words
    assert "You guessed *8,192*. Explicit ends at **4,096** tokens. Fused and chunked pass it." in words
    memory, time_of = charts(page)[:2]
    assert [(wall["n"], wall["text"]) for wall in memory["walls"]] == [(4096, "would need 1,056 MB")]
    assert [(wall["n"], wall["text"]) for wall in time_of["walls"]] == [(2048, "out of memory at 4,096")]
    assert [row["n"] for row in memory["predicted"] if row["name"] == "explicit"][-1] == 4096


def test_a_failed_row_is_no_wall(store):
    why = "ValueError: *no* such $kernel$."
    failed = {"state": "failed", "reason": why, "runs_beside": 2}
    measured(store, plan(), rows_of(plan(), fused=failed))
    page = opened(**BASE, of="fused")
    words = said(page)
    assert "Three of 12 rows failed" in words
    assert f"fused, 128 tokens: :red[failed:] {why}" in words
    assert "Times are of a shared device: up to 2 trainings ran beside. Bytes are what they are." in words
    assert cells(page, "tokens")[0]["ms"] == ":red[failed]"
    assert "n" not in charts(page)[0]["walls"][0]


def test_a_measurement_that_fails_is_told(store):
    page, run = started(store)
    end(store, run, "failed", reason="The bytes cannot be predicted: no torch.")
    assert "Failed: The bytes cannot be predicted: no torch." in said(rerun(page))
    assert not page.button(key=MEASURE).disabled


def test_what_cannot_be_written_is_one_line(store, full_disk):
    page = press(opened(**BASE), MEASURE)
    assert "The list of runs cannot be written: database or disk is full." in said(page)


@pytest.mark.full
def test_a_real_one_through_the_page(store):
    page = press(opened(to="128", width="64", ways="explicit"), MEASURE)
    wait.wait(store, [newest(store).sweep], lambda runs: None)
    page = rerun(page)
    assert "1 row in" in said(page)
    assert cells(page, "tokens")[0]["peak MB"] == f"**{closed_form(128, Setting(d_model=64)) / MB:.1f}**"


# Yours beside the chapter.


@pytest.mark.parametrize(("kind", "workspace"), [("cpu", 0), ("cuda", WORKSPACE_BYTES)])
def test_bytes_of_the_chapters_layer_are_the_chapters_to_the_digit(
    store, monkeypatch, taken_away, kind, workspace
):
    monkeypatch.setattr(device, "describe", lambda: device.Device(kind, kind, 24 * GB, "2.13.0", False))
    tokens = tuple(row.n for row in CHAPTER)
    its = Plan(tokens=tokens, implementations=("explicit",), budget_bytes=8 * GB, device=kind)
    rows = []
    for row in CHAPTER:  # of the closed form, to the wall of 8 GB
        peak = closed_form(row.n, workspace_bytes=workspace)
        rows.append(
            Row(n=row.n, implementation="explicit", state="done" if row.peak_mb else "out of memory",
                peak_bytes=peak if row.peak_mb else None, predicted_bytes=peak, step_ms=row.step_ms)
        )  # fmt: skip
    measured(store, its, rows)
    page = opened(to=str(tokens[-1]), budget="8", ways="explicit")
    yours = [line["yours"].replace("\u00a0", " ") for line in cells(page, "chapter")]
    assert yours == [f":green[{row.peak_mb:,.1f}]" for row in CHAPTER[:-1]] + [":green[same n]"]
    mine, *_, chapter = cells(page, "exponent")
    assert mine["with workspace"] == chapter["with workspace"] == "1.87"
    assert mine["time"] == chapter["time"] == "1.91"
    assert kind == "cuda" or mine["memory"] == "1.91"
    assert "17,036 MB needed, 8,192 allowed." in said(page)
    assert taken_away["memory-wall-16384"][1][-1][:3] == ("explicit", 16_384, "out of memory")


def test_a_reader_whose_rows_all_fit_is_told_where_the_wall_would_be(store):
    short = plan(tokens=(128, 256), implementations=("explicit",), budget_bytes=8 * GB)
    measured(store, short, rows_of(short))
    words = said(opened(to="256", budget="8", ways="explicit", first="8192"))
    assert "All rows up to 256 fit. By the formula **16,384** is the first that does not." in words


# Find my wall.


def test_the_walls_of_the_cards_are_predicted_when_asked_and_only_then(store, cards):
    page = opened(mine="10000")
    assert cards.asked == []
    assert {row["explicit"] for row in cells(page, "card")} == {":gray[–]"}
    page = press(page, "wall.find")
    assert [(tuple(one["cards_gb"]), tuple(one["implementations"])) for _, one in cards.asked] == [
        ((8.0, 16.0, 24.0, 80.0, 141.0), ("explicit", "fused", "chunked")),
        ((0.1, 0.5, 1.0), ("explicit",)),
    ]
    assert cells(page, "card")[0] == {
        "card": "8 GB", "explicit": "11,338", "fused": "750,000", "chunked": "700,000"
    }  # fmt: skip
    words = said(page)
    assert "You guessed *10,000*: −12 %. On 8 GB explicit fits **11,338** tokens and not one more." in words
    assert "**1.41** times as long" in words
    assert "Predicted: 1,267 fits 102 MB, 1,268 does not." in words
    assert len({row["name"] for row in charts(page)[2]["curves"]}) == 3


def test_a_pair_around_the_wall_is_measured_for_real(store, cards):
    page = press(press(opened(**BASE), "wall.find"), "wall.pair")
    run = newest(store)
    assert (run.spec.plan.tokens, run.spec.plan.timed) == ((1267, 1268), False)
    assert run.spec.plan.budget_bytes == int(0.1 * GB)
    assert "Queued, next in turn" in said(page)
    start(store, run.id)
    assert "Running: 1,267 and 1,268 tokens" in said(rerun(page))
    fits, over = row(1267, "explicit", peak_bytes=90 * MB), row(1268, "explicit", "out of memory")
    record(store, run.id, fits, over)
    end(store, run.id)
    words = said(rerun(page))
    assert "Measured: 1,267 tokens fit, with 90.00 MB at the peak, 1,268 are out of memory." in words
    assert ":green[As predicted.]" in words
    record(store, run.id, replace(fits, state="out of memory"))
    words = said(rerun(page))
    assert "Measured: 1,267 are out of memory" in words
    assert ":red[Not as predicted.]" in words


def test_a_prediction_that_fails_is_one_line(store, cards):
    def failing(**_):
        raise Unavailable("The bytes cannot be predicted: no torch.")

    cards.answers["memory-wall"] = failing
    page = press(opened(), "wall.find")
    assert "The bytes cannot be predicted: no torch." in said(page)


# The whole model.


def test_attentions_share_of_a_model_is_the_ledgers(store):
    page = opened(model="small")
    line = next(row for row in cells(page, "tokens", 1) if row["tokens"] == "1,024")
    assert (line["of kept numbers"], line["of multiplications"]) == ("50.0 %", "13.3 %")
    assert "Memory reaches one half at **1,024** tokens (16 × 768 / 12)" in said(page)
    assert set(means(charts(page)[3], "share")) == {"multiplications", "kept numbers"}
