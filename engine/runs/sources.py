"""What a run is asked to train on, as the task that is trained."""

import torch

from engine.data import corpus
from engine.data.languages import shelf
from engine.runs.spec import RunSpec
from engine.system.errors import InvalidInput, Unavailable
from engine.training.tasks import Task, TextTask, task_of_language


def task_of(spec: RunSpec, device: str = "cpu") -> Task:
    """What a run is asked to train on.

    Raises LabError: when its text or language is not here, changed since the run was asked for, or does not
        fit the model or the budget.
    """
    if shelf.is_language(spec.corpus):
        language = shelf.load(spec.corpus)
        _check_source("language", spec, language.sha256)
        for name, got, needed in (
            ("vocab_size", spec.config.vocab_size, len(language.words)),
            ("context_length", spec.budget.context_length, language.context_length),
        ):
            if got != needed:
                raise InvalidInput(f"{name} is {got}; allowed for {spec.corpus}: {needed}.")
        return task_of_language(language, spec.seed, device)
    text = corpus.load(spec.corpus, spec.config.vocab_size, spec.budget.context_length)
    _check_source("text", spec, text.sha256)
    return TextTask(
        torch.from_numpy(text.train_ids.astype("int64")),
        torch.from_numpy(text.held_out_ids.astype("int64")),
        spec.budget.context_length,
        spec.budget.also_at,
        device,
    )


def _check_source(kind: str, spec: RunSpec, sha256: str) -> None:
    if sha256 != spec.corpus_sha256:
        raise Unavailable(f"the {kind} {spec.corpus} changed since this run was asked for.")
