"""Numbers that people and other programs write."""

from engine.system.errors import InvalidInput


def whole_number(text: str, low: int = 0, high: int = 2**63 - 1) -> int | None:
    """The number that a text gives in plain digits; None where it gives none of that range.

    (To ``str.isdigit`` "²" is a digit, and to ``int`` it is no number.)
    """
    if text.isascii() and text.isdigit() and len(text) <= 19 and low <= int(text) <= high:
        return int(text)
    return None


def check_range(name: str, value: int, low: int, high: int) -> None:
    """Raises InvalidInput: when a number is out of range; the message gives got and allowed."""
    if not low <= value <= high:
        raise InvalidInput(f"{name} is {value:,}; allowed: a whole number from {low:,} to {high:,}.")
