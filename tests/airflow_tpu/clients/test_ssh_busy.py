# SPDX-License-Identifier: Apache-2.0
"""An sshd that is asked by too many at once closes connections before it has said who it is (MaxStartups)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from airflow_tpu.clients.runner.session import RunSession
from airflow_tpu.clients.ssh import Login, Timing, WorkerAddress
from airflow_tpu.errors import ConnectionFailed


class BusyDoor:
    """A port that closes some connections without a word and leads the others to a worker.

    :param address: of the worker.
    :param closes: how many it closes, the first ones.
    """

    def __init__(self, address: WorkerAddress, closes: int) -> None:
        self._address = address
        self.closes = closes

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator[WorkerAddress]:
        """Where to connect instead."""
        server = await asyncio.start_server(self._enter, "127.0.0.1", 0)
        async with server:
            yield replace(self._address, host="127.0.0.1", port=server.sockets[0].getsockname()[1])

    async def _enter(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.closes:
            self.closes -= 1
            writer.close()
            return
        inside, outside = await asyncio.open_connection(self._address.host, self._address.port)
        await asyncio.gather(_pass_on(reader, outside), _pass_on(inside, writer))


async def _pass_on(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await source.read(65536):
            sink.write(data)
            await sink.drain()
    sink.close()


async def test_who_is_turned_away_before_the_banner_comes_again(
    address: WorkerAddress, login: Login, timing: Timing
) -> None:
    """Of eight sessions that come at once six are turned away at first, and all get in."""
    door = BusyDoor(address, closes=6)

    async def visit(at: WorkerAddress) -> None:
        async with RunSession(at, login, timing) as session:
            await session.check()

    async with door.open() as busy:
        await asyncio.gather(*(visit(busy) for _ in range(8)))
    assert door.closes == 0


async def test_who_is_always_turned_away_says_so(address: WorkerAddress, login: Login, timing: Timing) -> None:
    """After the boot window the error is that of a failed connection: neither a refused key nor a failed run."""
    async with BusyDoor(address, closes=1000).open() as busy:
        with pytest.raises(ConnectionFailed, match=r"connection to .* failed"):
            await RunSession(busy, login, replace(timing, boot_window=0.0)).__aenter__()
