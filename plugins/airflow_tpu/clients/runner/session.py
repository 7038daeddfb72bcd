# SPDX-License-Identifier: Apache-2.0
"""A run on a worker, over SSH: start it, follow it from any byte, stop it, push what it made."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Self

from airflow_tpu import protocol
from airflow_tpu.clients.runner.connection import WorkerConnection
from airflow_tpu.clients.runner.installed import InstalledRunner, Question
from airflow_tpu.clients.ssh import Login, Timing, WorkerAddress
from airflow_tpu.core import json_form
from airflow_tpu.core.run.job import JobSpec, RunRef
from airflow_tpu.core.run.messages import (
    Finished,
    FollowMessage,
    Gone,
    Heartbeat,
    LogChunk,
    Pushed,
    PushMessage,
    PushProgress,
    RunStatus,
    Started,
    Stopped,
)
from airflow_tpu.errors import ProtocolMismatch

if TYPE_CHECKING:
    from airflow_tpu.clients.runner.frames import Frame
    from airflow_tpu.core.source.bundle import Bundle, RunnerArchive

_STOP_MARGIN_SECS = 45.0  # sweep, recording, and what is done if the supervisor hangs


class RunSession:
    """One connection to one worker, shared by everything that is done on it.

    :param address: the worker.
    :param login: who logs in.
    :param timing: bounds of all waits.
    :param python: the interpreter on the worker, 3.8 or newer.
    :param runner: what is installed on the worker; by default packed from the include directory.
    :raises ConnectionFailed: from every method, when the connection is lost: neither success nor failure of the run.
    :raises LoginRefused: when entered, as :func:`airflow_tpu.clients.ssh.connect` says.
    :raises HostKeyMismatch: when entered.
    :raises ProtocolMismatch: from every method, when the other end does not answer in our protocol.
    """

    def __init__(
        self,
        address: WorkerAddress,
        login: Login,
        timing: Timing | None = None,
        python: str = "python3",
        runner: RunnerArchive | None = None,
    ) -> None:
        self._connection = WorkerConnection(address, login, timing or Timing())
        self._runner = InstalledRunner(self._connection, python, runner)

    async def __aenter__(self) -> Self:
        await self._connection.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._connection.__aexit__(kind, error, traceback)

    @property
    def address(self) -> WorkerAddress:
        """The worker, with the host key that it has shown where none was pinned."""
        return self._connection.address

    async def check(self) -> None:
        """Run a real command: only that proves that the worker is usable."""
        await self._runner.check()

    async def start(self, job: JobSpec, bundle: Bundle, secrets: Mapping[str, str] | None = None) -> Started:
        """Start a job, detached; a second start of the same attempt finds the first.

        What an earlier attempt has left running there is stopped before, which may take its grace.

        :param secrets: variables of the command that are written down nowhere.
        """
        described = {"length": len(bundle.data), "sha256": bundle.sha256}
        kept = json.dumps(dict(secrets)).encode("ascii") if secrets else b""
        more = {"secrets": {"length": len(kept)}} if kept else {}
        header = protocol.encode(protocol.START, job=json_form.to_json(job), bundle=described, **more)
        request = header + bundle.data + kept
        bound = 2 * job.grace_secs + _STOP_MARGIN_SECS
        answer = await self._runner.ask(
            Question("start", (protocol.STARTED, protocol.EXISTS), request=request, bound_secs=bound)
        )
        created = answer["type"] == protocol.STARTED
        return Started(created, answer["pid"], answer["start_time"], answer["boot_id"])

    async def follow(self, run: RunRef, from_offset: int | None = None) -> AsyncGenerator[FollowMessage]:
        """Stream a run's log and heartbeats, and at last :class:`Finished` or :class:`Gone`.

        A chunk counts as delivered when the next message is asked for.

        :param run: the attempt.
        :param from_offset: byte of the log to begin with; None: where the last follower's deliveries ended.
        :raises ConnectionFailed: also if the connection only falls silent.
        """
        start = "delivered" if from_offset is None else str(from_offset)
        command = await self._runner.command("follow", run, "--from", start)
        delivered = from_offset or 0
        async with self._connection.converse(command) as frames:
            async for frame, reply in frames:
                message = _follow_message(frame)
                yield message
                if isinstance(message, LogChunk):
                    delivered = message.end
                if isinstance(message, LogChunk | Heartbeat):  # the worker has to know that it is still followed
                    reply(protocol.encode(protocol.ACK, offset=delivered))
                if isinstance(message, Finished | Gone):
                    return

    async def status(self, run: RunRef) -> RunStatus:
        """Return what has become of a run."""
        answer = await self._runner.ask(Question("status", (protocol.STATUS,), run))
        names = ("state", "size", "delivered", "result", "progress", "reason", "deadline")
        return RunStatus(**{name: answer[name] for name in names})

    async def stop(self, run: RunRef, grace_secs: float = protocol.GRACE_SECS) -> Stopped:
        """Stop a run and all it started: TERM, grace, KILL. Harmless if it has ended or never was."""
        arguments = ("--grace", str(grace_secs))
        question = Question("stop", (protocol.STOPPED,), run, arguments, bound_secs=2 * grace_secs + _STOP_MARGIN_SECS)
        answer = await self._runner.ask(question)
        return Stopped(answer["state"], answer["result"], tuple(answer["survivors"]))

    async def extend(self, run: RunRef, deadline: float) -> float | None:
        """Put a run's deadline off; one that is not later changes nothing.

        The script keeps the ``TRC_DEADLINE`` it was started with.

        :param deadline: Unix time in seconds.
        :return: the deadline that counts now, None if the run has none.
        """
        arguments = ("--deadline", repr(deadline))
        answer = await self._runner.ask(Question("extend", (protocol.EXTENDED,), run, arguments))
        found: float | None = answer["deadline"]
        return found

    async def push(self, run: RunRef, uri: str) -> AsyncIterator[PushMessage]:
        """Upload a run's output and log from the worker to ``gs://bucket/prefix``; at last :class:`Pushed`.

        Files that could not be uploaded stand in the manifest; whether that is a failure is for the caller to say.
        """
        command = await self._runner.command("push", run, "--to", uri)
        async with self._connection.converse(command) as frames:
            async for frame, _ in frames:
                yield _push_message(frame)
                if frame.kind == protocol.PUSHED:
                    return


def _follow_message(frame: Frame) -> FollowMessage:
    fields = frame.fields
    if frame.kind == protocol.LOG:
        return LogChunk(fields["offset"], frame.payload)
    if frame.kind == protocol.HEARTBEAT:
        return Heartbeat(fields["size"], fields["progress"], fields.get("mirror"))
    if frame.kind == protocol.FINISHED:
        return Finished(fields["result"])
    if frame.kind == protocol.GONE:
        return Gone(fields["reason"], fields.get("detail", ""))
    raise ProtocolMismatch(f"unexpected message while following: {fields}")


def _push_message(frame: Frame) -> PushMessage:
    fields = frame.fields
    if frame.kind == protocol.PUSHED:
        return Pushed(fields["uri"], json.loads(frame.payload))
    if frame.kind == protocol.UPLOADED:
        return PushProgress(fields["done"], fields["total"], fields.get("path", ""), fields.get("size", 0))
    raise ProtocolMismatch(f"unexpected message while pushing: {fields}")
