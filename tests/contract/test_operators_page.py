# SPDX-License-Identifier: Apache-2.0
"""docs/operators.md is what the docstrings say."""

from __future__ import annotations

from pathlib import Path

from scripts import operators_page

ROOT = Path(__file__).parents[2]


def test_the_page_is_up_to_date() -> None:
    """The page in docs/ is the one that ``python scripts/operators_page.py`` writes today."""
    assert (ROOT / "docs" / "operators.md").read_text(encoding="utf-8") == operators_page.page()


def test_every_operator_and_every_parameter_is_explained() -> None:
    """No operator of the package is missing, and none of its own parameters is without a word."""
    import inspect

    page = operators_page.page()
    for kind in operators_page.classes("operators"):
        section = page.split(f"### `{kind.__name__}`")[1].split("\n### ")[0]
        own = inspect.signature(vars(kind)["__init__"]).parameters if "__init__" in vars(kind) else {}
        names = set(own) - {"self", "kwargs"}
        assert {name for name in names if f"| `{name}` |" not in section} == set(), kind
