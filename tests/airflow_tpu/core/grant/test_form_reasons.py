# SPDX-License-Identifier: Apache-2.0
"""A form that is wrong by itself and against the grant: one error with both."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from airflow_tpu.core.catalogue.catalogue import Catalogue
from airflow_tpu.core.grant.alternatives import form_defaults
from airflow_tpu.core.grant.form_reasons import with_grant
from airflow_tpu.core.grant.grant import Grant
from airflow_tpu.core.request.run_conf import RunConf
from airflow_tpu.errors import ConfigError, Fault

NOW = datetime(2026, 11, 27, 12, tzinfo=UTC)
FORM: dict[str, Any] = {
    "script": "digits.py",
    "accelerator_type": "v2-8",
    "zone": "us-central1-f",
    "artifacts_uri": "gs://trc-local/runs",
}


@pytest.fixture
def local(local_grant: Grant, catalogue: Catalogue) -> tuple[Catalogue, Grant]:
    """What forms are held against."""
    return catalogue, local_grant


def faults_of(local: tuple[Catalogue, Grant], **changes: Any) -> list[Fault]:
    """All faults of a form, its own and the grant's."""
    catalogue, grant = local
    form = {**FORM, **changes}
    with pytest.raises(ConfigError) as caught:
        RunConf.parse(form, catalogue)
    error = with_grant(caught.value, form, catalogue, grant, NOW)
    assert error.subject == "the trigger form"
    return list(error.faults)


def test_every_reason_against_a_slice(local: tuple[Catalogue, Grant]) -> None:
    """Not driven yet, wrong image, not to be made of devices, an address for each worker: said together."""
    faults = faults_of(local, accelerator_type="v2-32", zone="us-central1-a", runtime_version="tpu-vm-tf-2.18.0-pjrt")
    said = [(fault.field, fault.nearest) for fault in faults]
    assert said == [
        ("accelerator_type", "v2-8"),
        ("runtime_version", "tpu-vm-tf-2.18.0-pod-pjrt"),
        ("accelerator_type", "v2-8"),
        ("zone", "us-central1-f"),
        ("internal_ips", "true"),
    ]
    assert "devices cannot form pods" in faults[2].problem
    assert "each of 4 workers an external IPv4 address" in faults[4].problem


def test_a_covered_slice_is_only_not_driven(local: tuple[Catalogue, Grant]) -> None:
    """What the grant covers has one reason against it, and internal addresses are no longer asked for."""
    slice_of_chips = {"accelerator_type": "v4-64", "zone": "us-central2-b", "internal_ips": True}
    assert [fault.field for fault in faults_of(local, **slice_of_chips)] == ["accelerator_type"]


def test_a_wrong_field_and_a_wrong_zone(local: tuple[Catalogue, Grant]) -> None:
    """A typing error in the script does not hide that the type is not granted there."""
    faults = faults_of(local, script="/etc/passwd", zone="us-central1-b")
    assert [(fault.field, fault.nearest) for fault in faults] == [("script", "passwd"), ("zone", "us-central1-f")]


def test_a_run_across_the_end(local: tuple[Catalogue, Grant]) -> None:
    """The term is checked too, from the moment of the form."""
    catalogue, grant = local
    form = {**FORM, "script": "/etc/passwd", "deadline_hours": 3}
    wrong = ConfigError([Fault("script", "/etc/passwd", "is absolute")])
    error = with_grant(wrong, form, catalogue, grant, grant.ends_at - timedelta(hours=2))
    assert [fault.field for fault in error.faults] == ["script", "deadline_hours"]


@pytest.mark.parametrize(
    "changes",
    [
        {"accelerator_type": "v2-9"},
        {"accelerator_type": ["v2-8"]},
        {"zone": "mars"},
        {"tier": "free", "zone": "us-central1-a"},
        {"deadline_hours": "soon", "zone": "us-central1-a"},
        {
            "script": "/x",
            "zone": "us-central1-b",
            "allow_paid_reason": "at most 200 USD a run until 2026-12-20T00:00Z for spot v2-8 in us-central1-b of "
            "local-project because it is due",
        },
    ],
    ids=str,
)
def test_nothing_is_guessed(local: tuple[Catalogue, Grant], changes: dict[str, Any]) -> None:
    """Where the form does not say what is wanted, or accepts what it costs, the grant has nothing against it."""
    catalogue, _ = local
    with pytest.raises(ConfigError) as alone:
        RunConf.parse({**FORM, **changes}, catalogue)
    assert faults_of(local, **changes) == list(alone.value.faults)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"accelerator_type": "v3-8"}, ("accelerator_type", "no row of the grant fits, so give zone")),
        ({"zone": "us-west1-c"}, ("zone", "no row of the grant fits, so give accelerator_type")),
        (
            {"accelerator_type": "v2-8", "tier": "preemptible"},
            ("accelerator_type", "no row of the grant fits together with tier preemptible, so give zone"),
        ),
    ],
)
def test_what_no_row_fits_is_not_guessed(
    local: tuple[Catalogue, Grant], given: dict[str, str], said: tuple[str, str]
) -> None:
    """A zone or type that no row could fill is missing, and the rows there are stand beside what was asked."""
    catalogue, grant = local
    asked = {"script": "digits.py", **given}
    asked |= form_defaults(asked, grant, catalogue)
    with pytest.raises(ConfigError) as caught:
        RunConf.parse(asked, catalogue)
    fault = with_grant(caught.value, asked, catalogue, grant, NOW).faults[-1]
    assert (fault.field, fault.problem) == said
    assert fault.allowed == tuple(map(str, grant.allowances))
