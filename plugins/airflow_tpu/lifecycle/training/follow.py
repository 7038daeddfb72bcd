# SPDX-License-Identifier: Apache-2.0
"""Follow a run to its end, through lost connections: every byte of its log once, and the truth about its end.

A lost connection is neither success nor failure. The node's state decides: if it is gone, the run is interrupted;
if it is alive, training and log continue, from the exact byte.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from airflow_tpu import protocol
from airflow_tpu.clients.runner.session import RunSession
from airflow_tpu.clients.ssh import Timing, WorkerAddress
from airflow_tpu.core.backoff import ExponentialBackoff
from airflow_tpu.core.run.interruption import Reached, SilenceLimit
from airflow_tpu.core.run.job import RunRef
from airflow_tpu.core.run.log_lines import LINE_LIMIT, LineAssembler, records
from airflow_tpu.core.run.messages import Finished, Gone, Heartbeat, LogChunk
from airflow_tpu.core.run.progress import QUIET, ProgressLines
from airflow_tpu.core.run.result import RunResult
from airflow_tpu.core.tpu.readiness import Wait
from airflow_tpu.core.tpu.resource_name import ResourceName
from airflow_tpu.errors import (
    ConnectionFailed,
    DeadlineExceeded,
    HostKeyMismatch,
    LoginRefused,
    RateLimited,
    ResourceNotFound,
    RunInterrupted,
    TransientError,
)
from airflow_tpu.lifecycle.waits.loss import lost_state, until_lost
from airflow_tpu.lifecycle.waits.reachability import ONE_TRY, worker_addresses

if TYPE_CHECKING:
    from airflow_tpu.clients.ssh import Login
    from airflow_tpu.clients.tpu_api import TPUClient

log = logging.getLogger(__name__)

OVERTIME = dt.timedelta(minutes=2)
"""The worker stops the run at its deadline by itself; this is what it may take to say so."""

LINE_PATIENCE = dt.timedelta(seconds=10)
"""How long a follower waits at its handover for the end of the line that is being written."""

WATCH_POLL = 2.0
"""Seconds between two looks at the node while its run is followed; all followers of a zone share them."""

LAST_WORDS = 1.0
"""Seconds in which a run on a lost node may still say how it ended."""

_BACKOFF = ExponentialBackoff(first=1.0, longest=15.0, jitter=0.5)


@dataclass(frozen=True)
class RunningJob:
    """A run on a worker; plain values, so that a trigger can carry it. A host key is public.

    :param node: the node.
    :param address: worker 0.
    :param ref: name and attempt of the run.
    :param silence: how long it may not answer.
    """

    node: ResourceName
    address: WorkerAddress
    ref: RunRef
    silence: SilenceLimit = field(default_factory=SilenceLimit)


class Follower:
    """Streams one run's log and returns its result.

    :param client: the Cloud TPU API, asked when the connection is lost.
    :param login: user and private key.
    :param job: what to follow.
    :param write: gets each line of the log, without its line end; or many lines as one text, when many come at once.
    :param timing: bounds of each connection.
    :param quiet: silence of the log after which a line says what ``progress.json`` holds.
    """

    def __init__(
        self,
        client: TPUClient,
        login: Login,
        job: RunningJob,
        write: Callable[[str], None],
        timing: Timing = ONE_TRY,
        quiet: dt.timedelta = QUIET,
    ) -> None:
        self.client = client
        self.login = login
        self.job = job
        self.reached = Reached()
        self._write = write
        self._is_slow = False
        self._full_chunks = 0
        self._timing = timing
        self._lines = LineAssembler()
        self._until = dt.datetime.max.replace(tzinfo=dt.UTC)
        self._progress = ProgressLines(dt.datetime.now(dt.UTC), quiet)
        self._offset: int | None = None  # None: where the last follower's deliveries ended
        self._silent_since: dt.datetime | None = None
        self._failures = 0

    async def until_finished(
        self, until: dt.datetime, pause_at: dt.datetime | None = None, is_slow: bool = False
    ) -> RunResult | None:
        """Follow to the end, or hand over to the next follower.

        :param until: the run's deadline.
        :param pause_at: stop following at this instant; what was delivered is acknowledged, the next follower
            continues with the following byte.
        :param is_slow: what it writes is taken slowly: hand over when much more of the log is there than was read.
        :return: the result, or None when paused or behind.
        :raises TPULost: the TPU was taken away, or its host has been silent for too long.
        :raises ConnectionFailed: neither the node nor the API could be reached for too long.
        :raises RunInterrupted: the run is gone without a result.
        :raises DeadlineExceeded: the deadline has passed and the worker does not say how it ended.
        """
        self._until, self._is_slow = until, is_slow
        while pause_at is None or dt.datetime.now(dt.UTC) < pause_at:
            try:
                result = await self._follow_watched(pause_at)
            except (ConnectionFailed, LoginRefused, HostKeyMismatch) as error:
                await self._after_loss(error, until)
                continue
            if result is not None:
                return result
            if self._is_behind:
                break
        await self._emit(self._lines.close())
        return None

    async def _follow_watched(self, pause_at: dt.datetime | None) -> RunResult | None:
        """Follow until the API says that the node is gone: a connection to a machine that is off may stay open."""
        following = asyncio.ensure_future(self._follow_once(pause_at))
        watching = asyncio.ensure_future(until_lost(self.client, self.job.node, WATCH_POLL))
        try:
            await asyncio.wait({following, watching}, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait({following}, timeout=LAST_WORDS)
            if following.done():
                return following.result()
            raise watching.result()
        finally:
            for task in (following, watching):
                task.cancel()
            await asyncio.gather(following, watching, return_exceptions=True)

    async def _follow_once(self, pause_at: dt.datetime | None) -> RunResult | None:
        async with (
            RunSession(self.job.address, self.login, self._timing) as session,
            contextlib.aclosing(session.follow(self.job.ref, self._offset)) as messages,
        ):
            # Where the API publishes no host key, the first one seen stays the only one.
            self.job = replace(self.job, address=session.address)
            async for message in messages:
                self._silent_since, self._failures = None, 0
                if isinstance(message, Finished):
                    await self._emit(self._lines.close())
                    return RunResult.from_json(message.result)
                self._count(message)
                if self._is_behind or (pause_at is not None and self._may_pause(pause_at)):
                    break  # before it is taken: it is not acknowledged and comes to the next follower
                await self._take(message)
        return None

    def _may_pause(self, pause_at: dt.datetime) -> bool:
        """Pause between two lines; within one only if it takes too long to end."""
        now = dt.datetime.now(dt.UTC)
        return now >= pause_at and (not self._lines.current or now >= pause_at + LINE_PATIENCE)

    def _count(self, message: object) -> None:
        """A chunk that is full has more behind it; the second one in a row is read by who writes faster."""
        is_full = isinstance(message, LogChunk) and len(message.data) >= protocol.CHUNK_BYTES
        self._full_chunks = self._full_chunks + 1 if is_full else 0

    @property
    def _is_behind(self) -> bool:
        return self._is_slow and self._full_chunks > 1

    async def _take(self, message: object) -> None:
        if isinstance(message, LogChunk):
            self._offset = message.end  # an acknowledgement may be lost with the connection, this is not
            await self._emit(self._lines.feed(message.data))
        elif isinstance(message, Heartbeat):
            self.reached = self.reached.after(message)
            if line := self._progress.line(message.progress, dt.datetime.now(dt.UTC), self._until):
                log.info("%s", line)
        elif isinstance(message, Gone):
            await self._emit(self._lines.close())
            raise RunInterrupted(
                f"the run {self.job.ref.run_name} is gone without a result ({message.reason}): the worker was "
                "rebooted, or its supervisor was killed. A new attempt resumes from the last checkpoint."
            )

    async def _after_loss(self, error: Exception, until: dt.datetime) -> None:
        now = dt.datetime.now(dt.UTC)
        self._silent_since = self._silent_since or now
        allowed = self.job.silence
        lost = await lost_state(self.client, self.job.node, now - self._silent_since, allowed.limit)
        if lost is not None:
            raise lost from error
        if not await self._relocate() and isinstance(error, HostKeyMismatch):
            raise error
        if now > until + OVERTIME:
            raise DeadlineExceeded(f"the deadline {until} has passed and {self.job.node} does not answer") from error
        if now - self._silent_since > 2 * allowed.limit:
            raise error  # nor does the API
        self._failures += 1
        pause = _BACKOFF.pause(self._failures)
        wait = Wait(self._silent_since, min(until + OVERTIME, self._silent_since + allowed.limit))
        line = wait.line("an answer", now, pause)
        cost = f"; {allowed.cost}" if allowed.cost else ""
        log.info("connection lost; the run continues, reconnecting (%s). %s%s", error, line, cost)
        await asyncio.sleep(pause)

    async def _relocate(self) -> bool:
        """Take over the address and the host key that the API tells now; a reboot for maintenance may change both.

        :return: whether anything has changed.
        """
        old = self.job.address
        try:
            view = await self.client.node(self.job.node)
            pinned = [old.host_key] if old.host_key else []
            found = await worker_addresses(self.client, view, old.port, pinned)
        except (TransientError, RateLimited, ResourceNotFound):
            return False
        if not found or found[0] == old:
            return False
        log.info("worker 0 has moved to %s: reconnecting there", found[0])
        self.job = replace(self.job, address=found[0])
        return True

    async def _emit(self, lines: list[str]) -> None:
        """Write to the log; in a thread what is long: Airflow may be slow to take it, and the loop has other runs."""
        if lines:
            self._progress.printed(dt.datetime.now(dt.UTC))
        for text in records(lines):
            if len(text) <= LINE_LIMIT:
                self._write(text)
            else:
                await asyncio.to_thread(self._write, text)
