"""Position schemes: against formulas written out in float64, and what each promises of longer texts."""

import math
from dataclasses import replace

import pytest
import torch

from engine.models.config import ModelConfig
from engine.models.mixers import CausalSelfAttention
from engine.models.positions import LinearBiases, RotaryPositions, SinusoidalPositions, alibi_slopes, ntk_base
from engine.models.transformer import Transformer

pytestmark = pytest.mark.usefixtures("one_thread")

BLOCK = ModelConfig(
    vocab_size=40, d_model=32, mixer="attention", connection="pre-norm", n_head=4, output_projection=True,
    d_ff=64, max_positions=16,
)  # fmt: skip
IDS = torch.randint(40, (2, 64), generator=torch.Generator().manual_seed(1))


def of(scheme, **more):
    return replace(BLOCK, positions=scheme, **more)


def model(scheme, **more):
    torch.manual_seed(0)
    return Transformer(of(scheme, **more)).eval()


def drawn(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def test_sinusoids_are_the_papers_number_by_number():
    waves = SinusoidalPositions().embed(torch.zeros(1, 50, 10, dtype=torch.float64))[0]
    for t in range(50):
        for i in range(5):
            angle = t / 10_000 ** (2 * i / 10)
            assert waves[t, 2 * i].item() == pytest.approx(math.sin(angle), abs=1e-12)
            assert waves[t, 2 * i + 1].item() == pytest.approx(math.cos(angle), abs=1e-12)
    assert SinusoidalPositions().embed(torch.zeros(1, 4, 7)).shape == (1, 4, 7)


def test_rope_is_a_rotation_of_pairs_as_complex_numbers():
    q, k = drawn(2, 3, 40, 8), drawn(2, 3, 40, 8, seed=1)
    for before, after in zip((q, k), RotaryPositions(of("rope")).rotate(q, k), strict=True):
        numbers = torch.complex(before[..., :4], before[..., 4:])
        for t in range(40):
            turns = torch.tensor([t / 10_000 ** (2 * i / 8) for i in range(4)], dtype=torch.float64)
            expected = numbers[..., t, :] * torch.polar(torch.ones(4, dtype=torch.float64), turns)
            assert torch.allclose(after[..., t, :4], expected.real, atol=1e-12)
            assert torch.allclose(after[..., t, 4:], expected.imag, atol=1e-12)
        assert torch.allclose(after.norm(dim=-1), before.norm(dim=-1)), "lengths stay"


@pytest.mark.parametrize(("dtype", "rounding"), [(torch.float64, 1e-10), (torch.float32, 1e-4)])
def test_a_score_under_rope_depends_on_the_distance_only(dtype, rounding):
    """One q and one k at every pair of places: the score is constant along each diagonal."""
    q, k = (drawn(1, 1, 1, 16, seed=seed, dtype=dtype).expand(1, 1, 300, 16) for seed in (0, 1))
    q, k = RotaryPositions(of("rope")).rotate(q, k)
    scores = (q @ k.transpose(-2, -1))[0, 0]
    for distance in (0, 1, 7, 100):
        diagonal = scores.diagonal(-distance)
        assert diagonal.max() - diagonal.min() < rounding
    assert scores[10].std() > 0.1, "but it does depend on it"


@pytest.mark.parametrize(
    ("n_head", "exponents"),
    [(1, [8]), (2, [4, 8]), (4, [2, 4, 6, 8]), (8, [1, 2, 3, 4, 5, 6, 7, 8]), (3, [4, 8, 2]),
     (6, [2, 4, 6, 8, 1, 3]), (12, [1, 2, 3, 4, 5, 6, 7, 8, 0.5, 1.5, 2.5, 3.5])],
)  # fmt: skip
def test_alibi_slopes_for_any_number_of_heads(n_head, exponents):
    assert alibi_slopes(n_head).tolist() == pytest.approx([2**-e for e in exponents])


def test_alibi_takes_a_slope_times_the_distance_off_every_score():
    config = of("alibi")
    torch.manual_seed(0)
    head = CausalSelfAttention(config, LinearBiases(config)).double()
    x = drawn(2, 20, 32)
    q, k = (w(x).view(2, 20, 4, 8).transpose(1, 2) for w in (head.W_Q, head.W_K))
    for h, slope in enumerate((2**-2, 2**-4, 2**-6, 2**-8)):
        for t in range(20):
            for s in range(t + 1):
                expected = (q[:, h, t] * k[:, h, s]).sum(-1) / math.sqrt(8) - slope * (t - s)
                assert torch.allclose(head.scores(x)[:, h, t, s], expected, atol=1e-10)


@pytest.mark.parametrize("scheme", ["none", "sinusoidal", "rope", "alibi"])
def test_what_is_trained_on_short_windows_reads_longer_ones_with_the_same_weights(scheme):
    """Without padding, and a longer text changes nothing of what its beginning says."""
    short, longer = model(scheme), model(scheme, max_positions=64)
    longer.load_state_dict(short.state_dict())
    with torch.no_grad():
        assert torch.allclose(longer(IDS)[:, :16], short(IDS[:, :16]), atol=1e-5)
        assert longer(IDS).isfinite().all()


def test_rescaled_rope_turns_slower_and_stays_a_rotation():
    q = drawn(1, 1, 65, 8)
    plain, stretched = (RotaryPositions(of("rope", rope_stretch=by)) for by in (1, 4))
    moved = plain.rotate(q[..., ::4, :], q)[0]
    assert torch.allclose(stretched.rotate(q, q)[0][..., ::4, :], moved), "position 4 t stands where t stood"
    base = ntk_base(10_000, 4, 8)
    for i in range(4):
        slower = (base / 10_000) ** (2 * i / 8)
        assert slower == pytest.approx(4 ** (i / 3)), "the fastest pair as before, the slowest 4 times slower"


@pytest.mark.parametrize("scheme", ["none", "learned", "sinusoidal", "rope", "alibi"])
def test_without_a_mask_only_positions_tell_orders_apart(scheme):
    """Self-attention alone is permutation-equivariant: shuffled in, shuffled out."""
    transformer, ids = model(scheme, mixer="unmasked", connection="add", d_ff=0).double(), IDS[:1, :16]
    order = torch.randperm(16, generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        gap = (transformer(ids)[:, order] - transformer(ids[:, order])).abs().max().item()
    assert gap < 1e-12 if scheme == "none" else gap > 1e-3


def test_dropout_acts_in_training_only_and_in_all_three_places(monkeypatch):
    dropping, plain, ids = model("learned", dropout=0.5), model("learned"), IDS[:, :16]
    plain.load_state_dict(dropping.state_dict())
    with torch.no_grad():
        assert torch.equal(dropping(ids), plain(ids))
        dropping.train()
        assert not torch.allclose(dropping(ids), dropping(ids))
    places = [module for module in dropping.modules() if isinstance(module, torch.nn.Dropout)]
    assert len(places) == 1 + 2, "the embeddings' sum and two sublayers"
    asked = []
    fused = torch.nn.functional.scaled_dot_product_attention

    def spied(*arguments, **named):
        asked.append(named["dropout_p"])
        return fused(*arguments, **named)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", spied)
    dropping(ids)
    dropping.eval()(ids)
    assert asked == [0.5, 0.0], "and the attention weights"
