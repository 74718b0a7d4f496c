"""The process of a run: ``python -m engine.runs.trainer [DIR ATTEMPT]``. Started by a supervisor only.

It writes records, checkpoints and its own view of the outcome into the run's folder, and ends when
asked to (``cancel.N``) or when its supervisor is gone (stdin closes). Without a folder it warms up and
waits for one on stdin.
"""

import json
import os
import platform
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock, Timeout

from engine.runs.spec import RunSpec, WallSpec, spec_of
from engine.system import files
from engine.system.errors import Unavailable
from engine.system.files import plain_os_error

if TYPE_CHECKING:
    from torch import Tensor

    from engine.training.loop import Training

SPEED_STEPS = 20  # fewer say little about how long a run takes
_OUT_OF_MEMORY = ("out of memory", "not enough memory", "can't allocate memory")


def run(directory: Path, attempt: int) -> dict[str, Any]:
    """Do what ``spec.json`` asks for. Returns the outcome that is then written down.

    Raises whatever stops it; ``main`` turns that into an outcome too.
    """
    from engine.runs import estimates

    spec = spec_of((directory / "spec.json").read_text())
    if isinstance(spec, WallSpec):
        from engine.runs import measurer

        return measurer.run(directory, attempt, spec)
    training = prepared(directory, attempt, spec)
    first, began = training.step, time.monotonic()
    with flushed(), (directory / "metrics.jsonl").open("a", encoding="utf-8", buffering=1) as out:
        for record in training.records():
            out.write(json.dumps(record, allow_nan=False) + "\n")
    result = training.result
    assert result is not None
    if result.state == "done" and training.step - first >= SPEED_STEPS:
        estimates.remember(spec, (time.monotonic() - began) / (training.step - first))
    state: str = result.state
    reason = result.reason
    if state == "stopped":
        state, reason = stopped(directory, attempt, f"at step {result.step:,}")
    return {
        "state": state,
        "reason": reason,
        "step": result.step,
        "seconds": result.seconds,
        "measured": result.measured,
    }


@contextmanager
def flushed() -> Iterator[None]:
    """Denormal numbers count as zero meanwhile: a CPU takes twice as long over a collapsed head's weights."""
    import torch

    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)


def stopped(directory: Path, attempt: int, where: str) -> tuple[str, str]:
    """The state of an attempt that was asked to end, and the reason with how far it had come."""
    if files.stop_requested(directory, attempt) == "stop":
        return "interrupted", f"the lab was closed, {where}"
    return "cancelled", f"by you, {where}"


def prepared(directory: Path, attempt: int, spec: RunSpec) -> "Training":
    """The training as it goes on: from its own checkpoint, another run's weights, or the seed's.

    Raises Unavailable: when the text or language changed, or what it starts from is no longer there.
    """
    from engine.runs.sources import task_of
    from engine.system import device
    from engine.training import checkpoint
    from engine.training.loop import Training

    here = device.probe()
    task = task_of(spec, here.kind)
    files.write_json(directory / "environment.json", environment(here.title))
    saved = directory / "checkpoint.safetensors"
    training = Training(
        config=spec.config,
        budget=spec.budget,
        seed=spec.seed,
        task=task,
        device=here.kind,
        save=lambda tensors, header: checkpoint.save(saved, tensors, header),
        keep=lambda tensors, header: checkpoint.save(kept_at(directory, header["step"]), tensors, header),
        stop=(directory / f"cancel.{attempt}").exists,
    )
    if saved.exists():
        training.restore(*checkpoint.load(saved))
    elif spec.start_from:
        checkpoint.restore_model(training.model, _weights_to_start_with(directory, spec))
    last = training.step if saved.exists() else -1
    _keep_records_up_to(directory, last)
    _keep_weights_up_to(directory, last)
    return training


def kept_at(directory: Path, step: int) -> Path:
    """Where the weights of a step lie, or will lie; the folder is made."""
    folder = directory / "weights"
    folder.mkdir(exist_ok=True)
    return folder / f"{step}.safetensors"


def _weights_to_start_with(directory: Path, spec: RunSpec) -> "dict[str, Tensor]":
    """The final weights of the run that this one forks: a folder beside its own."""
    from engine.training import checkpoint

    source = directory.parent / str(spec.start_run)
    try:
        forked = RunSpec.from_json((source / "spec.json").read_text())
        tensors, header = checkpoint.load(source / "checkpoint.safetensors")
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise Unavailable(
            f"run #{spec.start_run}, whose weights this one starts with, cannot be read: {error}."
        ) from error
    if forked.digest != spec.start_digest or header["step"] != forked.budget.steps:
        raise Unavailable(
            f"run #{spec.start_run} at step {header['step']:,} is not the finished run that this one forks."
        )
    return tensors


def writer_lock(directory: Path) -> FileLock:
    """The lock of the one trainer that may write into a run's folder; the system frees it at any death.

    When a supervisor is killed, its run may be resumed a moment before its trainer has noticed.
    """
    return FileLock(directory / "writer.lock", timeout=10, poll_interval=0.02)


def _keep_records_up_to(directory: Path, step: int) -> None:
    """Drop what was recorded after the checkpoint: it will be measured again."""
    files.write_records(directory, (record for record in files.records(directory) if record["step"] <= step))


def _keep_weights_up_to(directory: Path, step: int) -> None:
    """Drop the weights of later steps, and whatever a kill left half written."""
    kept = [path for number, path in files.kept_weights(directory).items() if number <= step]
    for path in (directory / "weights").glob("*"):
        if path not in kept:
            path.unlink()


def environment(device_title: str, threads: int | None = None) -> dict[str, Any]:
    """What a figure depends on beside its specification. threads: of torch; in this process when None."""
    from importlib.metadata import version

    if threads is None:
        import torch

        threads = torch.get_num_threads()
    return {
        "device": device_title,
        "threads": threads,
        "torch": version("torch"),
        "python": platform.python_version(),
        "platform": platform.platform(terse=True),
        "lab": lab_version(),
    }


def lab_version() -> str:
    """The version in pyproject.toml: the lab runs from its checkout, not from an installed package."""
    import tomllib

    from engine.system import paths

    return str(tomllib.loads((paths.ROOT / "pyproject.toml").read_text())["project"]["version"])


def _reason(error: BaseException) -> str:
    """One line for what stopped a run."""
    text = (str(error).strip().splitlines() or [type(error).__name__])[0]
    if isinstance(error, MemoryError) or any(words in text.lower() for words in _OUT_OF_MEMORY):
        return f"out of memory: {text}"
    if isinstance(error, OSError) and not isinstance(error, ConnectionError):
        return plain_os_error(error)
    return text if isinstance(error, ValueError) else f"{type(error).__name__}: {text}"


def warm_up() -> None:
    """Import all that a run needs, and compute nothing: what has computed has threads, and forks badly."""
    import torch._dynamo  # noqa: F401 - a first optimiser imports it: as long again as torch itself

    import engine.runs.estimates
    import engine.runs.sources
    import engine.training.checkpoint
    import engine.training.loop  # noqa: F401


def _await_run() -> list[str]:
    """Wait for a folder and an attempt, JSON on stdin; what is printed from then on goes to the run's log."""
    line = sys.stdin.readline()
    if not line:
        os._exit(1)  # the supervisor is gone
    arguments: list[str] = json.loads(line)
    with (Path(arguments[0]) / "log.txt").open("ab") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    return arguments


def _end_with_supervisor() -> None:
    def wait() -> None:
        # Not sys.stdin.buffer.read(): that holds a lock which the interpreter's exit would wait for.
        os.read(0, 1)
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def main(arguments: list[str]) -> int:
    """Run one attempt; the exit code is 0 when training ended in a way that has a label."""
    directory, attempt = Path(arguments[0]), int(arguments[1])
    _end_with_supervisor()
    alone = writer_lock(directory)  # kept in a name: a lock that is forgotten is let go
    try:
        alone.acquire()
    except Timeout:
        print("an earlier attempt of this run still writes here", file=sys.stderr)
        return 4
    try:
        outcome, trace = run(directory, attempt), ""
    except BaseException as error:
        outcome, trace = {"state": "failed", "reason": _reason(error)}, traceback.format_exc()
    # Before the log: on a full disk there is room for one of them only.
    files.write_json(directory / "outcome.json", {**outcome, "attempt": attempt})
    with suppress(OSError):
        print(trace, end="", file=sys.stderr, flush=True)
    return 1 if trace else 0


if __name__ == "__main__":
    if len(sys.argv) == 1:
        warm_up()
    code = main(sys.argv[1:] or _await_run())
    # All is written and closed. Taking torch apart in good order can last longer than a cancel may.
    os._exit(code)
