# SPDX-License-Identifier: Apache-2.0
"""Cloud Storage as the project uses it: locations, listings, JSON objects with preconditions."""

from __future__ import annotations

import pytest

from airflow_tpu.errors import ConfigError
from airflow_tpu.hooks.artifacts import ArtifactsHook
from airflow_tpu.hooks.bucket_facts import split_uri
from tests.airflow_tpu.cloud_env import BUCKET, CloudEnv


def test_write_only_if_absent(env: CloudEnv) -> None:
    """With generation 0 the first object stays and the second write is refused."""
    uri = f"gs://{BUCKET}/a/first.json"
    assert env.storage.write_json(uri, {"n": 1}, generation=0) is not None
    assert env.storage.write_json(uri, {"n": 2}, generation=0) is None
    found = env.storage.read_json(uri)
    assert found is not None
    assert found.data == {"n": 1}


def test_write_over_a_known_generation(env: CloudEnv) -> None:
    """A write succeeds over the generation it names, and fails once that has changed."""
    uri = f"gs://{BUCKET}/a/changing.json"
    first = env.storage.write_json(uri, {"n": 1})
    second = env.storage.write_json(uri, {"n": 2}, generation=first)
    assert second not in (None, first)
    assert env.storage.write_json(uri, {"n": 3}, generation=first) is None
    found = env.storage.read_json(uri)
    assert found is not None
    assert (found.data, found.generation) == ({"n": 2}, second)


@pytest.mark.parametrize("generation", [0, None])
def test_answer_lost_after_the_commit(env: CloudEnv, generation: int | None) -> None:
    """A write that took effect counts as written although its answer was lost and the repetition met itself."""
    uri = f"gs://{BUCKET}/a/lost.json"
    env.cloud.add_fault("gcs.request", {"bucket": BUCKET, "method": "POST"}, action="lose-response")
    written = env.storage.write_json(uri, {"n": 1}, generation)
    assert env.cloud.cloud.faults.unused() == []
    found = env.storage.read_json(uri)
    assert found is not None
    assert found.generation == written


def test_of_two_writers_of_the_same_content_one_loses(env: CloudEnv) -> None:
    """Equal content is not taken for one's own lost answer: two that make the same change must not both go on."""
    uri = f"gs://{BUCKET}/a/same.json"
    first = env.storage.write_json(uri, {"n": 1}, generation=0)
    assert env.storage.write_json(uri, {"n": 1}, generation=0) is None
    assert env.storage.write_json(uri, {"n": 2}, generation=first) is not None
    assert env.storage.write_json(uri, {"n": 2}, generation=first) is None


def test_unavailable_storage_is_tried_again(env: CloudEnv) -> None:
    """A 503 or a dropped connection costs a repetition, not the task."""
    uri = f"gs://{BUCKET}/a/again.json"
    env.cloud.add_fault("gcs.request", {"bucket": BUCKET, "method": "POST"}, action="503")
    assert env.storage.write_json(uri, {"n": 1}, generation=0) is not None
    env.cloud.add_fault("gcs.request", {"bucket": BUCKET, "method": "GET"}, action="abort")
    found = env.storage.read_json(uri)
    assert found is not None
    assert found.data == {"n": 1}
    assert env.cloud.cloud.faults.unused() == []


def test_missing_object_is_none(env: CloudEnv) -> None:
    """Reading what is not there is an answer, removing it a success."""
    uri = f"gs://{BUCKET}/none.json"
    assert env.storage.read_json(uri) is None
    assert env.storage.read_end(uri) is None
    env.storage.remove(uri)


def test_listing_takes_a_prefix_literally(env: CloudEnv) -> None:
    """A listing finds what begins with the text, whatever characters follow, and nothing else."""
    names = ["runs/a b/ü.txt", "runs/a b/x%2Fy", "runs/a bc", "runs/other"]
    for name in names:
        env.storage.write_json(f"gs://{BUCKET}/{name}", {})
    found = env.storage.listing(f"gs://{BUCKET}/runs/a b/")
    assert {item.name for item in found} == {"runs/a b/ü.txt", "runs/a b/x%2Fy"}
    assert all(item.size > 0 and item.crc32c and item.generation for item in found)
    assert len(env.storage.listing(f"gs://{BUCKET}")) == len(names)


def test_end_of_an_object(env: CloudEnv) -> None:
    """Only the last bytes are read; of a short object all, of an empty one none, which is not a missing one."""
    bucket = env.storage.get_conn().bucket(BUCKET)
    bucket.blob("log.txt").upload_from_string(b"0123456789")
    bucket.blob("empty.txt").upload_from_string(b"")
    assert env.storage.read_end(f"gs://{BUCKET}/log.txt", 4) == b"6789"
    assert env.storage.read_end(f"gs://{BUCKET}/log.txt", 100) == b"0123456789"
    assert env.storage.read_end(f"gs://{BUCKET}/empty.txt") == b""


@pytest.mark.parametrize("uri", ["s3://bucket/x", "gs://", "bucket/x", ""])
def test_what_is_no_uri_of_a_bucket(uri: str) -> None:
    """Anything but a gs:// URI is refused with its text."""
    with pytest.raises(ConfigError, match="is not a gs:// URI"):
        split_uri(uri)


def test_endpoint_is_the_connections_own(env: CloudEnv) -> None:
    """The hook reaches the endpoint of its connection without any variable that would redirect the whole process."""
    assert ArtifactsHook().get_client_options().api_endpoint == env.cloud.endpoints.storage_api_endpoint


@pytest.mark.parametrize("variable", ["STORAGE_EMULATOR_HOST", "API_ENDPOINT_OVERRIDE"])
def test_variable_that_redirects_storage_gets_no_token(
    env: CloudEnv, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    """Where a variable names an emulator without TLS, a connection with credentials is not used."""
    monkeypatch.setenv("AIRFLOW_CONN_REAL", "google-cloud-platform://?project=p")
    monkeypatch.setenv(variable, env.cloud.endpoints.storage_api_endpoint)
    with pytest.raises(ConfigError, match=f"{variable} = .* would travel in the clear"):
        ArtifactsHook("real").get_client_options()
    assert ArtifactsHook().get_client_options().api_endpoint == env.cloud.endpoints.storage_api_endpoint
