"""Trainers that go wrong in one way each: ``python -m tests.trainers MODE DIR ATTEMPT``.

``python -m tests.trainers MODE nursery`` is a nursery that forks such trainers.

Those that need no torch are whole programs; the others are the real trainer with one fault in it.
"""

import ctypes
import json
import os
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil

REAL = ("memory-error", "full-disk", "slow", "first-step")


def main(mode: str, directory: Path, attempt: int) -> int:
    """Go wrong as told. Every mode first leaves a sign that it has begun."""
    (directory / f"began.{attempt}").touch()
    match mode:
        case "exit-3":
            return 3
        case "segfault":
            ctypes.string_at(0)
        case "hog":
            hoard = []
            while True:
                hoard.append(b"x" * 10_000_000)
                time.sleep(0.01)
        case "stuck":  # deaf to every request
            while True:
                pass
        case "sleep":
            os.read(0, 1)  # until its supervisor is gone
        case "child":  # with a child of its own, which must not be left behind
            import subprocess

            child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"])
            (directory / "grandchild").write_text(str(child.pid))
            time.sleep(3600)
        case "counter":
            return _count(directory, attempt)
        case "quick":
            outcome = {"state": "done", "reason": "", "measured": {"accuracy": 1.0}, "attempt": attempt}
            (directory / "outcome.json").write_text(json.dumps(outcome))
        case _:
            return _real(mode, directory, attempt)
    return 0


def _count(directory: Path, attempt: int) -> int:
    """A whole trainer without the training: counts to 40, saves every 5, resumes, stops when asked.

    It also looks for a second trainer of the same run, which there must never be.
    """
    from engine.runs import trainer
    from engine.system import files

    trainer._end_with_supervisor()
    alone = trainer.writer_lock(directory)
    alone.acquire()
    owner = directory / "owner"
    with suppress(OSError, ValueError, psutil.NoSuchProcess):
        if psutil.Process(int(owner.read_text())).status() != psutil.STATUS_ZOMBIE:
            (directory / "violation").write_text(f"attempt {attempt} beside {owner.read_text()}")
    owner.write_text(str(os.getpid()))
    step = (files.read_json(directory / "checkpoint.json") or {"step": 0})["step"]
    trainer._keep_records_up_to(directory, step)
    state = "done"
    with (directory / "metrics.jsonl").open("a", buffering=1) as out:
        while step < 40:
            if word := files.stop_requested(directory, attempt):
                state = "interrupted" if word == "stop" else "cancelled"
                break
            time.sleep(0.01)
            step += 1
            out.write(json.dumps({"step": step}) + "\n")
            if step % 5 == 0:
                files.write_json(directory / "checkpoint.json", {"step": step})
    files.write_json(directory / "checkpoint.json", {"step": step})
    owner.unlink()
    files.write_json(
        directory / "outcome.json", {"state": state, "reason": f"{state} at {step}", "attempt": attempt}
    )
    return 0


def _real(mode: str, directory: Path, attempt: int) -> int:
    from engine.runs import trainer
    from engine.system import files
    from engine.training.loop import Training

    def out_of_memory(_):
        raise MemoryError("cannot allocate 17179869184 bytes")

    def ten_ms_slower(self, advance=Training.advance):
        time.sleep(0.01)
        return advance(self)

    def notes_its_first_step(self, advance=Training.advance):
        loss = advance(self)
        if self.step == 1:
            (directory / "first-step").write_text(str(time.monotonic()))
        return loss

    def no_space(path, data):
        with Path("/dev/full").open("wb") as full:  # the kernel's own "no space left on device"
            full.write(data)
            full.flush()

    if mode == "full-disk":
        write_bytes = files.write_bytes
        files.write_bytes = lambda path, data: (
            no_space(path, data) if path.suffix == ".safetensors" else write_bytes(path, data)
        )
    else:
        wrong = {"memory-error": out_of_memory, "first-step": notes_its_first_step, "slow": ten_ms_slower}
        Training.advance = wrong[mode]  # type: ignore[method-assign]
    return trainer.main([str(directory), str(attempt)])


if __name__ == "__main__":
    if sys.argv[2:] == ["nursery"]:
        from engine.runs import nursery, trainer

        warm_up = trainer.warm_up if sys.argv[1] in REAL else lambda: None
        nursery.serve(warm_up, lambda run: main(sys.argv[1], Path(run[0]), int(run[1])))
        sys.exit()
    code = main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
    os._exit(code)  # as the real one does
