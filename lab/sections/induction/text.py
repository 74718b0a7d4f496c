"""The same heads looked for in models of Shakespeare: table, and whether any has them."""

from engine.probes.results.induction import InText, InTexts
from lab.bench import Cell, Table
from lab.bench.tables import number as cell
from lab.charts.maps.sentences import number
from lab.sections.induction.formation import score
from lab.sections.induction.probe import head_name
from lab.words import NBSP, plain

COLUMNS = ("model, head", "previous, random", "matching, random", "previous, text", "matching, text")
GAINS = ("model", "layers", "gain, random", "gain, text", "pair")
REMARK = (
    "Random: tokens of the model’s vocabulary, none twice, repeated after 16 to 63 of them. Text: passages "
    "of the held-out part. Bold: from {least} on. Grey: a head that looks at all it sees alike. Gain: loss "
    "in nats of the same tokens at the same positions behind others, less behind themselves."
)


def results(found: InTexts) -> Table:
    """Every head of every model, on random tokens that repeat and on text."""
    rows = []
    for row in found.rows:
        for layer, heads in enumerate(row.random.previous_token):
            for head in range(len(heads)):
                values = (getattr(row, where).of(kind)[layer][head] for where, kind in _COLUMNS)
                cells = (cell(value, score, bold=value >= row.threshold) for value in values)
                rows.append((f"{plain(row.model)}, {head_name([layer, head])}", *cells))
    alike = (getattr(found.rows[0], f"alike_{where}").of(kind) for where, kind in _COLUMNS)
    rows.append((":gray[all alike]", *(cell(value, score, color="gray") for value in alike)))
    return Table(COLUMNS, rows)


_COLUMNS = [(where, kind) for where in ("random", "text") for kind in ("previous_token", "prefix_matching")]


def gains(found: InTexts) -> Table:
    """One line a model: what a repeat is worth to it, and the pair, if there is one."""
    rows = []
    for row in found.rows:
        pair = ":gray[none]" if row.pair is None else f"**{' → '.join(map(head_name, row.pair))}**"
        gained = (Cell(value, number(value)) for value in (row.gain_random_nats, row.gain_text_nats))
        rows.append((plain(row.model), Cell(row.layers, str(row.layers)), *gained, pair))
    return Table(GAINS, rows)


def remark(found: InTexts) -> str:
    """What the columns hold."""
    return REMARK.format(least=score(found.rows[0].threshold))


def words(found: InTexts) -> str:
    """Which models have a pair, and why the others cannot or do not."""
    rows = found.rows
    having = [(row, row.pair) for row in rows if row.pair]
    shallow = [row for row in rows if row.layers < 2]
    said = []
    for row, (early, late) in having:
        back = row.random.previous_token[early[0]][early[1]]
        after = row.random.prefix_matching[late[0]][late[1]]
        said.append(
            f"**{plain(row.model)}** has a pair: {head_name(early)} looks one token back with "
            f"{score(back)}, {head_name(late)} finds what came after with {score(after)}; a repeat of random "
            f"tokens is worth {number(row.gain_random_nats)}{NBSP}nats to it."
        )
    if not having:
        which = f"any of these {len(rows)} models" if len(rows) > 1 else f"*{plain(rows[0].model)}*"
        said.append(f"**No such pair** in {which}.")
    if shallow:
        some = f"{len(shallow)} of {len(rows)} {'has' if len(shallow) == 1 else 'have'}"
        which = "It has" if len(rows) == 1 else some
        said.append(
            f"{which} one layer: there is no later one that could read what a previous-token head wrote, so "
            f"there can be no pair, however it is trained."
        )
    if deep := [row.model for row in rows if row.layers > 1 and not row.pair]:
        named = ", ".join(f"*{plain(name)}*" for name in deep)
        said.append(f"More than one layer, and still no pair: {named}.")
    back = max(_best(row, "previous_token") for row in rows)
    after = max(_best(row, "prefix_matching") for row in rows)
    said.append(
        f"On random tokens the highest previous-token score of all is {score(back)}, the highest "
        f"prefix-matching score {score(after)}."
    )
    return "\n\n".join(said)


def _best(row: InText, kind: str) -> float:
    return float(max(value for heads in row.random.of(kind) for value in heads))


def csv_rows(found: InTexts) -> list[tuple[object, ...]]:
    """Every score, for a file."""
    rows: list[tuple[object, ...]] = [("model", "head", *(f"{kind}_{where}" for where, kind in _COLUMNS))]
    for row in found.rows:
        for layer, heads in enumerate(row.random.previous_token):
            for head in range(len(heads)):
                values = (getattr(row, where).of(kind)[layer][head] for where, kind in _COLUMNS)
                rows.append((row.model, head_name([layer, head]), *values))
    return rows
