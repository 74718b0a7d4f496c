"""The shipped models of repeated random tokens, taken apart: what the page and the docs say of them."""

import re
from statistics import fmean

import pytest
import torch
import torch.nn.functional as F

from engine.chapter import reference
from engine.chapter.definitions import ACCURACY
from engine.chapter.language_experiments import INDUCTION as EXPERIMENT
from engine.circuits.capture import mean_of, run
from engine.circuits.composition import patch_path
from engine.circuits.edges import PatchPattern
from engine.circuits.induction import copying, head_scores, pair_of, partners_of
from engine.circuits.results import COPIES, FOUND, INPUTS, Edge, Head
from engine.data.languages.induction import INDUCTION
from engine.probes.composition import compose
from engine.probes.induction import Continued, ablate
from engine.probes.models import trained
from engine.system import paths
from lab.sections.induction.parts import rise
from lab.sections.induction.probe import listed

pytestmark = pytest.mark.usefixtures("one_thread")

LATE = INDUCTION.known_all


SEEDS = EXPERIMENT.seeds


def shipped(variant, seed=0):
    return reference.weights("induction", variant, seed)


@pytest.fixture(scope="module")
def rows():
    """The unseen sequences of the shipped seed."""
    return torch.from_numpy(INDUCTION.unseen_rows(0))


@pytest.mark.parametrize("seed", SEEDS)
def test_one_layer_names_tokens_of_the_sequence_and_hardly_ever_the_one_it_stands_on(seed):
    rows = torch.from_numpy(INDUCTION.unseen_rows(seed))
    ids = rows[:, :-1]
    named = run(trained(shipped("one-layer", seed)), ids).logits[:, LATE].argmax(dim=-1)
    seen = F.one_hot(ids, len(INDUCTION.words)).cumsum(dim=1)[:, LATE] > 0
    assert seen.double().mean() < 0.35, "a third of the vocabulary is in the sequence"
    assert seen.gather(-1, named[..., None]).double().mean() > 0.99
    assert (named == ids[:, LATE]).double().mean() < 0.005
    assert (named == rows[:, 1:][:, LATE]).double().mean() == pytest.approx(0.091, abs=0.006)


@pytest.mark.parametrize("seed", SEEDS)
def test_one_layer_is_right_nearly_as_often_with_a_pattern_that_depends_on_positions_alone(seed):
    rows = torch.from_numpy(INDUCTION.unseen_rows(seed))
    ids, wanted = rows[:, :-1], rows[:, 1:][:, LATE]
    model, places = trained(shipped("one-layer", seed)), range(ids.shape[1])
    plain = run(model, ids)
    edges = frozenset(Edge(query, key, 0) for query in places for key in range(query + 1))
    patched = run(model, ids, [PatchPattern(edges, mean_of([plain], "scores"))])
    right, left = (
        (ran.logits[:, LATE].argmax(dim=-1) == wanted).double().mean().item() for ran in (plain, patched)
    )
    assert (0.085 < right < 0.097, 0.070 < left < 0.0855) == (True, True)
    assert left < right


@pytest.mark.parametrize("seed", SEEDS)
def test_one_layer_copies_but_attends_to_what_followed_hardly_more_than_to_what_preceded(seed):
    """Over the queries whose token stood before; uniform: a head that sees all alike."""
    ids = torch.from_numpy(INDUCTION.unseen_rows(seed))[:, :-1]
    model = trained(shipped("one-layer", seed))
    scores = head_scores(model, ids)
    assert min(scores.copying[0]) > 0.99
    assert max(scores.previous_token[0] + scores.prefix_matching[0]) < FOUND
    weights = run(model, ids).blocks[0].weights.mean(dim=1)
    copies = (ids[:, :, None] == ids[:, None]).tril(-1)
    queries = copies.any(dim=-1)
    uniform = copies / torch.arange(1.0, 1 + ids.shape[1])[:, None]
    found = {
        "itself": weights.diagonal(dim1=1, dim2=2)[queries],
        "copies": (weights * copies).sum(dim=-1)[queries],
        "after": (weights * F.pad(copies, (1, -1))).sum(dim=-1)[queries],
        "before": (weights * F.pad(copies, (-1, 1))).sum(dim=-1)[queries],
        "uniform": uniform.sum(dim=-1)[queries],
    }
    assert {name: each.mean().item() for name, each in found.items()} == pytest.approx(
        {"itself": 0.001, "copies": 0.048, "after": 0.070, "before": 0.067, "uniform": 0.042}, abs=0.003
    )


def test_two_layers_have_a_pair_whose_later_head_copies_and_other_heads_of_its_layer_do_not(rows):
    scores = head_scores(trained(shipped("two-layers")), rows[:, :-1])
    assert pair_of(scores) == (Head(0, 1), Head(1, 3))
    assert partners_of(scores) == ([Head(0, 1), Head(0, 3)], [Head(1, 1), Head(1, 3)])
    assert min(scores.copying[1][1::2]) > 0.99
    assert max(scores.copying[1][::2]) < COPIES
    assert min(scores.prefix_matching[1][1::2]) > 0.96


def test_each_set_of_heads_is_needed_and_the_others_are_not():
    found = ablate(shipped("two-layers"))
    left = {name: (one.zero, one.mean) for name, one in found.sets.items()}
    assert max(left["previous"]) < 0.06
    assert max(left["matching"]) < 0.03
    assert min(left["others"]) > 0.99
    one = {single.heads[0].name: single.zero for single in found.single}
    assert one["1.2"] == pytest.approx(0.283, abs=0.005), "it does most of it, and not all"
    assert min(one["2.2"], one["2.4"]) > 0.85


@pytest.mark.parametrize("seed", SEEDS)
def test_in_every_seed_only_the_keys_need_what_the_earlier_heads_wrote_as_the_document_prints(seed):
    found = compose(shipped("two-layers", seed), seed)
    left = {one.input: one.accuracy for one in found.paths}
    assert left["keys"] < 0.1
    assert min(left["queries"], left["values"], *(one.accuracy for one in found.controls)) > 0.99
    copies = copying(trained(shipped("two-layers", seed)))
    heads = [
        f"{head.name} ({matching:.2f}, {copies[1][head.head]:.2f})"
        for head, matching in zip(found.receivers, found.matching, strict=True)
    ]
    (keys,) = (one.accuracy for one in found.controls if one.input == "keys")
    numbers = found.accuracy, left["keys"], left["queries"], left["values"], keys
    document = (paths.ROOT / "docs" / "measured.md").read_text()
    printed = re.search(
        r"<!-- induction-composition:begin -->(.*)<!-- induction-composition:end", document, re.S
    )
    assert printed
    line = next(line for line in printed[1].splitlines() if line.startswith(f"| {seed} | "))
    said, shown = line.strip("| ").split(" | "), [f"{100 * one:.1f}" for one in numbers]
    assert said[1] == listed(found.paths[0].senders).replace(" and ", ", ")
    assert re.sub(r"\d\.\d\d", "", said[2]) == re.sub(r"\d\.\d\d", "", ", ".join(heads))
    printed_scores, scores = (map(float, re.findall(r"\d\.\d\d", one)) for one in (said[2], ", ".join(heads)))
    assert list(printed_scores) == pytest.approx(list(scores), abs=0.011)
    assert [float(one) for one in said[3:]] == pytest.approx([float(one) for one in shown], abs=0.3)


@pytest.mark.parametrize("seed", SEEDS)
def test_in_every_seed_both_sets_of_heads_are_needed_and_all_others_are_not(seed):
    rows = INDUCTION.unseen_rows(seed)
    model = trained(shipped("two-layers", seed))
    scores = head_scores(model, torch.from_numpy(rows)[:, :-1])
    sets = partners_of(scores)
    rest = [head for head in scores.heads if head not in {*sets[0], *sets[1]}]
    previous, matching, others = Continued(model, rows, LATE).without(*sets, rest)
    assert (0.045 < previous.zero < 0.115, 0.015 < matching.zero < 0.055) == (True, True)
    assert others.zero > 0.99
    if seed == 2:
        assert Head(1, 2) not in sets[1]
        matches, copies = scores.prefix_matching[1][2], scores.copying[1][2]
        assert (matches, copies) == pytest.approx((0.23, 0.31), abs=0.01)


def test_the_keys_of_the_induction_heads_need_what_the_previous_token_heads_wrote_and_nothing_else_does():
    found = compose(shipped("two-layers"))
    assert found.receivers == [Head(1, 1), Head(1, 3)]
    left = {one.input: one.accuracy for one in found.paths}
    assert left == pytest.approx({"queries": 0.995, "keys": 0.061, "values": 0.995}, abs=0.002)
    after = {one.input: fmean(one.matching) for one in found.paths}
    assert after["keys"] < 0.03
    assert min(after["queries"], after["values"], *found.matching) > 0.96
    for control in found.controls:
        assert control.senders == [Head(0, 0), Head(0, 2)]
        assert control.accuracy > 0.99
    nothing = compose(shipped("one-layer"))
    assert (nothing.pair, nothing.paths) == (None, [])


@pytest.mark.parametrize("instead", ["zeros", "of another sequence"])
def test_whatever_takes_the_place_of_what_they_wrote_only_the_keys_miss_it(rows, instead):
    model, ids = trained(shipped("two-layers")), rows[:64, :-1]
    captured = run(model, ids)
    added = torch.stack([block.heads for block in captured.blocks])
    put = torch.zeros_like(added) if instead == "zeros" else added.roll(1, dims=1)
    right = {}
    for name in INPUTS:
        path = patch_path(model, captured, [Head(0, 1), Head(0, 3)], put, [Head(1, 1), Head(1, 3)], [name])
        named = run(model, ids, [path]).logits[:, LATE].argmax(dim=-1)
        right[name] = (named == rows[:64, 1:][:, LATE]).double().mean().item()
    assert right["keys"] < 0.07
    assert min(right["queries"], right["values"]) > 0.99


def test_one_layer_stays_near_its_level_and_two_continue_in_all_five_seeds():
    found = reference.load("induction").rows
    one, two = found["one-layer"], found["two-layers"]
    gaps = [
        right - level for right, level in zip(one.values(ACCURACY), one.values("early_accuracy"), strict=True)
    ]
    assert len(gaps) == 5
    assert (min(gaps), max(gaps)) == pytest.approx((0.077, 0.091), abs=0.0006)
    assert min(two.values(ACCURACY)) > 0.99
    assert two.mean(ACCURACY) == pytest.approx(0.997, abs=0.0006)


def test_two_layers_learn_it_within_a_quarter_of_the_steps_and_by_the_end_of_the_quick_budget():
    """At a constant rate a run of 700 steps is the beginning of one of 800."""
    rows, quick = reference.load("induction").rows, EXPERIMENT.budget("quick").steps
    for curve in rows["two-layers"].curves.values():
        assert 100 <= (found := rise(curve)).end - found.start <= 120
        assert found.sudden
        assert dict(curve)[quick] > 0.95
    assert max(dict(curve)[quick] for curve in rows["one-layer"].curves.values()) < 0.1
