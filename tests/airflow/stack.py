# SPDX-License-Identifier: Apache-2.0
"""A whole Airflow in processes of its own: api-server, scheduler, DAG processor, two triggerers, Celery worker."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

import psutil

from airflow_tpu.core.tpu.identity import VARIABLE
from localcloud.testing import eventually
from scripts.processes import MARK, bears, marked
from scripts.wait_healthy import PARTS, get
from tests.airflow.database import postgresql, redis
from tests.airflow.settings import PASSWORD, PRELOAD, Servers, environment, furnish
from tests.airflow_tpu.identities import AIRFLOW
from tests.compose.rest import Client, log_in
from tests.scripts.whole_chain import free_port

BOOT_SECONDS = 600.0
END_SECONDS = 240.0
TRIGGERERS = ("triggerer-1", "triggerer-2")
COMPONENTS = ("api-server", "scheduler", "dag-processor", *TRIGGERERS, "worker")


class Stack:
    """Airflow on PostgreSQL; a context manager that leaves no process behind.

    :param folder: where it keeps everything.
    :param dags: folder of its DAG files.
    :param connections: Airflow's connections, by the name of their environment variable.
    :raises AssertionError: on entry, if it does not come up; on exit, if a process is left.
    """

    def __init__(self, folder: Path, dags: Path, connections: Mapping[str, str]) -> None:
        self.folder = folder
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.dags = dags
        self._connections = dict(connections)
        self._mark = f"airflow-stack-{os.getpid()}-{self.port}"
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._environment: dict[str, str] = {}
        self._ending = contextlib.ExitStack()

    def __enter__(self) -> Stack:
        with contextlib.ExitStack() as ending:
            database, broker = ending.enter_context(postgresql()), ending.enter_context(redis())
            servers = Servers(database, broker, self.url)
            settings = environment(self.folder, self.dags, servers)
            self._environment = {**settings, **self._connections, MARK: self._mark}
            furnish(self.folder)
            ending.callback(self._end)
            self._migrate()
            for name in COMPONENTS:
                self.start(name)
            eventually(self._missing, lambda missing: not missing, BOOT_SECONDS, 0.5)
            self._ending = ending.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ending.close()

    def client(self) -> Client:
        """A user of the REST API with all rights."""
        return log_in(self.url, PASSWORD)

    def start(self, name: str) -> None:
        """Start a component, or start it again."""
        command, *options = {
            "scheduler": ["scheduler", "--skip-serve-logs"],
            "triggerer-1": ["triggerer", "--skip-serve-logs"],
            "triggerer-2": ["triggerer", "--skip-serve-logs"],
            "worker": ["celery", "worker", "--skip-serve-logs", "--concurrency", "2"],
        }.get(name, [name])
        environment = {**self._environment, "STACK_HOST": name}
        if name in ("scheduler", "worker"):
            environment["STACK_PRELOAD"] = PRELOAD
        self._processes[name] = self._run([command, *options], name, environment)

    def kill(self, name: str) -> None:
        """End a component at once and as a whole, as a machine that loses its power does."""
        self.signal(name, signal.SIGKILL)
        self._processes[name].wait(END_SECONDS)

    def signal(self, name: str, number: signal.Signals) -> None:
        """Send a signal to a component and all its processes."""
        os.killpg(self._processes[name].pid, number)

    def hold(self, name: str) -> None:
        """Let a component start nothing new; what it has started continues."""
        self._processes[name].send_signal(signal.SIGSTOP)

    def log(self, name: str) -> str:
        """Log of a component."""
        return (self.folder / f"{name}.log").read_text(encoding="utf-8", errors="replace")

    def survivors(self) -> list[str]:
        """Living processes of this stack, as text."""
        return [f"{process.pid} {process.name()}" for process in marked(self._mark)]

    def _run(self, arguments: list[str], name: str, environment: dict[str, str]) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "airflow", *arguments]
        with (self.folder / f"{name}.log").open("ab") as log:
            return subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, start_new_session=True
            )

    def _migrate(self) -> None:
        """Make the database, with the identity from which a test derives names before the first task has run."""
        for arguments in (["db", "migrate"], ["variables", "set", VARIABLE, AIRFLOW]):
            code = self._run(arguments, "migrate", self._environment).wait(BOOT_SECONDS)
            assert code == 0, self.log("migrate")[-3000:]

    def _missing(self) -> list[str]:
        ended = [name for name, process in self._processes.items() if process.poll() is not None]
        if ended:
            raise RuntimeError("\n".join(f"{name} has ended:\n{self.log(name)[-3000:]}" for name in ended))
        health = get(f"{self.url}/api/v2/monitor/health") or {}
        missing = [part for part in PARTS if (health.get(part) or {}).get("status") != "healthy"]
        try:
            return missing or [name for name in self._expected() if name not in self._found()]
        except OSError as error:  # cut off, refused, or a server error of what is still starting
            return [f"an answer of the api-server ({error})"]

    def _expected(self) -> list[str]:
        return [*(path.stem for path in self.dags.glob("*.py")), *TRIGGERERS]

    def _found(self) -> set[str]:
        client = self.client()
        dags = client.call("/api/v2/dags?limit=100")["dags"]
        jobs = client.call("/api/v2/jobs?job_type=TriggererJob&is_alive=true")["jobs"]
        return {dag["dag_id"] for dag in dags} | {job["hostname"] for job in jobs}

    def _end(self) -> None:
        """Nothing of it is needed any more, so nothing is asked to end politely."""
        for process in self._processes.values():
            process.kill()
            process.wait(END_SECONDS)

        def kill_all() -> list[psutil.Process]:
            found = marked(self._mark)
            for process in found:
                # Only what still is the process that was looked at: its number may be another's by now.
                if process.is_running() and bears(process, self._mark):
                    process.kill()
            return found

        eventually(kill_all, lambda found: not found, END_SECONDS)
