"""The list of what stands in ``docs/claims.md`` cannot rot: its sentences are said, its tests exist."""

import ast
import re

import pytest

from engine.system import paths

STANDS = "## What stands"


def rows():
    """Of the part on what stands: sentence, file, what would refute it, what was measured, tests."""
    _, part = (paths.ROOT / "docs" / "claims.md").read_text().split(STANDS)
    lines = [line for line in part.splitlines() if line.startswith("| ")][1:]
    return [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in lines]


def sentences(path):
    """All that a file says, blanks joined; of a Python file each string, "…" for what is put into it."""
    text = path.read_text()
    if path.suffix != ".py":
        return [" ".join(text.split())]
    found = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.append(node.value)
        elif isinstance(node, ast.JoinedStr):
            parts = (part.value if isinstance(part, ast.Constant) else "…" for part in node.values)
            found.append("".join(map(str, parts)))
    return [" ".join(one.split()) for one in found]


def test_every_row_is_whole():
    assert len(rows()) > 20
    for row in rows():
        assert len(row) == 5, row
        assert all(row), row


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[0][:40])
def test_a_sentence_that_stands_is_still_said_and_its_tests_are_there(row):
    sentence, file, _, _, tests = row
    file = file.strip("`")
    assert any(sentence in said for said in sentences(paths.ROOT / file)), f"{file} does not say so"
    named = re.findall(r"`(\w+)::(\w+)`", tests)
    assert named, tests
    for module, test in named:
        assert f"def {test}(" in (paths.ROOT / "tests" / f"{module}.py").read_text(), tests


def test_what_is_said_now_in_place_of_something_else_has_a_test_or_was_dropped():
    before, _ = (paths.ROOT / "docs" / "claims.md").read_text().split(STANDS)
    cells = [line.strip("| ").split(" | ") for line in before.splitlines() if line.startswith("| ")][1:]
    assert len(cells) > 40
    for cell in cells:
        assert len(cell) == 4, cell
        named = re.findall(r"`(test_\w+)", cell[-1])
        without = ("dropped", "by definition", "the page's own figure", "by hand, as measured.md says")
        assert named or cell[-1] in without, cell
        for module in named:
            assert list((paths.ROOT / "tests").rglob(f"{module}.py")), cell
