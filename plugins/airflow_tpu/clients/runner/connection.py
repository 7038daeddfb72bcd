# SPDX-License-Identifier: Apache-2.0
"""One open SSH connection to one worker: commands run to their end, and commands that converse."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from types import TracebackType
from typing import TYPE_CHECKING, Self

from airflow_tpu.clients.runner.frames import conversation
from airflow_tpu.clients.ssh import Login, Timing, WorkerAddress, connect, lost_connections
from airflow_tpu.errors import ConnectionFailed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import asyncssh

    from airflow_tpu.clients.runner.frames import Frame, Reply

log = logging.getLogger(__name__)

_SLOW_LINK = 200_000  # bytes per second that an upload may be counted on
_COMPLAINT_BYTES = 2000


@dataclass(frozen=True)
class Completed:
    """A command that has run to its end.

    :param status: exit status; negative after a signal.
    :param output: all of standard output.
    :param complaint: the end of standard error.
    """

    status: int
    output: bytes
    complaint: str


class WorkerConnection:
    """Knows SSH and nothing of the runner.

    :param address: the worker; once connected, with the host key that it has shown.
    :param login: who logs in.
    :param timing: bounds of all waits.
    """

    def __init__(self, address: WorkerAddress, login: Login, timing: Timing) -> None:
        self.address = address
        self._login = login
        self._timing = timing
        self._connection: asyncssh.SSHClientConnection | None = None

    async def __aenter__(self) -> Self:
        self._connection = await connect(self.address, self._login, self._timing)
        if self.address.host_key is None:
            self._pin_first_key(self._connection)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            # No orderly close: a frozen machine would not answer it.
            connection.abort()
            await connection.wait_closed()

    async def execute(self, command: str, data: bytes = b"", doing: str = "", bound: float = 0.0) -> Completed:
        """Run a command to its end.

        :param command: for the login shell.
        :param data: its standard input.
        :param doing: for error texts: what was being done when the connection was lost.
        :param bound: seconds that it may take if that is more than a command usually may; the upload comes on top.
        :raises ConnectionFailed: the connection was lost, or nothing came within the bound.
        """
        bound = max(bound, self._timing.command) + len(data) / _SLOW_LINK
        async with lost_connections(self.address, doing), asyncio.timeout(bound):
            process = await self._open.create_process(command, encoding=None)
            if data:
                with contextlib.suppress(BrokenPipeError):  # it has ended without reading: its output says why
                    process.stdin.write(data)
                    process.stdin.write_eof()
            done = await process.wait()
        if done.exit_status is None:
            raise ConnectionFailed(f"connection to {self.address} was lost while {doing}")
        complaint = _raw(done.stderr)[-_COMPLAINT_BYTES:].decode(errors="replace")
        return Completed(done.exit_status, _raw(done.stdout), complaint)

    def converse(self, command: str) -> AbstractAsyncContextManager[AsyncIterator[tuple[Frame, Reply]]]:
        """Run a command that sends messages and reads replies, as :func:`conversation` says."""
        return conversation(self._open, self.address, command, self._timing.frame)

    @property
    def _open(self) -> asyncssh.SSHClientConnection:
        if self._connection is None:
            raise RuntimeError("the session is not open")
        return self._connection

    def _pin_first_key(self, connection: asyncssh.SSHClientConnection) -> None:
        key = connection.get_server_host_key()
        if key is None:
            return
        self.address = replace(self.address, host_key=key.export_public_key().decode("ascii").strip())
        log.warning("No host key known for %s; trusting %s for this TPU", self.address, key.get_fingerprint())


def _raw(output: bytes | str | None) -> bytes:
    return output if isinstance(output, bytes) else (output or "").encode()
