"""Induction: a circuit built by hand scores 1, and without either head the ability is gone."""

import math
from dataclasses import replace

import pytest
import torch

from engine.circuits.capture import run
from engine.circuits.induction import copying, head_scores, pair_of, partners_of
from engine.circuits.results import Head, HeadScores
from engine.models.config import ModelConfig
from engine.models.transformer import Transformer
from engine.probes.induction import Continued
from engine.probes.schemes import losses_by_position
from tests import circuit_models
from tests.circuit_models import CONFIG, HALF, LETTERS, felt, induction_model

pytestmark = pytest.mark.usefixtures("one_thread")

IDS = circuit_models.repeated(20)
LATE = slice(HALF, 2 * HALF - 1)
# A head without scores looks at everything before it alike.
IDLE_PREVIOUS = sum(1 / (t + 1) for t in range(1, 2 * HALF)) / (2 * HALF - 1)
IDLE_MATCHING = sum(1 / (t + 1) for t in range(HALF, 2 * HALF)) / HALF


def one_block(**change):
    torch.manual_seed(0)
    config = ModelConfig(
        vocab_size=LETTERS, d_model=8, n_layer=1, n_head=2, mixer="attention", connection="add"
    )
    return Transformer(replace(config, **change)).eval()


def test_the_built_circuit_scores_one_and_idle_heads_and_an_average_what_chance_gives():
    scores = head_scores(induction_model(), IDS)
    assert scores.previous_token[0] == pytest.approx([1, IDLE_PREVIOUS])
    assert scores.prefix_matching[1] == pytest.approx([1, IDLE_MATCHING])
    assert scores.prefix_matching[0] == pytest.approx([0, IDLE_MATCHING], abs=1e-9)
    assert pair_of(scores) == (Head(0, 0), Head(1, 0))
    scores = head_scores(one_block(mixer="average"), IDS)
    assert scores.previous_token == [[pytest.approx(IDLE_PREVIOUS)]]
    assert scores.prefix_matching == [[pytest.approx(IDLE_MATCHING)]]


def test_the_built_circuit_names_every_token_of_the_second_half_and_no_longer_without_either_head():
    continued = Continued(induction_model(), IDS.numpy(), LATE)
    assert continued.accuracy([]) == [1]
    # Without the matching head all logits are 0: token 0 is named, and right where it stands.
    zeros = (IDS[:, HALF + 1 :] == 0).double().mean().item()
    previous, idle, matching = continued.without([Head(0, 0)], [Head(0, 1), Head(1, 1)], [Head(1, 0)])
    assert matching.zero == pytest.approx(zeros)
    assert previous.zero < 0.3
    assert previous.mean < 0.5, "a mean of other sequences is no help either"
    assert idle.zero == idle.mean == 1
    scores = head_scores(induction_model(), IDS)
    assert partners_of(scores) == ([Head(0, 0)], [Head(1, 0)])
    losses = losses_by_position(induction_model(), IDS)
    assert len(losses) == 2 * HALF - 1
    assert losses[LATE].max() < 0.001
    assert losses[: HALF - 1].min() > 1


def test_two_heads_that_do_the_same_are_missed_only_together():
    built = induction_model()
    with torch.no_grad():
        mixer = built.blocks[1][0].sublayer
        for W in (mixer.W_Q, mixer.W_K, mixer.W_V):
            W.weight[mixer.d_head :] = W.weight[: mixer.d_head]
        mixer.W_O.weight[:, mixer.d_head :] = mixer.W_O.weight[:, : mixer.d_head]
    both = [Head(1, 0), Head(1, 1)]
    assert partners_of(head_scores(built, IDS))[1] == both
    left = Continued(built, IDS.numpy(), LATE).without([both[0]], [both[1]], both)
    assert [one.zero for one in left[:2]] == [1, 1]
    assert left[2].zero < 0.3


def test_scores_by_hand_on_a_sequence_that_is_no_repetition():
    """[A][B][C][A][A]: the second A should look at B; the third at B and at itself, which follows an A."""
    made, ids = one_block(), torch.tensor([[3, 4, 5, 3, 3]])
    scores = head_scores(made, ids)
    for head, w in enumerate(run(made, ids).blocks[0].weights[0].tolist()):
        matching = (w[3][1] + w[4][1] + w[4][4]) / 2
        assert scores.prefix_matching[0][head] == pytest.approx(matching)
        previous = (w[1][0] + w[2][1] + w[3][2] + w[4][3]) / 4
        assert scores.previous_token[0][head] == pytest.approx(previous)


def test_losses_and_accuracy_by_hand():
    made, ids = one_block(), circuit_models.repeated(2)
    found = losses_by_position(made, ids)
    with torch.no_grad():
        logits = made(ids)
    for t, following in enumerate(ids[:, 1:].T):
        powers = [[math.exp(z) for z in row] for row in logits[:, t].tolist()]
        shares = [row[token] / sum(row) for row, token in zip(powers, following, strict=True)]
        assert found[t].item() == pytest.approx(-sum(map(math.log, shares)) / 2, abs=1e-5)
        right = (logits[:, t].argmax(-1) == following).float().mean()
        assert Continued(made, ids.numpy(), slice(t, t + 1)).accuracy([]) == [right]


def test_portions_change_nothing(monkeypatch):
    def computed():
        accuracy = Continued(one_block(), IDS.numpy(), LATE).accuracy([])
        scores = head_scores(one_block(), IDS)
        return accuracy + scores.prefix_matching[0] + scores.previous_token[0]

    whole = computed()
    monkeypatch.setattr("engine.circuits.capture.TOKENS_A_BATCH", 36)
    assert computed() == pytest.approx(whole)


def test_a_pair_stands_in_two_blocks_in_order_and_reaches_its_threshold():
    alone = head_scores(one_block(), IDS)
    assert (pair_of(alone), partners_of(alone)[1]) == (None, [])
    copy = [[1.0, 1.0]] * 3
    backwards = HeadScores([[0.1, 0.1], [0.9, 0.1]], [[0.9, 0.1], [0.1, 0.1]], copy)
    assert pair_of(backwards) is None
    assert pair_of(HeadScores([[0.9, 0.0]], [[0.0, 0.9]], copy)) is None
    weak = HeadScores([[0.9], [0.0]], [[0.0], [0.19]], copy)
    assert pair_of(weak) is None
    three = HeadScores([[0.5, 0.8], [0.9, 0.0], [0.0, 0.0]], [[0.0, 0.0], [0.7, 0.4], [0.0, 0.75]], copy)
    assert pair_of(three) == (Head(1, 0), Head(2, 1))
    nothing = HeadScores([], [], [])
    assert pair_of(nothing) is None
    assert partners_of(backwards) == partners_of(weak) == partners_of(nothing) == ([], [])
    assert partners_of(three) == ([Head(0, 0), Head(0, 1), Head(1, 0)], [Head(1, 0), Head(1, 1), Head(2, 1)])


def test_a_head_that_finds_the_token_and_does_not_copy_it_is_no_induction_head():
    found = HeadScores([[0.9, 0.0], [0.0, 0.0]], [[0.0, 0.0], [0.9, 0.6]], [[0.0, 0.0], [0.49, 0.5]])
    assert pair_of(found) == (Head(0, 0), Head(1, 1))
    assert partners_of(found) == ([Head(0, 0)], [Head(1, 1)])
    assert pair_of(replace(found, copying=[[1.0, 1.0], [0.4, -1.0]])) is None


def test_copying_is_one_of_a_head_that_writes_what_it_attends_to_and_turns_with_its_sign():
    built = induction_model()
    assert copying(built) == [[0, 0], [pytest.approx(1), 0]], "the note of head 0.0 is no logit"
    output = built.blocks[1][0].sublayer.W_O.weight
    with torch.no_grad():
        output.neg_()
        assert copying(built)[1][0] == pytest.approx(-1)
        output[:] = output.neg().roll(1, dims=0)  # each letter raises the next one
        output[-LETTERS], output[0] = output[0].clone(), 0.0  # and the last the first
    assert copying(built)[1][0] == pytest.approx(0, abs=1e-6), "as many roots of 1 on either side"


@pytest.mark.parametrize("connection", ["pre-norm", "add"])
def test_copying_is_the_share_of_eigenvalues_of_the_whole_matrix_of_logits_by_tokens(connection):
    """By hand, V x V: of every token the logits that a head writes, without scale and biases of norms."""
    made = felt(replace(CONFIG, connection=connection, qkv_bias=True, d_ff=0))
    W = {name: value.detach() for name, value in made.named_parameters()}
    centre = torch.eye(12, dtype=torch.float64) - 1 / 12
    found = copying(made)
    for block in range(2):
        read, written = W["token_embedding.weight"].T, W["unembedding.weight"]
        mixer = made.blocks[block][0].sublayer
        if connection == "pre-norm":
            read = made.blocks[block][0].norm.weight.detach().diag() @ centre @ read
            written = written @ W["final_norm.weight"].diag() @ centre
        for head in range(3):
            rows = slice(4 * head, 4 * head + 4)
            circuit = written @ mixer.W_O.weight[:, rows] @ mixer.W_V.weight[rows] @ read
            values = torch.linalg.eigvals(circuit)
            expected = (values.sum().real / values.abs().sum()).item()
            assert found[block][head] == pytest.approx(expected, abs=1e-6)
            assert abs(expected) < 1


def test_sequences_without_a_repeated_token_have_no_prefix_to_match():
    for ids, says in (([[1, 2, 3]], "no token comes again"), ([[1]], "has 1 tokens; needed: at least 2")):
        with pytest.raises(ValueError, match=says):
            head_scores(one_block(), torch.tensor(ids))


def test_repetitions_after_any_number_of_tokens():
    """The built circuit matches tokens, not places: periods of 3 to 6 in one batch."""
    draw = torch.Generator().manual_seed(3)
    rows = [torch.randperm(LETTERS, generator=draw)[:p].repeat(4)[: 2 * HALF] for p in (3, 4, 5, 6)]
    ids = torch.stack(rows)
    assert Continued(induction_model(), ids.numpy(), LATE).accuracy([]) == [1]
    assert head_scores(induction_model(), ids).prefix_matching[1][0] == pytest.approx(1)
