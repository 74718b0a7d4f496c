"""Numbers that people and other programs write."""

from engine.system.errors import InvalidInput


def whole_number(text: str, low: int = 0, high: int = 2**63 - 1) -> int | None:
    """The number that a text gives in plain digits; None where it gives none of that range.

    (To ``str.isdigit`` "²" is a digit, and to ``int`` it is no number.)
    """
    if text.isascii() and text.isdigit() and len(text) <= 19 and low <= int(text) <= high:
        return int(text)
    return None


def check_whole(name: str, value: object, low: int, high: int | None = None) -> None:
    """Raises InvalidInput: when the value is no whole number from ``low`` to ``high``, or up."""
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= (high or value):
        upwards = "up" if high is None else f"to {high:,}"
        got = f"{value:,}" if type(value) is int else repr(value)
        raise InvalidInput(f"{name} is {got}; allowed: a whole number from {low:,} {upwards}.")
