"""The n x n wall in numbers: one output four ways, bytes counted once, predicted and in closed form.

Shapes: B batch, T position (query), S position (key), D d_model, H heads, K d_head. Nothing here is larger
than 512 tokens but what is predicted.
"""

import json
import math
import subprocess
import time
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.memory_wall import attention, predict
from engine.memory_wall.attention import draw, step
from engine.memory_wall.live_bytes import LiveBytes
from engine.memory_wall.meters import Measurement, measure_bytes
from engine.memory_wall.predictions import Longest, Predicted
from engine.memory_wall.setting import (
    CHAPTER,
    GB,
    IMPLEMENTATIONS,
    MB,
    WORKSPACE_BYTES,
    Setting,
    at_most,
    closed_form,
)
from engine.memory_wall.sweep import predict_command
from engine.probes import registry, wire
from engine.system import paths
from engine.system.errors import InvalidInput

pytestmark = pytest.mark.usefixtures("one_thread")

SMALL = {"d_model": 32, "n_head": 4, "batch": 2, "block": 8}
TOLERANCE = {"float64": 1e-12, "float32": 2e-5, "float16": 2e-2, "bfloat16": 1.5e-1}
BOTH = pytest.mark.parametrize("causal", [True, False], ids=["causal", "whole"])
WAYS = pytest.mark.parametrize("backward", [False, True], ids=["forward", "backward"])


def expected(x, weights, setting):
    """Attention in float64, a query at a time. shape: (B, T, D) -> (B, T, D)"""
    B, T, D = x.shape
    K = D // setting.n_head
    q, k, v = ((x @ W.T).view(B, T, setting.n_head, K) for W in weights[:3])
    rows = []
    for t in range(T):
        S = t + 1 if setting.causal else T
        scores = torch.einsum("bhk,bshk->bsh", q[:, t], k[:, :S]) / math.sqrt(K)
        rows.append(torch.einsum("bsh,bshk->bhk", scores.softmax(1), v[:, :S]).flatten(1))
    return torch.stack(rows, 1) @ weights.W_O.T


def assert_right(implementation, setting, n=21):
    x, weights = draw(n, setting)
    exact = [t.detach().double().requires_grad_() for t in (x, *weights)]
    y = expected(exact[0], attention.Weights(*exact[1:]), setting)
    want = [y]
    if setting.backward:
        want += torch.autograd.grad(y, exact, torch.ones_like(y))
    got = step(implementation, x, weights, setting)
    assert len(got) == len(want)
    for one, other in zip(got, want, strict=True):
        assert one.dtype == getattr(torch, setting.dtype)
        scale = other.abs().max().item()
        assert (one.double() - other).abs().max().item() <= TOLERANCE[setting.dtype] * scale


@BOTH
@WAYS
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("implementation", ["explicit", "fused", "chunked"])
def test_all_give_what_float64_gives_whatever_the_block(implementation, dtype, backward, causal):
    for block in (1, 7, 21, 500) if (implementation, dtype) == ("chunked", "float64") else (8,):
        sizes = {**SMALL, "block": block}
        assert_right(implementation, Setting(**sizes, dtype=dtype, causal=causal, backward=backward))


def test_the_control_is_four_linear_maps():
    setting = Setting(**SMALL, dtype="float64", backward=True)
    x, weights = draw(9, setting)
    y, *gradients = step("projections", x, weights, setting)
    torch.testing.assert_close(y, x @ (weights.W_Q + weights.W_K + weights.W_V).T @ weights.W_O.T)
    assert all(gradient.abs().max() > 0 for gradient in gradients)


# Counting.


def test_views_and_writes_in_place_count_once_and_what_is_freed_counts_no_more():
    before = torch.ones(1000)
    with LiveBytes() as live:
        x = torch.zeros(10, 10)
        assert live.bytes == 400
        y = x.t()[2:].reshape(-1).view(8, 10)
        assert live.bytes == 400 + 320  # the reshape of a transpose is a copy
        x.add_(1).relu_()
        torch.add(x, 1, out=x)
        views = x.unbind(0), x.unflatten(0, (2, 5)), x.detach()
        before.view(10, 100).mul_(2)  # made before: not counted
        assert live.bytes == 720
        del y
        assert live.bytes == 400
        del x
        assert live.bytes == 400  # its views live on
        del views
        assert live.bytes == 0
        a, b = torch.zeros(50).max(dim=0, keepdim=True)
        assert live.bytes == a.nbytes + b.nbytes
        del a, b
        for _ in range(50):  # at one address, again and again
            torch.empty(80).add(1)
        assert live.bytes == 0
    assert live.peak_bytes == 720


@BOTH
@WAYS
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_predicted_is_counted(implementation, dtype, backward, causal):
    setting = Setting(**{**SMALL, "block": 16}, dtype=dtype, causal=causal, backward=backward)
    for n in (5, 64, 150):
        with LiveBytes() as live:
            x, weights = draw(n, setting)
            made = step(implementation, x, weights, setting)
        predicted = predict.predicted_bytes(n, implementation, setting)
        assert live.peak_bytes == pytest.approx(predicted, rel=0.01)
        if implementation == "explicit" and not backward:
            assert live.peak_bytes == pytest.approx(closed_form(n, setting), rel=0.001)
        del x, weights, made
        assert live.bytes == 0


@pytest.mark.parametrize("n", [128, 256, 512])
def test_counted_at_the_chapters_size(n):
    measurement = Measurement(n=n, implementation="explicit", setting=Setting(), device="cpu")
    _, found = measure_bytes(measurement, GB, beforehand=False)
    assert found.peak_bytes == pytest.approx(closed_form(n), rel=0.001)
    assert round((found.peak_bytes + WORKSPACE_BYTES) / MB, 1) == next(r.peak_mb for r in CHAPTER if r.n == n)
    assert found.backend is None
    fused = replace(measurement, implementation="fused")
    assert measure_bytes(fused)[1].backend == "flash (CPU)"
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        assert measure_bytes(fused)[1].backend == "math"


# Predicting.


def test_the_chapters_figures_are_predicted_to_the_digit():
    peaks = [row.peak_mb for row in CHAPTER[:7]]
    assert peaks == [14.6, 19.2, 34.4, 89.1, 296.1, 1100.1, 4300.1]
    for row in CHAPTER:
        predicted = predict.predicted_bytes(row.n, "explicit") + WORKSPACE_BYTES
        assert predicted == closed_form(row.n, workspace_bytes=WORKSPACE_BYTES)
        assert row.peak_mb in (None, round(predicted / MB, 1))
        assert row.matrix_mb == 4 * row.n**2 * 8 / MB
    assert round(closed_form(16_384, workspace_bytes=WORKSPACE_BYTES) / MB) == 17_036


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize("backward", [False, True])
def test_one_more_token_than_the_longest_does_not_fit(implementation, backward):
    setting, budget = Setting(**SMALL, backward=backward), 3_000_000
    n = predict.longest(budget, implementation, setting, 0)
    assert predict.predicted_bytes(n, implementation, setting) <= budget
    assert predict.predicted_bytes(n + 1, implementation, setting) > budget
    assert n <= at_most(budget, implementation, setting)
    assert predict.longest(WORKSPACE_BYTES, "explicit") == 0
    for name, at_least in (("fused", 500_000), ("chunked", 200_000)):
        assert predict.longest(8 * GB, name) > at_least


@given(
    st.integers(0, 3000),
    st.integers(0, 3000),
    st.sampled_from([lambda n: n, lambda n: n * n, lambda n: n // 100, lambda n: math.sqrt(n)]),
)
def test_the_search_finds_the_edge_of_whatever_grows(edge, high, shape):
    looked = []

    def over(n):
        looked.append(n)
        return shape(n) - shape(edge) if n <= edge else max(shape(n) - shape(edge), 0.5)

    assert predict.largest(over, high) == min(edge, high)
    assert len(looked) < 30
    assert all(1 <= n <= high for n in looked)


def test_a_million_tokens_take_a_moment_and_too_many_bytes_are_said():
    predict.predicted_bytes(10, "chunked")
    began = time.process_time()
    assert predict.predicted_bytes(1_000_000, "explicit") == closed_form(1_000_000)
    predict.predicted_bytes(1_000_000, "chunked")
    assert time.process_time() - began < 0.5
    with pytest.raises(predict.TooLarge, match="more bytes than 64 bits count"):
        predict.predicted_bytes(100_000_000, "explicit", Setting(batch=1024, n_head=512))
    assert predict.longest(2**62, "explicit", Setting(batch=1024, n_head=512)) > 0


def test_it_is_a_probe_and_survives_json():
    asked = {"setting": {}, "tasks": [[128, "explicit"]], "implementations": ["explicit"]}
    found = registry.MEMORY_WALL.call({**asked, "cards_gb": [8, 0.1]})
    assert found.rows == (Predicted(128, "explicit", closed_form(128)),)
    assert found.longest[0] == Longest(8.0, "explicit", 11_338)
    assert 1000 < found.longest[1].n < 1200
    assert registry.MEMORY_WALL.read(wire.plain(found)) == found
    # A sweep asks a process of its own.
    command = predict_command(Setting(d_model=64), [(16, "fused")], "cpu")
    ended = subprocess.run(command, cwd=paths.ROOT, capture_output=True, text=True, check=True)
    assert registry.MEMORY_WALL.read(json.loads(ended.stdout)).rows[0].n == 16


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"tasks": [[0, "fused"]]}, "n is 0; allowed: a whole number from 1"),
        ({"tasks": [[8, "flash"]]}, "implementation is 'flash'; allowed: explicit"),
        ({"setting": {"n_head": 7}}, "n_head is 7; allowed: a divisor of d_model, 512."),
        ({"setting": {"d_model": 0}}, "d_model is 0; allowed: a whole number from 1 to 65,536."),
        ({"setting": {"dtype": "int8"}}, "dtype is 'int8'; allowed: float32, bfloat16, float16, float64."),
        ({"setting": {"block": 0}}, "block is 0"),
        ({"setting": {"batch": 1024, "n_head": 512}, "tasks": [[10**8, "explicit"]]}, "more bytes than 64"),
    ],
)
def test_what_cannot_be_predicted_is_refused_in_one_sentence(asked, said):
    with pytest.raises(InvalidInput, match=said):
        registry.MEMORY_WALL.call({"setting": {}, **asked})
