"""What ``python -m engine bench`` measures; a module a benchmark. This one imports no torch."""

import os
import sys

from engine.system.processes import MALLOC


def keep_freed_memory() -> None:
    """Start this process again with the allocator's settings that a trainer of this lab has.

    glibc reads them only when a process starts. Without them a step is measured that no run takes; with
    them ours and all that it is compared with gain alike. Linux only, once (the new process has them), and
    only where the process is ``python -m engine``: a test or a notebook that calls it is not replaced.
    """
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    is_command = spec is not None and spec.name == "engine.__main__"
    if sys.platform == "linux" and is_command and not MALLOC.keys() <= os.environ.keys():
        sys.stdout.flush()
        sys.stderr.flush()
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], {**MALLOC, **os.environ})


def say(line: str) -> None:
    """How a benchmark gets on, for who waits: stdout holds the document alone."""
    print(line, file=sys.stderr, flush=True)


def count(number: int, noun: str) -> str:
    """``1 layer``, ``12 layers``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def table(columns: dict[str, str], rows: list[dict[str, object]]) -> list[str]:
    """The lines of a table for people, numbers to the right.

    columns: title by the key of its value in a row; a value that is None is shown as a dash.
    """
    shown = [list(columns.values())]
    shown += [["-" if row[key] is None else _cell(row[key]) for key in columns] for row in rows]
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    first = rows[0] if rows else {}
    words = [isinstance(first.get(key), str) for key in columns]
    return [
        "  ".join(
            cell.ljust(width) if is_word else cell.rjust(width)
            for cell, width, is_word in zip(line, widths, words, strict=True)
        ).rstrip()
        for line in shown
    ]


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.2f}"
    return f"{value:,}" if isinstance(value, int) else str(value)
