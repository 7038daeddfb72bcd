# SPDX-License-Identifier: Apache-2.0
"""Messages read from a command on a worker, with a bound on its silence."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow_tpu import protocol
from airflow_tpu.clients.ssh import WorkerAddress, lost_connections
from airflow_tpu.errors import ConnectionFailed, ProtocolMismatch

if TYPE_CHECKING:
    import asyncssh

_GOODBYE_SECS = 5.0
_SHOWN = 200  # bytes of foreign output

Reply = Callable[[bytes], None]


@dataclass(frozen=True)
class Frame:
    """One message.

    :param fields: the message.
    :param payload: the raw bytes that followed it.
    """

    fields: dict[str, Any]
    payload: bytes = b""

    @property
    def kind(self) -> str:
        """The message's type."""
        kind: str = self.fields["type"]
        return kind


def explained(address: WorkerAddress, output: bytes, error: protocol.ProtocolError) -> ProtocolMismatch:
    """Return the error of output that begins with no message of ours: another version is not a login that talks.

    :param address: the worker.
    :param output: what the command wrote.
    :param error: what is wrong with its first line.
    """
    if isinstance(error, protocol.OtherVersion):
        return ProtocolMismatch(f"{address}: {error}; the runner there is of another release")
    shown = output[:_SHOWN].decode(errors="replace").strip()
    if any(_is_message(line) for line in output.splitlines()[1:]):
        return ProtocolMismatch(
            f"{address}: the login prints a banner before the runner's answer ({shown!r}): let .bashrc and the profile "
            "print nothing where the shell is not interactive"
        )
    return ProtocolMismatch(
        f"{address}: what answers there is not our program ({shown!r}): the login runs a forced command (command= in "
        "authorized_keys, ForceCommand of sshd) or prints a banner. Log in with an account that runs what is asked for"
    )


def _is_message(line: bytes) -> bool:
    try:
        protocol.decode(line)
    except protocol.OtherVersion:
        return True
    except protocol.ProtocolError:
        return False
    return True


@contextlib.asynccontextmanager
async def conversation(
    connection: asyncssh.SSHClientConnection, address: WorkerAddress, command: str, silence: float
) -> AsyncIterator[AsyncIterator[tuple[Frame, Reply]]]:
    """Run a command that sends messages and reads replies; its standard input ends with the block.

    :param connection: an open one.
    :param address: for error texts.
    :param command: what to run.
    :param silence: seconds without a byte after which the connection counts as frozen.
    """
    async with lost_connections(address, "opening a channel"), asyncio.timeout(silence):
        process = await connection.create_process(command, encoding=None)
    frames = _frames(process, address, silence)
    try:
        yield frames
    except BaseException:
        process.close()  # after an error, or when the caller leaves early: do not wait
        raise
    await frames.aclose()
    await _close(process)


async def _close(process: asyncssh.SSHClientProcess[bytes]) -> None:
    """Let the command read the last replies; do not insist."""
    with contextlib.suppress(OSError):
        process.stdin.write_eof()
    try:
        async with asyncio.timeout(_GOODBYE_SECS):
            await process.wait_closed()
    except TimeoutError:
        process.close()


async def _frames(
    process: asyncssh.SSHClientProcess[bytes], address: WorkerAddress, silence: float
) -> AsyncGenerator[tuple[Frame, Reply], None]:
    while True:
        async with lost_connections(address, "following it"):
            frame = await _read(process, address, silence)
        if frame is None:
            raise await _cause_of_end(process, address)
        if frame.kind == protocol.ERROR:
            raise ProtocolMismatch(f"{address}: {frame.fields['reason']}: {frame.fields['message']}")
        yield frame, partial(_reply, process)


def _reply(process: asyncssh.SSHClientProcess[bytes], data: bytes) -> None:
    """A lost connection shows at the next read, which explains it."""
    with contextlib.suppress(OSError):
        process.stdin.write(data)


async def _read(process: asyncssh.SSHClientProcess[bytes], address: WorkerAddress, silence: float) -> Frame | None:
    async with asyncio.timeout(silence):
        line = await process.stdout.readline()
    if not line.endswith(b"\n"):
        return None
    try:
        fields = protocol.decode(line)
    except protocol.ProtocolError as error:
        async with asyncio.timeout(silence):
            more = await process.stdout.read(_SHOWN)  # after a banner comes the answer
        raise explained(address, line + more, error) from error
    payload = bytearray()
    while len(payload) < fields.get("length", 0):
        async with asyncio.timeout(silence):
            data = await process.stdout.read(fields["length"] - len(payload))
        if not data:
            return None
        payload += data
    return Frame(fields, bytes(payload))


async def _cause_of_end(
    process: asyncssh.SSHClientProcess[bytes], address: WorkerAddress
) -> ConnectionFailed | ProtocolMismatch:
    """Tell a lost connection, which has no exit status, from a command that ended without the last message."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_GOODBYE_SECS):
            await process.wait_closed()
    status = process.exit_status
    if status is None or status < 0:  # -1: ended by a signal, which is how a machine goes down
        return ConnectionFailed(f"connection to {address} was lost")
    complaint = (await process.stderr.read(2000)).decode(errors="replace")
    return ProtocolMismatch(f"{address}: the runner left with {status} and without a last message: {complaint}")
