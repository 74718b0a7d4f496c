"""What a reader did or a machine lacks, as one tree of errors, each with one sentence for the reader.

Whoever catches ``LabError`` shows its sentence. Any other error is a bug and is never caught as if it were
the reader's. (They are ValueErrors too, for those who use the engine as a library.)
"""


class LabError(ValueError):
    """Says what was wrong, what was given, what is allowed or what to do next."""


class InvalidInput(LabError):
    """Something given is not allowed: a setting, a name, a file, an argument."""


class Unavailable(LabError):
    """Something needed is not here: a text, weights, a run, memory, a device, the network."""


def first_line(error: BaseException) -> str:
    """An exception's type and the first line of its message, without a full stop."""
    words = (str(error).strip().splitlines() or [""])[0].rstrip(".:")
    return f"{type(error).__name__}: {words}" if words else type(error).__name__
