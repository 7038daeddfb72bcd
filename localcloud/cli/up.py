# SPDX-License-Identifier: Apache-2.0
"""``up``: run a local cloud until SIGTERM or SIGINT, in the foreground or detached."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import logging
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from localcloud.cli.control_client import CommandError
from localcloud.endpoints import FILE_NAME, Endpoints
from localcloud.vm.processes.process_mark import PROCESS_MARK

if TYPE_CHECKING:
    from localcloud.server import LocalCloudConfig

LOG_NAME = "cloud.log"
_READY_SECONDS = 120.0
_POLL = 0.05
_LOG_LINES = 20


def serve(config: LocalCloudConfig) -> int:
    """Run a cloud in this process until SIGTERM or SIGINT.

    :raises CommandError: if one runs in that state directory already, or this machine cannot run it.
    """
    from localcloud.gcs.storage.errors import GCSError
    from localcloud.vm.worker.interface import VMError

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    # One line per step of every SSH handshake would bury our own.
    logging.getLogger("asyncssh").setLevel(logging.WARNING)
    os.environ[PROCESS_MARK] = str(config.state_dir)
    with _only_one(config.state_dir):
        try:
            asyncio.run(_serve(config))
        except (VMError, GCSError) as error:
            raise CommandError(str(error)) from error
        finally:
            (config.state_dir / FILE_NAME).unlink(missing_ok=True)
    return 0


async def _serve(config: LocalCloudConfig) -> None:
    from localcloud.server import LocalCloud

    ending = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ending.set)
    async with LocalCloud(config) as cloud:
        cloud.endpoints.write(config.state_dir)
        sys.stdout.write(describe(cloud.endpoints, config.state_dir))
        sys.stdout.flush()
        await ending.wait()


@contextlib.contextmanager
def _only_one(state_dir: Path) -> Iterator[None]:
    """Hold the state directory: two clouds on one database would corrupt it."""
    state_dir.mkdir(parents=True, exist_ok=True)
    with (state_dir / "lock").open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise CommandError(
                f"A local cloud runs in {state_dir} already. End it: {_command('down', state_dir)}"
            ) from None
        yield


def detach(arguments: Sequence[str], state_dir: Path) -> int:
    """Start ``up`` as a process of its own and return when it is ready.

    :param arguments: those of ``up``, without ``--detach``.
    :raises CommandError: with the end of its log, if it ends, or is not ready within two minutes.
    """
    state_dir.mkdir(parents=True, exist_ok=True)
    log = state_dir / LOG_NAME
    root = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join(part for part in (root, os.environ.get("PYTHONPATH", "")) if part)
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "localcloud", "up", *arguments],
            env={**os.environ, "PYTHONPATH": path, PROCESS_MARK: str(state_dir)},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    endpoints = _await_ready(process, state_dir, log)
    sys.stdout.write(describe(endpoints, state_dir))
    return 0


def _await_ready(process: subprocess.Popen[bytes], state_dir: Path, log: Path) -> Endpoints:
    deadline = time.monotonic() + _READY_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise CommandError(
                f"The local cloud ended with exit code {process.returncode}; {log} ends with:\n{_tail(log)}"
            )
        with contextlib.suppress(FileNotFoundError):
            endpoints = Endpoints.read(state_dir)
            if endpoints.pid == process.pid:
                return endpoints
        time.sleep(_POLL)
    process.terminate()
    raise CommandError(f"The local cloud was not ready within {_READY_SECONDS:.0f} s; {log} ends with:\n{_tail(log)}")


def _tail(log: Path) -> str:
    return "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-_LOG_LINES:])


def describe(endpoints: Endpoints, state_dir: Path) -> str:
    """Return how to use the cloud: its endpoints, the variable for Airflow, the command that ends it."""
    connection = json.dumps(endpoints.airflow_connection())
    lines = [
        f"# The local cloud is up (process {endpoints.pid}, TPU VMs in tier {endpoints.tier}).",
        f"# TPU API {endpoints.tpu_api_endpoint}, SSH port {endpoints.ssh_port}",
        f"# Cloud Storage {endpoints.storage_api_endpoint}",
        f"export AIRFLOW_CONN_GOOGLE_CLOUD_DEFAULT={shlex.quote(connection)}",
        f"# End it: {_command('down', state_dir)}",
    ]
    return "\n".join(lines) + "\n"


def _command(verb: str, state_dir: Path) -> str:
    return f"python -m localcloud {verb} --state-dir {shlex.quote(str(state_dir))}"
