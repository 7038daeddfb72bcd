# SPDX-License-Identifier: Apache-2.0
"""A client of a worker's supervisor: starts it and gives it orders."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import localcloud
from localcloud.vm.worker.interface import VMError

ANSWER_SECONDS = 120.0
"""Bound on one order, which takes milliseconds on an idle machine: it ends a hang, never a wait on a busy one."""

_PACKAGES = str(Path(localcloud.__file__).resolve().parent.parent)
_BOOT = "import sys; sys.path.append(sys.argv.pop()); from localcloud.vm.sshd import supervisor; supervisor.main()"


class Supervision:
    """A running supervisor.

    :param process: the process that was started: the supervisor itself, or what wraps it.
    """

    def __init__(
        self, process: subprocess.Popen[bytes], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.process = process
        self._reader = reader
        self._writer = writer
        self._lock = asyncio.Lock()

    async def order(self, verb: str) -> str:
        """Give an order and return the detail of the answer.

        :raises VMError: when the supervisor is gone, silent or cannot do it.
        """
        try:
            async with self._lock, asyncio.timeout(ANSWER_SECONDS):
                self._writer.write(f"{verb}\n".encode())
                await self._writer.drain()
                answer = (await self._reader.readline()).decode().rstrip("\n")
        except TimeoutError as error:
            raise VMError(f"the worker's supervisor did not {verb} within {ANSWER_SECONDS:.0f} s") from error
        except ConnectionError as error:
            raise VMError(f"the worker's supervisor is gone, it cannot {verb}") from error
        if not answer.startswith("ok"):
            raise VMError(f"the worker's supervisor cannot {verb}: {answer or 'it is gone'}")
        return answer.removeprefix("ok").strip()

    async def ended(self) -> int:
        """Wait for the end of the process and return its status.

        :raises TimeoutError: when it does not end.
        """
        try:
            return await asyncio.to_thread(self.process.wait, ANSWER_SECONDS)
        except subprocess.TimeoutExpired as error:
            raise TimeoutError(f"process {self.process.pid} did not end") from error

    def hang_up(self) -> None:
        """Close the line, on which the supervisor kills its tree and ends. Wake it first, if it was stopped."""
        if self.process.poll() is None:
            os.kill(self.process.pid, signal.SIGCONT)
        self._writer.close()


async def supervise(
    wrapper: Sequence[str],
    argv: Sequence[str],
    environment: Mapping[str, str],
    errors: Path,
    startup: Sequence[str] = (),
) -> Supervision:
    """Start a supervisor.

    :param wrapper: command line to put before it, may be empty.
    :param argv: the SSH server's command line.
    :param environment: the SSH server's environment.
    :param errors: file for what it writes to standard error.
    :param startup: command line of the startup script.
    """
    task = json.dumps({"argv": list(argv), "environment": dict(environment), "startup": list(startup)})
    ours, theirs = socket.socketpair()
    with theirs, errors.open("ab") as log:
        # Not asyncio's subprocess: that SIGKILLs its child when a loop is closed early, and a supervisor killed so
        # leaves its tree behind. And from this thread, not a pool's: the kernel's "parent died" means the thread.
        process = subprocess.Popen(  # noqa: ASYNC220 - for the two reasons above
            [*wrapper, sys.executable, "-I", "-S", "-c", _BOOT, task, _PACKAGES],
            stdin=theirs.fileno(),
            stdout=subprocess.DEVNULL,
            stderr=log,
            cwd="/",
            env={"PATH": os.environ.get("PATH", os.defpath)},
            start_new_session=True,  # Ctrl-C in the terminal is the local cloud's to handle
        )
    reader, writer = await asyncio.open_unix_connection(sock=ours)
    return Supervision(process, reader, writer)
