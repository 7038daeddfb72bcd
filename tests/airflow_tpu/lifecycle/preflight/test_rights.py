# SPDX-License-Identifier: Apache-2.0
"""The rights that a run will need are tried before a TPU is asked for."""

from __future__ import annotations

import logging

import pytest

from airflow_tpu.errors import AccessDenied, Retry
from airflow_tpu.lifecycle.connections import Connections
from airflow_tpu.lifecycle.lease import check_grant
from airflow_tpu.lifecycle.preflight.rights import PERMISSIONS, check_rights
from airflow_tpu.lifecycle.run_context import RunContext
from tests.airflow_tpu.cloud_env import BUCKET, FORM, KEY, ROOT, CloudEnv


def work() -> RunContext:
    """A run of the form, through the connections of this process."""
    return RunContext(KEY, {**FORM, "tier": "on-demand"}, Connections())


def test_run_with_all_rights_leaves_no_trace(env: CloudEnv, caplog: pytest.LogCaptureFixture) -> None:
    """What was written to try is deleted, and every permission was asked for."""
    with caplog.at_level(logging.INFO):
        check_rights(work())
    assert [item.name for item in env.storage.listing(f"gs://{BUCKET}/") if "/rights/" in item.name] == []
    assert "could not be asked for" not in caplog.text


def test_a_place_below_another_is_not_tried_again(env: CloudEnv) -> None:
    """Artifacts below the grant's prefix need no rights of their own: one object is written, read, listed, deleted."""
    run, before = RunContext(KEY, {**FORM, "artifacts_uri": f"{ROOT}/runs"}, Connections()), env.storage_requests()
    check_rights(run)
    asked = env.storage_requests() - before
    assert asked == {"objects.insert": 1, "objects.media": 1, "objects.list": 1, "objects.delete": 1}


@pytest.mark.parametrize(
    ("method", "right"), [("POST", "storage.objects.create"), ("DELETE", "storage.objects.delete")]
)
@pytest.mark.parametrize("prefix", ["airflow-tpu/rights/*", "runs/rights/*"])
def test_bucket_that_may_not_be_written(env: CloudEnv, method: str, right: str, prefix: str) -> None:
    """The first task says so, of the prefix of the grant and of the artifacts, with right and role."""
    env.cloud.add_fault("gcs.request", {"method": method, "object": prefix}, action="403", times=10)
    with pytest.raises(AccessDenied, match=f"lacks {right}: give it roles/storage.objectAdmin") as caught:
        check_grant(work())
    assert caught.value.retry is Retry.NEVER
    assert env.nodes() == {}


def test_project_on_which_a_permission_is_missing(env: CloudEnv) -> None:
    """Every permission that the account lacks is named at once, before the API is asked for a TPU."""
    for each in ("tpu.nodes.create", "tpu.nodes.update"):
        env.cloud.add_fault("iam.test", {"permission": each})
    words = r"lacks tpu\.nodes\.create, tpu\.nodes\.update on the project local-project.*roles/tpu\.admin"
    with pytest.raises(AccessDenied, match=words):
        check_grant(work())
    assert env.calls("CreateNode") == []


def test_account_without_any_permission(env: CloudEnv) -> None:
    """Google answers with no list at all then."""
    for each in PERMISSIONS:
        env.cloud.add_fault("iam.test", {"permission": each})
    with pytest.raises(AccessDenied, match=r"lacks tpu\.nodes\.create, .* on the project"):
        check_rights(work())
