"""The reproducibility card of a run: all that is needed to do it again, for people and as data."""

import csv
import io
import json
import shlex
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from engine.chapter.experiments import BREAKING, EXPERIMENTS
from engine.data import corpus
from engine.data.languages import shelf
from engine.models.config import ModelConfig
from engine.runs.launch import OWN
from engine.runs.spec import RunSpec
from engine.runs.store import Entry, Run
from lab.runs.view import metric, model_name
from lab.words import duration, quantity

NOT_YET = "recorded when the run ends"
NEVER = "not recorded: it ended before it could be"


@dataclass(frozen=True)
class Command:
    """The command line that repeats a run, or None and why there is none."""

    line: str | None
    why_not: str = ""


@dataclass(frozen=True)
class Sheet:
    """What the panel of a selected run shows, whatever the run did.

    story: what happened and what to do next. lines: the card, as label and plain text. fields: of its whole
    configuration. goes_on: whether it can be resumed. as_json: the whole card.
    """

    story: str
    lines: Sequence[tuple[str, str]]
    fields: Sequence[tuple[str, object]]
    command: Command
    goes_on: bool
    as_json: Callable[[], str]


def command(run: Run) -> Command:
    """How to do the run again from a shell."""
    spec = run.spec
    if why := _why_not(spec):
        return Command(None, f"No command repeats it: {why}")
    words = ["python", "-m", "engine", "run", spec.experiment, "--budget", spec.budget_name]
    words += ["--seeds", str(spec.seed), "--variant", spec.variant]
    if spec.corpus != (EXPERIMENTS[spec.experiment].language or corpus.TINYSHAKESPEARE):
        words += ["--corpus", spec.corpus]
    return Command(shlex.join(words))


def _why_not(spec: RunSpec) -> str:
    """Why no command line trains it; empty where one does."""
    known = EXPERIMENTS.get(spec.experiment)
    if spec.start_run is not None:
        return f"it started with the weights of run #{spec.start_run}. Run again does."
    if spec.experiment == BREAKING.id:
        return "its warmup or learning rate was chosen by hand. Run again does."
    if known and spec.variant == OWN:
        return "the model is your own. Run again does."
    if not known or spec.variant not in known.variants:
        return "its experiment or variant is no longer part of the lab."
    config, changed = known.variant(spec.variant).config, ""
    if known.language:  # an edited one has words of its own, which are no part of the variant
        config = replace(config, vocab_size=spec.config.vocab_size)
    if config != spec.config:
        changed = f"the configuration of {spec.variant}"
    elif spec.budget_name not in known.budgets or known.budget(spec.budget_name, spec.variant) != spec.budget:
        changed = f"its {spec.budget_name} budget"
    return f"{changed} is not what it is in the lab today. Run again keeps it." if changed else ""


def changed_fields(run: Run) -> dict[str, Any]:
    """The fields of the configuration that differ from the root of all variants."""
    root = ModelConfig().to_dict()
    return {name: value for name, value in run.spec.config.to_dict().items() if value != root[name]}


def lines(run: Run, step: int, seconds: float | None) -> list[tuple[str, str]]:
    """The card as (label, text), both plain text. step, seconds: how far the run is, and trained."""
    spec = run.spec
    changed = ", ".join(f"{name} {_word(value)}" for name, value in changed_fields(run).items())
    budget, pace = spec.budget, "" if seconds is None else f" in {duration(seconds)}"
    card = [
        ("Seed", str(spec.seed)),
        ("Text", f"{corpus_title(spec.corpus)}, {cut(spec.corpus_sha256)}"),
        ("Configuration", changed or "all fields as in the root, no context"),
        (
            "Budget",
            f"{spec.budget_name}: {budget.steps:,} steps of {budget.batch_size} × {budget.context_length} "
            f"tokens, learning rate {budget.learning_rate:g}",
        ),
        ("Step", f"{step:,}{pace}"),
        *machine_lines(run),
    ]
    if spec.start_run is not None:
        card.insert(0, ("Weights", f"begins with those of run #{spec.start_run}, with a fresh optimiser"))
    if run.measured:
        card.insert(0, ("Measured", measured_text(run)))
    return card


def machine_lines(run: Entry) -> list[tuple[str, str]]:
    """On what and with what it was carried out, and how often it was taken up."""
    missing = NEVER if run.state in ("failed", "cancelled", "interrupted") else NOT_YET
    environment = run.environment
    versions = [f"{name} {environment[key]}" for name, key in _VERSIONS if key in environment]
    device = environment.get("device", missing)
    if "threads" in environment:
        threads = environment["threads"]
        device += f", {threads} thread{'' if threads == 1 else 's'}"
    found = [("Versions", ", ".join(versions) or missing), ("Device", device)]
    return found + ([("Attempts", str(run.attempt))] if run.attempt > 1 else [])


_VERSIONS = (("lab", "lab"), ("torch", "torch"), ("Python", "python"))


def as_json(run: Run, step: int, seconds: float | None) -> str:
    """The whole card as JSON, hashes and configuration in full."""
    spec = run.spec
    text = {"id": spec.corpus, "title": corpus_title(spec.corpus), "sha256": spec.corpus_sha256}
    return card_json(
        run,
        command(run),
        seconds,
        what={"variant": spec.variant, "model": model_name(run)},
        how={
            "seed": spec.seed,
            "start_from": spec.start_from,
            "text": text,
            "configuration": spec.config.to_dict(),
            "budget": {"name": spec.budget_name, **spec.budget.to_dict()},
        },
        step=step,
    )


def card_json(
    run: Entry,
    command: Command,
    seconds: float | None,
    what: dict[str, object],
    how: dict[str, object],
    **far: object,
) -> str:
    """A card as JSON, of whatever ran. what, how: it was; far: how far it came."""
    card = {
        "run": run.id,
        "experiment": run.spec.experiment,
        **what,
        "state": run.state,
        "reason": run.reason,
        "measured": run.measured,
        **how,
        "environment": run.environment,
        **far,
        "seconds": seconds,
        "attempts": run.attempt,
        "digest": run.digest,
        "command": command.line,
    }
    return json.dumps(card, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def metrics_csv(records: Sequence[dict[str, Any]]) -> str:
    """Every record of a run as CSV, a column a metric, in the order they first appear."""
    names = list(dict.fromkeys(name for record in records for name in record))
    out = io.StringIO()
    writer = csv.DictWriter(out, names, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    return out.getvalue()


def corpus_title(corpus_id: str) -> str:
    """A text's or language's title, or its id when it is no longer on this machine."""
    if shelf.is_language(corpus_id):
        with suppress(ValueError):
            return shelf.title(corpus_id)
    return dict(corpus.listing()).get(corpus_id, corpus_id)


def cut(digest: str) -> str:
    """A hash short enough to compare by eye: its two ends."""
    return digest if len(digest) <= 16 else f"{digest[:8]}…{digest[-4:]}"


def figure_name(name: str) -> str:
    """A metric for people: "held-out perplexity"."""
    return name.replace("validation", "held-out").replace("_", " ")


def measured_text(run: Entry) -> str:
    """Its figures, the one that its experiment compares first."""
    names = sorted(run.measured, key=lambda name: name != metric(run))
    return ", ".join(f"{figure_name(name)} {quantity(run.measured[name], 2)}" for name in names)


def _word(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:,}" if isinstance(value, int) else str(value)
