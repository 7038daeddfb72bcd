# SPDX-License-Identifier: Apache-2.0
"""The proxy that gives TensorFlow's ``gs://`` a local store: what passes, what is repaired, what is refused."""

from __future__ import annotations

import os
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from localcloud.gcs.tls.proxy import TLSFront
from tests.contract.gcs_target import RunningServer

HOST = "www.googleapis.com"
INSERT = f"https://{HOST}/upload/storage/v1/b/tf-bucket/o"
MEDIA = "POST /upload/storage/v1/b/tf-bucket/o?uploadType=media&name="


class Fronted:
    """A storage server behind its front.

    :param store: the server.
    :param front: the front.
    """

    def __init__(self, store: RunningServer, front: TLSFront) -> None:
        self.store = store
        self.front = front
        self.http = requests.Session()
        self.http.trust_env = False  # a REQUESTS_CA_BUNDLE of the machine would win over ours
        self.http.proxies = {"https": front.proxy}
        self.http.verify = str(front.ca_file)

    def connect(self, target: str = f"{HOST}:443") -> tuple[socket.socket, bytes]:
        """Ask the proxy for a connection and return it with the status line of the answer."""
        port = int(self.front.proxy.rpartition(":")[2])
        raw = socket.create_connection(("127.0.0.1", port), timeout=240)
        raw.sendall(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode())
        return raw, raw.recv(4096).partition(b"\r\n")[0]

    def secure(self) -> ssl.SSLSocket:
        """Return a TLS connection to the storage host."""
        context = ssl.create_default_context(cafile=str(self.front.ca_file))
        return context.wrap_socket(self.connect()[0], server_hostname=HOST)


@pytest.fixture(scope="module")
def fronted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fronted]:
    """A storage server with one bucket behind its front."""
    folder = tmp_path_factory.mktemp("front")
    with RunningServer(folder / "gcs") as store:
        store.server.create_bucket("tf-bucket")
        front = TLSFront(folder / "tls", store.url)
        store.run(front.start())
        yield Fronted(store, front)
        store.run(front.close())


def exchange(fronted: Fronted, *pieces: bytes) -> bytes:
    """Send bytes over TLS and return everything that comes back until the connection ends."""
    with fronted.secure() as secure:
        for piece in pieces:
            secure.sendall(piece)
        return b"".join(iter(lambda: secure.recv(65536), b""))


def head(line: str, *headers: str) -> bytes:
    """Return a request head that asks for the connection to be closed."""
    return "\r\n".join([f"{line} HTTP/1.1", f"Host: {HOST}", "Connection: close", *headers, "", ""]).encode()


@pytest.mark.parametrize("host", [HOST, "storage.googleapis.com"])
def test_storage_hosts_reach_the_local_store(fronted: Fronted, host: str) -> None:
    """Google's storage hosts, by TLS and through the proxy, answer from the local store."""
    reply = fronted.http.get(f"https://{host}/storage/v1/b/tf-bucket")
    assert (reply.status_code, reply.json()["name"]) == (200, "tf-bucket")
    assert reply.json()["selfLink"] == f"https://{host}/storage/v1/b/tf-bucket"


def test_session_stays_on_googles_host(fronted: Fronted) -> None:
    """The URL of a resumable session names Google's host, and content sent there arrives."""
    start = fronted.http.post(INSERT, params={"uploadType": "resumable", "name": "by session"})
    assert start.headers["Location"].startswith(f"https://{HOST}/upload/storage/v1/b/tf-bucket/o?")
    data = os.urandom(3_000_000)
    assert fronted.http.put(start.headers["Location"], data=data).status_code == 200
    assert fronted.http.get(f"https://{HOST}/tf-bucket/by%20session").content == data


def test_identity_encoding_is_forgiven(fronted: Fronted) -> None:
    """``Transfer-Encoding: identity`` beside a length is read as the length alone."""
    line = f"{MEDIA}identity"
    answer = exchange(fronted, head(line, "Transfer-Encoding: identity", "Content-Length: 5"), b"hello")
    assert answer.startswith(b"HTTP/1.1 200")
    assert fronted.store.client().bucket("tf-bucket").blob("identity").download_as_bytes() == b"hello"


def test_chunks_beside_a_length_are_forgiven(fronted: Fronted) -> None:
    """A chunked body beside a Content-Length is read as chunks."""
    line = f"{MEDIA}chunked"
    headers = head(line, "Transfer-Encoding: chunked", "Content-Length: 11")
    answer = exchange(fronted, headers, b"6\r\nhello \r\n", b"5;x=y\r\nworld\r\n0\r\nTrailer: t\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200")
    assert fronted.store.client().bucket("tf-bucket").blob("chunked").download_as_bytes() == b"hello world"


def test_expected_continue_is_given(fronted: Fronted) -> None:
    """A client that waits for permission to send its body gets it at once."""
    with fronted.secure() as secure:
        secure.sendall(head(f"{MEDIA}expect", "Expect: 100-continue", "Content-Length: 2"))
        assert secure.recv(4096) == b"HTTP/1.1 100 Continue\r\n\r\n"
        secure.sendall(b"ok")
        assert secure.recv(4096).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize(
    "pieces",
    [
        [b"nonsense\r\n\r\n"],
        [head(f"{MEDIA}bad", "Transfer-Encoding: chunked"), b"zz\r\n"],
        [b"GET / HTTP/1.1\r\nX: " + b"x" * 300_000],
    ],
    ids=["no-http", "bad-chunk", "endless-head"],
)
def test_nonsense_ends_the_connection(fronted: Fronted, pieces: list[bytes]) -> None:
    """What is not HTTP is answered with a refusal or the end of the connection; the proxy keeps serving."""
    assert not exchange(fronted, *pieces).startswith(b"HTTP/1.1 2")
    assert fronted.http.get(f"https://{HOST}/storage/v1/b/tf-bucket").status_code == 200
    assert not fronted.store.client().bucket("tf-bucket").blob("bad").exists()


def test_stranger_does_not_trust_the_front(fronted: Fronted) -> None:
    """Without the throw-away authority the certificate is not accepted."""
    with fronted.connect()[0] as raw, pytest.raises(ssl.SSLCertVerificationError):
        ssl.create_default_context().wrap_socket(raw, server_hostname=HOST)


@pytest.mark.parametrize("host", ["oauth2.googleapis.com", "tpu.googleapis.com", "googleapis.com"])
def test_other_hosts_of_google_are_refused(fronted: Fronted, host: str) -> None:
    """Nothing meant for the local cloud leaks to the real one."""
    raw, status = fronted.connect(f"{host}:443")
    raw.close()
    assert status.startswith(b"HTTP/1.1 403")


def test_everything_else_is_tunnelled(fronted: Fronted) -> None:
    """A host that is not Google's is connected to as it is."""
    raw, status = fronted.connect(fronted.store.url.removeprefix("http://"))
    with raw:
        assert status.startswith(b"HTTP/1.1 200")
        raw.sendall(b"GET /storage/v1/b/tf-bucket HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert raw.recv(12) == b"HTTP/1.1 200"


def test_unreachable_host_is_told(fronted: Fronted) -> None:
    """A host that cannot be reached is a 502."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        raw, status = fronted.connect(f"127.0.0.1:{unused.getsockname()[1]}")
    raw.close()
    assert status.startswith(b"HTTP/1.1 502")


def test_only_connect_is_spoken(fronted: Fronted) -> None:
    """A plain proxy request is a 405."""
    reply = requests.get(fronted.front.proxy + "/storage/v1/b")
    assert reply.status_code == 405


def test_close_ends_open_connections(fronted: Fronted, tmp_path: Path) -> None:
    """Closing the front ends connections that are still open."""
    front = TLSFront(tmp_path, fronted.store.url)
    fronted.store.run(front.start())
    secure = Fronted(fronted.store, front).secure()
    fronted.store.run(front.close())
    assert secure.recv(1) == b""
    secure.close()


SCRIPT = """
import os
import tensorflow as tf

root, gfile = "gs://tf-bucket/run 1", tf.io.gfile
with gfile.GFile(root + "/dir/note.txt", "w") as file:
    file.write("line one\\nline two\\n")
assert gfile.GFile(root + "/dir/note.txt").readlines() == ["line one\\n", "line two\\n"]
data = os.urandom(20_000_000)
with gfile.GFile(root + "/big", "wb") as file:
    file.write(data)
gfile.rename(root + "/big", root + "/moved")
assert gfile.GFile(root + "/moved", "rb").read() == data
assert gfile.stat(root + "/moved").length == len(data)
assert sorted(gfile.listdir(root)) == ["dir/", "moved"]

value = tf.Variable(tf.range(1000.0))
checkpoint = tf.train.Checkpoint(value=value)
manager = tf.train.CheckpointManager(checkpoint, root + "/ckpt", max_to_keep=2)
for _ in range(3):
    value.assign_add(tf.ones(1000))
    manager.save()
value.assign(tf.zeros(1000))
checkpoint.restore(tf.train.latest_checkpoint(root + "/ckpt")).assert_consumed()
assert value.numpy()[0] == 3.0 and value.numpy()[999] == 1002.0
assert len(gfile.glob(root + "/ckpt/ckpt-*.index")) == 2

with tf.summary.create_file_writer(root + "/logs").as_default():
    tf.summary.scalar("loss", 0.5, step=1)
    tf.summary.flush()
assert gfile.stat(gfile.glob(root + "/logs/*")[0]).length > 0
gfile.rmtree(root)
assert not gfile.exists(root + "/dir/note.txt")
print("all correct")
"""


@pytest.mark.slow
def test_tensorflow_reads_and_writes_gs(fronted: Fronted) -> None:
    """TensorFlow's own gs:// writes, reads, renames, lists, checkpoints, restores, logs and removes."""
    environment = {
        **os.environ,
        **fronted.front.environment(),
        "TF_CPP_MIN_LOG_LEVEL": "2",
        "GCS_RETRY_CONFIG_MAX_RETRIES": "2",
    }
    command = [sys.executable, "-c", SCRIPT]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240, check=False)
    assert done.stdout.splitlines()[-1:] == ["all correct"], done.stderr[-3000:]
    objects = [blob.name for blob in fronted.store.client().list_blobs("tf-bucket", prefix="run 1/")]
    assert objects == []
