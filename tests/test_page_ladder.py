"""The page Ladder: what each part buys and costs, by heart, dropout, probes, a rung of one's own, samples."""

from dataclasses import replace
from functools import partial

import pytest
import torch

from engine.chapter.experiments import GAP, LADDER, PERPLEXITY, TRAIN, VARIANTS
from engine.models.transformer import Transformer
from engine.probes import client
from engine.runs import launch
from engine.runs.store import Store
from engine.system.errors import Unavailable
from engine.training import checkpoint
from lab.runs.card import command
from lab.sections.ladder import own as ladder_own
from lab.sections.ladder import parts as ladder_parts
from lab.shell.styles import style
from tests import finished
from tests.apptest import chart_with, charts, choose, lines, means, open_page, press, said

# Held out and on the text trained on, at the chapter's budget: near what the chapter has.
ENDS = {
    "average-added": (60.5, 55.0),
    "average-added-positions": (61.0, 54.0),
    "head-replaces": (55.4, 45.0),
    "head-added": (46.4, 38.0),
    "head-projected": (45.4, 37.0),
    "four-heads": (43.4, 35.0),
    "feed-forward": (39.9, 22.0),
    "block": (38.0, 19.0),
    "two-blocks": (40.5, 14.5),
    "block-dropout": (36.0, 24.0),
    "own": (37.0, 20.0),
}


opened = partial(open_page, "ladder")


def measure(text, budget="chapter", seeds=(0,), specs=None):
    """Finished runs with their curves. Returns them."""

    def figures(variant, seed):
        held, train = (value + 0.1 * seed for value in ENDS[variant])
        return {PERPLEXITY: held, TRAIN: train}

    def curve(spec, at, ends):
        return finished.falling(spec, at, {"loss_nats": 3.0, PERPLEXITY: ends[PERPLEXITY]})

    return finished.runs(LADDER, text, budget, seeds, specs=specs, figures=figures, curve=curve)


def weights_of(run):
    """Put an untrained model's weights where a run leaves its own."""
    torch.manual_seed(run.id)
    path = Store().directory(run.id) / "checkpoint.safetensors"
    tensors = checkpoint.model_tensors(Transformer(run.spec.config))
    checkpoint.save(path, tensors, {"config": run.spec.config.to_dict()})
    return path


def test_an_empty_page_has_its_frame_and_says_what_to_do(text):
    page = opened()
    assert [row["text"] for row in charts(page)[0]["rules"] if row["text"]] == [
        "chapter 38.07 and 40.57, after 3,000 steps",
        "chapter 60.45, after 3,000 steps",
    ]
    table = lines(page, "model")
    assert len(table) == len(LADDER.variants)
    assert {row["yours"] for row in table.values()} == {":gray[–]"}
    gaps = [row["chapter"] for row in lines(page, "points of perplexity").values()]
    assert gaps == [*(f":gray[*≈ {points}*]" for points in ("9", "−14", "−3", "−1.8")), "2.5"]


def test_results_answer_the_guesses_and_give_each_part_its_worth(text):
    measure(text, seeds=(0, 1))
    page = opened(budget="chapter", seeds="0,1", buys="four-heads", best="two-blocks")
    looks = {(row["name"], row["slot"], row["dash"]) for row in charts(page)[0]["curves"]}
    assert {("one head", "violet", "solid"), ("dropout 0.1", "green", "dashed")} < looks
    assert len({(slot, dash) for _, slot, dash in looks}) == len(LADDER.variants)
    words = said(page)
    assert "You guessed *four heads*. Most is bought by **learned weights**: 14.6" in words
    assert "You guessed *two blocks*. Best on held-out text is **a block with dropout 0.1**, 36.0" in words
    assert "The same head in place of the token costs 9.0 points" in words
    part = lines(page, "part")
    assert list(part) == [rung.part for rung in ladder_parts.PARTS]
    bought = {name: row["bought, yours"] for name, row in part.items()}
    assert (bought["learned weights"], bought["a second block"]) == ("**+14.6**", "**−2.5**")
    assert bought["the token replaced, not added to"] == "**−9.0**"
    cost = {name: (row["parameters"], row["per 1,000"]) for name, row in part.items()}
    assert (cost["learned weights"], cost["W_O"]) == (("+49,152", "+0.30"), ("+16,512", "+0.061"))
    assert cost["four heads"] == ("0", ":gray[–]")
    assert cost["LayerNorm"][0] == "+768"
    beside = lines(page, "points of perplexity")
    assert beside["one head, beside the added average"]["yours"].startswith("**−14.1**")
    assert beside["four heads and W_O, beside one head"]["yours"].startswith("**−3**")
    assert beside["four heads and W_O, beside one head"]["difference"].startswith(":green[")
    assert (
        "W_O alone buys 1.0 points; four heads in place of one, with not a parameter more, buys 2.0" in words
    )
    assert "The heads brought 67 % of the two together." in words


def test_two_blocks_know_their_text_by_heart(text):
    measure(text)
    page = opened(budget="chapter")
    table = lines(page, "on its own text")
    assert [row["chapter"] for row in table.values()] == ["18.77", "14.49", ":gray[–]"]
    assert [row["yours"] for row in table.values()] == ["**19.0**", "**14.5**", "**24.0**"]
    words = said(page)
    assert "2.00 times as perplexed as on its own with one block, 2.79 times with two." in words
    assert "The second block costs 2.5 points" in words
    held, trained = charts(page)[1:3]
    assert {row["name"] for row in held["curves"]} == {"+ LayerNorm", "two blocks", "dropout 0.1"}
    assert trained["curves"][0]["train_perplexity"] == pytest.approx(20.09, abs=0.01)
    assert [row["text"] for row in trained["rules"] if row["text"]] == ["chapter 18.8 and 14.5"]


def test_dropout_is_compared_at_both_budgets(text):
    names = ("block", "block-dropout")
    measure(text, specs=launch.specs(LADDER.id, "chapter", (0,), text, names))
    page = opened()
    table = lines(page, "budget")
    assert all(label.endswith(" passes") and "unknown" not in label for label in table)
    quick, chapter = table.values()
    assert (quick["no dropout"], quick["bought"]) == (":gray[–]", ":gray[–]")
    assert (chapter["no dropout"], chapter["bought"]) == ("**38.0**", "**+2.0**")
    press(page, "ladder.passes-train")
    queued = Store().runs(states=["queued"])
    assert [(run.spec.variant, run.spec.budget_name) for run in queued] == [(name, "quick") for name in names]


def test_a_shipped_reference_stands_in_every_table(text, no_reference):
    shipped = finished.ship(
        no_reference, LADDER, lambda name, seed: {PERPLEXITY: ENDS[name][0] + seed, TRAIN: ENDS[name][1]}
    )
    page = opened(budget="chapter")
    assert lines(page, "model")["+ LayerNorm: a whole block"]["reference"].startswith("38.5 :gray[±")
    part = lines(page, "part")
    assert part["W_O"]["reference"] == "+1.0 :gray[± 0.0]"
    assert part["W_O"]["per 1,000"] == ":gray[+0.061]"
    assert part["learned weights"]["reference"].startswith("+14.6")
    gap = lines(page, "points of perplexity")["one head, beside the added average"]
    assert gap["reference"].startswith("−14.1")
    assert lines(page, "on its own text")["two blocks"]["reference"].startswith("14.5")
    assert lines(page, "budget")[":gray[reference]"]["bought"].startswith("+2.0")
    assert shipped.rows["four-heads"].measured["0"].get(GAP) is None  # the file holds none; loading adds it


def test_where_the_parameters_are(text):
    page = opened(width="12288")
    table = lines(page, "model", 1)
    assert table["+ LayerNorm: a whole block"]["parameters"] == "477,696"
    assert table["+ LayerNorm: a whole block"]["of the block"] == "**66.6 %**"
    assert table["one head added, with positions"]["of the block"] == ":gray[–]"
    parts = lines(page, "part", 1)
    assert parts["feed-forward"]["share"] == "66.7 %"
    assert parts["W_Q"]["parameters"] == f"{12288**2:,}"


# A rung of one's own


def test_the_chapters_block_is_no_rung_of_ones_own(text):
    page = opened()
    assert "This is *the chapter’s block* itself, 477,696 parameters" in said(page)
    assert page.button(key="ladder.own-train").disabled
    assert "own" not in str(charts(page)[0])


def test_an_own_rung_is_trained_beside_the_ladder(text):
    page = opened(budget="chapter", positions="rope")
    assert "Nearest on the ladder: *the chapter’s block*; yours has `positions = 'rope'`" in said(page)
    press(page, "ladder.own-train")
    (run,) = Store().runs()
    assert (run.spec.variant, run.spec.experiment, run.spec.config.positions) == ("own", "ladder", "rope")
    assert run.spec.budget == LADDER.budget("chapter")
    assert page.button(key="ladder.train").label == "Train ten models"  # the ladder itself is not under way
    assert command(run).line is None
    assert "your own" in command(run).why_not


def test_a_finished_own_rung_joins_curves_and_tables(text):
    config = replace(VARIANTS["block"].config, positions="rope", n_layer=2)
    measure(text, specs=[launch.own(LADDER.id, config, "chapter", 0, text)])
    page = opened(budget="chapter", positions="rope", layers="2")
    chart = charts(page)[0]
    assert {(row["name"], row["slot"]) for row in chart["curves"] if row["kind"] == "mean"} == {
        ("your own rung", "sky")
    }
    assert lines(page, "model")["your own rung"]["yours"] == "**37.0**"
    assert lines(page, "model", 1)["your own rung"]["parameters"] == "659,200"
    assert "○" in "".join(str(table.value.iloc[:, 0].tolist()) for table in page.table)
    assert style("own").slot == "sky"


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ({"heads": "3"}, "D_model 128 does not divide into 3 heads; choose n_head so that it does"),
        (
            {"mixer": "average", "positions": "rope"},
            "Rope acts on attention scores; the mixer average has none.",
        ),
        ({"positions": "rope", "heads": "128"}, "RoPE turns pairs of numbers; a head of 1 has an odd one."),
    ],
)
def test_what_does_not_go_together_is_refused_in_the_configurations_words(text, query, sentence):
    page = opened(**query)
    assert sentence in said(page)
    assert page.button(key="ladder.own-train").disabled
    assert Store().runs() == []


def test_the_parts_live_in_the_url(text):
    page = opened(
        mixer="raw", connection="add", heads="8", projection="no", ff="0", layers="3", dropout="0.2"
    )
    assert page.selectbox(key="ladder.mixer").value == "raw"
    assert page.number_input(key="ladder.layers").value == 3
    choose(page, "ladder.mixer", "query-key")
    assert page.query_params["mixer"] == "query-key"
    nearest = next(line for line in said(page).splitlines() if line.startswith("Nearest on the ladder"))
    for changed in ("mixer = 'query-key'", "n_head = 8", "n_layer = 3", "dropout = 0.2"):
        assert f"`{changed}`" in nearest


def test_every_rung_is_nearest_to_itself():
    for name in LADDER.variants:
        assert ladder_own.nearest(VARIANTS[name].config) == (name, {})


# Probes


def test_attention_is_linear_the_feed_forward_is_not_and_layer_norm_keeps_its_promises(text, probes_here):
    page = opened()
    assert probes_here.asked == [("block", {"weights": None})]
    table = lines(page, "part", 2)
    assert table["attention, its weights frozen"]["linear"] == "yes"
    assert table["feed-forward without its GELU"]["linear"] == "yes"
    assert table["feed-forward"]["linear"] == ":red[no]"
    words = said(page)
    assert "Weights: as torch draws them, seed 0; no trained block is here yet." in words
    assert "they could be one" in words
    assert set(means(chart_with(page, "curves", "t"), "t")) == {"frozen attention", "feed-forward"}
    table = lines(page, "the same tokens")
    assert [row["LayerNorm"] for row in table.values()] == ["**0**"] * 4 + ["computed"]
    training = [row["BatchNorm, training"] for row in table.values()]
    assert all(cell.startswith(":red[") for cell in training)
    assert training[-1] == ":red[refused]"
    assert "LayerNorm keeps all four" in words
    assert "Expected more than 1 value per channel" in words


def test_a_probe_that_fails_says_so(text, probes_here):
    def fails(**_):
        raise Unavailable("It could not be measured: no memory")

    probes_here.answers["block"] = fails
    assert said(opened()).count("It could not be measured: no memory") == 2


def test_a_bug_in_a_probe_is_shown_as_one_and_lands_in_the_log(text, probes_here, caplog):
    def fails(**_):
        raise client.ProbeBug("Traceback: an oversight")

    probes_here.answers["block"] = fails
    words = said(opened())
    assert words.count("This probe failed in a way that nobody foresaw.") == 2
    assert "an oversight" not in words
    assert "Traceback: an oversight" in caplog.text


def test_the_probe_looks_into_a_trained_block_where_there_is_one(text, probes_here):
    run = next(run for run in measure(text, "quick") if run.spec.variant == "block")
    path = weights_of(run)
    words = said(opened())
    assert probes_here.asked == [("block", {"weights": path})]
    assert f"Weights: yours, run #{run.id}, {run.spec.budget.steps:,} steps, seed 0." in words


# Samples


def test_rungs_write_side_by_side(text, probes_here):
    config = replace(VARIANTS["block"].config, positions="rope")
    runs = measure(text, "quick")[:2]
    runs += measure(text, specs=[launch.own(LADDER.id, config, "quick", 0, text)])
    for run in runs:
        weights_of(run)
    page = press(opened(prompt="ROMEO:", positions="rope"), "ladder.write")
    written = [code.value for code in page.code if code.value.startswith("ROMEO:")]
    assert len(written) == 3
    assert all(len(one) > len("ROMEO:") for one in written)
    words = said(page)
    assert words.count("No trained model of this rung is here yet.") == len(LADDER.variants) - 2
    assert words.count("Weights: yours, run #") == 3


def test_without_a_prompt_or_a_model_nothing_is_written(text, probes_here):
    assert "There is no trained model here." in said(opened())
    weights_of(measure(text, "quick")[0])
    assert said(press(opened(prompt=" "), "ladder.write")).count("Type at least one word.") == 1
