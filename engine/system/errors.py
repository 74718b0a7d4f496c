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
