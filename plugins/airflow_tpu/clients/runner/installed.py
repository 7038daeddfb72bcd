# SPDX-License-Identifier: Apache-2.0
"""Our program on a worker: installed once a session, called by its command line, understood by its one answer."""

from __future__ import annotations

import asyncio
import functools
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_tpu import protocol
from airflow_tpu.clients.runner.frames import explained
from airflow_tpu.core.source.bundle import RunnerArchive
from airflow_tpu.errors import ProtocolMismatch
from airflow_tpu.settings import remote_dir

if TYPE_CHECKING:
    from pathlib import Path

    from airflow_tpu.clients.runner.connection import WorkerConnection
    from airflow_tpu.core.run.job import RunRef

_CHECKED = protocol.encode(protocol.STATUS).decode("ascii").strip()
"""What the first command on a worker answers."""

_HOME_DIR = f'"$HOME"/{protocol.ROOT_DIR}/{protocol.RUNNER_DIR}'
# Unpacked beside and renamed: of several sessions that install at once, the first one wins and none sees half of it.
_INSTALL = (
    'umask 077; d={home}/{digest}; t="$d.$$"; '
    'if [ -f "$d/runner.py" ]; then cat > /dev/null; exit 0; fi; '
    'mkdir -p "$t" && tar -xzf - -C "$t" || exit 1; '
    'mv -T "$t" "$d" 2> /dev/null || rm -rf "$t"; '
    '[ -f "$d/runner.py" ]'
)


@dataclass(frozen=True)
class Question:
    """A command of the runner that gives one answer.

    :param name: of the command.
    :param expected: types of the answers that fit.
    :param run: the attempt that it is about.
    :param arguments: of the command line.
    :param request: what the command reads from standard input.
    :param bound_secs: how long it may take where that is more than a command usually may.
    """

    name: str
    expected: tuple[str, ...]
    run: RunRef | None = None
    arguments: tuple[str, ...] = ()
    request: bytes = b""
    bound_secs: float = 0.0


class InstalledRunner:
    """Knows where the runner lies on a worker and how it is called, and nothing of what its messages mean.

    :param connection: to the worker, open whenever a method is called.
    :param python: the interpreter on the worker, 3.8 or newer.
    :param archive: what is installed; by default packed from the include directory.
    :raises ConnectionFailed: from every method, when the connection is lost.
    :raises ProtocolMismatch: from every method, when the other end does not answer in our protocol.
    """

    def __init__(self, connection: WorkerConnection, python: str, archive: RunnerArchive | None = None) -> None:
        self._connection = connection
        self._python = python
        self._archive = archive
        self._installing = asyncio.Lock()
        self._folder = ""

    async def check(self) -> None:
        """Run the interpreter: only a real command proves that the worker is usable."""
        test = f"import sys; print({_CHECKED!r}); sys.exit(sys.version_info < (3, 8))"
        done = await self._connection.execute(f"{self._python} -c {shlex.quote(test)}", doing="checking it")
        address, answer = self._connection.address, done.output.strip()
        if done.status != 0 and answer in (b"", _CHECKED.encode()):
            raise ProtocolMismatch(f"{address}: {self._python} is missing or older than 3.8: {done.complaint}")
        if answer != _CHECKED.encode():
            raise explained(address, answer, protocol.ProtocolError("no answer to the first command"))

    async def command(self, name: str, run: RunRef | None = None, *arguments: str) -> str:
        """Return the shell command for the runner, which is installed first if this session has not done so."""
        async with self._installing:
            if not self._folder:
                self._folder = await self._install()
        words = [name]
        if run is not None:
            words += ["--run", run.run_name, "--attempt", str(run.attempt)]
        # UTF-8 whatever the login's locale is: names of files and arguments must arrive as they are.
        return f"exec {self._python} -X utf8 {self._folder}/runner.py {shlex.join([*words, *arguments])}"

    async def ask(self, question: Question) -> dict[str, Any]:
        """Run a command that gives one answer, and return it."""
        command = await self.command(question.name, question.run, *question.arguments)
        done = await self._connection.execute(
            command, question.request, f"asking for {question.name}", question.bound_secs
        )
        address = self._connection.address
        try:
            answer = protocol.decode(done.output)
        except protocol.ProtocolError as error:
            if done.output.strip():
                raise explained(address, done.output, error) from error
            raise ProtocolMismatch(
                f"{address}: {question.name} ended with {done.status}: {error} {done.complaint}"
            ) from error
        if answer["type"] not in question.expected:
            raise ProtocolMismatch(f"{address}: {question.name} was answered by {answer}")
        return answer

    async def _install(self) -> str:
        archive = self._archive or _packed(remote_dir())
        script = _INSTALL.format(home=_HOME_DIR, digest=archive.digest)
        done = await self._connection.execute(f"sh -c {shlex.quote(script)}", archive.data, "installing the runner")
        if done.status != 0 and done.output.strip():  # the script itself writes nothing there
            raise explained(self._connection.address, done.output, protocol.ProtocolError("nothing was installed"))
        if done.status != 0:
            raise ProtocolMismatch(f"{self._connection.address}: the runner could not be installed: {done.complaint}")
        return f"{_HOME_DIR}/{archive.digest}"


@functools.lru_cache(maxsize=1)
def _packed(remote: Path) -> RunnerArchive:
    """The runner as this process has first seen it: a triggerer packs it once, not for every run that it follows."""
    return RunnerArchive.build(remote)
