"""Stand-ins for the tests of the page Induction: runs in some state, and what its probes would find."""

from typing import Any

from engine.chapter.definitions import ACCURACY
from engine.chapter.language_experiments import INDUCTION
from engine.probes import wire
from engine.probes.results.induction import Ablation, Composition, Formation, InTexts, Maps
from engine.runs.store import Store
from lab.sections.induction.parts import LEVEL, LOSS, SCORE
from tests import finished

LAST = INDUCTION.budgets["quick"].steps
STEPS = list(range(0, LAST + 1, 20))
FORMED = 300
ENDS = {"one-layer": (0.07, 0.01, 3.6, -0.6), "two-layers": (0.99, 0.01, 0.05, -4.1)}


def at_step(name, step):
    """Accuracy, level, loss, in-context score of a model on the way: two layers jump from 280 to 340."""
    accuracy, level, loss, score = ENDS[name]
    done = min(1.0, max(0.0, (step - 280) / 60)) if name == "two-layers" else min(1.0, step / LAST)
    return {
        ACCURACY: 0.01 + (accuracy - 0.01) * done,
        LEVEL: level,
        LOSS: 4.2 + (loss - 4.2) * done,
        SCORE: score * done,
    }


def measure(seeds=(0,), state="done", last=LAST, kept=STEPS):
    """Runs of both models in some state, with curves, and empty files where weights would lie."""

    def figures(variant, seed):
        ended = {**at_step(variant, LAST), "early_loss_nats": 4.2}
        return {**ended, ACCURACY: ended[ACCURACY] - 0.01 * seed}

    def curve(spec, step, _ends):
        return at_step(spec.variant, step)

    made = finished.runs(
        INDUCTION, None, "quick", seeds, state, last=last, every=20, figures=figures, curve=curve
    )
    for run in made:
        folder = Store().directory(run.id)
        (folder / "weights").mkdir()
        (folder / "checkpoint.safetensors").touch()
        for step in kept:
            (folder / "weights" / f"{step}.safetensors").touch()


# What the probes would find: 1.1 and 1.2 look one token back, 2.2 finds what came after.


def scores_at(step):
    done = step >= FORMED
    low = [0.06] * 4
    return {
        "previous_token": [[0.6, 0.3, 0.06, 0.05] if done else low, [0.03] * 4],
        "prefix_matching": [[0.05] * 4, [0.05, 0.9 if done else 0.05, 0.05, 0.05]],
        "copying": [[0.7, 0.2, 0.2, 0.2], [-0.6, 0.95 if done else 0.1, 0.1, 0.1]],
    }


ROLES = {"pair": [[0, 0], [1, 1]], "previous": [[0, 0], [0, 1]], "matching": [[1, 1]]}
NO_ROLES: dict[str, Any] = {"pair": None, "previous": [], "matching": []}
ALIKE = {"previous_token": 0.06, "prefix_matching": 0.05}


def formation(formed=FORMED, **changes):
    return wire.read(Formation, {
        "steps": STEPS,
        "scores": [scores_at(step) for step in STEPS],
        "pairs": [ROLES["pair"] if step >= FORMED else None for step in STEPS],
        "formed": formed,
        **ROLES,
        "all_alike": ALIKE,
        "sequences": 64,
        **changes,
    })  # fmt: skip


def maps(period):
    """At every step head 1.1 looks one back from step 300 on, and all others see alike."""
    tokens = 2 * period
    alike = [[round(1 / (t + 1), 4)] * (t + 1) for t in range(tokens)]
    back = [[1.0], *([0.0] * (t - 1) + [0.9, 0.1] for t in range(1, tokens))]
    flat = [[0.0] * (t + 1) for t in range(tokens)]
    word = ["ba", "be", "bi", "bo", "bu", "da", "de", "di", "do", "du", "fa", "fe", "fi", "fo"][:period]
    return wire.read(Maps, {
        "pieces": word * 2,
        "steps": STEPS,
        "weights": [
            [[back if step >= FORMED else alike, alike, alike, alike], [alike] * 4] for step in STEPS
        ],
        "scores": [[[flat] * 4] * 2 for _ in STEPS],
    })  # fmt: skip


def ablation(**changes):
    one = {"1.1": 0.6, "1.2": 0.95, "2.2": 0.03}
    singles = [
        {"heads": [[b, h]], "zero": one.get(f"{b + 1}.{h + 1}", 0.98), "mean": 0.97}
        for b in range(2)
        for h in range(4)
    ]
    return wire.read(Ablation, {
        "accuracy": 0.99,
        "early_accuracy": 0.01,
        **ROLES,
        "scores": scores_at(LAST),
        "single": singles,
        "sets": {
            "previous": {"heads": [[0, 0], [0, 1]], "zero": 0.05, "mean": 0.06},
            "matching": {"heads": [[1, 1]], "zero": 0.03, "mean": 0.04},
            "others": {"heads": [[0, 2], [0, 3], [1, 0], [1, 2], [1, 3]], "zero": 0.985, "mean": 0.98},
        },
        "growing": {
            "previous": [
                {"heads": [[0, 0]], "zero": 0.6},
                {"heads": [[0, 0], [0, 1]], "zero": 0.05},
            ],
            "matching": [{"heads": [[1, 1]], "zero": 0.03}],
        },
        "sequences": 256,
        **changes,
    })  # fmt: skip


def composition(**changes):
    """Through the keys alone; what else there is of layer 1 costs nothing."""
    left = {"queries": (0.98, 0.9), "keys": (0.06, 0.04), "values": (0.985, 0.91)}
    return wire.read(Composition, {
        "pair": ROLES["pair"],
        "receivers": [[1, 1]],
        "accuracy": 0.99,
        "matching": [0.91],
        "paths": [
            {"input": name, "senders": ROLES["previous"], "accuracy": right, "matching": [after]}
            for name, (right, after) in left.items()
        ],
        "controls": [
            {"input": name, "senders": [[0, 2], [0, 3]], "accuracy": 0.985, "matching": [0.9]}
            for name in left
        ],
        "sequences": 64,
        **changes,
    })  # fmt: skip


def in_text(names, **changes):
    heads = {"previous_token": [[0.21]], "prefix_matching": [[0.01]], "copying": [[0.8]]}
    return wire.read(InTexts, {
        "rows": [
            {
                "model": name, "layers": 1, "pair": None, "random": heads, "text": heads,
                "gain_random_nats": 0.03, "gain_text_nats": -0.01,
                "alike_random": ALIKE, "alike_text": ALIKE, **(changes if name == names[0] else {}),
            }
            for name in names
        ],
        "text": "Tiny Shakespeare",
        "passages": 64,
    })  # fmt: skip
