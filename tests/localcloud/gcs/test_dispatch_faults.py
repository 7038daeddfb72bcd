# SPDX-License-Identifier: Apache-2.0
"""The storage server under scripted faults: what a client sees, and what is stored afterwards."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from google.api_core.exceptions import Forbidden, PreconditionFailed, ServiceUnavailable, TooManyRequests
from google.cloud.storage import Blob
from google.cloud.storage.retry import DEFAULT_RETRY

from localcloud.clock import ManualClock
from localcloud.testing import eventually
from tests.contract.gcs_target import RunningServer

QUICK = DEFAULT_RETRY.with_delay(initial=0.01, maximum=0.05)


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[RunningServer]:
    """A storage server with one bucket."""
    with RunningServer(tmp_path) as server:
        server.server.create_bucket("faulty")
        yield server


def blob(cloud: RunningServer, name: str = "ckpt/1") -> Blob:
    """Return a handle on an object."""
    return cloud.client().bucket("faulty").blob(name)


def fault(cloud: RunningServer, action: str, times: int = 1, after: int = 0, **match: str) -> None:
    """Script one fault."""
    params: dict[str, Any] = {"action": action}
    cloud.faults.add({"point": "gcs.request", "match": match, "times": times, "after": after, "params": params})


@pytest.mark.parametrize("action", ["503", "429", "abort", "lose-response"])
@pytest.mark.parametrize("size", [1000, 600_000])
def test_client_gets_through_passing_faults(cloud: RunningServer, action: str, size: int) -> None:
    """Two faults on any request of an upload and one on the download leave content and hashes intact."""
    data = bytes(range(250)) * (size // 250)
    fault(cloud, action, times=2, method="P*")
    fault(cloud, action, op="objects.media")
    target = blob(cloud)
    target.chunk_size = 256 * 1024 if size > 100_000 else None
    target.upload_from_string(data, retry=QUICK)
    assert blob(cloud).download_as_bytes(retry=QUICK) == data
    assert cloud.faults.unused() == []


@pytest.mark.parametrize(
    ("action", "error"), [("503", ServiceUnavailable), ("429", TooManyRequests), ("403", Forbidden)]
)
def test_fault_has_the_right_status(cloud: RunningServer, action: str, error: type[Exception]) -> None:
    """Each refusal arrives as the exception that Google's own would be."""
    fault(cloud, action, op="objects.insert")
    with pytest.raises(error):
        blob(cloud).upload_from_string(b"x", retry=None)
    assert not blob(cloud).exists()


def test_fault_strikes_only_what_it_names(cloud: RunningServer) -> None:
    """A fault on deletes of one folder, after the first, lets everything else pass."""
    for name in ("ckpt/1", "ckpt/2", "log"):
        blob(cloud, name).upload_from_string(b"x")
    fault(cloud, "403", after=1, op="objects.delete", object="ckpt/*")
    blob(cloud, "ckpt/1").delete()
    with pytest.raises(Forbidden):
        blob(cloud, "ckpt/2").delete()
    blob(cloud, "log").delete()
    assert cloud.faults.unused() == []


@pytest.mark.parametrize("size", [10, 9_000_000], ids=["multipart", "resumable"])
def test_fault_finds_the_object_named_in_the_body(cloud: RunningServer, size: int) -> None:
    """A fault on an object strikes its upload although the client names the object only inside the body."""
    fault(cloud, "403", object="ckpt/*")
    blob(cloud, "log").upload_from_string(b"x" * size)
    with pytest.raises(Forbidden):
        blob(cloud, "ckpt/1").upload_from_string(b"x" * size)


@pytest.mark.parametrize("size", [1000, 600_000])
def test_upload_cut_in_the_middle(cloud: RunningServer, size: int) -> None:
    """A connection cut behind some bytes of an upload commits nothing; the client's retry does, once."""
    cut = {"action": "abort", "after_bytes": size // 2}
    cloud.faults.add({"point": "gcs.request", "match": {"object": "ckpt/*", "method": "P*"}, "params": cut})
    mine = blob(cloud)
    mine.upload_from_string(b"x" * size, if_generation_match=0, retry=QUICK)
    assert (mine.size, cloud.faults.unused()) == (size, [])


def test_download_cut_in_the_middle(cloud: RunningServer) -> None:
    """A connection cut behind some bytes of a download never passes for the whole."""
    data = bytes(range(256)) * 4096
    blob(cloud).upload_from_string(data)
    cut = {"action": "abort", "after_bytes": 300_000}
    cloud.faults.add({"point": "gcs.request", "match": {"op": "objects.media"}, "params": cut})
    with pytest.raises(requests.exceptions.ChunkedEncodingError):
        requests.get(f"{cloud.url}/faulty/ckpt/1")
    assert requests.get(f"{cloud.url}/faulty/ckpt/1").content == data


def test_unknown_action_is_an_error(cloud: RunningServer) -> None:
    """A fault whose action does not exist makes the request fail instead of silently doing nothing."""
    fault(cloud, "explode")
    assert requests.get(f"{cloud.url}/storage/v1/b/faulty").status_code == 500


def test_lost_answer_of_a_conditional_create(cloud: RunningServer) -> None:
    """When the answer is lost after the commit, the retry is a 412 over the very content that was sent."""
    fault(cloud, "lose-response", op="objects.insert")
    mine = blob(cloud)
    with pytest.raises(PreconditionFailed):
        mine.upload_from_string(b"manifest", if_generation_match=0, retry=QUICK)
    assert blob(cloud).download_as_bytes() == b"manifest"


def test_fault_inside_a_batch(cloud: RunningServer) -> None:
    """One call of a batch can be refused while the others pass."""
    for name in ("a", "b"):
        blob(cloud, name).upload_from_string(b"x")
    fault(cloud, "503", op="objects.delete", object="a")
    client = cloud.client()
    with client.batch(raise_exception=False):
        for name in ("a", "b"):
            client.bucket("faulty").blob(name).delete()
    assert [blob(cloud, name).exists() for name in ("a", "b")] == [True, False]


def test_delay_waits_on_the_clock(tmp_path: Path) -> None:
    """A delayed request is answered once the clock has passed the delay."""
    clock = ManualClock()
    with RunningServer(tmp_path, clock) as cloud:
        cloud.server.create_bucket("faulty")
        cloud.faults.add({"point": "gcs.request", "params": {"action": "delay", "seconds": 3600}})
        with socket.create_connection(("127.0.0.1", int(cloud.url.rpartition(":")[2]))) as raw:
            raw.sendall(b"GET /storage/v1/b/faulty HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            eventually(lambda: cloud.faults.unused() == [], bool)
            cloud.run(_advance(clock))
            assert raw.recv(12) == b"HTTP/1.1 200"


async def _advance(clock: ManualClock) -> None:
    clock.advance(3600)


def test_aborted_upload_leaves_nothing(cloud: RunningServer) -> None:
    """A client that dies in the middle of its body leaves no object and no file."""
    head = (
        "POST /upload/storage/v1/b/faulty/o?uploadType=media&name=half HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000"
    )
    with socket.create_connection(("127.0.0.1", int(cloud.url.rpartition(":")[2]))) as raw:
        raw.sendall(head.encode() + b"\r\n\r\n" + b"x" * 400_000)
        eventually(lambda: len(files(cloud)) == 1, bool)
    eventually(lambda: files(cloud) == [], bool)
    assert not blob(cloud, "half").exists()


def files(cloud: RunningServer) -> list[Path]:
    """Return the content files on disk."""
    return list(cloud.root.glob("blobs/??/*"))


def test_aborted_chunk_keeps_whole_quanta(cloud: RunningServer) -> None:
    """A resumable upload cut in mid-chunk keeps a multiple of 256 KiB, continues from there and ends intact."""
    data, url = bytes(range(256)) * 4096, session(cloud)
    path = url.removeprefix(cloud.url)
    head = f"PUT {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(data)}\r\nContent-Range: bytes 0-{len(data) - 1}/*"
    with socket.create_connection(("127.0.0.1", int(cloud.url.rpartition(":")[2]))) as raw:
        raw.sendall(head.encode() + b"\r\n\r\n" + data[:600_000])
        eventually(lambda: files(cloud)[0].stat().st_size >= 2 * 262_144, bool)
    kept = requests.put(url, headers={"Content-Range": "bytes */*"})
    assert (kept.status_code, kept.headers["Range"]) == (308, "bytes=0-524287")
    rest = {"Content-Range": f"bytes 524288-{len(data) - 1}/{len(data)}"}
    assert requests.put(url, data=data[524_288:], headers=rest).status_code == 200
    assert blob(cloud).download_as_bytes() == data


def session(cloud: RunningServer) -> str:
    """Open a resumable session and return its URL."""
    query = {"uploadType": "resumable", "name": "ckpt/1"}
    return requests.post(f"{cloud.url}/upload/storage/v1/b/faulty/o", params=query).headers["Location"]


def test_second_request_takes_a_session_over(cloud: RunningServer) -> None:
    """A client that gives up on a stalled request and sends again wins; the late rest of the first is not mixed in."""
    data, url = bytes(range(256)) * 4096, session(cloud)
    head = f"PUT {url.removeprefix(cloud.url)} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(data)}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", int(cloud.url.rpartition(":")[2]))) as stalled:
        stalled.sendall(head.encode() + b"\xff" * 300_000)
        eventually(lambda: files(cloud)[0].stat().st_size >= 262_144, bool)
        whole = {"Content-Range": f"bytes 0-{len(data) - 1}/{len(data)}"}
        kept = requests.put(url, headers={"Content-Range": "bytes */*"})
        assert kept.headers["Range"] == "bytes=0-262143"
        answer = requests.put(url, data=b"\xff" * 262_144 + data[262_144:], headers=whole)
        stalled.sendall(b"\x00" * 100_000)
        assert answer.status_code == 200
    assert blob(cloud).download_as_bytes() == b"\xff" * 262_144 + data[262_144:]
