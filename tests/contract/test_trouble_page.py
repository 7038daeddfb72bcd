# SPDX-License-Identifier: Apache-2.0
"""docs/trouble.md is what tests/trouble/ says, and what that says is there."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from scripts import trouble_page
from scripts.trouble_page import Row

ROOT = Path(__file__).parents[2]
ROWS = [row for group in trouble_page.groups() for row in group.rows]
TEST = re.compile(r"(?P<file>tests/[\w/]+/test_\w+\.py)::(?P<name>test_\w+)(?P<case>\[.+\])?")
# The numbers of each group; some were never given, because what they were meant for turned out to be another row.
NUMBERS = {
    "A": "1 2 3 4 6 7 9 10 11 12",
    "B": "1 2 3 4 5 6 7 9 10 11 12 14 15 17",
    "C": "1 2 3 5 6 7 8 9 11 13 14",
    "D": "1 2 4 5 6 7 8 9 11 12",
    "E": "1 2 3 4 6 7 8 9 10 11 12 13 14 15 16 17 20",
    "F": "1 2 3 5 6 7 8 9 10 11 12 14 15",
    "G": "1 2 3 4 5 6 8 9 10 11 12",
    "H": "1 2 3 5 6 7 8 10 11 12 14 15",
    "I": "1 2 3 4 6 7 8 9 11 12 14 15 16 17 18",
    "J": "1 2 3 4 5 8",
    "K": "1 2 4 5 6 7 8 9 10 11 13 14 16 17 18 20",
    "L": "1 2 3 4 5 6 7",
    "M": "1 4 5 6 8",
    "N": "2 3 4 5 6",
}


@cache
def functions_of(file: str) -> frozenset[str]:
    """Names of the test functions of a file, which is read and not imported."""
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def faults_of(row: Row) -> list[str]:
    """What is wrong with a row."""
    faults = [] if bool(row.tests) != bool(row.why_not) else ["it needs either tests or a reason why there are none"]
    faults += ["it does not say what happened or what is done"] if not (row.what and row.does) else []
    return faults + [fault for test in row.tests if (fault := fault_of(test))]


def fault_of(test: str) -> str:
    """What is wrong with the name of a test; empty if nothing is."""
    found = TEST.fullmatch(test)
    if found is None:
        return f"{test!r} is no name of a test"
    if not (ROOT / found["file"]).is_file():
        return f"there is no file {found['file']}"
    return "" if found["name"] in functions_of(found["file"]) else f"there is no test {test}"


def test_the_page_is_up_to_date() -> None:
    """The page in docs/ is the one that ``python scripts/trouble_page.py`` writes today."""
    assert (ROOT / "docs" / "trouble.md").read_text(encoding="utf-8") == trouble_page.page()


def test_no_row_is_missing() -> None:
    """Every known trouble has its row, once and in its order."""
    wanted = [f"{letter}{number}" for letter, numbers in NUMBERS.items() for number in numbers.split()]
    assert [row.name for row in ROWS] == wanted


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_row_is_proven_or_says_why_not(row: Row) -> None:
    """A row names tests that exist, or the reason why there are none."""
    assert faults_of(row) == []


@pytest.mark.parametrize(
    "changes",
    [
        {"tests": ()},
        {"why_not": "both"},
        {"tests": ("tests/contract/test_trouble_page.py::test_of_tomorrow",)},
        {"tests": ("tests/contract/test_of_tomorrow.py::test_it",)},
        {"tests": ("a test",)},
        {"does": ""},
    ],
    ids=lambda changes: str(changes),
)
def test_a_wrong_row_is_noticed(changes: dict[str, str | tuple[str, ...]]) -> None:
    """The test above finds what it looks for."""
    good: dict[str, object] = {"what": "It broke.", "sources": (), "does": "Mends it."}
    good |= {"tests": ("tests/contract/test_trouble_page.py::test_the_page_is_up_to_date",), "why_not": ""}
    assert faults_of(Row("A1", **good)) == []  # type: ignore[arg-type]
    assert faults_of(Row("A1", **(good | changes)))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "source", ["https://elsewhere.example/one/two/issues/1", "http://github.com/one/two", "https://github.com/one"]
)
def test_only_public_reports_are_linked(source: str) -> None:
    """A source is an issue, a pull request or a repository that everybody can open."""
    with pytest.raises(ValueError, match="no issue"):
        trouble_page.link(source)
