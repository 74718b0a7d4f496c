"""The page Why sqrt(d_k): the sweep over widths, the rescue, random vectors, other scales."""

import shutil
from functools import partial

from engine.chapter import reference
from engine.chapter.experiments import SCALES, SCALING, SCALING_LONG, SCALING_WIDE
from engine.chapter.measurements import SATURATION, VARIANCE
from engine.probes import registry
from engine.runs import launch
from engine.runs.store import Store
from engine.system import paths
from lab.sections.scaling import parts
from tests import finished
from tests.apptest import cells, charts, choose, means, open_page, press, said

SHIPPED = paths.REFERENCE
opened = partial(open_page, "scaling")
COLLAPSED = {"score_std": 150.0, "entropy_nats": 0.017, "frozen_share": 0.95}


def figures(variant, seed):
    """A perplexity, a spread and a share that tell variants, widths and seeds apart."""
    kind, _, size = variant.partition("-")
    apart = {"32": -0.4, "256": 18.0, "1024": 17.0}.get(size.partition("-")[0], 0.0) * (kind == "undivided")
    return {
        "validation_perplexity": 57.0 + apart + 0.1 * seed,
        **(COLLAPSED if apart > 0 else {"score_std": 2.4, "entropy_nats": 1.9, "frozen_share": 0.05}),
    }


def on_the_way(spec, at, ends):
    """Scores spread towards their end from where a wide head starts."""
    start = 20.0 if ends["score_std"] > 100 else 0.67
    spread = start + (ends["score_std"] - start) * at / spec.budget.steps
    return finished.falling(spec, at, {"grad_norm_W_Q": 0.3, **ends, "score_std": spread})


def measure(text, experiment=SCALING, budget="chapter", seeds=(0,), state="done", step=None, specs=None):
    """Runs in some state, with curves of all figures up to a step. Returns them."""
    return finished.runs(
        experiment, text, budget, seeds, state, last=step, specs=specs, figures=figures, curve=on_the_way
    )


def test_an_empty_page_has_its_frames_and_says_what_to_do(text):
    page = opened()
    words = said(page)
    assert "Quick: 80 steps of 8 × 128 tokens at learning rate 0.01." in words
    assert "No undivided head of these settings is trained yet" in words
    assert len(charts(page)) == 5 + 5 + 4 + 5
    rules = [[row["text"] for row in chart["rules"] if row.get("text")] for chart in charts(page)[:5]]
    assert rules == [["chapter 3.44", "chapter 5,147"], [], ["chapter 99.9\u00a0%"], [], []]
    assert rules == [
        [row["text"] for row in chart["rules"] if row.get("text")] for chart in charts(page)[5:10]
    ]
    lines = cells(page, "beside the chapter")
    assert [line["chapter"] for line in lines][:5] == [":gray[*−1 to 0*]", ":gray[–]", ":gray[–]", "18", "17"]
    assert [line["chapter"] for line in lines][5:] == ["5,147", "99.9 %", "3.44"]
    assert {line["yours"] for line in lines} == {":gray[–]"}


def test_train_queues_the_sweep_and_what_the_narrow_heads_add(text):
    page = opened(budget="chapter", seeds="0,1")
    press(page, "scaling.train")
    runs = Store().runs()
    assert len(runs) == 20
    assert {run.spec.variant for run in runs} == {*SCALING.variants, *SCALING_LONG.variants}
    assert len({run.digest for run in runs}) == 20
    assert [run.spec.seed for run in runs] == [0] * 10 + [1] * 10


def test_a_running_sweep_shows_five_panels_of_one_width_and_its_progress(text):
    measure(text, state="running", step=600)
    page = opened(budget="chapter", width="256")
    assert "Running: step 600 of" in said(page)
    five = charts(page)[:5]
    for chart, panel in zip(five, parts.PANELS, strict=True):
        rows = [row for row in chart["curves"] if row["kind"] == "mean"]
        assert {row["name"] for row in rows} == {"divided", "undivided"}
        assert {row["slot"] for row in rows} == {"green", "red"}
        assert max(row["step"] for row in rows) == 600
        assert all(panel.metric in row for row in rows)
        assert chart["done"] == [{"from": 0, "to": 600.0}]
    names = [[row.get("name") for row in chart["gutter"]] for chart in five]
    assert names[:4] == [[None]] * 4  # only in the last panel
    assert set(names[4]) == {"divided", "undivided"}


def test_the_tables_name_a_winner_and_stand_beside_the_chapter(text):
    measure(text, seeds=(0, 1))
    measure(text, SCALING_LONG, seeds=(0, 1))
    page = opened(budget="chapter", seeds="0,1", helps="32", frozen="half")
    first = cells(page, "perplexity")
    assert [row["perplexity"] for row in first] == [
        "d_k 32, in a block, 3,000 steps",
        "d_k 128, in a block, 3,000 steps",
        "d_k 128",
        "d_k 256",
        "d_k 1024",
    ]
    saved = [row["points saved"].split(" ")[0] for row in first]
    assert saved == ["**−0.4**", "**+0.0**", "**+0.0**", "**+18.0**", "**+17.0**"]
    winners = [row["winner"] for row in first]
    assert winners == [":red[●] undivided", *[":gray[tie]"] * 2, *[":green[●] divided"] * 2]
    ends = cells(page, "scores at the end")[-1]
    assert ends["std, undivided"].startswith("**150**")
    assert ends["over 0.99, undiv."].startswith("**95.0 %**")
    lines = {line["beside the chapter"]: line for line in cells(page, "beside the chapter")}
    assert lines["worth, d_k 1024"]["difference"].startswith(":green[")
    assert "outside" in lines["std of scores, undivided, d_k 1024"]["difference"]
    words = said(page)
    assert "You guessed *d_k 32*. In perplexity the division helps from **d_k 256** on." in words
    assert "You guessed *about half*. Unscaled at d_k 1024, **95.0 %** of the rows" in words


def test_the_shipped_reference_stands_in_its_own_column(text, no_reference):
    ends = {"divided-1024": (57.0, 2.4), "undivided-1024": (75.0, 149.0)}

    def shipped(name, seed):
        perplexity, spread = ends[name]
        return {"validation_perplexity": perplexity + seed, "score_std": spread}

    finished.ship(no_reference, SCALING, shipped, tuple(ends))
    page = opened(budget="chapter")
    lines = {line["beside the chapter"]: line for line in cells(page, "beside the chapter")}
    assert lines["worth, d_k 1024"]["reference"] == "18 :gray[± 0]"
    assert lines["std of scores, undivided, d_k 1024"]["reference"].startswith("149")
    assert {line["yours"] for line in lines.values()} == {":gray[–]"}


def test_seed_noise_is_no_win_and_a_diverged_model_loses(text):
    def noisy(variant, seed):
        return figures(variant, seed) | (
            {"validation_perplexity": 74.0 + 2 * seed} if variant == "divided-256" else {}
        )

    lost = {"state": "diverged", "only": ["undivided-1024"], "last": 600, "curve": on_the_way}
    finished.runs(SCALING, text, "chapter", (0, 1), figures=noisy, **lost)
    page = opened(budget="chapter", seeds="0,1")
    winners = {row["perplexity"]: row["winner"] for row in cells(page, "perplexity")}
    assert winners["d_k 1024"] == ":green[●] divided"
    assert winners["d_k 256"] == ":gray[tie, within seed noise]"


def test_a_collapsed_head_is_forked_once(text):
    runs = measure(text, budget="quick")
    page = opened()
    assert page.selectbox(key="scaling.rescue").value == "1024-0"
    assert page.button(key="scaling.rescue-train").label == "Put the division back"
    choose(page, "scaling.rescue", "256-0")
    press(page, "scaling.rescue-train")
    (fork,) = Store().runs(states=["queued"])
    parent = next(run for run in runs if run.spec.variant == "undivided-256")
    assert fork.spec.start_from == f"{parent.id}:{parent.digest}"
    assert (fork.spec.variant, fork.spec.experiment) == ("divided-256", "scaling-rescue")
    assert page.button(key="scaling.rescue-cancel").label == "Cancel"
    assert page.button(key="scaling.train").label == "Train ten models"  # the sweep itself is not under way


def test_the_rescue_goes_on_where_the_collapse_ended(text):
    runs = measure(text, budget="quick")
    parent = next(run for run in runs if run.spec.variant == "undivided-1024")
    measure(text, specs=[launch.rescue(parent.id, parent.spec)])
    page = opened(rescue="1024-0")
    spread = charts(page)[5]
    reach = means(spread, "step")
    assert max(reach["undivided"]) == max(reach["divided all along"]) == 80
    assert (min(reach["division put back"]), max(reach["division put back"])) == (80, 160)
    assert {row["dash"] for row in spread["curves"] if row["name"] == "division put back"} == {"dashed"}
    table = cells(page, "yours")
    assert [line["yours"] for line in table][:2] == ["undivided, 80 steps", "division put back, no step yet"]
    assert table[0]["std of scores"] == "**150**"
    assert table[2]["std of scores"] == "**2.40**"
    words = said(page)
    assert "the share of rows over 0.99 goes from 95.0 % to **5.0 %**" in words
    assert "Divided all along they are 5.0 % and 2.40." in words


def test_other_scales_train_the_three_that_are_missing(text):
    measure(text, budget="quick")
    page = opened()
    assert page.button(key="scaling.scales-train").label == "Train three models"
    press(page, "scaling.scales-train")
    queued = [run.spec.variant for run in Store().runs(states=["queued"])]
    assert queued == list(SCALES.variants[2:])
    table = cells(page, "d_k 1024")
    assert [line["perplexity, yours"] for line in table] == ["**57.0**", "**74.0**", *[":gray[–]"] * 3]


def test_models_as_wide_as_their_heads_stand_beside_the_chapter_on_their_own(text):
    page = opened(budget="chapter")
    assert "1,500 steps of 32 × 128 tokens at learning rate 0.001." in said(page)
    assert page.button(key="scaling.wide-train").label == "Train four models"
    press(page, "scaling.wide-train")
    runs = Store().runs()
    assert [run.spec.variant for run in runs] == list(SCALING_WIDE.variants)
    assert {run.spec.budget.learning_rate for run in runs} == {1e-3}
    measure(text, SCALING_WIDE)
    page = opened(budget="chapter")
    models = cells(page, "d_k and d_model")
    assert [line["perplexity, yours"] for line in models] == ["**57.0**", "**75.0**", "**57.0**", "**74.0**"]
    sweep, wide = cells(page, "beside the chapter"), cells(page, "beside the chapter", 1)
    assert {line["yours"] for line in sweep} == {":gray[–]"}
    assert [line["beside the chapter"] for line in wide][:2] == [
        "worth, d_k 256, model as wide",
        "worth, d_k 1024, model as wide",
    ]
    assert [line["chapter"] for line in wide] == ["18", "17", "5,147", "99.9 %", "3.44"]
    assert wide[1]["difference"] == ":green[+0]"


MEASURED = {
    "variance": [
        {"d": 4, "variance": 3.975311, "std": 1.993818},
        {"d": 1024, "variance": 1015.5617, "std": 31.86788},
    ],
    "saturation": [
        {
            "d": d,
            "undivided": {"effective_tokens": 1.18, "frozen_share": 0.6975, "trace": 0.076,
                          "gradient_share": 0.007, "gradient_share_median": 1.83e-5},
            "divided": {"effective_tokens": 40.2, "frozen_share": 0.0, "trace": 0.9614,
                        "gradient_share": 0.022, "gradient_share_median": 0.0212},
        }
        for d in (4, 1024)
    ],
    "pairs": 20000, "rows": 2000, "keys": 64, "seed": 0,
}  # fmt: skip


def random_vectors(probes_here, **changes):
    """Let the probe find that."""
    found = registry.SCALING.read({**MEASURED, **changes})
    probes_here.answers["scaling"] = lambda **_: found


def test_random_vectors_are_measured_when_asked_for(text, probes_here):
    random_vectors(probes_here)
    page = opened()
    assert not probes_here.asked
    assert cells(page, "width d")[0] == {
        "width d": "4, σ²",
        "chapter": "3.975",
        "reference": ":gray[–]",  # this fixture ships none
        "yours": ":gray[–]",
        "difference": ":gray[–]",
    }
    assert "No reference is shipped with this copy." in said(page)
    press(page, "scaling.measure")
    assert probes_here.asked == [("scaling", {"pairs": 20_000, "d_heads": [4, 16, 64, 256, 1024]})]
    assert [list(line.values()) for line in cells(page, "width d")[:2]] == [
        ["4, σ²", "3.975", ":gray[–]", "**3.975**", ":green[+3.1e−4]"],
        ["4, σ :gray[√d = 2]", "1.994", ":gray[–]", "**1.994**", ":green[−1.8e−4]"],
    ]
    assert cells(page, "width d, undivided : divided")[1]["gradient"] == "**1.8e−5** : 0.021"
    assert "earlier input" not in said(page)
    choose(page, "scaling.pairs", 100)
    assert len(probes_here.asked) == 1, "nothing is measured without being asked"
    assert "This is of the earlier input. Press the button to measure anew." in said(page)
    assert page.query_params["pairs"] == "100"


def test_random_vectors_stand_beside_the_chapter_and_the_shipped_reference(text, no_reference, probes_here):
    for name in (VARIANCE.id, SATURATION.id):
        shutil.copy(SHIPPED / f"{name}.json", no_reference)
    reference.load.cache_clear()
    random_vectors(probes_here)
    page = opened()
    press(page, "scaling.measure")
    assert cells(page, "width d")[0]["reference"] == "3.975"
    wide = cells(page, "width d, undivided : divided")
    names = [line["width d, undivided : divided"] for line in wide]
    assert names == ["4", ":gray[reference]", "1,024", ":gray[reference]"]
    assert wide[3]["over 0.99"].startswith(":gray[7")
    lines = {line["beside the chapter"]: line for line in beside(page)}
    frozen = lines["rows over 0.99, undivided, 1024"]
    assert (frozen["chapter"], frozen["yours"]) == ("70.0 %", "**69.8 %**")
    assert frozen["difference"].startswith(":green[")
    assert lines["trace, divided, 1024"]["chapter"] == ":gray[*≈ 0.96*]"
    assert lines["effective tokens, undivided, 256"]["yours"] == ":gray[–]"  # this width was not measured
    assert "Its variances are of seed 0, its rows of seeds 0, 1, 2; yours are of seed 0" in said(page)


def test_other_pairs_than_the_chapters_are_named_and_judge_nothing(text, probes_here):
    random_vectors(probes_here, pairs=100)
    page = opened(pairs="100")
    press(page, "scaling.measure")
    words = (
        "of chapter and reference are of 20,000 pairs, yours of 100, so grey differences are not comparable."
    )
    assert words in said(page)
    assert cells(page, "width d")[0]["difference"] == ":gray[+3.1e−4]"


def beside(page):
    """The chapter's table of the random rows, which comes after that of the trained heads."""
    return cells(page, "beside the chapter", -1)


def test_what_cannot_be_measured_is_told(text, probes_here):
    page = opened(pairs="50000", widest="4096")
    press(page, "scaling.measure")
    assert "50,000 pairs with d 4,096; allowed: at most 24,414 pairs." in said(page)


def test_a_collapsed_head_that_is_not_there_is_named(text):
    measure(text, budget="quick")
    page = opened(rescue="256-7")
    assert "No finished undivided head of these settings is 256-7." in said(page)
    assert page.session_state["scaling.rescue"] == "1024-0"
