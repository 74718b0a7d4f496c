"""The n x n wall: ``python -m engine bench memory``. Imports no torch.

One attention layer, forward without gradients unless asked otherwise, in four implementations, n doubling to
out of memory or a cap; each n of each in its own process (``engine/memory_wall``). It is a run of the store
like any other: it waits its turn, and none starts beside it. Bytes do not depend on the machine. Milliseconds
do, and on a CPU they include the system's handing out of fresh pages, which an allocator on a card does not
pay for; of different machines only ratios can be compared.
"""

from collections.abc import Sequence
from dataclasses import asdict
from datetime import date
from functools import lru_cache
from typing import Any

from engine.benchmarks import count, say, table
from engine.memory_wall.plan import Plan, Row, doubling, last_rows, ratios, shared_words, slope, slopes
from engine.memory_wall.setting import (
    CARDS_GB,
    CHAPTER,
    CHAPTER_EXPONENTS,
    GB,
    IMPLEMENTATIONS,
    MB,
    WORKSPACE_BYTES,
    Setting,
    check_implementation,
)
from engine.probes import client, registry
from engine.runs.spec import WallSpec
from engine.runs.store import Entry, Store
from engine.runs.wait import shell_user, wait
from engine.system import device, files, paths
from engine.system.cores import usable_cores
from engine.system.errors import InvalidInput, Unavailable
from engine.system.numbers import check_whole

QUICK_TOKENS = 4096
CHECK_TOKENS, CHECK_GB = 16_384, 8
EXACT, NEAR = 0.001, 0.01  # of tracked against the closed form; of measured against predicted


def parse_implementations(written: Sequence[str] | None) -> tuple[str, ...]:
    """Names from options that may each hold several, with commas between them; all when none is given.

    Raises InvalidInput: when one is no implementation.
    """
    if not written:
        return IMPLEMENTATIONS
    names = [name.strip() for part in written for name in part.split(",")]
    return tuple(dict.fromkeys(check_implementation(name) for name in names))


def parse_budget(gb: float | None) -> int | None:
    """Bytes of so many GB (2^30 bytes).

    Raises InvalidInput: when it is no number above 0.
    """
    if gb is None:
        return None
    if not 0 < gb < 2**20:
        raise InvalidInput(f"the budget is {gb} GB; allowed: above 0 and under {2**20:,}.")
    return int(gb * GB)


def bench(
    *,
    setting: Setting,
    to: int = QUICK_TOKENS,
    implementations: Sequence[str] = IMPLEMENTATIONS,
    budget_gb: float | None = None,
    kind: str | None = None,
    threads: int | None = None,
    gpu_check: bool = False,
) -> dict[str, Any]:
    """Measure. Returns what ``bench memory --json`` prints.

    kind: "cpu", "cuda" or "mps"; what this machine has when None.
    gpu_check: instead of all that, hold an NVIDIA card against the chapter, with "checks" in the document.
    Raises InvalidInput: when an option is out of range; Unavailable: when torch does not work here, or the
        run was cancelled.
    """
    if gpu_check:
        document = bench(setting=Setting(), to=CHECK_TOKENS, budget_gb=CHECK_GB, kind="cuda")
        return {**document, "checks": checks(document)}
    here = device.describe()
    if threads is not None:
        check_whole("threads", threads, 1, usable_cores())
    plan = Plan(
        tokens=doubling(to),
        implementations=tuple(implementations),
        setting=setting,
        budget_bytes=parse_budget(budget_gb),
        device=kind or here.kind,
        threads=threads,
    )
    if plan.device not in ("cpu", here.kind):
        allowed = " or ".join(dict.fromkeys(("cpu", here.kind)))
        raise InvalidInput(f"device is {plan.device!r}; allowed here: {allowed}.")
    rows = measure(plan)
    cards = CARDS_GB if budget_gb is None else tuple(sorted({*CARDS_GB, budget_gb}))
    longest = predicted_longest(setting, cards, implementations)
    return {
        "bench": "memory",
        "device": here.title if plan.device == here.kind else device.cpu_title(),
        "torch": here.torch,
        "date": date.today().isoformat(),
        "threads": plan.threads or usable_cores(),
        "setting": asdict(setting),
        "budget_bytes": plan.budget_bytes,
        "workspace_bytes": plan.workspace_bytes,
        "rows": documented(rows),
        "slopes": slopes(rows),
        "longest": longest,
    }


def predicted_longest(
    setting: Setting, cards_gb: Sequence[float], implementations: Sequence[str]
) -> list[dict[str, Any]]:
    """The longest n that fits each card: card_gb as it was given, implementation, n."""
    found = client.ask(
        registry.MEMORY_WALL, setting=setting, cards_gb=cards_gb, implementations=implementations
    ).value
    given = {float(card): card for card in cards_gb}
    return [{**asdict(row), "card_gb": given[row.card_gb]} for row in found.longest]


def measure(plan: Plan) -> list[Row]:
    """The rows of a plan, as a run of the store; how it stands goes to stderr.

    Raises Unavailable: when it does not come to its end; the message is the run's reason.
    """
    store, printed = Store(), set[str]()

    def rows_of(run: Entry) -> tuple[Row, ...]:
        return last_rows(files.records(store.directory(run.id)))

    def progress(runs: Sequence[Entry]) -> None:
        for run in runs:
            lines = [f"running, {row.implementation}, {count(row.n, 'token')}" for row in rows_of(run)]
            if run.state == "queued" and (before := store.queue_position(run.id)):
                lines = [f"queued, {count(before, 'run')} before it"]
            for line in lines:
                if line not in printed:
                    printed.add(line)
                    say(line)

    (run,) = wait(store, [store.submit([WallSpec(plan)], user=shell_user())], progress)
    if run.state != "done":
        raise Unavailable(
            run.reason if run.state == "failed" else f"run #{run.id} was {run.state}: {run.reason}."
        )
    return [row for row in rows_of(run) if row.ended]


@lru_cache(maxsize=1)  # a page asks at every tick
def shipped() -> dict[str, Any] | None:
    """What the shipped code measured of the chapter's layer at 8 GB: such a document. None: nothing yet."""
    return files.read_json(paths.REFERENCE / "bench-memory.json")


def explicit_exponents(document: dict[str, Any]) -> tuple[float | None, float | None, float | None]:
    """Slopes of explicit's last four rows: time, bytes, bytes with the workspace of the chapter's card."""
    rows = [r for r in document["rows"] if r["implementation"] == "explicit" and r["state"] == "done"][-4:]
    loaded = WORKSPACE_BYTES - document["workspace_bytes"]
    return (
        slope([(row["n"], row["step_ms"]) for row in rows]),
        slope([(row["n"], row["peak_bytes"]) for row in rows]),
        slope([(row["n"], row["peak_bytes"] + loaded) for row in rows]),
    )


def failures(document: dict[str, Any]) -> list[str]:
    """A sentence for each row that failed (out of memory is a result) and each check that does not hold."""
    rows = (row for row in document["rows"] if row["state"] == "failed")
    unmet = (check for check in document.get("checks", ()) if not check["holds"])
    return [
        *map(_reason, rows),
        *(f"does not hold: {check['claim']}; found {check['found']}" for check in unmet),
    ]


def documented(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Rows as plain JSON values, each with its ratios to the one before of its implementation."""
    return [
        {**asdict(row), "time_ratio": time, "bytes_ratio": size}
        for row, (time, size) in zip(rows, ratios(rows), strict=True)
    ]


def text(document: dict[str, Any]) -> str:
    """``bench`` for people."""
    setting = Setting(**document["setting"])
    where = f"{document['device']}, {count(document['threads'], 'thread')}, torch {document['torch']}"
    columns = {
        "implementation": "implementation",
        "n": "tokens",
        "state": "state",
        "peak_mb": "peak MB",
        "predicted_mb": "predicted MB",
        "closed_form_mb": "closed form MB",
        "bytes_ratio": "MB x",
        "step_ms": "step ms",
        "spread_ms": "spread ms",
        "time_ratio": "ms x",
        "backend": "backend",
    }
    names = dict.fromkeys(row["implementation"] for row in document["rows"])
    shown = [
        {**row, **{f"{key}_mb": _mb(row[f"{key}_bytes"]) for key in ("peak", "predicted", "closed_form")}}
        for name in names
        for row in document["rows"]
        if row["implementation"] == name
    ]
    lines = [
        f"memory wall, {described(setting)}, {where}, {document['date']}",
        *table(columns, shown),
        *(_reason(row) for row in shown if row["state"] == "out of memory"),
        *(_slope_line(name, found) for name, found in document["slopes"].items()),
        "the longest n that fits, as predicted:",
        *_longest_table(document["longest"]),
        *([shared_words(beside)] if (beside := max(row["runs_beside"] for row in shown)) else []),
        *(f"holds: {check['claim']}" for check in document.get("checks", ()) if check["holds"]),
        "MB and GB are 2^20 and 2^30 bytes. Bytes hold on any machine; of times only ratios do.",
    ]
    return "\n".join(lines)


def _longest_table(longest: Sequence[dict[str, Any]]) -> list[str]:
    names = dict.fromkeys(row["implementation"] for row in longest)
    cards = dict.fromkeys(row["card_gb"] for row in longest)
    found = {(row["card_gb"], row["implementation"]): row["n"] for row in longest}
    rows = [{"card": f"{card:g} GB", **{name: found[card, name] for name in names}} for card in cards]
    return table({"card": "card", **{name: name for name in names}}, rows)


def described(setting: Setting) -> str:
    """A layer's sizes in words."""
    way = "forward and backward" if setting.backward else "forward"
    return (
        f"d_model {setting.d_model}, {count(setting.n_head, 'head')}, batch {setting.batch}, "
        f"{setting.dtype}, {'causal' if setting.causal else 'not causal'}, {way}"
    )


def _reason(row: dict[str, Any]) -> str:
    return f"{row['implementation']}, {row['n']:,}: {row['reason']}"


def _slope_line(name: str, found: dict[str, float | None]) -> str:
    said = [f"{what} n^{value:.2f}" for what, value in found.items() if value is not None]
    return f"{name}, over its last four rows: {', '.join(said) or 'too few rows'}"


def _mb(size: int | None) -> float | None:
    return None if size is None else size / MB


def checks(document: dict[str, Any]) -> list[dict[str, Any]]:
    """What must hold of rows to 16,384 at 8 GB on any device: claim, whether it holds, and what was found."""
    rows = [row for row in document["rows"] if row["state"] == "done"]
    printed = {line.n: line.peak_mb for line in CHAPTER if line.peak_mb is not None}
    explicit = {row["n"]: row["peak_bytes"] for row in rows if row["implementation"] == "explicit"}
    missing = WORKSPACE_BYTES - document["workspace_bytes"]
    figures = {n: round((size + missing) / MB, 1) for n, size in explicit.items() if n in printed}
    off = [abs(row["peak_bytes"] / row["predicted_bytes"] - 1) for row in rows]
    closed = [abs(r["peak_bytes"] / r["closed_form_bytes"] - 1) for r in rows if r["closed_form_bytes"]]
    exact = EXACT if document["workspace_bytes"] == 0 else NEAR  # a card's allocator rounds up
    states = {row["implementation"]: row["state"] for row in document["rows"] if row["n"] == CHECK_TOKENS}
    exponent = document["slopes"].get("explicit", {}).get("bytes")
    found: list[tuple[str, bool, object]] = [
        ("the chapter's seven peaks, MB", figures == printed, figures),
        ("explicit is the closed form", bool(closed) and max(closed) <= exact, max(closed, default=None)),
        ("measured is what was predicted", bool(off) and max(off) <= NEAR, max(off, default=None)),
        ("explicit ends at 16,384", states.get("explicit") == "out of memory", states.get("explicit")),
        ("fused passes 16,384", states.get("fused") == "done", states.get("fused")),
        ("chunked passes 16,384", states.get("chunked") == "done", states.get("chunked")),
        (
            f"memory grows with n^{CHAPTER_EXPONENTS['bytes']}",
            exponent is not None and abs(exponent - CHAPTER_EXPONENTS["bytes"]) <= 0.05,
            exponent,
        ),
    ]
    return [{"claim": claim, "holds": holds, "found": value} for claim, holds, value in found]
