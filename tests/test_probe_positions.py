"""What position schemes do: by position, rescaled, shuffled, along diagonals, and row by row."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from engine.chapter.experiments import POSITIONS, VARIANTS
from engine.data import corpus
from engine.models.positions import RotaryPositions, alibi_slopes
from engine.models.transformer import Transformer
from engine.probes import beyond, positions, schemes
from engine.probes.models import untrained
from engine.system.errors import InvalidInput
from engine.training import checkpoint
from engine.training.evaluation import mean_loss, windows
from lab.sections.positions import alibi
from tests.trainings import untrained as checkpoint_of

SCHEMES = POSITIONS.variants
SMALL = {"d_model": 32, "d_ff": 32, "vocab_size": 300}


pytestmark = pytest.mark.usefixtures("one_thread")


def small(scheme, **more):
    """A small model of that scheme, not trained."""
    return untrained(replace(VARIANTS[scheme].config, **SMALL, **more))


def text(tokens, seed=0):
    return torch.randint(300, (tokens,), generator=torch.Generator().manual_seed(seed))


def weights_of(tmp_path, scheme, seed=0):
    """A checkpoint of an untrained model of the page's size, in a folder as a run's."""
    folder = tmp_path / f"{scheme}-{seed}"
    folder.mkdir()
    (folder / "spec.json").write_text(json.dumps({"seed": seed}))
    return checkpoint_of(folder / "checkpoint.safetensors", VARIANTS[scheme].config, seed)


@pytest.fixture(scope="module")
def shuffled():
    return {row.scheme: row for row in schemes.order([5, 9, 33, 4, 120, 7, 77, 9, 2, 60], 0, []).rows}


def test_the_losses_by_position_have_the_overall_loss_for_their_mean():
    batch = windows(text(64 * 20 + 1), 64)
    model = small("rope")
    losses = schemes.losses_by_position(model, batch)
    assert losses.shape == (64,)
    assert losses.mean().item() == pytest.approx(mean_loss(model, batch), abs=1e-6)
    by_hand = torch.nn.functional.cross_entropy(model(batch[:, :-1])[:, 5], batch[:, 6]).item()
    assert losses[5].item() == pytest.approx(by_hand, abs=1e-6)


def test_the_bins_have_the_overall_perplexity_for_their_geometric_mean():
    found = schemes.places({name: small(name) for name in ("alibi", "learned")}, text(2 * 512 + 1))
    assert (found.windows, found.length, found.bin) == (2, 512, 16)
    for one in found.models.values():
        assert len(one.bins) == 32
        mean = sum(map(math.log, one.bins)) / 32
        assert math.exp(mean) == pytest.approx(one.perplexity)


def test_a_rotation_that_is_not_slowed_is_plain_rope():
    model, ids = small("rope"), text(40).unsqueeze(0)
    with torch.no_grad():
        for way in schemes.WAYS:
            assert torch.equal(schemes.slower(model, way, 1.0)(ids), model(ids))
        for way in ("linear", "ntk"):
            assert not torch.allclose(schemes.slower(model, way, 4.0)(ids), model(ids))
        assert torch.equal(schemes.slower(model, "plain", 4.0)(ids), model(ids))


def test_slowed_four_times_the_slowest_pair_turns_as_far_at_256_as_it_did_at_64():
    model = small("rope")
    q = torch.ones(1, 1, 257, model.config.effective_d_head, dtype=torch.float64)
    turned = {}
    for way in schemes.WAYS:
        scheme = schemes.slower(model, way, 4.0).positions
        assert isinstance(scheme, RotaryPositions)
        turned[way] = scheme.rotate(q, q)[0][0, 0]
    slow = model.config.effective_d_head // 2 - 1
    for way in ("linear", "ntk"):
        assert turned[way][256, slow].item() == pytest.approx(turned["plain"][64, slow].item())
    assert torch.allclose(turned["ntk"][:, 0], turned["plain"][:, 0]), "the fastest is left as it was"
    assert torch.allclose(turned["linear"][256], turned["plain"][64])


def test_rescaling_measures_every_length_and_the_first_once():
    found = schemes.rescaled(small("rope"), text(2 * 512 + 1))
    assert [(row.way, row.length) for row in found.rows] == [
        ("plain", 64),
        *((way, length) for length in (128, 256, 512) for way in schemes.WAYS),
    ]
    assert [row.factor for row in found.rows] == [1, 2, 2, 2, 4, 4, 4, 8, 8, 8]
    overall = mean_loss(small("rope"), windows(text(2 * 512 + 1), 256))
    assert found.rows[4].perplexity == pytest.approx(math.exp(overall))


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_shuffle_is_rounding_without_positions_and_mask_and_of_the_last_token_of_one_block(
    shuffled, scheme
):
    row = shuffled[scheme]
    indifferent, told_apart = (row.unmasked, row.one_block), (row.masked, row.two_blocks)
    if scheme == "none":
        assert max(indifferent) < 1e-6
        assert min(told_apart) > 0.01
    else:
        assert min(*indifferent, *told_apart) > 1e-3


def test_an_order_is_another_one_and_leaves_the_last_token_where_the_prefix_alone_moves():
    for seed in range(20):
        found = schemes.order([1, 2, 3], seed, [])
        assert sorted(found.order) == [0, 1, 2] != found.order
        assert found.prefix == [1, 0, 2]


def test_under_rope_and_alibi_a_score_depends_on_the_distance_only():
    found = schemes.diagonals({name: small(name) for name in SCHEMES}, (7, 11), ["a", "b"])
    for name, heads in found.models.items():
        assert len(heads) == 4
        for head in heads:
            assert [len(row.scores) for row in head][:3] == [64, 64, 64]
            flat = name in ("none", "rope", "alibi")
            for row in head:
                assert row.inside <= row.all
                assert row.all < 1e-10 if flat else row.all > 0.01
    by_distance = [row.scores[0] for row in found.models["alibi"][0]]
    for distance, score in zip(found.distances, by_distance, strict=True):
        assert score == pytest.approx(by_distance[0] - distance / 4, abs=1e-4)  # the first of four heads
    rope = [row.scores[0] for row in found.models["rope"][0]]
    assert max(rope) - min(rope) > 0.01, "but on the distance it does depend"


def test_a_row_that_was_never_trained_has_not_turned(tmp_path):
    path = weights_of(tmp_path, "learned", seed=3)
    model = checkpoint.load_model(path)[0]
    with torch.no_grad():
        model.positions.table.weight[:64] += 0.1 * torch.randn(64, 128)
        model.positions.table.weight[64:] *= 0.985
    found = schemes.rows_of_the_table(model, seed=3)
    assert (found.rows, found.trained) == (512, 64)
    assert min(found.turned[:64]) > 2
    assert max(found.turned[64:]) < 0.001
    assert found.moved[64:] == pytest.approx([0.015] * 448, abs=1e-4)
    other = schemes.rows_of_the_table(model, seed=4)
    assert min(other.turned[64:]) > 45, "a wrong seed would show"


def test_a_sliding_window_scores_the_same_tokens_at_every_length_and_none_early_in_it():
    model, ids = small("alibi"), text(256 + 32 * 5 + 1)
    losses = beyond.sliding_losses(model, ids, 64)
    assert losses.shape == (6,)
    window = ids[256 + 32 - 64 : 256 + 32 + 1]
    with torch.no_grad():
        by_hand = torch.nn.functional.cross_entropy(model(window[None, :-1])[0, -32:], window[-32:]).item()
    assert losses[1].item() == pytest.approx(by_hand, abs=1e-6)
    found = beyond.early_tokens(model, ids)
    assert (found.stride, found.scored) == (32, 6 * 32)
    assert [row.length for row in found.rows] == [64, 128, 256]
    assert found.rows[0].predicted == pytest.approx(found.rows[0].whole)
    assert (found.rows[0].change_nats, found.rows[0].error_nats) == (0, 0)
    assert abs(found.rows[2].change_nats) > 1e-5


def test_a_model_without_a_past_gains_nothing_on_longer_windows():
    model = untrained(replace(VARIANTS["no-context"].config, vocab_size=300, d_model=32))
    for row in beyond.early_tokens(model, text(1000)).rows:
        assert (row.change_nats, row.error_nats) == pytest.approx((0, 0), abs=1e-6)


def test_other_rows_are_put_into_a_copy_and_only_where_none_was_trained():
    model, ids = small("learned"), text(4 * 512 + 1)
    before = schemes.position_table(model).clone()
    found = beyond.other_rows(model, ids)
    assert torch.equal(schemes.position_table(model), before)
    values = {(row.way, row.length): row.perplexity for row in found.rows}
    assert len(values) == 4 * 3
    assert found.windows == 2
    assert found.inside == pytest.approx(math.exp(mean_loss(model, windows(ids, 64)[::2])))
    for way, row in (
        ("random", before[64:]),
        ("zero", 0.0),
        ("scaled", 0.02 * before[64:]),
        ("last", before[63]),
    ):
        other = Transformer(model.config).eval()
        checkpoint.restore_model(other, checkpoint.model_tensors(model))
        with torch.no_grad():
            schemes.position_table(other)[64:] = row
        by_hand = math.exp(mean_loss(other, windows(ids, 256)[::2]))
        assert values[way, 256] == pytest.approx(by_hand), way
    assert len({round(value, 6) for value in values.values()}) == 12, "all differ"


def test_the_mask_leaks_the_place_and_one_block_without_positions_does_not_use_the_order():
    found = schemes.knowledge({name: small(name) for name in ("none", "rope")}, text(64 * 120 + 1), 0)
    none, rope = found.models["none"], found.models["rope"]
    assert none.read > 0.3
    assert abs(none.unmasked) < 0.1
    assert none.untrained == none.read, "no weight was trained here"
    assert none.shuffled == pytest.approx(none.ordered, rel=1e-5)
    last = schemes.losses_by_position(small("none"), windows(text(64 * 120 + 1), 64)[::2])[-1]
    assert none.ordered == pytest.approx(math.exp(last))
    assert abs(rope.shuffled - rope.ordered) > 1e-4 * rope.ordered


def test_what_is_read_off_is_nothing_of_noise_and_all_of_the_place_itself():
    draw = torch.Generator().manual_seed(0)
    noise = torch.randn(200, 64, 4, generator=draw)
    assert schemes.readable(noise) == pytest.approx(0, abs=0.01)
    place = torch.arange(1, 65).float().log()[:, None].expand(200, 64, 1)
    assert schemes.readable(torch.cat([noise, place], dim=-1)) == pytest.approx(1, abs=1e-4)


@pytest.mark.parametrize("heads", range(1, alibi.MOST_HEADS + 1))
def test_the_slopes_that_the_page_computes_are_the_models(heads):

    found = [slope.value for slope in alibi.slopes(heads)]
    assert found == pytest.approx(alibi_slopes(heads).tolist())


def test_it_reads_the_held_out_part_of_a_text_and_the_seed_of_a_run(tmp_path, home, tiny_text):
    known = corpus.add_upload(4 * tiny_text, "four.txt").id
    alibi_weights = weights_of(tmp_path, "alibi")
    found = positions.places({"alibi": alibi_weights}, known)
    assert found.windows == (len(corpus.load(known).held_out_ids) - 1) // 512
    assert max(positions.table({"learned": weights_of(tmp_path, "learned", seed=2)}).turned) < 0.001
    with pytest.raises(InvalidInput, match="the weights given as rope are of alibi"):
        positions.rescaled({"rope": alibi_weights})
    assert positions.early_tokens({"alibi": alibi_weights}, known).scored > 0
    assert positions.other_rows({"learned": weights_of(tmp_path, "learned")}, known).scale == 0.02
    with pytest.raises(ValueError, match="the weights are of rope; only a learned table has rows"):
        schemes.rows_of_the_table(small("rope"), 0)


@pytest.mark.parametrize(
    ("measure", "complaint"),
    [
        (lambda: positions.order("the"), "The text has 1 tokens; allowed: 3 to 64."),
        (lambda: positions.order(" "), "Type at least one word."),
        (lambda: positions.order("a b c d", -1), "the seed is -1; allowed: a whole number from 0 to 9,223"),
        (lambda: positions.table({}), "no weights of learned are given."),
        (lambda: positions.places({"odd": Path("x")}), "weights are given of odd; allowed: none, "),
        (lambda: positions.table({"learned": Path("/nowhere/x.safetensors")}), "No such file"),
    ],
)
def test_what_cannot_be_measured_is_refused_in_one_sentence(measure, complaint):
    with pytest.raises(InvalidInput, match=complaint) as refused:
        measure()
    assert "\n" not in str(refused.value)
