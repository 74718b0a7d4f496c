"""Paths patched into queries, keys and values: identities, by hand, one at a time, and what is refused."""

from dataclasses import dataclass, replace

import pytest
import torch

from engine.circuits.capture import connections, mean_heads, run
from engine.circuits.composition import patch_path
from engine.circuits.induction import head_scores
from engine.circuits.interventions import Intervention, PatchHeads
from engine.circuits.results import INPUTS, Head
from engine.circuits.trials import logits_of_each
from tests.circuit_models import CONFIG, HALF, felt, induction_model, repeated, sentences

pytestmark = pytest.mark.usefixtures("one_thread")

MODELS = {
    "pre-norm": {},
    "added, no feed-forward": {"connection": "add", "d_ff": 0},
    "rope": {"positions": "rope"},
    "alibi": {"positions": "alibi", "d_ff": 0},
    "three blocks": {"n_layer": 3},
}
SENDERS = [Head(0, 0), Head(0, 2)]
RECEIVERS = [Head(1, head) for head in range(3)]


@pytest.fixture(params=MODELS)
def made(request):
    return felt(replace(CONFIG, **MODELS[request.param]))


@pytest.fixture
def ids():
    return sentences()


def heads_of(ran):
    """shape: -> (L, B, H, T, D)"""
    return torch.stack([block.heads for block in ran.blocks])


def other(made):
    """What all heads add in other sentences."""
    return heads_of(run(made, sentences(seed=2)))


def test_patching_nothing_or_a_heads_own_output_changes_nothing(made, ids):
    plain = run(made, ids)
    for senders, instead, inputs in (
        ([], other(made), INPUTS),
        (SENDERS, heads_of(plain), INPUTS),
        (SENDERS, other(made), ()),
    ):
        patch = patch_path(made, plain, senders, instead, RECEIVERS, inputs)
        torch.testing.assert_close(run(made, ids, [patch]).logits, plain.logits)


@dataclass(frozen=True, eq=False)
class Moved(Intervention):
    """The last stream with something added: the direct path to the logits."""

    boundary: int
    by: torch.Tensor

    def on_residual(self, boundary, x):
        return x + self.by if boundary == self.boundary else x


@pytest.mark.parametrize("connection", ["pre-norm", "add"])
def test_all_paths_of_a_head_together_are_the_head_patched(connection, ids):
    """Into queries, keys and values of all later heads, and on the direct path to the logits."""
    made = felt(replace(CONFIG, connection=connection, d_ff=0))
    plain, instead = run(made, ids), other(made)
    whole = run(made, ids, [PatchHeads(0, frozenset([0, 2]), instead[0])])
    direct = (instead[0] - plain.blocks[0].heads)[:, [0, 2]].sum(dim=1)
    later = patch_path(made, plain, SENDERS, instead, RECEIVERS, INPUTS)
    ran = run(made, ids, [later, Moved(2, direct)])
    torch.testing.assert_close(ran.blocks[1].weights, whole.blocks[1].weights)
    torch.testing.assert_close(ran.blocks[1].heads, whole.blocks[1].heads)
    torch.testing.assert_close(ran.logits, whole.logits)
    assert not torch.allclose(run(made, ids, [later]).logits, whole.logits), "the direct path is one of them"


def test_each_input_by_hand(made, ids):
    plain, instead = run(made, ids), other(made)
    attention = connections(made)[1][0]
    mixer, before = attention.sublayer, plain.blocks[1].before
    moved = before + (instead[0] - plain.blocks[0].heads)[:, [0, 2]].sum(dim=1)
    own, read = (getattr(attention, "norm", torch.nn.Identity())(x).detach() for x in (before, moved))
    patches = {name: patch_path(made, plain, SENDERS, instead, RECEIVERS, [name]) for name in INPUTS}
    q, k = (part.detach() for part in mixer.queries_and_keys(own))
    asked, found = (part.detach() for part in mixer.queries_and_keys(read))
    bias = mixer.scores(own).detach() - q @ k.mT  # of ALiBi; else 0
    torch.testing.assert_close(patches["queries"].scores, asked @ k.mT + bias)
    torch.testing.assert_close(patches["keys"].scores, q @ found.mT + bias)
    torch.testing.assert_close(patches["values"].scores, plain.blocks[1].scores)
    for name, patch in patches.items():
        expected = mixer.W_V(read if name == "values" else own).detach().view(4, 7, 3, -1).transpose(1, 2)
        torch.testing.assert_close(patch.values, expected)


def test_receivers_alone_change_and_by_their_own_input_alone(made, ids):
    plain, instead = run(made, ids), other(made)
    for name in INPUTS:
        ran = run(made, ids, [patch_path(made, plain, SENDERS, instead, [Head(1, 1)], [name])])
        before, after = plain.blocks[1], ran.blocks[1]
        assert torch.equal(after.weights[:, [0, 2]], before.weights[:, [0, 2]])
        assert torch.equal(after.heads[:, [0, 2]], before.heads[:, [0, 2]])
        assert not torch.allclose(after.heads[:, 1], before.heads[:, 1])
        assert torch.allclose(after.weights[:, 1], before.weights[:, 1]) is (name == "values")
        assert torch.equal(ran.blocks[0].after, plain.blocks[0].after)


def test_sentences_one_by_one_and_cases_together_equal_all_at_once(made, ids):
    plain, instead = run(made, ids), other(made)
    patches = [patch_path(made, plain, SENDERS, instead, RECEIVERS[:2], [name]) for name in INPUTS]
    together = logits_of_each(made, plain, (2, 6), [[patch] for patch in patches])
    for name, patch, found in zip(INPUTS, patches, together, strict=True):
        whole = run(made, ids, [patch]).logits
        torch.testing.assert_close(found, whole[:, [2, 6]])
        for row in range(4):
            rows = slice(row, row + 1)
            alone = run(made, ids[rows])
            own = patch_path(made, alone, SENDERS, instead[:, rows], RECEIVERS[:2], [name])
            for one in (own, patch.part(rows)):
                torch.testing.assert_close(run(made, ids[rows], [one]).logits, whole[rows])


def test_the_built_circuit_composes_by_its_keys_alone():
    made, ids = induction_model(), repeated(20)
    plain = run(made, ids)
    means, late = mean_heads([plain])[:, None], slice(HALF, -1)
    assert head_scores(made, ids).prefix_matching[1][0] == pytest.approx(1)
    right = {}
    for name in INPUTS:
        ran = run(made, ids, [patch_path(made, plain, [Head(0, 0)], means, [Head(1, 0)], [name])])
        right[name] = (ran.logits[:, late].argmax(-1) == ids[:, HALF + 1 :]).double().mean().item()
    assert (right["queries"], right["values"]) == (1, 1)
    assert right["keys"] < 0.5


@pytest.mark.parametrize(
    ("senders", "receivers", "inputs", "says"),
    [
        (SENDERS, [], INPUTS, "the receivers are of 0 blocks; needed: heads of one block"),
        (SENDERS, [Head(0, 0), Head(1, 0)], INPUTS, "the receivers are of 2 blocks"),
        ([Head(1, 0)], [Head(1, 1)], INPUTS, r"block of the sender 2.1 is 1; allowed: 0 to 0"),
        (SENDERS, [Head(2, 0)], INPUTS, "block is 2; allowed: 0 to 1"),
        (SENDERS, RECEIVERS, ["scores"], "have 'scores'; allowed: queries, keys, values"),
    ],
)
def test_paths_that_are_not_there_are_refused(ids, senders, receivers, inputs, says):
    made = felt()
    with pytest.raises(ValueError, match=says):
        patch_path(made, run(made, ids), senders, other(made), receivers, inputs)


def test_receivers_that_are_not_there_and_streams_that_are_no_sum_are_refused(ids):
    made = felt()
    patch = patch_path(made, run(made, ids), SENDERS, other(made), [Head(1, 3)], INPUTS)
    with pytest.raises(ValueError, match="the head is 3; allowed: 0 to 2"):
        run(made, ids, [patch])
    with pytest.raises(ValueError, match=r"scores has shape \(4, 3, 7, 7\); this run needs"):
        run(made, ids[:, :5], [replace(patch, heads=frozenset([1]))])
    for change in ({"connection": "post-norm"}, {"mixer": "average", "connection": "add"}):
        made = felt(replace(CONFIG, **change))
        with pytest.raises(ValueError, match="needed: heads that add what they write to the stream"):
            patch_path(made, run(made, ids), [Head(0, 0)], other(made), [Head(1, 0)], INPUTS)
