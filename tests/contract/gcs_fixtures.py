# SPDX-License-Identifier: Apache-2.0
"""The fixture of the storage contract."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.contract.gcs_target import Target, open_target


@pytest.fixture(scope="module")
def target() -> Iterator[Target]:
    """What the contract is checked against."""
    with open_target() as chosen:
        yield chosen
