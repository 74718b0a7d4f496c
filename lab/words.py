"""Values as prose: numbers with their units, a reader's text as it is."""

import math
import re
from collections.abc import Callable
from functools import partial

MINUS, NBSP = "−", "\u00a0"


_WORDS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


# Everything that Streamlit's Markdown could take for markup: LaTeX, emoji and colour directives included.
_MARKUP = re.compile(r"([\\`*_{}\[\]()<>#+\-.!|~$:^=&@/])")


# What it would make an arrow, a dash, a sign or a link of even so: taken apart by an invisible joiner.
_SIGNS = re.compile(r"(?<=-)(?=[->])|(?<=[<>~])(?=[-=])|(?<=:)(?=//)|(?<=@)|(?<=www)(?=\.)")


def plain(text: str) -> str:
    """Text of a reader's, escaped so that Markdown shows it character for character."""
    shown = text.replace("\r", "␍").replace("\n", "¶").replace("\t", "→")
    return re.sub(r" (?= )|^ | $", NBSP, _MARKUP.sub(r"\\\1", _SIGNS.sub("\u2060", shown)))


def visible(piece: str) -> str:
    """A token piece with its spaces and newlines to be seen: a space as ·, a newline as ¶."""
    return piece.replace(" ", "·").replace("\n", "¶").replace("\t", "→")


def count(number: int) -> str:
    """A small number as a word, any other with its thousands apart: "four", "1,240"."""
    return _WORDS[number] if 0 <= number < len(_WORDS) else f"{number:,}"


def quantity(value: float | None, decimals: int | None = None) -> str:
    """A measured number for people: "60.5", "1,024", "5.1e+12"; a dash for what cannot be printed."""
    if value is None or not math.isfinite(value):
        return "–"
    if abs(value) >= 1e6:
        return f"{value:.1e}".replace("-", MINUS)
    if decimals is None:
        decimals = 1 if abs(value) < 1000 else 0
    return f"{value:,.{decimals}f}".replace("-", MINUS)


def decimals(number: int) -> Callable[[float | None], str]:
    """A way to write numbers: with that many decimals."""
    return partial(quantity, decimals=number)


def signed(value: float, shown: Callable[[float | None], str] = quantity) -> str:
    """A difference, always with its sign, and a true minus."""
    return shown(value) if value < 0 else f"+{shown(value)}"


def duration(seconds: float) -> str:
    """Elapsed time: "48 s", "18 min 20 s", "2 h 05 min". Never negative: clocks are set back."""
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole}{NBSP}s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes}{NBSP}min {rest:02d}{NBSP}s"
    return f"{minutes // 60}{NBSP}h {minutes % 60:02d}{NBSP}min"


def about(seconds: float) -> str:
    """An estimate, no finer than it deserves: "about 40 s", "about 9 min", "about 2 h 10 min"."""
    if seconds < 55:
        return f"about {max(5, 5 * round(seconds / 5))}{NBSP}s"
    minutes = max(1, round(seconds / 60))
    if minutes < 60:
        return f"about {minutes}{NBSP}min"
    minutes = 10 * round(minutes / 10)
    return f"about {minutes // 60}{NBSP}h" + (f" {minutes % 60}{NBSP}min" if minutes % 60 else "")


def points(value: float | None) -> str:
    """Points of perplexity, with no more digits than the chapter gives: "18", "17.2"."""
    return quantity(value, 0 if value is not None and float(value).is_integer() else 1)
