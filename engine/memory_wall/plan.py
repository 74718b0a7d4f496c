"""What to measure of the n x n wall, and the rows that come of it. Imports no torch."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from itertools import count, takewhile
from math import log2
from statistics import linear_regression
from typing import Any

from engine.memory_wall.setting import (
    DEVICES,
    FIRST_TOKENS,
    GB,
    IMPLEMENTATIONS,
    MAX_TOKENS,
    WORKSPACE_BYTES,
    Setting,
    check_implementation,
)
from engine.memory_wall.verdict import ENDED, State
from engine.system.errors import InvalidInput
from engine.system.numbers import check_whole

Task = tuple[int, str]  # n and the implementation

MIN_BUDGET_BYTES = 2**20 + WORKSPACE_BYTES
MAX_THREADS = 1024  # a plan may be read on another machine than it was measured on
SLOPE_ROWS = 4


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What to measure.

    tokens: the n, in any order; implementations: of ``IMPLEMENTATIONS``.
    budget_bytes: "my card has so much"; on a CPU, cuBLAS's workspace is set aside from it, as it would be on
    a card. None: what the device, or this machine less 15 %, can give.
    device: of ``DEVICES``; threads: all usable cores when None; timed: False for bytes only.
    address_space_bytes: a limit of the kernel on each worker, above what it takes when it has loaded.
    Raises InvalidInput: when one of them is out of range; the message gives got and allowed.
    """

    tokens: tuple[int, ...]
    implementations: tuple[str, ...] = IMPLEMENTATIONS
    setting: Setting = field(default_factory=Setting)
    budget_bytes: int | None = None
    device: str = "cpu"
    threads: int | None = None
    timed: bool = True
    address_space_bytes: int | None = None

    def __post_init__(self) -> None:
        for n in self.tokens:
            check_whole("n", n, 1, MAX_TOKENS)
        for name in self.implementations:
            check_implementation(name)
        if self.device not in DEVICES:
            raise InvalidInput(f"device is {self.device!r}; allowed: {', '.join(DEVICES)}.")
        if self.threads is not None:
            check_whole("threads", self.threads, 1, MAX_THREADS)
        if self.budget_bytes is not None and self.budget_bytes < MIN_BUDGET_BYTES:
            raise InvalidInput(
                f"the budget is {self.budget_bytes:,} bytes; allowed: at least {MIN_BUDGET_BYTES:,}."
            )

    @classmethod
    def from_dict(cls, written: Mapping[str, Any]) -> "Plan":
        """From ``asdict``, perhaps through JSON. Raises InvalidInput, TypeError: when it is no plan."""
        read = {**written, "setting": Setting(**written.get("setting", {}))}
        for name in {"tokens", "implementations"} & read.keys():
            read[name] = tuple(read[name])
        return cls(**read)

    @property
    def tasks(self) -> tuple[Task, ...]:
        """Every row that may come, smallest n first."""
        names = tuple(dict.fromkeys(self.implementations))
        return tuple((n, name) for n in sorted(set(self.tokens)) for name in names)

    @property
    def title(self) -> str:
        """What is measured, in a few words: "explicit, fused to 4,096 tokens, 8 GB"."""
        budget = "" if self.budget_bytes is None else f", {self.budget_bytes / GB:g} GB"
        whole = set(self.implementations) == set(IMPLEMENTATIONS)
        names = "all four" if whole else ", ".join(self.implementations)
        return f"{names} to {max(self.tokens, default=0):,} tokens{budget}"

    @property
    def workspace_bytes(self) -> int:
        """What the device's allocator holds beside tensors."""
        return WORKSPACE_BYTES if self.device == "cuda" else 0


@dataclass(frozen=True, kw_only=True)
class Row:
    """One n of one implementation.

    state: "running", then one of ``verdict.ENDED``; reason: a sentence with it.
    peak_bytes: measured; predicted_bytes: by fake tensors, whether it fitted or not; closed_form_bytes: of
    explicit forward only. On CUDA all three include cuBLAS's workspace. needed_bytes: alive at the allocation
    that was refused. resident_bytes: growth of the worker's largest resident memory. step_ms: median of
    repeats; spread_ms: their interquartile range; backend: the kernel that fused ran. runs_beside: trainings
    that were under way on this machine, which makes its times those of a shared device.
    """

    n: int
    implementation: str
    state: State
    peak_bytes: int | None = None
    predicted_bytes: int | None = None
    closed_form_bytes: int | None = None
    needed_bytes: int | None = None
    resident_bytes: int | None = None
    step_ms: float | None = None
    spread_ms: float | None = None
    repeats: int | None = None
    backend: str | None = None
    runs_beside: int = 0
    reason: str | None = None

    @property
    def ended(self) -> bool:
        return self.state in ENDED

    @property
    def measured(self) -> bool:
        """Whether it holds: measuring it again would say the same."""
        return self.state in ("done", "out of memory")


_FIELDS = frozenset(one.name for one in fields(Row))


def last_rows(records: Iterable[Any]) -> tuple[Row, ...]:
    """The last word on each n of each implementation, in the order of measuring.

    records: fields of rows, with others beside; what is no row is left out.
    """
    found: dict[Task, Row] = {}
    for record in records:
        with suppress(TypeError, AttributeError):
            row = Row(**{name: value for name, value in record.items() if name in _FIELDS})
            found[row.n, row.implementation] = row
    return tuple(found.values())


def shared_words(runs_beside: int) -> str:
    """What trainings beside a measurement do to it, in a sentence."""
    runs = "a training" if runs_beside == 1 else f"up to {runs_beside} trainings"
    return f"Times are of a shared device: {runs} ran beside. Bytes are what they are."


def doubling(to: int, start: int = FIRST_TOKENS) -> tuple[int, ...]:
    """128, 256, ... up to a number of tokens, and that number itself.

    Raises InvalidInput: when it is below the first or beyond ``MAX_TOKENS``.
    """
    check_whole("to", to, start, MAX_TOKENS)
    doubled = (start * 2**k for k in count())
    return (*takewhile(lambda n: n < to, doubled), to)


def ratios(rows: Sequence[Row]) -> list[tuple[float | None, float | None]]:
    """Of each row to the one before it of its implementation: time and bytes; None where there is none.

    Source: the columns "x" of the chapter's table.
    """
    before, nothing = dict[str, Row](), Row(n=0, implementation="", state="running")
    found = []
    for row in rows:
        last = before.get(row.implementation, nothing)
        before[row.implementation] = row
        found.append((_ratio(row.step_ms, last.step_ms), _ratio(row.peak_bytes, last.peak_bytes)))
    return found


def _ratio(value: float | None, before: float | None) -> float | None:
    return value / before if value and before else None


def slopes(rows: Sequence[Row]) -> dict[str, dict[str, float | None]]:
    """Exponents of time and bytes in n by implementation, over its last four rows that are done.

    The least-squares slope of log against log; None with fewer than two rows.
    Source: the chapter's "time n^1.91, memory n^1.87".
    """
    found = {}
    for name in dict.fromkeys(row.implementation for row in rows):
        done = [row for row in rows if row.implementation == name and row.state == "done"]
        done = sorted(done, key=lambda row: row.n)[-SLOPE_ROWS:]
        found[name] = {
            "time": slope([(row.n, row.step_ms) for row in done if row.step_ms]),
            "bytes": slope([(row.n, row.peak_bytes) for row in done if row.peak_bytes]),
        }
    return found


def slope(points: Sequence[tuple[float, float]]) -> float | None:
    """Of the straight line through log(points), by least squares; None with fewer than two."""
    if len({x for x, _ in points}) < 2:
        return None
    return linear_regression([log2(x) for x, _ in points], [log2(y) for _, y in points]).slope
