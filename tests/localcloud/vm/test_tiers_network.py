# SPDX-License-Identifier: Apache-2.0
"""The network of TPU VMs: addresses of their own, and the ways in which a connection can fail."""

from __future__ import annotations

import asyncio
import hashlib
import os
import shlex
import socket
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import asyncssh
import pytest

from localcloud.testing import eventually_async
from localcloud.vm.processes import proctable
from localcloud.vm.tiers import choose_driver
from localcloud.vm.worker.addresses import Addresses
from localcloud.vm.worker.interface import VMDriver, VMError
from tests.localcloud.vm.harness import KERNEL_TIERS, WAIT_SECONDS, Start, login, output, settle, until

pytest_plugins = ("tests.localcloud.vm.fixtures",)
pytestmark = pytest.mark.slow

LINES = 200_000
"""Lines of the stream that is interrupted: 11 MB, far more than the buffers on its way hold."""

STREAM = f"import sys\nfor n in range({LINES}): sys.stdout.write('%050d\\n' % n)"


def expected_stream() -> str:
    """Returns the digest of what STREAM prints."""
    return hashlib.sha256(b"".join(b"%050d\n" % number for number in range(LINES))).hexdigest()


async def chunks(process: asyncssh.SSHClientProcess[bytes]) -> AsyncIterator[bytes]:
    """Yields what a process prints until it ends."""
    async with asyncio.timeout(WAIT_SECONDS):
        while data := await process.stdout.read(65536):
            yield data


async def test_drop_cuts_connections_and_spares_detached_processes(vm_start: Start, tmp_path: Path) -> None:
    """After a drop the client's connection is closed, a detached process lives, and a new login works."""
    worker, home = await vm_start(), tmp_path / "worker 0" / "home"
    async with login(worker) as connection:
        await settle(connection, home, "setsid")
        running = await connection.create_process("sleep 600")
        await worker.drop()
        async with asyncio.timeout(WAIT_SECONDS):
            await connection.wait_closed()
            lost = await running.wait()
    assert (lost.exit_status, lost.exit_signal) == (None, None)
    async with login(worker) as connection:
        assert await output(connection, "pgrep -f 'adversary.py setsid$' >/dev/null && echo lives") == "lives"


async def test_freeze_and_thaw_lose_no_byte(vm_start: Start) -> None:
    """A stream that is frozen half-way continues after the thaw from the exact byte."""
    worker = await vm_start()
    digest = hashlib.sha256()
    async with login(worker) as connection:
        command = f"{shlex.quote(sys.executable)} -c {shlex.quote(STREAM)}"
        process = await connection.create_process(command, encoding=None)
        stream = chunks(process)
        digest.update(await anext(stream))
        await worker.freeze()
        await worker.thaw()
        digest.update(await anext(stream))
        await worker.freeze()
        await worker.thaw()
        async for data in stream:
            digest.update(data)
        assert (await process.wait()).exit_status == 0
    assert digest.hexdigest() == expected_stream()


@pytest.mark.parametrize("vm_driver", KERNEL_TIERS, indirect=True)
async def test_freeze_stops_every_process(vm_start: Start, tmp_path: Path) -> None:
    """A frozen worker has nothing running but its supervisor, and continues all of it but what was stopped before."""
    worker, home = await vm_start(), tmp_path / "worker 0" / "home"
    async with login(worker) as connection:
        for kind in ("stopped", "setsid", "respawner", "pid_hopper"):
            await settle(connection, home, kind)
        stopped_before = int(await output(connection, "pgrep -f 'adversary.py stopped$' | head -n 1"))
        await worker.freeze()

        async def states() -> list[str]:
            return [row.state for pid in worker.processes() if (row := proctable.read(pid)) and row.name != "bwrap"]

        # A process stops when it is next given the processor, which takes a moment on a busy machine.
        await eventually_async(states, lambda found: found.count("T") == len(found) - 1)
        await worker.thaw()
        state = f"cut -d ' ' -f 3 /proc/{stopped_before}/stat"
        assert await output(connection, state) == "T"


async def test_a_frozen_worker_answers_when_thawed(vm_start: Start) -> None:
    """A client that connects to a frozen worker hangs, and gets in when it is thawed."""
    worker = await vm_start()
    await worker.freeze()
    reader, writer = await asyncio.open_connection(worker.address, worker.port)
    await worker.thaw()
    async with asyncio.timeout(WAIT_SECONDS):
        assert (await reader.readline()).startswith(b"SSH-2.0-")
    writer.close()
    await writer.wait_closed()


async def test_refuse_spares_connections_and_accept_ends_it(vm_start: Start) -> None:
    """A refusing worker refuses new connections, keeps old ones, and serves both after ``accept``."""
    worker = await vm_start()
    async with login(worker) as old:
        await worker.refuse()
        await worker.refuse()
        with pytest.raises(ConnectionRefusedError):
            async with login(worker):
                pytest.fail("connected to a refusing worker")
        assert await output(old, "echo old") == "old"
        before = worker.host_key
        await worker.rotate_host_key()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(worker.address, worker.port)
        await worker.accept()
        await worker.accept()
        assert worker.host_key != before
        async with login(worker) as new:
            assert await output(new, "echo new") == "new"
        assert await output(old, "echo old again") == "old again"


async def test_two_local_clouds_share_a_port_and_no_address(vm_driver: VMDriver, tmp_path: Path) -> None:
    """A second cloud on the same port hands out other addresses than the first."""
    second = await choose_driver(vm_driver.tier, vm_driver.port, tmp_path)
    try:
        assert second.port == vm_driver.port
    finally:
        await second.close()
    one, two = Addresses(vm_driver.port), Addresses(vm_driver.port)
    try:
        assert not {one.take() for _ in range(300)} & {two.take() for _ in range(300)}
    finally:
        one.close()
        two.close()


def test_addresses_are_handed_out_once() -> None:
    """Addresses stay unique beyond one block of 253, and all lie in 127.0.0.0/8."""
    addresses = Addresses(0)
    try:
        taken = [addresses.take() for _ in range(600)]
    finally:
        addresses.close()
    assert len(set(taken)) == len(taken)
    assert all(address.startswith("127.") for address in taken)


def test_an_address_in_use_is_passed_over() -> None:
    """An address that is in use is not handed out."""
    addresses = Addresses(0)
    try:
        first = addresses.take()
        block, _, last = first.rpartition(".")
        following = f"{block}.{int(last) + 1}"
        with socket.create_server((following, addresses.port)):
            assert addresses.take() not in (first, following)
    finally:
        addresses.close()


def test_a_port_taken_on_all_addresses_is_explained() -> None:
    """Where another server holds the port on all addresses, the text says so and what to do."""
    with socket.create_server(("0.0.0.0", 0)) as other, pytest.raises(VMError, match="choose another --ssh-port"):
        Addresses(other.getsockname()[1])


async def test_no_terminal_is_needed_and_none_is_left(vm_start: Start) -> None:
    """A command gets no terminal on any stream, so no hang-up can reach what it starts."""
    async with login(await vm_start()) as connection:
        text = await output(connection, "for fd in 0 1 2; do test -t $fd && echo terminal; done; echo done")
    assert text == "done"


@pytest.mark.parametrize("vm_driver", KERNEL_TIERS, indirect=True)
async def test_a_terminal_is_given_on_request(vm_start: Start) -> None:
    """A client that asks for a terminal gets one."""
    async with login(await vm_start()) as connection:
        result = await connection.run("test -t 0 && echo terminal", term_type="xterm", check=True)
    assert str(result.stdout).strip() == "terminal"


async def test_a_background_job_that_lets_go_of_its_streams_ends_the_command(vm_start: Start, tmp_path: Path) -> None:
    """A command returns at once when what it leaves behind holds none of its streams, and that lives on."""
    home = tmp_path / "worker 0" / "home"
    async with login(await vm_start()) as connection:
        async with asyncio.timeout(WAIT_SECONDS):
            await connection.run("setsid sleep 600 </dev/null >/dev/null 2>&1 & echo $! >pid", check=True)
    await until((home / "pid").exists, "the job has written its pid")
    assert (home / "pid").read_text().strip().isdigit()
    assert os.listdir(home) == ["pid"]
