# SPDX-License-Identifier: Apache-2.0
"""docs/form.md is what the table of form fields says."""

from __future__ import annotations

from pathlib import Path

from airflow_tpu.core.request.form_fields import FORM
from scripts import form_page

ROOT = Path(__file__).parents[2]


def test_the_page_is_up_to_date() -> None:
    """The page in docs/ is the one that ``python scripts/form_page.py`` writes today."""
    assert (ROOT / "docs" / "form.md").read_text(encoding="utf-8") == form_page.page()


def test_every_field_is_on_the_page_once() -> None:
    """Each row of the table is one row of the page, whatever its section."""
    rows = [line for line in form_page.page().splitlines() if line.startswith("| `")]
    assert [row.split("`")[1] for row in rows] == list(FORM)
