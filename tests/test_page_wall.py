"""The page of the n x n wall: settings, streaming rows, every way to end, predictions, exports.

What a run would record is written by the tests; one, tiny, is for real.
"""

import json
import sqlite3
from dataclasses import asdict, replace

import pytest

from engine.memory_wall.plan import Plan, Row, doubling
from engine.memory_wall.predictions import Longest, Predictions
from engine.memory_wall.setting import CHAPTER, GB, WORKSPACE_BYTES, Setting, closed_form
from engine.probes import client, registry
from engine.runs import dispatcher, wait
from engine.runs.spec import WallSpec
from engine.runs.store import open_store
from engine.system import device, files
from engine.system.errors import Unavailable
from lab.sections.wall import charts as wall_charts
from lab.sections.wall import cost, find, parts, sentences, tables
from lab.sections.wall import rows as wall_rows
from lab.sections.wall.parts import LayerPlan
from lab.shell import export
from tests.apptest import cells, charts, open_page, rerun, said

BASE = {"to": "512", "budget": "none"}


@pytest.fixture
def ledger(home, monkeypatch):
    """An empty list of runs, on a machine with two cores that a dispatcher serves."""
    here = device.Device("cpu", "CPU, 2 cores", 0, "2.13.0", False)
    monkeypatch.setattr(device, "describe", lambda: here)
    monkeypatch.setattr(dispatcher, "running", lambda root=None: True)
    return open_store()


def record(ledger, run, *rows):
    """Add rows to what a run recorded."""
    folder = ledger.directory(run)
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "metrics.jsonl").open("a") as out:
        out.writelines(json.dumps(asdict(row)) + "\n" for row in rows)


def start(ledger, run):
    assert ledger.advance(run, "queued", "running")


def end(ledger, run, state="done", **columns):
    assert ledger.advance(run, "running", state, **{"seconds": 46.0, **columns})


def measured(ledger, plan, **failing):
    """A run of a plan that has ended, as ``sweep.measure`` would have recorded it. Returns its number."""
    (run,) = ledger.entries(sweep=ledger.submit([WallSpec(plan)], "local"))
    start(ledger, run.id)
    record(ledger, run.id, *rows_of(plan, **failing))
    end(ledger, run.id)
    return run.id


def newest(ledger):
    return ledger.entries()[-1]


def row(n, name, state="done", **more):
    peak = 10**6 * 8 + n * 4096 + (64 * n * n if name == "explicit" else 0)
    return Row(n=n, implementation=name, state=state, **{"predicted_bytes": peak, **more})


def rows_of(plan, **failing):
    """Every row, with explicit out of memory where it does not fit the budget.

    failing: what the rows of an implementation hold instead.
    """
    beyond = set()
    for n, name in plan.tasks:
        if name in beyond:
            continue
        found = row(n, name)
        peak = found.predicted_bytes
        yield replace(found, state="running")
        if name in failing:
            yield replace(found, **failing[name])
        elif plan.budget_bytes and peak > plan.budget_bytes:
            beyond.add(name)
            yield replace(found, state="out of memory", needed_bytes=peak, reason="It needs more.")
        else:
            ms = n * n / 65_536 if name == "explicit" else n / 128
            backend = "flash (CPU)" if name == "fused" else None
            yield replace(found, peak_bytes=peak, step_ms=ms, backend=backend)


@pytest.fixture
def cards(monkeypatch):
    """Predictions from formulas, at once; what was asked."""
    asked = []

    def ask(probe, *, setting, cards_gb, implementations, **_):
        assert probe is registry.MEMORY_WALL
        asked.append((setting, tuple(cards_gb), tuple(implementations)))
        longest = {"explicit": 11_338, "fused": 750_000, "chunked": 700_000}
        rows = [
            Longest(float(gb), name, int(longest[name] * (gb / 8) ** 0.5))
            for gb in cards_gb
            for name in implementations
        ]
        return client.Answer(Predictions(longest=tuple(rows)), 1.0)

    monkeypatch.setattr(client, "ask", ask)
    return asked


def opened(**query):
    return open_page("wall", **query)


def pressed(page, name="measure"):
    page.button(key=f"wall.{name}").click()
    return rerun(page)


def plan(**changes):
    return Plan(**{"tokens": (128, 256, 512), "device": "cpu", **changes})


# Before anything is measured.


def test_an_empty_page_starts_nothing_and_says_what_to_do(ledger):
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


def test_the_link_holds_the_whole_state(ledger):
    page = opened(
        budget="4", heads="4", width="256", dtype="bfloat16", mask="none", ways="fused,explicit", to="1024",
        of="fused", card="24", mine="5000", small="0.5", model="xl", first="8192", time="4",
        **{"pass": "backward"},
    )  # fmt: skip
    values = {group.key.removeprefix("wall."): group.value for group in page.button_group}
    assert (values["budget"], values["heads"], values["width"], values["to"]) == ("4", 4, 256, 1024)
    assert (values["mask"], values["pass"], values["of"], values["model"]) == (
        "none",
        "backward",
        "fused",
        "xl",
    )
    assert (values["ways"], values["card"], values["first"]) == (["fused", "explicit"], 24, "8192")
    assert page.selectbox(key="wall.dtype").value == "bfloat16"
    assert page.number_input(key="wall.mine").value == 5000
    assert "width 256, 4 heads, bfloat16, without a mask, forward and back" in said(page)
    assert "Yours is another." in said(page)


def test_an_edit_goes_into_the_link(ledger):
    page = opened()
    next(one for one in page.button_group if one.key == "wall.ways").set_value(["fused"])
    page = rerun(page)
    assert page.query_params["ways"] == "fused"
    assert [row["exponent of n"] for row in cells(page, "exponent")] == [
        ":green[●] fused",
        "shipped, explicit",
        "chapter, explicit",
    ]
    next(one for one in page.button_group if one.key == "wall.ways").set_value([])
    page = rerun(page)
    assert "No implementation is chosen" in said(page)
    assert page.button(key="wall.measure").disabled


@pytest.mark.parametrize(
    ("query", "complaint"),
    [
        ({"ways": "flash"}, "implementation is 'flash'; allowed: explicit, fused, chunked, projections."),
    ],
)
def test_bad_input_is_one_sentence(ledger, query, complaint):
    page = opened(**query)
    assert complaint in said(page)
    assert not page.button(key="wall.measure").disabled


def test_a_layer_that_cannot_be_is_refused_in_words(ledger):
    page = opened(heads="7")
    assert "Heads are 7; allowed: a divisor of the width, 512." in said(page)
    assert page.button(key="wall.measure").disabled


def test_without_torch_the_page_stands_and_says_so(ledger, monkeypatch):
    def broken():
        raise Unavailable("no module named torch")

    monkeypatch.setattr(device, "describe", broken)
    assert "torch does not start: no module named torch" in said(opened())


# Rows as they come.


def test_a_press_queues_a_run_that_waits_its_turn(ledger, monkeypatch):
    page = pressed(opened(**BASE))
    run = newest(ledger)
    assert (run.spec, run.state, run.user) == (WallSpec(plan()), "queued", "local")
    assert "Queued, next in turn" in said(page)
    other = pressed(opened(**BASE, heads="4"))
    assert "Queued, one run before it" in said(other)
    assert len(ledger.entries()) == 2
    other.button(key="wall.measure.cancel").click()
    assert "Cancelled after 0 rows" in said(rerun(other))
    assert [run.state for run in ledger.entries()] == ["queued", "cancelled"]
    monkeypatch.setattr(dispatcher, "running", lambda root=None: False)
    assert "Nothing will start: run `python -m lab`" in said(rerun(page))


def test_a_whole_measurement_fills_figures_tables_and_answers(ledger):
    measured(ledger, plan())
    page = opened(**BASE, first="4096", time="8")
    assert "12 rows in 46 s" in said(page)
    rows = cells(page, "tokens")
    assert rows[2] == {
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
    explicit = [row for row in memory["curves"] if row["name"] == "explicit"]
    assert [(row["n"], row["slot"]) for row in explicit] == [(128, "red"), (256, "red"), (512, "red")]
    assert {row["slot"] for row in memory["curves"]} == {"red", "green", "blue", "gray"}
    assert {row["slope"] for row in memory["guides"]} | {row["slope"] for row in time_of["guides"]} == {
        "slope 1",
        "slope 2",
    }
    assert "n" not in memory["walls"][0]


def test_another_reader_at_the_same_link_sees_the_same_rows(ledger):
    measured(ledger, plan())
    first, other = opened(**BASE), opened(**BASE)
    assert cells(other, "tokens") == cells(first, "tokens")
    assert "12 rows in" in said(other)
    assert "Nothing is measured yet" in said(opened(**BASE, heads="4"))
    assert ledger.delete(newest(ledger).id)
    assert "Nothing is measured yet" in said(rerun(other))


def test_rows_stream_and_a_cancel_is_asked_for(ledger):
    page = pressed(opened(**BASE))
    run = newest(ledger).id
    start(ledger, run)
    assert "Running: loading torch" in said(rerun(page))
    first = row(128, "explicit", step_ms=0.25)
    record(ledger, run, replace(first, state="running"), first, row(128, "fused", "running"))
    page = rerun(page)
    assert "Running: fused, 128 tokens" in said(page)
    assert cells(page, "tokens")[0]["ms"] == "**0.25**"
    assert "Your guesses are answered here when the last row has ended." in said(page)
    assert "Running: fused, 128 tokens" in said(opened(**BASE))
    page.button(key="wall.measure.cancel").click()
    page = rerun(page)
    assert files.stop_requested(ledger.directory(run), 1) == "cancel"
    record(ledger, run, row(128, "fused", "cancelled", reason="It was cancelled."))
    end(ledger, run, "cancelled", reason="by you, after 1 row")
    page = rerun(page)
    assert "Cancelled after 1 row" in said(page)
    assert "fused, 128 tokens: cancelled." in said(page)
    pressed(page)
    assert newest(ledger).id != run, "measured anew"


def test_the_newest_whole_one_is_shown_though_a_later_one_was_cancelled(ledger):
    measured(ledger, plan())
    page = pressed(opened(**BASE))
    start(ledger, newest(ledger).id)
    assert "Running" in said(rerun(page))
    end(ledger, newest(ledger).id, "cancelled")
    page = rerun(page)
    assert "12 rows in" in said(page)
    assert "The one after it was cancelled" in said(page)


def test_what_was_interrupted_goes_on_where_it_was(ledger):
    page = pressed(opened(**BASE))
    run = newest(ledger).id
    start(ledger, run)
    record(ledger, run, row(128, "explicit", step_ms=0.25))
    end(ledger, run, "interrupted", reason="its supervisor was killed")
    page = rerun(page)
    assert "Interrupted after 1 row. Resume measures the others" in said(page)
    assert page.button(key="wall.measure").label == "Resume"
    pressed(page)
    assert [(run.state, run.attempt) for run in ledger.entries()] == [("queued", 2)]


def test_another_readers_measurement_is_watched_not_ended(ledger):
    (run,) = ledger.entries(sweep=ledger.submit([WallSpec(plan())], "somebody"))
    start(ledger, run.id)
    page = opened(**BASE)
    assert page.button(key="wall.measure.cancel").disabled
    wall_rows.cancel(plan(), "local")
    wall_rows.start(plan(), "local")
    assert len(ledger.entries()) == 1
    assert not files.stop_requested(ledger.directory(run.id), 1)
    end(ledger, run.id, "interrupted")
    assert rerun(page).button(key="wall.measure").label == "Measure"
    pressed(page)
    assert [run.user for run in ledger.entries()] == ["somebody", "local"]


def test_out_of_memory_stays_with_what_it_would_have_needed(ledger):
    measured(ledger, plan(tokens=doubling(8192), budget_bytes=GB))
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


def test_a_failed_row_is_no_wall(ledger):
    why = "ValueError: *no* such $kernel$."
    measured(ledger, plan(), fused={"state": "failed", "reason": why, "runs_beside": 2})
    page = opened(**BASE, of="fused")
    assert "Three of 12 rows failed" in said(page)
    assert cells(page, "tokens")[0]["ms"] == ":red[failed]"
    assert f"fused, 128 tokens: :red[failed:] {why}" in said(page)
    assert "n" not in charts(page)[0]["walls"][0]
    shared = ":orange[Times are of a shared device: up to 2 trainings ran beside. Bytes are what they are.]"
    assert shared in said(page)


def test_a_measurement_that_fails_is_told(ledger):
    page = pressed(opened(**BASE))
    start(ledger, newest(ledger).id)
    end(ledger, newest(ledger).id, "failed", reason="The bytes cannot be predicted: no torch.")
    page = rerun(page)
    assert "Failed: The bytes cannot be predicted: no torch." in said(page)
    assert not page.button(key="wall.measure").disabled


def test_what_cannot_be_written_is_one_line(ledger, monkeypatch):
    def full(*_):
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(wall_rows, "start", full)
    page = pressed(opened(**BASE))
    assert "The list of runs cannot be written: database or disk is full." in said(page)


def test_half_a_line_and_strange_lines_are_left_out(ledger):
    path = ledger.directory(measured(ledger, plan())) / "metrics.jsonl"
    path.write_text(path.read_text() + '[1]\n{"n": 5}\nnonsense\n{"n": 128, "impl')
    assert len(wall_rows.look(plan()).rows) == 12


@pytest.mark.full
def test_a_real_one_through_the_page(ledger):
    page = pressed(opened(to="128", width="64", ways="explicit"))
    wait.wait(ledger, [newest(ledger).sweep], lambda runs: None)
    page = rerun(page)
    assert "1 row in" in said(page)
    assert cells(page, "tokens")[0]["peak MB"] == f"**{closed_form(128, Setting(d_model=64)) / 2**20:.1f}**"


# Yours beside the chapter.


def rows_of_the_chapter(workspace=0):
    """Explicit's rows of the closed form, to the wall of 8 GB."""
    rows = [
        Row(
            n=row.n,
            implementation="explicit",
            state="done" if row.peak_mb else "out of memory",
            peak_bytes=closed_form(row.n, workspace_bytes=workspace) if row.peak_mb else None,
            predicted_bytes=closed_form(row.n, workspace_bytes=workspace),
            step_ms=row.step_ms,
        )
        for row in CHAPTER
    ]
    return wall_rows.Measurement("done", tuple(rows))


def eight(kind):
    tokens = tuple(row.n for row in CHAPTER)
    wanted = Plan(tokens=tokens, implementations=("explicit",), budget_bytes=8 * GB, device=kind)
    return LayerPlan(Setting(), wanted)


@pytest.mark.parametrize(("kind", "workspace"), [("cpu", 0), ("cuda", WORKSPACE_BYTES)])
def test_bytes_of_the_chapters_layer_are_the_chapters_to_the_digit(kind, workspace):
    choice, found = eight(kind), rows_of_the_chapter(workspace)
    shown = [context.display for context in _cells_of(tables.chapter_table(choice, found), "yours")]
    assert shown == [f":green[{row.peak_mb:,.1f}]" for row in CHAPTER[:-1]] + [":green[same\u00a0n]"]
    slopes = [one.display for one in _cells_of(tables.exponents_table(choice, found), "with workspace")]
    assert slopes[0] == slopes[-1] == "1.87"
    times = [one.display for one in _cells_of(tables.exponents_table(choice, found), "time")]
    assert times[:1] + times[-1:] == ["1.91", "1.91"]
    if kind == "cpu":
        assert _cells_of(tables.exponents_table(choice, found), "memory")[0].display == "1.91"
    (note,) = sentences.row_notes(found, choice.plan)
    assert "17,036\u00a0MB needed, 8,192 allowed." in note


class _Cell:
    def __init__(self, display):
        self.display = display


def _cells_of(table, column):
    """What a table shows in one column."""
    styler = table.styler
    place = list(styler.data.columns).index(column)
    styler._compute()
    return [
        _Cell(styler._display_funcs[line, place](styler.data.iat[line, place]))
        for line in range(len(styler.data))
    ]


def test_a_reader_whose_rows_all_fit_is_told_where_the_wall_would_be():
    wanted = Plan(tokens=(128, 256), implementations=("explicit",), budget_bytes=8 * GB)
    assert sentences.first_over(wanted) == 16_384


# Find my wall.


def test_the_walls_of_the_cards_are_predicted_when_asked_and_only_then(ledger, cards):
    page = opened(mine="10000")
    assert cards == []
    assert {row["explicit"] for row in cells(page, "card")} == {":gray[–]"}
    page = pressed(page, "find")
    assert [(one, ways) for _, one, ways in cards] == [
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


def test_a_pair_around_the_wall_is_measured_for_real(ledger, cards):
    page = pressed(pressed(opened(**BASE), "find"), "pair")
    run = newest(ledger)
    assert (run.spec.plan.tokens, run.spec.plan.timed) == ((1267, 1268), False)
    assert run.spec.plan.budget_bytes == int(0.1 * GB)
    assert "Queued, next in turn" in said(page)
    start(ledger, run.id)
    assert "Running: 1,267 and 1,268 tokens" in said(rerun(page))
    fits, over = row(1267, "explicit", peak_bytes=90 * 2**20), row(1268, "explicit", "out of memory")
    record(ledger, run.id, fits, over)
    end(ledger, run.id)
    words = said(rerun(page))
    assert "Measured: 1,267 tokens fit, with 90.00 MB at the peak, 1,268 are out of memory." in words
    assert ":green[As predicted.]" in words
    record(ledger, run.id, replace(fits, state="out of memory"))
    words = said(rerun(page))
    assert "Measured: 1,267 are out of memory" in words
    assert ":red[Not as predicted.]" in words


def test_a_prediction_that_fails_is_one_line(ledger, cards, monkeypatch):
    def failing(*_, **__):
        raise Unavailable("The bytes cannot be predicted: no torch.")

    monkeypatch.setattr(client, "ask", failing)
    page = pressed(opened(), "find")
    assert "The bytes cannot be predicted: no torch." in said(page)


# The whole model.


def test_attentions_share_of_a_model_is_the_ledgers(ledger):
    page = opened(model="small")
    lines = {row["tokens"]: row for row in cells(page, "tokens", 1)}
    assert lines["1,024"]["of kept numbers"] == "50.0 %"
    assert lines["1,024"]["of multiplications"] == "13.3 %"
    assert "Memory reaches one half at **1,024** tokens (16 × 768 / 12)" in said(page)
    assert cost.work_share("small", cost.work_half_at("small")) >= 0.5
    assert cost.work_share("small", cost.work_half_at("small") - 1) < 0.5
    names = {row["name"] for row in charts(page)[3]["curves"]}
    assert names == {"multiplications", "kept numbers"}


# Files.


def test_figures_and_tables_can_be_exported():
    choice, found = eight("cpu"), rows_of_the_chapter()
    drawn = export.picture(wall_charts.together(choice, found), "svg").decode()
    for word in ("explicit", "slope 2", "would need", "budget 8,192 MB", "out of memory at 16,384"):
        assert word in drawn
    names, *rows = parts.csv_rows(found)
    assert names[:4] == ("implementation", "n", "state", "step_ms")
    assert rows[-1][:3] == ("explicit", 16_384, "out of memory")
    assert len(cost.csv_rows("xl")) == len(cost.CURVE) + 1
    assert find.csv_rows({(8.0, "explicit"): 11_338})[1] == (8.0, "explicit", 11_338)
