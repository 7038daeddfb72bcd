# SPDX-License-Identifier: Apache-2.0
"""A session against a real SSH server of the local cloud."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from airflow_tpu.clients.runner.connection import WorkerConnection
from airflow_tpu.clients.runner.session import RunSession
from airflow_tpu.clients.ssh import Login, Timing, WorkerAddress
from airflow_tpu.core.run.job import JobSpec, RunRef
from airflow_tpu.core.run.messages import Finished, FollowMessage, Gone, Heartbeat, LogChunk, Pushed
from airflow_tpu.core.source.bundle import Bundle, RunnerArchive
from airflow_tpu.errors import ConnectionFailed, ProtocolMismatch
from localcloud.clock import RealClock
from localcloud.faults import FaultRegistry
from localcloud.gcs import GCSServer
from localcloud.vm.tiers import choose_driver
from localcloud.vm.worker.interface import SSHKey, Worker, WorkerSpec
from tests.airflow_tpu.clients.conftest import VM_PATH

JOB = JobSpec("run", 1, ("bash", "./say.sh", "hello"))
# Grows by a line ten times a second, for as long as it is let.
TALKER = JobSpec("run", 1, ("bash", "-c", "i=0; while sleep 0.1; do echo line $((i++)); done"), grace_secs=1.0)


async def everything(session: RunSession, run: RunRef, from_offset: int | None = None) -> list[FollowMessage]:
    """All messages of a follower."""
    return [message async for message in session.follow(run, from_offset)]


def text(messages: list[FollowMessage]) -> bytes:
    """The log in them."""
    return b"".join(message.data for message in messages if isinstance(message, LogChunk))


async def test_a_run_is_started_followed_and_found_again(
    address: WorkerAddress, login: Login, timing: Timing, bundle: Bundle
) -> None:
    """A started run delivers its log and its result, and a second start finds the first."""
    async with RunSession(address, login, timing) as session:
        await session.check()
        started = await session.start(JOB, bundle)
        messages = await everything(session, JOB.ref)
        again = await session.start(JOB, bundle)
    assert started.created
    assert text(messages) == b"hello\n"
    assert isinstance(messages[-1], Finished)
    assert messages[-1].result["exit_code"] == 0
    assert (again.created, again.pid) == (False, started.pid)


async def test_a_follower_of_a_silent_run_is_heard(
    address: WorkerAddress, login: Login, timing: Timing, bundle: Bundle, tmp_path: Path
) -> None:
    """Each heartbeat is answered: a worker knows that it is followed although there is nothing to acknowledge."""
    silent = JobSpec("run", 1, ("sleep", "1000"), grace_secs=1.0)
    contact = tmp_path / "worker/home/.airflow-tpu/runs/run/attempt-1/contact"
    async with RunSession(address, login, timing) as session:
        await session.start(silent, bundle)
        beats = 0
        async with contextlib.aclosing(session.follow(silent.ref)) as messages:
            async for message in messages:
                assert isinstance(message, Heartbeat)
                if beats == 0:
                    os.utime(contact, (1000.0, 1000.0))
                elif contact.stat().st_mtime > 1000.0:
                    break
                beats += 1
        await session.stop(silent.ref, 1.0)


async def test_a_run_is_extended(address: WorkerAddress, login: Login, timing: Timing, bundle: Bundle) -> None:
    """A later deadline counts from now on, an earlier one changes nothing, and a run without one stays without."""
    bounded = JobSpec("run", 1, ("sleep", "1000"), grace_secs=1.0, deadline=4e9)
    endless = JobSpec("run", 2, ("sleep", "1000"), grace_secs=1.0)
    async with RunSession(address, login, timing) as session:
        for job, deadlines in ((bounded, [4.5e9, 4.5e9]), (endless, [None, None])):
            await session.start(job, bundle)
            assert [await session.extend(job.ref, until) for until in (4.5e9, 3e9)] == deadlines
            assert (await session.status(job.ref)).deadline == deadlines[-1]
            await session.stop(job.ref, 1.0)


async def test_a_cut_connection_is_a_third_outcome_and_the_log_goes_on_from_the_byte(
    worker: Worker, address: WorkerAddress, login: Login, timing: Timing, bundle: Bundle
) -> None:
    """After cuts the run continues, and the pieces join to the log without a gap or a repetition."""
    received = b""

    async def follow_until_cut() -> None:
        nonlocal received
        async with RunSession(address, login, timing) as session:
            async for message in session.follow(TALKER.ref, len(received)):
                if isinstance(message, LogChunk):
                    assert message.offset == len(received)
                    received += message.data
                    await worker.drop()

    async with RunSession(address, login, timing) as session:
        await session.start(TALKER, bundle)
    for _ in range(3):
        with pytest.raises(ConnectionFailed):
            await follow_until_cut()
    async with RunSession(address, login, timing) as session:
        stopped = await session.stop(TALKER.ref, 1.0)
        received += text(await everything(session, TALKER.ref, len(received)))
        whole = text(await everything(session, TALKER.ref, 0))
    assert stopped.survivors == ()
    assert received == whole
    assert whole.startswith(b"line 0\nline 1\n")


async def test_a_new_follower_begins_behind_what_was_delivered(
    address: WorkerAddress, login: Login, timing: Timing, bundle: Bundle
) -> None:
    """Without an offset the log starts behind the last chunk that a follower has consumed."""
    job = replace(JOB, argv=("bash", "-c", "echo one; until [ -e go ]; do sleep 0.05; done; echo two"))
    async with RunSession(address, login, timing) as session:
        await session.start(job, bundle)
        async for message in session.follow(job.ref):
            if isinstance(message, Heartbeat) and (await session.status(job.ref)).delivered == 4:
                break
        async with WorkerConnection(address, login, timing) as other:
            await other.execute('touch "$HOME"/.airflow-tpu/runs/run/attempt-1/bundle/go')
        rest = await everything(session, job.ref)
    assert text(rest) == b"two\n"


async def test_a_frozen_machine_is_noticed(
    worker: Worker, address: WorkerAddress, login: Login, timing: Timing, bundle: Bundle
) -> None:
    """A connection that only falls silent ends as a failed one, long before TCP would tell."""

    frozen = False

    async def follow_until_frozen() -> None:
        nonlocal frozen
        async with RunSession(address, login, replace(timing, keepalive=1.0, frame=6.0)) as session:
            async for message in session.follow(TALKER.ref):
                if isinstance(message, LogChunk):
                    frozen = True
                    await worker.freeze()

    async with RunSession(address, login, timing) as session:
        await session.start(TALKER, bundle)
    while not frozen:  # a busy machine may look frozen before it is
        with pytest.raises(ConnectionFailed):
            await follow_until_frozen()
    await worker.thaw()
    async with RunSession(address, login, timing) as session:
        assert (await session.status(TALKER.ref)).state == "running"


async def test_an_unknown_run_is_gone(address: WorkerAddress, login: Login, timing: Timing) -> None:
    """Following, asking for and stopping a run that this machine never saw give clear answers."""
    async with RunSession(address, login, timing) as session:
        messages = await everything(session, RunRef("other", 1))
        status = await session.status(RunRef("other", 1))
        stopped = await session.stop(RunRef("other", 1), 1.0)
    assert messages == [Gone("no-pid", "this machine knows no attempt 1 of other")]
    assert (status.state, stopped.state) == ("absent", "absent")


async def test_a_push_goes_from_the_worker_to_the_bucket(
    tmp_path: Path, ssh_key: SSHKey, login: Login, timing: Timing, bundle: Bundle
) -> None:
    """The worker finds the store by its own environment, uploads, and hands the manifest over; again is the same."""
    server = GCSServer(tmp_path / "gcs", RealClock(), FaultRegistry())
    server.create_bucket("art")
    driver = await choose_driver("auto", 0, tmp_path / "driver")
    job = replace(JOB, argv=("bash", "-c", "echo 97 > $TRC_OUTPUT_DIR/metrics.json"))
    try:
        environment = {"PATH": VM_PATH, "STORAGE_EMULATOR_HOST": await server.start()}
        worker = await driver.start(
            WorkerSpec("n1", "us-central2-b", 0, "t1v-n-1-w-0", (ssh_key,), environment, tmp_path / "vm")
        )
        async with RunSession(WorkerAddress(worker.address, worker.port, worker.host_key), login, timing) as session:
            await session.start(job, bundle)
            await everything(session, job.ref)
            first = [message async for message in session.push(job.ref, "gs://art/runs/one")]
            second = [message async for message in session.push(job.ref, "gs://art/runs/one")]
    finally:
        await driver.close()
        await server.close()
    assert isinstance(first[-1], Pushed)
    assert first[-1].uri == "gs://art/runs/one/manifest.json"
    assert [entry["path"] for entry in first[-1].manifest["files"]] == ["log.txt", "output/metrics.json"]
    assert second[-1] == first[-1]


async def test_a_runner_that_does_not_speak_our_language_is_a_mismatch(
    address: WorkerAddress, login: Login, timing: Timing, tmp_path: Path
) -> None:
    """Another runner on the worker, or no Python, is reported as such and not as a failed run."""
    (tmp_path / "remote").mkdir()
    (tmp_path / "remote" / "runner.py").write_text("print('hello')\n")
    stranger = RunnerArchive.build(tmp_path / "remote")
    async with RunSession(address, login, timing, runner=stranger) as session:
        with pytest.raises(ProtocolMismatch, match=r"not our program .'hello'.: the login runs a forced command"):
            await session.status(JOB.ref)
    async with RunSession(address, login, timing, python="python9") as session:
        with pytest.raises(ProtocolMismatch, match="python9 is missing"):
            await session.check()


@pytest.mark.parametrize(
    ("forced", "words"),
    [
        ('echo Welcome to the cluster; eval "$SSH_ORIGINAL_COMMAND"', "prints a banner .*Welcome to the cluster"),
        ("echo only backups", "not our program .*only backups.* forced command"),
        ("echo This account is not available; exit 1", "not our program .*This account is not available"),
    ],
)
async def test_login_that_talks_is_no_other_version(
    worker: Worker, address: WorkerAddress, login: Login, ssh_key: SSHKey, timing: Timing, forced: str, words: str
) -> None:
    """A banner, a forced command and a closed account are named, at the first command and at any later one."""
    quoted = forced.replace('"', '\\"')
    await worker.set_keys((SSHKey(login.user, f'command="{quoted}" {ssh_key.public_key}'),))
    async with RunSession(address, login, timing) as session:
        with pytest.raises(ProtocolMismatch, match=words):
            await session.check()
        with pytest.raises(ProtocolMismatch, match=words):
            await session.status(JOB.ref)
        with pytest.raises(ProtocolMismatch, match=words):
            await everything(session, JOB.ref)


async def test_other_release_on_the_worker_is_named(
    address: WorkerAddress, login: Login, timing: Timing, tmp_path: Path
) -> None:
    """A runner whose messages carry another version is of another release, and no banner."""
    (tmp_path / "remote").mkdir()
    answer = json.dumps({"v": 99, "type": "status"})
    (tmp_path / "remote" / "runner.py").write_text(f"print({answer!r})\n")
    async with RunSession(address, login, timing, runner=RunnerArchive.build(tmp_path / "remote")) as session:
        with pytest.raises(ProtocolMismatch, match=r"protocol version 99, .* of another release"):
            await session.status(JOB.ref)
        with pytest.raises(ProtocolMismatch, match=r"protocol version 99, .* of another release"):
            await everything(session, JOB.ref)


async def test_many_sessions_install_the_runner_at_once(address: WorkerAddress, login: Login, timing: Timing) -> None:
    """Sessions that find no runner on the worker do not get into each other's way."""

    async def ask() -> str:
        async with RunSession(address, login, timing) as session:
            return (await session.status(JOB.ref)).state

    assert await asyncio.gather(*(ask() for _ in range(6))) == ["absent"] * 6
