"""A run's folder is the wire protocol between its processes: one writer a file, nothing pickled.

spec.json                 dispatcher   what to do (``RunSpec``)
claim.N                   supervisor   attempt N is taken; made with O_EXCL
alive.lock                supervisor   an OS lock, held as long as it lives
pid.N.json                supervisor   its pid and the trainer's; the mtime is a heartbeat
cancel.N                  anyone       "cancel" or "stop": finish attempt N at the next step
metrics.jsonl             trainer      one record a line
checkpoint.safetensors    trainer      weights, optimiser, generators; the step in its header
weights/STEP.safetensors  trainer      weights alone, at the steps that the budget keeps
outcome.json              trainer      how the attempt ended, as the trainer saw it
exit.N.json               supervisor   how the trainer's process ended
log.txt                   trainer      whatever it printed
reserve                   supervisor   given up to record the outcome on a full disk
"""

import errno
import json
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from filelock import FileLock, Timeout

RESERVE_BYTES = 64 * 1024

StopWord = Literal["cancel", "stop"]


def write_json(path: Path, value: Any) -> None:
    """Replace a file in one step: readers see the old text or the new, never half of it.

    On a full disk the run's reserve is given up for it.
    Raises OSError: when it cannot be written even so.
    """
    text = json.dumps(value, allow_nan=False).encode()
    try:
        write_bytes(path, text)
    except OSError as error:
        if not disk_is_full(error):
            raise
        (path.parent / "reserve").unlink(missing_ok=True)
        write_bytes(path, text)


def write_bytes(path: Path, data: bytes) -> None:
    """Write, fsync, replace. The temporary file never outlives a failure.

    Raises OSError: as the system reports it.
    """
    temporary = path.with_name(path.name + ".tmp")
    try:
        with temporary.open("wb") as out:
            out.write(data)
            out.flush()
            os.fsync(out.fileno())
        temporary.replace(path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


def read_json(path: Path) -> dict[str, Any] | None:
    """The object in a file, or None when there is no file or no whole object in it."""
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None


def request_stop(directory: Path, attempt: int, word: StopWord) -> None:
    """Ask the trainer of an attempt to save and end: "cancel" for good, "stop" to go on later."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / f"cancel.{attempt}").write_text(word)


def stop_requested(directory: Path, attempt: int) -> StopWord | None:
    """What was asked of an attempt, if anything."""
    try:
        word = (directory / f"cancel.{attempt}").read_bytes()
    except OSError:
        return None
    return "stop" if word == b"stop" else "cancel"


def records(directory: Path, holding: bytes = b"") -> list[dict[str, Any]]:
    """Every whole record of a run; a line that is still being written is left for the next call.

    holding: only of lines that hold this: of most figures that is one in ten, and the others are not parsed.
    """
    try:
        lines = (directory / "metrics.jsonl").read_bytes().split(b"\n")
    except OSError:
        return []
    found = []
    for line in lines[:-1]:
        if holding in line:
            with suppress(ValueError):
                found.append(json.loads(line))
    return found


def kept_weights(directory: Path) -> dict[int, Path]:
    """The weights kept over a run's steps, by step, ascending."""
    found = {int(path.stem): path for path in (directory / "weights").glob("*.safetensors")}
    return dict(sorted(found.items()))


def last_record(directory: Path) -> dict[str, Any]:
    """The newest whole record, or an empty one. Reads the end of the file only."""
    try:
        with (directory / "metrics.jsonl").open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - 4096))
            lines = file.read().split(b"\n")
    except OSError:
        return {}
    for line in reversed(lines[:-1]):
        with suppress(ValueError):
            value = json.loads(line)
            if isinstance(value, dict):
                return value
    return {}


def write_records(directory: Path, kept: Iterable[dict[str, Any]]) -> None:
    """Replace a run's records, as an attempt begins that measures some of them again."""
    write_bytes(directory / "metrics.jsonl", "".join(json.dumps(record) + "\n" for record in kept).encode())


def is_locked(path: Path) -> bool:
    """Whether a process holds this lock now."""
    if not path.exists():
        return False
    try:
        with FileLock(path, timeout=0):
            return False
    except Timeout:
        return True
    except OSError:
        return False


def disk_is_full(error: OSError) -> bool:
    """Whether a file could not be written for want of space, or of quota, by the names of any system."""
    by_windows = getattr(error, "winerror", None) in (39, 112)  # ERROR_HANDLE_DISK_FULL, ERROR_DISK_FULL
    return by_windows or error.errno in (errno.ENOSPC, errno.EDQUOT)


def plain_os_error(error: OSError) -> str:
    """One clear line for an error of the file system."""
    what = "disk full" if disk_is_full(error) else "file error"
    where = f" ({Path(os.fsdecode(error.filename)).name})" if error.filename else ""
    return f"{what}: {error.strerror or error}{where}"
