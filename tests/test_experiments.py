"""Experiments: seeds exactly as written, budgets within bounds, the chapter's own figures, stable digests."""

import json
import re
from dataclasses import fields, replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from engine.chapter.budget import Budget
from engine.chapter.experiments import (
    BREAKING,
    EXPERIMENTS,
    MAX_SEED,
    METRICS,
    RESCUE,
    VARIANTS,
    ChapterValue,
    experiment,
    parse_seeds,
)
from engine.data.languages import shelf
from engine.data.languages.winograd import CLOSED
from engine.models.config import ModelConfig
from engine.runs import launch
from engine.runs.spec import RunSpec, digest

# What the chapter says of each row (chapter_facts.md): the digits it prints, or the range its prose allows.
CHAPTER = {
    ("averages", "no-context"): 59.71,
    ("averages", "average"): (247.9, 248.2),
    ("averages", "average-positions"): (247.9 - 2.14, 248.2 - 2.14),
    ("averages", "average-added"): 60.45,
}
# The same for what is not the table's own metric. A perplexity gap is what the division is worth.
CHAPTER_FIGURES = {
    ("scaling-training", "undivided-1024", "score_std"): 5147,
    ("scaling-training", "divided-1024", "score_std"): 3.44,
    ("scaling-training", "undivided-1024", "frozen_share"): 0.999,
    ("scaling-training", "undivided-1024", "perplexity_gap"): 17,
    ("scaling-training", "undivided-256", "perplexity_gap"): 18,
    ("scaling-training-long", "undivided-32", "perplexity_gap"): (-1, 1),
}
# The same figures of the same rows: the chapter does not say how wide the model around the head was.
CHAPTER_FIGURES |= {
    ("scaling-training-wide", f"{name}-wide", metric): value
    for (experiment_id, name, metric), value in CHAPTER_FIGURES.items()
    if experiment_id == "scaling-training"
}
CHAPTER |= {
    ("ladder", "average-added"): 60.45,
    ("ladder", "block"): 38.07,
    ("ladder", "two-blocks"): 40.57,
    ("norm-placement", "pre-norm"): 37.82,
    ("norm-placement", "pre-norm-warmup"): 37.62,
    ("norm-placement", "post-norm"): 308.05,
    ("norm-placement", "post-norm-warmup"): 37.88,
}
# The ladder's gaps are what its prose says of two rows.
CHAPTER_FIGURES |= {
    ("ladder", "block", "train_perplexity"): 18.77,
    ("ladder", "two-blocks", "train_perplexity"): 14.49,
    ("ladder", "head-replaces", "perplexity_gap"): 9,
    ("ladder", "head-added", "perplexity_gap"): -14,
    ("ladder", "four-heads", "perplexity_gap"): -3,
    ("ladder", "block", "perplexity_gap"): -1.8,
    ("positions", "alibi", "perplexity_64"): 44.95,
    ("positions", "alibi", "perplexity_256"): 42.49,
}
CHAPTER_FIGURES |= {
    ("winograd-open", "average", "accuracy"): 1.0,
    ("winograd-open", "one-block", "accuracy"): 0.917,
    ("winograd-closed", "average", "accuracy"): 0.279,
    ("winograd-closed", "average", "wrong_noun"): 0.5,
    ("winograd-closed", "one-block", "accuracy"): 0.927,
    ("winograd-closed", "two-blocks", "accuracy"): 1.0,
}
# How far of it, of a hundred, a share may lie and count as reproduced.
POINTS = {
    ("winograd-open", "average", "accuracy"): 0.5,
    ("winograd-open", "one-block", "accuracy"): 6,
    ("winograd-closed", "average", "accuracy"): 6,
    ("winograd-closed", "average", "wrong_noun"): 6,
    ("winograd-closed", "one-block", "accuracy"): 5,
    ("winograd-closed", "two-blocks", "accuracy"): 0.5,
}
RECORDED = {
    *("validation_perplexity", "train_perplexity", "score_std", "entropy_nats", "frozen_share"),
    *("accuracy", "wrong_noun"),
}
# Of all runs of a table at both budgets, as the lab stored them before it knew any language.
DIGESTS = {
    "averages": "165e849c5d822d7b7f10d7f6771bf9a1",
    "mask": "cffdcc169c60ddf6f15912711a1680a0",
    "query-key-value": "cabc7c60076ed6f8a5282c689f6fcd76",
    "scaling-training": "0ab372f2bec06b2e9ec22b0e176ce795",
    "scaling-training-long": "044aaeae1b8b44f4bd0016c95d28af1c",
    "scaling-training-wide": "90fb10d98b74ac3caf156bb6c845060f",
    "scaling-scales": "35b5c837dfe536299415c6fac7746f41",
    "ladder": "0a7dcb12b2d0c89e77ec96ddbce53a46",
    "norm-placement": "d86b3268af1004e3b83497c066718816",
    "positions": "2b512cb7a0922c4c7531abe9e35a6414",
    "scaling-rescue": "7696b8e1985baf560eb560046f060362",
    "norm-breaking": "bff17de203708f325b8bf8d3d6ce25f0",
}
CHAPTER_BUDGETS = [
    (name, variant_id, shown.budget("chapter", variant_id))
    for name, shown in EXPERIMENTS.items()
    for variant_id in shown.variants
]


def spec(**changes):
    values = {
        "experiment": "averages",
        "variant": "average",
        "budget_name": "quick",
        "config": VARIANTS["average"].config,
        "budget": Budget(steps=100),
        "corpus": "tinyshakespeare",
        "corpus_sha256": "0" * 64,
        "seed": 0,
    }
    return RunSpec(**{**values, **changes})


# Seeds


@pytest.mark.parametrize(
    ("text", "seeds"),
    [
        ("0", (0,)),
        ("0,1,2", (0, 1, 2)),
        (" 2 , 0 ", (2, 0)),
        ("\t7\n", (7,)),
        ("9007199254740993", (9007199254740993,)),
        ("9223372036854775807,9007199254740992", (9223372036854775807, 9007199254740992)),
        ("007", (7,)),
    ],
)
def test_seeds_are_taken_exactly_as_written(text, seeds):
    assert parse_seeds(text) == seeds


@pytest.mark.parametrize(
    "text",
    [
        *("-1", "+1", "1.0", "1e3", "0x1", "1_000", "1 000", "one", "NaN", "18446744073709551616"),
        *("9223372036854775808", "1,1", "1,01", "", " ", ",", "1,", ",1", "1,,2", "1;2", "[1]", "9" * 5000),
        *("١", "１", "²", "1\u00a02", "−1", "1\x00"),  # digits of other scripts, a true minus, a null
    ],
)
def test_what_is_no_list_of_seeds_is_refused_with_the_range(text):
    with pytest.raises(ValueError, match="allowed") as refused:
        parse_seeds(text)
    assert repr(text) in str(refused.value)
    assert "whole numbers from 0 to 9223372036854775807, separated by commas, each once." in str(
        refused.value
    )


@given(st.lists(st.integers(0, MAX_SEED), min_size=1, max_size=6, unique=True))
@example([2**53, 2**53 + 1])
def test_any_seeds_survive_their_text(seeds):
    assert parse_seeds(",".join(map(str, seeds))) == tuple(seeds)


@given(st.text(alphabet="0123456789,- .e", max_size=12))
def test_seeds_are_whole_or_refused_never_guessed(text):
    try:
        seeds = parse_seeds(text)
    except ValueError:
        return
    assert [str(seed) for seed in seeds] == [part.strip().lstrip("0") or "0" for part in text.split(",")]


# Budgets

WHOLE = {
    "steps": 10_000_000,
    "batch_size": 65_536,
    "context_length": 1_048_576,
    "evaluate_every": 10_000_000,
    "checkpoint_every": 10_000_000,
}


def test_every_field_of_a_budget_is_policed():
    others = {"learning_rate", "warmup_steps", "also_at", "evaluate_early", "precision", "keep_every"}
    assert {field.name for field in fields(Budget)} == {*WHOLE, *others}


def test_a_budget_is_decided_by_all_but_how_often_it_is_looked_at():
    budget = Budget(steps=3)
    watched = {"evaluate_every": 100, "checkpoint_every": 250, "evaluate_early": True, "keep_every": 0}
    unused = {"warmup_steps": 0, "also_at": (), "precision": "float32"}
    assert budget.decisive() | watched | unused == budget.to_dict()
    assert not budget.decisive().keys() & {*watched, *unused}
    used = Budget(steps=3, warmup_steps=2, also_at=(64,)).decisive()
    assert (used["warmup_steps"], used["also_at"]) == (2, (64,))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"warmup_steps": -1}, "warmup_steps is -1; allowed: a whole number from 0 to 10,000,000."),
        ({"warmup_steps": True}, "warmup_steps is True; allowed: a whole number"),
        ({"warmup_steps": 1.5}, "warmup_steps is 1.5; allowed: a whole number"),
        ({"evaluate_early": 0}, "evaluate_early is 0; allowed: true or false."),
        ({"also_at": (0,)}, "also_at has 0; allowed: whole numbers from 1 to 1,048,576."),
        ({"also_at": ("64",)}, "also_at has '64'; allowed: whole numbers"),
        (
            {"keep_every": -1},
            "keep_every is -1; allowed for 1,000 steps: 0, or a whole number from 5 to 10,0",
        ),
        ({"keep_every": 4}, "keep_every is 4; allowed for 1,000 steps: 0, or a whole number from 5"),
        ({"keep_every": 10_000_001}, "keep_every is 10000001; allowed"),
        ({"keep_every": True}, "keep_every is True; allowed"),
        ({"keep_every": 10.0}, "keep_every is 10.0; allowed"),
        ({"precision": "float16"}, "precision is 'float16'; allowed: float32, bfloat16."),
    ],
)
def test_a_wrong_warmup_length_or_precision_is_refused(given, said):
    with pytest.raises(ValueError, match="allowed") as refused:
        Budget(steps=1000, **given)
    assert str(refused.value).startswith(said)


@given(st.data(), st.sampled_from(sorted(WHOLE)))
def test_a_wrong_number_in_a_budget_is_refused(data, name):
    wrong = data.draw(
        st.integers(max_value=0)
        | st.integers(min_value=WHOLE[name] + 1)
        | st.booleans()
        | st.floats()
        | st.text()
        | st.none()
    )
    with pytest.raises(ValueError, match="allowed") as refused:
        Budget(**{"steps": 1, name: wrong})
    assert str(refused.value) == f"{name} is {wrong!r}; allowed: a whole number from 1 to {WHOLE[name]:,}."


@pytest.mark.parametrize(
    "wrong", [0, -1e-3, float("nan"), float("inf"), 1.1e9, True, "1e-3", None, 10**400, [1e-3]]
)
def test_a_wrong_learning_rate_is_refused(wrong):
    with pytest.raises(ValueError, match="allowed") as refused:
        Budget(steps=1, learning_rate=wrong)
    assert str(refused.value) == f"learning_rate is {wrong!r}; allowed: above 0, at most 1e9."


@given(st.floats(min_value=0, max_value=1e9, exclude_min=True))
def test_a_budget_survives_json(learning_rate):
    budget = Budget(steps=7, learning_rate=learning_rate, warmup_steps=3, also_at=(64, 128))
    assert Budget(**json.loads(json.dumps(budget.to_dict()))) == budget


# The chapter's tables


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_an_experiment_is_complete(name):
    shown = EXPERIMENTS[name]
    assert shown.id == name
    assert re.fullmatch(r"[a-z]+(-[a-z]+)*", name)
    assert shown.question.endswith("?")
    assert shown.variants
    assert set(shown.weights) <= set(shown.variants)
    assert len(set(shown.variants)) == len(shown.variants)
    assert set(shown.budgets) == {"quick", "chapter"}
    assert {name for _, name in shown.own_budgets} <= set(shown.variants)
    for variant_id in shown.variants:
        assert shown.budget("quick", variant_id).steps < shown.budget("chapter", variant_id).steps
    assert shown.metric in RECORDED & set(METRICS)
    assert len(set(shown.figures)) == len(shown.figures) >= len(shown.variants)
    assert len(set(shown.seeds)) == len(shown.seeds)
    for variant_id in shown.variants:
        assert shown.seeds_of(variant_id) == shown.seeds[: len(shown.seeds_of(variant_id))]
    assert set(shown.own_seeds) <= set(shown.variants)
    assert len(shown.seeds) >= 2, "a spread needs two seeds"
    assert shown.seeds == tuple(range(shown.seeds[0], shown.seeds[0] + len(shown.seeds)))
    assert shown.seeds[0] == (10 if name.startswith("winograd") else 0), "weights are shipped of the first"
    assert {shown.shows, shown.hides, shown.title, METRICS[shown.metric]}.isdisjoint({""})


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_a_learned_table_covers_the_training_window(name):
    shown = EXPERIMENTS[name]
    for variant_id in shown.variants:
        config = shown.variant(variant_id).config
        longest = max(shown.budget(budget, variant_id).context_length for budget in shown.budgets)
        if config.positions == "learned" or config.mixer == "matrix":
            assert config.max_positions >= longest


@pytest.mark.parametrize(("name", "variant_id", "budget"), CHAPTER_BUDGETS)
def test_a_chapter_budget_is_a_variants_own_or_the_experiments(name, variant_id, budget):
    shown = EXPERIMENTS[name]
    assert budget == shown.own_budgets.get(("chapter", variant_id), shown.budgets["chapter"])
    quick = shown.budget("quick", variant_id)
    assert quick == shown.own_budgets.get(("quick", variant_id), shown.budgets["quick"])
    assert shown.budget("chapter") == shown.budgets["chapter"]


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_the_chapters_values_are_of_printed_rows_and_sane(name):
    shown = EXPERIMENTS[name]
    for (variant, metric), value in shown.chapter.items():
        assert variant in shown.variants
        also = {f"perplexity_{length}" for length in shown.budget("chapter", variant).also_at}
        assert metric in RECORDED | {"perplexity_gap"} | also
        assert (variant, metric) in shown.figures
        assert METRICS[metric]
        assert value.low <= value.middle <= value.high
        assert value.low == value.high or not value.printed
        assert 0 < value.tolerance < 1
        assert value.where
        assert value.printed or value.conditions, "an inferred value says what it was inferred from"


@pytest.mark.parametrize(("name", "variant"), CHAPTER)
def test_the_chapters_values_are_those_it_gives(name, variant):
    said, value = CHAPTER[name, variant], EXPERIMENTS[name].chapter[variant, "validation_perplexity"]
    if isinstance(said, float):
        assert (value.low, value.high, value.printed) == (said, said, True)
    else:
        assert (value.low, value.high) == pytest.approx(said, abs=1e-9)
        assert not value.printed


@pytest.mark.parametrize(("name", "variant_id", "metric"), CHAPTER_FIGURES)
def test_the_chapters_other_figures_are_those_it_gives(name, variant_id, metric):
    said, value = CHAPTER_FIGURES[name, variant_id, metric], EXPERIMENTS[name].chapter[variant_id, metric]
    low, high = said if isinstance(said, tuple) else (said, said)
    if points := POINTS.get((name, variant_id, metric)):
        assert value.tolerance * said == pytest.approx(points / 100)
    assert (value.low, value.high) == (low, high)
    assert value.printed == (low == high and (name, metric) != ("ladder", "perplexity_gap"))


def test_no_figure_is_the_chapters_that_it_does_not_give():
    given_here = {(name, variant_id, "validation_perplexity") for name, variant_id in CHAPTER} | set(
        CHAPTER_FIGURES
    )
    assert given_here == {(name, *key) for name, shown in EXPERIMENTS.items() for key in shown.chapter}


def test_a_gap_is_between_a_variant_and_one_of_its_own_budget():
    for shown in EXPERIMENTS.values():
        for variant_id, metric in shown.chapter:
            if metric == "perplexity_gap":
                other = shown.beside.get(variant_id) or shown.variant(variant_id).parent
                assert other in shown.variants
                assert shown.budget("chapter", variant_id) == shown.budget("chapter", other)


def test_the_scaling_budgets_are_those_the_chapter_gives():
    # Head widths 32 and 128 for 3000 steps; then 128, 256 and 1024 for 1500 steps of batch 32.
    long = Budget(steps=3000, batch_size=64)
    short = replace(long, steps=1500, batch_size=32)
    for kind in ("divided", "undivided"):
        for width, budget in ((32, long), (128, short), (256, short), (1024, short)):
            assert EXPERIMENTS["scaling-training"].budget("chapter", f"{kind}-{width}") == budget
        for width in (32, 128):
            assert EXPERIMENTS["scaling-training-long"].budget("chapter", f"{kind}-{width}") == long
        config = VARIANTS[f"{kind}-256"].config
        assert (config.n_head, config.effective_d_head, config.connection, config.positions) == (
            1,
            256,
            "add",
            "learned",
        )


def test_the_chapters_budget_is_the_one_it_prints():
    assert EXPERIMENTS["averages"].budgets["chapter"] == Budget(
        steps=3000, batch_size=64, context_length=128, learning_rate=1e-3
    )
    config = VARIANTS["no-context"].config
    assert (config.vocab_size, config.d_model, config.tied, config.unembedding_bias) == (
        1024,
        128,
        False,
        True,
    )


def test_the_middle_of_a_range_is_what_a_difference_is_taken_from():
    value = ChapterValue(low=247.9, high=248.2, tolerance=0.03, printed=False, where="here")
    assert value.middle == pytest.approx(248.05)


def test_unknown_names_are_refused_with_those_there_are():
    with pytest.raises(ValueError, match=r"^no experiment 'Averages'; there are: averages.*\.$"):
        experiment("Averages")
    with pytest.raises(ValueError, match=r"^no budget 'slow'; there are: quick, chapter\.$"):
        experiment("averages").budget("slow")
    with pytest.raises(
        ValueError, match=r"^no variant 'block' in averages; there are: no-context, average, "
    ):
        experiment("averages").variant("block")


# Runs of an experiment


def test_a_sweep_is_every_variant_of_every_seed_seed_by_seed(tiny_corpus):
    made = launch.specs("averages", "quick", (5, 3), tiny_corpus)
    names = EXPERIMENTS["averages"].variants
    assert [(s.seed, s.variant) for s in made] == [(seed, name) for seed in (5, 3) for name in names]
    for one in made:
        assert one.config == VARIANTS[one.variant].config
        assert one.budget == EXPERIMENTS["averages"].budgets["quick"]
        assert one.corpus_sha256.startswith(tiny_corpus.removeprefix("upload-"))
    assert len({s.digest for s in made}) == len(made)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_a_sweep_gives_every_variant_its_own_budget(tiny_corpus, name):
    shown = EXPERIMENTS[name]
    for budget_name in shown.budgets:
        made = launch.specs(name, budget_name, shown.seeds, shown.language or tiny_corpus)
        assert [s.budget for s in made] == [shown.budget(budget_name, s.variant) for s in made]
        assert [s.config for s in made] == [shown.variant(s.variant).config for s in made]
        assert len({s.digest for s in made}) == len(made)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"experiment_id": "avrages"}, "no experiment 'avrages'; there are: averages"),
        ({"budget_name": "long"}, "no budget 'long'; there are: quick, chapter."),
        ({"variants": ["average", "averge"]}, "no variant 'averge' in averages; there are: no-context, "),
        ({"corpus_id": "../x"}, "No corpus is called '../x'"),
        ({"corpus_id": f"upload-{'0' * 16}"}, f"upload-{'0' * 16} is not on this machine"),
    ],
)
def test_a_sweep_of_unknown_names_is_refused(tiny_corpus, change, said):
    arguments = {"experiment_id": "averages", "budget_name": "quick", "seeds": (0,), "corpus_id": tiny_corpus}
    with pytest.raises(ValueError, match=re.escape(said)):
        launch.specs(**{**arguments, **change})


def test_one_id_is_another_model_in_the_table_of_a_language():
    text, language = experiment("ladder"), experiment("winograd-closed")
    for name in ("average-added", "two-blocks"):
        assert text.variant(name) is VARIANTS[name]
        assert language.variant(name).config != VARIANTS[name].config
    made = launch.specs("winograd-closed", "quick", (0,), "winograd-closed", ["two-blocks"])
    assert [one.config for one in made] == [language.variant("two-blocks").config]
    assert made[0].corpus_sha256 == shelf.sha256_of("winograd-closed")


@pytest.mark.parametrize("name", [name for name, shown in EXPERIMENTS.items() if shown.language])
def test_a_table_of_a_language_has_its_words_and_its_window(name):
    shown = EXPERIMENTS[name]
    language = shelf.BUILT_IN[shown.language]
    for variant_id in shown.variants:
        assert shown.variant(variant_id).config.vocab_size == len(language.words)
        for budget in shown.budgets:
            assert shown.budget(budget, variant_id).context_length == language.context_length


def test_an_edited_language_is_trained_on_with_as_many_words_as_it_has(home):
    edited = shelf.keep(replace(CLOSED, nouns=(*CLOSED.nouns, "camel", "llama")))
    for made in launch.specs("winograd-closed", "quick", (0,), edited):
        assert (made.corpus, made.config.vocab_size) == (edited, 38)
        usual = experiment("winograd-closed").variant(made.variant).config
        assert replace(made.config, vocab_size=36) == usual
    assert launch.own("winograd-closed", usual, "quick", 0, edited).corpus_sha256 == shelf.sha256_of(edited)


@pytest.mark.parametrize(
    ("experiment_id", "corpus_id", "said"),
    [
        ("averages", "winograd-closed", "winograd-closed is a language; averages trains on a text."),
        ("averages", f"winograd-{'0' * 16}", "is a language; averages trains on a text."),
        (
            "winograd-closed",
            "winograd-open",
            "'winograd-open' is no language that winograd-closed trains on; allowed: winograd-closed or one "
            "edited from it.",
        ),
        ("winograd-open", "induction", "'induction' is no language that winograd-open trains on"),
        (
            "winograd-closed",
            "tinyshakespeare",
            "'tinyshakespeare' is no language that winograd-closed trains",
        ),
        ("winograd-closed", f"winograd-{'0' * 16}", f"winograd-{'0' * 16} is not on this machine"),
        ("induction", "python-reference", "no language that induction trains on; allowed: induction."),
    ],
)
def test_a_corpus_of_another_kind_than_a_table_trains_on_is_refused(home, experiment_id, corpus_id, said):
    with pytest.raises(ValueError, match=re.escape(said)):
        launch.specs(experiment_id, "quick", (0,), corpus_id)
    with pytest.raises(ValueError, match=re.escape(said)):
        launch.own(experiment_id, ModelConfig(), "quick", 0, corpus_id)


@given(
    st.integers(0, MAX_SEED),
    st.floats(min_value=1e-12, max_value=1e9),
    st.sampled_from(sorted(VARIANTS)),
    st.text(),
)
@example(9007199254740993, 1e-3, "average", "“quotes” \\ \n 🚀")
def test_a_run_survives_json_exactly(seed, learning_rate, variant, name):
    asked = spec(
        seed=seed,
        budget=Budget(steps=3, learning_rate=learning_rate),
        config=VARIANTS[variant].config,
        experiment=name,
    )
    text = asked.to_json()
    assert "\n" not in text
    assert RunSpec.from_json(text) == asked
    assert RunSpec.from_json(text).digest == asked.digest


@pytest.mark.parametrize(
    "change",
    [
        {"experiment": "ladder"},
        {"variant": "average-added"},
        {"budget_name": "chapter"},
        {"corpus": "upload-0000000000000000"},
        {"budget": Budget(steps=100, evaluate_every=7)},
        {"budget": Budget(steps=100, checkpoint_every=7)},
        {"budget": Budget(steps=100, keep_every=7)},
    ],
)
def test_names_and_what_only_watches_do_not_change_the_digest(change):
    assert spec(**change) != spec()
    assert spec(**change).digest == spec().digest


@pytest.mark.parametrize(
    "change",
    [
        {"seed": 1},
        {"corpus_sha256": "1" * 64},
        {"budget": Budget(steps=101)},
        {"budget": Budget(steps=100, batch_size=32)},
        {"budget": Budget(steps=100, context_length=64)},
        {"budget": Budget(steps=100, learning_rate=1.0000001e-3)},
    ],
)
def test_what_decides_the_result_changes_the_digest(change):
    assert spec(**change).digest != spec().digest


OTHER = {
    "vocab_size": 512,
    "d_model": 64,
    "n_layer": 2,
    "mixer": "none",
    "connection": "add",
    "positions": "learned",
    "max_positions": 256,
    "n_head": 2,
    "d_head": 32,
    "score_scale": "none",
    "output_projection": True,
    "qkv_bias": True,
    "output_bias": False,
    "d_ff": 64,
    "unembedding_bias": False,
    "rope_base": 1e6,
    "rope_stretch": 2.0,
    "dropout": 0.1,
}


def test_every_field_of_the_configuration_changes_the_digest():
    base = spec().config
    changed = {name: replace(base, **{name: value}) for name, value in OTHER.items()}
    changed["tied"] = replace(base, tied=True, unembedding_bias=False)
    assert set(changed) == {field.name for field in fields(ModelConfig)}
    assert len({spec(config=c).digest for c in [base, *changed.values()]}) == len(changed) + 1


def test_a_digest_names_the_configuration_by_what_it_changes():
    # so that a field that is added later, at its default, leaves every stored digest as it is
    root = spec(config=ModelConfig())
    expected = {
        "config": {},
        "budget": root.budget.decisive(),
        "corpus_sha256": root.corpus_sha256,
        "seed": 0,
    }
    assert root.digest == digest(expected)
    average = spec(config=replace(ModelConfig(), mixer="average"))
    assert average.digest == digest({**expected, "config": {"mixer": "average"}})


def test_equal_runs_have_equal_digests_though_one_was_typed_as_a_whole_number():
    one, other = (spec(budget=Budget(steps=1, learning_rate=rate)) for rate in (1, 1.0))
    assert one == other
    assert one.digest == other.digest


def test_a_digest_stays_what_it_was():
    # Stored beside every run and in the reference: a change of form would orphan them all.
    assert digest({"b": 1, "a": [True, None, 0.1]}) == "dfed03ef31b54910f6a6f5e1e081c4ac"


@pytest.mark.parametrize("name", DIGESTS)
def test_the_runs_of_a_table_of_texts_keep_their_digests(name):
    shown = {**EXPERIMENTS, RESCUE.id: RESCUE, BREAKING.id: BREAKING}[name]
    made = [
        spec(config=shown.variant(name).config, budget=shown.budget(budget, name)).digest
        for budget in shown.budgets
        for name in shown.variants
    ]
    assert digest(made) == DIGESTS[name]


def test_a_run_of_a_newer_lab_is_not_half_understood():
    newer = json.loads(spec().to_json())
    newer["config"]["experts"] = 8
    with pytest.raises(ValueError, match="unknown fields experts"):
        RunSpec.from_json(json.dumps(newer))
