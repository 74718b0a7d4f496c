"""The page on masks: an average three ways, a grid to edit, a mask's value, and the leak test."""

import json
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from streamlit.proto.WidgetStates_pb2 import WidgetState

from engine.chapter.experiments import MASK, VARIANTS
from engine.models.transformer import Transformer
from engine.runs.store import Store
from engine.training import checkpoint
from lab.sections.mask import grid as score_grid
from tests import finished
from tests.apptest import charts, choose, link, nodes, open_page, press, rerun, said, tables

OWN_GRID = "1" + "_" * 34 + "_-2.5"


opened = partial(open_page, "mask")


def weights(page):
    """The second map: weights by (query, key), and which cells are masked."""
    data = charts(page)[1]
    hidden = {(row["query"], row["key"]) for row in data["hidden"] if "query" in row}
    return {(row["query"], row["key"]): row["weight"] for row in data["seen"]}, hidden


def editor(page):
    return next(n.proto for n in nodes(page) if n.type == "dataframe" and "editor" in n.proto.id)


def edit(page, *cells):
    """Type texts into cells of the grid, each (query, key, text), as a browser reports it."""
    rows: dict[str, dict[str, str]] = {}
    for query, key, text in cells:
        rows.setdefault(str(query - 1), {})[str(key)] = text
    states = page._tree.get_widget_states()
    value = {"edited_rows": rows, "added_rows": [], "deleted_rows": []}
    states.widgets.append(WidgetState(id=editor(page).id, string_value=json.dumps(value)))
    page._run(states)
    assert not page.exception
    return page


def test_an_empty_page_shows_the_matrix_and_the_three_ways(text):
    page = opened()
    averaging = charts(page)[0]
    printed = {(row["query"], row["key"]): row["said"] for row in averaging["seen"]}
    assert [printed[6, s] for s in range(1, 7)] == ["0.167"] * 6
    assert printed[1, 1] == "1.000"
    assert len(averaging["hidden"]) == 15
    rows = tables(page)[0]
    ways = [row["two ways"] for row in rows]
    assert ways == ["loop and matrix product", "loop and softmax", "matrix product and softmax"]
    assert "e−08" in rows[0]["largest difference"]
    assert page.button(key="mask.train").label == "Train two models"


def test_other_vectors_are_drawn_and_stay_in_the_url(text):
    page = opened()
    next(button for button in page.button if button.label == "Draw other vectors").click()
    rerun(page)
    assert 0 <= int(link(page, "draw")) <= 9_999


def test_uniform_scores_reproduce_one_over_t_at_any_multiplier(text):
    for times in ("1", "100"):
        found, hidden = weights(opened(scores="uniform", times=times))
        assert len(hidden) == 15
        assert all(weight == pytest.approx(1 / query) for (query, _), weight in found.items())
    assert "row t gives each of its t tokens 1/t" in said(opened(scores="uniform", times="100"))


def test_an_edited_cell_moves_weights_means_and_url(text):
    page = opened(scores="uniform")
    edit(page, (2, 1, "1.5"), (2, 2, " 0.5 "))
    found, _ = weights(page)
    assert found[2, 1] == pytest.approx(1 / (1 + np.exp(-1)))
    assert found[3, 1] == pytest.approx(1 / 3)
    assert link(page, "scores").split("_")[6:8] == ["1.5", "0.5"]
    means = charts(page)[2]["means"]
    assert means[1]["x"] == pytest.approx(found[2, 2] * np.sqrt(0.75))
    again, _ = weights(opened(scores=link(page, "scores")))
    assert again == pytest.approx(found)
    own, _ = weights(opened(scores=OWN_GRID, causal="none", times="10"))
    assert own[1, 1] > 0.99


def test_an_edit_survives_another_setting_and_gives_way_to_a_preset(text):
    page = edit(opened(scores="uniform"), (2, 1, "3"))
    first = editor(page).id
    page.select_slider(key="mask.times").set_value("10")
    edit(page, (2, 1, "3"))
    assert editor(page).id == first
    assert weights(page)[0][2, 1] > 0.99
    choose(page, "mask.preset", "nearest")
    assert link(page, "scores") == "nearest"
    assert editor(page).id != first
    assert weights(page)[0][2, 1] < 0.5


WRONG = ("abc", "inf", "-inf", "nan", "1e9", "0,5", "1_0", "0.12345")


@pytest.mark.parametrize(
    ("typed", "shown"),
    [*((text, repr(text)) for text in WRONG), (None, "empty"), ("9" * 400, repr("9" * 20))],
)
def test_a_bad_cell_is_named_and_keeps_its_number(text, typed, shown):
    page = edit(opened(scores="nearest"), (3, 2, typed), (2, 1, "0"))
    allowed = "a number from −10,000 to 10,000 with at most 3 decimals"
    assert f"Row 3, key 2 is {shown}; allowed: {allowed}. Used: -0.5." in said(page)
    found, _ = weights(page)
    assert found[2, 1] == pytest.approx(0.5)
    assert found[3, 2] == pytest.approx(np.exp(-0.5) / (np.exp(-1) + np.exp(-0.5) + 1))


def test_above_the_diagonal_only_an_unmasked_softmax_looks(text):
    found, hidden = weights(opened(scores="_" * 4 + "_9" + "_" * 30))
    assert found[1, 1] == 1
    assert len(hidden) == 15
    found, hidden = weights(opened(scores="_" * 4 + "_9" + "_" * 30, causal="none"))
    assert found[1, 6] > 0.99
    assert not hidden


@pytest.mark.parametrize(
    ("scores", "sentence"),
    [
        ("1_2", "scores has 2 numbers; allowed: 36, row by row"),
        ("x" + "_" * 35, "scores, row 1, key 1 is 'x'; allowed: a number from"),
        ("inf" + "_" * 35, "scores, row 1, key 1 is 'inf'; allowed: a number from"),
    ],
)
def test_a_bad_link_is_said_once_and_changes_nothing(text, scores, sentence):
    assert said(opened(scores=scores)).count(sentence) == 1


@given(st.lists(st.integers(-10_000_000, 10_000_000), min_size=36, max_size=36))
def test_every_grid_goes_through_the_url_and_back(thousandths):
    grid = tuple(value / 1000 for value in thousandths)
    assert score_grid.parse(score_grid.write(grid)) == grid
    assert len(score_grid.write(grid)) <= 400
    for name, preset in score_grid.PRESETS.items():
        assert (score_grid.write(preset), score_grid.parse(name)) == (name, preset)


def test_the_slider_hardens_one_column_and_leaves_the_other(text):
    rows = tables(opened(scores="example", times="10"))[1]
    last = rows[-1]
    assert float(last["softmax, ×10"]) < float(last["softmax, ×1"]) / 2
    assert last["linear, ×10"] == last["linear, ×1"]
    assert set(tables(opened(scores="uniform"))[1][0]) >= {"softmax, ×1", "linear, ×1"}


def test_measuring_shows_refusals_leaks_and_the_row_without_a_key(text):
    page = opened(size="10000")
    constants, empty = tables(page)[2:4]
    by = {(row["type"], row["mask value"].rpartition(" ")[2]): row for row in constants}
    assert len(by) == 9
    assert by["float16", "−1e9"]["masked_fill"] == ":red[refused]"
    assert by["float16", "−1e9"]["cast"] == "−∞"
    assert by["float32", "−inf"]["leaks"] == "0"
    assert "red" in by["float32", "−1e4"]["leaks"]
    assert by["float32", "−1e9"]["leaks"] == "0"
    assert len(empty) == 6
    assert "NaN" in empty[0]["that row’s output"]
    assert "W_V" in empty[0]["NaN in the gradient of"]
    assert "Two of the six leave NaN in a gradient" in said(page)
    leak = charts(page)[4]
    assert {row["name"] for row in leak["curves"]} == {"−inf", "−1e9", "−1e4"}


def test_a_type_that_overflows_ends_its_curves(text):
    page = opened(size="20000", type="float16")
    leak = charts(page)[4]
    assert {row["name"] for row in leak["ends"] if row["kind"] == "cross"} == {"−inf", "−1e4"}
    assert max(row["size"] for row in leak["curves"]) == 10_000
    assert {row["value"] for row in leak["gutter"]} == {"–"}


def trained(text, names=MASK.variants):
    """Finished quick runs with weights, untrained, of those variants."""
    worth = {"head-added": 80.0, "unmasked": 1.25}

    def figures(name, _seed):
        return {"validation_perplexity": worth[name]}

    for run in finished.runs(MASK, text, variants=names, figures=figures):
        torch.manual_seed(0)
        config = replace(VARIANTS[run.spec.variant].config, max_positions=16, d_model=32)
        header = {"config": config.to_dict(), "step": 100}
        path = Store().directory(run.id) / "checkpoint.safetensors"
        checkpoint.save(path, checkpoint.model_tensors(Transformer(config)), header)


def test_each_model_writes_beside_what_it_is_worth_blind(text, probes_here):
    trained(text)
    page = press(opened(prompt="aha noe"), "mask.write")
    written = [code.value for code in page.code if code.value.startswith("aha noe")]
    assert len(written) == 2
    words = said(page)
    assert "as measured in training: **1.2**" in words or "as measured in training: **1.3**" in words
    assert "Weights: yours, run #1, 100 steps, seed 0." in words
    assert "64.0 times less perplexed" in words
    page.text_input(key="mask.prompt").set_value("  ")
    assert "This is of the earlier input." in said(rerun(page))
    page = press(page, "mask.write")
    assert said(page).count("The prompt has") == 2


def test_one_model_alone_still_writes(text, probes_here):
    untrained = "You have not trained this model yet. Train it above first."
    assert said(press(opened(), "mask.write")).count(untrained) == 2
    trained(text, names=("unmasked",))
    words = said(press(opened(), "mask.write"))
    assert words.count(untrained) == 1
    assert "100 steps, seed 0" in words
