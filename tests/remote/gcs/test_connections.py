# SPDX-License-Identifier: Apache-2.0
"""Requests share connections, and one that the server or the way to it has given up is not used."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from gcs.connections import KeptConnections


class CountingServer(ThreadingHTTPServer):
    """A server on this machine that counts its connections and remembers what it was asked."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.connections = 0
        self._ended = threading.Semaphore(0)
        self.asked: list[str] = []
        self.logins: list[str | None] = []

    def shutdown_request(self, request: Any) -> None:
        """Note the end of a connection."""
        super().shutdown_request(request)
        self._ended.release()

    def wait_closed(self) -> None:
        """Wait until a connection has ended."""
        assert self._ended.acquire(timeout=60.0)

    @property
    def url(self) -> str:
        """Base URL."""
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    """Returns what it was sent; ``/closing`` ends the connection behind the answer, ``/leaving`` without a word."""

    protocol_version = "HTTP/1.1"
    server: CountingServer

    def setup(self) -> None:
        """Count a connection."""
        self.server.connections += 1
        super().setup()

    def do_POST(self) -> None:
        """Answer with the body of the request."""
        self.server.asked.append(self.path)
        self.server.logins.append(self.headers["Proxy-Authorization"])
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        if self.path == "/closing":
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)
        self.close_connection = self.path in ("/closing", "/leaving")

    def log_message(self, *words: object) -> None:
        """Print nothing."""


@pytest.fixture
def server() -> Iterator[CountingServer]:
    """A running server."""
    with CountingServer() as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.01,))
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def post(connections: KeptConnections, url: str, body: bytes = b"x") -> bytes:
    """Send a body; return the answer's."""
    return connections.exchange("POST", url, body, {}).body


def test_requests_share_a_connection(server: CountingServer) -> None:
    """One request after the other takes one connection, a body in blocks included."""
    connections = KeptConnections(proxied=False)
    assert post(connections, server.url + "/a?b=c") == b"x"
    answer = connections.exchange("POST", server.url, iter((b"ab", b"cd")), {"Content-Length": "4"})
    assert (answer.status, answer.body) == (200, b"abcd")
    assert (server.connections, server.asked) == (1, ["/a?b=c", "/"])


@pytest.mark.parametrize("path", ["/closing", "/leaving"])
def test_a_connection_that_the_server_has_closed_is_replaced(server: CountingServer, path: str) -> None:
    """After an announced end, and after a silent one, the next request takes a new connection and succeeds."""
    connections = KeptConnections(proxied=False)
    assert post(connections, server.url + path) == b"x"
    server.wait_closed()
    assert post(connections, server.url) == b"x"
    assert server.connections == 2


def test_a_connection_that_was_idle_for_long_is_replaced(server: CountingServer) -> None:
    """What lies between may have forgotten it: it is not tried."""
    now = [0.0]
    connections = KeptConnections(proxied=False, clock=lambda: now[0])
    post(connections, server.url)
    now[0] = 31.0
    post(connections, server.url)
    assert server.connections == 2


def test_no_answer_is_an_error_and_the_next_request_works(server: CountingServer) -> None:
    """A failed body leaves no half-used connection behind."""
    connections = KeptConnections(proxied=False)

    def broken() -> Iterator[bytes]:
        yield b"ab"
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"):
        connections.exchange("POST", server.url, broken(), {"Content-Length": "4"})
    assert post(connections, server.url) == b"x"
    assert server.connections == 2


def test_the_proxy_of_the_environment_is_used(server: CountingServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests to the internet go to the proxy, with its password; those that ``no_proxy`` names do not."""
    monkeypatch.setenv("http_proxy", f"http://me:a%20b@127.0.0.1:{server.server_port}")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    connections = KeptConnections(proxied=True)
    assert post(connections, "http://storage.example/a?b") == b"x"
    assert post(connections, server.url + "/near") == b"x"
    assert server.asked == ["http://storage.example/a?b", "/near"]
    assert server.logins == ["Basic bWU6YSBi", None]
