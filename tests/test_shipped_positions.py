"""What the page Positions, the README and docs/measured.md say of the shipped models of position schemes."""

import math

import pytest
import torch

from engine.chapter import reference
from engine.chapter.experiments import POSITIONS
from engine.chapter.measurements import MEASUREMENTS
from engine.data import corpus
from engine.probes import beyond, schemes
from engine.probes.models import untrained
from engine.system import paths
from engine.system.errors import InvalidInput
from engine.training import checkpoint
from engine.training.evaluation import mean_loss, predictions, windows

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def held_out(tmp_path_factory):
    """The held-out tokens of Tiny Shakespeare, where it is at hand."""
    if not (file := paths.SHIPPED_DATA / "tinyshakespeare.txt").is_file():
        pytest.skip("data/tinyshakespeare.txt is not on this machine")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(paths, "DATA", tmp_path_factory.mktemp("shakespeare"))
        (paths.DATA / "tinyshakespeare.txt").write_bytes(file.read_bytes())
        return torch.from_numpy(corpus.load().held_out_ids.astype("int64"))


def shipped(variant):
    return checkpoint.load_model(reference.weights("positions", variant))[0]


def near(value):
    """To the digits that are printed; another processor adds in another order."""
    return pytest.approx(value, abs=0.06)


def test_alibis_gain_is_that_of_fewer_early_tokens_and_an_eighth_is_left_without_them(held_out):
    found = beyond.early_tokens(shipped("alibi"), held_out)
    short, _, long = found.rows
    assert (found.first, found.late) == (near(94.7), near(43.3))
    assert (short.whole, long.predicted, long.whole) == pytest.approx((44.50, 43.60, 43.64), abs=0.01)
    assert (short.sliding, long.sliding) == pytest.approx((43.57, 43.46), abs=0.01)
    left = (short.sliding - long.sliding) / (short.whole - long.whole)
    assert left == pytest.approx(1 / 8, abs=0.02)
    assert 2 < -long.change_nats / long.error_nats < 3
    assert found.scored == 45_728


def test_at_equal_context_at_most_an_eighth_is_left_in_every_seed(held_out):
    rows = reference.load("positions-context").rows
    again = {f"alibi-{row.length}": row for row in beyond.early_tokens(shipped("alibi"), held_out).rows}
    for name, row in rows.items():
        for metric, value in row.measured["0"].items():
            assert getattr(again[name], metric) == pytest.approx(value, abs=0.01)
    for seed in map(str, POSITIONS.seeds):
        short, long = (rows[name].measured[seed] for name in ("alibi-64", "alibi-256"))
        gain = short["whole"] - long["whole"]
        assert gain == pytest.approx(0.86, abs=0.01)
        assert short["whole"] - long["predicted"] > 0.8 * gain
        assert 0 < short["sliding"] - long["sliding"] < 0.14 * gain


def test_the_random_rows_make_more_than_half_of_the_cliff_in_every_seed():
    rows, inside = reference.load("positions-rows").rows, reference.load("positions").rows["learned"]
    for seed, share in zip(map(str, POSITIONS.seeds), (0.58, 0.60), strict=True):
        random, zero = (rows[way].measured[seed]["perplexity_256"] for way in ("random", "zero"))
        found = (random - zero) / (random - inside.measured[seed]["perplexity_64"])
        assert found == pytest.approx(share, abs=0.01)


def test_alibi_falls_with_every_length_in_every_seed():
    for measured in reference.load("positions").rows["alibi"].measured.values():
        values = [measured[f"perplexity_{length}"] for length in schemes.LENGTHS]
        assert values == sorted(values, reverse=True)
        assert values[0] - values[2] == pytest.approx(0.86, abs=0.01)


def test_beyond_the_window_the_table_and_sinusoids_are_far_worse_rope_worse_and_alibi_better():
    rows = reference.load("positions").rows
    for seed in POSITIONS.seeds:
        at = {name: rows[name].measured[str(seed)] for name in POSITIONS.variants}
        times = {name: one["perplexity_256"] / one["perplexity_64"] for name, one in at.items()}
        assert min(times["learned"], times["sinusoidal"]) > 2.6
        assert 1.5 < times["rope"] < 1.65
        assert times["alibi"] < 1 < times["none"] < 1.1
        for name in ("learned", "sinusoidal", "rope"):
            values = [at[name][f"perplexity_{length}"] for length in schemes.LENGTHS]
            assert values == sorted(values)


def test_at_the_training_length_the_table_jumps_and_alibi_does_not_on_the_same_windows(held_out):
    found = schemes.places({name: shipped(name) for name in ("learned", "alibi")}, held_out[: 60 * 512])
    inside = 64 // found.bin
    jump = {name: one.bins[inside] / one.bins[inside - 1] for name, one in found.models.items()}
    assert jump["learned"] > 3 > 1.3 > jump["alibi"]


def test_the_cliff_of_the_learned_table_is_mostly_its_random_rows(held_out):
    found = beyond.other_rows(shipped("learned"), held_out)
    values = {(row.way, row.length): row.perplexity for row in found.rows}
    assert values == {
        ("random", 128): near(85.5), ("random", 256): near(126.5), ("random", 512): near(145.7),
        ("scaled", 128): near(61.4), ("scaled", 256): near(77.8), ("scaled", 512): near(83.9),
        ("zero", 128): near(61.4), ("zero", 256): near(77.8), ("zero", 512): near(83.9),
        ("last", 128): near(70.9), ("last", 256): near(93.7), ("last", 512): near(103.7),
    }  # fmt: skip
    for length in (128, 256, 512):
        random, zero = (values[way, length] for way in ("random", "zero"))
        assert 0.5 < (random - zero) / (random - found.inside) < 0.6
    share = (values["random", 256] - values["zero", 256]) / (values["random", 256] - found.inside)
    assert share == pytest.approx(0.58, abs=0.005)
    assert found.none_inside == pytest.approx(84, abs=1), "what a token without a row costs"


def test_untrained_rows_only_shrink_as_the_weight_decay_says():
    found = schemes.rows_of_the_table(shipped("learned"), 0)
    budget = POSITIONS.budget("chapter")
    decayed = 1 - (1 - 0.01 * budget.learning_rate) ** budget.steps  # 0.01: AdamW's in torch
    assert max(found.turned[64:]) < 0.05
    assert found.moved[64:] == pytest.approx([decayed] * 448, abs=2e-4)  # shipped in float16
    assert min(found.turned[:64]) > 5


def test_a_linear_stretch_hurts_inside_the_window_and_a_larger_base_hardly(held_out):
    model, batch = shipped("rope"), windows(held_out, 64)
    slowed = {way: math.exp(mean_loss(schemes.slower(model, way, 4.0), batch)) for way in schemes.WAYS}
    assert slowed == {"plain": near(40.8), "linear": near(70.6), "ntk": near(42.3)}


def test_the_mask_tells_of_the_position_before_training_as_after_it(held_out):
    none = schemes.knowledge({"none": shipped("none")}, held_out, 0).models["none"]
    assert (none.read, none.untrained) == pytest.approx((0.592, 0.586), abs=0.01)
    assert none.unmasked < 0.05
    assert none.shuffled == pytest.approx(none.ordered, rel=1e-5)


def test_a_mean_of_more_vectors_is_shorter_and_its_length_alone_tells_of_the_position(held_out):
    batch, trained = windows(held_out, 64)[::4], shipped("none")
    for model, told in ((untrained(trained.config), 0.84), (trained, 0.36)):
        with torch.inference_mode():
            length = schemes._mixed(model, batch).norm(dim=-1, keepdim=True)
        assert length[:, -8:].mean() < length[:, 4:12].mean() < length[:, :1].mean()
        assert schemes.readable(length) == pytest.approx(told, abs=0.03)


def test_the_table_still_falls_when_training_stops_and_rope_hardly():
    rows = reference.load("positions").rows
    fallen = {}
    for name in ("learned", "rope"):
        for seed, curve in rows[name].curves.items():
            at = dict(curve)
            fallen[name, seed] = at[1200] - at[1500]
    assert fallen == {
        ("learned", "0"): near(1.5), ("learned", "1"): near(2.7),
        ("rope", "0"): near(0.1), ("rope", "1"): near(0.5),
    }  # fmt: skip


def test_on_windows_drawn_at_random_the_gain_would_spread_by_more_than_its_size(held_out):
    """The chapter does not print which windows it reads; ours are all of them."""
    model, draw = shipped("alibi"), torch.Generator().manual_seed(0)
    losses = {}
    for length in (64, 256):
        found = predictions(model, windows(held_out, length))[0]
        losses[length] = found.double().mean(dim=1)

    def drawn(length, count):
        return (
            losses[length][torch.randint(len(losses[length]), (count,), generator=draw)].mean().exp().item()
        )

    for count, spread in ((320, 1.75), (640, 1.24)):
        gains = torch.tensor([drawn(64, count) - drawn(256, count) for _ in range(1000)])
        assert gains.mean().item() == pytest.approx(0.86, abs=0.25)
        assert gains.std().item() == pytest.approx(spread, rel=0.15)


def test_a_seed_whose_weights_are_not_shipped_is_refused_with_a_sentence():
    with pytest.raises(InvalidInput, match="no weights of alibi are shipped of seed 5; allowed: 0, 1"):
        MEASUREMENTS["positions-context"].measure(5)
