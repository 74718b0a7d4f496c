"""Peak bytes and milliseconds of one step, on a CPU by our own counters and on NVIDIA by theirs."""

import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median, quantiles
from typing import Any, Protocol

import psutil
import torch

from engine.memory_wall.attention import draw, step
from engine.memory_wall.live_bytes import LiveBytes
from engine.memory_wall.setting import Setting

MIN_REPEATS, MAX_REPEATS = 3, 25
TIMED_SECONDS = 1.0  # for all repeats together, as far as their least number allows
UNLIMITED = 2**62  # bytes
SLOW_SECONDS = 2.0  # a step that takes longer needs no second one to warm up

Step = Callable[[], object]


class Allocator(Protocol):
    """What is asked of ``torch.cuda``; a test hands in its own."""

    def set_per_process_memory_fraction(self, fraction: float, /) -> None: ...
    def reset_peak_memory_stats(self) -> None: ...
    def max_memory_allocated(self) -> int: ...
    def get_device_properties(self, device: int, /) -> Any: ...
    def synchronize(self) -> None: ...


@dataclass(frozen=True)
class Bytes:
    """What a first step took.

    peak_bytes: of live tensors; on CUDA of the allocator, where cuBLAS has its workspace.
    resident_bytes: growth of the process's largest resident memory; None where the system does not say.
    backend: the kernel of ``fused``.
    """

    peak_bytes: int
    resident_bytes: int | None
    backend: str | None


@dataclass(frozen=True)
class Timing:
    """Milliseconds of a step: the median of repeats, and their interquartile range."""

    step_ms: float
    spread_ms: float
    repeats: int


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """One n of one implementation on one device."""

    n: int
    implementation: str
    setting: Setting
    device: str

    def make(self) -> Step:
        """A step on tensors drawn now."""
        x, weights = draw(self.n, self.setting, self.device)
        return lambda: step(self.implementation, x, weights, self.setting)

    def small(self) -> "Measurement":
        """The same kernels on next to nothing."""
        few = replace(self.setting, d_model=8 * self.setting.n_head, batch=1)
        return replace(self, n=16, setting=few)


def measure_bytes(
    measurement: Measurement,
    allowed_bytes: int | None = None,
    *,
    beforehand: bool = True,
    allocator: Allocator | None = None,
) -> tuple[Step, Bytes]:
    """Run a first step. Returns it, to be timed, and what it took.

    allowed_bytes: the budget, on a CPU of live tensors, on CUDA of all that the process allocates there.
    beforehand: as of ``LiveBytes``.
    allocator: for CUDA, ``torch.cuda`` by default.
    Raises OutOfMemory: on a CPU before the allocation that would cross the budget; what the device raises.
    """
    on_cuda = measurement.device == "cuda"
    gpu: Allocator = allocator or torch.cuda
    if on_cuda:  # without a budget too: a driver may otherwise go on in the machine's memory, ever slower
        total = gpu.get_device_properties(0).total_memory
        gpu.set_per_process_memory_fraction(min(1.0, (allowed_bytes or total) / total))
    with LiveBytes(allowed_bytes and UNLIMITED, beforehand=beforehand):
        measurement.small().make()()  # what torch loads and keeps at its first step is not the layer's
    if on_cuda:
        gpu.synchronize()
        gpu.reset_peak_memory_stats()
    resident = Resident()
    with LiveBytes(None if on_cuda else allowed_bytes, beforehand=beforehand) as live:
        step = measurement.make()
        step()
    if on_cuda:
        gpu.synchronize()
        return step, Bytes(gpu.max_memory_allocated(), None, _backend(measurement, live))
    grown = resident.growth() if measurement.device == "cpu" else None
    return step, Bytes(live.peak_bytes, grown, _backend(measurement, live))


def _backend(measurement: Measurement, live: LiveBytes) -> str | None:
    """The kernel's name; "math" where scaled_dot_product_attention fell apart into products."""
    return (live.backend or "math") if measurement.implementation == "fused" else None


def measure_time(step: Step, device: str, stopwatch: "Stopwatch | None" = None) -> Timing:
    """Warm up, then time repeats: more of a fast step, at least ``MIN_REPEATS``."""
    stopwatch = stopwatch or (CudaStopwatch() if device == "cuda" else HostStopwatch(device))
    if stopwatch(step) < SLOW_SECONDS:
        stopwatch(step)
    seconds = [stopwatch(step)]
    while len(seconds) < MIN_REPEATS or (sum(seconds) < TIMED_SECONDS and len(seconds) < MAX_REPEATS):
        seconds.append(stopwatch(step))
    low, _, high = quantiles(seconds, n=4, method="inclusive")
    return Timing(median(seconds) * 1000, (high - low) * 1000, len(seconds))


Stopwatch = Callable[[Step], float]


class HostStopwatch:
    """``perf_counter`` around a step and all that it set going."""

    def __init__(self, device: str) -> None:
        self._wait = (lambda: None) if device == "cpu" else getattr(torch, device).synchronize

    def __call__(self, step: Step) -> float:
        self._wait()
        began = time.perf_counter()
        step()
        self._wait()
        return time.perf_counter() - began


class CudaStopwatch:
    """Two events on the device's own clock. cuda: ``torch.cuda``; a test hands in its own."""

    def __init__(self, cuda: Any = None) -> None:
        self._cuda = cuda or torch.cuda

    def __call__(self, step: Step) -> float:
        began, ended = (self._cuda.Event(enable_timing=True) for _ in range(2))
        self._cuda.synchronize()
        began.record()
        step()
        ended.record()
        self._cuda.synchronize()
        return float(began.elapsed_time(ended)) / 1000


class Resident:
    """Growth of this process's largest resident memory, from now on. Linux, where it can be set back."""

    def __init__(self) -> None:
        self._before: int | None = None
        with suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")  # the largest so far becomes what it is now
            self._before = psutil.Process(os.getpid()).memory_info().rss

    def growth(self) -> int | None:
        """In bytes; None where the system does not say."""
        if self._before is None:
            return None
        with suppress(OSError, ValueError, StopIteration):
            lines = Path("/proc/self/status").read_text().splitlines()
            peak = next(line for line in lines if line.startswith("VmHWM:"))
            return int(peak.split()[1]) * 1024 - self._before
        return None
