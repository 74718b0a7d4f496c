"""Parameters counted from a configuration, against the models themselves, the chapter and GPT-2."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from engine.chapter.experiments import VARIANTS
from engine.models import ledger
from engine.models.config import ModelConfig
from engine.models.transformer import Transformer, parameter_count

BLOCK = VARIANTS["block"].config
GPT2 = replace(
    BLOCK, vocab_size=50_257, d_model=768, n_layer=12, n_head=12, max_positions=1024, d_ff=3072,
    qkv_bias=True, unembedding_bias=False, tied=True,
)  # fmt: skip
# Where a real model keeps each part, by what its parameters' names hold.
PLACES = {
    "token table": ("token_embedding.",),
    "position table": ("positions.table.",),
    **{matrix: (f".{matrix}.",) for matrix in ("W_Q", "W_K", "W_V", "W_O")},
    "score scale": (".scale", ".norm_q.", ".norm_k."),
    "learned matrix": (".matrix",),
    "feed-forward": (".sublayer.0.", ".sublayer.2."),
    "norms": (".norm.",),
    "final norm": ("final_norm.",),
    "unembedding": ("unembedding.",),
}
CHANGES: tuple[dict[str, Any], ...] = (
    {"connection": "post-norm", "n_layer": 3},
    {"mixer": "none"},
    {"mixer": "matrix", "max_positions": 7},
    {"n_layer": 0},
    {"d_ff": 0, "mixer": "none"},
    {"d_head": 5, "n_head": 3, "qkv_bias": True, "output_bias": False},
    {"score_scale": "qk-norm", "d_head": 6},
    {"tied": True, "unembedding_bias": False},
)


def of_the_model(config):
    """Its parameters by part, read off the model itself."""
    with torch.device("meta"):
        model = Transformer(config)
    found = dict.fromkeys(PLACES, 0)
    for name, parameter in model.named_parameters():
        (part,) = (part for part, words in PLACES.items() if any(word in name for word in words))
        found[part] += parameter.numel()
    assert sum(found.values()) == parameter_count(model)
    return {part: number for part, number in found.items() if number}


@pytest.mark.parametrize(
    "config",
    [made.config for made in VARIANTS.values()] + [replace(BLOCK, **change) for change in CHANGES],
    ids=[*VARIANTS, *map(str, CHANGES)],
)
def test_every_part_of_every_model_is_counted_as_the_model_has_it(config):
    assert ledger.parameters(config) == of_the_model(config)


def test_the_chapters_block():
    assert ledger.total(BLOCK) == 477_696
    assert sum(ledger.block_parameters(BLOCK).values()) == 197_888
    assert ledger.feed_forward_share(BLOCK) == pytest.approx(0.666, abs=5e-4)
    for change, difference in (
        ({"n_layer": 2}, 197_888),
        ({"output_projection": False}, -16_512),
        ({"connection": "add"}, -768),
    ):
        assert ledger.total(replace(BLOCK, **change)) - ledger.total(BLOCK) == difference


@pytest.mark.parametrize(
    ("name", "added"),
    [
        ("average", 0), ("average-positions", 128**2), ("matrix", 128**2), ("raw", 0), ("unmasked", 0),
        ("query-key", 2 * 128**2), ("head-projected", 16_512), ("four-heads", 0), ("block", 768),
        ("block-dropout", 0),
    ],
)  # fmt: skip
def test_what_a_rung_adds(name, added):
    parent = VARIANTS[VARIANTS[name].parent]
    assert ledger.total(VARIANTS[name].config) - ledger.total(parent.config) == added


def test_two_thirds_at_any_width():
    for width in (64, 128, 768, 4096, 12_288):
        share = ledger.feed_forward_share(replace(BLOCK, d_model=width, n_head=1, d_ff=4 * width))
        assert share == pytest.approx(2 / 3, abs=0.003)


@pytest.mark.parametrize(
    ("change", "published"),
    [
        ({}, 124_439_808),
        ({"qkv_bias": False}, 124_412_160),
        ({"tied": False}, 163_037_184),
        ({"tied": False, "qkv_bias": False}, 163_009_536),
        ({"tied": False, "unembedding_bias": True}, 163_087_441),
        ({"positions": "none"}, 123_653_376),
        ({"vocab_size": 50304}, 124_475_904),
    ],
)
def test_gpt2_small_in_every_way_it_is_counted(change, published):
    config = replace(GPT2, **change)
    assert ledger.total(config) == sum(of_the_model(config).values()) == published


def test_where_gpt2_keeps_its_parameters():
    parts = of_the_model(GPT2)
    tables = parts["token table"], parts["position table"], parts["final norm"]
    assert tables == (38_597_376, 786_432, 1_536)
    assert sum(ledger.block_parameters(GPT2).values()) == 7_087_872


def test_a_block_of_nothing_has_no_share():
    assert ledger.feed_forward_share(ModelConfig()) is None
    assert ledger.feed_forward_share(VARIANTS["head-added"].config) == 0


@pytest.mark.parametrize(
    "name", ["no-context", "average", "matrix", "raw", "query-key", "block", "two-blocks"]
)
def test_the_work_is_what_torch_counts(name):
    """Two operations a multiplication, by torch's own counter, which knows the fused kernel too."""
    config, window = VARIANTS[name].config, 32
    with torch.device("meta"), FlopCounterMode(display=False) as counted:
        Transformer(config)(torch.zeros(3, window, dtype=torch.long))
    assert ledger.multiplications(config, window) * 2 * 3 * window == counted.get_total_flops()
