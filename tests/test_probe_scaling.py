"""Why sqrt(d_k), on random vectors: the chapter's digits, its frozen rows, and the Jacobian."""

import pytest
import torch

from engine.chapter.measurements import SATURATION, VARIANCE
from engine.probes import scaling
from engine.system.errors import InvalidInput

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def saturated():
    return {row.d: row for row in scaling.saturation()}


def test_the_variances_are_the_chapters_to_the_last_digit():
    found = VARIANCE.read(scaling.variance())
    assert len(VARIANCE.chapter) == 2 * len(scaling.D_HEADS)
    for (variant, metric), value in VARIANCE.chapter.items():
        assert round(found[variant][metric], 3) == value.low == value.high
        assert value.low * value.tolerance == pytest.approx(0.0005, rel=0.05)


def test_divided_the_jacobians_trace_is_flat_and_no_row_is_frozen(saturated):
    for row in saturated.values():
        assert row.divided.trace == pytest.approx(0.96, abs=0.01)
        assert row.divided.frozen_share == 0
    traces = [value for (_, metric), value in SATURATION.chapter.items() if metric == "trace"]
    assert len(traces) == len(saturated)
    assert [value.tolerance * value.middle for value in traces] == pytest.approx([0.01] * len(traces))


def test_undivided_seven_rows_in_ten_are_frozen_and_half_of_them_pass_nothing_on(saturated):
    wide = saturated[1024]
    assert wide.undivided.frozen_share == pytest.approx(0.70, abs=0.03)
    frozen = SATURATION.chapter["undivided-1024", "frozen_share"]
    assert frozen.tolerance * frozen.middle == pytest.approx(0.03)
    shares = [100 * row.undivided.frozen_share for row in saturated.values()]
    assert shares == pytest.approx([0.05, 2, 17, 48, 68], abs=3)
    rows = saturated.values()
    undivided = [row.undivided.effective_tokens for row in rows]
    divided = [row.divided.effective_tokens for row in rows]
    assert undivided == pytest.approx([20.9, 5.0, 2.1, 1.4, 1.2], abs=0.15)
    assert [round(tokens) for tokens in divided] == [42, 41, 41, 40, 40]
    assert wide.undivided.gradient_share_median < wide.divided.gradient_share_median / 100
    # The mean is another matter: at 16 the undivided rows, sharp but not frozen, pass on more.
    assert saturated[16].undivided.gradient_share > saturated[16].divided.gradient_share


def test_trace_and_gradient_are_those_of_autograd():
    draw = torch.Generator().manual_seed(3)
    scores = (3 * torch.randn(1, 8, generator=draw)).requires_grad_()
    arriving = torch.randn(1, 8, generator=draw)
    jacobian = torch.autograd.functional.jacobian(lambda row: row.softmax(dim=-1), scores[0])
    (reaching,) = torch.autograd.grad(scores.softmax(dim=-1), scores, arriving)
    found = scaling.row_statistics(scores.detach(), arriving)
    assert found.trace == pytest.approx(jacobian.trace().item(), rel=1e-4)
    assert found.gradient_share == pytest.approx((reaching.norm() / arriving.norm()).item(), rel=1e-4)
    assert found.gradient_share_median == pytest.approx(found.gradient_share)


def test_uniform_and_frozen_rows():
    even, one_hot = torch.zeros(1, 64), torch.zeros(1, 64)
    one_hot[0, 3] = 100.0
    ones = torch.ones(1, 64)
    uniform, frozen = (scaling.row_statistics(scores, ones) for scores in (even, one_hot))
    assert uniform.effective_tokens == pytest.approx(64)
    assert (uniform.frozen_share, frozen.frozen_share) == (0, 1)
    assert frozen.effective_tokens == pytest.approx(1)
    assert frozen.trace == pytest.approx(0, abs=1e-6)


def test_both_at_every_d_that_are_asked_for():
    found = scaling.random_vectors(pairs=100, rows=50, d_heads=[4, 16])
    assert [row.d for row in found.variance] == [row.d for row in found.saturation] == [4, 16]
    assert (found.pairs, found.rows, found.keys, found.seed) == (100, 50, 64, 0)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"pairs": 1}, "pairs is 1; allowed: a whole number from 2 to 50,000."),
        ({"rows": 0}, "rows is 0; allowed: a whole number from 1 to 10,000."),
        ({"d_heads": [0]}, "d is 0; allowed: a whole number from 1 to 4,096."),
        ({"pairs": 50_000, "d_heads": [4096]}, "50,000 pairs with d 4,096; allowed: at most 24,414"),
    ],
)
def test_what_is_out_of_range_is_refused_in_one_sentence(changes, complaint):
    with pytest.raises(InvalidInput, match=complaint):
        scaling.random_vectors(**changes)
