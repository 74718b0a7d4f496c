"""What a position scheme does, on trained weights and on fresh ones: nothing is trained here.

Shapes: N windows, T query position, S key position, D d_model, H heads.
Source: chapter, "positions".
"""

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.chapter.experiments import POSITIONS
from engine.models.block import PreNorm
from engine.models.mixers import QueriesAndKeys
from engine.models.positions import LearnedPositions, ntk_base
from engine.models.transformer import Transformer
from engine.probes.models import untrained
from engine.probes.results import positions as results
from engine.training import checkpoint
from engine.training.evaluation import TOKENS_A_BATCH, mean_loss, perplexity, windows

SCHEMES = POSITIONS.variants
TRAINED = POSITIONS.budget("chapter").context_length  # both budgets train on windows of as many tokens
LENGTHS = POSITIONS.budget("chapter").also_at
LONGEST = max(LENGTHS)
BIN = 16  # positions that share a point of the curve
DISTANCES = (0, 1, 2, 4, 8, 16, 32)
EVERY = 8  # places that lie between two points of a diagonal
WAYS = ("plain", "linear", "ntk")


def places(models: Mapping[str, Transformer], ids: Tensor) -> results.Places:
    """How hard each position of a long window is: perplexity in bins of 16 positions, and of all.

    ids: held-out tokens, shape (N,).
    """
    batch = windows(ids, LONGEST)
    found = {}
    for name, model in models.items():
        losses = losses_by_position(model, batch)
        bins = losses.view(-1, BIN).mean(dim=1)
        found[name] = results.Bins(bins.exp().tolist(), losses.mean().exp().item())
    return results.Places(models=found, windows=len(batch), length=LONGEST, bin=BIN)


@torch.inference_mode()
def losses_by_position(model: Transformer, batch: Tensor) -> Tensor:
    """Cross-entropy in nats at every position, mean over windows. shape: (N, T + 1) -> (T,)"""
    T = batch.shape[1] - 1
    total = torch.zeros(T, dtype=torch.float64)
    for part in batch.split(max(1, TOKENS_A_BATCH // T)):
        logits = model(part[:, :-1])
        losses = F.cross_entropy(logits.transpose(1, 2), part[:, 1:], reduction="none")
        total += losses.double().sum(dim=0)
    return total / len(batch)


@torch.inference_mode()
def last_loss(model: Transformer, batch: Tensor) -> float:
    """Cross-entropy in nats at the last position alone, mean over windows. shape: (N, T + 1) -> a number"""
    parts = batch[:, :-1].split(max(1, TOKENS_A_BATCH // batch.shape[1]))
    last = torch.cat([model.residual(part)[:, -1] for part in parts])
    return F.cross_entropy(model.unembedding(model.final_norm(last)), batch[:, -1]).item()


def rescaled(model: Transformer, ids: Tensor) -> results.Rescaled:
    """RoPE's trained weights at every length: as they are, stretched, and with the NTK-aware base.

    The factor is the length over that of training; at 1 the three are one.
    """
    rows = []
    for length in LENGTHS:
        factor = max(1.0, length / TRAINED)
        for way in WAYS:
            if factor > 1 or way == "plain":
                loss = mean_loss(slower(model, way, factor), windows(ids, length))
                rows.append(results.Turned(way, length, factor, perplexity(loss)))
    return results.Rescaled(rows)


def slower(model: Transformer, way: str, factor: float) -> Transformer:
    """The same weights with a rotation that turns ``factor`` times slower.

    way: "linear" slows every pair alike, "ntk" the slowest so and the fastest not; "plain" is RoPE as it was.
    """
    config = model.config
    match way:
        case "linear":
            config = replace(config, rope_stretch=config.rope_stretch * factor)
        case "ntk":
            config = replace(config, rope_base=ntk_base(config.rope_base, factor, config.effective_d_head))
    made = Transformer(config).eval()
    checkpoint.restore_model(made, checkpoint.model_tensors(model))
    return made


@torch.inference_mode()
def order(ids: Sequence[int], seed: int, pieces: Sequence[str]) -> results.Order:
    """What a change of order does to fresh weights. pieces: the tokens as text."""
    T = len(ids)
    draw = torch.Generator().manual_seed(seed)
    everything = _other_order(T, draw)
    prefix = torch.cat([_other_order(T - 1, draw), torch.tensor([T - 1])])
    text = torch.tensor(ids)
    moved, led = torch.stack([text, text[everything]]), torch.stack([text, text[prefix]])
    rows = []
    for scheme in SCHEMES:
        base = POSITIONS.variant(scheme).config
        as_it_is, other = untrained(base)(moved)
        seeing_all = untrained(replace(base, mixer="unmasked"))(moved)
        one_block, two_blocks = (untrained(replace(base, n_layer=blocks))(led)[:, -1] for blocks in (1, 2))
        rows.append(
            results.SchemeOrder(
                scheme=scheme,
                magnitude=as_it_is.abs().mean().item(),
                unmasked=_apart(seeing_all[0, everything], seeing_all[1]),
                masked=_apart(as_it_is[everything], other),
                one_block=_apart(*one_block),
                two_blocks=_apart(*two_blocks),
            )
        )
    return results.Order(rows, everything.tolist(), prefix.tolist(), list(pieces))


def _other_order(T: int, draw: torch.Generator) -> Tensor:
    """A permutation that moves something, where there is something to move. shape: -> (T,)"""
    while True:
        drawn = torch.randperm(T, generator=draw)
        if T < 2 or not torch.equal(drawn, torch.arange(T)):
            return drawn


def _apart(one: Tensor, other: Tensor) -> float:
    return (one - other).abs().max().item()


@torch.inference_mode()
def knowledge(models: Mapping[str, Transformer], ids: Tensor, seed: int) -> results.Knowledge:
    """What trained models know of order, on windows as long as those of training. read: see ``readable``."""
    batch = windows(ids, TRAINED)[::2]  # half of them are enough, and take half as long
    draw = torch.Generator().manual_seed(seed)
    # Each window has an order of its own; the last two, a token and what it should predict, stay in place.
    mixed = torch.stack([torch.randperm(TRAINED - 1, generator=draw) for _ in batch])
    shuffled = torch.cat([batch.gather(1, mixed), batch[:, -2:]], dim=1)
    found = {}
    for name, model in models.items():
        bare = Transformer(replace(model.config, mixer="unmasked")).eval()
        checkpoint.restore_model(bare, checkpoint.model_tensors(model))
        found[name] = results.Known(
            read=readable(_mixed(model, batch)),
            unmasked=readable(_mixed(bare, batch)),
            untrained=readable(_mixed(untrained(model.config), batch)),
            ordered=math.exp(last_loss(model, batch)),
            shuffled=math.exp(last_loss(model, shuffled)),
        )
    return results.Knowledge(models=found, windows=len(batch), length=TRAINED)


def readable(x: Tensor) -> float:
    """R squared of the logarithm of the position, read off x and its squares where it was not fitted.

    The squares, because a mean of more vectors is a shorter one.
    shape: (N, T, D) -> a number, at most 1; 0 is what the mean over positions would give
    """
    N, T, D = x.shape
    wanted = torch.arange(1, T + 1, dtype=torch.float64).log().expand(N, T)
    x = x.double()
    x = torch.cat([x, x.square(), torch.ones(N, T, 1, dtype=torch.float64)], dim=-1)
    (fit, fit_to), (test, test_to) = ((x[at::2].flatten(0, 1), wanted[at::2].flatten()) for at in (0, 1))
    # A ridge far too small to matter, unless a number is constant.
    gram = fit.T @ fit + 1e-6 * len(fit) * torch.eye(2 * D + 1, dtype=torch.float64)
    error = test @ torch.linalg.solve(gram, fit.T @ fit_to) - test_to
    left: float = error.square().mean().item() / test_to.var(correction=0).item()
    return 1 - left


def _mixed(model: Transformer, batch: Tensor) -> Tensor:
    """What the first block's attention adds to the stream. shape: (N, T + 1) token ids -> (N, T, D)"""
    connection = _first_connection(model)
    parts = batch[:, :-1].split(max(1, TOKENS_A_BATCH // batch.shape[1]))
    return torch.cat([connection.sublayer(connection.norm(_embedded(model, part))) for part in parts])


def _embedded(model: Transformer, ids: Tensor) -> Tensor:
    """shape: (N, T) token ids -> (N, T, D)"""
    x: Tensor = model.positions.embed(model.token_embedding(ids))
    return x


def _first_connection(model: Transformer) -> PreNorm:
    """The first block's attention, in its connection."""
    found = next(module for module in model.modules() if isinstance(module, PreNorm))
    assert isinstance(found.sublayer, QueriesAndKeys)
    return found


@torch.inference_mode()
def diagonals(
    models: Mapping[str, Transformer], pair: tuple[int, int], pieces: Sequence[str]
) -> results.Diagonals:
    """One query token and one key token at every pair of places a fixed distance apart, in float64.

    pair, pieces: the two tokens, and both as text. A query has no key before the first place.
    """
    found = {
        name: [
            [_diagonal(head, distance) for distance in DISTANCES]
            for head in _pair_scores(copy.deepcopy(model).double(), *pair)
        ]
        for name, model in models.items()
    }
    return results.Diagonals(found, list(DISTANCES), EVERY, LONGEST, *pieces)


def _diagonal(head: Tensor, distance: int) -> results.Diagonal:
    """One distance of a head's scores, shape (T, S)."""
    line = head.diagonal(-distance)  # the query's place is the index plus the distance
    scores = [round(value, 5) for value in line[::EVERY].tolist()]
    return results.Diagonal(scores, _spread(line[: TRAINED - distance]), _spread(line))


def _pair_scores(model: Transformer, query: int, key: int) -> Tensor:
    """The first block's scores if every query were one token and every key another. shape: -> (H, T, S)"""
    connection = _first_connection(model)
    mixer = connection.sublayer
    assert isinstance(mixer, QueriesAndKeys)
    (q, _), (_, k) = (
        mixer.queries_and_keys(connection.norm(_embedded(model, torch.full((1, LONGEST), token))))
        for token in (query, key)
    )
    scores = (q @ k.transpose(-2, -1))[0]
    bias = model.positions.bias(LONGEST, LONGEST)
    return scores if bias is None else scores + bias


def _spread(line: Tensor) -> float:
    return (line.max() - line.min()).item()


@torch.no_grad()
def rows_of_the_table(model: Transformer, seed: int) -> results.Table:
    """What training did to a learned table, row by row. seed: that it began with."""
    table, first = (position_table(one).double() for one in (model, untrained(model.config, seed)))
    cosine = F.cosine_similarity(table, first, dim=1).clamp(-1, 1)
    moved = (table - first).norm(dim=1) / first.norm(dim=1)
    alike = F.cosine_similarity(table[:-1], table[1:], dim=1)
    return results.Table(
        turned=[round(math.degrees(math.acos(value)), 3) for value in cosine.tolist()],
        moved=[round(value, 5) for value in moved.tolist()],
        alike=[round(value, 5) for value in alike.tolist()],
        rows=len(table),
        trained=TRAINED,
    )


def position_table(model: Transformer) -> Tensor:
    """The rows of a learned table, as the model holds them. shape: -> (max_positions, D)

    Raises ValueError: when the model has none.
    """
    if not isinstance(model.positions, LearnedPositions):
        raise ValueError(f"the weights are of {model.config.positions}; only a learned table has rows.")
    return model.positions.table.weight
