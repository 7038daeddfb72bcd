# SPDX-License-Identifier: Apache-2.0
"""The parameter ``fields`` of a request."""

from __future__ import annotations

import pytest

from localcloud.gcs.protocol.partial import Selection, selection

ALL: frozenset[str] = frozenset()


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ("items(name,size),nextPageToken", {"items": frozenset({"name", "size"}), "nextPageToken": ALL}),
        ("items,prefixes", {"items": ALL, "prefixes": ALL}),
        ("kind", {"kind": ALL}),
        ("", None),
        ("items/name", None),
        ("*", None),
        ("items(owner/entity)", None),
    ],
)
def test_fields_are_read(fields: str, expected: Selection | None) -> None:
    """Fields and the fields of their members; whatever goes deeper sends the whole answer."""
    assert selection(fields) == expected
