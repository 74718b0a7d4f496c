"""The training page: ``train`` is all of it, the other names are what a page hands to it."""

from lab.bench.figures import Figure, perplexity, small_multiples
from lab.bench.layout import BUTTON, HALF, NOTICE_WIDTH, TABLE_WIDTH, beside, figure_title, status_line
from lab.bench.questions import Question, ask, best_and_worst
from lab.bench.remarks import remarks
from lab.bench.request import Request, Setup, in_words
from lab.bench.sweep import Gap, Row, Sweep, difference, requested
from lab.bench.tables import Cell, Table
from lab.bench.training import train, train_also

__all__ = [
    "BUTTON", "HALF", "NOTICE_WIDTH", "TABLE_WIDTH", "Cell", "Figure", "Gap", "Question", "Request", "Row",
    "Setup", "Sweep", "Table", "ask", "beside", "best_and_worst", "difference", "figure_title", "in_words",
    "perplexity", "remarks", "requested", "small_multiples", "status_line", "train", "train_also",
]  # fmt: skip
