"""Our attention against PyTorch's, and the five wrong ones against the tests that should catch them."""

import inspect

import numpy as np
import pytest
import torch

from engine.chapter.measurements import PARITY, PRECISIONS
from engine.probes import parity, zoo
from engine.probes.parity import SIZES, Size
from engine.sandbox import cases
from engine.system.errors import InvalidInput
from lab.sections.parity import parts

# Of each implementation: the tests that catch it, and the switch of the pasted code that makes its mistake.
MISTAKES: dict[str, tuple[set[str], tuple[str, str] | None]] = {
    "right": (set(), None),
    "softmax-axis": ({"rows", "causality", "equal-scores", "parity"}, ("softmax axis", "queries")),
    "no-scale": ({"variance", "parity"}, ("scale", "none")),
    "late-mask": ({"rows", "causality", "equal-scores", "parity"}, ("mask", "late")),
    "no-transpose": ({"causality", "shuffle", "oblong", "parity"}, ("transpose", "missing")),
    "off-by-one": ({"triangle", "causality", "equal-scores", "parity"}, ("mask", "ahead")),
}
pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def document():
    return parity.parity([0])


def of(document, **fixed):
    return [row for row in document.rows if all(getattr(row, name) == value for name, value in fixed.items())]


def test_float32_agrees_to_under_a_millionth(document):
    rows = of(document, precision="float32", scale="sqrt")
    assert {row.theirs for row in rows} == {parity.MODULE, parity.FUNCTION}
    assert {row.ours for row in rows} == {"written out", "fused"}
    assert {row.mask for row in rows} == {"causal", "none"}
    assert len({(row.tokens, row.n_head) for row in rows}) == len(SIZES)
    assert all(row.state == "done" for row in rows)
    assert max(row.difference for row in rows) < 1e-6
    assert max(row.gradient_relative for row in rows) < 1e-4
    assert min(row.magnitude for row in rows) > 0.02  # not small because the numbers are
    for scale in ("none", "width"):
        rows = of(document, precision="float32", scale=scale)
        assert {row.theirs for row in rows} == {parity.FUNCTION}
        assert max(row.difference for row in rows) < 1e-6


def test_the_chapters_figure_is_found(document):
    rows = of(document, precision="float32", scale="sqrt", mask="causal", tokens=8)
    assert all(row.magnitude == pytest.approx(0.159, abs=0.005) for row in rows)
    assert 0.5e-7 < max(row.difference for row in rows) < 4e-7


def test_the_measurement_is_the_worst_of_the_rows_that_are_causal_and_over_the_root(document):
    rows = of(document, precision="float32", scale="sqrt", mask="causal", theirs=parity.MODULE)
    found = PARITY.read(document.rows)
    assert set(found) <= set(PARITY.variants)
    for metric in PARITY.metrics:
        assert found["module-float32"][metric] == max(getattr(row, metric) for row in rows)
    assert PARITY.measure(0) == found


def test_each_precision_is_off_by_its_own_rounding(document):
    for precision, rounding in document.rounding.items():
        rows = [row for row in of(document, precision=precision, scale="sqrt") if row.state == "done"]
        if precision in ("float32", "float64"):
            assert rows
        for row in rows:
            assert row.difference < 4 * rounding, row  # outputs are below 1
            assert row.gradient_relative < 500 * rounding, row


def test_a_head_that_differs_is_seen_to_differ(monkeypatch):
    monkeypatch.setattr(parity, "_fused", lambda head, x: (2 * head(x), parity._weights(head)))
    rows = parity.compare([0], ["float32"], [Size(2, 4, 16, 2)])
    assert all(row.relative > 0.5 and row.gradient_relative > 0.5 for row in rows if row.ours == "fused")
    assert all(row.difference < 1e-6 for row in rows if row.ours == "written out")


def test_seeds_draw_anew_and_the_same_seed_the_same():
    first, second, again = (
        [row.magnitude for row in parity.compare([seed], ["float32"], SIZES[:1])] for seed in (0, 1, 0)
    )
    assert first == again
    assert not set(first) & set(second)


@pytest.mark.parametrize("error", ["\"addmm_impl_cpu_\" not implemented for 'Half'", "broken"])
def test_a_precision_that_the_cpu_lacks_is_a_labelled_row_and_other_errors_are_not_swallowed(
    monkeypatch, error
):
    def failing(head, x):
        raise RuntimeError(error)

    monkeypatch.setattr(parity, "_functional", failing)
    if error == "broken":
        with pytest.raises(RuntimeError, match="broken"):
            parity.compare([0], ["float32"], [Size(1, 2, 8, 1)])
    else:
        rows = parity.compare([0], ["float16"], [Size(1, 2, 8, 1)])
        states = {(row.theirs, row.state) for row in rows}
        assert states == {(parity.FUNCTION, "unsupported"), (parity.MODULE, "done")}


@pytest.mark.parametrize("seeds", [[], [-1], list(range(21))])
def test_wrong_seeds_get_one_sentence(seeds):
    with pytest.raises(InvalidInput, match="allowed: 1 to 20, each from 0 to"):
        parity.parity(seeds)


def test_what_the_page_lists_is_what_is_measured():
    assert tuple(parity.PRECISIONS) == PRECISIONS
    assert tuple(parts.SCALES) == parity.SCALES
    assert (parts.MODULE, parts.FUNCTION) == (parity.MODULE, parity.FUNCTION)
    assert tuple(parts.TITLES) == tuple(zoo.IMPLEMENTATIONS)
    assert tuple(parts.TESTS) == tuple(zoo.TESTS)


# The zoo


@pytest.fixture(scope="module")
def findings():
    return zoo.findings()


@pytest.mark.parametrize("name", zoo.IMPLEMENTATIONS)
def test_each_is_caught_by_these_tests_and_no_others_and_each_finding_says_why(findings, name):
    own = {finding.test: finding for finding in findings if finding.implementation == name}
    assert own.keys() == zoo.TESTS.keys() == set().union(*(caught for caught, _ in MISTAKES.values()))
    assert {test for test, finding in own.items() if finding.caught} == MISTAKES[name][0]
    assert all(finding.said.endswith(".") and "nan" not in finding.said for finding in own.values())


@pytest.mark.parametrize("name", zoo.IMPLEMENTATIONS)
def test_the_zoo_and_the_switches_make_the_same_mistakes(name):
    faults = [fault for fault in cases.FAULTS if (fault.part, fault.switch) == MISTAKES[name][1]]
    assert len(faults) == (name != "right")
    q, k, v = torch.randn(3, 2, 5, 5, generator=torch.Generator().manual_seed(0))
    for causal in (False, True):
        y = zoo.IMPLEMENTATIONS[name](q, k, causal) @ v
        would = cases.attend(torch.stack((q, k, v)).numpy(), causal, faults)
        assert np.allclose(y, would, atol=1e-6)


@pytest.mark.parametrize("name", zoo.WRONG)
def test_the_line_that_is_wrong_is_marked_in_the_source(name):
    assert inspect.getsource(zoo.IMPLEMENTATIONS[name]).count("#") == 1
