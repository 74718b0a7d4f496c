"""The page Query, key, value: the ladder, and a trained and an untrained head on the reader's sentence."""

import base64
import dataclasses
import re
from functools import partial

import numpy as np
import plotly.io
import pytest
import torch

from engine.chapter.experiments import QKV, VARIANTS
from engine.models.transformer import Transformer
from engine.training import checkpoint
from lab import weights
from lab.sections.qkv.stages import STAGES
from lab.weights import Weights
from tests import apptest, finished
from tests.apptest import choose, nodes, open_page, rerun, said

ENDS = {"average-added-positions": 61.0, "matrix": 60.0, "raw": 70.0, "query-key": 50.0, "head-added": 47.5}
ODD = "$5 and <b>x</b>  a.b[1]"


@pytest.fixture
def trained(tmp_path, text, one_thread, monkeypatch):
    """Weights that differ from the untrained head's, as if they were shipped."""
    torch.manual_seed(7)
    path = tmp_path / "head-added.safetensors"
    config = VARIANTS["head-added"].config
    checkpoint.save(path, checkpoint.model_tensors(Transformer(config)), {"config": config.to_dict()})
    shipped = Weights(path, "shipped, seed 0", 0, of_the_chapters_budget=True)
    monkeypatch.setattr(weights, "shipped", lambda *_: shipped)
    return path


opened = partial(open_page, "qkv")


def drawn(page):
    """Every Plotly figure by the key of its element."""

    charts = [node.proto for node in nodes(page) if node.type == "plotly_chart"]
    return {chart.id: plotly.io.from_json(chart.spec) for chart in charts}


def one(figures, name):
    (found,) = [figure for key, figure in figures.items() if name in key]
    return found


def grid(trace):
    """What a heat map colours, as an array."""
    flat = np.frombuffer(base64.b64decode(trace.z["bdata"]), trace.z["dtype"])
    return flat.reshape([int(size) for size in trace.z["shape"].split(",")])


def numbers(page, at):
    """A table of the page as it is: column names, then rows."""
    frame = page.table[at].value
    return [tuple(frame.columns), *frame.itertuples(index=False, name=None)]


def test_the_words_about_the_ladder_are_true():
    """Each rung differs from its parent in the mixer alone, and so does the head from W_Q and W_K."""
    pairs = [(VARIANTS[name].parent, name) for name in QKV.variants[1:]] + [("query-key", "head-added")]
    assert [parent for parent, _ in pairs] == ["average-added-positions"] * 2 + ["raw"] + [
        "average-added-positions",
        "query-key",
    ]
    for parent, name in pairs:
        before, after = (dataclasses.asdict(VARIANTS[one].config) for one in (parent, name))
        assert {field for field in before if before[field] != after[field]} == {"mixer"}


def test_what_each_part_is_worth_is_read_off_the_readers_own_figures(text):
    finished.runs(QKV, text, figures=lambda name, _: {"validation_perplexity": ENDS[name]})
    words = said(opened())
    assert "One matrix for every sentence gains 1.0 points on equal weights" in words
    assert "Raw scores loses 9.0 points" not in words
    assert "Raw scores lose 9.0 points on equal weights" in words
    assert "W_Q and W_K gain 20.0 points on raw scores; W_V gains 2.5 points on copying the token" in words


def test_looking_inside_shows_both_heads_stage_by_stage(trained):
    page = opened()
    figures = drawn(page)
    strips = [node.proto.body for node in nodes(page) if node.type == "html" and "x·x" in node.proto.body]
    for side, strip in zip(("trained", "untrained"), strips, strict=True):
        names = re.findall(r"nowrap\">(.*?)<img", strip)
        assert names == ["x·x", "QKᵀ", "÷ √d_k", "mask", "<b>softmax</b>", "× V"]
        cells, mask = one(figures, f"map.weights.{side}.").data
        assert cells.y[13] == "·king (13)"
        assert "masked" in mask.hovertemplate
        np.testing.assert_allclose(np.nansum(grid(cells) ** 2, axis=1), 1, atol=1e-5)
    z = [one(figures, f"map.weights.{side}.").data[0] for side in ("trained", "untrained")]
    assert not np.allclose(*(np.nan_to_num(grid(cells)) for cells in z))
    words = said(page)
    assert "Weights: shipped, seed 0." in words
    assert words.count("effective tokens of 14; a uniform row would give each 0.071.") == 2
    assert "A map is no explanation by itself." in words
    assert "The ladder above measures how much this helps" in words


def test_three_steps_in_numbers(trained):
    table = apptest.cells(opened(), "step")
    assert list(table[0]) == ["step", "measured", "trained", "untrained"]
    assert [table[0][side] for side in ("trained", "untrained")] == ["13 of 13", "13 of 13"]
    assert [table[1][side] for side in ("trained", "untrained")] == ["0", "0"]
    assert float(table[5]["trained"]) > 0.4
    assert len(table) == 8


def test_the_rows_table_and_the_whole_table_are_the_map(trained):
    page = opened(row="5")
    assert not page.dataframe, "it is made once it is opened"
    page.session_state["whole.weights.trained"] = True
    rerun(page)
    cells = one(drawn(page), "map.weights.trained.").data[0]
    row = grid(cells)[5, :6] ** 2
    table = numbers(page, 2)
    assert table[0] == ("key", "weight", "raw score")
    assert [weight for _, weight, _ in table[1:]] == pytest.approx(sorted(row, reverse=True)[:5], abs=1e-5)
    whole = page.dataframe[0].value
    np.testing.assert_allclose(whole.to_numpy(), grid(cells) ** 2, atol=1e-6)
    assert page.dataframe[0].proto.placeholder == "masked"


def test_every_stage_can_be_shown_large_and_scores_of_both_heads_have_one_scale(trained):
    page = opened(stages=",".join(STAGES))
    figures = drawn(page)
    for stage in STAGES:
        pair = [one(figures, f"map.{stage}.{side}.").data[0] for side in ("trained", "untrained")]
        assert pair[0].zmax == pair[1].zmax
        assert (pair[0].zmin == 0) == (stage == "weights")
    keys = [node.proto.body for node in nodes(page) if node.type == "html" and "gradient" in node.proto.body]
    assert [re.search(r">([^<]+)<div", key)[1] for key in keys] == [
        "x·x",
        "q·k",
        "Score",
        "Score",
        "Weight",
        "Value",
    ]
    words = said(page)
    assert "√d_k = 11.3 times smaller" in words
    assert "Most of it comes from" in words


def test_sentence_stages_and_row_live_in_the_url(trained):
    page = opened(sentence="To be, or not to be", stages="products,mixed", row="2")
    assert page.selectbox(key="qkv.row").value == 2
    assert {key for key in drawn(page) if "map." in key}
    choose(page, "qkv.sentence", "the king is dead, and the queen is dead")
    assert page.query_params["sentence"] == "the king is dead, and the queen is dead"
    assert page.selectbox(key="qkv.row").value == len(page.selectbox(key="qkv.row").options) - 1
    group = next(group for group in page.button_group if group.key == "qkv.stages")
    group.set_value(["raw"])
    rerun(page)
    assert page.query_params["stages"] == "raw"
    choose(page, "qkv.sentence", "the king")
    assert page.selectbox(key="qkv.row").options == ["·the (0)", "·king (1)"]


def test_without_a_trained_head_the_untrained_one_still_stands_there(text):
    page = opened()
    assert "There is no trained head here. Train it above" in said(page)
    figures = drawn(page)
    assert one(figures, "map.weights.untrained.") is not None
    assert not [key for key in figures if ".trained." in key]


def test_a_checkpoint_that_cannot_be_read_costs_only_its_own_side(trained, monkeypatch):
    trained.write_bytes(b"no checkpoint")
    page = opened()
    assert "is not a whole checkpoint of this lab" in said(page)
    assert one(drawn(page), "map.weights.untrained.") is not None


@pytest.mark.parametrize(
    ("sentence", "complaint"), [("   ", "Type at least one word."), ("x" * 300, "allowed: 1 to 128.")]
)
def test_a_sentence_that_does_not_fit_gets_one_line(trained, sentence, complaint):
    page = opened(sentence=sentence)
    assert said(page).count(complaint) == 1
    assert not drawn(page)


def test_odd_characters_are_shown_as_they_are(trained):
    page = opened(sentence=ODD)
    assert any("·$ (0)" in name or "$" in name for name in page.selectbox(key="qkv.row").options)
    cells = one(drawn(page), "map.weights.untrained.").data[0]
    assert not any("<b>" in name for name in cells.x)
