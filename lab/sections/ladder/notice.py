"""What there is to notice on the ladder, read off the reader's own figures."""

from statistics import fmean

from engine.chapter.experiments import LADDER, PERPLEXITY, TRAIN
from engine.chapter.variants import BLOCK, BLOCK_DROPOUT, FEED_FORWARD, HEAD_REPLACES, TWO_BLOCKS
from lab.bench import Gap, Question, Sweep
from lab.sections.ladder.parts import BY_HEART, PARTS, bought, spoken
from lab.words import NBSP, plain, quantity


def effect(gap: Gap | None) -> str:
    """What a part does, as a verb: "buys 2.3 points"."""
    if gap is None:
        return "cannot be compared yet"
    if gap.level:
        return "changes nothing"
    noise = ", within seed noise" if gap.noise else ""
    return f"{'buys' if gap.points > 0 else 'costs'} {quantity(abs(gap.points))} points{noise}"


def buys_most(now: Sweep) -> str:
    """Which part takes most points off its parent."""
    gaps = {name: gap.points for name in BUYS if (gap := bought(now, name)) is not None}
    if not gaps:
        return ""
    most = max(gaps, key=gaps.__getitem__)
    return f"Most is bought by **{plain(LADDER.variant(most).part)}**: {quantity(gaps[most])} points."


def best(now: Sweep) -> str:
    """Which rung is lowest on held-out text."""
    ended = [row for row in now.rows() if row.mean is not None]
    if not ended:
        return ""
    lowest = min(ended, key=lambda row: row.mean or 0.0)
    return f"Best on held-out text is **{plain(spoken(lowest.variant))}**, {quantity(lowest.mean)}."


# Only what may win: a head that replaces takes away, and dropout is no part of the block.
BUYS = {rung.id: rung.part for rung in PARTS if rung not in (HEAD_REPLACES, BLOCK_DROPOUT)}
QUESTIONS = (
    Question("buys", "Before you train: which part buys the most points?", BUYS, buys_most),
    Question(
        "best",
        "And which rung will be best on text it has not seen?",
        {rung.id: plain(rung.short) for rung in (FEED_FORWARD, BLOCK, TWO_BLOCKS, BLOCK_DROPOUT)},
        best,
    ),
)


def notice(now: Sweep) -> str:
    """What a head in place of the token costs."""
    replaced = bought(now, "head-replaces")
    if replaced is None or replaced.points >= 0 or replaced.noise:
        return ""
    return (
        f"The same head in place of the token {effect(replaced)}. Of the shipped two it puts 79{NBSP}% of "
        f"its weight on the current token, the one that is added 33{NBSP}%."
    )


def apart(now: Sweep) -> str:
    """What the chapter changes at once, part by part."""
    positions, weights = (bought(now, name) for name in ("average-added-positions", "head-added"))
    projection, heads = (bought(now, name) for name in ("head-projected", "four-heads"))
    said = []
    if positions and weights:
        said.append(
            f"**Positions or weights?** Between the added average and one head two things change. Having "
            f"positions {effect(positions)}; learned weights then: {effect(weights)}."
        )
    if projection and heads:
        said.append(
            f"**Heads or W_O?** W_O alone {effect(projection)}; four heads in place of one, with not a "
            f"parameter more, {effect(heads)}. {_whose(projection, heads)}"
        )
    norm = bought(now, "block")
    if norm:
        each = "three times a gain and a bias per feature"
        said.append(f"LayerNorm {effect(norm)} for 768 parameters, {each}.")
    return "\n\n".join(said) or (
        "Positions and learned weights come together when a head takes the place of the added average, and "
        "so do W_O and four heads. Here each has a rung of its own; what it is worth stands here once it is "
        "trained."
    )


def _whose(projection: Gap, heads: Gap) -> str:
    worth = {"W_O": projection.points, "the heads": heads.points}
    lead = "W_O" if projection.points > heads.points else "the heads"
    if max(worth.values()) <= 0.05:
        return "Neither pays here."
    if projection.noise or heads.noise:
        return "One of the two is within seed noise; more seeds will tell."
    if projection.noise is None:
        return f"By one seed, more is due to {lead}."
    if min(worth.values()) <= 0:
        return f"It is {lead}."
    share = 100 * max(worth.values()) / sum(worth.values())
    return f"{lead[:1].upper()}{lead[1:]} brought {share:.0f}{NBSP}% of the two together."


def _stopped(now: Sweep) -> str:
    """Where the shipped curves of one and of two blocks are lowest."""
    lows = []
    for name in (TWO_BLOCKS.id, BLOCK.id):
        if not (found := now.row(name, PERPLEXITY).reference) or not found.curves:
            return ""
        lowest = [min(curve, key=lambda point: point[1]) for curve in found.curves.values()]
        steps = sorted(int(step) for step, _ in lowest)
        lows.append((fmean(value for _, value in lowest), f"after {steps[0]:,} to {steps[-1]:,} steps"))
    (two, when), (one, later) = lows
    return (
        f"It is a matter of when one stops: at its lowest the reference’s two blocks have {quantity(two)} "
        f"({when}), one block {quantity(one)} ({later})."
    )


def by_heart(now: Sweep) -> str:
    """Held out against trained on."""
    said, ratios = [], dict[str, float]()
    for name in BY_HEART:
        held, trained = now.row(name, PERPLEXITY).mean, now.row(name, TRAIN).mean
        if held is not None and trained:
            ratios[name] = held / trained
    if "block" in ratios and "two-blocks" in ratios:
        said.append(
            f"On held-out text the model is {ratios['block']:.2f} times as perplexed as on its own with one "
            f"block, {ratios['two-blocks']:.2f} times with two. The second block "
            f"{effect(bought(now, 'two-blocks'))} on held-out text."
        )
        said.append(f"The chapter’s are 2.03 and 2.80 times. {_stopped(now)}".strip())
    if "block-dropout" in ratios:
        said.append(f"With dropout it is {ratios['block-dropout']:.2f} times.")
    return "\n\n".join(said) or (
        "Whether a second block helps on its own text, and on text that was held out, shows here once one "
        "and two blocks are trained."
    )
