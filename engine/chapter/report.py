"""The chapter's figures beside the shipped reference: as JSON, for people, and as the documents' tables."""

from collections.abc import Sequence
from typing import Any

from engine.chapter import reference
from engine.chapter.experiments import GAP, IN_POINTS, METRICS, Experiment
from engine.chapter.measurements import MEASUREMENTS, Measurement, known


def show(shown: Experiment | Measurement) -> dict[str, Any]:
    """The chapter's figures and the shipped reference, as the JSON that ``show --json`` prints."""
    shipped = reference.load(shown.id)
    rows = []
    for name, metric in shown.figures:
        value = shown.chapter.get((name, metric))
        row = shipped.rows.get(name) if shipped else None
        rows.append(
            {
                "variant": name,
                "metric": metric,
                "chapter": None if value is None else value.low if value.printed else [value.low, value.high],
                "reference": None
                if row is None or shipped is None
                else {
                    "mean": row.mean(metric),
                    "sd": row.sd(metric),
                    "seeds": list(row.seeds),
                    "device": shipped.device,
                    "date": shipped.date,
                },
            }
        )
    return {"id": shown.id, "rows": rows}


def text(shown: dict[str, Any]) -> str:
    """``show`` for people."""
    decimals = _decimals(shown["id"])
    lines = [f"{'variant':24}{'metric':24}{'chapter':>16}{'reference':>22}"]
    for row in shown["rows"]:
        chapter, shipped = row["chapter"], row["reference"]
        said = "-" if chapter is None else f"{chapter}"
        if isinstance(chapter, list):
            said = f"about {sum(chapter) / 2:.3g}"
        measured = "-" if shipped is None else _mean_and_spread(shipped, _places(chapter, decimals))
        lines.append(f"{row['variant']:24}{row['metric']:24}{said:>16}{measured:>22}")
    return "\n".join(lines)


def markdown(shown: dict[str, Any]) -> str:
    """``show`` as ``docs/measured.md`` prints it: a table, and a line on where it was measured."""
    chosen, decimals, first = known(shown["id"]), _decimals(shown["id"]), shown["rows"][0]["metric"]
    columns = "figure | chapter"
    if isinstance(chosen, Experiment):
        columns = f"model | chapter, {METRICS[first]}"
    lines = [f"| {columns} | measured | difference |", "|---|---:|---:|---:|"]
    where = "not measured yet"
    over = _seeds_said([row["reference"]["seeds"] for row in shown["rows"] if row["reference"]])
    for row in shown["rows"]:
        chapter, shipped = row["chapter"], row["reference"]
        inferred, places = isinstance(chapter, list), _places(chapter, decimals)
        value = sum(chapter) / 2 if inferred else chapter
        said = "–" if value is None else f"*≈ {value:.3g}*" if inferred else number(value, places)
        measured = difference = "–"
        if shipped is not None:
            measured = _mean_and_spread(shipped, places)
            if value is not None and shipped["mean"] is not None:
                off = shipped["mean"] - value
                difference = _difference(row["metric"], off, value).replace("-", "\u2212")
            where = f"{over}; {shipped['device']}, {shipped['date']}."
        if isinstance(chosen, Measurement):
            title = f"{row['variant']}: {chosen.metrics[row['metric']]}"
        else:
            title = chosen.variant(row["variant"]).title
            if row["metric"] != first:
                title += f": {METRICS[row['metric']]}"
        lines.append(f"| {title} | {said} | {measured} | {difference} |")
    return "\n".join([*lines, "", f"{where} *Italic*: inferred from the chapter's prose, not printed there."])


def _seeds_said(seeds: Sequence[Sequence[int]]) -> str:
    """What the figures of a table are over; seeds: of each row."""
    all_of_them = sorted({seed for one in seeds for seed in one})
    said, counts = ", ".join(map(str, all_of_them)), {len(one) for one in seeds}
    if counts <= {1}:
        return f"Seed {said}"
    fewer = "" if len(counts) == 1 else " at most; without a spread: of one"
    return f"Mean ± standard deviation over seeds {said}{fewer}"


def _difference(metric: str, off: float, value: float) -> str:
    """How far a figure is off: in its own points, in points of a hundred, or relative to the value."""
    if metric == GAP:
        return f"{off:+.1f}"
    return f"{100 * off:+.1f} points" if metric in IN_POINTS else f"{off / value * 100:+.1f} %"


def _mean_and_spread(shipped: dict[str, Any], decimals: int) -> str:
    mean, sd = shipped["mean"], shipped["sd"]
    if mean is None:
        return "diverged"
    return number(mean, decimals) + ("" if sd is None else f" ± {number(sd, decimals, beside=mean)}")


def _decimals(known_id: str) -> int:
    """The chapter prints its measurements with three decimals."""
    return 3 if known_id in MEASUREMENTS else 2


def _places(chapter: Any, decimals: int) -> int:
    """At least as many decimals as the chapter prints of a figure: 0.0498 has four."""
    return max(decimals, len(str(chapter).partition(".")[2])) if isinstance(chapter, float) else decimals


def number(value: float, decimals: int, beside: float | None = None) -> str:
    """A figure, written as the one beside it; below one with three decimals, or as a power of ten."""
    size = abs(value if beside is None else beside)
    return f"{value:.2e}" if 0 < size < 0.001 else f"{value:.{decimals if size >= 1 else max(decimals, 3)}f}"
