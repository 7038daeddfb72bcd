# SPDX-License-Identifier: Apache-2.0
"""docs/fault-matrix.md has the cells of the table in the code, each tried, each as it should be."""

from __future__ import annotations

import re
from pathlib import Path

from scripts import fault_matrix_page as pages
from tests.faults.cells import ALL, ALL_KILLS, FAILING, KNOWN, Cell, reason_against

ROOT = Path(__file__).parents[2]


def expected(cell: Cell) -> str:
    """What the page has to say of a cell."""
    if reason_against(cell):
        return f"- {pages.LETTERS[reason_against(cell)]}"
    if cell in KNOWN:
        return pages.NOT_YET
    return pages.REFUSED if cell in FAILING else pages.OK


def test_the_page_has_every_cell_as_it_should_be() -> None:
    """A cell that is new, gone, not tried or failed makes the page out of date: ``make soak`` writes it again."""
    found = pages.read((ROOT / "docs" / "fault-matrix.md").read_text(encoding="utf-8"))
    assert {cell: re.sub(r" \d+/\d+$", "", entry) for cell, entry in found.items()} == {
        cell: expected(cell) for cell in (*ALL, *ALL_KILLS)
    }


def test_a_cell_that_failed_is_not_hidden() -> None:
    """Each word of the page comes from the report: passed, refused as it has to be, failed, not tried."""
    report = """<testsuites><testsuite>
        <testcase name="test_cell[training: SSH cut]"/>
        <testcase name="test_cell[booting: host key changed]"/>
        <testcase name="test_cell[training: vanishes]"><failure/></testcase>
        <testcase name="test_killed[training: task killed]"/>
    </testsuite></testsuites>"""
    found = pages.read(pages.page(pages.outcomes(report), {}, ""))
    assert found.keys() == {*ALL, *ALL_KILLS}
    assert found[Cell("training", "SSH cut")] == pages.OK
    assert found[Cell("booting", "host key changed")] == pages.REFUSED
    assert found[Cell("training", "vanishes")] == pages.BROKEN
    assert found[Cell("training", "preempted, loudly")] == pages.NOT_RUN
    assert found[Cell("training", "task killed")] == pages.OK
    assert found[Cell("training", "scheduler killed")] == pages.NOT_RUN
