"""What an attention map shows, said in words and in tables: for those who do not see it, and to be checked.

Plain arrays in. Shapes: T query position, S key position.
"""

from typing import TYPE_CHECKING

import numpy as np

from lab.charts.maps.panel import Panel, effective_tokens
from lab.words import MINUS, plain

if TYPE_CHECKING:
    import pandas as pd

Table = list[tuple[str | float, ...]]  # names of columns, then rows: a label and numbers
NAMED, LISTED = 3, 5  # keys in a sentence, keys in a table


def number(value: float, decimals: int = 2) -> str:
    """A cell's number: "−0.42"; never "−0.00"."""
    shown = f"{value:,.{decimals}f}"
    return (shown[1:] if float(shown.replace(",", "")) == 0 and shown[0] == "-" else shown).replace(
        "-", MINUS
    )


def sentence(panel: Panel, row: int) -> str:
    """One row of a map read out, as Markdown."""
    at, seen = f"At **{plain(panel.rows[row])}**", panel.seen(row)
    values, ahead = panel.values[row][seen], int((~seen).sum())
    hidden = f" {ahead} {'keys are' if ahead > 1 else 'key is'} masked." if ahead else ""
    if panel.kind == "weights":
        uniform = 1 / len(values)
        keys = _highest(panel, row, NAMED)
        said = [keys[0], *(key for key in keys[1:] if panel.values[row][key] >= uniform)]
        named = ", ".join(f"{number(panel.values[row][key])} on {plain(panel.columns[key])}" for key in said)
        return (
            f"{at} the head puts {named}. {number(float(effective_tokens(panel.values[row])), 1)} effective "
            f"tokens of {len(values)}; a uniform row would give each {number(uniform, 3)}.{hidden}"
        )
    high, low = _highest(panel, row, 1)[0], _highest(panel, row, len(values))[-1]
    if not panel.of_tokens:
        return f"{at} the numbers run from {number(values.min())} to {number(values.max())}."
    if high == low:
        return f"{at} the only score is {number(values[0])}.{hidden}"
    return (
        f"{at} the highest score is {number(values.max())}, for {plain(panel.columns[high])}; the lowest "
        f"{number(values.min())}, for {plain(panel.columns[low])}.{hidden}"
    )


def row_table(panel: Panel, row: int) -> Table:
    """The row's highest keys, best first, each with every number that the map gives of it."""
    extra = {name: values for name, (values, _) in panel.more.items() if values.shape == panel.values.shape}
    columns = {panel.value_name: panel.values, **extra}
    table: Table = [("key" if panel.of_tokens else panel.across, *columns)]
    for key in _highest(panel, row, LISTED):
        table.append((panel.columns[key], *(float(values[row, key]) for values in columns.values())))
    return table


def matrix_table(panel: Panel) -> "pd.DataFrame":
    """The whole map: a row a query, a column a key, nothing where it is masked."""
    import pandas as pd

    return pd.DataFrame(panel.shown(), index=list(panel.rows), columns=list(panel.columns))


def _highest(panel: Panel, row: int, most: int) -> list[int]:
    """Columns of a row that are not masked, by falling value; the earlier one of equals first."""
    open_columns = np.flatnonzero(panel.seen(row))
    order = np.argsort(-panel.values[row][open_columns], kind="stable")
    return [int(column) for column in open_columns[order][:most]]
