"""What there is to notice about the sweep over head widths, read off the reader's own figures."""

import statistics
from itertools import takewhile

from lab.bench import Question, Sweep
from lab.sections.scaling import parts
from lab.sections.scaling.parts import FROZEN, GRADIENT, PAIRS, SPREAD, WIDEST, pair, winner
from lab.words import NBSP, quantity


def ends(part: Sweep, name: str, metric: str) -> tuple[float, float] | None:
    """A figure of a variant at its first evaluation and at its newest, means over seeds."""
    curves = [curve for curve in part.curves(name, metric) if curve.points]
    if not curves:
        return None
    first, last = ([curve.points[end][1] for curve in curves] for end in (0, -1))
    return statistics.fmean(first), statistics.fmean(last)


def late(part: Sweep, name: str, metric: str) -> float | None:
    """A figure that jumps from step to step, over the last five records, mean over seeds."""
    tails = [[value for _, value in curve.points[-5:]] for curve in part.curves(name, metric)]
    return statistics.fmean(value for tail in tails for value in tail) if any(tails) else None


def helps(sweep: Sweep) -> str:
    """The narrowest head from which on dividing wins in every row; empty while a row is missing."""
    wins: dict[int, bool] = {}
    for row in PAIRS:
        if (found := winner(*pair(sweep, row))) is None:
            return ""
        width = row.divided.config.effective_d_head
        wins[width] = wins.get(width, True) and found == "divided"
    widest_first = sorted(wins, reverse=True)
    won = list(takewhile(wins.__getitem__, widest_first))
    answer = f"from **d_k {won[-1]}** on" if won else "at **none** of these widths for certain"
    return f"In perplexity the division helps {answer}."


def frozen(sweep: Sweep) -> str:
    """How many rows of the widest undivided head end with nearly all weight on one token."""
    found = WIDEST.of(sweep).row(WIDEST.names[1], FROZEN.metric).mean
    if found is None:
        return ""
    return f"Unscaled at d_k 1024, **{parts.share(found)}** of the rows end with more than 0.99 on one token."


QUESTIONS = (
    Question(
        "helps",
        "Before you train: from which width on does the division help?",
        {**{str(d): f"d_k {d}" for d in (32, 128, 256, 1024)}, "never": "at none"},
        helps,
    ),
    Question(
        "frozen",
        "Unscaled at d_k 1024, how many rows end saturated?",
        {"few": "under 10 %", "half": "about half", "most": "over 90 %"},
        frozen,
    ),
)


def notice(sweep: Sweep) -> str:
    """What becomes of the scores and of the gradient at the widest head."""
    said, widest = [], WIDEST.of(sweep)
    undivided, divided = (ends(widest, name, SPREAD.metric) for name in reversed(WIDEST.names))
    if undivided and divided:
        first, last, divided_first, divided_last = map(parts.figure, (*undivided, *divided))
        said.append(
            f"The undivided scores start {quantity(undivided[0] / divided[0], 0)} times as wide, "
            f"√1024{NBSP}={NBSP}32, and go from {first} to {last}; the divided ones from {divided_first} to "
            f"{divided_last}. A larger gap between two scores no longer changes the loss of a saturated row."
        )
    pulls = [late(widest, name, GRADIENT.metric) for name in reversed(WIDEST.names)]
    if pulls[0] is not None and pulls[1] is not None:
        fate = "is not even smaller" if pulls[0] > pulls[1] else "is smaller, but not nothing"
        said.append(
            f"The norm of W_Q’s gradient ends at {parts.small(pulls[0])} undivided and "
            f"{parts.small(pulls[1])} divided: as a whole it {fate}. Saturated rows send almost none "
            f"of it; the few others pull without the factor 1/√d_k, and the unsaturated rows dominate "
            f"the gradient."
        )
    return "\n\n".join(said)
