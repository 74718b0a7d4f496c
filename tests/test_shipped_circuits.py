"""The shipped Winograd models, taken apart: what the pages and the README say of them."""

import re
from dataclasses import replace
from statistics import fmean

import pytest
import torch

from engine.chapter import reference
from engine.chapter.language_experiments import WINOGRAD_CLOSED, WINOGRAD_OPEN
from engine.circuits.capture import connections, read_by
from engine.circuits.composition import PatchInputs
from engine.circuits.edges import PatchValues
from engine.circuits.first_block import scores_under_change
from engine.circuits.interventions import MeanHeads
from engine.circuits.results import Edge, Head
from engine.data.languages.winograd import ADJECTIVE, CLOSED, DECISION, FIRST, SECOND, Sentence
from engine.probes.results.winograd import Pair
from engine.probes.winograd import Subject, parts, proof, score
from engine.system import paths
from engine.training import checkpoint
from engine.training.loop import Training
from engine.training.tasks import task_of_language
from lab.sections.winograd.which_part import what_counts

pytestmark = pytest.mark.usefixtures("one_thread")

X, Y = CLOSED.nouns[:2]
MEASURED = paths.ROOT / "docs" / "measured.md"


def shipped(variant):
    return reference.weights("winograd-closed", variant), CLOSED, WINOGRAD_CLOSED.seeds[0]


@pytest.mark.parametrize("variant", ["one-block", "two-blocks"])
def test_block_1_scores_all_words_but_the_adjective_alike_under_all_eight_and_identities_hold(variant):
    path, language, seed = shipped(variant)
    subject = Subject(checkpoint.load_model(path)[0], language, seed)
    sentences = [Sentence(X, Y, adjective) for adjective in CLOSED.adjectives]
    found = scores_under_change(subject.model, subject.asked(sentences).ids, ADJECTIVE, DECISION)
    assert len(found.scores) == 8
    assert max(found.score_change, found.weight_change) < 1e-6
    own = torch.tensor(found.own_scores)
    assert (own.amax(dim=0) - own.amin(dim=0)).max() > 0.1
    proved = proof(path, language, seed, Pair(X, Y, ("tired", "wet")))
    assert [proved.nothing, proved.everything] == pytest.approx([0, 1], abs=1e-6)
    for one in proved.attribution:
        assert one.total == pytest.approx(one.parts.logit_difference, abs=1e-4)


SEEDS = WINOGRAD_CLOSED.seeds
CHAPTERS, OTHER = 14, tuple(seed for seed in SEEDS if seed != 14)  # the seed with the chapter's circuit


@pytest.fixture(scope="module")
def parts_of():
    """Of every shipped seed of a model: what is left without each part of each block's looks."""
    torch.set_num_threads(1)
    return {
        variant: {
            seed: parts(reference.weights("winograd-closed", variant, seed), CLOSED, seed) for seed in SEEDS
        }
        for variant in ("one-block", "two-blocks")
    }


def at_adjective(found, block=0):
    """What is left without its look at the adjective."""
    return next(one.left for one in found.looks if (one.block, one.key) == (block, "adjective"))


def test_the_seed_that_is_opened_first_is_not_the_worst_but_near_the_mean():
    row = reference.load("winograd-closed").rows["one-block"]
    ends = {seed: row.measured[str(seed)]["accuracy"] for seed in SEEDS}
    assert [seed for seed, end in ends.items() if end == 1] == [13, 16, 17]
    assert min(ends.values()) == ends[10] == pytest.approx(0.56, abs=0.005)
    typical = ends[WINOGRAD_CLOSED.typical["one-block"]]
    assert typical == pytest.approx(row.mean("accuracy"), abs=0.02)


def test_two_blocks_answer_everything_and_a_bag_of_words_is_below_chance_in_every_seed():
    closed, open_ = (reference.load(f"winograd-{name}").rows for name in ("closed", "open"))
    assert set(closed["two-blocks"].values("accuracy")) == {1.0}
    assert max(closed["average"].values("accuracy")) < 0.4
    assert closed["average"].mean("wrong_noun") == pytest.approx(0.522, abs=0.001)
    added = [
        after - before
        for rows in (closed, open_)
        for before, after in zip(
            *(rows[name].values("accuracy") for name in ("average", "average-added")), strict=True
        )
    ]
    assert abs(fmean(added[:10])) < 0.01, "keeping the token tells nothing"
    assert max(added[10:]) <= 0
    assert set(open_["average"].values("accuracy")) == {1.0}
    before, end = (fmean(dict(one)[at] for one in open_["one-block"].curves.values()) for at in (300, 325))
    assert (before, end) == pytest.approx((0.83, 0.89), abs=0.005), "on its way up"


def test_what_the_quick_budgets_show_is_on_the_shipped_curves():
    """At a constant rate a quick run is the beginning of a long one."""

    def at_the_end(experiment, variant):
        steps = experiment.budget("quick", variant).steps
        return [dict(curve)[steps] for curve in reference.load(experiment.id).rows[variant].curves.values()]

    one, two, average = (at_the_end(WINOGRAD_CLOSED, name) for name in ("one-block", "two-blocks", "average"))
    assert max(average) < 0.45 < 0.95 < min(two)
    assert sum(abs(end - 0.5) < 0.05 for end in one) == 6, "at chance in most seeds"
    by_class, one = (at_the_end(WINOGRAD_OPEN, name) for name in ("average", "one-block"))
    assert (min(by_class), fmean(by_class)) == pytest.approx((0.89, 0.976), abs=0.002)
    assert fmean(one) < fmean(by_class) - 0.1


@pytest.mark.parametrize("seed", SEEDS)
def test_block_2_asks_by_what_block_1_brought_but_not_in_the_chapters_circuit(seed):
    """Its queries or keys are those of another sentence; at the decision the token is the same in all."""
    path = reference.weights("winograd-closed", "two-blocks", seed)
    trials = Subject(checkpoint.load_model(path)[0], CLOSED, seed).trials
    ((_, ran),) = trials.captured
    attention = connections(trials.model)[1][0]
    other = torch.randperm(240, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        Q, K = attention.sublayer.queries_and_keys(read_by(attention, ran.blocks[1].before))
        patches = [
            PatchInputs(1, frozenset(range(4)), scores, ran.blocks[1].values)
            for scores in (Q[other] @ K.mT, Q @ K[other].mT)
        ]
    queries, keys = (score.accuracy for score in trials.scores([[patch] for patch in patches]))
    if seed == CHAPTERS:
        assert (queries, keys) == pytest.approx((1, 0.5), abs=0.02)
    else:
        assert (queries < 0.6, keys > 0.92) == (True, True)
        (nouns,) = trials.left([frozenset(Edge(DECISION, noun, 1) for noun in (FIRST, SECOND))])
        assert 0.04 < nouns.cut < 0.63


def test_no_model_needs_the_value_of_the_adjective_and_all_but_one_need_its_score(parts_of):
    """Audited of seed 10: 45 % without the look, 51.7 % with its score at its mean, 100 % with its value."""
    left = at_adjective(parts_of["two-blocks"][10])
    assert [left.cut, left.pattern, left.values] == pytest.approx([0.450, 0.517, 1.0], abs=0.01)
    for seed in SEEDS:
        found, block = parts_of["two-blocks"][seed], 1 if seed == CHAPTERS else 0
        needed, other = (at_adjective(found, one) for one in (block, 1 - block))
        assert needed.needed(found.clean)
        assert not other.needed(found.clean)
        assert needed.values > 0.95
        counts = needed.counts(found.clean)
        assert ("values" in counts, "pattern" in counts) == (False, seed != 11)
    one = parts_of["one-block"]
    assert [seed for seed in SEEDS if "values" in at_adjective(one[seed]).counts(one[seed].clean)] == [16]
    scores = [seed for seed in SEEDS if "pattern" in at_adjective(one[seed]).counts(one[seed].clean)]
    assert scores == [seed for seed in SEEDS if seed != 10], "which answers by a coin"


def test_a_score_acts_by_its_flow_in_two_blocks_and_as_a_gate_in_one_and_in_the_chapters_circuit(parts_of):
    def ways(variant, seed, block=0):
        found = parts_of[variant][seed]
        counts = at_adjective(found, block).counts(found.clean)
        return tuple(way for way in ("flow", "rest") if way in counts)

    assert ways("two-blocks", CHAPTERS, block=1) == ("rest",)
    found = {seed: ways("two-blocks", seed) for seed in OTHER}
    assert [seed for seed, those in found.items() if those == ("flow",)] == [10, 11, 12, 15, 16, 17]
    assert (found[13], found[18], found[19]) == ((), ("flow", "rest"), ())
    gated = [seed for seed in SEEDS if "rest" in ways("one-block", seed)]
    assert gated == [seed for seed in SEEDS if seed != 10]
    weights = next(one for one in parts_of["two-blocks"][10].heads if (one.block, one.head) == (0, 1))
    assert weights.of_first[0] > 0.5
    assert weights.of_second[0] < 0.01


@pytest.mark.parametrize("seed", OTHER)
def test_what_flows_from_the_adjective_is_needed_though_no_words_own_value_is(seed):
    subject = Subject(
        checkpoint.load_model(reference.weights("winograd-closed", "two-blocks", seed))[0], CLOSED, seed
    )
    nothing = tuple(torch.zeros_like(block.values[:1]) for block in subject.trials.captured[0][1].blocks)
    look = frozenset([Edge(DECISION, ADJECTIVE, 0)])
    assert subject.trials.scores([[PatchValues(look, nothing)]])[0].accuracy < 0.7


def test_the_seed_with_the_chapters_circuit_does_what_it_predicts(parts_of):
    """Block 1 brings the first noun in any case; block 2 adds the second unless the adjective shuts it."""
    heads = parts_of["two-blocks"][CHAPTERS].heads
    for one in (head for head in heads if head.block == 0):
        assert max(abs(a - b) for a, b in zip(one.of_first, one.of_second, strict=True)) < 0.02
    first, second = (
        [fmean(getattr(head, kind)[at] for head in heads if head.block == 1) for at in range(3)]
        for kind in ("of_first", "of_second")
    )
    assert [first[2], second[1], second[2]] == pytest.approx(
        [0.50, 0.50, 0.01], abs=0.02
    )  # chapter: 1.00, 0.49, 0.03
    shut = {
        head.head
        for head in heads
        if head.block == 1 and head.of_first[2] > 0.95 and head.of_second[1] > 0.95
    }
    assert shut == {1, 3}
    path = reference.weights("winograd-closed", "two-blocks", CHAPTERS)
    subject = Subject(checkpoint.load_model(path)[0], CLOSED, CHAPTERS)
    trials, of_first = subject.trials, subject.questions.ids[:, FIRST] == subject.questions.answers
    look = frozenset(Edge(DECISION, ADJECTIVE, 1, head) for head in shut)
    (without,) = trials.outcomes([trials.change(look, "cut")])
    assert [without.score(kind).accuracy for kind in (of_first, ~of_first)] == pytest.approx([0, 1], abs=0.02)
    gone = MeanHeads(frozenset(Head(1, head) for head in shut), trials.head_means())
    assert trials.scores([[gone]])[0].accuracy == pytest.approx(0.5, abs=0.1)


def test_the_document_prints_what_counts_in_all_ten_seeds_as_it_is(parts_of):
    columns = "seed | right | cut | score at its mean | value | both | flow | rest | what counts"
    for variant, name in (("one-block", "winograd-one"), ("two-blocks", "winograd-two")):
        lines = [f"| {columns} |", "|---:|---:|---:|---:|---:|---:|---:|---:|---|"]
        for seed, found in parts_of[variant].items():
            left = at_adjective(found, 1 if (variant, seed) == ("two-blocks", CHAPTERS) else 0)
            values = found.clean, left.cut, left.pattern, left.values, left.both, left.flow, left.rest
            shown = " | ".join(f"{100 * value:.1f}" for value in values)
            lines.append(f"| {seed} | {shown} | {what_counts(left, found.clean)} |")
        printed = re.search(rf"<!-- {name}:begin -->\n(.*?)\n<!-- {name}:end -->", MEASURED.read_text(), re.S)
        # A sentence of the 240 may fall to the other side on another processor.
        assert re.sub(r"[\d.]+", "", printed[1]) == re.sub(r"[\d.]+", "", "\n".join(lines)), "\n".join(lines)
        numbers = [
            [float(one) for one in re.findall(r"\d+\.\d", text)] for text in (printed[1], "\n".join(lines))
        ]
        assert numbers[0] == pytest.approx(numbers[1], abs=0.5), "\n".join(lines)


@pytest.mark.full
def test_one_block_twice_as_wide_does_not_always_reach_all():
    """Seed 11 of the ten in NOTES.md: 82.9 %."""
    config = replace(WINOGRAD_CLOSED.variant("one-block").config, d_model=128, d_ff=512)
    task = task_of_language(CLOSED, seed=11)
    training = Training(
        config=config, budget=WINOGRAD_CLOSED.budget("chapter", "one-block"), seed=11, task=task
    )
    for _ in range(training.budget.steps):
        training.advance()
    found = task.evaluate(training.model, lambda: False)["accuracy"]
    assert found == pytest.approx(0.829, abs=0.05)


@pytest.mark.full
def test_the_document_prints_the_routes_and_sets_of_heads_of_all_ten_seeds_as_they_are():
    printed = re.search(
        r"<!-- winograd-sets:begin -->\n(.*?)\n<!-- winograd-sets:end -->", MEASURED.read_text(), re.S
    )
    lines = printed[1].splitlines()[2:]
    for seed, line in zip(SEEDS, lines, strict=True):
        found = score(reference.weights("winograd-closed", "two-blocks", seed), CLOSED, seed)
        sets = found.roles.at_nouns, found.roles.at_adjective, found.roles.rest
        cells = [
            f"{100 * one.mean.accuracy:.1f} ({', '.join(head.name for head in one.heads)})" for one in sets
        ]
        right = f"{100 * found.route.clean.accuracy:.1f}"
        assert line == f"| {seed} | {found.route.route} | {right} | {' | '.join(cells)} |"
        assert found.roles.holds


def test_two_blocks_need_both_sets_of_heads_and_no_other():
    found = score(*shipped("two-blocks"))
    assert found.route.route == "adjective, then nouns"  # as the document's table says of this seed
    roles = found.roles
    assert max(roles.at_nouns.mean.accuracy, roles.at_adjective.mean.accuracy) < 0.75
    assert roles.rest.mean.accuracy > 0.95
