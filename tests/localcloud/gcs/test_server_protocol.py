# SPDX-License-Identifier: Apache-2.0
"""The corners of the storage protocol that no well-behaved client reaches."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from localcloud.clock import ManualClock
from tests.contract.gcs_target import RunningServer

QUANTUM = 262_144


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A storage server with one bucket."""
    with RunningServer(tmp_path_factory.mktemp("gcs")) as server:
        server.server.create_bucket("corners")
        yield server


def start(cloud: RunningServer, name: str = "x", **headers: str) -> str:
    """Open a resumable session."""
    url = f"{cloud.url}/upload/storage/v1/b/corners/o?uploadType=resumable&name={name}"
    return requests.post(url, headers=headers).headers["Location"]


def put(url: str, data: bytes, content_range: str) -> requests.Response:
    """Send one chunk."""
    return requests.put(url, data=data, headers={"Content-Range": content_range})


def test_gap_in_a_session_is_refused(cloud: RunningServer) -> None:
    """Content that starts behind what is kept is a 503, and the session stays usable."""
    url = start(cloud)
    assert put(url, b"x" * QUANTUM, f"bytes {QUANTUM}-{2 * QUANTUM - 1}/*").status_code == 503
    assert put(url, b"x", "bytes 0-0/1").status_code == 200


def test_tiny_chunk_that_is_not_the_last_is_refused(cloud: RunningServer) -> None:
    """Less than 256 KiB before the end is a 400 and is not kept."""
    url = start(cloud)
    assert put(url, b"x" * 1000, "bytes 0-999/*").status_code == 400
    assert "Range" not in put(url, b"", "bytes */*").headers


def test_odd_chunk_is_kept_up_to_a_multiple(cloud: RunningServer) -> None:
    """Of a chunk that is no multiple of 256 KiB only whole multiples are kept, and the answer says so."""
    url = start(cloud)
    reply = put(url, b"x" * (QUANTUM + 100), f"bytes 0-{QUANTUM + 99}/*")
    assert (reply.status_code, reply.headers["Range"]) == (308, f"bytes=0-{QUANTUM - 1}")


def test_other_size_than_announced_is_refused(cloud: RunningServer) -> None:
    """A session opened for 5 bytes takes neither 6 nor a claim of 6."""
    url = start(cloud, **{"X-Upload-Content-Length": "5"})
    assert put(url, b"123456", "bytes 0-5/6").status_code == 400
    assert requests.put(start(cloud, **{"X-Upload-Content-Length": "5"}), data=b"123456").status_code == 400


def test_empty_object_by_a_session(cloud: RunningServer) -> None:
    """A session may end with no content at all."""
    reply = put(start(cloud, "empty"), b"", "bytes */0")
    assert (reply.status_code, reply.json()["size"]) == (200, "0")


@pytest.mark.parametrize("header", ["bytes 5", "0-5/6", "bytes 0-/6", "bytes x-y/z"])
def test_malformed_content_range_is_refused(cloud: RunningServer, header: str) -> None:
    """A Content-Range that cannot be read is a 400."""
    assert put(start(cloud), b"123456", header).status_code == 400


def test_session_expires_after_a_week(tmp_path: Path) -> None:
    """A session is good for a week and then a 410; one that never was is a 404."""
    clock = ManualClock()
    with RunningServer(tmp_path, clock) as cloud:
        cloud.server.create_bucket("corners")
        url = start(cloud)
        clock.advance(7 * 24 * 3600 - 1)
        assert put(url, b"", "bytes */*").status_code == 308
        clock.advance(2)
        assert put(url, b"", "bytes */*").status_code == 410
        assert put(url.replace("upload_id=", "upload_id=no"), b"", "bytes */*").status_code == 404


def multipart(cloud: RunningServer, body: bytes, kind: str = "multipart/related; boundary=b") -> requests.Response:
    """Upload metadata and content in one hand-made body."""
    url = f"{cloud.url}/upload/storage/v1/b/corners/o?uploadType=multipart"
    return requests.post(url, data=body, headers={"Content-Type": kind})


@pytest.mark.parametrize("end", [b"\n", b"\r\n"], ids=["lf", "crlf"])
@pytest.mark.parametrize("data", [b"", b"\r", b"\n", b"\r\n", b"x\r\n--", b"\n--a", b"--b"])
def test_multipart_content_is_exact(cloud: RunningServer, end: bytes, data: bytes) -> None:
    """Content that looks like a line end or nearly like a boundary comes back byte for byte."""
    lines = [b"--b", b"Content-Type: application/json", b"", b'{"name": "m"}', b"--b", b"Content-Type: text/x", b""]
    assert multipart(cloud, end.join([*lines, data, b"--b--", b""])).status_code == 200
    assert cloud.client().bucket("corners").blob("m").download_as_bytes() == data


@pytest.mark.parametrize(
    "body",
    [b"", b"no boundary at all", b"--b\r\n\r\n{}\r\n", b'--b\r\n\r\n{"name": "m2"}\r\n--b\r\n\r\nnever ends'],
)
def test_malformed_multipart_is_refused(cloud: RunningServer, body: bytes) -> None:
    """A body that is no multipart, or ends too early, is a 400 and nothing is stored."""
    assert multipart(cloud, body).status_code == 400
    assert not cloud.client().bucket("corners").blob("m2").exists()


def test_multipart_without_a_boundary_is_refused(cloud: RunningServer) -> None:
    """A content type that names no boundary is a 400."""
    assert multipart(cloud, b"--b", "multipart/related").status_code == 400


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/storage/v1/nonsense", 404),
        ("GET", "/storage/v1/b/corners/o?maxResults=many", 400),
        ("GET", "/storage/v1/b/corners/o?maxResults=-1", 400),
        ("GET", "/storage/v1/b/corners/o/x?generation=new", 400),
        ("GET", "/storage/v1/b/corners/o/%FF%FE", 400),
        ("PATCH", "/storage/v1/b/corners/o/x?ifGenerationMatch=one", 400),
        ("POST", "/upload/storage/v1/b/corners/o?uploadType=odd&name=x", 400),
        ("POST", "/upload/storage/v1/b/corners/o?uploadType=media", 400),
        ("POST", "/storage/v1/b/corners/o/x/compose", 400),
        ("POST", "/batch/storage/v1", 400),
        ("POST", "/corners/x", 404),
    ],
)
def test_bad_request_is_refused(cloud: RunningServer, method: str, path: str, status: int) -> None:
    """A malformed request is refused with the right status, never a 500."""
    assert requests.request(method, cloud.url + path).status_code == status


@pytest.mark.parametrize("body", [b"{", b"[]", b"\xff"])
def test_bad_json_is_refused(cloud: RunningServer, body: bytes) -> None:
    """A body that is not a JSON object is a 400."""
    assert requests.post(f"{cloud.url}/storage/v1/b?project=p", data=body).status_code == 400


def test_held_object_is_not_deleted(cloud: RunningServer) -> None:
    """An object under a temporary hold can be neither deleted nor overwritten until the hold is lifted."""
    blob = cloud.client().bucket("corners").blob("held")
    blob.upload_from_string(b"x")
    blob.temporary_hold = True
    blob.patch()
    url = f"{cloud.url}/storage/v1/b/corners/o/held"
    assert requests.delete(url).status_code == 403
    again = f"{cloud.url}/upload/storage/v1/b/corners/o?uploadType=media&name=held"
    assert requests.post(again, data=b"y").status_code == 403
    blob.temporary_hold = False
    blob.patch()
    assert requests.delete(url).status_code == 204
