"""Tables and sentences of the page against PyTorch. What they say is measured by processes of their own."""

import inspect
from collections import Counter
from collections.abc import Mapping, Sequence

import streamlit as st

from engine.chapter.measurements import LARGEST_DIFFERENCE, MEAN_OUTPUT, PARITY, PRECISIONS, THEIRS
from engine.probes import zoo
from engine.probes.zoo import Finding
from lab.bench import Question, Table, tables, untrained
from lab.bench.tables import number
from lab.probes import tiny
from lab.sections.parity.chart import Comparison, power
from lab.words import NBSP, count, plain, quantity

SCALES = {"sqrt": "√d", "none": "nothing", "width": "d"}
MASKS = {"causal": "causal", "none": "none"}
MODULE, FUNCTION = THEIRS["module"], THEIRS["function"]
LARGEST = {"zero": "exactly 0", "1e-7": "about 10⁻⁷", "1e-5": "about 10⁻⁵", "1e-3": "about 10⁻³"}
QUESTIONS = (
    Question("largest", "Before you compare: how large is the largest difference in float32?", LARGEST),
    Question(
        "coarsest",
        "And which precision differs most, for the size of its numbers?",
        {name: name for name in PRECISIONS},
    ),
)

TITLES = {
    "right": "Ours, right",
    "softmax-axis": "Softmax over the wrong axis",
    "no-scale": "No scale",
    "late-mask": "Mask after the softmax",
    "no-transpose": "No transpose",
    "off-by-one": "Mask off by one",
}
TESTS = {
    "rows": "Rows sum",
    "triangle": "Triangle",
    "causality": "Causality",
    "equal-scores": "Equal scores",
    "variance": "Variance",
    "shuffle": "Shuffle",
    "oblong": "Oblong",
    "parity": "Parity",
}
BETS = tuple(TESTS)[:-1]  # parity catches every one, so nobody need bet on it


def beside_the_chapter(comparison: Comparison, precision: str) -> Table:
    """The four columns: the largest of all sizes and of our two ways, causal and divided by √d."""
    yours = {
        seed: PARITY.read([row for row in comparison.rows if row.seed == seed]) for seed in comparison.seeds
    }
    listed = [("mean output", "module", "magnitude", magnitude)]
    for word in THEIRS:
        listed.append((word, word, "difference", small))
        listed.append((f"{word}, gradients", word, "gradient_difference", small))
    lines = [
        tables.Line(label, untrained.row(PARITY, f"{word}-{precision}", metric, yours), metric, write)
        for label, word, metric, write in listed
    ]
    caption, comparable = _chapter_remarks(comparison), untrained.comparable(PARITY, yours)
    return tables.compared(lines, "beside the chapter", caption, comparable=comparable)


def _chapter_remarks(comparison: Comparison) -> str:
    said = (
        f"Largest absolute difference to `{MODULE}` (module) and to `{FUNCTION}` (function), of the output "
        f"and of the gradients of the input and all weights; over all sizes and our two ways, causal, "
        f"divided by √d. Mean ± standard deviation over seeds. {untrained.shipped_line(PARITY)}"
    )
    if not comparison.rows:
        return said
    theirs, mine = (untrained.seeds_said(seeds) for seeds in (PARITY.seeds, comparison.seeds))
    judged = ", so grey differences are not comparable."
    if untrained.comparable(PARITY, comparison.seeds):
        judged = "; the chapter’s differences are of one draw."
    return f"{said} It is of {theirs}, yours of {mine}{judged}"


def magnitude(value: float | None) -> str:
    """A mean output, as the chapter prints it."""
    return quantity(value, 3) if value is None or abs(value) >= 0.0005 else tiny(value)


def small(value: float | None) -> str:
    """A difference, or a dash."""
    return "–" if value is None else tiny(value)


def comparison_table(comparison: Comparison, precision: str, mask: str, scale: str) -> Table:
    """A line a size: the worst over seeds and over our two ways to compute it."""
    lines = []
    for size in dict.fromkeys((row.batch, row.tokens, row.d_model, row.n_head) for row in comparison.rows):
        named = dict(zip(("batch", "tokens", "d_model", "n_head"), size, strict=True))
        rows = comparison.where(precision=precision, mask=mask, scale=scale, **named)
        *shape, heads = size
        label = f"{count(heads)} head{'s' if heads > 1 else ''}, {f'{NBSP}×{NBSP}'.join(map(str, shape))}"
        worst = (
            max((getattr(row, field) for row in rows if row.theirs == theirs), default=None)
            for theirs in (MODULE, FUNCTION)
            for field in ("difference", "gradient_difference")
        )
        output = number(max((row.magnitude for row in rows), default=None), magnitude)
        lines.append((label, output, *(number(value, small, bold=True) for value in worst)))
    columns = ("size", "mean output", "module", "its gradients", "function", "its gradients ")
    caption = (
        "Size by size (batch × tokens × width), with the mask and scale set above: the worst of all seeds, "
        "and of our attention written out and fused."
    )
    if scale != "sqrt":
        caption += " The module divides by √d only."
    alt = "Largest absolute differences between ours and PyTorch’s, by size"
    return Table(columns, lines, caption, alt)


def notice(comparison: Comparison, largest: str | None, coarsest: str | None) -> str:
    """What there is to notice, read off the figures."""
    standard = comparison.where(precision="float32", mask="causal", scale="sqrt")
    if not standard:
        return "Nothing is compared yet. Make your two guesses, then compare."
    worst = max(standard, key=lambda row: row.difference)
    said = [
        (f"You guessed *{plain(LARGEST[largest])}*. " if largest else "")
        + f"In float32 the largest difference is **{tiny(worst.difference)}**, at a mean output of "
        f"{worst.magnitude:.3f}; the chapter has {tiny(LARGEST_DIFFERENCE.low)} at {MEAN_OUTPUT.low}."
    ]
    by_precision = {
        precision: max(row.relative for row in rows)
        for precision in PRECISIONS
        if (rows := comparison.where(precision=precision, mask="causal", scale="sqrt"))
    }
    first = max(by_precision, key=by_precision.__getitem__)
    roundings = [value / comparison.rounding[name] for name, value in by_precision.items()]
    said.append(
        (f"You guessed *{coarsest}*. " if coarsest else "")
        + f"Against the numbers themselves **{first}** differs most, {power(by_precision[first])}. But each "
        f"precision is off by {min(roundings):.0f} to {max(roundings):.0f} of its own roundings (dashed)."
    )
    alike = comparison.where(mask="causal", scale="sqrt")
    if same := [row for row in alike if row.difference == 0]:
        (ours, theirs), _ = Counter((row.ours, row.theirs) for row in same).most_common(1)[0]
        said.append(
            f"{len(same):,} of {len(alike):,} outputs agree to the last bit, most of them ours *{ours}* with "
            f"`{theirs}`."
        )
    return "\n\n".join(said)


def matrix(findings: Sequence[Finding], bets: Mapping[str, str | None]) -> Table:
    """Implementation by test: what really caught what; the reader's bets with a ring."""
    caught = {(row.implementation, row.test): row.caught for row in findings}
    lines = []
    for name in zoo.IMPLEMENTATIONS:
        cells = {test: "**caught**" if caught[name, test] else ":gray[passes]" for test in TESTS}
        if bet := bets.get(name):
            cells[bet] = f":blue[○]{NBSP}{cells[bet]}"
        lines.append((TITLES[name], *cells.values()))
    return Table(("", *TESTS.values()), lines, alt="Which test catches which wrong implementation")


def bets_answered(findings: Sequence[Finding], bets: Mapping[str, str | None]) -> str:
    """How the bets went, and which test catches most."""
    caught = {(row.implementation, row.test) for row in findings if row.caught}
    placed = [(name, test) for name, test in bets.items() if test]
    said = []
    if placed:
        won = [bet for bet in placed if bet in caught]
        said.append(f"{count(len(won)).capitalize()} of your {count(len(placed))} bets would have caught it.")
    tally = {test: sum((name, test) in caught for name in zoo.WRONG) for test in BETS}
    best = max(tally, key=tally.__getitem__)
    lone = [name for name in zoo.WRONG if sum((name, test) in caught for test in BETS) == 1]
    said.append(
        f"Without any reference, **{TESTS[best].lower()}** catches {count(tally[best])} of "
        f"{count(len(zoo.WRONG))}."
    )
    for name in lone:
        (only,) = (test for test in BETS if (name, test) in caught)
        said.append(f"*{TITLES[name]}* is seen by {TESTS[only].lower()} alone.")
    if ("late-mask", "triangle") not in caught and ("late-mask", "causality") in caught:
        said.append(
            "A clean triangle proves little: the future can also come in through the sum that the softmax "
            "divides by."
        )
    return " ".join(said)


def exhibit(findings: Sequence[Finding], name: str) -> None:
    """One implementation: its code, and beside it what every test measured."""
    with st.container(horizontal=True, gap="medium"):
        with st.container(width=544):
            st.code(inspect.getsource(zoo.IMPLEMENTATIONS[name]).replace('"Tensor"', "Tensor"), "python")
        with st.container(width=544):
            lines = [
                [TESTS[row.test], ("**caught**: " if row.caught else "") + plain(row.said)]
                for row in findings
                if row.implementation == name
            ]
            alt = f"What every test measured of {TITLES[name]}"
            Table(("test", "what it measured"), lines, alt=alt).draw()


def tests_explained() -> str:
    """Every test in one line, as a list."""
    return "\n".join(f"* **{TESTS[name]}**: {test.__doc__}" for name, test in zoo.TESTS.items())
