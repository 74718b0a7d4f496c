"""Settings of the page of the n x n wall, and how it writes its numbers."""

import math
from dataclasses import dataclass

from engine.memory_wall.plan import Plan, doubling
from engine.memory_wall.setting import (
    CARDS_GB,
    DTYPE_BYTES,
    FIRST_TOKENS,
    GB,
    IMPLEMENTATIONS,
    MAX_TOKENS,
    MB,
    WORKSPACE_BYTES,
    Setting,
    check_implementation,
)
from engine.system import device
from engine.system.errors import InvalidInput, Unavailable
from engine.system.numbers import whole_number
from lab.bench import Question
from lab.sections.wall.rows import Measurement
from lab.settings import Settings, one_of, whole
from lab.words import quantity

LONGEST = 131_072
TOKENS = (1024, 4096, 16_384)
BUDGETS = ("none", "1", "4", "8", "16")  # GB
HEADS = (1, 8, 16)
WIDTHS = (256, 512, 1024)
MASKS = {"causal": "causal", "none": "none"}
PASSES = {"forward": "forward", "backward": "and back"}
FIRST_GUESSES = {**{str(n): f"{n:,}" for n in (2048, 4096, 8192, 16_384, 32_768)}, "later": "a longer one"}
TIME_GUESSES = {"2": "twice as much", "4": "four times", "8": "eight times"}
QUESTIONS = (
    Question("first", "Before you measure: which row is the first that 8 GB cannot hold?", FIRST_GUESSES),
    Question("time", "And when a long text doubles, how much time does it take?", TIME_GUESSES),
)


@dataclass(frozen=True)
class LayerPlan:
    """What the reader chose. plan: None where it cannot be measured, and ``refusal`` says why.

    layer: the sizes; the chapter's where the reader's cannot be.
    """

    layer: Setting
    plan: Plan | None
    refusal: str = ""

    @property
    def is_the_chapters(self) -> bool:
        """Whether the layer is the one whose bytes the chapter prints."""
        return self.layer == Setting()

    @property
    def tokens(self) -> tuple[int, ...]:
        """The n to be measured, or the usual ones."""
        return self.plan.tokens if self.plan else doubling(TOKENS[1])

    @property
    def implementations(self) -> tuple[str, ...]:
        """Those to be measured, or all."""
        return self.plan.implementations if self.plan else IMPLEMENTATIONS


class Controls:
    """What the reader chooses, each a setting. choice: what they come to."""

    def __init__(self, settings: Settings) -> None:
        heads, width = whole("heads", 1, 1024), whole("width", 1, 16_384)
        tokens, thousands = whole("to", FIRST_TOKENS, LONGEST), "{:,}".format
        self.budget = settings.choice("budget", "Pretend my card has, GB", BUDGETS, "8", parse=parse_budget)
        self.heads = settings.choice("heads", "Heads", HEADS, 8, parse=heads)
        self.width = settings.choice("width", "Width", WIDTHS, 512, shown=thousands, parse=width)
        self.mask = settings.choice("mask", "Mask", MASKS, "causal")
        self.passes = settings.choice("pass", "Pass", PASSES, "forward")
        self.dtype = settings.choice("dtype", "Numbers", tuple(DTYPE_BYTES), "float32", widget="list")
        self.ways = settings.value("ways", parse_ways, list(IMPLEMENTATIONS), ",".join)
        self.to = settings.choice("to", "Up to", TOKENS, 4096, shown=thousands, parse=tokens)
        self.of = settings.value("of", one_of("of", IMPLEMENTATIONS), "explicit")
        self.card = settings.choice("card", "Card", CARDS_GB, CARDS_GB[0], shown="{} GB".format)
        self.mine = settings.whole("mine", "Longest for explicit, tokens", 1, MAX_TOKENS, None)
        self.choice = self._choice()

    def _choice(self) -> LayerPlan:
        layer, budget = Setting(), self.budget.value
        try:
            layer = Setting(
                d_model=self.width.value,
                n_head=self.heads.value,
                dtype=self.dtype.value,
                causal=self.mask.value == "causal",
                backward=self.passes.value == "backward",
            )
            if not self.ways.value:
                raise InvalidInput("No implementation is chosen; allowed: one or more.")
            plan = Plan(
                tokens=doubling(self.to.value),
                implementations=tuple(name for name in IMPLEMENTATIONS if name in self.ways.value),
                setting=layer,
                budget_bytes=None if budget == "none" else int(budget) * GB,
                device=device.describe().kind,
            )
        except InvalidInput as error:  # in the page's own words
            why = str(error).replace("n_head is", "Heads are").replace("d_model,", "the width,")
            return LayerPlan(layer, None, why)
        except Unavailable as error:
            return LayerPlan(layer, None, f"torch does not start: {error}")
        return LayerPlan(layer, plan)


def parse_budget(text: str) -> str:
    """ "none", or whole GB."""
    if text == "none":
        return text
    if (size := whole_number(text, 1, 1024)) is None:
        raise InvalidInput(f"budget is {text!r}; allowed: none, or whole GB from 1 to 1,024.")
    return str(size)


def parse_ways(text: str) -> list[str]:
    """Implementations with commas between them, each once; none is allowed, and refused later."""
    return list(dict.fromkeys(check_implementation(name) for name in text.split(",") if name))


def needed_bytes(predicted: int, plan: Plan | None) -> int:
    """What a row would have needed; of a budget the workspace of cuBLAS is a part, whatever the device."""
    return with_workspace(predicted, plan) if plan and plan.budget_bytes else predicted


def with_workspace(size: int, plan: Plan) -> int:
    """Peak bytes as cuBLAS's workspace on the chapter's card would make them."""
    return size + WORKSPACE_BYTES - plan.workspace_bytes


def whole_mb(size: float) -> str:
    """Bytes as whole MB of 2^20: "17,036"."""
    return f"{size / MB:,.0f}"


def milliseconds(value: float | None) -> str:
    """A time in ms, with three digits or so."""
    return quantity(value, 2 if (value or 0) < 10 else 1 if (value or 0) < 1000 else 0)


def layer_words(setting: Setting) -> str:
    """A layer's sizes in words."""
    way = "forward and back" if setting.backward else "forward"
    mask = "causal" if setting.causal else "without a mask"
    heads = f"{setting.n_head} head{'' if setting.n_head == 1 else 's'}"
    return f"width {setting.d_model:,}, {heads}, {setting.dtype}, {mask}, {way}"


def decades(low: float, high: float) -> tuple[float, ...]:
    """The powers of ten in a range."""
    first, last = math.ceil(math.log10(low)), math.floor(math.log10(high))
    return tuple(float(10**exponent) for exponent in range(first, last + 1))


def csv_rows(found: Measurement) -> list[tuple[object, ...]]:
    """Every row with all that was measured; the first one names the columns."""
    names = (
        "implementation", "n", "state", "step_ms", "spread_ms", "repeats", "peak_bytes", "predicted_bytes",
        "closed_form_bytes", "needed_bytes", "resident_bytes", "backend", "reason",
    )  # fmt: skip
    return [names, *(tuple(getattr(row, name) for name in names) for row in found.rows)]
