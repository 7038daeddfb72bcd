"""A run on a worker, over SSH: start it, follow it from any byte, stop it, push what it made."""

from __future__ import annotations

import asyncio
import json
import logging
import shlex
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from airflow_tpu import protocol
from airflow_tpu.clients.ssh import Login, Timing, WorkerAddress, connect, lost_connections
from airflow_tpu.clients.ssh_frames import Frame, conversation
from airflow_tpu.core import json_form
from airflow_tpu.core.run.bundle import Bundle, RunnerArchive
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
from airflow_tpu.errors import ConnectionFailed, ProtocolMismatch
from airflow_tpu.settings import remote_dir

if TYPE_CHECKING:
    import asyncssh

log = logging.getLogger(__name__)

_SLOW_LINK = 200_000  # bytes per second that an upload may be counted on
_STOP_MARGIN_SECS = 45.0  # sweep, recording, and what is done if the supervisor hangs
_HOME_DIR = f'"$HOME"/{protocol.ROOT_DIR}/{protocol.RUNNER_DIR}'
# Unpacked beside and renamed: of several sessions that install at once, the first one wins and none sees half of it.
_INSTALL = (
    'umask 077; d={home}/{digest}; t="$d.$$"; '
    'if [ -f "$d/runner.py" ]; then cat > /dev/null; exit 0; fi; '
    'mkdir -p "$t" && tar -xf - -C "$t" || exit 1; '
    'mv -T "$t" "$d" 2> /dev/null || rm -rf "$t"; '
    '[ -f "$d/runner.py" ]'
)


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
        self.address = address
        self._login = login
        self._timing = timing or Timing()
        self._python = python
        self._runner = runner
        self._connection: asyncssh.SSHClientConnection | None = None
        self._installing = asyncio.Lock()
        self._runner_dir = ""

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

    def _pin_first_key(self, connection: asyncssh.SSHClientConnection) -> None:
        key = connection.get_server_host_key()
        if key is None:
            return
        self.address = replace(self.address, host_key=key.export_public_key().decode("ascii").strip())
        log.warning("No host key known for %s; trusting %s for this TPU", self.address, key.get_fingerprint())

    async def check(self) -> None:
        """Run a real command: only that proves that the worker is usable."""
        test = "import sys; sys.exit(sys.version_info < (3, 8))"
        status, _, complaint = await self._execute(f"{self._python} -c {shlex.quote(test)}", doing="checking it")
        if status != 0:
            raise ProtocolMismatch(f"{self.address}: {self._python} is missing or older than 3.8: {complaint}")

    async def start(self, job: JobSpec, bundle: Bundle) -> Started:
        """Start a job, detached; a second start of the same attempt finds the first."""
        described = {"length": len(bundle.data), "sha256": bundle.sha256}
        request = protocol.encode(protocol.START, job=json_form.to_json(job), bundle=described) + bundle.data
        answer = await self._ask("start", request, expected=(protocol.STARTED, protocol.EXISTS))
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
        command = await self._command("follow", run, "--from", start)
        delivered = from_offset or 0
        async with conversation(self._open, self.address, command, self._timing.frame) as frames:
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
        answer = await self._ask("status", run=run, expected=(protocol.STATUS,))
        names = ("state", "size", "delivered", "result", "progress", "reason", "deadline")
        return RunStatus(**{name: answer[name] for name in names})

    async def stop(self, run: RunRef, grace_secs: float = protocol.GRACE_SECS) -> Stopped:
        """Stop a run and all it started: TERM, grace, KILL. Harmless if it has ended or never was."""
        arguments = ("--grace", str(grace_secs))
        bound = 2 * grace_secs + _STOP_MARGIN_SECS
        answer = await self._ask("stop", run=run, arguments=arguments, bound=bound, expected=(protocol.STOPPED,))
        return Stopped(answer["state"], answer["result"], tuple(answer["survivors"]))

    async def extend(self, run: RunRef, deadline: float) -> float | None:
        """Put a run's deadline off; one that is not later changes nothing.

        The script keeps the ``TRC_DEADLINE`` it was started with.

        :param deadline: Unix time in seconds.
        :return: the deadline that counts now, None if the run has none.
        """
        arguments = ("--deadline", repr(deadline))
        answer = await self._ask("extend", run=run, arguments=arguments, expected=(protocol.EXTENDED,))
        found: float | None = answer["deadline"]
        return found

    async def push(self, run: RunRef, uri: str) -> AsyncIterator[PushMessage]:
        """Upload a run's output and log from the worker to ``gs://bucket/prefix``; at last :class:`Pushed`.

        Files that could not be uploaded stand in the manifest; whether that is a failure is for the caller to say.
        """
        command = await self._command("push", run, "--to", uri)
        async with conversation(self._open, self.address, command, self._timing.frame) as frames:
            async for frame, _ in frames:
                yield _push_message(frame)
                if frame.kind == protocol.PUSHED:
                    return

    @property
    def _open(self) -> asyncssh.SSHClientConnection:
        if self._connection is None:
            raise RuntimeError("the session is not open")
        return self._connection

    async def _command(self, name: str, run: RunRef | None = None, *arguments: str) -> str:
        """Return the shell command for the runner, which is installed first if this session has not done so."""
        async with self._installing:
            if not self._runner_dir:
                self._runner_dir = await self._install()
        words = [name]
        if run is not None:
            words += ["--run", run.run_name, "--attempt", str(run.attempt)]
        # UTF-8 whatever the login's locale is: names of files and arguments must arrive as they are.
        return f"exec {self._python} -X utf8 {self._runner_dir}/runner.py {shlex.join([*words, *arguments])}"

    async def _install(self) -> str:
        runner = self._runner or RunnerArchive.build(remote_dir())
        script = _INSTALL.format(home=_HOME_DIR, digest=runner.digest)
        status, _, complaint = await self._execute(f"sh -c {shlex.quote(script)}", runner.data, "installing the runner")
        if status != 0:
            raise ProtocolMismatch(f"{self.address}: the runner could not be installed: {complaint}")
        return f"{_HOME_DIR}/{runner.digest}"

    async def _ask(
        self,
        name: str,
        request: bytes = b"",
        run: RunRef | None = None,
        arguments: tuple[str, ...] = (),
        bound: float = 0.0,
        *,
        expected: tuple[str, ...],
    ) -> dict[str, Any]:
        """Run a command of the runner that gives one answer."""
        command = await self._command(name, run, *arguments)
        status, output, complaint = await self._execute(command, request, f"asking for {name}", bound)
        try:
            answer = protocol.decode(output)
        except protocol.ProtocolError as error:
            raise ProtocolMismatch(f"{self.address}: {name} ended with {status}: {error} {complaint}") from error
        if answer["type"] not in expected:
            raise ProtocolMismatch(f"{self.address}: {name} was answered by {answer}")
        return answer

    async def _execute(
        self, command: str, data: bytes = b"", doing: str = "", bound: float = 0.0
    ) -> tuple[int, bytes, str]:
        """Run a command to its end; returns exit status, output and the end of its complaints."""
        bound = max(bound, self._timing.command) + len(data) / _SLOW_LINK
        async with lost_connections(self.address, doing), asyncio.timeout(bound):
            done = await self._open.run(command, input=data, encoding=None)
        if done.exit_status is None:
            raise ConnectionFailed(f"connection to {self.address} was lost while {doing}")
        return done.exit_status, _raw(done.stdout), _raw(done.stderr)[-2000:].decode(errors="replace")


def _raw(output: bytes | str | None) -> bytes:
    return output if isinstance(output, bytes) else (output or "").encode()


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
