# SPDX-License-Identifier: Apache-2.0
"""A mail server that keeps what is sent; it speaks as much SMTP as Python's own client needs."""

from __future__ import annotations

import email.policy
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.message import EmailMessage
from email.parser import BytesParser


@dataclass
class Mailbox:
    """What has arrived.

    :param port: where the server listens, on loopback.
    """

    port: int
    mails: list[EmailMessage] = field(default_factory=list)


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    mailbox: Mailbox


class _Session(socketserver.StreamRequestHandler):
    server: _Server

    def handle(self) -> None:
        self._say("220 mailbox")
        while line := self.rfile.readline():
            verb = line[:4].upper()
            if verb == b"DATA":
                self._take()
            elif verb == b"QUIT":
                return self._say("221 bye")
            else:
                self._say("250 ok")
        return None

    def _take(self) -> None:
        self._say("354 go on")
        lines = list(iter(self.rfile.readline, b".\r\n"))
        mail = BytesParser(EmailMessage, policy=email.policy.default).parsebytes(b"".join(lines))
        self.server.mailbox.mails.append(mail)
        self._say("250 kept")

    def _say(self, line: str) -> None:
        self.wfile.write(f"{line}\r\n".encode())


@contextmanager
def mail_server() -> Iterator[Mailbox]:
    """Run the server for the duration of the block."""
    with _Server(("127.0.0.1", 0), _Session) as server:
        server.mailbox = Mailbox(server.server_address[1])
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield server.mailbox
        finally:
            server.shutdown()
