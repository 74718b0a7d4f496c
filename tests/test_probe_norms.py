"""Gradients of twelve blocks before the first step: whose they are, and the chapter's where its text is."""

import pytest
import torch

from engine.chapter import reference
from engine.chapter.measurements import NORM_GRADIENTS, PLACEMENTS
from engine.data import corpus
from engine.probes import norms
from engine.probes.results.norms import Gradients
from engine.system.errors import LabError
from engine.training.loop import Training, block_gradient_norms

QKV = {"pre-norm": (0.0457, 0.0664), "post-norm": (0.0938, 0.1521)}  # seed 0, batch 64, context 128


pytestmark = pytest.mark.usefixtures("one_thread")


def test_every_block_has_three_norms_and_the_whole_is_larger_than_its_parts(tiny_corpus):
    found = norms.norms(tiny_corpus, seed=3, batch=2, context=16)
    assert [(row.placement, row.seed) for row in found.rows] == [(name, 3) for name in PLACEMENTS]
    assert (found.text, found.of_the_chapters_text) == ("tiny.txt", False)
    for row in found.rows:
        assert [len(getattr(row, name)) for name in norms.MEASURES] == [12] * 3
        for qkv, out, whole in zip(row.qkv, row.W_O, row.block, strict=True):
            assert 0 < qkv**2 + out**2 < whole**2
    other = norms.norms(tiny_corpus, seed=4, batch=2, context=16)
    assert other.rows[0].qkv != found.rows[0].qkv, "another seed draws anew"


def test_it_is_what_training_records_and_comes_before_the_step(tiny_corpus, monkeypatch):
    made = []

    class Watched(Training):
        def __post_init__(self):
            super().__post_init__()
            made.append(self)
            self.before = {name: p.detach().clone() for name, p in self.model.named_parameters()}

    monkeypatch.setattr(norms, "Training", Watched)
    row = norms.gradients(corpus.load(tiny_corpus, context_length=16), "pre-norm", 0, batch=2, context=16)
    (training,) = made
    assert row.qkv == pytest.approx(block_gradient_norms(training.model))
    with torch.no_grad():
        for name, parameter in training.model.named_parameters():
            parameter.copy_(training.before[name])
    training.batches.manual_seed(0)
    training.model.zero_grad()
    training._loss(training.task.batch(training.batches, 2)).backward()
    assert row.qkv == pytest.approx(block_gradient_norms(training.model), rel=1e-5)


def test_the_measurement_reads_the_first_block_the_last_and_their_ratio():
    rows = [Gradients(name, 0, 0.0, qkv=[0.1, 5.0, 0.25], W_O=[], block=[]) for name in PLACEMENTS]
    found = NORM_GRADIENTS.read(rows)
    assert found == {name: {"first": 0.1, "last": 0.25, "ratio": 2.5} for name in PLACEMENTS}
    assert set(NORM_GRADIENTS.chapter) == {(name, m) for name in PLACEMENTS for m in NORM_GRADIENTS.metrics}


def test_without_the_chapters_text_the_measurement_says_so(home, monkeypatch):
    def missing(*_, **__):
        raise corpus.CorpusUnavailable("Tiny Shakespeare could not be fetched.")

    monkeypatch.setattr(norms.corpus, "load", missing)
    with pytest.raises(corpus.CorpusError, match="could not be fetched"):
        NORM_GRADIENTS.measure(0)


@pytest.mark.skipif(not corpus.is_present(corpus.TINYSHAKESPEARE), reason="Tiny Shakespeare is not here")
def test_on_the_chapters_text_the_norms_are_near_its_own_and_those_that_are_shipped():
    text = corpus.load(corpus.TINYSHAKESPEARE)
    rows = [norms.gradients(text, placement, 0) for placement in PLACEMENTS]
    found = NORM_GRADIENTS.read(rows)
    for placement, ends in QKV.items():
        assert (found[placement]["first"], found[placement]["last"]) == pytest.approx(ends, abs=2e-4)
        for metric, before in reference.load(NORM_GRADIENTS.id).rows[placement].measured["0"].items():
            assert found[placement][metric] == pytest.approx(before, rel=1e-4, abs=1e-3)
    assert found["post-norm"]["first"] > 1.5 * found["pre-norm"]["first"]
    # As near to the chapter's as those of W_Q, W_K and W_V are.
    for row, near in zip(rows, ((0.0478, 0.0681), (0.0982, 0.1480)), strict=True):
        assert (row.W_O[0], row.W_O[-1]) == pytest.approx(near, abs=2e-4)
    for row in rows:  # over a whole block there is hardly a slope
        assert row.block[-1] / row.block[0] == pytest.approx(1.04, abs=0.1)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"batch": 0}, "batch is 0; allowed: a whole number from 1 to 128."),
        ({"context": 999}, "context is 999; allowed: a whole number from 1 to 256."),
        ({"seed": -1}, "seed is -1; allowed: a whole number from 0 to"),
        ({"corpus_id": "shakespeare"}, "shakespeare"),
    ],
)
def test_what_is_out_of_range_is_refused_in_one_sentence(home, changes, complaint):
    with pytest.raises(LabError, match=complaint):
        norms.norms(**changes)
