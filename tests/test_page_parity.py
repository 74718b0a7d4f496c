"""The page Against PyTorch: guesses, the comparison, the bets, the reader's own code."""

import itertools
import json
from dataclasses import replace
from functools import partial

import pytest
import streamlit as st

from engine.chapter import reference
from engine.chapter.measurements import PARITY
from engine.probes import zoo
from engine.probes.registry import PARITY as PARITY_PROBE
from engine.sandbox import judge, process
from engine.sandbox.judge import Verdict
from engine.system.errors import Unavailable
from lab import probes
from lab.sections.parity import chart as parity_chart
from lab.sections.parity import own, parts
from lab.words import plain
from tests.apptest import charts, choose, open_page, press, rerun, said, tables

ODD = "$5 and $6 *x* :smile: <b>z</b> [a](b) a.b[1]: it's"
THEIRS = (parts.MODULE, parts.FUNCTION)
VERDICT = Verdict(
    outcome="wrong", sentence=f"Scale: {ODD}.", part="scale", printed="hello", seconds=1.4,
    tried=["T = 1, d = 1, causal", "T = 2, d = 1, not causal"], failed=["T = 2, d = 1, not causal"],
    smallest="q = [[[1.5], [0.1]]]\ncausal = False\n# yours\n[[[0.63], [0.65]]]",
)  # fmt: skip


def comparison():
    """A made-up document of two sizes, in which float16 is not supported."""
    sizes = [
        {"batch": 8, "tokens": 8, "d_model": 128, "n_head": 1},
        {"batch": 1, "tokens": 64, "d_model": 256, "n_head": 8},
    ]
    rounding = {"bfloat16": 2.0**-7, "float16": 2.0**-10, "float32": 2.0**-23, "float64": 2.0**-52}
    choices = itertools.product(
        rounding, sizes, ("causal", "none"), ("sqrt", "none", "width"), THEIRS, ("written out", "fused")
    )
    rows = [
        {
            **size, "precision": precision, "mask": mask, "scale": scale, "seed": 0, "ours": ours,
            "theirs": theirs,
            **measured(rounding[precision], precision, (ours, theirs) == ("written out", THEIRS[0])),
        }
        for precision, size, mask, scale, theirs, ours in choices
        if scale == "sqrt" or theirs == THEIRS[1]
    ]  # fmt: skip
    return PARITY_PROBE.read({"rounding": rounding, "rows": rows, "torch": "2.13.0"})


def measured(rounding, precision, exact):
    names = ("magnitude", "difference", "relative", "gradient_magnitude", "gradient_difference")
    values = (0.158, 2 * rounding * (not exact), 2 * rounding * (not exact) / 0.158, 1.0, 30 * rounding)
    if precision == "float16":
        return {"state": "unsupported"}
    return {"state": "done", **dict(zip(names, values, strict=True)), "gradient_relative": 30 * rounding}


def found():
    """Findings in which causality catches all but one, and the variance that one."""
    return [
        zoo.Finding(
            name, test, said="It is off by 0.8.",
            caught=name != "right"
            and (test == "parity" or test == ("variance" if name == "no-scale" else "causality")),
        )
        for name in zoo.IMPLEMENTATIONS
        for test in zoo.TESTS
    ]  # fmt: skip


@pytest.fixture
def asked(monkeypatch, probes_here):
    """What the page asks of other processes, answered at once. The server listens on this machine only."""
    calls = probes_here.asked
    probes_here.answers |= {"parity": lambda **_: comparison(), "zoo": lambda **_: found()}

    def check(code):
        calls.append(("check", code))
        return VERDICT

    monkeypatch.setattr(judge, "check", check)
    monkeypatch.setattr(st, "get_option", lambda name: "localhost" if name == "server.address" else None)
    return calls


opened = partial(open_page, "parity")


def cells(page, table=0):
    """A table's rows, without their names."""
    return [list(row.values()) for row in tables(page)[table]]


def test_an_empty_page_asks_nothing_and_says_what_to_do(asked, no_reference):
    page = opened()
    assert asked == []
    assert [line[:2] for line in cells(page)] == [
        ["mean output", "0.159"], ["module", "1.79e−07"], ["module, gradients", ":gray[–]"],
        ["function", "1.79e−07"], ["function, gradients", ":gray[–]"],
    ]  # fmt: skip
    assert {tuple(line[2:4]) for line in cells(page)} == {(":gray[–]", ":gray[–]")}
    assert "No reference is shipped with this copy." in said(page)
    assert len(page.table) == 1
    data = charts(page)[0]
    assert data["chapter"][0]["relative"] == pytest.approx(1.13e-6, rel=0.01)
    assert not any("relative" in row for row in data["dots"])


def test_comparing_fills_figure_and_table_and_answers_the_guesses(asked, taken_away):
    page = press(opened(largest="1e-7", coarsest="float32", seeds="0,1,2"), "parity.compare")
    assert asked == [("parity", {"seeds": [0, 1, 2]})]
    words = said(page)
    assert "Compared on the CPU, torch 2.13.0, seeds 0, 1, 2" in words
    assert "You guessed *about 10⁻⁷*. In float32 the largest difference is **2.38e−07**" in words
    assert "You guessed *float32*. Against the numbers themselves **bfloat16** differs most" in words
    assert "6 of 24 outputs agree to the last bit, most of them ours *written out*" in words
    differences = ["0.158", *["**2.38e−07**", "**3.58e−06**"] * 2]
    sizes = ("one head, 8 × 8 × 128", "eight heads, 1 × 64 × 256")
    assert cells(page, 1) == [[size, *differences] for size in sizes]
    data = charts(page)[0]
    assert len(data["rounding"]) == 4
    assert len(data["tops"]) == 6
    ((header, rows),) = taken_away.values()
    assert header[:2] == ("precision", "batch")
    assert len(rows) == 3 * 2 * 4  # float16 is not supported there
    assert all(parity_chart.FLOOR < row["relative"] < parity_chart.CEILING for row in data["dots"])


def test_what_is_shown_follows_the_row_without_measuring_anew(asked):
    page = press(opened(), "parity.compare")
    for name, value in (("precision", "float64"), ("mask", "none"), ("scale", "width")):
        choose(page, f"parity.{name}", value)
        assert page.query_params[name] == value
    assert asked == [("parity", {"seeds": [0]})]
    assert {line[1] for line in cells(page)} == {":gray[–]"}  # the chapter has float32 only
    assert cells(page, 1)[0][2] == ":gray[–]"  # the module knows no other scale
    assert "The module divides by √d only." in said(page)
    assert "relative" not in charts(page)[0]["chapter"][0]


def test_a_precision_that_this_cpu_lacks_is_a_dash(asked):
    page = press(opened(precision="float16"), "parity.compare")
    assert cells(page, 1)[0][1:] == [":gray[–]"] * 5
    assert {line[3] for line in cells(page)} == {":gray[–]"}


def test_yours_stands_beside_the_chapter_and_the_shipped_reference(asked):
    page = press(opened(), "parity.compare")
    lines = {line[0]: line[1:] for line in cells(page)}
    shipped = reference.load(PARITY.id).rows["module-float32"]
    middle, spread = (probes.tiny(shipped.mean("difference")), probes.tiny(shipped.sd("difference")))
    own = ["**2.38e−07**", ":green[+5.94e−08]"]
    assert lines["module"] == ["1.79e−07", f"{middle} :gray[± {spread}]", *own]
    assert (
        "It is of seeds 0, 1, 2, 3, 4, yours of seed 0; the chapter’s differences are of one draw."
        in said(page)
    )


def test_seeds_that_the_reference_has_not_are_named_and_judge_nothing(asked, probes_here):
    rows = [replace(row, seed=7) for row in comparison().rows]
    probes_here.answers["parity"] = lambda **_: replace(comparison(), rows=rows)
    page = press(opened(seeds="7"), "parity.compare")
    assert "yours of seed 7, so grey differences are not comparable." in said(page)
    assert {line[4] for line in cells(page) if line[0] in ("module", "function")} == {":gray[+5.94e−08]"}


def test_a_comparison_that_fails_is_told(asked, probes_here):
    def failing(**_):
        raise Unavailable(ODD)

    probes_here.answers |= {"parity": failing, "zoo": failing}
    page = press(press(opened(), "parity.compare"), "parity.zoo")
    assert sum(plain(ODD) in element.value for element in page.markdown) == 2


def test_bets_are_kept_in_the_url_and_answered(asked):
    page = opened(**{"no-scale": "rows", "late-mask": "causality"})
    assert page.selectbox(key="parity.no-scale").value == "rows"
    assert "would have caught it" not in said(page)
    page.selectbox(key="parity.off-by-one").set_value("triangle")
    page = press(page, "parity.zoo")
    assert page.query_params["off-by-one"] == "triangle"
    words = said(page)
    assert "One of your three bets would have caught it." in words
    assert "Without any reference, **causality** catches four of five." in words
    assert "*No scale* is seen by variance alone." in words
    rows = {row[0]: row[1:] for row in cells(page, 1)}
    assert list(rows) == list(parts.TITLES.values())
    assert rows["No scale"][0] == ":blue[○] :gray[passes]"
    assert rows["Mask after the softmax"][2] == ":blue[○] **caught**"
    assert rows["Ours, right"] == [":gray[passes]"] * 8


def test_one_implementation_is_shown_with_what_was_measured(asked):
    page = press(opened(wrong="no-transpose"), "parity.zoo")
    assert any("def no_transpose(q: Tensor" in element.value for element in page.code)
    assert cells(page, 2)[2] == ["Causality", "**caught**: It is off by 0.8."]


def test_own_code_is_run_when_asked_and_only_then(asked):
    page = opened()
    assert page.text_area[0].value == own.STARTER
    page.text_area[0].set_value("def attention(): pass")
    rerun(page)
    assert asked == []
    page = press(page, "parity.check")
    assert asked == [("check", "def attention(): pass")]
    words = said(page)
    assert f":red[Scale: {ODD}.]" in words
    assert "1 of 2 inputs fail. The smallest, T = 2, d = 1, not causal:" in words
    assert "Answered in 1.4 s" in words
    shown = [element.value for element in page.code]
    assert any("q = [[[1.5], [0.1]]]" in text and "# yours\n[[[0.63], [0.65]]]" in text for text in shown)
    assert "hello" in shown
    page.text_area[0].set_value("x = 1")
    assert "The code has changed since it was checked." in said(rerun(page))
    assert "code" not in json.dumps(dict(page.query_params))


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "192.168.1.7", None])
def test_own_code_is_off_beyond_this_machine(asked, monkeypatch, address):
    monkeypatch.setattr(st, "get_option", lambda name: address)
    page = opened()
    assert len(page.text_area) == 0
    assert "Running pasted code is off" in said(page)
    assert f"server.address is {address or 'not set'}" in said(page)
    assert "ATTENTION_LAB_RUN_CODE=1" in said(page)
    monkeypatch.setenv(process.SWITCH, "1")
    assert len(opened().text_area) == 1


def test_more_seeds_than_are_compared_are_refused(asked):
    words = said(opened(seeds=",".join(map(str, range(30))), mask=ODD))
    assert "seeds are 30; allowed: at most 20. Used: 0." in words
    assert f"mask is {ODD!r}" in words
    assert asked == []
