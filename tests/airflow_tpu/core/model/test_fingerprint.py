# SPDX-License-Identifier: Apache-2.0
"""What makes a training a new one."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_tpu.core.model.fingerprint import DataObject, code_digest, fingerprint

DATA = [DataObject("data/a.npz", 3, "AAAAAA=="), DataObject("data/b.npz", 4, "BBBBBB==")]


def test_order_of_a_listing_does_not_count() -> None:
    """The same objects in another order are the same data."""
    assert fingerprint(DATA, "code", {"seed": 0}) == fingerprint(DATA[::-1], "code", {"seed": 0})


@pytest.mark.parametrize(
    ("data", "code", "settings"),
    [
        (DATA[:1], "code", {"seed": 0}),
        ([DATA[0], DataObject("data/b.npz", 4, "CCCCCC==")], "code", {"seed": 0}),
        ([DATA[0], DataObject("data/c.npz", 4, "BBBBBB==")], "code", {"seed": 0}),
        (DATA, "other", {"seed": 0}),
        (DATA, "code", {"seed": 1}),
    ],
)
def test_each_part_counts(data: list[DataObject], code: str, settings: dict[str, Any]) -> None:
    """An object more or less, other content, another name, other code or settings make another fingerprint."""
    assert fingerprint(data, code, settings) != fingerprint(DATA, "code", {"seed": 0})


def test_code_is_what_travels_and_what_is_fetched() -> None:
    """Other files, or another revision of what the script fetches, are other code."""
    assert code_digest("a", "v1") == code_digest("a", "v1")
    assert len({code_digest("a", "v1"), code_digest("a", "v2"), code_digest("b", "v1"), code_digest("a", "")}) == 4
