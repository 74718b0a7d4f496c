"""Bytes of any n without allocating them.

The layer's own code runs on fake tensors, which have sizes and no data, under the counter that also measures.
It is a probe (``python -m engine probe memory-wall``), so that neither the app nor the process that times
anything loads what this needs.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache

from torch._subclasses.fake_tensor import FakeTensorMode

from engine.memory_wall.attention import draw, step
from engine.memory_wall.live_bytes import LiveBytes
from engine.memory_wall.plan import Task
from engine.memory_wall.predictions import Longest, Predicted, Predictions
from engine.memory_wall.setting import (
    GB,
    MAX_TOKENS,
    WORKSPACE_BYTES,
    Setting,
    at_most,
    check_implementation,
    largest_tensor_bytes,
)
from engine.system.errors import InvalidInput
from engine.system.numbers import check_whole

BLOCKS = 3  # of ``chunked`` the last stand for all: what is left over, and two whole ones on the way back
_CHAPTER = Setting()


class TooLarge(InvalidInput):
    """More bytes than 64 bits count."""


@lru_cache(maxsize=4096)
def predicted_bytes(n: int, implementation: str, setting: Setting = _CHAPTER, device: str = "cpu") -> int:
    """Peak live tensor bytes, the workspace of cuBLAS not included; about 15 ms, whatever n is.

    device: whose kernel ``fused`` is predicted for. For one that is not there torch assumes the one that
    stores the scores; "cpu" stands for any that has a kernel of its own.
    Raises InvalidInput: when n is out of range or there is no such implementation; TooLarge: when a tensor
        would have more bytes than 64 bits count.
    """
    check_whole("n", n, 1, MAX_TOKENS)
    check_implementation(implementation)
    if largest_tensor_bytes(n, implementation, setting) >= 2**63:
        raise TooLarge(f"{implementation} at n = {n:,} has more bytes than 64 bits count.")
    with FakeTensorMode(), LiveBytes() as live:
        x, weights = draw(n, setting, device)
        step(implementation, x, weights, setting, BLOCKS)
    peak: int = live.peak_bytes
    return peak


def longest(
    budget_bytes: int,
    implementation: str,
    setting: Setting = _CHAPTER,
    workspace_bytes: int = WORKSPACE_BYTES,
    device: str = "cpu",
) -> int:
    """The largest n whose predicted bytes fit a budget together with the workspace; 0: none.

    At most ``MAX_TOKENS``.

    Raises InvalidInput: when the budget is negative or there is no such implementation.
    """
    check_implementation(implementation)
    if budget_bytes < 0:
        raise InvalidInput(f"the budget is {budget_bytes:,} bytes; allowed: 0 or more.")
    room = budget_bytes - workspace_bytes

    def over(n: int) -> float:
        try:
            return predicted_bytes(n, implementation, setting, device) - room
        except TooLarge:
            return float("inf")

    return largest(over, min(MAX_TOKENS, at_most(room, implementation, setting)))


def largest(over: Callable[[int], float], high: int) -> int:
    """The largest n of 1 ... high with over(n) <= 0, where over grows with n; 0 when there is none.

    Every other step halves; the others look where a straight line between the ends is zero, since bytes are
    straight in n, or nearly so where the ends are close.
    """
    if high < 1 or (below := over(1)) > 0:
        return 0
    if (above := over(high)) <= 0:
        return high
    low, halve = 1, above == float("inf")
    while high - low > 1:
        n = (low + high) // 2 if halve else low + int((high - low) * (below / (below - above)))
        n = min(max(n, low + 1), high - 1)
        value = over(n)
        if value <= 0:
            low, below = n, value
        else:
            high, above = n, value
        halve = not halve or above == float("inf")
    return low


def predictions(
    setting: Setting = _CHAPTER,
    tasks: Sequence[Task] = (),
    device: str = "cpu",
    cards_gb: Sequence[float] = (),
    implementations: Sequence[str] = (),
) -> Predictions:
    """Bytes of each task, and the longest n of these implementations on cards of so many GB (2^30 bytes).

    About 15 ms a task, and up to a second a card.
    Raises InvalidInput, TooLarge: as ``predicted_bytes`` and ``longest``.
    """
    return Predictions(
        tuple(Predicted(n, name, predicted_bytes(n, name, setting, device)) for n, name in tasks),
        tuple(
            Longest(card, name, longest(int(card * GB), name, setting, device=device))
            for card in cards_gb
            for name in implementations
        ),
    )
