# SPDX-License-Identifier: Apache-2.0
"""Facts of a bucket, asked of the local cloud: location, and what removed objects are billed for."""

from __future__ import annotations

import pytest

from airflow_tpu.errors import ConfigError
from airflow_tpu.hooks.artifacts import ArtifactsHook
from tests.airflow_tpu.cloud_env import BUCKET, CloudEnv


def test_location_of_a_bucket(env: CloudEnv) -> None:
    """The location is the bucket's own, in capitals."""
    assert env.storage.facts.location(BUCKET) == "US-CENTRAL1"


def test_location_that_may_not_be_read_is_unknown(env: CloudEnv) -> None:
    """A 403 means unknown: it is never taken for the TPU's region."""
    env.cloud.add_fault("gcs.request", {"bucket": BUCKET}, action="403")
    assert env.storage.facts.location(BUCKET) is None
    assert env.cloud.cloud.faults.unused() == []


def test_metadata_of_a_bucket_are_asked_for_once(env: CloudEnv) -> None:
    """Place, project, retention and payer are one request, and objects need none, missing ones included."""
    storage, before = ArtifactsHook(), env.storage_requests()
    storage.read_json(f"gs://{BUCKET}/missing")
    storage.write_json(f"gs://{BUCKET}/new", {})
    facts = storage.facts
    assert facts.location(BUCKET) == "US-CENTRAL1"
    assert facts.project_number(BUCKET) is not None
    assert facts.retention(BUCKET) is not None
    assert facts.fault("data_uri", BUCKET) is None
    storage.read_json(f"gs://{BUCKET}/missing")
    asked = env.storage_requests() - before
    assert asked == {"buckets.get": 1, "objects.media": 2, "objects.insert": 1}


def test_location_of_a_missing_bucket_is_a_fault_of_the_form(env: CloudEnv) -> None:
    """A misspelt bucket is named before anything is created."""
    with pytest.raises(ConfigError, match="gs://no-such-bucket"):
        env.storage.facts.location("no-such-bucket")


def test_what_was_removed_is_billed_on(env: CloudEnv) -> None:
    """Bytes of replaced and removed objects are counted below the text of the URI; a refused listing is unknown."""
    for data in (b"12345", b"123"):
        env.storage.upload(bucket_name=BUCKET, object_name="kept/a", data=data)
    env.storage.upload(bucket_name=BUCKET, object_name="kept/b", data=b"1234567")
    env.storage.remove(f"gs://{BUCKET}/kept/b")
    assert env.storage.facts.soft_deleted(f"gs://{BUCKET}/kept/") == 12
    assert env.storage.facts.soft_deleted(f"gs://{BUCKET}/other/") == 0
    env.cloud.add_fault("gcs.request", {"bucket": BUCKET}, action="403")
    assert env.storage.facts.soft_deleted(f"gs://{BUCKET}/kept/") is None
