# SPDX-License-Identifier: Apache-2.0
"""Storage contract: metadata, versions, composites, copies, reads. Runs against the local server or a real bucket."""

from __future__ import annotations

import gzip
from collections.abc import Iterator

import pytest
from google.api_core.exceptions import BadRequest, Conflict, NotFound, RequestRangeNotSatisfiable
from google.cloud.storage import Blob

from tests.contract.gcs_target import Target

pytest_plugins = ("tests.contract.gcs_fixtures",)


@pytest.fixture
def versioned(target: Target) -> Iterator[Target]:
    """The target, its bucket keeping old generations for the time of a test."""
    target.bucket.versioning_enabled = True
    target.bucket.patch()
    yield target
    target.bucket.versioning_enabled = False
    target.bucket.patch()


def test_every_change_of_metadata_raises_the_metageneration(target: Target) -> None:
    """A patch raises the metageneration by one and leaves the generation alone."""
    blob = target.put()
    before = blob.generation
    for expected in (2, 3):
        blob.metadata = {"step": str(expected)}
        blob.patch()
        assert (blob.generation, blob.metageneration) == (before, expected)


def test_metadata_patch_merges_and_null_deletes(target: Target) -> None:
    """A patch keeps the custom keys it does not name and removes those it sets to null."""
    blob = target.put()
    blob.metadata = {"a": "1", "b": "2"}
    blob.patch()
    blob.metadata = {"b": None, "c": "3"}
    blob.patch()
    assert target.bucket.get_blob(blob.name).metadata == {"a": "1", "c": "3"}


def test_old_generation_is_gone_without_versioning(target: Target) -> None:
    """Overwriting in a bucket without versioning makes the old generation unreadable."""
    old = target.put(b"old")
    target.bucket.blob(old.name).upload_from_string(b"new")
    with pytest.raises(NotFound):
        target.bucket.blob(old.name, generation=old.generation).download_as_bytes()


def test_versioning_keeps_old_generations(versioned: Target) -> None:
    """With versioning an overwritten and then deleted object is still readable and listed by generation."""
    old = versioned.put(b"old")
    new = versioned.bucket.blob(old.name)
    new.upload_from_string(b"new")
    versioned.bucket.delete_blob(old.name)
    assert versioned.bucket.get_blob(old.name) is None
    kept = versioned.bucket.blob(old.name, generation=old.generation)
    assert kept.download_as_bytes() == b"old"
    listed = list(versioned.bucket.client.list_blobs(versioned.bucket, prefix=old.name, versions=True))
    assert [blob.generation for blob in listed] == [old.generation, new.generation]
    for blob in listed:
        blob.delete()
    with pytest.raises(NotFound):
        kept.download_as_bytes()


def test_composite_has_a_component_count_and_no_md5(target: Target) -> None:
    """A composite joins its sources in order; it has a CRC32C and counts components, those of composites too."""
    parts = [target.put(text, "part") for text in (b"one ", b"two ", b"three")]
    whole, outer = target.blob(), target.blob()
    whole.compose(parts)
    outer.compose([whole, parts[0]])
    outer.reload()
    assert outer.download_as_bytes() == b"one two threeone "
    assert (outer.md5_hash, outer.component_count, bool(outer.crc32c)) == (None, 4, True)


def test_composite_of_more_than_32_is_refused(target: Target) -> None:
    """33 sources are too many."""
    part, whole = target.put(), target.blob()
    with pytest.raises(BadRequest):
        whole.compose([part] * 33)
    assert not whole.exists()


def test_composite_of_a_missing_source_is_refused(target: Target) -> None:
    """A source that is not there is a 404."""
    with pytest.raises(NotFound):
        target.blob().compose([target.put(), target.blob()])


def test_copy_keeps_content_and_metadata(target: Target) -> None:
    """A copy has the content, hashes and metadata of its source, and survives its deletion."""
    source = target.blob()
    source.metadata = {"run": "a"}
    source.upload_from_string(b"{}", content_type="application/json")
    copy = target.bucket.copy_blob(source, target.bucket, target.name())
    source.delete()
    seen = target.bucket.get_blob(copy.name)
    assert (seen.content_type, seen.metadata, seen.md5_hash) == ("application/json", {"run": "a"}, source.md5_hash)
    assert seen.download_as_bytes() == b"{}"


def test_rename_moves(target: Target) -> None:
    """After a rename only the new name is there."""
    blob = target.put(b"moved")
    renamed = target.bucket.rename_blob(blob, blob.name + ".renamed")
    assert renamed.download_as_bytes() == b"moved"
    assert not target.bucket.blob(blob.name).exists()


@pytest.mark.parametrize(("header", "expected"), [("0-3", b"0123"), ("4-", b"456789"), ("-3", b"789"), ("8-99", b"89")])
def test_range_reads(target: Target, header: str, expected: bytes) -> None:
    """A byte range, an open one and a suffix return just that slice with 206."""
    blob = target.put(b"0123456789")
    url = f"{target.url}/storage/v1/b/{target.bucket.name}/o/{blob.name.replace('/', '%2F')}"
    reply = target.http.get(url, params={"alt": "media"}, headers={"Range": f"bytes={header}"})
    assert (reply.status_code, reply.content) == (206, expected)


def test_range_behind_the_end_is_refused(target: Target) -> None:
    """A range that starts behind the last byte is a 416."""
    with pytest.raises(RequestRangeNotSatisfiable):
        target.put(b"short").download_as_bytes(start=100)


def test_gzip_is_undone_for_clients_that_do_not_take_it(target: Target) -> None:
    """Content stored with gzip encoding is sent as it is to who accepts gzip, and decompressed to who does not."""
    blob, text = target.blob(), b"the same line again\n" * 1000
    packed = gzip.compress(text)  # once: it carries the second in which it was made
    blob.content_encoding = "gzip"
    blob.upload_from_string(packed, content_type="text/plain")
    assert blob.download_as_bytes(raw_download=True) == packed
    assert blob.download_as_bytes() == text
    url = f"{target.url}/{target.bucket.name}/{blob.name}"
    plain = target.http.get(url, headers={"Accept-Encoding": "identity"})
    assert (plain.content, plain.headers.get("Content-Encoding")) == (text, None)


def test_batch_runs_every_call(target: Target) -> None:
    """Deletes and patches sent as one batch are all carried out."""
    doomed, changed = [target.put(text=str(i)) for i in range(3)], target.put()
    with target.bucket.client.batch():
        for blob in doomed:
            blob.delete()
        changed.metadata = {"seen": "yes"}
        changed.patch()
    assert [blob.exists() for blob in doomed] == [False] * 3
    assert target.bucket.get_blob(changed.name).metadata == {"seen": "yes"}


def test_batch_reports_each_failure(target: Target) -> None:
    """A failing call of a batch is reported; the others are carried out all the same."""
    missing, good = target.blob(), target.put()
    with pytest.raises(NotFound):
        _delete_in_one_batch(target, [missing, good])
    assert not good.exists()


def _delete_in_one_batch(target: Target, blobs: list[Blob]) -> None:
    with target.bucket.client.batch():
        for blob in blobs:
            blob.delete()


def test_bucket_that_exists_cannot_be_created_again(target: Target) -> None:
    """Creating the bucket a second time is a 409."""
    with pytest.raises(Conflict):
        target.bucket.client.create_bucket(target.bucket.name)


def test_missing_bucket_is_not_found(target: Target) -> None:
    """Getting and listing a bucket that is not there is a 404."""
    client = target.bucket.client
    with pytest.raises(NotFound):
        client.get_bucket("airflow-tpu-no-such-bucket-7f3a")
    with pytest.raises(NotFound):
        list(client.list_blobs("airflow-tpu-no-such-bucket-7f3a"))


def test_bucket_tells_its_location(target: Target) -> None:
    """A bucket reports location, kind of location and metageneration."""
    bucket = target.bucket.client.get_bucket(target.bucket.name)
    assert bucket.location == bucket.location.upper()
    assert bucket.location_type in ("region", "multi-region", "dual-region")
    assert bucket.metageneration >= 1
