"""What a reader did or a machine lacks, in one sentence. Anything else that a probe raises is a bug."""

from collections.abc import Iterator
from contextlib import contextmanager


class ProbeError(ValueError):
    """One sentence for the reader, with what was given and what is allowed."""


@contextmanager
def for_the_reader() -> Iterator[None]:
    """Around what checks a reader's own choice, or reads a file: what it refuses is told to the reader."""
    try:
        yield
    except (ValueError, OSError) as error:
        raise ProbeError(str(error)) from error
