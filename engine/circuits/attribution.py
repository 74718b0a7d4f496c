"""Direct attribution: which part of the model writes how much of the logit difference into the last stream.

With the scale of every norm on the stream frozen at what it was in the run, the logits are a sum over parts.
What a part does to other parts is not in it: for that there are ablation and patching.
Shapes: B batch, D d_model, H heads, L blocks.
Source: Elhage et al. 2021, "A Mathematical Framework for Transformer Circuits".
"""

from collections import defaultdict

import torch
from torch import Tensor, nn

from engine.circuits.capture import BlockRun, Captured, connections, run, shape_of
from engine.circuits.results import Attribution
from engine.circuits.scoring import Questions, difference
from engine.models.block import PostNorm, Replace
from engine.models.transformer import Transformer

Part = tuple[str, int, int]  # kind, block, head
Parts = dict[Part, Tensor]  # what each wrote, (B, D), or gives, (B,)
EMBEDDING, REST = ("embedding", 0, 0), ("rest", 0, 0)


@torch.no_grad()
def attribution(model: Transformer, questions: Questions) -> Attribution:
    """Split the logit difference at the decision among the parts of the model.

    Raises ValueError: as ``capture.run``.
    """
    totals: dict[Part, float] = defaultdict(float)
    whole = 0.0
    for _, part in questions.portions():
        captured = run(model, part.ids)
        logits = captured.logits[:, part.decision]
        whole += difference(logits, part.answers, part.others).double().sum().item()
        for name, share in _shares(model, captured, part).items():
            totals[name] += share.double().sum().item()
    means = defaultdict(float, {name: total / len(questions) for name, total in totals.items()})
    shape = shape_of(model, questions.ids)
    blocks = range(shape.blocks)
    return Attribution(
        logit_difference=whole / len(questions),
        embedding=means[EMBEDDING],
        heads=[[means["head", block, head] for head in range(shape.heads)] for block in blocks],
        output_biases=[means["output bias", block, 0] for block in blocks],
        feed_forwards=[means["feed-forward", block, 0] for block in blocks],
        rest=means[REST],
    )


def _shares(model: Transformer, captured: Captured, questions: Questions) -> Parts:
    """What each part gives to each question's logit difference. shape: (B,) each"""
    place = questions.decision
    parts = _through(_parts(model, captured, place), model.final_norm, captured.residual[:, place])
    rows, bias = model.unembedding.weight, model.unembedding.bias
    direction = rows[questions.answers] - rows[questions.others]
    shares = {part: (wrote * direction).sum(dim=-1) for part, wrote in parts.items()}
    if bias is not None:
        shares[REST] = shares.get(REST, 0) + bias[questions.answers] - bias[questions.others]
    return shares


def _parts(model: Transformer, captured: Captured, place: int) -> Parts:
    """What each part wrote into the last stream at one position; together they are that stream."""
    parts: Parts = {EMBEDDING: captured.embedding[:, place]}
    for number, (block, ran) in enumerate(zip(connections(model), captured.blocks, strict=True)):
        parts = _joined(block[0], parts, _attention(number, ran, place))
        if ran.feed_forward is not None:
            parts = _joined(block[1], parts, {("feed-forward", number, 0): ran.feed_forward[:, place]})
    return parts


def _attention(number: int, ran: BlockRun, place: int) -> Parts:
    heads = {("head", number, head): wrote for head, wrote in enumerate(ran.heads[:, :, place].unbind(1))}
    return heads | {("output bias", number, 0): ran.output_bias.expand(len(ran.before), -1)}


def _joined(connection: Replace, parts: Parts, wrote: Parts) -> Parts:
    """The parts of the stream behind a connection: the old are dropped, kept, or normed with the new."""
    if type(connection) is Replace:
        return wrote
    together = parts | wrote
    if isinstance(connection, PostNorm):
        return _through(together, connection.norm, torch.stack(list(together.values())).sum(dim=0))
    return together


def _through(parts: Parts, norm: nn.Module, x: Tensor) -> Parts:
    """The parts behind a norm whose scale is the one it has at x; its bias joins the rest.

    norm(x) = sum over parts (part - mean(part)) / deviation(x) * gain + bias
    shape of x: (B, D)
    """
    if not isinstance(norm, nn.LayerNorm):
        return parts
    scale = norm.weight / (x.var(dim=-1, correction=0, keepdim=True) + norm.eps).sqrt()
    behind = {part: (wrote - wrote.mean(dim=-1, keepdim=True)) * scale for part, wrote in parts.items()}
    behind[REST] = behind.get(REST, torch.zeros_like(x)) + norm.bias
    return behind
