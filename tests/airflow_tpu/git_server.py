# SPDX-License-Identifier: Apache-2.0
"""A git server of its own: git's ``http-backend`` behind a small HTTP server, with logins, faults and a log."""

from __future__ import annotations

import base64
import os
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

_IDENTITY = ("-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "init.defaultBranch=main")
_OWN = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull, "PATH": os.environ["PATH"]}


def git(folder: Path, *words: str) -> str:
    """Run git in a repository, with the configuration of nobody."""
    done = subprocess.run(["git", *_IDENTITY, *words], cwd=folder, env=_OWN, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def commit(folder: Path, files: Mapping[str, str], message: str = "x") -> str:
    """Write files into a repository, which is made if need be, and commit them; returns the commit."""
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / ".git").exists():
        git(folder, "init", "-q")
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", message)
    return git(folder, "rev-parse", "HEAD")


@dataclass
class GitServer:
    """Serves every repository below a folder.

    :param root: the folder.
    :param logins: ``user:token`` that may read, empty for everybody.
    :param statuses: answers to give before any other, each once.
    :param redirect: where every request is sent, empty for nowhere.
    """

    root: Path
    url: str = ""
    logins: tuple[str, ...] = ()
    statuses: list[int] = field(default_factory=list)
    redirect: str = ""
    requests: list[str] = field(default_factory=list)
    authorizations: list[str] = field(default_factory=list)


@contextmanager
def git_server(root: Path) -> Iterator[GitServer]:
    """Serve the repositories below a folder, on a port of its own."""
    found = GitServer(root)

    class Handler(_Handler):
        server_data = found

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        found.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        yield found
        server.shutdown()


class _Handler(BaseHTTPRequestHandler):
    server_data: GitServer

    def do_GET(self) -> None:
        """Answer a listing."""
        self._answer(b"")

    def do_POST(self) -> None:
        """Answer a fetch."""
        self._answer(self._body())

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        parts = []
        while size := int(self.rfile.readline(), 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        return b"".join(parts)

    def _answer(self, body: bytes) -> None:
        data, given = self.server_data, self.headers.get("Authorization", "")
        data.requests.append(f"{self.command} {self.path}")
        data.authorizations.append(given)
        accepted = [f"Basic {base64.b64encode(login.encode()).decode()}" for login in data.logins]
        if data.statuses:
            self._short(data.statuses.pop(0))
        elif data.redirect:
            self._short(301, ("Location", data.redirect + self.path))
        elif accepted and given not in accepted:
            self._short(401, ("WWW-Authenticate", 'Basic realm="git"'))
        else:
            self._backend(body)

    def _short(self, status: int, *headers: tuple[str, str]) -> None:
        self.send_response(status)
        for name, value in (*headers, ("Content-Length", "0")):
            self.send_header(name, value)
        self.end_headers()

    def _backend(self, body: bytes) -> None:
        path, _, query = self.path.partition("?")
        variables = {
            **_OWN,
            "GIT_PROJECT_ROOT": str(self.server_data.root),
            "GIT_HTTP_EXPORT_ALL": "1",
            "REQUEST_METHOD": self.command,
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": str(len(body)),
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
        }
        done = subprocess.run(["git", "http-backend"], env=variables, input=body, capture_output=True, check=False)
        head, _, content = done.stdout.partition(b"\r\n\r\n")
        headers = [line.partition(": ")[::2] for line in head.decode().splitlines()]
        status = next((value for name, value in headers if name == "Status"), "200 OK")
        self.send_response(int(status.split()[0]))
        for name, value in (*headers, ("Content-Length", str(len(content)))):
            if name != "Status":
                self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)
