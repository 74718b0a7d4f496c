"""The chapter as the lab pages it: fourteen questions in six groups, and which of them are built."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

PAGES = Path(__file__).resolve().parent.parent.parent / "pages"


@dataclass(frozen=True)
class Section:
    """One page of the lab.

    group: its menu; title: its name there; question: what it answers.
    script: the file in ``pages/`` that answers it; the section is built when that file exists.
    experiments: ids of the tables it measures, for "4 of 4 measured".
    """

    number: int
    group: str
    title: str
    question: str
    script: str
    experiments: tuple[str, ...] = ()

    @property
    def path(self) -> Path:
        """Where its script lies, or will lie."""
        return PAGES / self.script

    @cached_property
    def built(self) -> bool:
        """Whether the page exists."""
        return self.path.is_file()

    @property
    def caption(self) -> str:
        """The line above its title: "1 of 14 · From averages to attention"."""
        return f"{self.number} of {len(SECTIONS)} · {LONG_GROUPS.get(self.group, self.group)}"


LONG_GROUPS = {"Averages": "From averages to attention"}

_PLAN: dict[str, tuple[tuple[str, str, str, tuple[str, ...]], ...]] = {  # of each group
    "Averages": (
        ("Averages", "Why is a mean of the context worse than no context?", "averages.py", ("averages",)),
        ("Mask and softmax", "One triangle, one softmax, three ways to the same mean", "mask.py", ("mask",)),
    ),
    "The score": (
        (
            "Query, key, value",
            "Why does matching need two projections, and copying a third?",
            "qkv.py",
            ("query-key-value",),
        ),
        ("Why √d_k", "What collapses when the score is not divided?", "scaling.py", ("scaling-training",)),
        ("Against PyTorch", "Does our attention equal theirs, but for rounding?", "parity.py", ()),
    ),
    "The block": (
        ("Ladder", "What does each part buy, and what does it cost?", "ladder.py", ("ladder",)),
        ("Norm placement", "Why does post-norm need a warmup?", "norm.py", ("norm-placement",)),
        ("Positions", "Which scheme survives a longer window?", "positions.py", ("positions",)),
        ("Shapes", "Encoder, decoder, both: what changes is the mask", "shapes.py", ("shapes",)),
    ),
    "The cost": (
        ("The n × n wall", "At which length does your memory end?", "wall.py", ("memory-wall",)),
        ("Ledger", "Where do 124,439,808 parameters live?", "ledger.py", ()),
    ),
    "Circuits": (
        ("Winograd", "Which noun is tired? A two-hop circuit", "winograd.py", ("winograd-closed",)),
        ("Induction", "When does a model learn to continue a repeat?", "induction.py", ("induction",)),
    ),
    "Workbench": (("Playground", "What does a model of your own say, and why?", "playground.py", ()),),
}
_ROWS = [(group, *row) for group, rows in _PLAN.items() for row in rows]
SECTIONS: tuple[Section, ...] = tuple(Section(number, *row) for number, row in enumerate(_ROWS, start=1))


def section(script: str) -> Section:
    """The section that a script of ``pages/`` answers."""
    return next(section for section in SECTIONS if section.script == script)


def neighbours(current: Section) -> tuple[Section | None, Section | None]:
    """The nearest built sections before and after one."""
    built = [section for section in SECTIONS if section.built]
    before = [section for section in built if section.number < current.number]
    after = [section for section in built if section.number > current.number]
    return (before[-1] if before else None, after[0] if after else None)
