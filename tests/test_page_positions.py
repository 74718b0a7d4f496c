"""The page Positions: five schemes on longer windows, beside the chapter, and the live probes."""

from functools import partial
from typing import Any

import pytest

from engine.chapter.experiments import POSITIONS, VARIANTS
from engine.probes import registry
from lab import weights
from lab.sections.positions import alibi, parts
from lab.weights import Weights
from tests import finished
from tests.apptest import cells, chart_with, charts, choose, means, open_page, press, rerun, said

LENGTHS = parts.LENGTHS
# At 64, 128, 256 and 512 tokens.
ENDS = {
    "none": (54.1, 55.9, 57.5, 58.8),
    "learned": (40.5, 87.3, 123.5, 146.6),
    "sinusoidal": (41.8, 82.3, 111.0, 132.7),
    "rope": (40.8, 48.9, 66.7, 88.3),
    "alibi": (44.4, 43.8, 43.4, 43.2),
}


opened = partial(open_page, "positions")


def measure(text, budget="chapter", seeds=(0,), state="done", step=None, ends=ENDS, shift=None):
    """Runs in some state, with curves up to a step and, once done, figures at every length.

    shift: what is added at every length, by variant and seed.
    """

    def figures(variant, seed):
        more = 0.1 * seed + (shift or {}).get((variant, seed), 0)
        values = [value + more for value in ends[variant]]
        by_length = {f"perplexity_{n}": value for n, value in zip(LENGTHS, values, strict=True)}
        return {**by_length, "validation_perplexity": values[0]}

    return finished.runs(POSITIONS, text, budget, seeds, state, last=step, figures=figures)


def test_an_empty_page_has_its_frames_and_says_what_to_do(text):
    page = opened()
    words = said(page)
    assert "Quick: one block of four heads, 240 steps of 16 × 64 tokens" in words
    curves, lengths = charts(page)[:2]
    assert {"curves", "gutter"} <= set(curves)
    assert [row["text"] for row in lengths["chapter"]] == ["chapter 44.95", "chapter 42.49"]
    assert [row["tokens"] for row in lengths["chapter"]] == [64, 256]
    assert len(chart_with(page, "slopes", "name")["slopes"]) == 4
    heads = [{row.get("name") for row in one.get("curves", [])} for one in charts(page)]
    assert {f"head {number}" for number in (1, 2, 3, 4)} in heads
    lines = cells(page, "beside the chapter")
    names = [line["beside the chapter"].split("] ")[1] for line in lines]
    assert names == ["ALiBi at 64 tokens", "ALiBi at 256 tokens", "ALiBi gain, 64 to 256"]
    assert [line["chapter"] for line in lines] == ["44.95", "42.49", "2.46"]
    assert "gain, 64 to 256: ALiBi gains 0.86 and 0.85 points in the two seeds" in words
    assert {line["verdict"] for line in cells(page, "the chapter in words")} == {":gray[–]"}


def test_a_running_sweep_shows_curves_and_no_figure_over_lengths_yet(text):
    measure(text, state="running", step=600)
    page = opened(budget="chapter")
    curves, lengths = charts(page)[:2]
    reached = {name: steps[-1] for name, steps in means(curves, "step").items()}
    assert reached == dict.fromkeys((VARIANTS[name].short for name in POSITIONS.variants), 600)
    assert lengths["curves"] == [{"kind": ""}]
    assert {line["at 256"] for line in cells(page, "perplexity, yours")} == {":gray[–]"}


def test_finished_runs_are_read_over_lengths_and_beside_the_chapter(text):
    measure(text)
    page = opened(budget="chapter", inside="learned", falls="rope")
    lengths = charts(page)[1]
    assert means(lengths, "tokens")["ALiBi"] == list(LENGTHS)
    assert means(lengths, "perplexity")["ALiBi"] == list(ENDS["alibi"])
    slots = {name: slot for name, (slot, *_) in means(lengths, "slot").items()}
    assert slots == {
        "no positions": "gray", "learned": "blue", "sinusoids": "orange", "RoPE": "violet", "ALiBi": "green",
    }  # fmt: skip
    learned = cells(page, "perplexity, yours")[1]
    assert [learned[f"at {n}"] for n in LENGTHS] == ["**40.5**", "**87.3**", "**123.5**", "**146.6**"]
    lines = cells(page, "beside the chapter")
    assert [line["difference"] for line in lines] == [":green[−0.6]", ":green[+0.9]", ":red[−1.46 outside]"]
    claims = cells(page, "the chapter in words")
    assert [claim["yours"] for claim in claims] == [
        "**+0.3** :gray[RoPE]", "**3.05**", "**2.66**", "**1.63**", "**0.98**",
    ]  # fmt: skip
    assert {claim["verdict"] for claim in claims} == {":green[holds]"}
    words = said(page)
    assert "You guessed *learned*. Best at 64 tokens is **learned**, 0.3 ahead of RoPE." in words
    assert (
        "You guessed *RoPE*. The largest loss at 256: **learned**, 3.05 times as perplexed as at 64" in words
    )
    assert "ALiBi goes from 44.4 to 43.4" in words
    assert "Neither helps" in words


def test_what_does_not_hold_is_said(text):
    worse = {**ENDS, "alibi": (44.4, 50, 60, 70), "learned": (43.0, 44, 45, 46)}
    measure(text, ends=worse)
    page = opened(budget="chapter")
    verdicts = [claim["verdict"] for claim in cells(page, "the chapter in words")]
    assert verdicts == [":green[holds]" if number == 2 else ":red[does not hold]" for number in range(5)]
    assert "ALiBi goes from 44.4 to 60.0, against what the chapter finds." in said(page)
    assert "outside" in cells(page, "beside the chapter")[1]["difference"]


def test_a_lead_within_seed_noise_judges_nothing(text):
    measure(text, seeds=(0, 1), shift={("learned", 1): 0.5})
    page = opened(budget="chapter", seeds="0,1")
    best, *others = cells(page, "the chapter in words")
    assert best["verdict"] == ":gray[holds, in noise]"
    assert [claim["verdict"] for claim in others] == [":green[holds]"] * 4
    assert "within seed noise" in said(page)


def test_the_shipped_reference_stands_below_yours_and_in_its_own_column(text, no_reference):
    def shipped(name, _seed):
        return {f"perplexity_{n}": value for n, value in zip(LENGTHS, ENDS[name], strict=True)}

    finished.ship(no_reference, POSITIONS, shipped)
    page = opened(budget="chapter")
    rows = cells(page, "perplexity, yours")
    assert len(rows) == 10
    assert rows[3] == {
        "perplexity, yours": ":gray[reference]", "at 64": ":gray[40.5]", "at 128": ":gray[87.3]",
        "at 256": ":gray[123.5]", "at 512": ":gray[146.6]",
    }  # fmt: skip
    lines = cells(page, "beside the chapter")
    assert [line["reference"] for line in lines] == [
        "44.4 :gray[± 0.0]", "43.4 :gray[± 0.0]", "1.00 :gray[± 0.00] :red[not reproduced]",
    ]  # fmt: skip
    assert {line["yours"] for line in lines} == {":gray[–]"}


# The live probes.

MODELS = {name: {"bins": [50.0] * 4 + [80.0] * 28, "perplexity": 76.0} for name in POSITIONS.variants}
DIAGONAL = {"scores": [0.5] * 64, "inside": 0.0, "all": 1.5e-14}
MOVING = {"scores": [0.5, 2.5] * 32, "inside": 1.2, "all": 2.0}
LEAK = {"read": 0.66, "unmasked": -0.01, "untrained": 0.6, "ordered": 80.0}
ORDER_ROW = {"magnitude": 0.46, "unmasked": 5.96e-7, "masked": 0.38, "one_block": 3.6e-7, "two_blocks": 0.08}
FOUND: dict[str, dict[str, Any]] = {
    "places": {"models": MODELS, "windows": 89, "length": 512, "bin": 16},
    "rescaled": {
        "rows": [
            {"way": way, "length": n, "factor": n / 64, "perplexity": value}
            for n, values in ((64, (40.0,)), (128, (50, 45, 42)), (256, (60, 70, 45)), (512, (80, 90, 70)))
            for way, value in zip(("plain", "linear", "ntk"), values, strict=False)
        ]
    },
    "order": {
        "rows": [
            {**ORDER_ROW, "scheme": name, **({} if name == "none" else {"unmasked": 0.3, "one_block": 0.05})}
            for name in POSITIONS.variants
        ],
        "order": [2, 0, 1], "prefix": [1, 0, 2], "pieces": [" the", " dog", " bit"],
    },
    "knowledge": {
        "models": {
            name: {**LEAK, "shuffled": 80.0 if name == "none" else 97.0} for name in POSITIONS.variants
        },
        "windows": 359, "length": 64,
    },
    "diagonals": {
        "models": {
            name: [[MOVING if name in ("learned", "sinusoidal") else DIAGONAL] * 7] * 4
            for name in POSITIONS.variants
        },
        "distances": [0, 1, 2, 4, 8, 16, 32], "every": 8, "length": 512, "query": " king", "key": " the",
    },
    "table": {
        "turned": [30.0] * 64 + [0.0] * 448, "moved": [0.5] * 64 + [0.015] * 448, "alike": [0.0] * 511,
        "rows": 512, "trained": 64,
    },
    "other-rows": {
        "rows": [
            {"way": way, "length": length, "perplexity": value}
            for way, values in (("random", (90, 120, 140)), ("scaled", (62, 81, 90)), ("zero", (60, 80, 90)),
                                ("last", (70, 95, 110)))
            for length, value in zip((128, 256, 512), values, strict=True)
        ],
        "inside": 40.0, "none_inside": 85.0, "windows": 45, "scale": 0.02,
    },
    "early-tokens": {
        "rows": [
            {"length": length, "whole": whole, "predicted": predicted, "sliding": sliding,
             "change_nats": sliding / 43.5 - 1, "error_nats": 0.001}
            for length, whole, predicted, sliding in
            ((64, 44.5, 44.5, 43.5), (128, 43.9, 43.9, 43.4), (256, 43.64, 43.6, 43.3))
        ],
        "first": 94.7, "late": 43.31, "stride": 32, "scored": 45_728,
    },
}  # fmt: skip


@pytest.fixture
def probes(text, tmp_path, monkeypatch, probes_here):
    """What is asked for, answered by documents; weights are as if shipped."""
    for what, document in FOUND.items():
        name = f"positions-{what}"
        found = registry.PROBES[name].read(document)
        probes_here.answers[name] = lambda found=found, **_: found
    shipped = Weights(tmp_path / "w.safetensors", "shipped, seed 0", 0)
    monkeypatch.setattr(weights, "shipped", lambda *_: shipped)
    return probes_here


def given(probes, what):
    """The arguments of everything that was asked of one probe."""
    return [arguments for name, arguments in probes.asked if name == f"positions-{what}"]


def schemes(probes, what):
    return [tuple(arguments["weights"]) for arguments in given(probes, what)]


def test_perplexity_by_position(probes):
    page = press(opened(), "positions.places")
    assert schemes(probes, "places") == [POSITIONS.variants]
    chart = chart_with(page, "curves", "position")
    assert means(chart, "position")["learned"][:5] == [8, 24, 40, 56, 72]
    assert means(chart, "perplexity")["learned"][:5] == [50.0] * 4 + [80.0]
    assert chart["edge"] == [{"position": 64, "text": "trained up to here"}]
    assert "learned 50.0 and 80.0" in said(page)
    assert "89 windows. Weights: shipped, seed 0." in said(page)


def test_the_rows_that_were_never_trained(probes):
    page = opened()
    assert probes.names == ["positions-diagonals", "positions-order", "positions-table"], "the quick ones"
    assert schemes(probes, "table") == [("learned",)]
    rows = chart_with(page, "rows", "turned")["rows"]
    assert [row["turned"] for row in rows[62:66]] == [30.0, 30.0, 0.0, 0.0]
    words = said(page)
    assert "The 64 rows that were trained have turned by 30.0° to 30.0°" in words
    assert "The other 448 have turned by **0.0°** at most" in words
    assert "only shorter by 1.5 %" in words


def test_what_the_random_rows_make_of_the_cliff(probes):
    page = press(opened(), "positions.other-rows")
    assert schemes(probes, "other-rows") == [("learned",)]
    chart = next(one for one in charts(page) if {"curves"} <= set(one) and "zero" in means(one, "name"))
    assert means(chart, "perplexity")["as they are"] == [40.0, 90, 120, 140]
    assert means(chart, "tokens")["last trained row"] == list(LENGTHS)
    words = said(page)
    assert "perplexity is **120.0** with the untrained rows as they are, **80.0** with zeros" in words
    assert "So **50 %** of the rise from 40.0 is due to the random numbers." in words
    assert "probably due to the missing rows: with zeros in all rows, windows of 64 tokens have 85.0" in words
    assert "Every other held-out window; 45 of 512 tokens. Weights: shipped, seed 0." in words


def test_rows_whose_numbers_do_no_harm(probes):
    harmless = registry.PROBES["positions-other-rows"].read(
        {**FOUND["other-rows"], "rows": [{**row, "perplexity": 80.0} for row in FOUND["other-rows"]["rows"]]}
    )
    probes.answers["positions-other-rows"] = lambda **_: harmless
    assert "So here the random numbers are not the cause." in said(press(opened(), "positions.other-rows"))


def test_what_is_left_of_alibis_gain_without_early_tokens(probes):
    page = press(opened(), "positions.start")
    assert schemes(probes, "early-tokens") == [("alibi",)]
    chart = next(one for one in charts(page) if "curves" in one and "predicted" in means(one, "name"))
    assert means(chart, "perplexity")["sliding window"] == [43.5, 43.4, 43.3]
    words = said(page)
    assert "the first has perplexity **94.7**, those after the first 32 have **43.3**" in words
    assert "This alone predicts **43.60** at 256; **43.64** is measured there, and 44.50 at 64." in words
    assert "change by **−0.20** ± 0.04 points of perplexity, so a longer past makes them easier" in words
    assert "whole windows by −0.86" in words
    assert "the same 45,728 tokens of the text at every length" in words


@pytest.mark.parametrize(
    ("change", "verdict"), [(0.001, "no change that can be told from none"), (0.01, "makes them harder")]
)
def test_a_longer_past_may_bring_nothing_or_harm(probes, change, verdict):
    rows = [dict(row) for row in FOUND["early-tokens"]["rows"]]
    rows[-1] |= {"sliding": 43.5 * (1 + change), "change_nats": change}
    found = registry.PROBES["positions-early-tokens"].read({**FOUND["early-tokens"], "rows": rows})
    probes.answers["positions-early-tokens"] = lambda **_: found
    assert verdict in said(press(opened(), "positions.start"))


def test_a_pair_of_tokens_moved_through_the_window(probes):
    page = opened(distance="16", head="2")
    words = said(page)
    assert "“·king” looking at “·the”, 16 back, in head 2" in words
    assert (
        "the same at every place to **1.50e−14**, the rounding; with sinusoids it moves by **2.000**" in words
    )
    table = cells(page, "spread of the score")
    assert [row["all 512"] for row in table] == ["1.50e−14", "2.000", "2.000", "1.50e−14", "1.50e−14"]
    assert means(chart_with(page, "curves", "place"), "place")["RoPE"][:2] == [16, 24]
    choose(page, "positions.distance", "1")
    assert page.query_params["distance"] == "1"
    assert len(given(probes, "diagonals")) == 1, "measured once, looked at often"


def test_whether_a_slower_rotation_repairs_256(probes):
    page = press(opened(), "positions.rescaled")
    assert schemes(probes, "rescaled") == [("rope",)]
    words = said(page)
    assert "As trained, RoPE goes from 40.0 at 64 tokens to 60.0 at 256." in words
    assert "Linear rescaling makes it worse: **70.0**." in words
    assert "NTK-aware rescaling takes back **75 %** of that: 45.0, a part of the damage." in words
    table = cells(page, "RoPE at")
    assert table[2] == {
        "RoPE at": "256 tokens", "as trained": "60.0", "linear": "70.0", "NTK-aware": "**45.0**",
        "slower by": "4",
    }  # fmt: skip
    ways = next(c for c in charts(page) if any(row.get("name") == "linear" for row in c.get("curves", [])))
    dashes = {row["name"]: (row["slot"], row["dash"]) for row in ways["curves"]}
    assert dashes == {
        "as trained": ("violet", "solid"), "linear": ("violet", "dashed"), "NTK-aware": ("violet", "dotted"),
    }  # fmt: skip


def test_a_sentence_in_another_order(probes):
    page = opened(sentence="the dog bit", draw="7")
    assert given(probes, "order") == [{"sentence": "the dog bit", "seed": 7}]
    none = cells(page, "largest difference")[0]
    assert none["mask off"] == ":green[**5.96e−07**]"
    assert none["last, one block"] == ":green[**3.60e−07**]"
    assert none["last, two blocks"] == "0.080"
    words = said(page)
    assert "All tokens moved: ·bit ·the ·dog. All but the last: ·dog ·the ·bit." in words
    assert "The mask breaks that by **0.380**" in words
    assert "Two can, 0.080" in words


def test_the_leak_of_the_mask(probes):
    page = press(opened(), "positions.knowledge")
    assert schemes(probes, "knowledge") == [POSITIONS.variants]
    words = said(page)
    assert "**66 %** of the place" in words
    assert "Before training it is **60 %**, and once the trained weights lose their mask 0 %." in words
    assert "is predicted at 80.0, in order at 80.0. A model that has positions uses the order" in words


def test_without_weights_the_probes_say_what_to_do(text, probes_here):
    page = opened()
    assert said(page).count("There is no trained model here. Train it above") == 6
    assert [button.label for button in page.button] == ["Train five models", "Another order"]
    assert probes_here.names == ["positions-diagonals", "positions-order"], "which need none"


def test_a_probe_that_fails_is_told_in_a_sentence(text, probes_here):
    assert "The text has 1 tokens; allowed: 3 to 64." in said(opened(sentence="the"))


def test_slopes_for_any_number_of_heads(text):
    page = opened(heads="6")
    slopes = chart_with(page, "slopes", "name")["slopes"]
    assert [row["name"] for row in slopes] == ["1/4", "1/16", "1/64", "1/256", "1/2", "1/8"]
    assert [row["kind"] for row in slopes] == ["own"] * 4 + ["between"] * 2
    words = said(page)
    assert "Six heads: 1/4, 1/16, 1/64, 1/256, then 1/2, 1/8. 6 is no power of two" in words
    assert "The steepest head halves a weight every 1.4 tokens, the flattest every 177.4." in words
    page.slider(key="positions.heads").set_value(8)
    assert "Eight heads: 1/2, 1/4, 1/8, 1/16, 1/32, 1/64, 1/128, 1/256. The steepest" in said(rerun(page))
    page.slider(key="positions.heads").set_value(1)
    assert "One head: 1/256. It halves a weight every 177.4 tokens." in said(rerun(page))
    assert page.query_params["heads"] == "1"
    assert alibi.slopes(12)[8].text == "0.707"
