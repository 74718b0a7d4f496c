"""Models: causality, weights that sum to one, two paths that agree, closed-form sizes, refused sizes."""

import json
import math
from dataclasses import FrozenInstanceError, fields, replace
from itertools import product
from typing import Any, get_args

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import nn

from engine.chapter.experiments import VARIANTS
from engine.models import ledger
from engine.models.block import CONNECTIONS, Block, FeedForward
from engine.models.config import (
    MAX_DROPOUT,
    MAX_LAYERS,
    MAX_POSITIONS,
    MAX_VOCAB,
    MAX_WIDTH,
    WITHOUT_HEADS,
    WITHOUT_TABLES,
    Connection,
    Mixer,
    ModelConfig,
    Positions,
    ScoreScale,
)
from engine.models.mixers import ATTENTION, CausalSelfAttention, LearnedMatrix, UniformAverage, make_mixer
from engine.models.positions import LearnedPositions, NoPositions, make_positions
from engine.models.transformer import Transformer, parameter_count

pytestmark = pytest.mark.usefixtures("one_thread")

SMALL = {"vocab_size": 40, "d_model": 16, "n_head": 2, "max_positions": 32, "output_projection": True}
TWO_BLOCKS = {**SMALL, "n_layer": 2, "d_ff": 24}
MODELS = {name: variant.config for name, variant in VARIANTS.items()} | {
    "/".join((mixer, connection, scheme)): ModelConfig(
        **TWO_BLOCKS, mixer=mixer, connection=connection, positions=scheme
    )
    for mixer, connection, scheme in product(get_args(Mixer), get_args(Connection), get_args(Positions))
    if scheme in ("none", "learned")
    or (connection == "pre-norm" and (scheme not in WITHOUT_TABLES or mixer not in WITHOUT_HEADS))
}
MIXING = [name for name in MODELS if MODELS[name].mixer != "none"]
MIXERS = [mixer for mixer in get_args(Mixer) if mixer != "none"]
SCORED = [mixer for mixer in MIXERS if mixer not in WITHOUT_HEADS]
# Learned projections of the residual stream, W_O apart.
PROJECTIONS = {"raw": (), "query-key": ("W_Q", "W_K")} | dict.fromkeys(
    ("attention", "unmasked"), ("W_Q", "W_K", "W_V")
)


def model(config, seed=0):
    torch.manual_seed(seed)
    return Transformer(config).eval()


def attention(config, seed=0, positions=None):
    torch.manual_seed(seed)
    return ATTENTION[config.mixer](config, positions or NoPositions())


def soft(config):
    """A model whose every weight is large enough to be felt: small inputs, so that no head is frozen."""
    transformer = model(config)
    with torch.no_grad():
        for table in (m for m in transformer.modules() if isinstance(m, nn.Embedding)):
            table.weight.mul_(0.1)
    return transformer


def tokens(config, length=12, seed=1):
    return torch.randint(config.vocab_size, (2, length), generator=torch.Generator().manual_seed(seed))


def head_config(n_head=1, d_model=32, mixer="attention", **more):
    return ModelConfig(mixer=mixer, d_model=d_model, n_head=n_head, **more)


# What lies ahead


@pytest.mark.parametrize("name", MODELS)
def test_a_token_reaches_later_logits_only_through_a_mixer_and_earlier_ones_only_without_a_mask(name):
    transformer, ids = soft(MODELS[name]), tokens(MODELS[name])
    T = ids.shape[1]
    reached = torch.zeros(T, T, dtype=torch.bool)
    with torch.no_grad():
        before = transformer(ids)
        for place in range(T):
            changed = ids.clone()
            changed[:, place] = (changed[:, place] + 1) % MODELS[name].vocab_size
            reached[place] = (transformer(changed) != before).any(dim=2).any(dim=0)
    everything = torch.ones_like(reached)
    expected = {"none": torch.eye(T, dtype=torch.bool), "unmasked": everything}
    assert torch.equal(reached, expected.get(MODELS[name].mixer, everything.triu()))


def mixers_of(name):
    found = [m for m in model(MODELS[name]).modules() if hasattr(m, "attention_weights")]
    assert len(found) == MODELS[name].n_layer
    return found


@pytest.mark.parametrize("name", MIXING)
def test_rows_of_weights_sum_to_one_over_the_past_and_the_future_is_exactly_zero(name):
    x = torch.randn(3, 12, MODELS[name].d_model)
    for mixer in mixers_of(name):
        weights = mixer.attention_weights(x)
        assert weights.shape[-2:] == (12, 12)
        assert (weights.sum(dim=-1) - 1).abs().max() < 1e-6
        past = torch.ones(12, 12, dtype=torch.bool).tril()
        assert (weights[..., past] > 0).all()
        future = weights[..., ~past]
        unmasked = MODELS[name].mixer == "unmasked"
        assert (future > 0).all() if unmasked else torch.equal(future, torch.zeros_like(future))


@pytest.mark.parametrize("mixer", [mixer for mixer in SCORED if mixer != "unmasked"])
def test_the_future_is_exactly_zero_however_large_the_scores(mixer):
    mixer = attention(head_config(mixer=mixer, score_scale="none"))
    x = 1e4 * torch.randn(2, 9, 32)
    weights = mixer.attention_weights(x)
    assert weights.isfinite().all()
    assert torch.equal(weights.triu(1), torch.zeros_like(weights))
    assert mixer(x).isfinite().all()


@pytest.mark.parametrize("mixer", MIXERS)
def test_a_context_of_one_attends_to_itself_alone(mixer):
    made = make_mixer(head_config(4, mixer=mixer, output_projection=True), NoPositions())
    weights = made.attention_weights(torch.randn(2, 1, 32))
    assert torch.equal(weights, torch.ones_like(weights))
    assert weights.shape[-2:] == (1, 1)


# Two paths, one computation


SHAPES: tuple[dict[str, Any], ...] = (
    {},
    {"n_head": 4},
    {"n_head": 4, "output_projection": True},
    {"n_head": 3, "d_head": 8},
)


@pytest.mark.parametrize("scale", get_args(ScoreScale))
@pytest.mark.parametrize(
    ("mixer", "shape"),
    [
        (mixer, shape)
        for mixer, shape in product(SCORED, SHAPES)
        if "d_head" not in shape or "W_V" in PROJECTIONS[mixer]
    ],
)
@pytest.mark.parametrize("length", [1, 2, 33])
def test_the_fused_path_equals_the_readable_one(length, shape, mixer, scale):
    joined = "d_head" in shape  # and not d_model wide
    shape = {"output_projection": joined, "qkv_bias": joined, **shape, "score_scale": scale, "mixer": mixer}
    for scheme, dtype in product(("none", "rope", "alibi"), (torch.float32, torch.float64)):
        config = head_config(positions=scheme, **shape)
        made = attention(config, positions=make_positions(config))
        with torch.no_grad():
            for name, parameter in made.named_parameters():
                if name in ("scale", "norm_q.weight", "norm_k.weight"):
                    parameter.mul_(torch.rand_like(parameter) + 0.5)  # trained: no gain is what it was
        assert_paths_agree(made.to(dtype), torch.randn(3, length, 32, dtype=dtype))


@pytest.mark.parametrize("mixer", [UniformAverage(), LearnedMatrix(ModelConfig(max_positions=40))])
@pytest.mark.parametrize("length", [1, 2, 33])
def test_a_mixer_without_heads_multiplies_by_its_weights(length, mixer):
    x = torch.randn(3, length, 32)
    for parameter in mixer.parameters():
        nn.init.normal_(parameter)
    assert (mixer(x) - mixer.attention_weights(x)[0] @ x).abs().max() < 1e-6


def assert_paths_agree(mixer, x):
    v = mixer.W_V(x).view(*x.shape[:2], mixer.n_head, mixer.d_head).transpose(1, 2)
    expected = mixer.W_O((mixer.attention_weights(x) @ v).transpose(1, 2).flatten(2))
    got = mixer(x)
    assert got.dtype == x.dtype
    # Rounding a score by its last digit changes its weight by as much, relatively.
    rounding = 8 * torch.finfo(x.dtype).eps * max(1.0, mixer.scores(x).abs().max().item())
    assert (got - expected).abs().max() < rounding


@pytest.mark.parametrize(("scale", "factor"), [("none", 1), ("sqrt", 4), ("learned", 4), ("width", 16)])
@pytest.mark.parametrize("mixer", SCORED)
def test_a_scale_divides_the_scores_by_its_number(mixer, scale, factor):
    x = torch.randn(2, 9, 32)
    made = attention(head_config(2, mixer=mixer, score_scale=scale))
    q, k = (w(x).view(2, 9, 2, 16).transpose(1, 2) for w in (made.W_Q, made.W_K))
    assert torch.allclose(made.scores(x) * factor, q @ k.transpose(-2, -1), rtol=1e-5, atol=1e-5)


def test_a_learned_scale_begins_as_the_usual_one_and_is_learned_by_every_head_alone():
    x = torch.randn(2, 9, 32)
    learned, usual = (attention(head_config(4, score_scale=scale)) for scale in ("learned", "sqrt"))
    assert torch.equal(learned.scores(x), usual.scores(x))
    assert torch.equal(learned(x), usual(x))
    learned(x).square().sum().backward()
    assert learned.scale.grad.shape == (4, 1, 1)
    assert (learned.scale.grad != 0).all()
    with torch.no_grad():
        learned.scale[2] *= 3
    ratio = (learned.scores(x) / usual.scores(x)).mean(dim=(0, 2, 3))
    assert torch.allclose(ratio, torch.tensor([1.0, 1.0, 3.0, 1.0]))


@pytest.mark.parametrize("size", [0.1, 1.0, 1e3])
@pytest.mark.parametrize("mixer", SCORED)
def test_qk_norm_gives_queries_and_keys_a_root_mean_square_of_one_before_their_gain(mixer, size):
    made = attention(head_config(2, mixer=mixer, score_scale="qk-norm"))
    x = size * torch.randn(2, 9, 32)
    q, k = made.queries_and_keys(x)
    for vectors in (q / made.scale, k):
        assert torch.allclose(vectors.square().mean(dim=-1).sqrt(), torch.ones(2, 2, 9), atol=1e-3)
    assert made.scores(x).abs().max() <= 16**0.5 + 1e-4  # |q| |k| / sqrt(K), whatever the input's size
    with torch.no_grad():
        made.norm_q.weight.copy_(torch.arange(16.0))
    assert torch.allclose(made.queries_and_keys(x)[0], q * torch.arange(16.0), atol=1e-5)


def test_only_qk_norm_does_not_see_how_long_a_vector_is():
    x = torch.randn(2, 9, 32)
    for scale in get_args(ScoreScale):
        made = attention(head_config(2, score_scale=scale))
        longer = 1 if scale == "qk-norm" else 9
        assert torch.allclose(made.scores(3 * x), longer * made.scores(x), rtol=1e-3, atol=1e-4)


# What may be matched, and what is copied


@pytest.mark.parametrize("scale", get_args(ScoreScale))
@pytest.mark.parametrize("heads", [1, 4])
def test_raw_scores_are_symmetric_and_two_projections_break_that(heads, scale):
    x = torch.randn(2, 17, 32)
    for mixer in SCORED:
        scores = attention(head_config(heads, mixer=mixer, score_scale=scale)).scores(x)
        asymmetry = (scores - scores.transpose(-2, -1)).abs().max() / scores.abs().max()
        assert asymmetry < 1e-6 if mixer == "raw" else asymmetry > 0.1


def test_raw_scores_are_products_of_tokens_and_each_token_looks_at_itself():
    x = torch.randn(2, 17, 32, generator=torch.Generator().manual_seed(0))
    raw = attention(head_config(mixer="raw"))
    assert torch.allclose(raw.scores(x)[:, 0], x @ x.transpose(1, 2) / math.sqrt(32), atol=1e-5)
    assert (raw.scores(x)[:, 0].argmax(dim=-1) == torch.arange(17)).all()


@pytest.mark.parametrize("mixer", SCORED)
def test_a_mixer_learns_the_projections_of_its_rung_and_copies_the_rest(mixer):
    made = attention(head_config(mixer=mixer))
    assert [name for name, _ in made.named_parameters()] == [f"{w}.weight" for w in PROJECTIONS[mixer]]
    x = torch.randn(2, 9, 32)
    values = made.W_V(x) if "W_V" in PROJECTIONS[mixer] else x
    assert torch.allclose(made(x), made.attention_weights(x)[:, 0] @ values, atol=1e-5)


def test_each_rung_is_drawn_as_the_one_below_it():
    # A row of the ladder differs by its part alone, not by another draw of what both have.
    for scale in get_args(ScoreScale):
        rungs = {mixer: attention(head_config(mixer=mixer, score_scale=scale)) for mixer in SCORED}
        whole = dict(rungs["attention"].named_parameters())
        for rung in rungs.values():
            assert all(torch.equal(p, whole[name]) for name, p in rung.named_parameters())


def test_a_learned_matrix_begins_as_the_average_and_is_the_same_for_every_sentence():
    x = torch.randn(3, 9, 32, dtype=torch.float64)
    matrix, average = LearnedMatrix(ModelConfig(max_positions=20)).double(), UniformAverage()
    # Rows of other lengths may be summed in another order: nine roundings of float64.
    rounding = {"rtol": 0, "atol": 9 * torch.finfo(torch.float64).eps}
    assert torch.allclose(matrix.attention_weights(x), average.attention_weights(x).double(), **rounding)
    assert torch.allclose(matrix(x), average(x), atol=1e-14)
    nn.init.normal_(matrix.matrix)
    weights = matrix.attention_weights(x)
    assert weights.shape == (1, 1, 9, 9)
    assert torch.equal(weights, matrix.attention_weights(torch.randn(5, 9, 32, dtype=torch.float64)))
    prefix = matrix.attention_weights(x[:, :4])
    assert torch.allclose(weights[..., :4, :4], prefix, **rounding)  # a prefix keeps its rows
    assert not torch.allclose(weights, average.attention_weights(x), atol=0.1)


def test_without_mask_and_positions_a_head_is_indifferent_to_order_and_the_mask_changes_that():
    x, order = torch.randn(2, 9, 32), torch.randperm(9, generator=torch.Generator().manual_seed(1))
    for mixer in SCORED:
        made = attention(head_config(2, mixer=mixer))
        moved = (made(x[:, order]) - made(x)[:, order]).abs().max()
        assert moved < 1e-5 if mixer == "unmasked" else moved > 1e-2


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("heads", [1, 4])
def test_parity_with_torchs_multihead_attention(heads, bias):
    ours = attention(head_config(heads, d_model=128, output_projection=True, qkv_bias=bias))
    theirs = nn.MultiheadAttention(128, heads, bias=True, batch_first=True)
    with torch.no_grad():
        theirs.in_proj_weight.copy_(torch.cat([ours.W_Q.weight, ours.W_K.weight, ours.W_V.weight]))
        biases = [m.bias if bias else torch.zeros(128) for m in (ours.W_Q, ours.W_K, ours.W_V)]
        theirs.in_proj_bias.copy_(torch.cat(biases))
        theirs.out_proj.weight.copy_(ours.W_O.weight)
        theirs.out_proj.bias.copy_(ours.W_O.bias)
        x = torch.randn(4, 64, 128)
        mask = torch.ones(64, 64, dtype=torch.bool).triu(1)
        y, weights = theirs(x, x, x, attn_mask=mask, average_attn_weights=False)
        assert y.abs().mean() > 0.03  # the difference below is not small because the numbers are
        assert (ours(x) - y).abs().max() < 1e-6
        assert (ours.attention_weights(x) - weights).abs().max() < 1e-6


# Averages


def test_the_average_is_a_loop_of_means_and_a_softmax_of_equal_scores():
    x = torch.randn(1, 6, 32, generator=torch.Generator().manual_seed(0))
    average = UniformAverage()
    loop = torch.stack([x[:, : t + 1].mean(dim=1) for t in range(6)], dim=1)
    equal = torch.zeros(6, 6).masked_fill(torch.ones(6, 6).triu(1) > 0, float("-inf")).softmax(dim=-1)
    assert (average(x) - loop).abs().max() < 1.2e-7  # one spacing of float32 between 1 and 2
    rows = average.attention_weights(x)[0, 0]
    assert (rows - equal).abs().max() < 6e-8
    assert (average(x) - equal @ x).abs().max() < 1.2e-7
    for t, (row, printed) in enumerate(zip(rows, [1, 0.5, 0.333, 0.25, 0.2, 0.167], strict=True), start=1):
        assert [round(w, 3) for w in row.tolist()] == [printed] * t + [0] * (6 - t), "the chapter's matrix"


def shuffle_difference(config):
    """How far the logits of the last position move when the tokens before it are shuffled."""
    ids = torch.arange(24).view(1, -1)
    order = torch.cat([torch.randperm(23, generator=torch.Generator().manual_seed(0)), torch.tensor([23])])
    with torch.no_grad():
        transformer = model(config)
        return (transformer(ids)[:, -1] - transformer(ids[:, order])[:, -1]).abs().max().item()


@pytest.mark.parametrize("connection", ["replace", "add"])
@pytest.mark.parametrize("positions", ["none", "learned"])
def test_one_average_stays_blind_to_order_even_with_positions_added(positions, connection):
    # mean(token + position) = mean(token) + mean(position): positions are averaged away with the rest
    config = ModelConfig(mixer="average", positions=positions, connection=connection)
    assert shuffle_difference(config) < 2e-6
    # But they tell an average how long its context is.
    with torch.no_grad():
        logits = model(config)(torch.zeros(1, 20, dtype=torch.long))
    told = (logits - logits[:, :1]).abs().max()
    assert told > 0.1 if positions == "learned" else told < 1e-5


def test_attention_sees_the_order_through_positions_or_through_depth():
    one = head_config(4, d_model=128, connection="add", output_projection=True)
    assert shuffle_difference(one) < 2e-6
    assert shuffle_difference(replace(one, positions="learned")) > 1e-2
    assert shuffle_difference(replace(one, n_layer=2)) > 1e-2


def test_learned_positions_add_a_row_of_their_table_to_every_token_and_refuse_more_tokens_than_rows():
    scheme = LearnedPositions(ModelConfig(positions="learned", max_positions=8))
    x = torch.randn(3, 5, 128)
    assert torch.equal(scheme.embed(x), x + scheme.table.weight[:5])
    with pytest.raises(ValueError, match=r"^9 tokens; the position table has 8 rows\.$"):
        scheme.embed(torch.randn(3, 9, 128))


def test_the_base_of_every_scheme_does_nothing():
    scheme, x, q, k = NoPositions(), torch.randn(1, 3, 4), torch.randn(1, 2, 3, 4), torch.randn(1, 2, 3, 4)
    assert scheme.embed(x) is x
    assert scheme.rotate(q, k) == (q, k)
    assert scheme.bias(3, 3) is None
    assert not list(scheme.parameters())


# A block is what its equations say


def norm(x, module):
    centred = x - x.mean(dim=-1, keepdim=True)
    return centred / (centred.pow(2).mean(dim=-1, keepdim=True) + 1e-5).sqrt() * module.weight + module.bias


EQUATIONS = {
    "replace": lambda x, f, _: f(x),
    "add": lambda x, f, _: x + f(x),
    "pre-norm": lambda x, f, joined: x + f(norm(x, joined.norm)),
    "post-norm": lambda x, f, joined: norm(x + f(x), joined.norm),
}


@pytest.mark.parametrize("name", get_args(Connection))
def test_a_connection_is_its_equation(name):
    torch.manual_seed(0)
    joined = CONNECTIONS[name](ModelConfig(d_model=16), nn.Linear(16, 16)).double()
    with torch.no_grad():
        for parameter in joined.parameters():
            parameter.normal_()
    x = torch.randn(2, 5, 16, dtype=torch.float64)
    assert torch.allclose(joined(x), EQUATIONS[name](x, joined.sublayer, joined), atol=1e-12)


@pytest.mark.parametrize("connection", get_args(Connection))
def test_a_whole_model_is_the_composition_of_its_equations(connection):
    config = ModelConfig(**TWO_BLOCKS, mixer="attention", connection=connection, positions="learned")
    transformer = model(config).double()
    with torch.no_grad():
        for name, parameter in transformer.named_parameters():
            if "norm" in name:
                parameter.normal_()
    ids, equation = tokens(config), EQUATIONS[connection]

    def attend(mixer):
        def f(x):
            q, k, v = (w(x).view(2, 12, 2, 8).transpose(1, 2) for w in (mixer.W_Q, mixer.W_K, mixer.W_V))
            scores = (q @ k.transpose(-2, -1) / math.sqrt(8)).masked_fill(
                torch.ones(12, 12).triu(1) > 0, -math.inf
            )
            return mixer.W_O((scores.softmax(-1) @ v).transpose(1, 2).reshape(2, 12, 16))

        return f

    def feed(layers):
        def f(x):
            h = x @ layers[0].weight.T + layers[0].bias
            return h * (1 + torch.erf(h / math.sqrt(2))) / 2 @ layers[2].weight.T + layers[2].bias

        return f

    x = transformer.token_embedding.weight[ids] + transformer.positions.table.weight[:12]
    for first, second in transformer.blocks:
        x = equation(x, attend(first.sublayer), first)
        x = equation(x, feed(second.sublayer), second)
    if connection == "pre-norm":
        x = norm(x, transformer.final_norm)
    expected = x @ transformer.unembedding.weight.T + transformer.unembedding.bias
    assert torch.allclose(transformer(ids), expected, atol=1e-12)


@pytest.mark.parametrize("connection", get_args(Connection))
def test_only_pre_norm_ends_with_a_norm(connection):
    final = model(ModelConfig(**SMALL, connection=connection)).final_norm
    assert isinstance(final, nn.LayerNorm) == (connection == "pre-norm")
    assert parameter_count(final) == (32 if connection == "pre-norm" else 0)


@pytest.mark.parametrize("d_ff", [0, 24])
@pytest.mark.parametrize("mixer", get_args(Mixer))
def test_a_block_has_the_sublayers_it_was_asked_for(mixer, d_ff):
    block = Block(ModelConfig(**SMALL, mixer=mixer, d_ff=d_ff), NoPositions())
    kinds = {"none": [], "average": [UniformAverage], "matrix": [LearnedMatrix]}.get(mixer)
    expected = [ATTENTION[mixer]] if kinds is None else kinds
    assert [type(c.sublayer) for c in block] == expected + [FeedForward] * (d_ff > 0)


def test_every_mixer_with_heads_is_attention():
    assert set(ATTENTION) == set(SCORED) == set(PROJECTIONS)
    assert all(issubclass(kind, CausalSelfAttention) for kind in ATTENTION.values())


def test_a_tied_table_is_one_storage_and_trains_as_one():
    tied = model(ModelConfig(**SMALL, tied=True, unembedding_bias=False))
    assert tied.unembedding.weight is tied.token_embedding.weight
    assert [name for name, _ in tied.named_parameters()] == ["token_embedding.weight"]
    tied(tokens(tied.config)).sum().backward()
    assert tied.unembedding.weight.grad is tied.token_embedding.weight.grad


# Refused sizes, with what was got and what is allowed

WHOLE = {
    "vocab_size": (1, MAX_VOCAB),
    "d_model": (1, MAX_WIDTH),
    "n_layer": (0, MAX_LAYERS),
    "max_positions": (1, MAX_POSITIONS),
    "n_head": (1, MAX_WIDTH),
    "d_head": (1, MAX_WIDTH),
    "d_ff": (0, 4 * MAX_WIDTH),
}
NAMED = {"mixer": Mixer, "connection": Connection, "positions": Positions, "score_scale": ScoreScale}
NUMBERS = {"rope_base": (1, 1e12), "rope_stretch": (1, 1e6), "dropout": (0, MAX_DROPOUT)}
FLAGS = ("output_projection", "qkv_bias", "output_bias", "unembedding_bias", "tied")


def test_every_field_is_policed():
    assert {field.name for field in fields(ModelConfig)} == {*WHOLE, *NAMED, *NUMBERS, *FLAGS}


@given(st.data(), st.sampled_from(sorted(WHOLE)))
def test_a_wrong_number_is_refused(data, name):
    low, high = WHOLE[name]
    numbers = st.integers(max_value=low - 1) | st.integers(min_value=high + 1) | st.booleans() | st.floats()
    others = st.text() | st.lists(st.integers(), max_size=2)
    assert_refused(
        f"{name} is {{}}; allowed: a whole number from {low:,} to {high:,}.",
        **{name: data.draw(numbers | others | (st.nothing() if name == "d_head" else st.none()))},
    )


def assert_refused(sentence, **field):
    """The sentence has the value in place of its braces."""
    whole = "whole number" in sentence  # and so read as one
    values = (f"{value:,}" if whole and type(value) is int else repr(value) for value in field.values())
    with pytest.raises(ValueError, match="allowed") as refused:
        ModelConfig(**field)
    assert str(refused.value) == sentence.format(*values)


@given(st.sampled_from(sorted(NUMBERS)), st.floats() | st.booleans() | st.text() | st.none())
def test_a_number_out_of_range_is_refused(name, wrong):
    low, high = NUMBERS[name]
    assume(isinstance(wrong, bool) or not (isinstance(wrong, float) and low <= wrong <= high))
    assert_refused(f"{name} is {{}}; allowed: a number from {low:g} to {high:g}.", **{name: wrong})


def test_a_whole_number_is_the_same_configuration_as_its_float():
    assert ModelConfig(dropout=0, rope_base=10_000) == ModelConfig()
    assert ModelConfig(rope_stretch=2).to_dict() == ModelConfig(rope_stretch=2.0).to_dict()


@given(st.sampled_from(sorted(NAMED)), st.text() | st.none() | st.booleans() | st.integers() | st.just([]))
def test_a_wrong_name_is_refused(name, wrong):
    allowed = get_args(NAMED[name])
    assume(wrong not in allowed)
    assert_refused(f"{name} is {{}}; allowed: {', '.join(allowed)}.", **{name: wrong})


@given(st.sampled_from(FLAGS), st.integers() | st.text() | st.none() | st.floats())
def test_a_flag_is_true_or_false_and_nothing_like_it(name, wrong):
    assert_refused(f"{name} is {{}}; allowed: true or false.", **{name: wrong})


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"mixer": "attention", "n_head": 3}, ["d_model 128", "3 heads", "n_head", "d_head"]),
        ({"mixer": "attention", "n_head": 256}, ["d_model 128", "256 heads"]),
        ({"mixer": "attention", "n_head": 3, "d_head": 32}, ["3 heads of 32 = 96", "d_model 128", "output"]),
        ({"mixer": "attention", "d_head": 256}, ["1 heads of 256 = 256", "d_model 128"]),
        *(
            ({"mixer": mixer, "d_head": 64, "output_projection": True}, ["W_V", "1 heads of 64 = 64"])
            for mixer in ("raw", "query-key")
        ),
        ({"mixer": "unmasked", "n_head": 3}, ["d_model 128", "3 heads"]),
        ({"tied": True}, ["tied", "unembedding_bias", "false"]),
        ({"positions": "rope"}, ["rope", "scores", "mixer none"]),
        ({"positions": "alibi", "mixer": "average"}, ["alibi", "scores", "mixer average"]),
        ({"positions": "rope", "mixer": "attention", "d_model": 9}, ["pairs", "head of 9", "odd"]),
    ],
)
def test_fields_that_disagree_are_refused(given, said):
    with pytest.raises(ValueError, match=r"\.$") as refused:
        ModelConfig(**given)
    assert not [words for words in said if words not in str(refused.value)]
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "fields",
    [
        *({"mixer": mixer, "n_head": 3, "d_head": 7} for mixer in WITHOUT_HEADS),
        {"mixer": "attention", "n_head": 3, "d_head": 40, "output_projection": True},
    ],
)
def test_three_heads_work_once_their_width_is_given_and_without_heads_their_number_is_free(fields):
    assert model(ModelConfig(**fields))(torch.zeros(1, 4, dtype=torch.long)).shape == (1, 4, 1024)


@given(st.dictionaries(st.text(min_size=1), st.integers(), min_size=1, max_size=3))
def test_unknown_fields_are_refused_by_name(extra):
    unknown = sorted(set(extra) - set(ModelConfig().to_dict()))
    assume(unknown)
    with pytest.raises(ValueError, match="known:") as refused:
        ModelConfig.from_dict({**ModelConfig().to_dict(), **extra})
    assert str(refused.value).startswith(f"unknown fields {', '.join(unknown)}; known: connection, d_ff")


def test_a_configuration_is_a_frozen_value_made_by_keyword():
    with pytest.raises(FrozenInstanceError):
        ModelConfig().d_model = 4  # type: ignore[misc]
    with pytest.raises(TypeError):
        ModelConfig(1024)  # type: ignore[call-arg]
    assert hash(ModelConfig()) == hash(ModelConfig(vocab_size=1024))
    assert ModelConfig().changes() == {}


@st.composite
def configs(draw):
    named = {name: draw(st.sampled_from(get_args(kind))) for name, kind in NAMED.items()}
    if named["mixer"] in WITHOUT_HEADS and named["positions"] in WITHOUT_TABLES:
        named["positions"] = "none"
    heads = draw(st.integers(1, 8))
    width = None if named["mixer"] in ("raw", "query-key") else draw(st.none() | st.integers(1, 64))
    narrow = draw(st.integers(1, 64))
    if named["positions"] == "rope":
        narrow, width = 2 * narrow, width and 2 * width
    tied = draw(st.booleans())
    return ModelConfig(
        vocab_size=draw(st.integers(1, MAX_VOCAB)),
        d_model=heads * narrow,
        n_layer=draw(st.integers(0, 3)),
        n_head=heads,
        d_head=width,
        output_projection=draw(st.booleans()) if width is None else True,
        max_positions=draw(st.integers(1, MAX_POSITIONS)),
        d_ff=draw(st.integers(0, 4 * MAX_WIDTH)),
        tied=tied,
        unembedding_bias=False if tied else draw(st.booleans()),
        qkv_bias=draw(st.booleans()),
        output_bias=draw(st.booleans()),
        rope_base=draw(st.floats(1, 1e12)),
        rope_stretch=draw(st.floats(1, 1e6)),
        dropout=draw(st.floats(0, MAX_DROPOUT)),
        **named,
    )


@given(configs())
def test_a_configuration_survives_json_and_its_size_is_known_beforehand(config):
    assert ModelConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config
    assert ModelConfig(**config.changes()) == config
    assert all(value != getattr(ModelConfig(), name) for name, value in config.changes().items())
    with torch.device("meta"):
        assert parameter_count(Transformer(config)) == ledger.total(config)
