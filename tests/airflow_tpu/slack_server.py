# SPDX-License-Identifier: Apache-2.0
"""A Slack server that keeps what is posted; it serves as much of the API as Slack's own client calls."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

API = "/api/chat.postMessage"
HOOK = "/services/T0/B0/secret"


@dataclass
class SlackInbox:
    """What has arrived.

    :param url: of the server, on loopback.
    :param messages: in the order of their arrival, each with the ``path`` and the ``token`` that it came with.
    :param refusal: Slack's word for what is wrong with the next messages; empty if nothing is.
    """

    url: str
    messages: list[dict[str, Any]] = field(default_factory=list)
    refusal: str = ""


class _Server(ThreadingHTTPServer):
    inbox: SlackInbox


class _Request(BaseHTTPRequestHandler):
    server: _Server

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        token = str(self.headers.get("Authorization", "")).removeprefix("Bearer ")
        inbox = self.server.inbox
        inbox.messages.append({**body, "path": self.path, "token": token})
        if self.path == HOOK:
            return self._answer("text/plain", b"ok")
        # Slack refuses with status 200, too: https://api.slack.com/web#responses
        answer = {"ok": False, "error": inbox.refusal} if inbox.refusal else {"ok": True, "channel": "C0", "ts": "1.0"}
        return self._answer("application/json", json.dumps(answer).encode())

    def _answer(self, kind: str, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing on standard error."""


@contextmanager
def slack_inbox() -> Iterator[SlackInbox]:
    """Run one on a free port of this machine until the block ends."""
    with _Server(("127.0.0.1", 0), _Request) as server:
        server.inbox = SlackInbox(f"http://127.0.0.1:{server.server_port}")
        thread = threading.Thread(target=server.serve_forever, name="slack", daemon=True)
        thread.start()
        yield server.inbox
        server.shutdown()
        thread.join()
