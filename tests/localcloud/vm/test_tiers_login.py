# SPDX-License-Identifier: Apache-2.0
"""Logins to a TPU VM of the local cloud, and what a session finds there."""

from __future__ import annotations

import hashlib
from pathlib import Path

import asyncssh
import pytest

from localcloud.vm.worker.host_key import write_host_key
from localcloud.vm.worker.interface import VMDriver, VMError
from tests.localcloud.vm.harness import KEY, STRANGER, Start, login, output, public

pytest_plugins = ("tests.localcloud.vm.fixtures",)
pytestmark = pytest.mark.slow

MEBIBYTE = bytes(range(256)) * 4096


async def test_login_with_the_pinned_host_key_runs_a_command(vm_start: Start) -> None:
    """A client that pins the worker's host key logs in and runs a command."""
    async with login(await vm_start()) as connection:
        assert await output(connection, "echo hello") == "hello"


async def test_another_host_key_is_refused(vm_start: Start, tmp_path: Path) -> None:
    """A client that pins another host key does not connect."""
    worker = await vm_start()
    with pytest.raises(asyncssh.HostKeyNotVerifiable):
        async with login(worker, host_key=write_host_key(tmp_path / "other")):
            pytest.fail("connected to a server with another key")


async def test_an_unknown_client_key_is_refused(vm_start: Start) -> None:
    """A client key that is not in the metadata opens nothing."""
    worker = await vm_start()
    with pytest.raises(asyncssh.PermissionDenied):
        async with login(worker, STRANGER):
            pytest.fail("logged in with a key that nobody authorized")


async def test_a_key_opens_only_its_own_user(vm_start: Start) -> None:
    """The user before the colon of a metadata line is the only one that the key admits."""
    worker = await vm_start([public(KEY, "alice"), public(STRANGER, "bob")])
    async with login(worker, KEY, "alice") as connection:
        assert await output(connection, "echo $USER") == "alice"
    with pytest.raises(asyncssh.PermissionDenied):
        async with login(worker, KEY, "bob"):
            pytest.fail("logged in as somebody else")


@pytest.mark.parametrize("user", ["root", "nobody", "first.last", "sa_1057", "a-b@corp"])
async def test_any_login_name_works(vm_start: Start, user: str) -> None:
    """Any name logs in and lands in the worker's home, also one that this machine has an account for."""
    worker = await vm_start([public(KEY, user)])
    async with login(worker, user=user) as connection:
        assert (await output(connection, "echo $USER; pwd")).splitlines()[0] == user
        assert (await output(connection, "pwd")).endswith("/home")


async def test_home_cwd_and_sftp_are_the_workers_own(vm_start: Start, tmp_path: Path) -> None:
    """HOME, the working directory of commands and the start of SFTP are ``home`` of the worker's directory."""
    worker = await vm_start()
    home = tmp_path / "worker 0" / "home"
    async with login(worker) as connection:
        assert await output(connection, 'echo "$HOME"; pwd; echo ~') == "\n".join([str(home)] * 3)
        async with connection.start_sftp_client() as sftp:
            assert await sftp.realpath(".") == str(home)
            async with sftp.open("note.txt", "w") as file:
                await file.write("by sftp")
        assert await output(connection, "cat note.txt") == "by sftp"
    assert (home / "note.txt").read_text() == "by sftp"


async def test_two_workers_have_different_homes_and_keys(vm_start: Start) -> None:
    """Workers share neither home nor host key nor address, but the port."""
    one, two = await vm_start(), await vm_start()
    assert one.host_key != two.host_key
    assert one.address != two.address
    assert one.port == two.port
    async with login(one) as first, login(two) as second:
        assert await output(first, "pwd") != await output(second, "pwd")


async def test_environment_reaches_non_interactive_commands(vm_start: Start) -> None:
    """Variables of the spec are visible to a plain command, whatever characters they hold."""
    odd = "a b \"c\" \\d $HOME #e 'f' %h 학습"
    worker = await vm_start(environment={"STORAGE_EMULATOR_HOST": "http://127.0.0.1:1", "ODD": odd, "EMPTY": ""})
    async with login(worker) as connection:
        text = await output(connection, 'echo "$STORAGE_EMULATOR_HOST"; printf "%s\\n" "$ODD"; echo "[${EMPTY-unset}]"')
    assert text.splitlines() == ["http://127.0.0.1:1", odd, "[]"]


async def test_path_of_the_spec_finds_its_programs(vm_start: Start, tmp_path: Path) -> None:
    """A program in a directory of the spec's PATH is found by name."""
    program = tmp_path / "bin" / "python3.trc"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho found\n")
    program.chmod(0o755)
    worker = await vm_start(environment={"PATH": f"{program.parent}:/usr/bin:/bin"})
    async with login(worker) as connection:
        assert await output(connection, "python3.trc") == "found"


@pytest.mark.parametrize("variables", [{"A-B": "x"}, {"": "x"}, {"A": "two\nlines"}])
async def test_an_impossible_variable_is_named(vm_start: Start, variables: dict[str, str]) -> None:
    """A variable that a session cannot carry stops the start, and the text names it."""
    with pytest.raises(VMError, match=r"^environment: "):
        await vm_start(environment=variables)


@pytest.mark.parametrize("user", ["", "a b", "a:b", "../x", "-x", "a/b"])
async def test_an_impossible_login_name_is_named(vm_start: Start, user: str) -> None:
    """A metadata line whose user cannot be one stops the start, and the text shows it."""
    with pytest.raises(VMError, match="is not a login name"):
        await vm_start([public(KEY, user)])


async def test_streams_of_many_megabytes_pass_unharmed(vm_start: Start) -> None:
    """Twelve MiB on standard input come back byte for byte, with the exit status after the last of them."""
    data = MEBIBYTE * 12
    async with login(await vm_start()) as connection:
        result = await connection.run("cat; exit 7", input=data, encoding=None)
    assert isinstance(result.stdout, bytes)
    assert hashlib.sha256(result.stdout).digest() == hashlib.sha256(data).digest()
    assert result.exit_status == 7


async def test_a_signal_is_reported_as_one(vm_start: Start) -> None:
    """A command that dies by a signal is told apart from one that exits."""
    async with login(await vm_start()) as connection:
        result = await connection.run("kill -KILL $$")
    assert result.exit_signal is not None
    assert result.exit_signal[0] == "KILL"


async def test_many_sessions_share_one_connection(vm_start: Start) -> None:
    """More sessions than OpenSSH's default limit of ten run side by side on one connection."""
    async with login(await vm_start()) as connection:
        running = [await connection.create_process("cat") for _ in range(25)]
        for number, process in enumerate(running):
            process.stdin.write(f"{number}\n")
            process.stdin.write_eof()
        answers = [str((await process.wait()).stdout).strip() for process in running]
    assert answers == [str(number) for number in range(25)]


async def test_keys_may_come_late(vm_start: Start) -> None:
    """A worker without keys refuses every login; keys that are set later admit, and replaced ones admit no more."""
    worker = await vm_start(keys=())
    with pytest.raises(asyncssh.PermissionDenied):
        async with login(worker):
            pytest.fail("logged in before the key was there")
    await worker.set_keys([public(KEY)])
    async with login(worker) as connection:
        assert await output(connection, "echo $USER") == "tpu"
    await worker.set_keys([public(STRANGER, "new-user")])
    async with login(worker, STRANGER, "new-user") as connection:
        assert await output(connection, "echo $USER") == "new-user"
    with pytest.raises(asyncssh.PermissionDenied):
        async with login(worker):
            pytest.fail("logged in with a key that was taken away")


async def test_a_rotated_host_key_replaces_the_old_one(vm_start: Start) -> None:
    """After a rotation the old pin fails, the new one holds, and established connections stay open."""
    worker = await vm_start()
    before = worker.host_key
    async with login(worker) as old:
        await worker.rotate_host_key()
        assert worker.host_key != before
        with pytest.raises(asyncssh.HostKeyNotVerifiable):
            async with login(worker, host_key=before):
                pytest.fail("the old host key still works")
        async with login(worker) as new:
            assert await output(new, "echo new") == "new"
        assert await output(old, "echo old") == "old"


async def test_many_refused_logins_shut_nobody_out(vm_start: Start) -> None:
    """Refused logins do not turn against the next client, though all come from the same address."""
    worker = await vm_start()
    for _ in range(8):
        with pytest.raises(asyncssh.PermissionDenied):
            async with login(worker, STRANGER):
                pytest.fail("logged in with a key that nobody authorized")
    async with login(worker) as connection:
        assert await output(connection, "echo in") == "in"


async def test_the_namespace_is_the_workers_own(vm_start: Start, vm_driver: VMDriver) -> None:
    """In the bwrap tier the host name, ``whoami`` and the process list are the worker's; elsewhere this machine's."""
    worker = await vm_start()
    async with login(worker) as connection:
        seen = (await output(connection, "hostname; whoami; cat /proc/1/comm")).splitlines()
    own = seen[0] == worker.hostname and seen[1] == "tpu" and seen[2].startswith("python")
    assert own == (vm_driver.tier == "bwrap")
