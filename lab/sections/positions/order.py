"""What is known of order without being told: by fresh weights, and by trained ones."""

from dataclasses import replace

from engine.chapter.experiments import POSITIONS
from engine.probes.results.positions import Knowledge, Order
from lab import bench, weights
from lab.bench import Cell, Table
from lab.bench.tables import number
from lab.probes import small
from lab.shell.frame import dot
from lab.weights import Opened
from lab.words import NBSP, plain, quantity, visible

variant = POSITIONS.variant

SENTENCE = "the dog bit the man in the garden"
EXACT = 1e-5  # a difference below is the rounding of float32


def order(found: Order, _: Opened) -> None:
    """What models without positions can tell apart."""
    caption = (
        f"Largest absolute difference of the logits; green: rounding. All tokens moved: "
        f"{_shuffled(found, 'order')}. All but the last: {_shuffled(found, 'prefix')}. "
        "Weights: fresh, seed 0."
    )
    bench.beside("results-order", [replace(_order_table(found), caption=caption)], _order_words(found), "")


def _order_table(found: Order) -> Table:
    """Largest differences of the logits, a line a scheme; what is only rounding in green."""
    columns = {
        "unmasked": "mask off",
        "masked": "mask on",
        "one_block": "last, one block",
        "two_blocks": "last, two blocks",
    }
    rows = []
    for row in found.rows:
        values = (getattr(row, name) for name in columns)
        cells = (
            Cell(value, f":green[**{small(value)}**]" if value < EXACT else small(value)) for value in values
        )
        rows.append((f"{dot(row.scheme)}{NBSP}{plain(variant(row.scheme).title)}", *cells))
    return Table(("largest difference", *columns.values()), rows)


def _order_words(found: Order) -> str:
    """What the first line says."""
    none = next(row for row in found.rows if row.scheme == "none")
    return (
        f"Without positions and without a mask the shuffled sentence gives the same logits, shuffled: they "
        f"differ by {small(none.unmasked)}, the rounding, where a logit has a size of "
        f"{quantity(none.magnitude, 2)}. The mask breaks that by **{small(none.masked)}**: in another "
        f"order each token has another past.\n\n"
        f"But the last token sees all of the others in any order, so one block cannot tell the orders of "
        f"what stands before it apart: {small(none.one_block)}. Two can, {small(none.two_blocks)}: "
        f"the second reads the first one’s sums, and each of these had a past of its own."
    )


def _shuffled(found: Order, name: str) -> str:
    """The sentence in that other order, as Markdown."""
    pieces = [found.pieces[at] for at in getattr(found, name)]
    return plain(" ".join(visible(piece) for piece in pieces))


def knowledge(found: Knowledge, opened: Opened) -> None:
    """How a model without positions knows something of them."""
    caption = (
        f"{found.windows} held-out windows of {found.length}. Read off by a linear map of what attention "
        f"adds and its squares, fitted on half of the windows, taken on the other. Perplexity: of the last "
        f"token of each window. {weights.whose(opened)}"
    )
    table = replace(_knowledge_table(found), caption=caption)
    bench.beside("results-knowledge", [table], _knowledge_words(found), "")


def _knowledge_table(found: Knowledge) -> Table:
    """How much of the position can be read, and what a shuffled past costs."""
    rows = []
    for name in POSITIONS.variants:
        if one := found.models.get(name):
            reads = (
                Cell(share, f"{quantity(100 * max(share, 0.0), 0)}{NBSP}%")
                for share in (one.read, one.unmasked)
            )
            perplexities = (number(past) for past in (one.ordered, one.shuffled))
            rows.append((f"{dot(name)}{NBSP}{plain(variant(name).title)}", *reads, *perplexities))
    return Table(
        ("trained on 64 tokens", "position decoded", "mask taken off", "past in order", "past shuffled"), rows
    )


def _knowledge_words(found: Knowledge) -> str:
    """The leak in two sentences, with its figures; then what order is worth."""
    none = found.models.get("none")
    if none is None:
        return "No trained model without positions is here: train it above, and its leak stands here."
    read, unmasked, untrained = (
        quantity(100 * max(getattr(none, name), 0.0), 0) for name in ("read", "unmasked", "untrained")
    )
    said = [
        f"The mask leaks the position: at the first place a token averages over itself alone, at the tenth "
        f"over ten, and a mean of more vectors is shorter. From what attention adds, **{read}{NBSP}%** of "
        f"the place (of its logarithm’s variance) can be read off without any positions. Before training it "
        f"is **{untrained}{NBSP}%**, and once the trained weights lose their mask {unmasked}{NBSP}%.",
        f"That is how far the past reaches, not its order: with the past shuffled the last of "
        f"{found.length} tokens is predicted at {quantity(none.shuffled)}, in order at "
        f"{quantity(none.ordered)}.",
    ]
    rest = {name: one for name, one in found.models.items() if name != "none"}
    if rest:
        name, most = max(rest.items(), key=lambda one: one[1].shuffled / one[1].ordered)
        said[1] += (
            f" A model that has positions uses the order: {plain(variant(name).short)} goes from "
            f"{quantity(most.ordered)} to {quantity(most.shuffled)}."
        )
    return "\n\n".join(said)
