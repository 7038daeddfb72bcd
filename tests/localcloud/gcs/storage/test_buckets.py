# SPDX-License-Identifier: Apache-2.0
"""Buckets of the local storage server: what the contract does not try on a real one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from google.api_core.exceptions import Conflict, NotFound, PreconditionFailed

from localcloud.gcs.storage.errors import GCSError
from tests.contract.gcs_target import RunningServer


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[RunningServer]:
    """An empty storage server."""
    with RunningServer(tmp_path) as server:
        yield server


def test_created_bucket_says_what_it_is(cloud: RunningServer) -> None:
    """A new bucket has its location, uniform access, storage class and metageneration 1."""
    cloud.client().create_bucket("fresh", location="europe-west4")
    seen = cloud.client().get_bucket("fresh")
    assert (seen.location, seen.location_type, seen.storage_class) == ("EUROPE-WEST4", "region", "STANDARD")
    assert seen.iam_configuration.uniform_bucket_level_access_enabled
    assert seen.metageneration == 1


def test_bucket_without_a_location_is_in_the_us(cloud: RunningServer) -> None:
    """Google's default location is the multi-region US."""
    bucket = cloud.client().create_bucket("fresh")
    assert (bucket.location, bucket.location_type) == ("US", "multi-region")


def test_policies_are_what_was_asked_for(cloud: RunningServer) -> None:
    """A bucket can be created with soft delete, retention and versioning, and each is read back and switched off."""
    asked = cloud.client().bucket("fresh")
    asked.soft_delete_policy.retention_duration_seconds = 30 * 86_400
    asked.retention_period = 3600
    asked.versioning_enabled = True
    asked.create()
    seen = cloud.client().get_bucket("fresh")
    assert (seen.soft_delete_policy.retention_duration_seconds, seen.retention_period) == (30 * 86_400, 3600)
    assert seen.versioning_enabled
    assert seen.soft_delete_policy.effective_time == seen.retention_policy_effective_time == seen.time_created
    seen.soft_delete_policy.retention_duration_seconds = 0
    seen.retention_period = None
    seen.versioning_enabled = False
    seen.patch()
    seen = cloud.client().get_bucket("fresh")
    assert (seen.soft_delete_policy.retention_duration_seconds, seen.retention_period) == (0, None)
    assert not seen.versioning_enabled


def test_new_bucket_keeps_deleted_objects_for_a_week(cloud: RunningServer) -> None:
    """As at Google, a bucket that is created without a soft-delete policy has one of 7 days."""
    cloud.server.create_bucket("fresh")
    assert cloud.client().get_bucket("fresh").soft_delete_policy.retention_duration_seconds == 7 * 86_400


@pytest.mark.parametrize("seconds", ["3600", "-1", "soon", str(91 * 86_400)])
def test_soft_delete_of_another_length_is_refused(cloud: RunningServer, seconds: str) -> None:
    """Soft delete is off, or from 7 to 90 days."""
    body: Any = {"name": "fresh", "softDeletePolicy": {"retentionDurationSeconds": seconds}}
    assert requests.post(f"{cloud.url}/storage/v1/b?project=p", json=body).status_code == 400


def test_taken_name_is_a_conflict(cloud: RunningServer) -> None:
    """Creating a bucket twice is a 409."""
    cloud.client().create_bucket("fresh")
    with pytest.raises(Conflict):
        cloud.client().create_bucket("fresh")


@pytest.mark.parametrize("name", ["ab", "Upper", "a" * 64, "-dash", "dash-", "goog-x", "my-google-x", "sp ace"])
def test_forbidden_name_is_refused(cloud: RunningServer, name: str) -> None:
    """A name against Google's rules is a 400, from outside and from inside the process."""
    assert requests.post(f"{cloud.url}/storage/v1/b?project=p", json={"name": name}).status_code == 400
    with pytest.raises(GCSError):
        cloud.server.create_bucket(name)


def test_bucket_with_objects_cannot_be_deleted(cloud: RunningServer) -> None:
    """Deleting a non-empty bucket is a 409; once empty it goes, open uploads included."""
    bucket = cloud.client().create_bucket("fresh")
    bucket.blob("x").upload_from_string(b"x")
    bucket.blob("y").create_resumable_upload_session()
    with pytest.raises(Conflict):
        bucket.delete()
    bucket.blob("x").delete()
    bucket.delete()
    with pytest.raises(NotFound):
        cloud.client().get_bucket("fresh")
    assert list(cloud.root.glob("blobs/??/*")) == []


def test_buckets_are_listed_by_project(cloud: RunningServer) -> None:
    """A list holds the project's own buckets, in pages."""
    for name in ("one", "two", "three"):
        cloud.client("mine").create_bucket(name)
    cloud.client("other").create_bucket("theirs")
    pages = list(cloud.client("mine").list_buckets(page_size=2).pages)
    assert [[bucket.name for bucket in page] for page in pages] == [["one", "three"], ["two"]]
    assert [bucket.name for bucket in cloud.client("mine").list_buckets(prefix="t")] == ["three", "two"]


def test_patch_merges_and_null_deletes(cloud: RunningServer) -> None:
    """Labels are merged, a removed one is gone, and the metageneration counts the changes."""
    bucket = cloud.client().create_bucket("fresh")
    bucket.labels = {"a": "1", "b": "2"}
    bucket.patch()
    labels = bucket.labels
    del labels["a"]
    bucket.labels = labels
    bucket.patch()
    seen = cloud.client().get_bucket("fresh")
    assert (seen.labels, seen.metageneration) == ({"b": "2"}, 3)


def test_metageneration_condition(cloud: RunningServer) -> None:
    """Changing and deleting another version of the bucket than the expected one is a 412."""
    bucket = cloud.client().create_bucket("fresh")
    with pytest.raises(PreconditionFailed):
        bucket.patch(if_metageneration_match=7)
    with pytest.raises(PreconditionFailed):
        bucket.delete(if_metageneration_match=7)
    assert bucket.exists()


def test_bucket_made_twice_from_inside_stays(cloud: RunningServer) -> None:
    """Making a bucket of the configuration again leaves it, its location and its objects alone."""
    cloud.server.create_bucket("fresh", "US-CENTRAL1")
    cloud.client().bucket("fresh").blob("x").upload_from_string(b"x")
    cloud.server.create_bucket("fresh", "EUROPE-WEST4")
    assert cloud.client().get_bucket("fresh").location == "US-CENTRAL1"
    assert cloud.client().bucket("fresh").blob("x").exists()


def test_stats_count_bytes_and_requests(cloud: RunningServer) -> None:
    """Bytes kept, received and sent are counted per bucket, requests per operation."""
    bucket = cloud.client().create_bucket("fresh")
    session = bucket.blob("x").create_resumable_upload_session()
    cloud.client()._http.put(session, data=b"x" * 1000)
    bucket.blob("x").download_as_bytes(end=99)
    stats = cloud.server.stats()
    row = stats["buckets"]["fresh"]
    assert (row["objects"], row["bytes_stored"], row["bytes_out"]) == (1, 1000, 100)
    assert row["bytes_in"] >= 1000
    assert {op: stats["requests"][op] for op in ("uploads.start", "uploads.put", "objects.media")} == {
        "uploads.start": 1,
        "uploads.put": 1,
        "objects.media": 1,
    }


def test_soft_deleted_objects_are_listed_apart(cloud: RunningServer) -> None:
    """What was deleted or replaced is in the soft-deleted listing only; without the policy nothing is kept."""
    client = cloud.client()
    bucket = client.create_bucket("fresh")
    for name, size in (("a/1", 3), ("a/1", 5), ("a/2", 7), ("b", 11)):
        bucket.blob(name).upload_from_string(bytes(size))
    bucket.blob("a/2").delete()
    gone = list(client.list_blobs("fresh", prefix="a/", soft_deleted=True))
    assert [(blob.name, blob.size) for blob in gone] == [("a/1", 3), ("a/2", 7)]
    assert (gone[0].hard_delete_time - gone[0].soft_delete_time).days == 7
    assert [(blob.name, blob.size) for blob in client.list_blobs("fresh", prefix="a/")] == [("a/1", 5)]
    bucket.soft_delete_policy.retention_duration_seconds = 0
    bucket.patch()
    bucket.blob("b").delete()
    assert len(list(client.list_blobs("fresh", soft_deleted=True))) == 2
