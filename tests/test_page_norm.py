"""The page Norm placement: the bench, gradients before and while training, and where post-norm breaks."""

from functools import partial
from typing import Any

import pytest

from engine.chapter.experiments import BREAKING, NORM_PLACEMENT
from engine.chapter.measurements import PLACEMENTS
from engine.probes.registry import NORMS
from engine.runs import launch
from engine.runs.store import Store
from engine.system.errors import Unavailable
from lab.runs import card
from lab.sections.norm import breaking
from lab.sections.norm.breaking import PRESETS, RATES, WARMUPS
from tests import finished
from tests.apptest import cells, charts, choose, open_page, press, rerun, said

ENDS = {"pre-norm": 37.9, "pre-norm-warmup": 37.7, "post-norm": 308.6, "post-norm-warmup": 38.0}
SHRINKING = {"pre-norm": 1.0, "pre-norm-warmup": 1.0, "post-norm": 4.0, "post-norm-warmup": 1.5}  # a block


opened = partial(open_page, "norm")


def gradients(shrinking, step):
    """Norms of twelve blocks that shrink by a factor a block towards the first, from step 20 on."""
    factor = shrinking if step >= 20 else 1.05
    return [0.1 / factor ** (11 - block) for block in range(12)]


def records(run, state, ends, shrinking, last):
    """Norms of the blocks at every tenth step, and perplexity at every other of those."""
    for step in range(0, last + 1, 10):
        record: dict[str, Any] = {"step": step, "seconds": step / 10}
        if step:
            record |= {"loss_nats": 5.0, "grad_norm_blocks": gradients(shrinking, step)}
        if step % 20 == 0:
            record["validation_perplexity"] = ends + 900 / (1 + step)
        if state == "diverged" and step == last:
            record = {"step": last, "loss_nats": 140.0, "grad_norm_blocks": [None] * 12, "seconds": 1.0}
        yield record


def write(run, state, ends, shrinking, last=None, reason=""):
    """Put a run into a state, with records up to a step."""
    last = run.spec.budget.steps if last is None else last
    made = records(run, state, ends, shrinking, last)
    finished.write(run, state, {"validation_perplexity": ends}, records=made, reason=reason)


def measure(text, budget="chapter", seeds=(0,), state="done", last=None):
    """Runs of the table in some state."""
    for run in finished.runs(NORM_PLACEMENT, text, budget, seeds, "queued"):
        name = run.spec.variant
        write(run, state, ENDS[name] + 0.1 * run.spec.seed, SHRINKING[name], last)


def measure_cells(text, *cells_of_grid, worse=None):
    """Finished runs of some cells of the grid: broken above the usual rate without a warmup, lost at 1.

    worse: the rate at which one ends worse than a guess.
    """
    specs = launch.breaking((0,), text, cells_of_grid)
    for run in finished.runs(BREAKING, state="queued", specs=specs):
        warmup, rate = breaking.cell_of(run.spec)
        if rate == 1.0:
            write(run, "diverged", 40.0, 4.0, 10, "diverged at step 3: loss is 140 nats")
        elif rate == worse:
            write(run, "done", 33_962.0, 1.2)
        else:
            broken = rate > 0.001 * (1 + warmup / 30)
            write(run, "done", 330.0 if broken else 240.0, 4.0 if broken else 1.2)


def test_an_empty_page_has_its_frames_and_says_what_to_do(text):
    page = opened()
    assert len(charts(page)) == 1 + 1 + 2 + 2
    words = said(page)
    assert "Quick: 12 blocks, 120 steps of 4 × 64 tokens at learning rate 0.001" in words
    assert "post-norm without a warmup is far behind the other three" in words
    assert "Nothing is recorded yet." in words
    assert "Nothing of this row is trained yet." in words
    assert [row["chapter"] for row in cells(page, "model")] == [
        "37.82", "37.62", "308.05", "37.88", "−0.20", "0.26",
    ]  # fmt: skip
    start = cells(page, "gradient norm")
    assert [row["chapter"] for row in start] == ["0.0498", "0.0657", "1.32", "0.0977", "0.1613", "1.65"]
    assert {row["yours"] for row in start} == {":gray[–]"}
    named = {row["name"] for row in charts(page)[1]["curves"]}
    assert named == {"chapter, pre-norm", "chapter, post-norm"}
    labels = [row["text"] for row in charts(page)[0]["rules"] if row["text"]]
    assert labels == [
        "chapter 37.82, 37.62 and 37.88, after 1,000 steps",
        "chapter 308.05, after 1,000 steps",
    ]


def test_two_of_the_four_warm_up(text):
    page = press(opened(budget="chapter"), "norm.train")
    warmups = {run.spec.variant: run.spec.budget.warmup_steps for run in Store().runs()}
    assert warmups == {"pre-norm": 0, "pre-norm-warmup": 200, "post-norm": 0, "post-norm-warmup": 200}
    assert page.button(key="norm.breaking-train").label == "Train five models", "another sweep"


def test_running_models_are_drawn_as_far_as_they_are(text):
    measure(text, state="running", last=400)
    page = opened(budget="chapter", at="300")
    curves = [row for row in charts(page)[0]["curves"] if row["kind"] == "mean"]
    looks = {row["name"]: (row["slot"], row["dash"]) for row in curves}
    assert looks == {
        "pre-norm": ("green", "dashed"), "pre-norm, warmup": ("green", "solid"),
        "post-norm": ("red", "dashed"), "post-norm, warmup": ("red", "solid"),
    }  # fmt: skip
    assert max(row["step"] for row in curves) == 400
    assert len(cells(page, "yours, step 300")) == 4
    later = opened(budget="chapter", at="500")
    assert "Not every model has come to this step" in said(later)


def test_finished_models_stand_beside_the_chapter_and_answer_the_guesses(text):
    measure(text, seeds=(0, 1))
    page = opened(budget="chapter", seeds="0,1", best="pre-norm", worst="post-norm")
    rows = cells(page, "model")
    yours = [row["yours"].partition(" ")[0] for row in rows]
    assert yours == ["**38.0**", "**37.8**", "**308.7**", "**38.0**", "**−0.20**", "**0.30**"]
    assert all(row["difference"].startswith(":green[") for row in rows)
    words = said(page)
    assert "You guessed *pre-norm*. The best is **pre-norm, warmup**" in words
    assert "post-norm ends at **8.13 times** the perplexity of pre-norm" in words
    assert "A warmup saves post-norm 270.6 points." in words


def test_scrubbing_shows_where_post_norm_breaks(text):
    measure(text, budget="quick")
    page = opened(at="10")
    assert page.slider(key="norm.at").max == 120
    early = cells(page, "yours, step 10")
    assert early[2]["last / first"] == "**1.7**"
    choose(page, "norm.at", 60)
    assert page.query_params["at"] == "60"
    rows = cells(page, "yours, step 60")
    assert [row["last / first"] for row in rows] == ["**1**", "**1**", "**4,200,000**", "**86**"]
    assert rows[2]["block 1"] == "**2.4 × 10⁻⁸**"
    assert [row["broken from"] for row in rows] == [":gray[never]"] * 2 + [":red[step 20]", ":gray[never]"]
    ratios, blocks = charts(page)[2:4]
    assert ratios["here"] == [{"step": 60}]
    post = [row["norm"] for row in blocks["curves"] if row["name"] == "post-norm" and row["kind"] == "mean"]
    assert post == pytest.approx(gradients(4.0, 60))
    words = said(page)
    assert "block 1 gets 0.1 in pre-norm and **2.4 × 10⁻⁸** in post-norm" in words
    assert "shrinks 4.0 times a block" in words
    assert "it is broken from step 20 on" in words


def test_a_step_of_a_longer_budget_is_named_and_brought_back(text):
    page = opened(at="700")
    assert "Step 700 is beyond this budget’s 120. Used: 120." in said(page)
    rerun(page)
    assert page.query_params["at"] == "120"
    assert "beyond" not in said(page)


def document(seed=0, **changes):
    """What the probe finds on a text: norms of twelve blocks, steeper in post-norm."""
    ends = (("pre-norm", 0.05, 0.066), ("post-norm", 0.1, 0.16))
    rows = [
        {
            "placement": placement, "seed": seed, "loss_nats": 7.1, "block": [0.2] * 12,
            "qkv": [low + (high - low) * block / 11 for block in range(12)],
            "W_O": [0.05 * (1 + block / 11) for block in range(12)],
        }
        for placement, low, high in ends
    ]  # fmt: skip
    text = {"text": "Tiny Shakespeare", "corpus": "tinyshakespeare", "of_the_chapters_text": True}
    return NORMS.read({"rows": rows, **text, "batch": 64, "context": 128, **changes})


def test_gradients_are_measured_when_asked_for(text, probes_here):
    probes_here.answers["norms"] = lambda seed, **_: document(seed)
    page = opened(seeds="0,1")
    assert not probes_here.asked
    press(page, "norm.measure")
    assert probes_here.asked == [("norms", {"corpus_id": text, "seed": seed}) for seed in (0, 1)]
    rows = cells(page, "gradient norm")
    assert rows[0]["yours"] == "**0.0500** :gray[± 0.0000]"
    assert rows[5]["yours"].startswith("**1.60**")
    assert all(row["difference"].startswith(":green[") for row in rows)
    assert "grows 1.32 times in pre-norm and **1.60 times** in post-norm." in said(page)
    assert len(cells(page, "block")) == 12
    choose(page, "norm.of", "block")
    rows = cells(page, "gradient norm")
    assert {row["chapter"] for row in rows} == {":gray[–]"}
    assert rows[2]["yours"].startswith("**1.00**")
    assert {row["name"] for row in charts(page)[1]["curves"]} == set(PLACEMENTS)
    assert page.query_params["of"] == "block"
    choose(page, "norm.seeds", "0")
    assert "This is of the earlier input." in said(page)


def test_gradients_that_cannot_be_measured_are_told(text, probes_here):
    def refused(**_):
        raise Unavailable("It could not be measured: no room")

    probes_here.answers["norms"] = refused
    page = opened()
    press(page, "norm.measure")
    assert "It could not be measured: no room" in said(page)


def test_gradients_of_another_text_are_compared_with_nothing(text, probes_here):
    other = document(text="Python reference", of_the_chapters_text=False)
    probes_here.answers["norms"] = lambda **_: other
    page = press(opened(), "norm.measure")
    assert "so nothing is compared" in said(page)
    assert {row["name"] for row in charts(page)[1]["curves"]} == set(PLACEMENTS)


def test_the_sweep_trains_what_is_missing_of_its_row_only(text):
    measure(text, budget="quick")  # in it are two cells of the grid
    measure_cells(text, (0, 0.01))
    page = opened()
    assert page.button(key="norm.breaking-train").label == "Train three models"
    press(page, "norm.breaking-train")
    queued = [run.spec for run in Store().runs(states=["queued"])]
    assert [breaking.cell_of(spec) for spec in queued] == [(0, 0.0003), (0, 0.003), (0, 1.0)]
    assert {spec.experiment for spec in queued} == {BREAKING.id}
    assert page.button(key="norm.train").label == "Train four models"


def test_a_row_shows_where_it_breaks_and_keeps_what_diverged(text):
    measure_cells(text, *((0, rate) for rate in RATES))
    page = opened()
    rows = cells(page, "post-norm, no warmup")
    assert [row["perplexity"] for row in rows] == ["**240.0**"] * 2 + ["**330.0**"] * 2 + [":gray[–]"]
    ended = [row["how it ended"] for row in rows]
    assert ended == [*[":green[trains]"] * 2, *[":red[broken]"] * 2, ":red[diverged at step 3]"]
    words = said(page)
    assert "post-norm trains up to rate 0.001 and breaks from **rate 0.003** on" in words
    assert "Rate 1: diverged at step 3: loss is 140 nats. The others went on." in words
    grid, curves = charts(page)[4:]
    assert [row["learning rate"] for row in grid["ends"] if row["kind"] == "cross"] == [1.0]
    assert [row["learning rate"] for row in grid["curves"] if row["kind"] == "mean"] == list(RATES[:-1])
    lost = [row for row in curves["curves"] if row["name"] == "rate 1" and row["kind"] == "mean"]
    assert [(row["step"], row["nats"]) for row in lost] == [(10, 140.0)]
    assert [row["name"] for row in curves["ends"] if row["kind"] == "cross"] == ["rate 1"]
    assert next(row["value"] for row in curves["gutter"] if row["name"] == "rate 1") == "–"


def test_a_run_that_ends_worse_than_a_guess_does_not_count_as_trained(text):
    measure_cells(text, *((0, rate) for rate in RATES), worse=0.001)
    page = opened()
    assert cells(page, "post-norm, no warmup")[1]["how it ended"] == ":red[worse than a guess]"
    assert "trains up to rate 0.0003 and breaks from **rate 0.001** on" in said(page)
    assert "Rate 0.001: it ends at 33,962, above the 1,024 of a uniform guess" in said(page)


def test_warmups_are_swept_at_one_rate_and_other_rows_stay_in_the_figure(text):
    measure_cells(text, *((warmup, 0.003) for warmup in WARMUPS), (60, 0.001), (0, 0.001))
    page = opened(over="warmup", rate="0.003")
    rows = cells(page, "post-norm, rate 0.003")
    assert [row["how it ended"] for row in rows] == [":red[broken]"] * 3 + [":green[trains]"] * 2
    assert "breaks with warmup 30 and trains from **warmup 60** on" in said(page)
    names = {row["name"] for row in charts(page)[4]["curves"]}
    assert names == {"rate 0.003", "rate 0.001"}
    choose(page, "norm.rate", 0.001)
    assert page.query_params["rate"] == "0.001"
    assert page.button(key="norm.breaking-train").label == "Train three models"


def test_presets_lead_to_rows_and_explain_them(text):
    page = opened()
    assert page.pills(key="norm.preset").value == "no-warmup"
    for preset in PRESETS:
        choose(page, "norm.preset", preset.id)
        assert page.session_state["norm.over"] == preset.cut.over
        assert len(set(preset.cut.cells)) == 5
        assert all(warmup in WARMUPS and rate in RATES for warmup, rate in preset.cut.cells)
        assert preset.why in said(page)
    assert (page.query_params["over"], page.query_params["rate"]) == ("warmup", "1")
    choose(page, "norm.rate", 0.01)
    assert "A row of your own." in said(page)
    assert page.pills(key="norm.preset").value is None


def test_no_command_repeats_a_cell_of_the_grid(text):
    measure_cells(text, (0, 0.01))
    (run,) = Store().runs()
    assert "chosen by hand" in card.command(run).why_not
