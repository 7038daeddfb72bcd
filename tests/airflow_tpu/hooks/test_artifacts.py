"""Cloud Storage as the project uses it: locations, listings, JSON objects with preconditions."""

from __future__ import annotations

import pytest

from airflow_tpu.errors import ConfigError
from airflow_tpu.hooks.artifacts import ArtifactsHook, split_uri
from tests.airflow_tpu.site import BUCKET, Site


def test_location_of_a_bucket(site: Site) -> None:
    """The location is the bucket's own, in capitals."""
    assert site.storage.location(BUCKET) == "US-CENTRAL1"


def test_location_that_may_not_be_read_is_unknown(site: Site) -> None:
    """A 403 means unknown: it is never taken for the TPU's region."""
    site.cloud.add_fault("gcs.request", {"bucket": BUCKET}, action="403")
    assert site.storage.location(BUCKET) is None
    assert site.cloud.cloud.faults.unused() == []


def test_location_of_a_missing_bucket_is_a_fault_of_the_form(site: Site) -> None:
    """A misspelt bucket is named before anything is created."""
    with pytest.raises(ConfigError, match="gs://no-such-bucket"):
        site.storage.location("no-such-bucket")


def test_what_was_removed_is_billed_on(site: Site) -> None:
    """Bytes of replaced and removed objects are counted below the text of the URI; a refused listing is unknown."""
    for data in (b"12345", b"123"):
        site.storage.upload(bucket_name=BUCKET, object_name="kept/a", data=data)
    site.storage.upload(bucket_name=BUCKET, object_name="kept/b", data=b"1234567")
    site.storage.remove(f"gs://{BUCKET}/kept/b")
    assert site.storage.soft_deleted(f"gs://{BUCKET}/kept/") == 12
    assert site.storage.soft_deleted(f"gs://{BUCKET}/other/") == 0
    site.cloud.add_fault("gcs.request", {"bucket": BUCKET}, action="403")
    assert site.storage.soft_deleted(f"gs://{BUCKET}/kept/") is None


def test_write_only_if_absent(site: Site) -> None:
    """With generation 0 the first object stays and the second write is refused."""
    uri = f"gs://{BUCKET}/a/first.json"
    assert site.storage.write_json(uri, {"n": 1}, generation=0) is not None
    assert site.storage.write_json(uri, {"n": 2}, generation=0) is None
    found = site.storage.read_json(uri)
    assert found is not None
    assert found.data == {"n": 1}


def test_write_over_a_known_generation(site: Site) -> None:
    """A write succeeds over the generation it names, and fails once that has changed."""
    uri = f"gs://{BUCKET}/a/changing.json"
    first = site.storage.write_json(uri, {"n": 1})
    second = site.storage.write_json(uri, {"n": 2}, generation=first)
    assert second not in (None, first)
    assert site.storage.write_json(uri, {"n": 3}, generation=first) is None
    found = site.storage.read_json(uri)
    assert found is not None
    assert (found.data, found.generation) == ({"n": 2}, second)


@pytest.mark.parametrize("generation", [0, None])
def test_answer_lost_after_the_commit(site: Site, generation: int | None) -> None:
    """A write that took effect counts as written although its answer was lost and the repetition met itself."""
    uri = f"gs://{BUCKET}/a/lost.json"
    site.cloud.add_fault("gcs.request", {"bucket": BUCKET, "method": "POST"}, action="lose-response")
    written = site.storage.write_json(uri, {"n": 1}, generation)
    assert site.cloud.cloud.faults.unused() == []
    found = site.storage.read_json(uri)
    assert found is not None
    assert found.generation == written


def test_unavailable_storage_is_tried_again(site: Site) -> None:
    """A 503 or a dropped connection costs a repetition, not the task."""
    uri = f"gs://{BUCKET}/a/again.json"
    site.cloud.add_fault("gcs.request", {"bucket": BUCKET, "method": "POST"}, action="503")
    assert site.storage.write_json(uri, {"n": 1}, generation=0) is not None
    site.cloud.add_fault("gcs.request", {"bucket": BUCKET, "method": "GET"}, action="abort")
    found = site.storage.read_json(uri)
    assert found is not None
    assert found.data == {"n": 1}
    assert site.cloud.cloud.faults.unused() == []


def test_missing_object_is_none(site: Site) -> None:
    """Reading what is not there is an answer, removing it a success."""
    uri = f"gs://{BUCKET}/none.json"
    assert site.storage.read_json(uri) is None
    assert site.storage.read_end(uri) == b""
    site.storage.remove(uri)


def test_listing_takes_a_prefix_literally(site: Site) -> None:
    """A listing finds what begins with the text, whatever characters follow, and nothing else."""
    names = ["runs/a b/ü.txt", "runs/a b/x%2Fy", "runs/a bc", "runs/other"]
    for name in names:
        site.storage.write_json(f"gs://{BUCKET}/{name}", {})
    found = site.storage.listing(f"gs://{BUCKET}/runs/a b/")
    assert {item.name for item in found} == {"runs/a b/ü.txt", "runs/a b/x%2Fy"}
    assert all(item.size > 0 and item.crc32c and item.generation for item in found)
    assert len(site.storage.listing(f"gs://{BUCKET}")) == len(names)


def test_end_of_an_object(site: Site) -> None:
    """Only the last bytes are read; of a short object all, of an empty one none."""
    bucket = site.storage.get_conn().bucket(BUCKET)
    bucket.blob("log.txt").upload_from_string(b"0123456789")
    bucket.blob("empty.txt").upload_from_string(b"")
    assert site.storage.read_end(f"gs://{BUCKET}/log.txt", 4) == b"6789"
    assert site.storage.read_end(f"gs://{BUCKET}/log.txt", 100) == b"0123456789"
    assert site.storage.read_end(f"gs://{BUCKET}/empty.txt") == b""


@pytest.mark.parametrize("uri", ["s3://bucket/x", "gs://", "bucket/x", ""])
def test_what_is_no_uri_of_a_bucket(uri: str) -> None:
    """Anything but a gs:// URI is refused with its text."""
    with pytest.raises(ConfigError, match="is not a gs:// URI"):
        split_uri(uri)


def test_endpoint_is_the_connections_own(site: Site) -> None:
    """The hook reaches the endpoint of its connection without any variable that would redirect the whole process."""
    assert ArtifactsHook().get_client_options().api_endpoint == site.cloud.endpoints.storage_api_endpoint
