"""Our linear layer is torch's, whichever library multiplies."""

import pytest
import torch
import torch.nn.functional as F

from engine.models import linear as module
from engine.models.linear import Linear, by_torch_alone, linear

SHAPES = [(4,), (0, 4), (5, 4), (2, 3, 4), (2, 3, 5, 4)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("bias", [True, False])
def test_values_and_gradients_are_those_of_torch(shape, bias):
    torch.manual_seed(0)
    layer, found = Linear(4, 3, bias=bias), []
    for ours in (True, False):
        x = torch.randn(shape, generator=torch.Generator().manual_seed(1)).requires_grad_()
        y = layer(x) if ours else F.linear(x, layer.weight, layer.bias)
        found.append((y, *torch.autograd.grad(y.square().sum(), [x, *layer.parameters()])))
    for mine, torchs in zip(*found, strict=True):
        assert torch.allclose(mine, torchs, rtol=1e-5, atol=1e-5)


def test_input_that_lies_crosswise_in_memory_is_read_right():
    x, weight, ones = torch.randn(6, 5).t(), torch.randn(3, 6), torch.ones(2, 3)
    assert torch.allclose(linear(x, weight), F.linear(x, weight), atol=1e-5)
    assert torch.allclose(linear(ones, weight.t()), weight.sum(0).expand(2, 6), atol=1e-5)


def test_only_what_is_asked_for_gets_a_gradient():
    layer = Linear(4, 3).requires_grad_(False)
    x = torch.randn(5, 4, requires_grad=True)
    layer(x).sum().backward()
    assert torch.allclose(x.grad, layer.weight.sum(0).expand(5, 4), atol=1e-6)
    assert layer.weight.grad is None


def test_a_model_can_be_told_to_use_torchs_alone():
    x, model = torch.randn(5, 4), torch.nn.Sequential(Linear(4, 3), torch.nn.Sequential(Linear(3, 2)))
    by_torch_alone(model)
    first, second = model[0], model[1][0]
    expected = F.linear(F.linear(x, first.weight, first.bias), second.weight, second.bias)
    assert torch.equal(model(x), expected)


def test_without_the_operator_and_in_other_types_it_is_torchs(monkeypatch):
    for dtype in (torch.float64, torch.bfloat16):
        x, weight = torch.randn(5, 4, dtype=dtype), torch.randn(3, 4, dtype=dtype)
        assert torch.equal(linear(x, weight), F.linear(x, weight))
    assert linear(torch.empty(5, 4, device="meta"), torch.empty(3, 4, device="meta")).shape == (5, 3)
    x, layer = torch.randn(5, 4), Linear(4, 3)
    with torch.autocast("cpu", torch.bfloat16):
        assert layer(x).dtype == torch.bfloat16
    monkeypatch.setattr(module, "_ONEDNN", None)
    assert torch.equal(layer(x), F.linear(x, layer.weight, layer.bias))


def test_a_few_rows_without_gradient_are_torchs_own_and_more_are_not(monkeypatch):
    asked = []

    def counted(x, *_):
        asked.append(len(x))
        return x.new_zeros(len(x), 3)

    monkeypatch.setattr(module, "_ONEDNN", counted)
    layer = Linear(4, 3)
    few, more = torch.randn(module.FEW_ROWS - 1, 4), torch.randn(module.FEW_ROWS, 4)
    with torch.no_grad():
        assert torch.equal(layer(few), F.linear(few, layer.weight, layer.bias))
        layer(more)
    assert asked == [len(more)]
    layer(few)
    assert asked == [len(more), len(few)], "training goes one way"
