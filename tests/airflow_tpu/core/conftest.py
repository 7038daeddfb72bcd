# SPDX-License-Identifier: Apache-2.0
"""The catalogue and the grants that ship with the project: pure decisions are tested against the real tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from airflow_tpu.core.catalogue.catalogue import Catalogue
from airflow_tpu.core.grant.grant import Grant

INCLUDE = Path(__file__).parents[3] / "include"


@pytest.fixture(scope="session")
def catalogue() -> Catalogue:
    """Types, zones, prices and runtime versions of ``include/catalogue``."""
    return Catalogue.load(INCLUDE / "catalogue")


@pytest.fixture
def grant_mapping() -> dict[str, Any]:
    """The example grant file, fresh for each test to spoil."""
    loaded: dict[str, Any] = yaml.safe_load((INCLUDE / "grants" / "example.yaml").read_text(encoding="utf-8"))
    return loaded


@pytest.fixture(scope="session")
def local_grant(catalogue: Catalogue) -> Grant:
    """The grant of the local cloud."""
    return Grant.parse(
        yaml.safe_load((INCLUDE / "grants" / "local.yaml").read_text(encoding="utf-8")), catalogue.generations
    )
