# SPDX-License-Identifier: Apache-2.0
"""docs/errors.md is what the error tree says."""

from __future__ import annotations

from pathlib import Path

from airflow_tpu import errors
from airflow_tpu.consequences import ADVICE
from airflow_tpu.core.tpu.api_error_rules import RULES
from scripts import errors_page
from scripts.errors_page import SAID, TOKENS, said_row

ROOT = Path(__file__).parents[2]


def test_every_leaf_has_advice_and_no_advice_is_left_over() -> None:
    """Each error that can be raised tells a person what to do, and no advice is for an error that is gone."""
    assert {kind.__name__ for kind in errors_page.leaves(errors.TPUError)} == set(ADVICE)


def test_every_text_of_the_api_that_is_known_can_be_searched_for() -> None:
    """Each rule by which a text of the API is recognised has an example on the page, with advice."""
    listed = [(text, reason) for _, text, reason in SAID] + [(text, "") for text in TOKENS]
    assert [rule.pattern for rule in RULES if not any(rule.fits(text, reason) for text, reason in listed)] == []
    assert [row for row in (said_row(*said) for said in SAID) if row.endswith("|  |")] == []


def test_the_page_is_up_to_date() -> None:
    """The page in docs/ is the one that ``python scripts/errors_page.py`` writes today."""
    assert (ROOT / "docs" / "errors.md").read_text(encoding="utf-8") == errors_page.page()
