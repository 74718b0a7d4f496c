"""The perplexity chart as data, its files, and the theme that it takes its colours from."""

import csv
import io
import json
import re
import tomllib
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as some

from engine.system import paths
from engine.system.errors import Unavailable
from lab.charts import axes
from lab.charts import lines as charts
from lab.charts.lines import Curve, Line, Plot
from lab.shell import export
from lab.shell.styles import Style

ODD = "$5 and $6 *x* :smile: <b>z</b> [a](b) a.b[1]: it's"
RULES = ((59.71, False), (248.05, True), (245.91, True), (60.45, False))
FRAME = Plot(steps=3000, low=30, high=1280, rules=RULES)
HEX = re.compile(r"#[0-9a-fA-F]{3,8}\b")


def falling(end, steps=3000, diverged=False):
    return Curve(tuple((step, end + 900 / (1 + step)) for step in range(0, steps + 1, 100)), diverged)


def lines(**changes):
    return [
        Line("no context", Style("gray"), changes.get("alone", (falling(60), falling(62)))),
        Line(ODD, Style("red"), changes.get("odd", (falling(248),))),
    ]


def kinds(chart, name, kind):
    return [row for row in chart["datasets"][name] if row["kind"] == kind]


def test_the_specification_is_the_same_at_every_tick():
    """Or the browser would draw the chart anew, losing zoom and place."""
    early = charts.line_chart(FRAME, lines(alone=(falling(60, 100),), odd=()), 0.1)
    late = charts.line_chart(FRAME, lines(), 0)
    assert early.pop("datasets") != late.pop("datasets")
    assert early == late


def test_a_frame_is_compiled_once_whatever_is_said_of_its_values(monkeypatch):
    heights, real = [], charts.compiled

    def compiled(height, *layers):
        heights.append(height)
        return real(height, *layers)

    monkeypatch.setattr(charts, "compiled", compiled)
    for rules, said in (((), str), (RULES, repr)):
        frame = Plot(steps=777, low=30, high=1280, rules=rules, shown=said)
        for progress in (0.1, 0.2):
            charts.line_chart(frame, lines(), progress)
    assert len(heights) == 1


def test_rows_that_are_drawn_leave_the_kept_specification_as_it_was():
    first = charts.line_chart(FRAME, lines())
    first["datasets"]["rules"].append({"perplexity": 1, "text": "of one chart"})
    first["layer"] = []
    second = charts.line_chart(FRAME, lines())
    assert second["layer"]
    assert "of one chart" not in json.dumps(second)


def test_no_colour_stands_in_the_code():
    chart = charts.line_chart(FRAME, lines(), 0.5)
    assert not HEX.search(json.dumps(chart))
    for folder in ("lab", "pages"):
        for path in (paths.ROOT / folder).rglob("*.py"):
            assert not HEX.search(path.read_text(encoding="utf-8")), path
    colours = [layer["encoding"]["color"] for layer in chart["layer"] if "color" in layer.get("encoding", {})]
    assert colours
    assert all(colour["field"] == "slot" for colour in colours)
    assert all(colour["scale"] == {"domain": list(axes.SLOTS)} for colour in colours), "of the theme"


def test_a_seed_each_a_mean_and_a_head():
    chart = charts.line_chart(FRAME, lines(), 0)
    assert {row["series"] for row in kinds(chart, "curves", "seed")} == {"no context 0", "no context 1"}
    means = [row for row in kinds(chart, "curves", "mean") if row["name"] == "no context"]
    assert means[0]["perplexity"] == pytest.approx(961)
    assert [row["step"] for row in kinds(chart, "ends", "head")] == [3000, 3000]
    assert [row["value"] for row in chart["datasets"]["gutter"]] == ["61.3", "248.3"]
    assert ODD in {row["name"] for row in chart["datasets"]["curves"]}, "a name is data and names no field"
    assert ODD not in json.dumps({name: part for name, part in chart.items() if name != "datasets"})
    assert "from" not in chart["datasets"]["done"][0]


def test_a_diverged_run_keeps_its_curve_with_a_cross_and_a_dash():
    chart = charts.line_chart(FRAME, lines(odd=(falling(300, 400, diverged=True),)), 0)
    assert [row["step"] for row in kinds(chart, "ends", "cross")] == [400]
    assert chart["datasets"]["gutter"][1]["value"] == "–"
    one_of_two = (falling(60), falling(70, 400, diverged=True))
    chart = charts.line_chart(FRAME, lines(alone=one_of_two, odd=()), 0)
    assert [row["value"] for row in chart["datasets"]["gutter"]] == ["60.3"]
    assert len(kinds(chart, "ends", "cross")) == 1


def test_close_figures_of_the_chapter_share_a_label():
    labels = [row["text"] for row in charts.line_chart(FRAME, [])["datasets"]["rules"] if row["text"]]
    assert labels == ["chapter 59.71 and 60.45", "chapter about 248 and 246"]
    quick = Plot(steps=100, low=30, high=1280, rules=RULES[:1], note=", after 3,000 steps")
    assert charts.line_chart(quick, [])["datasets"]["rules"][-1]["text"].endswith("after 3,000 steps")


@given(some.lists(some.floats(0, 255), max_size=12))
def test_names_in_the_gutter_are_never_closer_than_a_line(wanted):
    moved = axes.apart(wanted, 18, 255)
    order = sorted(range(len(wanted)), key=lambda i: wanted[i])
    for lower, upper in pairwise(order):
        assert moved[upper] - moved[lower] >= 18 - 1e-6
    assert all(-1e-6 <= place <= max(255, 18 * (len(wanted) - 1)) + 1e-6 for place in moved)
    assert axes.apart([200, 20, 100], 18, 255) == [200, 20, 100]
    assert axes.apart([100, 100], 18, 255) == [91, 109]


@given(some.integers(0, 5000))
def test_a_curve_has_at_most_500_points_and_keeps_its_ends(count):
    points = [(step, 1.0) for step in range(count)]
    kept = charts.thinned(points)
    assert len(kept) <= 500
    assert list(kept[:1]) == points[:1]
    assert list(kept[-1:]) == points[-1:]


@given(some.integers(1, 10**7))
def test_axis_steps_are_few_and_round(steps):
    ticks = axes.step_ticks(steps)
    assert ticks[0] == 0
    assert 1 <= len(ticks) <= 8
    assert ticks[-1] <= steps


def test_pictures_are_drawn_in_the_light_palette_without_a_browser():
    chart = charts.line_chart(FRAME, lines(), 0)
    drawn = export.picture(chart, "svg").decode()
    light = tomllib.loads((paths.ROOT / "lab" / ".streamlit" / "config.toml").read_text())["theme"]["light"]
    assert light["chartCategoricalColors"][2].lower() in drawn.lower()
    assert "a.b[1]: it's" in drawn.replace("&#39;", "'").replace("&apos;", "'")
    assert "&lt;b&gt;" in drawn
    assert export.picture(chart, "png").startswith(b"\x89PNG")


def test_a_picture_that_cannot_be_drawn_or_takes_too_long_gives_a_reason(monkeypatch):
    with pytest.raises(Unavailable, match="could not be drawn"):
        export.picture({"mark": "nonsense"}, "svg")
    monkeypatch.setattr(export, "TIMEOUT_S", 0.01)
    with pytest.raises(Unavailable, match=r"not drawn within 0\.01 s"):
        export.picture({"mark": "point"}, "svg")


def test_a_table_comes_back_from_its_file_character_for_character():
    rows = [("name", "value"), (ODD, 1.5), ('say "a,b"', 2), ("two\nlines", 9007199254740993)]
    read = list(csv.reader(io.StringIO(export.csv_text(rows))))
    assert read == [[str(cell) for cell in row] for row in rows]


def test_the_server_is_set_up_as_the_pages_need():
    config = tomllib.loads((paths.ROOT / "lab" / ".streamlit" / "config.toml").read_text())
    assert config["runner"]["postScriptGC"] is False  # 90 ms a tick of every live chart
    assert config["server"]["fileWatcherType"] == "none"
    assert config["server"]["address"] == "localhost"
    assert config["browser"]["gatherUsageStats"] is False
    for theme in ("light", "dark"):
        assert len(config["theme"][theme]["chartCategoricalColors"]) == len(axes.SLOTS)


def test_the_style_sheet_stays_small():
    sheet = (paths.ROOT / "lab" / "assets" / "style.css").read_text()
    rules, depth = 0, 0
    for sign in re.sub(r"/\*.*?\*/", "", sheet, flags=re.S):
        rules += sign == "{" and depth == 0
        depth += {"{": 1, "}": -1}.get(sign, 0)
    assert 0 < rules <= 8
    assert "url(" not in sheet
