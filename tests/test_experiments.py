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
    DIFFERENCES,
    EXPERIMENTS,
    MAX_SEED,
    METRICS,
    RESCUE,
    VARIANTS,
    experiment,
    parse_seeds,
)
from engine.data.languages import shelf
from engine.data.languages.winograd import CLOSED
from engine.models.config import ModelConfig
from engine.runs import launch
from engine.runs.spec import RunSpec, digest

# How far of it, of a hundred, a share may lie and count as reproduced.
POINTS = {
    ("winograd-open", "average", "accuracy"): 0.5,
    ("winograd-open", "one-block", "accuracy"): 6,
    ("winograd-closed", "average", "accuracy"): 6,
    ("winograd-closed", "average", "wrong_noun"): 6,
    ("winograd-closed", "one-block", "accuracy"): 5,
    ("winograd-closed", "two-blocks", "accuracy"): 0.5,
}
# Of all runs of a table at both budgets; those of the other tables are recorded one by one.
DIGESTS = {
    "scaling-rescue": "7696b8e1985baf560eb560046f060362",
    "norm-breaking": "bff17de203708f325b8bf8d3d6ce25f0",
}


def spec(**changes):
    usual = RunSpec(
        experiment="averages",
        variant="average",
        budget_name="quick",
        config=VARIANTS["average"].config,
        budget=Budget(steps=100),
        corpus="tinyshakespeare",
        corpus_sha256="0" * 64,
        seed=0,
    )
    return replace(usual, **changes)


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
        ({"warmup_steps": 1.5}, "warmup_steps is 1.5; allowed: a whole number"),
        ({"evaluate_early": 0}, "evaluate_early is 0; allowed: true or false."),
        ({"also_at": (0,)}, "also_at has 0; allowed: whole numbers from 1 to 1,048,576."),
        ({"also_at": ("64",)}, "also_at has '64'; allowed: whole numbers"),
        ({"keep_every": 4}, "keep_every is 4; allowed for 1,000 steps: 0, or a whole number from 5 to 10,0"),
        ({"keep_every": 10_000_001}, "keep_every is 10000001; allowed"),
        ({"keep_every": True}, "keep_every is True; allowed"),
        ({"precision": "float16"}, "precision is 'float16'; allowed: float32, bfloat16."),
        *(
            ({"learning_rate": wrong}, f"learning_rate is {wrong!r}; allowed: above 0, at most 1e9.")
            for wrong in (0, -1e-3, float("nan"), float("inf"), 1.1e9, True, "1e-3", None, 10**400, [1e-3])
        ),
    ],
)
def test_what_a_budget_cannot_have_is_refused(given, said):
    with pytest.raises(ValueError, match="allowed") as refused:
        Budget(**{"steps": 1000, **given})
    assert str(refused.value).startswith(said)


@given(st.data(), st.sampled_from(sorted(WHOLE)))
def test_a_wrong_number_in_a_budget_is_refused(data, name):
    numbers = st.integers(max_value=0) | st.integers(min_value=WHOLE[name] + 1) | st.booleans() | st.floats()
    wrong = data.draw(numbers | st.text() | st.none())
    with pytest.raises(ValueError, match="allowed") as refused:
        Budget(**{"steps": 1, name: wrong})
    got = f"{wrong:,}" if type(wrong) is int else repr(wrong)
    assert str(refused.value) == f"{name} is {got}; allowed: a whole number from 1 to {WHOLE[name]:,}."


# The chapter's tables


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_an_experiment_is_complete(name):
    shown, own = EXPERIMENTS[name], EXPERIMENTS[name].own_budgets
    assert shown.id == name
    assert re.fullmatch(r"[a-z]+(-[a-z]+)*", name)
    assert shown.question.endswith("?")
    assert len(set(shown.variants)) == len(shown.variants) > 0
    for some in (shown.weights, shown.own_seeds, {variant_id for _, variant_id in own}):
        assert set(some) <= set(shown.variants)
    assert set(shown.budgets) == {"quick", "chapter"}
    for variant_id in shown.variants:
        quick, chapter = (shown.budget(budget, variant_id) for budget in ("quick", "chapter"))
        assert quick.steps < chapter.steps
        assert chapter == own.get(("chapter", variant_id), shown.budgets["chapter"])
        assert quick == own.get(("quick", variant_id), shown.budgets["quick"])
        seeds = shown.seeds_of(variant_id)
        assert seeds == shown.seeds[: len(seeds)]
        config = shown.variant(variant_id).config
        if config.positions == "learned" or config.mixer == "matrix":
            assert config.max_positions >= max(quick.context_length, chapter.context_length)
        if shown.language:
            language = shelf.BUILT_IN[shown.language]
            assert config.vocab_size == len(language.words)
            assert quick.context_length == chapter.context_length == language.context_length
    assert len(set(shown.figures)) == len(shown.figures) >= len(shown.variants)
    assert len(shown.seeds) >= 2, "a spread needs two seeds"
    assert shown.seeds == tuple(range(shown.seeds[0], shown.seeds[0] + len(shown.seeds)))
    assert shown.seeds[0] == (10 if name.startswith("winograd") else 0), "weights are shipped of the first"
    assert {shown.shows, shown.hides, shown.title, METRICS[shown.metric]}.isdisjoint({""})


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_the_chapters_values_are_of_printed_rows_and_sane(name):
    """What they are is recorded as ``show`` prints it."""
    shown = EXPERIMENTS[name]
    for (variant, metric), value in shown.chapter.items():
        assert variant in shown.variants
        assert (variant, metric) in shown.figures
        assert METRICS[metric]
        assert value.low <= value.middle <= value.high
        assert value.low == value.high or not value.printed
        assert 0 <= value.tolerance <= 1
        assert value.where
        assert value.printed or value.conditions, "an inferred value says what it was inferred from"
        if points := POINTS.get((name, variant, metric)):
            assert value.tolerance * value.low == pytest.approx(points / 100)
        if metric in DIFFERENCES:
            assert value.label
            budgets = set()
            for other, _ in shown.terms(variant, metric):
                assert other in shown.variants
                budgets.add(replace(shown.budget("chapter", other), warmup_steps=0))
            assert len(budgets) == 1, "they differ in their model, or in their warmup"


def test_the_chapters_budgets_are_those_it_gives():
    # Head widths 32 and 128 for 3000 steps; then 128, 256 and 1024 for 1500 steps of batch 32.
    long = Budget(steps=3000, batch_size=64, context_length=128, learning_rate=1e-3)
    short = replace(long, steps=1500, batch_size=32)
    assert EXPERIMENTS["averages"].budgets["chapter"] == long
    for kind in ("divided", "undivided"):
        for width, budget in ((32, long), (128, short), (256, short), (1024, short)):
            assert EXPERIMENTS["scaling-training"].budget("chapter", f"{kind}-{width}") == budget
        for width in (32, 128):
            assert EXPERIMENTS["scaling-training-long"].budget("chapter", f"{kind}-{width}") == long


def test_the_chapters_models_are_those_it_gives():
    root = VARIANTS["no-context"].config
    assert (root.vocab_size, root.d_model, root.tied, root.unembedding_bias) == (1024, 128, False, True)
    for name in ("divided-256", "undivided-256"):
        head = VARIANTS[name].config
        assert (head.n_head, head.effective_d_head) == (1, 256)
        assert (head.connection, head.positions) == ("add", "learned")


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (lambda: experiment("Averages"), r"^no experiment 'Averages'; there are: averages.*\.$"),
        (lambda: experiment("averages").budget("slow"), r"^no budget 'slow'; there are: quick, chapter\.$"),
        (lambda: experiment("averages").variant("block"), r"^no variant 'block' in averages; there are: no-"),
    ],
)
def test_unknown_names_are_refused_with_those_there_are(asked, said):
    with pytest.raises(ValueError, match=said):
        asked()


# Runs of an experiment


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_a_sweep_is_every_variant_of_every_seed_seed_by_seed(tiny_corpus, name):
    shown, seeds = EXPERIMENTS[name], (5, 3)
    for budget_name in shown.budgets:
        made = launch.specs(name, budget_name, seeds, shown.language or tiny_corpus)
        assert [(s.seed, s.variant) for s in made] == [(n, key) for n in seeds for key in shown.variants]
        assert [s.budget for s in made] == [shown.budget(budget_name, s.variant) for s in made]
        assert [s.config for s in made] == [shown.variant(s.variant).config for s in made]
        assert len({s.digest for s in made}) == len(made)
        if not shown.language:
            assert {s.corpus_sha256[:16] for s in made} == {tiny_corpus.removeprefix("upload-")}


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
        ("winograd-closed", "tinyshakespeare", "'tinyshakespeare' is no language that winograd-closed train"),
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
    budget = Budget(steps=3, learning_rate=learning_rate, warmup_steps=3, also_at=(64, 128))
    asked = spec(seed=seed, budget=budget, config=VARIANTS[variant].config, experiment=name)
    text = asked.to_json()
    assert "\n" not in text
    assert RunSpec.from_json(text) == asked
    assert RunSpec.from_json(text).digest == asked.digest


def test_what_decides_the_result_changes_the_digest_and_names_and_what_only_watches_do_not():
    usual = Budget(steps=100)
    watched = [{f"{what}_every": 7} for what in ("evaluate", "checkpoint", "keep")]
    for change in (
        {"experiment": "ladder"},
        {"variant": "average-added"},
        {"budget_name": "chapter"},
        {"corpus": "upload-0000000000000000"},
        *({"budget": replace(usual, **more)} for more in watched),
    ):
        assert spec(**change) != spec()
        assert spec(**change).digest == spec().digest
    decisive = ({"steps": 101}, {"batch_size": 32}, {"context_length": 64}, {"learning_rate": 1.0000001e-3})
    for change in (
        {"seed": 1},
        {"corpus_sha256": "1" * 64},
        *({"budget": replace(usual, **more)} for more in decisive),
    ):
        assert spec(**change).digest != spec().digest


OTHER = ModelConfig(
    vocab_size=512, d_model=64, n_layer=2, mixer="none", connection="add", positions="learned",
    max_positions=256, n_head=2, d_head=32, score_scale="none", output_projection=True, qkv_bias=True,
    output_bias=False, d_ff=64, unembedding_bias=False, rope_base=1e6, rope_stretch=2.0, dropout=0.1,
)  # fmt: skip


def test_every_field_of_the_configuration_changes_the_digest():
    base = spec().config
    changed = {f.name: replace(base, **{f.name: getattr(OTHER, f.name)}) for f in fields(OTHER)}
    changed["tied"] = replace(base, tied=True, unembedding_bias=False)
    assert set(changed) == {field.name for field in fields(ModelConfig)}
    assert len({spec(config=c).digest for c in [base, *changed.values()]}) == len(changed) + 1


def test_a_digest_names_the_configuration_by_what_it_changes():
    # so that a field that is added later, at its default, leaves every stored digest as it is
    root = spec(config=ModelConfig())
    expected = {"budget": root.budget.decisive(), "corpus_sha256": root.corpus_sha256, "seed": 0}
    assert root.digest == digest({**expected, "config": {}})
    average = spec(config=replace(ModelConfig(), mixer="average"))
    assert average.digest == digest({**expected, "config": {"mixer": "average"}})


def test_a_digest_stays_what_it_was():
    # Stored beside every run and in the reference: a change of form would orphan them all.
    assert digest({"b": 1, "a": [True, None, 0.1]}) == "dfed03ef31b54910f6a6f5e1e081c4ac"
    # Equal runs have equal digests though one was typed as a whole number.
    one, other = (spec(budget=Budget(steps=1, learning_rate=rate)) for rate in (1, 1.0))
    assert one == other
    assert one.digest == other.digest


@pytest.mark.parametrize("shown", [RESCUE, BREAKING], ids=lambda shown: shown.id)
def test_the_runs_of_a_table_keep_their_digests(shown):
    made = [
        spec(config=shown.variant(name).config, budget=shown.budget(budget, name)).digest
        for budget in shown.budgets
        for name in shown.variants
    ]
    assert digest(made) == DIGESTS[shown.id]


def test_a_run_of_a_newer_lab_is_not_half_understood():
    newer = json.loads(spec().to_json())
    newer["config"]["experts"] = 8
    with pytest.raises(ValueError, match="unknown fields experts"):
        RunSpec.from_json(json.dumps(newer))
