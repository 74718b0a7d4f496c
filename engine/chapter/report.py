"""The chapter's figures beside the shipped reference: as JSON, for people, and as the documents' tables."""

from collections.abc import Sequence
from typing import Any

from engine.chapter import reference
from engine.chapter.definitions import DIFFERENCES, IN_POINTS, ChapterValue
from engine.chapter.experiments import METRICS, Experiment
from engine.chapter.measurements import MEASUREMENTS, Measurement, known


def show(shown: Experiment | Measurement) -> dict[str, Any]:
    """The chapter's figures and the shipped reference, as the JSON that ``show --json`` prints.

    tolerance: how far from the chapter a figure may lie, in words; allowed: from where to where. verdict: of
    the reference, with the reason where it is not reproduced.
    """
    shipped = reference.load(shown.id)
    rows = []
    for name, metric in shown.figures:
        value = shown.chapter.get((name, metric))
        row = shipped.rows.get(name) if shipped else None
        mean, sd = (row.mean(metric), row.sd(metric)) if row else (None, None)
        rows.append(
            {
                "variant": name,
                "metric": metric,
                "chapter": None if value is None else value.low if value.printed else [value.low, value.high],
                "tolerance": value and tolerance(value, metric),
                "allowed": value and list(value.allowed),
                "reference": None
                if row is None or shipped is None
                else {
                    "mean": mean,
                    "sd": sd,
                    "seeds": list(row.seeds),
                    "device": shipped.device,
                    "date": shipped.date,
                },
                "verdict": verdict(value, mean, sd) if value and mean is not None else None,
            }
        )
    return {"id": shown.id, "rows": rows}


def tolerance(value: ChapterValue, metric: str) -> str:
    """How far from the chapter's a figure may lie: "3 %", "5 points" of a hundred, "1.07", "-1 to 0"."""
    if value.low != value.high and not value.tolerance:
        return f"{value.low:g} to {value.high:g}"
    if metric in IN_POINTS:
        return f"{100 * value.margin:.3g} points"
    if metric in DIFFERENCES:
        return f"{value.margin:.3g}"
    return f"{value.margin:.1g}" if value.tolerance < 0.001 else f"{100 * value.tolerance:.0f} %"


def verdict(value: ChapterValue, mean: float, sd: float | None) -> str:
    """The verdict on a shipped figure in whole words, with the reason that is known for one outside."""
    word = value.verdict(mean, sd)
    if word == "outside" and value.gap:
        return f"not reproduced: {value.gap}"
    return f"reproduced {word}" if word.startswith("in ") else word


def measured(shown: Experiment, variant_id: str) -> str:
    """What the shipped reference says of a variant's claim: its figures, each with its verdict, as Markdown.

    The figure that the claim is judged by, beside its counterpart's, and those that the chapter prints.
    """
    shipped = reference.load(shown.id)
    rows = shipped.rows if shipped else {}
    if variant_id not in rows:
        return "nothing, as no reference is shipped with this copy."
    row, counterpart = rows[variant_id], shown.counterpart(variant_id) or ""
    of_chapter = [metric for name, metric in shown.chapter if name == variant_id]
    said = []
    for metric in dict.fromkeys([shown.variant(variant_id).judged_by or shown.metric, *of_chapter]):
        words = f"{shown.called(variant_id, metric)}: {_of_seeds(row, metric)}"
        if metric not in DIFFERENCES and counterpart in rows:
            words += f" (*{shown.variant(counterpart).title}*: {_of_seeds(rows[counterpart], metric)})"
        value, mean = shown.chapter.get((variant_id, metric)), row.mean(metric)
        if value and mean is not None:
            words += f", {verdict(value, mean, row.sd(metric)).partition(': ')[0]}"
        said.append(words)
    return f"{'; '.join(said)}. {_seeds_said([row.seeds])}."


def _of_seeds(row: reference.ReferenceRow, metric: str) -> str:
    return _minus(_mean_and_spread({"mean": row.mean(metric), "sd": row.sd(metric)}, 2))


def text(shown: dict[str, Any]) -> str:
    """``show`` for people."""
    decimals = _decimals(shown["id"])
    head = f"{'variant':24}{'metric':24}{'chapter':>12}{'tolerance':>12}{'reference':>20}  verdict"
    lines = [f"{shown['id']}: {known(shown['id']).question}", head]
    for row in shown["rows"]:
        chapter, shipped = row["chapter"], row["reference"]
        said = "-" if chapter is None else f"{chapter}"
        if isinstance(chapter, list):
            said = f"about {sum(chapter) / 2:.3g}"
        measured = "-" if shipped is None else _mean_and_spread(shipped, _places(chapter, decimals))
        columns = (
            f"{row['variant']:24}{row['metric']:24}{said:>12}{row['tolerance'] or '-':>12}{measured:>20}"
        )
        lines.append(f"{columns}  {row['verdict'] or '-'}")
    return "\n".join(lines)


def markdown(shown: dict[str, Any]) -> str:
    """``show`` as ``docs/measured.md`` prints it: a table, where it was measured, what is not reproduced."""
    chosen, decimals, first = known(shown["id"]), _decimals(shown["id"]), shown["rows"][0]["metric"]
    columns = "figure | chapter"
    if isinstance(chosen, Experiment):
        columns = f"model | chapter, {METRICS[first]}"
    lines = [f"| {columns} | tolerance | measured | difference | verdict |", "|---|---:|---:|---:|---:|---|"]
    where, reasons = "not measured yet", dict[str, None]()
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
                difference = _minus(_difference(row["metric"], shipped["mean"] - value, value))
            where = f"{over}; {shipped['device']}, {shipped['date']}."
        if isinstance(chosen, Measurement):
            title = f"{row['variant']}: {chosen.metrics[row['metric']]}"
        else:
            title = chosen.variant(row["variant"]).title
            if row["metric"] != first:
                title += f": {chosen.called(row['variant'], row['metric'])}"
        word, _, reason = (row["verdict"] or "–").partition(": ")
        if reason:
            reasons[reason] = None
        allowed = _minus(row["tolerance"] or "–")
        lines.append(f"| {title} | {said} | {allowed} | {measured} | {difference} | {word} |")
    below = f"{where} *Italic*: inferred from the chapter's prose, not printed there."
    if reasons:
        below += f" Not reproduced: {' '.join(reasons)}"
    return "\n".join([*lines, "", below])


def _minus(said: str) -> str:
    return said.replace("-", "\u2212")


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
    if metric in DIFFERENCES:
        return f"{off:+.2f}"
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
