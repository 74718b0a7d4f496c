"""The page of the n x n wall: settings, streaming rows, every way to end, predictions, exports.

Sweeps are stand-ins (``wall_sweeps.py``) but for one tiny one; nothing here measures a large n.
"""

import sys
import time

import pytest

from engine.memory_wall import ask
from engine.memory_wall.plan import Plan
from engine.memory_wall.setting import CHAPTER, GB, WORKSPACE_BYTES, Setting, closed_form
from engine.system import device, paths
from lab.sections.wall import charts as wall_charts
from lab.sections.wall import cost, find, parts, tables
from lab.sections.wall import rows as wall_rows
from lab.sections.wall.parts import Choice
from lab.shell import export
from tests.apptest import cells, charts, open_page, rerun, said

BASE = {"to": "512", "budget": "none"}


@pytest.fixture
def sweep(home, monkeypatch):
    """What a press of Measure starts; no sweep outlives the test."""
    here = device.Device("cpu", "CPU, 2 cores", 0, "2.13.0", False)
    monkeypatch.setattr(device, "describe", lambda: here)

    def use(mode):
        script = str(paths.ROOT / "tests" / "wall_sweeps.py")
        monkeypatch.setattr(wall_rows, "COMMAND", (sys.executable, script, mode))

    use("done")
    yield use
    for process in wall_rows._STARTED:
        process.kill()
        process.wait()
        process.stdin.close()
    wall_rows._STARTED.clear()


@pytest.fixture
def cards(monkeypatch):
    """Predictions from formulas, at once; what was asked."""
    asked = []

    def predict(setting, tasks=(), *, device="cpu", cards_gb=(), implementations=()):
        asked.append((setting, tuple(cards_gb), tuple(implementations)))
        longest = {"explicit": 11_338, "fused": 750_000, "chunked": 700_000}
        rows = [
            {"card_gb": gb, "implementation": name, "n": int(longest[name] * (gb / 8) ** 0.5)}
            for gb in cards_gb
            for name in implementations
        ]
        return ask.Predictions({}, rows)

    find._longest.clear()
    monkeypatch.setattr(ask, "predict", predict)
    yield asked
    find._longest.clear()


def opened(**query):
    return open_page("wall", **query)


def pressed(page, name="measure"):
    page.button(key=f"wall.{name}").click()
    return rerun(page)


def until(page, words, seconds=20):
    """Run the page until it says so."""
    end = time.monotonic() + seconds
    while words not in said(page):
        assert time.monotonic() < end, said(page)
        time.sleep(0.1)
        rerun(page)
    return page


def plan(**changes):
    return Plan(**{"tokens": (128, 256, 512), "device": "cpu", **changes})


# Before anything is measured.


def test_an_empty_page_starts_nothing_and_says_what_to_do(sweep):
    page = opened()
    assert page.title[0].value == "At which length does your memory end?"
    assert page.caption[0].value == "10 of 14 · The cost"
    assert "Make your two guesses, then measure." in said(page)
    assert "Takes about" in said(page)
    assert not (paths.DATA / "cache" / "wall").exists()
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


def test_the_link_holds_the_whole_state(sweep):
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


def test_an_edit_goes_into_the_link(sweep):
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
        ({"budget": "0"}, "budget is '0'; allowed: none, or whole GB from 1 to 1,024."),
        ({"to": "99999999"}, "to is '99999999'; allowed: a whole number from 128 to 131,072."),
        ({"ways": "flash"}, "implementation is 'flash'; allowed: explicit, fused, chunked, projections."),
        ({"dtype": "int8"}, "dtype is 'int8'; allowed: float32, bfloat16, float16, float64."),
        ({"card": "12"}, "card is '12'; allowed: 8, 16, 24, 80, 141."),
        ({"mine": "-3"}, "mine is '-3'; allowed: a whole number from 1 to 100,000,000."),
        ({"speed": "11"}, "speed is no setting of this page"),
    ],
)
def test_bad_input_is_one_sentence(sweep, query, complaint):
    page = opened(**query)
    assert complaint in said(page)
    assert not page.button(key="wall.measure").disabled


def test_a_layer_that_cannot_be_is_refused_in_words(sweep):
    page = opened(heads="7")
    assert "Heads are 7; allowed: a divisor of the width, 512." in said(page)
    assert page.button(key="wall.measure").disabled


def test_without_torch_the_page_stands_and_says_so(sweep, monkeypatch):
    def broken():
        raise RuntimeError("no module named torch")

    monkeypatch.setattr(device, "describe", broken)
    assert "torch does not start: no module named torch" in said(opened())


# Rows as they come.


def test_a_whole_measurement_fills_figures_tables_and_answers(sweep):
    page = until(pressed(opened(**BASE, first="4096", time="8")), "12 rows in")
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


def test_another_reader_at_the_same_link_sees_the_same_rows(sweep):
    first = until(pressed(opened(**BASE)), "12 rows in")
    other = opened(**BASE)
    assert cells(other, "tokens") == cells(first, "tokens")
    assert "12 rows in" in said(other)
    assert "Nothing is measured yet" in said(opened(**BASE, heads="4"))


def test_rows_stream_and_a_cancel_is_quick(sweep):
    sweep("slow")
    page = until(pressed(opened(**BASE)), "Running: fused, 128 tokens")
    assert cells(page, "tokens")[0]["ms"] == "**0.25**"
    assert "Your guesses are answered here when the last row has ended." in said(page)
    other = opened(**BASE)
    assert "Running: fused, 128 tokens" in said(other)
    asked = time.monotonic()
    page.button(key="wall.measure.cancel").click()
    page = until(rerun(page), "Cancelled after 1 row")
    assert time.monotonic() - asked < 5  # two runs of the page are in it; the sweep itself takes 0.02 s
    assert "fused, 128 tokens: cancelled." in said(page)
    sweep("done")
    page = until(pressed(page), "12 rows in")
    sweep("slow")
    page = until(pressed(page), "Running: fused")
    page.button(key="wall.measure.cancel").click()
    page = until(rerun(page), "The one after it was cancelled")
    assert "12 rows in" in said(page)  # the newest whole one


def test_another_readers_measurement_is_watched_not_ended(sweep):
    sweep("slow")
    wall_rows.start(plan(), "somebody")
    page = opened(**BASE)
    assert page.button(key="wall.measure.cancel").disabled
    wall_rows.start(plan(), "me")
    assert len(list(wall_rows.folder(plan()).glob("*.jsonl"))) == 1


def test_out_of_memory_stays_with_what_it_would_have_needed(sweep):
    page = until(pressed(opened(budget="1", to="8192", first="8192")), "27 rows in")
    row = cells(page, "tokens")[5]
    assert (row["tokens"], row["ms"], row["peak MB"]) == ("4,096", ":red[out of memory]", ":gray[–]")
    assert row["predicted"] == "1,047.6"
    words = said(page)
    assert "explicit, 4,096 tokens: :red[out of memory:] 1,056 MB needed, 1,024 allowed." in words
    assert "You guessed *8,192*. Explicit ends at **4,096** tokens. Fused and chunked pass it." in words
    memory, time_of = charts(page)[:2]
    assert [(wall["n"], wall["text"]) for wall in memory["walls"]] == [(4096, "would need 1,056 MB")]
    assert [(wall["n"], wall["text"]) for wall in time_of["walls"]] == [(2048, "out of memory at 4,096")]
    assert [row["n"] for row in memory["predicted"] if row["name"] == "explicit"][-1] == 4096


def test_a_failed_row_is_no_wall(sweep):
    sweep("bug")
    page = until(pressed(opened(**BASE, of="fused")), "Three of 12 rows failed")
    assert cells(page, "tokens")[0]["ms"] == ":red[failed]"
    assert "fused, 128 tokens: :red[failed:] ValueError: *no* such $kernel$." in said(page)
    assert "n" not in charts(page)[0]["walls"][0]
    shared = ":orange[Times are of a shared device: up to 2 trainings ran beside. Bytes are what they are.]"
    assert shared in said(page)


def test_waiting_is_told(sweep):
    sweep("waiting")
    until(pressed(opened(**BASE)), "Waiting: another measurement has the device")


@pytest.mark.parametrize(
    ("mode", "told"),
    [
        ("broken", "Failed: The bytes cannot be predicted: no torch."),
        ("gone", "Interrupted after 0 rows. Measure again"),
    ],
)
def test_a_sweep_that_ends_early_is_told(sweep, mode, told):
    sweep(mode)
    page = until(pressed(opened(**BASE)), told)
    assert not page.button(key="wall.measure").disabled


def test_what_cannot_be_written_is_one_line(sweep, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(wall_rows, "start", full)
    page = pressed(opened(**BASE))
    assert "No space left on device" in said(page)


def test_half_a_line_and_strange_lines_are_left_out(sweep):
    wall_rows.start(plan(), "me")
    until(opened(**BASE), "12 rows in")
    (path,) = wall_rows.folder(plan()).glob("*.jsonl")
    path.write_text(path.read_text() + '[1]\n{"n": 5}\nnonsense\n{"n": 128, "impl')
    assert len(wall_rows.look(plan()).rows) == 12


def test_only_a_few_measurements_of_a_plan_are_kept(sweep):
    for _ in range(7):
        wall_rows.start(plan(), "me")
        while wall_rows.look(plan()).live:
            time.sleep(0.05)
    names = sorted(path.stem for path in wall_rows.folder(plan()).glob("*.jsonl"))
    assert names == ["3", "4", "5", "6", "7"]


@pytest.mark.full
def test_a_real_sweep_through_the_page(sweep, monkeypatch):
    monkeypatch.setattr(wall_rows, "COMMAND", (sys.executable, "-m", "engine.memory_wall.sweep"))
    page = until(pressed(opened(to="128", width="64", ways="explicit")), "1 row in", 60)
    assert cells(page, "tokens")[0]["peak MB"] == f"**{closed_form(128, Setting(d_model=64)) / 2**20:.1f}**"


# Yours beside the chapter.


def rows_of_the_chapter(workspace=0):
    """Explicit's rows of the closed form, to the wall of 8 GB."""
    rows = [
        wall_rows.Row(
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
    return Choice(Setting(), wanted)


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
    (note,) = parts.row_notes(found, choice.plan)
    assert "17,036\u00a0MB needed, 8,192 allowed." in note


class _Cell:
    def __init__(self, display):
        self.display = display


def _cells_of(styler, column):
    """What a Styler shows in one column."""
    place = list(styler.data.columns).index(column)
    styler._compute()
    return [
        _Cell(styler._display_funcs[line, place](styler.data.iat[line, place]))
        for line in range(len(styler.data))
    ]


def test_a_reader_whose_rows_all_fit_is_told_where_the_wall_would_be():
    wanted = Plan(tokens=(128, 256), implementations=("explicit",), budget_bytes=8 * GB)
    assert parts.first_over(wanted) == 16_384


# Find my wall.


def test_the_walls_of_the_cards_are_predicted_when_asked_and_only_then(sweep, cards):
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
    rerun(page)
    assert len(cards) == 2  # kept


def test_a_pair_around_the_wall_is_measured_for_real(sweep, cards):
    page = pressed(opened(**BASE), "find")
    page = until(pressed(page, "pair"), "Measured: ")
    assert "Measured: 1,267 are out of memory. :red[Not as predicted.]" in said(page)  # says the stand-in
    pair = find.pair(find.longest(Setting()), "0.1", Setting(), "cpu")
    assert (pair.tokens, pair.timed, pair.budget_bytes) == ((1267, 1268), False, int(0.1 * GB))
    row = wall_rows.Row(n=1267, implementation="explicit", state="done", peak_bytes=90 * 2**20)
    over = wall_rows.Row(n=1268, implementation="explicit", state="out of memory")
    words = find.pair_words(pair, wall_rows.Measurement("done", (row, over)))
    assert "1,268 are out of memory. :green[As predicted.]" in words


def test_a_prediction_that_fails_is_one_line(sweep, cards, monkeypatch):
    def failing(*_, **__):
        raise RuntimeError("The bytes cannot be predicted: no torch.")

    monkeypatch.setattr(ask, "predict", failing)
    page = pressed(opened(), "find")
    assert "The bytes cannot be predicted: no torch." in said(page)


# The whole model.


def test_attentions_share_of_a_model_is_the_ledgers(sweep):
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


def test_the_page_loads_no_torch(python, sweep):
    script = (
        "import sys\n"
        "from engine.system import device\n"
        "device.describe = lambda: device.Device('cpu', 'CPU', 0, '2', False)\n"
        "from streamlit.testing.v1 import AppTest\n"
        "page = AppTest.from_file('pages/wall.py', default_timeout=60).run()\n"
        "print('torch' in sys.modules, bool(page.exception), len(page.table))\n"
    )
    ended = python("-c", script)
    assert ended.stdout.split() == ["False", "False", "5"], ended.stderr
