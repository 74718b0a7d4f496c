"""The shipped reference: near the chapter, made by this code, shown in the README as it is."""

import math
import re
from functools import cache

import pytest
import torch

from engine.chapter import reference, report
from engine.chapter.experiments import EXPERIMENTS, GAIN, GAP, PERPLEXITY
from engine.chapter.measurements import MEASUREMENTS, known
from engine.data import corpus
from engine.data.corpus import TINYSHAKESPEARE, TINYSHAKESPEARE_SHA256
from engine.data.languages import shelf
from engine.models.transformer import Transformer
from engine.runs import reference_writer
from engine.runs.launch import specs
from engine.runs.store import Store
from engine.system import paths
from engine.training import checkpoint
from engine.training.evaluation import mean_loss, perplexity, windows
from engine.training.tasks import task_of_language
from lab.sections.positions.parts import STEPS_DECIDE

SHIPPED = {name: found for name in EXPERIMENTS if (found := reference.load(name))}
ROWS = [(name, row) for name, found in SHIPPED.items() for row in found.rows]
FIGURES = [(name, *key) for name in SHIPPED for key in EXPERIMENTS[name].chapter]
WITH_WEIGHTS = [name for name in SHIPPED if EXPERIMENTS[name].weights]


SHIPPED_MEASUREMENTS = [name for name in MEASUREMENTS if reference.load(name)]


def test_every_experiment_ships_a_reference():
    assert set(SHIPPED) == set(EXPERIMENTS)
    assert set(SHIPPED_MEASUREMENTS) == set(MEASUREMENTS)
    assert sum(path.stat().st_size for path in paths.REFERENCE.rglob("*") if path.is_file()) < 25e6


def assert_says_where_it_was_measured(shipped):
    assert shipped.device
    assert re.fullmatch(r"20\d\d-\d\d-\d\d", shipped.date)
    assert set(shipped.versions) == {"lab", "torch", "python"}


@pytest.mark.parametrize("name", SHIPPED)
def test_it_is_whole_and_says_where_it_was_measured(name):
    shipped, experiment = SHIPPED[name], EXPERIMENTS[name]
    assert tuple(shipped.rows) == experiment.variants
    language = experiment.language
    assert shipped.corpus_sha256 == (shelf.sha256_of(language) if language else TINYSHAKESPEARE_SHA256)
    assert_says_where_it_was_measured(shipped)
    for variant_id, row in shipped.rows.items():
        assert row.seeds == experiment.seeds_of(variant_id)
        for seed in map(str, row.seeds):
            curve = row.curves[seed]
            assert curve[0][0] == 0
            end = [experiment.budget("chapter", variant_id).steps, row.measured[seed][experiment.metric]]
            assert curve[-1] == pytest.approx(end, abs=1e-3)


VOUCHED_NATS = 1e-3  # how far first losses may lie apart: other processors and libraries add in another order


def vouched_steps(config):
    """How many of a model's first losses vouch for the code: all 20 of most.

    An undivided head of 1,024 is chaotic: its rows are nearly all or nothing, so rounding decides between
    two close tokens, and the next steps multiply what it decided. Between processors its third losses are
    2e-4 apart, its eighth 2e-2. And what the twentieth step would tell, small models tell sooner.
    """
    if config.score_scale == "none" and config.effective_d_head >= 1024:
        return 3
    return 5 if config.n_layer * config.d_model**2 > 100_000 else reference_writer.VOUCHED_STEPS


first_losses = cache(reference_writer.first_losses)  # tables share models


@pytest.mark.parametrize(("name", "variant_id"), ROWS)
def test_the_code_still_trains_what_the_reference_was_trained_with(name, variant_id):
    """The same digest vouches for itself; changed code has to give the same first losses."""
    shipped, experiment = SHIPPED[name], EXPERIMENTS[name]
    config = experiment.variant(variant_id).config
    steps = vouched_steps(config)
    expected = pytest.approx(shipped.rows[variant_id].losses[:steps], abs=VOUCHED_NATS)
    assert first_losses(config, experiment.language, steps) == expected, (
        f"engine/models, tasks.py or training.py train {variant_id} in another way than when this was "
        f"measured (code {shipped.code}, now {reference_writer.code_digest()}): train it again with "
        "`python -m engine reproduce --write-reference`"
    )


def test_all_models_but_those_that_are_chaotic_or_large_are_vouched_for_by_twenty_steps():
    steps: dict[int, set[str]] = {}
    for name, variant_id in ROWS:
        config = EXPERIMENTS[name].variant(variant_id).config
        steps.setdefault(vouched_steps(config), set()).add(variant_id)
    assert set(steps) == {3, 5, 20}
    assert steps[3] == {"undivided-1024", "undivided-1024-wide"}
    assert steps[5] == {"divided-1024-wide", "pre-norm", "post-norm", "pre-norm-warmup", "post-norm-warmup"}


@pytest.mark.parametrize(("name", "variant_id"), [row for row in ROWS if not EXPERIMENTS[row[0]].language])
def test_first_losses_fall_from_a_guess(name, variant_id):
    losses, config = SHIPPED[name].rows[variant_id].losses, EXPERIMENTS[name].variant(variant_id).config
    torch.manual_seed(0)
    with torch.no_grad():
        logits = Transformer(config)(torch.randint(config.vocab_size, (16, 64)))
    # Normal logits that know nothing cost log V, and half their variance for being so sure of it.
    guess = math.log(config.vocab_size) + logits.var(dim=-1).mean().item() / 2
    assert len(losses) == 20
    assert losses[0] == pytest.approx(guess, abs=0.2)
    assert losses[-1] < losses[0]


@pytest.mark.parametrize(("name", "variant_id", "metric"), FIGURES)
def test_a_mean_lies_within_the_chapters_tolerance_or_its_gap_is_explained(name, variant_id, metric):
    value = EXPERIMENTS[name].chapter[variant_id, metric]
    mean = SHIPPED[name].rows[variant_id].mean(metric)
    assert mean is not None
    assert value.allows(mean) == (value.gap == ""), (mean, value)


def test_what_the_page_says_of_the_steps_is_on_the_shipped_curves():
    """At a constant rate a run of 500 steps is the beginning of one of 1,500."""
    for seed in ("0", "1"):
        curves = [SHIPPED["positions"].rows[name].curves[seed] for name in ("learned", "rope")]
        for last in (500, 1200, 1500):
            learned, rope = (next(value for step, value in curve if step == last) for curve in curves)
            assert f"{learned:.1f} and {rope:.1f} after {last:,}" in STEPS_DECIDE


@pytest.mark.parametrize("name", SHIPPED_MEASUREMENTS)
def test_a_measurement_ships_all_its_seeds_and_is_near_the_chapter(name):
    known, shipped = MEASUREMENTS[name], reference.load(name)
    assert tuple(shipped.rows) == known.variants
    text = TINYSHAKESPEARE_SHA256 if known.corpus_id else ""
    assert (shipped.threads, shipped.corpus_sha256, shipped.code) == (1, text, "")
    assert shipped.device.startswith("CPU, ")
    assert_says_where_it_was_measured(shipped)
    for variant_id, row in shipped.rows.items():
        assert (row.seeds, row.curves, row.losses) == (known.seeds, {}, [])
        for metric in known.metrics:
            assert len(row.values(metric)) == len(known.seeds)
            if value := known.chapter.get((variant_id, metric)):
                assert value.allows(row.mean(metric)), (variant_id, metric)


# Those of a text take half a minute: their own tests measure them again.
@pytest.mark.parametrize("name", [name for name in SHIPPED_MEASUREMENTS if not MEASUREMENTS[name].corpus_id])
def test_a_measurement_measured_again_gives_what_is_shipped(one_thread, name):
    """So it needs no digest of the code. Parity is rounding: another processor sums in another order."""
    known, shipped = MEASUREMENTS[name], reference.load(name)
    found = known.measure(0)
    for variant_id, metric in known.figures:
        if variant_id not in found:
            continue  # a precision that this CPU lacks
        again, before = found[variant_id][metric], shipped.rows[variant_id].measured["0"][metric]
        if name != "parity":
            assert again == pytest.approx(before, rel=1e-4, abs=0.0011), (variant_id, metric)
        elif metric == "magnitude":
            assert again == pytest.approx(before, rel=0.01)
        elif variant_id.endswith("float32") and metric == "difference":
            assert max(again, before) < 1e-6
        else:
            assert again < 4 * before, (variant_id, metric)
    for (variant_id, metric), value in known.chapter.items():
        if name == "scaling-variance":
            assert round(found[variant_id][metric], 3) == value.low


def differences(rows, one, other):
    """Of two figures, each a row and a metric, by seed."""
    pairs = zip(*(rows[name].values(metric) for name, metric in (one, other)), strict=True)
    return [first - second for first, second in pairs]


def test_positions_help_the_replaced_average_in_every_paired_seed():
    gains = SHIPPED["averages"].rows["average-positions"].values(GAP)
    assert len(gains) == 3
    assert max(gains) < 0


@pytest.mark.parametrize("name", WITH_WEIGHTS)
def test_shipped_weights_load_into_their_variant_and_answer_as_they_did(one_thread, name):
    """In float16 as they are, and without the optimiser's state."""
    shown = EXPERIMENTS[name]
    shipped_ones = [(one, seed) for one in shown.weights for seed in shown.shipped_seeds(one)]
    files = {reference.weights(name, one, seed) for one, seed in shipped_ones}
    assert files == set((paths.REFERENCE / name).glob("*.safetensors"))
    for variant_id, seed in shipped_ones:
        path, budget = reference.weights(name, variant_id, seed), shown.budget("chapter", variant_id)
        tensors, header = checkpoint.load(path)
        assert all(key.startswith("model.") for key in tensors)
        assert header["step"] == budget.steps
        model, _ = checkpoint.load_model(path)
        assert model.config == shown.variant(variant_id).config
        shipped = SHIPPED[name].rows[variant_id].measured[str(seed)][shown.metric]
        if shown.language:
            task = task_of_language(shelf.load(shown.language), seed)
            assert task.evaluate(model, lambda: False)["accuracy"] == pytest.approx(shipped, abs=0.005)
        elif variant_id == shown.weights[0] and corpus.is_present(TINYSHAKESPEARE):
            ids = torch.from_numpy(corpus.load(TINYSHAKESPEARE).held_out_ids.astype("int64"))
            found = perplexity(mean_loss(model, windows(ids, budget.context_length)))
            assert found == pytest.approx(shipped, rel=2e-4)


def test_two_layers_continue_a_repeat_and_one_layer_stays_near_its_level():
    rows = SHIPPED["induction"].rows
    assert rows["one-layer"].seeds == rows["two-layers"].seeds == (0, 1, 2, 3, 4)
    assert min(rows["two-layers"].values("accuracy")) > 0.95
    assert max(differences(rows, ("one-layer", "accuracy"), ("one-layer", "early_accuracy"))) < 0.1


@pytest.mark.parametrize("name", [*SHIPPED, "norm-gradients"])
def test_the_documents_print_the_reference_as_it_is(name):
    assert _between(name, "docs/measured.md") == report.markdown(report.show(known(name))), (
        f"paste what `python -m engine show {name} --markdown` prints"
    )


# The ten figures of the README, one of each claim.
HEADLINES = (
    ("averages", "no-context", PERPLEXITY),
    ("averages", "average", PERPLEXITY),
    ("averages", "average-added", PERPLEXITY),
    ("scaling-training-wide", "undivided-1024-wide", "frozen_share"),
    ("ladder", "head-added", GAP),
    ("ladder", "block", PERPLEXITY),
    ("norm-placement", "post-norm", PERPLEXITY),
    ("positions", "alibi", GAIN),
    ("winograd-closed", "average", "accuracy"),
    ("winograd-closed", "two-blocks", "accuracy"),
)


def test_the_readme_prints_its_ten_figures_as_they_are():
    lines = ["| figure | chapter | tolerance | measured | seeds | verdict |", "|---|---:|---:|---:|---:|---|"]
    for name, variant_id, metric in HEADLINES:
        shown = report.show(EXPERIMENTS[name])
        rows = [row for row in shown["rows"] if (row["variant"], row["metric"]) == (variant_id, metric)]
        line = report.markdown({**shown, "rows": rows}).splitlines()[2]
        figure, chapter, tolerance, measured, _, verdict = line.strip("| ").split(" | ")
        title = f"{EXPERIMENTS[name].title}: {figure}, {EXPERIMENTS[name].called(variant_id, metric)}"
        seeds = len(rows[0]["reference"]["seeds"])
        lines.append(f"| {title} | {chapter} | {tolerance} | {measured} | {seeds} | {verdict} |")
    assert _between("headlines", "README.md") == "\n".join(lines), "put this table there"


def test_the_document_prints_how_the_widest_heads_scores_entropy_and_gradient_run():
    """Over training: undivided scores run away, and the entropy of their rows vanishes."""
    names = {
        "score_std": "standard deviation of the scores",
        "entropy_nats": "entropy of a row, nats",
        "frozen_share": "share of rows over 0.99",
        "grad_norm_W_Q": "gradient norm of W_Q",
    }
    assert tuple(names) == EXPERIMENTS["scaling-training"].series
    steps = (0, 10, 80, 200, 500, 1500)
    lines = [f"| d_k 1024, seed 0, after steps | {' | '.join(f'{step:,}' for step in steps)} |"]
    lines.append("|---|" + "---:|" * len(steps))
    for variant_id in ("divided-1024", "undivided-1024"):
        row = SHIPPED["scaling-training"].rows[variant_id]
        for metric, title in names.items():
            curve = {int(step): value for step, value in row.series[metric]["0"]}
            if metric in ("score_std", "frozen_share"):  # a collapsed head amplifies rounding: 158 for 144
                assert curve[1500] == pytest.approx(row.measured["0"][metric], rel=0.1)
            shown = ("–" if (value := curve.get(step)) is None else f"{value:.3g}" for step in steps)
            lines.append(f"| {variant_id.partition('-')[0]}: {title} | {' | '.join(shown)} |")
    assert _between("scaling-series", "docs/measured.md") == "\n".join(lines), "put this table there"


def _between(name, document):
    text = (paths.ROOT / document).read_text()
    printed = re.search(rf"<!-- {name}:begin -->\n(.*?)\n<!-- {name}:end -->", text, re.S)
    assert printed, f"{document} has no place for {name}"
    return printed[1]


@pytest.fixture
def runs_of(no_reference, home):
    """Every run of an experiment at the chapter's budget, ended with 30.0, 31.0 ..."""

    def make(experiment_id):
        store, ended = Store(), {"device": "CPU", "threads": 1, "lab": "", "torch": "", "python": ""}
        sweep = store.submit(specs(experiment_id, "chapter", (0,), "python-reference"))
        for run in store.runs(sweep=sweep):
            measured = {"validation_perplexity": 29.0 + run.id}
            store.advance(run.id, "queued", "done", measured=measured, environment=ended)
        return store, store.runs()

    return make


def test_a_reference_is_not_made_of_half_an_experiment(no_reference, runs_of):
    store, runs = runs_of("averages")
    with pytest.raises(ValueError, match="averages has no finished run of average"):
        reference_writer.write("averages", store, runs[:1])
    assert list(no_reference.iterdir()) == []


def test_models_that_differ_in_their_budget_only_are_told_apart(runs_of, monkeypatch):
    monkeypatch.setattr(reference_writer, "first_losses", lambda config, language: [])
    reference_writer.write("norm-placement", *runs_of("norm-placement"))
    rows = reference.load("norm-placement").rows
    assert [row.mean("validation_perplexity") for row in rows.values()] == [30.0, 31.0, 32.0, 33.0]
