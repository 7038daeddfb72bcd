# SPDX-License-Identifier: Apache-2.0
"""What the grant fills in of a run that leaves fields out."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_tpu.core.catalogue.catalogue import Catalogue
from airflow_tpu.core.grant.alternatives import form_defaults
from airflow_tpu.core.grant.grant import Grant
from airflow_tpu.core.request.form_fields import FROM_GRANT

URI = "gs://trc-local/airflow-tpu/runs"


@pytest.mark.parametrize(
    ("given", "filled"),
    [
        ({}, ("v2-8", "us-central1-f", "on-demand")),
        ({"tier": "spot"}, ("v2-8", "us-central1-f", "spot")),
        ({"zone": "us-central2-b"}, ("v4-8", "us-central2-b", "spot")),
        ({"zone": "us-central2-b", "tier": "on-demand"}, ("v4-8", "us-central2-b", "on-demand")),
        ({"accelerator_type": "v5litepod-8"}, ("v5litepod-8", "europe-west4-b", "spot")),
        ({"accelerator_type": "v6e-4", "zone": "us-east1-d"}, ("v6e-4", "us-east1-d", "spot")),
    ],
)
def test_the_first_row_that_fits(
    local_grant: Grant, catalogue: Catalogue, given: dict[str, str], filled: tuple[str, str, str]
) -> None:
    """Type, zone and tier come from one row, the first that has what is given."""
    found = {**form_defaults(given, local_grant, catalogue), **given}
    assert tuple(found[name] for name in ("accelerator_type", "zone", "tier")) == filled
    assert set(found) == set(FROM_GRANT)


def test_what_is_given_is_not_filled(local_grant: Grant, catalogue: Catalogue) -> None:
    """Fields that are given stay away from the answer, good or bad; the bucket comes from the grant."""
    given: dict[str, Any] = {"accelerator_type": "v2-8", "zone": "us-central1-f", "tier": "on-demand", "seed": 1}
    assert form_defaults(given, local_grant, catalogue) == {"artifacts_uri": URI}
    assert form_defaults({**given, "artifacts_uri": 7, "zone": None}, local_grant, catalogue) == {}
