# SPDX-License-Identifier: Apache-2.0
"""Accept the bill of a refused request, as a person does."""

from __future__ import annotations

from airflow_tpu.errors import GrantError


def completed(refusal: GrantError, reason: str) -> str:
    """The line that a refusal prints, with a reason in place of the dots."""
    line = refusal.advice.splitlines()[-1]
    assert line.endswith(" because ...")
    return line.removesuffix("...") + reason
