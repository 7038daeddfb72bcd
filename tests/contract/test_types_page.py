# SPDX-License-Identifier: Apache-2.0
"""docs/tpu-types.md is what the catalogue says."""

from __future__ import annotations

from pathlib import Path

from scripts import types_page

ROOT = Path(__file__).parents[2]
PRICED = 4  # columns of the table of prices


def test_the_page_is_up_to_date() -> None:
    """The page in docs/ is the one that ``python scripts/types_page.py`` writes today."""
    assert (ROOT / "docs" / "tpu-types.md").read_text(encoding="utf-8") == types_page.page()


def test_every_price_is_on_the_page() -> None:
    """Each type stands beside each zone that has it; an unpublished price is unknown, not 0."""
    rows = [row.split(" | ") for row in types_page.page().splitlines() if row.startswith("| ")]
    pairs = [(row[0][2:].split(", "), row[1].split(", ")) for row in rows if len(row) == PRICED]
    priced = {(name, zone) for names, zones in pairs for name in names for zone in zones}
    types = {row["accelerator_type"] for row in types_page.rows("accelerators") if row["tf_runtime_version"]}
    listed = {(row["accelerator_type"], row["zone"]) for row in types_page.rows("prices")}
    assert {pair for pair in listed if pair[0] in types} == priced - {("types", "zones")}
    assert [row for row in rows if "" in (cell.strip(" |") for cell in row[-2:])] == []
