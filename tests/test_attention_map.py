"""The attention map as data: DESIGN, section 6, point by point."""

import base64
import io
import json
import math
import re

import numpy as np
import pytest
from PIL import Image, ImageColor

from lab.charts.maps import figure as attention_map
from lab.charts.maps import strip as attention_strip
from lab.charts.maps import twin
from lab.charts.maps.panel import Panel, entropy, labels, scores_panel, weights_panel
from lab.charts.maps.sentences import matrix_table, number, row_table, sentence
from lab.shell import export
from lab.shell.palette import MASK_OPACITY, NAMES, palette

PIECES = (" the", " king", "\n", " the", "<b>")
T = len(PIECES)
AHEAD = np.triu(np.ones((T, T), bool), 1)
SCORES = np.random.default_rng(0).normal(0, 3, (2, T, T)).astype(np.float32)


def softmax(scores):
    powers = np.where(AHEAD, 0, np.exp(scores))
    return (powers / powers.sum(-1, keepdims=True)).astype(np.float32)


WEIGHTS = softmax(SCORES)
WEIGHTS[0, 3] = (1, 0, 0, 0, 0)
LIGHT, DARK = (palette(name) for name in NAMES)


@pytest.fixture
def weights():
    return weights_panel(PIECES, WEIGHTS[0], SCORES[0], AHEAD)


@pytest.fixture
def scores():
    return scores_panel(PIECES, SCORES[0], AHEAD)


def colours(trace):
    return [colour for _, colour in trace.colorscale]


def test_rows_are_queries_from_top_to_bottom_and_both_axes_say_so(weights):
    figure = attention_map.figure(weights, LIGHT)
    assert list(figure.layout.yaxis.range) == [T - 0.5, -0.5]
    assert list(figure.layout.xaxis.range) == [-0.5, T - 0.5]
    assert figure.layout.xaxis.side == "top"
    assert figure.layout.annotations[0].text.split() == ["query", "↓", "key", "→"]
    assert tuple(figure.data[0].y) == ("·the (0)", "·king (1)", "¶ (2)", "·the (3)", "&lt;b&gt; (4)")
    marked = attention_map.figure(weights, LIGHT, marked=4).layout.yaxis.ticktext[4]
    assert marked == "<b>&lt;b&gt; (4)</b>", "a piece is no markup of the drawing"


@pytest.mark.parametrize("colors", [LIGHT, DARK])
def test_weights_have_one_hue_fixed_from_0_to_1_by_the_square_root(weights, colors):
    faint = weights_panel(PIECES, np.full((T, T), 0.067, np.float32), SCORES[0], None)
    for panel in (weights, faint):
        cells = attention_map.figure(panel, colors).data[0]
        assert (cells.zmin, cells.zmax) == (0, 1)
        assert tuple(colours(cells)) == tuple(colour for _, colour in colors.weights)
        assert cells.z.dtype == np.float32
        np.testing.assert_allclose(
            cells.z[~np.isnan(cells.z)] ** 2, panel.values[~np.isnan(cells.z)], atol=1e-6
        )
    assert faint.limit == 1
    assert attention_map.figure(faint, colors).data[0].z[0, 0] == pytest.approx(0.2588, abs=1e-3)


@pytest.mark.parametrize("colors", [LIGHT, DARK])
def test_scores_have_two_hues_about_0_and_never_the_key_of_weights(scores, colors):
    cells = attention_map.figure(scores, colors).data[0]
    assert cells.zmin == -cells.zmax
    assert cells.zmax == pytest.approx(np.abs(SCORES[0][~AHEAD]).max())
    assert not set(colours(cells)) & {colour for _, colour in colors.weights}
    assert colours(cells)[len(colours(cells)) // 2] == colors.paper
    wider = attention_map.figure(scores, colors, limit=50).data[0]
    assert (wider.zmin, wider.zmax) == (-50, 50)
    keys = [attention_strip.key(kind, 12.3, colors, kind) for kind in ("weights", "scores")]
    ticks = [re.findall(r"left:([\d.]+)%\">(.*?)<", key) for key in keys]
    assert [[text for _, text in named] for named in ticks] == [
        ["0", ".067", ".25", ".5", "1"],
        ["−12.3", "0", "12.3"],
    ]
    assert float(ticks[0][1][0]) == pytest.approx(100 * math.sqrt(0.067), abs=0.01)
    tints = [re.findall(r"(#\w{6}) [\d.]+%", key) for key in keys]
    assert tints == [[tint for _, tint in stops] for stops in (colors.weights, colors.scores)]
    assert not set(tints[0]) & set(tints[1])


def test_masked_cells_are_flat_grey_and_a_real_zero_is_not(weights):
    cells, mask = attention_map.figure(weights, LIGHT).data
    np.testing.assert_array_equal(np.isnan(cells.z), AHEAD)
    np.testing.assert_array_equal(np.isnan(mask.z), ~AHEAD)
    assert cells.z[3, 1] == 0  # a weight of 0.00 that is not masked
    assert set(colours(mask)) == {LIGHT.gray}
    assert mask.opacity == MASK_OPACITY
    assert LIGHT.gray not in colours(cells)
    assert (cells.hoverongaps, mask.hoverongaps) == (False, False)
    assert "masked" in mask.hovertemplate
    assert "masked" not in cells.hovertemplate


def test_pointing_at_a_cell_tells_tokens_weight_score_entropy_and_effective_tokens(weights):
    cells = attention_map.figure(weights, LIGHT).data[0]
    assert cells.hovertemplate == (
        "query <b>%{y}</b><br>key <b>%{x}</b><br>weight %{customdata[0]:.3f}<br>"
        "raw score %{customdata[1]:.2f}<br>"
        "row entropy, nats %{customdata[2]:.2f}<br>effective tokens %{customdata[3]:.1f}<br>"
        "tokens visible %{customdata[4]:d}<extra></extra>"
    )
    uniform = entropy(np.array([[0.25] * 4, [0, 1, 0, 0]], np.float32))
    np.testing.assert_allclose(uniform, [math.log(4), 0], atol=1e-6)
    told = cells.customdata[4, 2]
    row = WEIGHTS[0, 4].astype(float)
    nats = -(row * np.log(row)).sum()
    np.testing.assert_allclose(told, [row[2], SCORES[0, 4, 2], nats, math.exp(nats), 5], rtol=1e-4)


def test_the_marked_row_is_outlined_up_to_the_mask(weights):
    (outline,) = attention_map.figure(weights, LIGHT, marked=2).layout.shapes
    assert (outline.x0, outline.x1, outline.y0, outline.y1) == (-0.5, 2.5, 1.5, 2.5)
    assert (outline.line.width, outline.line.color) == (1.75, LIGHT.ink)
    assert not attention_map.figure(weights, LIGHT).layout.shapes


def test_stages_come_as_thumbnails_and_several_can_be_chosen(weights):
    panels = dict.fromkeys(("0", "<1>", "2"), weights)
    strip = attention_strip.strip(panels, ("0", "2"), LIGHT)
    assert re.findall(r'nowrap">(.*?)<img', strip) == ["<b>0</b>", "&lt;1&gt;", "<b>2</b>"]
    assert re.findall(r"px solid (#\w+)", strip) == [LIGHT.ink, LIGHT.border, LIGHT.ink]
    assert strip.count("→") == 2
    pictures = re.findall(r"base64,(.*?)\"", strip)
    shown = np.asarray(Image.open(io.BytesIO(base64.b64decode(pictures[1]))))
    np.testing.assert_array_equal(shown, attention_strip.pixels(weights, LIGHT))


@pytest.mark.parametrize("colors", [LIGHT, DARK])
def test_a_pixel_of_a_thumbnail_has_the_colour_of_the_maps_cell(weights, scores, colors):
    shown = attention_strip.pixels(weights, colors)
    lowest, highest = (ImageColor.getrgb(colors.weights[end][1]) for end in (0, -1))
    assert tuple(shown[0, 0]) == (*highest, 255)  # its own weight is 1
    assert tuple(shown[3, 1]) == (*lowest, 255)  # a real 0
    assert tuple(shown[0, 1]) == (*ImageColor.getrgb(colors.gray), round(255 * MASK_OPACITY))
    largest = np.unravel_index(np.nanargmax(np.abs(scores.shown())), (T, T))
    end = colors.scores[0 if scores.values[largest] < 0 else -1][1]
    assert tuple(attention_strip.pixels(scores, colors)[largest]) == (*ImageColor.getrgb(end), 255)


@pytest.mark.parametrize("tokens", [1, 14, 128])
def test_any_length_fits_the_width(tokens):
    panel = scores_panel(["word"] * tokens, np.ones((tokens, tokens), np.float32))
    figure = attention_map.figure(panel, LIGHT, marked=tokens - 1)
    margin = figure.layout.margin
    plot = figure.layout.width - margin.l - margin.r
    assert figure.layout.width == attention_map.WIDTH
    assert 0 < plot / tokens <= attention_map.CELL + 1e-9
    assert figure.layout.height - margin.t - margin.b == pytest.approx(plot, abs=1)
    assert figure.layout.yaxis.ticktext[-1] == f"<b>word ({tokens - 1})</b>"
    assert len(figure.layout.yaxis.ticktext) * 13 <= max(plot + 13, 20)


def test_a_map_of_128_tokens_stays_small():
    grid = np.zeros((128, 128), np.float32)
    panel = weights_panel(["word"] * 128, grid, grid, np.triu(np.ones((128, 128), bool), 1))
    assert len(attention_map.figure(panel, LIGHT).to_json()) < 800_000


def test_the_table_is_the_matrix(weights):
    table = matrix_table(weights)
    assert list(table.index) == list(table.columns) == list(labels(PIECES))
    np.testing.assert_array_equal(table.isna().to_numpy(), AHEAD)
    np.testing.assert_array_equal(table.to_numpy()[~AHEAD], WEIGHTS[0][~AHEAD])
    file = twin.numbers(weights)
    assert file[0] == ("query \\ key", *labels(PIECES))
    assert file[1] == ("·the (0)", 1.0, "", "", "", "")
    assert file[5][1:] == pytest.approx(WEIGHTS[0, 4])


def test_the_sentence_and_the_rows_table_say_the_same(weights):
    assert sentence(weights, 3) == (
        "At **·the \\(3\\)** the head puts 1.00 on ·the \\(0\\). 1.0 effective tokens of 4; a uniform row "
        "would give each 0.250. 1 key is masked."
    )
    table = row_table(weights, 4)
    assert table[0] == ("key", "weight", "raw score")
    order = np.argsort(-WEIGHTS[0, 4])
    assert [row[0] for row in table[1:]] == [labels(PIECES)[key] for key in order]
    assert [row[1] for row in table[1:]] == pytest.approx(WEIGHTS[0, 4][order])
    assert [row[2] for row in table[1:]] == pytest.approx(SCORES[0, 4][order])


def test_scores_in_words(scores):
    row = SCORES[0, 2, :3]
    names = [name.replace("(", "\\(").replace(")", "\\)") for name in labels(PIECES)]
    assert sentence(scores, 2) == (
        f"At **{names[2]}** the highest score is {number(row.max())}, for {names[row.argmax()]}; the lowest "
        f"{number(row.min())}, for {names[row.argmin()]}. 2 keys are masked."
    )
    assert "the only score is" in sentence(scores, 0)
    mixed = Panel("scores", SCORES[0], labels(PIECES), ("0", "1", "2", "3", "4"), across="channel")
    assert "the numbers run from" in sentence(mixed, 0)
    assert [number(-0.001), number(-1.5), number(1234.5, 0)] == ["0.00", "−1.50", "1,234"]


@pytest.mark.parametrize("kind", ["weights", "scores"])
def test_the_twin_has_the_same_cells_colours_and_key_and_can_be_drawn(kind, request):
    panel = request.getfixturevalue(kind)
    spec = twin.twin(panel, "a head", marked=2, limit=9)
    cells = {(row["row"], row["column"]): row["shade"] for row in spec["datasets"]["cells"]}
    assert len(cells) == (~AHEAD).sum()
    assert len(spec["datasets"]["masked"]) == AHEAD.sum()
    names = labels(PIECES)
    shade = cells[names[4], names[2]]
    assert (shade**2 if kind == "weights" else shade) == pytest.approx(panel.values[4, 2], rel=1e-5)
    color = spec["layer"][1]["encoding"]["color"]
    low, high = color["scale"]["domain"][0], color["scale"]["domain"][-1]
    assert (low, high) == ((0, 1) if kind == "weights" else (-9, 9))
    assert ("each row sums to 1" in json.dumps(spec)) == (kind == "weights")
    drawn = export.picture(spec, "svg")
    assert b"key \xe2\x86\x92" in drawn
    assert export.on_paper(spec)["width"] == T * attention_map.CELL


def test_the_palette_is_the_themes_own():
    for colors in (LIGHT, DARK):
        assert [at for at, _ in colors.weights] == pytest.approx(np.linspace(0, 1, 10))
        assert colors.scores[len(colors.scores) // 2] == (0.5, colors.paper)
    assert LIGHT.weights != DARK.weights
