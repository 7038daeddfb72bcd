# SPDX-License-Identifier: Apache-2.0
"""PostgreSQL and Redis of the Debian packages, each started for these tests alone and thrown away after them."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from localcloud.testing import eventually
from tests.scripts.whole_chain import free_port

# The data are thrown away: nothing has to survive a power cut.
_QUICK = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off", "max_connections": "200"}
_PLACES = "/usr/lib/postgresql/*/bin"


def program(name: str, package: str, places: str = "") -> str:
    """Path of a server program.

    :param name: of the program.
    :param package: the Debian package that brings it.
    :param places: glob of directories that are not on the PATH.
    :raises RuntimeError: it is not installed.
    """
    folders = [str(path) for path in sorted(Path("/").glob(places.lstrip("/")), reverse=True)] if places else []
    found = shutil.which(name, path=os.pathsep.join([*folders, os.environ.get("PATH", os.defpath)]))
    if found is None:
        raise RuntimeError(f"{name} is not installed, and these tests need it:  sudo apt-get install {package}")
    return found


def server_user() -> str | None:
    """The user that runs PostgreSQL, which refuses to run as root; None for the user of this process."""
    if os.geteuid() != 0:
        return None
    names = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in names else "nobody"


@contextlib.contextmanager
def postgresql() -> Iterator[str]:
    """Run a server on a free port of this machine until the block ends.

    :return: the SQLAlchemy address of its database.
    """
    user, port = server_user(), free_port()
    folder = Path(tempfile.mkdtemp(prefix="airflow-tpu-postgresql-"))
    if user:
        shutil.chown(folder, user)
    try:
        with Path(folder, "log").open("wb") as log:
            yield from _serve(folder, port, user, log.fileno())
    finally:
        shutil.rmtree(folder)


def _serve(folder: Path, port: int, user: str | None, log: int) -> Iterator[str]:
    data = folder / "data"
    create = [program("initdb", "postgresql", _PLACES), "-D", str(data), "-U", "airflow", "-A", "trust", "--no-sync"]
    subprocess.run(create, user=user, cwd=folder, stdout=log, stderr=log, check=True)
    options = [word for name, value in _QUICK.items() for word in ("-c", f"{name}={value}")]
    where = ["-D", str(data), "-p", str(port), "-k", str(folder), "-c", "listen_addresses=127.0.0.1"]
    command = [program("postgres", "postgresql", _PLACES), *where, *options]
    server = subprocess.Popen(command, user=user, cwd=folder, stdout=log, stderr=log, start_new_session=True)
    try:
        eventually(lambda: _ready(server, port), bool)
        yield f"postgresql+psycopg2://airflow@127.0.0.1:{port}/postgres"
    finally:
        server.send_signal(signal.SIGQUIT)  # its quickest way to end by which no shared memory is left
        server.wait(240)


def _ready(server: subprocess.Popen[bytes], port: int) -> bool:
    if server.poll() is not None:
        raise AssertionError(f"PostgreSQL has ended with code {server.returncode}")
    check = [program("pg_isready", "postgresql-client", _PLACES), "-q", "-h", "127.0.0.1", "-p", str(port)]
    return subprocess.run(check).returncode == 0


@contextlib.contextmanager
def redis() -> Iterator[str]:
    """Run a Redis server on a free port of this machine until the block ends; returns its address."""
    port = free_port()
    options = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
    with tempfile.TemporaryDirectory(prefix="airflow-tpu-redis-") as folder:
        command = [program("redis-server", "redis-server"), *options, "--dir", folder]
        server = subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True)
        try:
            eventually(lambda: _listens(server, port), bool)
            yield f"redis://127.0.0.1:{port}/0"
        finally:
            server.terminate()
            server.wait(240)


def _listens(server: subprocess.Popen[bytes], port: int) -> bool:
    if server.poll() is not None:
        raise AssertionError(f"redis-server has ended with code {server.returncode}")
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
