# SPDX-License-Identifier: Apache-2.0
"""Storage contract: every way in which content arrives. Runs against the local server or a real bucket."""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import google_crc32c
import pytest
from google.api_core.exceptions import BadRequest, NotFound

from tests.contract.gcs_target import Target

pytest_plugins = ("tests.contract.gcs_fixtures",)

QUANTUM = 256 * 1024
BIG = os.urandom(20 * 1024 * 1024 + 17)


def crc32c(data: bytes) -> str:
    """Return the checksum as Google writes it."""
    value: Callable[[bytes], int] = google_crc32c.value
    return base64.b64encode(value(data).to_bytes(4, "big")).decode()


def md5(data: bytes) -> str:
    """Return the checksum as Google writes it."""
    return base64.b64encode(hashlib.md5(data).digest()).decode()


@pytest.mark.parametrize(
    "data", [b"", b"x", b"line\r\n--end\r", bytes(range(256)) * 1024], ids=["empty", "1", "cr", "bin"]
)
def test_small_upload_comes_back_with_its_hashes(target: Target, data: bytes) -> None:
    """A small object is stored byte for byte and reports size, MD5, CRC32C and first metageneration."""
    blob = target.put(data)
    assert target.bucket.blob(blob.name).download_as_bytes() == data
    assert (blob.size, blob.md5_hash, blob.crc32c, blob.metageneration) == (len(data), md5(data), crc32c(data), 1)


@pytest.mark.parametrize("chunk", [None, 1024 * 1024], ids=["one-request", "chunked"])
def test_resumable_upload_of_known_size(target: Target, chunk: int | None, tmp_path: Path) -> None:
    """20 MB arrive whole, in one request or in chunks."""
    (tmp_path / "big").write_bytes(BIG)
    blob = target.blob(chunk_size=chunk)
    blob.upload_from_filename(str(tmp_path / "big"))
    assert blob.crc32c == crc32c(BIG)
    assert target.bucket.blob(blob.name).download_as_bytes() == BIG


def test_resumable_upload_of_unknown_size(target: Target) -> None:
    """A writer that does not know its length beforehand produces exactly what it wrote."""
    blob = target.blob(chunk_size=QUANTUM)
    with blob.open("wb") as file:
        for start in range(0, 1_000_000, 99_991):
            file.write(BIG[start : min(start + 99_991, 1_000_000)])
    assert target.bucket.blob(blob.name).download_as_bytes() == BIG[:1_000_000]


def test_status_query_says_how_much_is_kept(target: Target) -> None:
    """A session answers 308 without a range while empty, 308 with the range kept, and commits nothing by it."""
    name = target.name()
    url = target.session(name)
    empty = target.http.put(url, headers={"Content-Range": "bytes */*"})
    assert (empty.status_code, empty.headers.get("Range")) == (308, None)
    first = target.http.put(url, data=BIG[:QUANTUM], headers={"Content-Range": f"bytes 0-{QUANTUM - 1}/*"})
    again = target.http.put(url, headers={"Content-Range": f"bytes */{2 * QUANTUM}"})
    assert [reply.status_code for reply in (first, again)] == [308, 308]
    assert again.headers["Range"] == f"bytes=0-{QUANTUM - 1}"
    assert not target.bucket.blob(name).exists()


def test_overlapping_resend_does_not_corrupt(target: Target) -> None:
    """A chunk sent again from an earlier offset is merged, not appended."""
    name, total = target.name(), 3 * QUANTUM
    url = target.session(name)
    target.http.put(url, data=BIG[: 2 * QUANTUM], headers={"Content-Range": f"bytes 0-{2 * QUANTUM - 1}/{total}"})
    last = {"Content-Range": f"bytes {QUANTUM}-{total - 1}/{total}"}
    assert target.http.put(url, data=BIG[QUANTUM:total], headers=last).status_code == 200
    assert target.bucket.blob(name).download_as_bytes() == BIG[:total]


def test_finished_session_repeats_its_answer(target: Target) -> None:
    """A client that lost the last answer asks again and gets the object, not a second upload."""
    url = target.session(target.name())
    first = target.http.put(url, data=b"all of it").json()
    again = target.http.put(url, headers={"Content-Range": "bytes */9"})
    assert (again.status_code, again.json()["generation"]) == (200, first["generation"])


def test_cancelled_session_is_gone(target: Target) -> None:
    """A cancelled session takes no content and leaves no object."""
    name = target.name()
    url = target.session(name)
    assert target.http.delete(url).status_code == 499
    assert target.http.put(url, data=b"late").status_code in (404, 410, 499)
    assert not target.bucket.blob(name).exists()


@pytest.mark.parametrize("claim", ["md5_hash", "crc32c"])
def test_wrong_hash_is_refused(target: Target, claim: str) -> None:
    """Content that does not match the hash sent with it is refused with 400 and nothing is committed."""
    blob = target.blob()
    setattr(blob, claim, md5(b"other") if claim == "md5_hash" else crc32c(b"other"))
    with pytest.raises(BadRequest):
        blob.upload_from_string(b"content", checksum=None)
    assert not target.bucket.blob(blob.name).exists()


def test_wrong_hash_in_a_resumable_upload_is_refused(target: Target) -> None:
    """A hash announced when the session is opened is checked at its end."""
    name = target.name()
    url = f"{target.url}/upload/storage/v1/b/{target.bucket.name}/o"
    start = target.http.post(url, params={"uploadType": "resumable", "name": name}, json={"crc32c": crc32c(b"other")})
    assert target.http.put(start.headers["Location"], data=b"content").status_code == 400
    assert not target.bucket.blob(name).exists()


def test_metadata_travels_with_the_upload(target: Target) -> None:
    """Type, encoding, disposition, cache control and custom metadata set before an upload are kept."""
    blob = target.blob()
    blob.metadata = {"run": "nightly", "näme": "wért"}
    blob.content_disposition, blob.cache_control = 'attachment; filename="a b"', "no-store"
    blob.upload_from_string(b"{}", content_type="application/json")
    seen = target.bucket.get_blob(blob.name)
    assert (seen.content_type, seen.content_disposition, seen.cache_control) == (
        "application/json",
        'attachment; filename="a b"',
        "no-store",
    )
    assert seen.metadata == {"run": "nightly", "näme": "wért"}


def test_upload_to_a_missing_bucket(target: Target) -> None:
    """Uploading into a bucket that is not there is a 404."""
    with pytest.raises(NotFound):
        target.bucket.client.bucket("airflow-tpu-no-such-bucket-7f3a").blob("x").upload_from_string(b"x")
