# SPDX-License-Identifier: Apache-2.0
"""The program ``git``, run so that neither a repository nor its server can make it run or read anything else.

No configuration of the machine or its user, no hooks, no credential helpers, no prompts, no protocol but the one of the
address. Nothing is checked out: the files are read from the object database, so that no filter and no link of the
repository takes effect. Credentials are in the environment of one process, for one server, and never on disk.
"""

from __future__ import annotations

import base64
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit

from airflow_tpu.errors import ConfigError, Fault, SourceUnreachable

SECONDS = 300.0
"""How long one call of git may take; a project that may travel is fetched in seconds."""

OLDEST = (2, 31)
"""First release that takes configuration from the environment: https://github.com/git/git/blob/master/Documentation/RelNotes/2.31.0.txt"""

_STALLED_SECONDS = 30
_PASSED_ON = (
    "PATH",
    "http_proxy",
    "https_proxy",
    "HTTPS_PROXY",
    "no_proxy",
    "NO_PROXY",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
)
_COMPLAINT = 600  # characters of what git says

# What git and curl say when a server was not reached or gave no whole answer (English by LC_ALL).
_PASSES = re.compile(
    r"Could not resolve (host|proxy)|Failed to connect|Couldn't connect|Connection (refused|reset|timed out)|timed out|"
    r"Operation too slow|early EOF|RPC failed|unexpected disconnect|hung up unexpectedly|Empty reply|SSL_ERROR_SYSCALL|"
    r"HTTP/2 stream|Recv failure|Send failure|returned error: (429|5\d\d)|Temporary failure|Network is unreachable"
)
_REFUSED = re.compile(
    r"could not read (Username|Password)|terminal prompts disabled|Authentication failed|returned error: 40[13]|"
    r"invalid credentials|HTTP Basic: Access denied"
)
_ABSENT = re.compile(
    r"repository .* not found|returned error: 404|does not appear to be a git repository|not valid: is this a git"
)
_REDIRECTED = re.compile(r"redirect|returned error: 30\d")


@dataclass(frozen=True)
class GitLogin:
    """How a server knows us.

    :param user: user name; a token's server asks for any.
    :param token: password or token.
    """

    user: str
    token: str

    def __repr__(self) -> str:
        return f"GitLogin({self.user!r}, token=...)"

    @property
    def header(self) -> str:
        """Header of HTTP (https://datatracker.ietf.org/doc/html/rfc7617)."""
        pair = base64.b64encode(f"{self.user}:{self.token}".encode()).decode("ascii")
        return f"Authorization: Basic {pair}"


class Git:
    """Calls git in a directory of its own.

    :param folder: an empty directory, which becomes a bare repository.
    :param url: the only address that is called.
    :param login: sent to its server, None for nothing.
    :param seconds: how long a call may take.
    """

    def __init__(self, folder: Path, url: str, login: GitLogin | None = None, seconds: float = SECONDS) -> None:
        self.folder = folder
        self.url = url
        self._login = login
        self._seconds = seconds

    def remote(self, *words: str) -> bytes:
        """Run a command that calls the server.

        :raises SourceUnreachable: it did not answer, or not in time.
        :raises ConfigError: it refuses, or there is no such repository.
        """
        try:
            done = self._run(*words)
        except subprocess.TimeoutExpired as error:
            raise SourceUnreachable(
                f"{self.url} was not read within {self._seconds:.0f} s; the next try asks again"
            ) from error
        complaint = done.stderr.decode("utf-8", "replace").strip()[-_COMPLAINT:]
        if done.returncode == 0:
            return done.stdout
        raise self._failure(complaint)

    def local(self, *words: str) -> bytes:
        """Run a command that needs no server.

        :raises SourceUnreachable: what was fetched is incomplete or damaged.
        """
        done = self._run(*words)
        if done.returncode != 0:
            complaint = done.stderr.decode("utf-8", "replace").strip()[-_COMPLAINT:]
            raise SourceUnreachable(f"what was fetched from {self.url} cannot be read: {complaint}")
        return done.stdout

    @contextmanager
    def reader(self) -> Iterator[Callable[[str], bytes]]:
        """Yield a function from the id of an object to its content; one process reads all of them.

        :raises SourceUnreachable: from the function, when an object was not fetched.
        """
        with subprocess.Popen(
            [program(), "cat-file", "--batch"],
            cwd=self.folder,
            env=self._environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        ) as process:
            try:
                yield lambda name: self._read(process, name)
            finally:
                process.kill()

    def _read(self, process: subprocess.Popen[bytes], name: str) -> bytes:
        if process.stdin is None or process.stdout is None:
            raise RuntimeError("git was started without pipes")
        process.stdin.write(f"{name}\n".encode("ascii"))
        process.stdin.flush()
        _, _, size = process.stdout.readline().strip().rpartition(b" ")
        if not size.isdigit():
            raise SourceUnreachable(f"what was fetched from {self.url} has no object {name}")
        return process.stdout.read(int(size) + 1)[:-1]

    def _run(self, *words: str) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            [program(), *words],
            cwd=self.folder,
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=self._seconds,
        )

    def _environment(self) -> dict[str, str]:
        kept = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
        return {
            **kept,
            "LC_ALL": "C",
            "HOME": str(self.folder),
            "XDG_CONFIG_HOME": str(self.folder),
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_ATTR_NOSYSTEM": "1",
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_ALLOW_PROTOCOL": urlsplit(self.url).scheme,
            "GIT_PROTOCOL_FROM_USER": "0",
            "GIT_NO_REPLACE_OBJECTS": "1",
            **_as_environment(self._configuration()),
        }

    def _configuration(self) -> dict[str, str]:
        settings = {
            "core.hooksPath": os.devnull,
            "core.askPass": "",
            "credential.helper": "",
            "transfer.fsckObjects": "true",
            "fetch.recurseSubmodules": "false",
            "gc.auto": "0",
            "maintenance.auto": "false",
            "http.lowSpeedLimit": "1000",
            "http.lowSpeedTime": str(_STALLED_SECONDS),
        }
        if self._login is not None:
            server = urlsplit(self.url)
            # A server that we log in to may not send us, and the login with us, to another one.
            settings["http.followRedirects"] = "false"
            settings[f"http.{server.scheme}://{server.netloc}/.extraHeader"] = self._login.header
        return settings

    def _failure(self, complaint: str) -> ConfigError | SourceUnreachable:
        if _PASSES.search(complaint):
            return SourceUnreachable(f"{self.url} was not reached ({complaint}); the next try asks again")
        if _REFUSED.search(complaint) or _ABSENT.search(complaint):
            return ConfigError([Fault("source", self.url, self._advice(complaint))], "the source")
        if self._login is not None and _REDIRECTED.search(complaint):
            return ConfigError(
                [Fault("source", self.url, f"leads to another address; give that one ({complaint})")], "the source"
            )
        return ConfigError([Fault("source", self.url, f"git could not read it: {complaint}")], "the source")

    def _advice(self, complaint: str) -> str:
        if self._login is None:
            return "there is no such repository, or it is private: name its Airflow connection in source_conn_id"
        if _REFUSED.search(complaint):
            return "the server refuses the login of source_conn_id: its token is wrong or old, or may not read this"
        return "there is no such repository, or the token of source_conn_id may not read it"


def program() -> str:
    """Return where git is.

    :raises ConfigError: it is not installed, or too old.
    """
    found = shutil.which("git")
    if found is None:
        problem = (
            "the program git is not installed on this Airflow worker; install it, or give a folder or a gs:// archive"
        )
        raise ConfigError([Fault("source", "git", problem)], "the source")
    _check_version(found)
    return found


@cache
def _check_version(path: str) -> None:
    """Check that git can be run as this module runs it.

    :raises ConfigError: it is too old.
    """
    done = subprocess.run([path, "--version"], cwd="/", stdin=subprocess.DEVNULL, capture_output=True, timeout=SECONDS)
    text = done.stdout.decode("utf-8", "replace").strip()
    found = re.search(r"(\d+)\.(\d+)", text)
    if found is None or (int(found[1]), int(found[2])) < OLDEST:
        problem = f"is older than {'.'.join(map(str, OLDEST))}; update git on this Airflow worker"
        raise ConfigError([Fault("source", text, problem)], "the source")


def _as_environment(settings: Mapping[str, str]) -> dict[str, str]:
    """Configuration as git takes it from the environment, where no other process of another user sees it."""
    found = {"GIT_CONFIG_COUNT": str(len(settings))}
    for number, (key, value) in enumerate(settings.items()):
        found[f"GIT_CONFIG_KEY_{number}"], found[f"GIT_CONFIG_VALUE_{number}"] = key, value
    return found
