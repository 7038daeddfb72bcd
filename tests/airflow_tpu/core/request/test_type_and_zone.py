# SPDX-License-Identifier: Apache-2.0
"""Network, subnetwork and account of the TPU VM in the form."""

from __future__ import annotations

import pytest

from airflow_tpu.core.catalogue.catalogue import Catalogue
from airflow_tpu.core.request.run_conf import RunConf
from airflow_tpu.errors import ConfigError

FORM = {
    "script": "hello.py",
    "accelerator_type": "v2-8",
    "zone": "us-central1-f",
    "artifacts_uri": "gs://trc-local/runs",
}


@pytest.mark.parametrize(
    ("field", "value", "read"),
    [
        ("network", "shared", "shared"),
        ("network", " projects/host-1/global/networks/shared ", "projects/host-1/global/networks/shared"),
        ("network", "projects/example.com:host/global/networks/n", "projects/example.com:host/global/networks/n"),
        (
            "network",
            "https://www.googleapis.com/compute/v1/projects/p/global/networks/n",
            "projects/p/global/networks/n",
        ),
        ("subnetwork", "tpu", "tpu"),
        (
            "subnetwork",
            "projects/h/regions/us-central1/subnetworks/tpu",
            "projects/h/regions/us-central1/subnetworks/tpu",
        ),
        ("service_account", "vm@p.iam.gserviceaccount.com", "vm@p.iam.gserviceaccount.com"),
        ("service_account", "1-compute@developer.gserviceaccount.com", "1-compute@developer.gserviceaccount.com"),
        ("service_account", None, ""),
    ],
)
def test_names_as_google_spells_them(catalogue: Catalogue, field: str, value: str | None, read: str) -> None:
    """A short name, one with its project (of a shared VPC), and a URL that was copied from the console."""
    assert getattr(RunConf.parse({**FORM, field: value}, catalogue), field) == read


@pytest.mark.parametrize(
    ("field", "value", "problem"),
    [
        ("network", "projects/p/regions/us-central1/subnetworks/n", "is no name of a VPC network"),
        ("network", "Default", "is no name of a VPC network; allowed: .*; nearest: default"),
        ("subnetwork", "10.0.0.0/24", "is no name of a subnetwork"),
        (
            "subnetwork",
            "projects/h/regions/us-east1/subnetworks/t",
            "is in us-east1.*nearest: .*us-central1/subnetworks/t",
        ),
        ("service_account", "anna@example.com", "is no e-mail of a service account"),
        ("service_account", "vm", "is no e-mail of a service account"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_created(
    catalogue: Catalogue, field: str, value: str, problem: str
) -> None:
    """The fault names the field, the forms that are allowed, and the nearest name where there is one."""
    with pytest.raises(ConfigError, match=f"{field} = .*{problem}"):
        RunConf.parse({**FORM, field: value}, catalogue)
