# SPDX-License-Identifier: Apache-2.0
"""The text of a row of a grant."""

from __future__ import annotations

import pytest

from airflow_tpu.core.grant.allowance import Allowance
from airflow_tpu.core.tpu.spec import Tier
from tests.airflow_tpu.shipped import GENERATIONS


@pytest.mark.parametrize(
    "row",
    [
        Allowance(5, "devices", Tier.ON_DEMAND, "us-central1-f", "v2", "v2-8"),
        Allowance(64, "chips", Tier.SPOT, "europe-west4-b", "v5e"),
        Allowance(16, "chips", Tier.SPOT, "europe-west4-b", "v5e", "v5litepod-8"),
    ],
)
def test_a_row_is_read_back_from_its_text(row: Allowance) -> None:
    """The ledger keeps rows as a person reads them."""
    assert Allowance.parse(str(row), GENERATIONS) == row


@pytest.mark.parametrize(
    "text", ["", "100 spot ...", "5 free v2-8 devices in us-central1-f", "5 spot v99-8 devices in us-central1-f"]
)
def test_a_text_that_is_no_row(text: str) -> None:
    """What cannot be read is no row, rather than a guess."""
    assert Allowance.parse(text, GENERATIONS) is None
