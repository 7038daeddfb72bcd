# SPDX-License-Identifier: Apache-2.0
"""The project of the credentials beside that of the grant."""

from __future__ import annotations

import pytest

from airflow_tpu.core.grant.project_identity import identity_warnings


@pytest.mark.parametrize(
    ("key", "quota", "named"),
    [
        (None, None, []),
        ("mine", "mine", []),
        ("other", None, ["key is of project other"]),
        (None, "third", ["quota of project third"]),
        ("other", "third", ["key is of project other", "quota of project third"]),
    ],
)
def test_every_other_project_of_the_credentials_is_named(key: str | None, quota: str | None, named: list[str]) -> None:
    """Key and quota project are compared apart; credentials without a project give nothing to compare."""
    found = identity_warnings("mine", key, quota)
    assert [part in line for part, line in zip(named, found, strict=True)] == [True] * len(named)
    assert all("given to mine" in line for line in found)
