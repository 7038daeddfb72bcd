# SPDX-License-Identifier: Apache-2.0
"""Choosing a driver of TPU VMs, and what is said when something is missing."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from localcloud.vm.processes import proctable, traces
from localcloud.vm.sshd.isolation import Bubblewrap, Subreaper
from localcloud.vm.sshd.openssh import OpenSSH, find_openssh, write_config
from localcloud.vm.sshd.worker import SupervisedDriver
from localcloud.vm.tiers import choose_driver
from localcloud.vm.worker.files import WorkerFiles
from localcloud.vm.worker.interface import TIERS, SSHKey, TierUnavailable, VMError, WorkerSpec
from tests.localcloud.vm.harness import KERNEL_TIERS, KEY, Start, Tiers, login, output, public

pytest_plugins = ("tests.localcloud.vm.fixtures",)


def spec(directory: Path) -> WorkerSpec:
    """Returns a worker of a test."""
    return WorkerSpec("node-1", "us-central2-b", 0, "t1v-n-1-w-0", (public(KEY),), {}, directory)


def program(path: Path, text: str) -> Path:
    """Writes a shell script."""
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


async def test_auto_takes_the_strongest_tier_that_works(vm_tiers: Tiers, tmp_path: Path) -> None:
    """``auto`` gives the first working tier, in the order of their strength."""
    driver = await choose_driver("auto", 0, tmp_path)
    await driver.close()
    assert driver.tier == next(tier for tier in TIERS if tier in vm_tiers.drivers)
    assert os.listdir(tmp_path) == []


async def test_an_unknown_tier_is_named_with_the_choices(tmp_path: Path) -> None:
    """A tier that does not exist is refused, with those that do."""
    with pytest.raises(VMError, match="unknown tier 'docker'; choose one of auto, bwrap, sshd, inprocess"):
        await choose_driver("docker", 0, tmp_path)


async def test_a_missing_sshd_is_explained(tmp_path: Path) -> None:
    """Without sshd the text names the package and the command that installs it."""
    with pytest.raises(TierUnavailable, match="not installed: apt-get install openssh-server"):
        await find_openssh(str(tmp_path))


async def test_another_ssh_server_is_not_taken_for_openssh(tmp_path: Path) -> None:
    """A program of that name which is no OpenSSH is refused, with what it said."""
    program(tmp_path / "sshd", "echo Dropbear v2022.83")
    with pytest.raises(TierUnavailable, match=r"is not OpenSSH.*Dropbear"):
        await find_openssh(str(tmp_path))


@pytest.mark.parametrize("banner", ["OpenSSH_10.0p2 Debian-7", "unknown option -- V\nOpenSSH_8.4p1, OpenSSL 1.1.1"])
async def test_versions_old_and_new_are_understood(tmp_path: Path, banner: str) -> None:
    """The version is read from the answer of new servers and from the complaint of old ones."""
    program(tmp_path / "sshd", f"echo '{banner}' >&2; exit 1")
    server = await find_openssh(str(tmp_path))
    assert server.version in {(10, 0), (8, 4)}
    assert f"OpenSSH_{server.version[0]}.{server.version[1]}" in banner


def test_a_missing_bubblewrap_is_explained(tmp_path: Path) -> None:
    """Without bwrap the text names the package and the command that installs it."""
    with pytest.raises(TierUnavailable, match="not installed: apt-get install bubblewrap"):
        Bubblewrap(str(tmp_path))


def test_a_missing_wrapper_library_is_explained(tmp_path: Path) -> None:
    """Without libnss_wrapper the text names the package and the command that installs it."""
    with pytest.raises(TierUnavailable, match="not installed: apt-get install libnss-wrapper"):
        Subreaper([tmp_path])


@pytest.mark.parametrize(("version", "expected"), [((9, 7), False), ((9, 8), True), ((10, 0), True)])
def test_penalties_are_off_where_they_exist(tmp_path: Path, version: tuple[int, int], expected: bool) -> None:
    """Since OpenSSH 9.8 refused logins shut out an address, which all clients share here: that is switched off."""
    files = WorkerFiles(spec(tmp_path))
    write_config(OpenSSH("/usr/sbin/sshd", version), files, ("127.2.2.2", 22), {})
    assert ("PerSourcePenalties no" in (files.etc / "sshd_config").read_text()) is expected


@pytest.mark.slow
@pytest.mark.parametrize("tier", KERNEL_TIERS)
async def test_a_server_that_fails_to_start_is_quoted(vm_tiers: Tiers, tmp_path: Path, tier: str) -> None:
    """When sshd ends at once, the error carries the end of its output, and no process is left."""
    if tier in vm_tiers.reasons:
        pytest.skip(vm_tiers.reasons[tier])
    broken = program(tmp_path / "sshd", "echo 'Bad configuration option: Tea' >&2; exit 255")
    isolation = Bubblewrap() if tier == "bwrap" else Subreaper()
    driver = SupervisedDriver(OpenSSH(str(broken), (9, 2)), isolation, 0)
    try:
        with pytest.raises(VMError, match=r"(?s)ended at once:.*Bad configuration option: Tea"):
            await driver.start(spec(tmp_path / "worker"))
    finally:
        await driver.close()
    assert list(traces.touching(str(tmp_path))) == []


@pytest.mark.slow
async def test_a_refusal_of_namespaces_is_quoted(tmp_path: Path) -> None:
    """Where the kernel refuses namespaces, as in most containers, the error carries bubblewrap's words."""
    program(tmp_path / "bwrap", "echo 'bwrap: Creating new namespace failed: Operation not permitted' >&2; exit 1")
    driver = SupervisedDriver(OpenSSH("/usr/sbin/sshd", (9, 2)), Bubblewrap(str(tmp_path)), 0)
    try:
        with pytest.raises(VMError, match=r"(?s)supervisor.*Creating new namespace failed"):
            await driver.start(spec(tmp_path / "worker"))
    finally:
        await driver.close()


@pytest.mark.slow
async def test_many_workers_start_at_once(vm_start: Start) -> None:
    """Eight workers that start together are all there, each with its own address, key and home."""
    workers = await asyncio.gather(*(vm_start() for _ in range(8)))
    assert len({worker.address for worker in workers}) == len({worker.host_key for worker in workers}) == 8
    homes = set()
    for worker in workers:
        async with login(worker) as connection:
            homes.add(await output(connection, "pwd"))
    assert len(homes) == 8


@pytest.mark.parametrize("name", ["a:b", 'a"b', "a\\b", "a\nb"])
def test_a_directory_that_no_account_can_have_is_refused(tmp_path: Path, name: str) -> None:
    """A directory that cannot stand in account files or sshd's configuration is refused by name."""
    with pytest.raises(VMError, match="directory must not contain"):
        WorkerFiles(spec(tmp_path / name))


def test_several_keys_of_a_user_go_into_one_file(tmp_path: Path) -> None:
    """A user may have several keys; a user without any has no file left."""
    files = WorkerFiles(spec(tmp_path))
    files.set_keys([SSHKey("a", "ssh-ed25519 AAAA1 x"), SSHKey("a", "ssh-ed25519 AAAA2 y"), SSHKey("b", "ssh-rsa B")])
    assert (files.keys / "a").read_text() == "ssh-ed25519 AAAA1 x\nssh-ed25519 AAAA2 y\n"
    files.set_keys([SSHKey("b", "ssh-rsa B")])
    assert [path.name for path in files.keys.iterdir()] == ["b"]


def test_the_host_key_is_private(tmp_path: Path) -> None:
    """The private host key is readable by its owner only, and changes when renewed."""
    files = WorkerFiles(spec(tmp_path))
    before = files.host_key
    assert files.host_key_file.stat().st_mode & 0o777 == 0o600
    files.new_host_key()
    assert files.host_key_file.stat().st_mode & 0o777 == 0o600
    assert files.host_key != before
    assert files.host_key.startswith("ssh-ed25519 AAAA")


def test_the_process_table_reads_odd_names(tmp_path: Path) -> None:
    """A process whose name holds brackets and spaces is read like any other, with its parent."""
    odd = tmp_path / "a) R 1 (b"
    odd.symlink_to("/bin/sleep")
    with subprocess.Popen([str(odd), "600"], stdin=subprocess.DEVNULL) as process:
        row = proctable.read(process.pid)
        assert row is not None
        assert (row.name, row.parent) == ("a) R 1 (b", os.getpid())
        assert process.pid in [child.pid for child in proctable.descendants(os.getpid())]
        process.kill()
    assert proctable.alive([row]) == []
    assert proctable.read(process.pid) is None


def test_an_order_that_does_not_exist_is_answered() -> None:
    """The supervisor answers an unknown order with an error, keeps serving, and ends when its line is closed."""
    ours, theirs = socket.socketpair()
    boot = "from localcloud.vm.sshd import supervisor; supervisor.main()"
    task = '{"argv": ["/bin/true"], "environment": {}}'
    with subprocess.Popen(
        [sys.executable, "-c", boot, task], stdin=theirs.fileno(), cwd=Path(__file__).parents[3]
    ) as process:
        theirs.close()
        ours.sendall(b"dance\nalive\n")
        with ours.makefile() as answers:
            assert [answers.readline(), answers.readline()] == ["error unknown order 'dance'\n", "ok 0\n"]
        ours.close()
        assert process.wait(timeout=240) == 0
