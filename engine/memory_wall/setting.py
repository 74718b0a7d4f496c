"""One attention layer's sizes, its bytes in closed form, and the chapter's table. Imports no torch.

n is the number of tokens; everywhere GB and MB of the chapter's kind: 2^30 and 2^20 bytes.
"""

from dataclasses import dataclass
from math import isqrt

from engine.system.errors import InvalidInput
from engine.system.numbers import check_whole

IMPLEMENTATIONS = ("explicit", "fused", "chunked", "projections")
DTYPE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "float64": 8}
DEVICES = ("cpu", "cuda", "mps")

# What cuBLAS keeps for itself on the chapter's card: 2 buffers of 4096 KiB and 8 of 16 KiB, torch's default
# below Hopper. The worker asks for the same on any card, so that bytes do not move.
WORKSPACE_BYTES = 8_519_680
WORKSPACE_CONFIG = ":4096:2:16:8"

FIRST_TOKENS = 128
MAX_TOKENS = 100_000_000
CARDS_GB = (8, 16, 24, 80, 141)
GB = 2**30
MB = 2**20


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What is measured, apart from n and the implementation.

    d_model: D; n_head: H, whose width is D / H; batch: B sequences; causal: each token sees only its past;
    backward: the gradients of x and of all weights as well; block: query rows at a time of ``chunked``.
    Raises InvalidInput: when a size is out of range; the message gives got and allowed.
    """

    d_model: int = 512
    n_head: int = 8
    batch: int = 1
    dtype: str = "float32"
    causal: bool = True
    backward: bool = False
    block: int = 256

    def __post_init__(self) -> None:
        for name, high in (("d_model", 65_536), ("n_head", 1024), ("batch", 1024), ("block", MAX_TOKENS)):
            check_whole(name, getattr(self, name), 1, high)
        if self.d_model % self.n_head:
            raise InvalidInput(f"n_head is {self.n_head}; allowed: a divisor of d_model, {self.d_model}.")
        if self.dtype not in DTYPE_BYTES:
            raise InvalidInput(f"dtype is {self.dtype!r}; allowed: {', '.join(DTYPE_BYTES)}.")


@dataclass(frozen=True)
class ChapterRow:
    """A printed row: milliseconds of an 8 GB laptop GPU, peak in MB; None where it ran out of memory."""

    n: int
    step_ms: float | None
    projections_ms: float | None
    matrix_mb: float
    peak_mb: float | None


CHAPTER = (
    ChapterRow(128, 2.246, 1.324, 0.5, 14.6),
    ChapterRow(256, 2.855, 2.113, 2.0, 19.2),
    ChapterRow(512, 5.761, 3.105, 8.0, 34.4),
    ChapterRow(1024, 16.414, 4.008, 32.0, 89.1),
    ChapterRow(2048, 51.573, 9.989, 128.0, 296.1),
    ChapterRow(4096, 225.432, 20.176, 512.0, 1100.1),
    ChapterRow(8192, 832.838, 40.106, 2048.0, 4300.1),
    ChapterRow(16384, None, None, 8192.0, None),
)
CHAPTER_EXPONENTS = {"time": 1.91, "bytes": 1.87}  # log-log slopes of its last four measured rows


def check_implementation(name: str) -> str:
    """The name itself.

    Raises InvalidInput: when there is no such implementation.
    """
    if name not in IMPLEMENTATIONS:
        raise InvalidInput(f"implementation is {name!r}; allowed: {', '.join(IMPLEMENTATIONS)}.")
    return name


def closed_form(n: int, setting: Setting | None = None, workspace_bytes: int = 0) -> int:
    """Peak bytes of ``explicit`` forward: 2 e B H n^2 + max(2 n^2 + 4 e B n D, n^2 + 6 e B n D) + 4 e D^2.

    e is the bytes of a number. Two (B, H, n, n) tensors at a time; with them either the mask, its inverse (a
    byte a cell) and x, q, k, v, or the mask, these four, the heads' output and its merged copy; four weight
    matrices. Without a causal mask there are no masks. For float32 and B = 1 this is
    8 H n^2 + max(2 n^2 + 16 n D, n^2 + 24 n D) + 16 D^2.

    setting: the chapter's by default; its ``backward`` is not in the formula.
    Source: fitted to the chapter's seven peaks, which it gives to the digit with ``WORKSPACE_BYTES``.
    """
    s = setting or Setting()
    e = DTYPE_BYTES[s.dtype]
    mask, token = (n * n if s.causal else 0), e * s.batch * n * s.d_model
    extra = max(2 * mask + 4 * token, mask + 6 * token)
    return 2 * e * s.batch * s.n_head * n * n + extra + 4 * e * s.d_model**2 + workspace_bytes


def at_most(budget_bytes: int, implementation: str, setting: Setting) -> int:
    """An n that the layer cannot exceed within a budget, seen without running anything; 0 when none fits.

    ``explicit`` holds two score tensors at a time; any of them x and what it becomes.
    """
    e = DTYPE_BYTES[setting.dtype]
    left = budget_bytes - 4 * e * setting.d_model**2
    if left <= 0:
        return 0
    n = left // (2 * e * setting.batch * setting.d_model)
    if implementation == "explicit":
        n = min(n, isqrt(left // (2 * e * setting.batch * setting.n_head)))
    return n


def largest_tensor_bytes(n: int, implementation: str, setting: Setting) -> int:
    """Of the scores that it stores at once, or of x."""
    rows = {"explicit": n, "chunked": min(n, setting.block)}.get(implementation, 0)
    widest = max(setting.d_model, rows * setting.n_head)
    return DTYPE_BYTES[setting.dtype] * setting.batch * n * widest
