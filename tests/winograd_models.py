"""Small models, trained on a small Winograd language in seconds, and the runs in the store that made them."""

from dataclasses import replace
from itertools import permutations

import torch
import torch.nn.functional as F

from engine.chapter.experiments import EXPERIMENTS
from engine.chapter.language_experiments import WINOGRAD_CLOSED
from engine.data.languages.winograd import ANSWER, DECISION, Winograd
from engine.models.transformer import Transformer
from engine.runs.store import Store
from engine.training import checkpoint
from tests import finished

SMALL = Winograd(
    nouns=("dog", "road", "cat", "hill", "cow", "path"), crosser=("tired", "slow"), crossed=("wet", "steep")
)
WORDS = {
    "version": "yours",
    **{name: " ".join(getattr(SMALL, name)) for name in ("nouns", "places", "crosser", "crossed")},
}
SEED = 0


def train(variant, path, language=SMALL):
    """A model of that kind, 32 wide, trained on all sentences until it answers them. Returns the path.

    Held-out pairs are trained on too: so few words teach no rule, and what is tested here is the looking.
    """
    chapters = WINOGRAD_CLOSED.variant(variant).config
    config = replace(chapters, vocab_size=len(language.words), d_model=32, d_ff=64)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # two on a busy machine wait for each other
    torch.manual_seed(SEED)
    model = Transformer(config)
    rows = torch.from_numpy(language.rows(language.sentences(permutations(language.nouns, 2))))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(150):  # two blocks need 64; one never answers all
        logits = model(rows[:, :ANSWER])[:, DECISION]
        if (logits.argmax(dim=-1) == rows[:, ANSWER]).all():
            break
        optimizer.zero_grad()
        F.cross_entropy(logits, rows[:, ANSWER]).backward()
        optimizer.step()
    torch.set_num_threads(threads)
    checkpoint.save(path, checkpoint.model_tensors(model), {"config": config.to_dict()})
    return path


def measured(
    language_id, weights, shares, experiment="winograd-closed", seeds=(SEED,), variants=None, budget="quick"
):
    """Finished runs of a budget: their curves, their figures, and copies of these checkpoints.

    weights: checkpoints by variant. shares: right, wrong noun and other by variant.
    """

    def figures(variant, _seed):
        right, wrong, other = shares[variant]
        return {"accuracy": right, "wrong_noun": wrong, "other": other, "train_accuracy": 1.0}

    def curve(spec, at, ends):
        return {**ends, "accuracy": ends["accuracy"] * at / spec.budget.steps}

    made = finished.runs(
        EXPERIMENTS[experiment], language_id, budget, seeds, variants=variants, figures=figures, curve=curve
    )
    for run in made:
        if source := weights.get(run.spec.variant):
            (Store().directory(run.id) / "checkpoint.safetensors").write_bytes(source.read_bytes())
    return made
